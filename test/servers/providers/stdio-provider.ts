/**
 * Owns: a provider behind an MCP server over stdio (2025-11-25): the process can be restarted, the provider lives on in its ledger.
 * Leaves to others: what is booked (provider.ts), the answers (tools.ts).
 *
 * `node stdio-provider.ts --ledger DIR [--faults JSON] [--meet MS]`
 */
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { Ledger } from "../ledger.ts";
import { Provider, type ProviderFaults } from "./provider.ts";
import { createdResult, foundResult, tools, type Fields } from "./tools.ts";

const { values } = parseArgs({
  options: { ledger: { type: "string" }, faults: { type: "string", default: "{}" }, meet: { type: "string", default: "0" } },
});
if (values.ledger === undefined) {
  process.stderr.write("stdio-provider: --ledger DIR is needed\n");
  process.exit(2);
}
const provider = new Provider({
  ledger: new Ledger(values.ledger, { server: "provider" }),
  faults: JSON.parse(values.faults) as ProviderFaults,
  meetMs: Number(values.meet),
});

async function answerOf(id: string | number, method: string, params: Fields): Promise<Fields> {
  const args = (params["arguments"] ?? {}) as Record<string, string>;
  switch (method) {
    case "initialize":
      return {
        protocolVersion: "2025-11-25",
        capabilities: { tools: {} },
        serverInfo: { name: "provider", version: "1.0.0" },
      };
    case "ping":
      return {};
    case "tools/list":
      return { tools };
    case "tools/call":
      return params["name"] === "find_booking"
        ? foundResult(provider, args)
        : (createdResult(await provider.create(args, id), "result") as Fields);
    default:
      throw new Error("Method not found");
  }
}

const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const { id, method, params = {} } = JSON.parse(line) as { id?: string | number; method: string; params?: Fields };
  if (id === undefined) return;
  answerOf(id, method, params).then(
    (result) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, result })}\n`),
    () =>
      process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, error: { code: -32601, message: "Method not found" } })}\n`),
  );
});
lines.once("close", () => process.exit(0));
