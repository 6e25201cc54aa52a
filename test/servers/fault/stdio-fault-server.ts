/**
 * Owns: a scriptable MCP server as a child process: it reads its script anew for every request, writes the effect to the ledger and then
 * loses the answer as the step says. The script goes on where an earlier process of the same ledger ended.
 * Leaves to others: writing the script and starting it (stdio-faults.ts), the words (steps.ts), tools and answers (world.ts).
 *
 * `node stdio-fault-server.ts --dir DIR`; DIR holds the ledger, `script.json` (stdio-faults.ts: StdioScript), `release.json`,
 * `hung.json` and `stdin-closed`.
 */
import { closeSync, existsSync, readFileSync, renameSync, watch, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { Ledger } from "../ledger.ts";
import { answer as answerStep, type Step } from "./steps.ts";
import type { StdioScript } from "./stdio-faults.ts";
import { FaultWorld, metaKeys, metaOf, type Era, type Json, type RpcId } from "./world.ts";

const { values } = parseArgs({ options: { dir: { type: "string" } } });
if (values.dir === undefined) {
  process.stderr.write("stdio-fault-server: --dir DIR is needed\n");
  process.exit(2);
}
const directory = values.dir;

function readJsonFile<T>(name: string, otherwise: T): T {
  const path = join(directory, name);
  return existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as T) : otherwise;
}

function readScript(): StdioScript {
  return readJsonFile<StdioScript>("script.json", {});
}

const started = readScript();
if (started.start === "crash") {
  process.stderr.write("stdio-fault-server: told to end at the start\n");
  process.exit(3);
}

const ledger = new Ledger(directory, { server: "fault-stdio", sync: started.sync ?? true });
const world = new FaultWorld(ledger);

/** Synchronous, so that a line is out before the process ends. */
function writeOut(text: string): void {
  let rest = Buffer.from(text, "utf8");
  while (rest.length > 0) {
    try {
      rest = rest.subarray(writeSync(1, rest));
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (code === "EAGAIN") continue;
      // The client is gone, or stdout was closed by the script.
      if (code === "EPIPE" || code === "EBADF") return;
      throw error;
    }
  }
}

function send(message: Json): void {
  writeOut(`${JSON.stringify(message)}\n`);
}

/** Calls that hang, and how many `release()` has let go in this directory. */
const hanging: (() => void)[] = [];
let released = readJsonFile<{ count?: number }>("release.json", {}).count ?? 0;

function releaseSome(): void {
  const count = readJsonFile<{ count?: number }>("release.json", {}).count ?? 0;
  while (released < count && hanging.length > 0) {
    released += 1;
    hanging.shift()?.();
  }
}

function hang(go: () => void): void {
  hanging.push(go);
  // Told to the test, over all processes of this directory.
  const { count = 0 } = readJsonFile<{ count?: number }>("hung.json", {});
  writeFileSync(join(directory, "hung.tmp"), JSON.stringify({ count: count + 1 }));
  renameSync(join(directory, "hung.tmp"), join(directory, "hung.json"));
  if (hanging.length === 1) watchForRelease();
  releaseSome();
}

let watching = false;
function watchForRelease(): void {
  if (watching) return;
  watching = true;
  watch(directory, { persistent: false }, releaseSome);
}

/** Keeps a process without stdin alive until it is ended, or its parent is gone. */
function liveOn(): void {
  const parent = process.ppid;
  setInterval(() => {
    if (process.ppid !== parent) process.exit(0);
  }, 500);
}

function stepFor(script: StdioScript, method: string): Step {
  const steps = method === "tools/call" ? script.steps : script.methods?.[method];
  const taken = ledger.requests({ method }).length - (script.after?.[method] ?? 0);
  const byDefault = method === "tools/call" ? script.byDefault : undefined;
  return steps?.[taken - 1] ?? byDefault ?? answerStep;
}

function eraOf(script: StdioScript, params: Json): Era {
  return script.era !== "legacy" && metaOf(params)[metaKeys.protocolVersion] !== undefined ? "2026-07-28" : "2025-11-25";
}

const asked = new Map<RpcId, (answered: Json) => void>();

