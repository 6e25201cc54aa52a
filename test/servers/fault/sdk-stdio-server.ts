/**
 * Owns: a stdio server on the v1 or v2 SDK as a child process, with the fault servers' tools and ledger. An answer is lost by the end of the
 * process, right after the effect, when `mode.json` says so.
 * Leaves to others: starting it (sdk-servers.ts: sdkStdio), tools and effects (world.ts).
 *
 * `node sdk-stdio-server.ts --dir DIR --sdk v1|v2`
 */
import { parseArgs } from "node:util";
import { StdioServerTransport as V1StdioTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { serveStdio, StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { decideAnswer } from "../demo/control.ts";
import { Ledger, type RequestEntry } from "../ledger.ts";
import { v1Server, v2Server } from "./sdk-servers.ts";
import { FaultWorld, type Json, type RpcId } from "./world.ts";

const { values } = parseArgs({ options: { dir: { type: "string" }, sdk: { type: "string" } } });
const { dir, sdk } = values;
if (dir === undefined || (sdk !== "v1" && sdk !== "v2")) {
  process.stderr.write("sdk-stdio-server: --dir DIR and --sdk v1|v2 are needed\n");
  process.exit(2);
}

const directory = dir;
const ledger = new Ledger(directory, { server: `sdk-${sdk}-stdio` });
const world = new FaultWorld(ledger);
const calls = new Map<RpcId, RequestEntry>();

function record(message: unknown): void {
  const { method, id, params } = message as { method?: string; id?: RpcId; params?: Json };
  const entry = ledger.recordRequest({ method: method ?? "response", rpcId: id, params });
  if (id !== undefined && entry.tool !== undefined) calls.set(id, entry);
}

/** Ends the process when this call's answer is to be lost; never settles when it is to hang. */
async function lose(rpcId: RpcId): Promise<void> {
  const call = calls.get(rpcId);
  if (call?.tool === undefined) return;
  const decision = decideAnswer(directory, call.tool, "answer", call.attempt ?? 1);
  if (decision === "lose") process.exit(1);
  if (decision === "hang") await new Promise<never>(() => {});
}

process.stdin.once("end", () => process.exit(0));
if (sdk === "v1") {
  const transport = new V1StdioTransport();
  await v1Server(world, lose).connect(transport);
  const onmessage = transport.onmessage;
  transport.onmessage = (message) => {
    record(message);
    onmessage?.(message);
  };
} else {
  const transport = new StdioServerTransport();
  serveStdio(() => v2Server(world, lose), { transport });
  const onmessage = transport.onmessage;
  transport.onmessage = (message) => {
    record(message);
    onmessage?.(message);
  };
}
