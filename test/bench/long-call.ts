/**
 * Owns: proof in real time that a long call is delivered: a tool that says nothing for a quarter of an hour, over stdio and over Streamable
 * HTTP, called through the command line gateway by the SDK's legacy client, by its client of 2026-07-28 and by the stdio bridge's client.
 * Run: node test/bench/long-call.ts [--seconds 900]      (not part of `npm test`)
 *      node test/bench/long-call.ts --vscode --seconds 370   the same with VS Code's own MCP client, in a real VS Code (needs dist/)
 */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import * as v2 from "@modelcontextprotocol/client";
import { Client as V1Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as V1Stdio } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as V1Http } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ResultSchema } from "@modelcontextprotocol/sdk/types.js";
import { startHttpFaultServer } from "../servers/fault/http-fault-server.ts";
import { stdioFaults } from "../servers/fault/stdio-faults.ts";
import { Headless, headlessFile } from "../support/headless.ts";
import { temporaryFolder } from "../support/temp.ts";

const { values } = parseArgs({
  options: { seconds: { type: "string", default: "900" }, vscode: { type: "boolean", default: false } },
});
const seconds = Number(values.seconds);
if (values.vscode) {
  const env = {
    ...process.env,
    MSR_HOST_GREP: "silent about for a while",
    MSR_LONG_CALL_SECONDS: values.seconds,
    MSR_HOST_TIMEOUT_MS: String((seconds + 300) * 1000),
  };
  const runner = fileURLToPath(new URL("../support/host-runner.ts", import.meta.url));
  process.exit(spawnSync(process.execPath, [runner], { env, stdio: "inherit" }).status ?? 1);
}
/** The clients' own clock: they are to wait. */
const patience = { timeout: (seconds + 300) * 1000 };

interface Agent {
  readonly name: string;
  call(tool: string, args: Record<string, unknown>): Promise<Record<string, unknown>>;
  close(): Promise<void>;
}

async function legacy(name: string, transport: V1Http | V1Stdio): Promise<Agent> {
  const client = new V1Client({ name, version: "1" });
  await client.connect(transport);
  return {
    name,
    call: async (tool, args) =>
      client.request({ method: "tools/call", params: { name: tool, arguments: args } }, ResultSchema, patience),
    close: () => client.close(),
  };
}

async function modern(name: string, url: string): Promise<Agent> {
  const client = new v2.Client({ name, version: "2" }, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
  await client.connect(new v2.StreamableHTTPClientTransport(new URL(url)));
  return {
    name,
    call: async (tool, args) => client.callTool({ name: tool, arguments: args }, patience),
    close: () => client.close(),
  };
}

const folder = temporaryFolder();
const gateway = new Headless();
const stdio = stdioFaults(join(folder.path, "stdio"), { byDefault: { do: "hang" } });
const http = await startHttpFaultServer({ ledger: join(folder.path, "http"), binding: "http-json" });
const agents: Agent[] = [];
let wrong = 0;
try {
  http.byDefault({ do: "hang" });
  await gateway.serve({
    servers: {
      stdio: { type: "stdio", command: stdio.command, args: [...stdio.args] },
      http: { type: "http", url: http.url },
    },
    serverTrust: {},
  });
  const calls: Promise<void>[] = [];
  const begun = performance.now();
  for (const server of ["stdio", "http"] as const) {
    const url = gateway.urls[server] ?? "";
    const bridge = new V1Stdio({
      command: process.execPath,
      args: [headlessFile, "connect", server, "--url", url],
      stderr: "ignore",
    });
    agents.push(
      await legacy(`${server}: legacy client`, new V1Http(new URL(url))),
      await modern(`${server}: 2026-07-28 client`, url),
      await legacy(`${server}: legacy client over the stdio bridge`, bridge),
    );
  }
  for (const [index, agent] of agents.entries())
    calls.push(
      agent.call("charge", { amount: index + 1 }).then(
        (result) => {
          const took = Math.round((performance.now() - begun) / 1000);
          const whole = result["isError"] !== true && took >= seconds;
          if (!whole) wrong += 1;
          console.log(
            `${agent.name.padEnd(46)} ${whole ? "delivered" : `WRONG ${JSON.stringify(result).slice(0, 200)}`} after ${took} s`,
          );
        },
        (error: unknown) => {
          wrong += 1;
          console.log(
            `${agent.name.padEnd(46)} FAILED after ${Math.round((performance.now() - begun) / 1000)} s: ${String(error)}`,
          );
        },
      ),
    );
  await new Promise((over) => setTimeout(over, seconds * 1000));
  stdio.release(agents.length);
  http.release();
  await Promise.all(calls);
  const states = (await gateway.operations()).map(({ state }) => state);
  const effects = stdio.ledger.effects().length + http.ledger.effects().length;
  console.log(`operations: ${states.join(", ")}; effects: ${effects} of ${agents.length}`);
  if (states.some((state) => state !== "completed") || effects !== agents.length) wrong += 1;
} finally {
  for (const agent of agents) await agent.close().catch(() => undefined);
  await http.close();
  await gateway.remove();
  folder.remove();
}
process.exitCode = wrong === 0 ? 0 : 1;
