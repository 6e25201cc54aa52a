/**
 * Owns: the time from the loss of an answer to the agent's answer when nothing can be recovered: ours for each transport and way of losing,
 * and side by side, in the same run and at the same servers, what the SDK's clients do by themselves with a short time limit.
 * Run: node test/bench/loss.ts [--samples 30] [--limit 500]   (the SDKs' own limit is 60,000 ms; ratios grow with it)
 */
/* eslint-disable @typescript-eslint/no-deprecated -- the older transport is measured, too */
import { join } from "node:path";
import { parseArgs } from "node:util";
import * as v2 from "@modelcontextprotocol/client";
import { StdioClientTransport as V2Stdio } from "@modelcontextprotocol/client/stdio";
import { Client as V1Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport as V1Sse } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport as V1Stdio } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as V1Http } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ResultSchema } from "@modelcontextprotocol/sdk/types.js";
import { Lab } from "../faults/support/lab.ts";
import { lossTime } from "../faults/support/loss-time.ts";
import { isStdio, Peer, transports, type Transport } from "../faults/support/peers.ts";
import { median } from "../faults/support/report.ts";
import type { Step } from "../servers/fault/steps.ts";
import { temporaryFolder } from "../support/temp.ts";

const { values } = parseArgs({
  options: { samples: { type: "string", default: "30" }, limit: { type: "string", default: "500" } },
});
const samples = Number(values.samples);
const limitMs = Number(values.limit);
/** The SDKs wait each time. */
const sdkSamples = 3;

/** Ways in which the answer is lost for good, after the effect. */
function ways(transport: Transport): readonly (readonly [name: string, step: Step])[] {
  if (isStdio(transport)) return [["process exit", { do: "exit" }]];
  if (transport === "sse-2024") return [["stream ends", { do: "stream-end" }]];
  const ways: (readonly [string, Step])[] = [["reset", { do: "reset" }]];
  if (transport.endsWith("json")) ways.push(["202", { do: "accepted" }]);
  else ways.push(["stream ends", { do: "stream-end", after: "headers" }]);
  return ways;
}

async function ours(transport: Transport, step: Step): Promise<number[]> {
  const times: number[] = [];
  const lab = await Lab.open(transport);
  try {
    for (let sample = 0; sample < samples; sample += 1) {
      // A process that ended is started again, as a person would.
      await lab.server.start();
      const subject = lab.subject("C");
      lab.peer.script(step);
      const answer = await lab.call("agent", subject).answer;
      if (answer.mark?.state !== "unresolved") throw new Error(`${transport}: not unresolved`);
      times.push(answer.at - (lossTime(lab.peer, lab.requests(subject).at(-1), answer.at) ?? answer.at));
    }
  } finally {
    await lab.close();
  }
  return times;
}

/** One call of an SDK's client that loses its answer; settles when the client says something. */
type Client = (peer: Peer) => Promise<{ readonly call: () => Promise<unknown>; readonly close: () => Promise<void> }>;

const params = { name: "charge", arguments: { account: "bench", amount: 1 } };

const v1: Client = async ({ definition, transport }) => {
  const client = new V1Client({ name: "v1", version: "1" });
  await client.connect(
    definition.type === "stdio"
      ? new V1Stdio({ command: definition.command, args: [...definition.args], env: { ...definition.env }, stderr: "ignore" })
      : transport === "sse-2024"
        ? new V1Sse(new URL(definition.url))
        : new V1Http(new URL(definition.url)),
  );
  return {
    call: () => client.request({ method: "tools/call", params }, ResultSchema, { timeout: limitMs }),
    close: () => client.close(),
  };
};

const v2Client: Client = async ({ definition, transport, era }) => {
  const mode = era === "2026-07-28" ? { pin: era } : ("legacy" as const);
  const client = new v2.Client({ name: "v2", version: "2" }, { versionNegotiation: { mode } });
  await client.connect(
    definition.type === "stdio"
      ? new V2Stdio({ command: definition.command, args: [...definition.args], env: { ...definition.env }, stderr: "ignore" })
      : transport === "sse-2024"
        ? new v2.SSEClientTransport(new URL(definition.url))
        : new v2.StreamableHTTPClientTransport(new URL(definition.url)),
  );
  return { call: () => client.callTool(params, { timeout: limitMs }), close: () => client.close() };
};

async function theirs(transport: Transport, step: Step, connect: Client): Promise<number[]> {
  const times: number[] = [];
  for (let sample = 0; sample < sdkSamples; sample += 1) {
    const folder = temporaryFolder();
    const peer = await Peer.start(transport, join(folder.path, "ledger"));
    try {
      const { call, close } = await connect(peer);
      peer.script(step);
      await call().then(
        () => {
          throw new Error(`${transport}: there was an answer`);
        },
        () => undefined,
      );
      const at = performance.now();
      times.push(at - (lossTime(peer, peer.ledger.calls("charge").at(-1), at) ?? at));
      await close();
    } finally {
      await peer.close();
      folder.remove();
    }
  }
  return times;
}

console.log(
  `From the loss to an answer, median ms (ours: ${samples} samples; SDK clients alone: ${sdkSamples}, time limit ${limitMs} ms)\n`,
);
console.log(
  `${"transport".padEnd(16)}${"lost by".padEnd(14)}${"ours".padStart(10)}${"SDK v1".padStart(12)}${"SDK v2".padStart(12)}   SDK / ours`,
);
const all: number[] = [];
for (const transport of transports) {
  for (const [name, step] of ways(transport)) {
    const own = await ours(transport, step);
    all.push(...own);
    // v1 does not know the 2026-07-28 era.
    const one = transport.includes("modern") ? undefined : median(await theirs(transport, step, v1));
    const two = median(await theirs(transport, step, v2Client));
    const ratio = Math.max(one ?? 0, two) / Math.max(0.01, median(own));
    const cell = (value: number | undefined): string => (value === undefined ? "–" : value.toFixed(1)).padStart(12);
    console.log(
      `${transport.padEnd(16)}${name.padEnd(14)}${median(own).toFixed(1).padStart(10)}${cell(one)}${cell(two)}   ${ratio.toFixed(0)} ×`,
    );
  }
}
console.log(
  `\nOurs, all ${all.length}: median ${median(all).toFixed(1)} ms, slowest ${Math.max(...all).toFixed(0)} ms. Target: under 100 ms.`,
);
console.log(
  "An SDK client that reports at once says only that the connection failed: the agent is not told that the tool may have run.",
);
process.exitCode = median(all) < 100 ? 0 : 1;