function receive(message: Json): void {
  const { method, id } = message;
  const params = (message["params"] as Json | undefined) ?? {};
  const rpcId = typeof id === "string" || typeof id === "number" ? id : undefined;
  if (typeof method !== "string") {
    ledger.recordRequest({ method: "response", rpcId });
    if (rpcId !== undefined) asked.get(rpcId)?.(message);
    return;
  }
  ledger.recordRequest({ method, rpcId, params });
  const script = readScript();
  if (script.tools !== undefined) world.tools = script.tools;
  if (script.serverInfo !== undefined) world.serverInfo = script.serverInfo;
  const step = stepFor(script, method);
  if (method === "server/discover" && script.era === "legacy") {
    if (script.discover === "silent") return;
    if (script.discover === "exit") process.exit(1);
  }
  if (rpcId === undefined) {
    if (step.do !== "answer") lose(step, "");
    return;
  }
  const era = eraOf(script, params);
  const refused = refusal(script, era, method);
  const reply = refused ?? world.reply(era, { id: rpcId, method, params }, step);
  const answer = { jsonrpc: "2.0", id: rpcId, ...("error" in reply ? { error: reply.error } : { result: reply.result }) };
  for (let progress = 1; progress <= (step.progress ?? 0); progress += 1) {
    const { progressToken } = metaOf(params);
    send(
      progressToken === undefined
        ? { jsonrpc: "2.0", method: "notifications/message", params: { level: "info", data: `step ${progress}` } }
        : { jsonrpc: "2.0", method: "notifications/progress", params: { progressToken, progress, total: step.progress } },
    );
  }
  deliver(step.do === "task" ? (step.deliver ?? answerStep) : step, answer, rpcId);
}

/** A modern-only server refuses the older handshake; a legacy server does not know discovery. */
function refusal(
  script: StdioScript,
  era: Era,
  method: string,
): { error: { code: number; message: string; data?: unknown } } | undefined {
  if (script.era === "modern" && era === "2025-11-25") {
    return { error: { code: -32022, message: "Unsupported protocol version", data: { supported: ["2026-07-28"] } } };
  }
  if (method === "server/discover" && era === "2025-11-25") return { error: { code: -32601, message: "Method not found" } };
  return undefined;
}

function deliver(step: Step, answer: Json, rpcId: RpcId): void {
  switch (step.do) {
    case "two-answers":
      send(answer);
      send({ ...answer, result: { content: [{ type: "text", text: "A second answer." }] } });
      return;
    case "unknown-id":
      send({ ...answer, id: `unknown-${String(rpcId)}` });
      if (step.then !== "end") send(answer);
      return;
    case "elicit": {
      const question = `elicit-${String(rpcId)}`;
      asked.set(question, (answered) => {
        const result = answer["result"] as Json | undefined;
        send({ ...answer, result: { ...result, _meta: { elicited: answered["result"] ?? answered["error"] } } });
      });
      send({
        jsonrpc: "2.0",
        id: question,
        method: "elicitation/create",
        params: {
          mode: "form",
          message: step.message ?? "Really?",
          requestedSchema: { type: "object", properties: { yes: { type: "boolean" } }, required: ["yes"] },
        },
      });
      return;
    }
    case "hang": {
      const then = step.then ?? answerStep;
      hang(() => deliver(then, answer, rpcId));
      return;
    }
    case "garbage":
      for (const line of step.lines ?? ["Listening on port 0", "{not json", '{"jsonrpc":"2.0"}', ""]) writeOut(`${line}\n`);
      send(answer);
      return;
    case "answer-then-break":
      send(answer);
      process.exit(1);
      break;
    case "exit":
    case "kill":
    case "partial-line":
    case "close-stdout":
    case "close-stdin":
    case "accepted":
      lose(step, JSON.stringify(answer));
      return;
    case "answer":
    case "tool-error":
    case "error":
    case "bad-output":
    case "input-required":
    case "task":
    case "header-mismatch":
    case "unsupported-version":
      send(answer);
      return;
    default:
      throw new Error(`The step ${step.do} is for HTTP`);
  }
}

function lose(step: Step, answer: string): void {
  switch (step.do) {
    case "exit":
      process.exit(step.code ?? 1);
      break;
    case "kill":
      process.kill(process.pid, "SIGKILL");
      break;
    case "partial-line":
      writeOut(answer.slice(0, Math.floor(answer.length / 2)));
      process.exit(1);
      break;
    case "close-stdout":
      closeSync(1);
      return;
    case "close-stdin":
      lines.close();
      process.stdin.destroy();
      // libuv never closes the standard descriptors itself.
      closeSync(0);
      writeFileSync(join(directory, "stdin-closed"), `${process.pid}\n`);
      liveOn();
      return;
    default:
      return;
  }
}

const lines = createInterface({ input: process.stdin, crlfDelay: Infinity });
lines.on("line", (line) => {
  if (line.trim() === "") return;
  receive(JSON.parse(line) as Json);
});
process.stdin.once("end", () => process.exit(0));
