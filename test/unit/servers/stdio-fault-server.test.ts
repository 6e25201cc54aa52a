import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client as ModernClient } from "@modelcontextprotocol/client";
import { StdioClientTransport as ModernTransport } from "@modelcontextprotocol/client/stdio";
import { Client as LegacyClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as LegacyTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { stdioFaults, type StdioFaults, type StdioScript } from "../../servers/fault/stdio-faults.ts";
import type { Step } from "../../servers/fault/steps.ts";
import { LineProcess, modernRequest } from "./raw-client.ts";

// Every test starts processes of its own; a loaded machine needs its time for that.
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let directory: string;
let faults: StdioFaults;
const open: (() => Promise<unknown>)[] = [];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "msr-stdio-"));
});
afterEach(async () => {
  for (const end of open.splice(0)) await end();
  rmSync(directory, { recursive: true, force: true });
});

function script(script: StdioScript = {}): void {
  faults = stdioFaults(directory, script);
}

function start(): LineProcess {
  const server = new LineProcess(faults.command, faults.args);
  open.unshift(() => server.end());
  return server;
}

const charge = { name: "charge", arguments: { account: "acme", amount: 5 } };
const call = (id: string, params: Record<string, unknown> = charge) => ({ id, method: "tools/call", params });

describe("the stdio fault server", () => {
  it("serves both eras to real clients", async () => {
    script();
    const legacy = new LegacyClient({ name: "t", version: "1" });
    await legacy.connect(new LegacyTransport({ command: faults.command, args: [...faults.args] }));
    open.unshift(() => legacy.close());
    expect(await legacy.callTool(charge)).toMatchObject({ structuredContent: { amount: 5 } });
    const modern = new ModernClient({ name: "t", version: "1" }, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
    await modern.connect(new ModernTransport({ command: faults.command, args: [...faults.args] }));
    open.unshift(() => modern.close());
    expect((await modern.listTools()).tools.map((tool) => tool.name)).toContain("put");
    expect(await modern.callTool(charge)).toMatchObject({ structuredContent: { amount: 5 } });
    expect(faults.ledger.countEffects({ tool: "charge" })).toBe(2);
    expect(faults.ledger.calls("charge").map((request) => request.attempt)).toEqual([1, 2]);
    expect(faults.ledger.requests({ method: "server/discover" })).toHaveLength(1);
  });

  it.each<[string, Step, number | string]>([
    ["ends before the answer", { do: "exit", code: 7 }, 7],
    ["is killed", { do: "kill" }, "SIGKILL"],
    ["ends after half of the line", { do: "partial-line" }, 1],
  ])("%s, after the effect; the next process goes on in the script", async (_name, step, exit) => {
    script({ steps: [step, { do: "answer" }] });
    const first = start();
    first.send(call("1"));
    await expect(first.answer("1")).rejects.toThrow("stdout ended");
    expect(await first.exit).toBe(exit);
    expect(faults.ledger.countEffects()).toBe(1);
    const second = start();
    second.send(call("2"));
    expect(await second.answer("2")).toMatchObject({ result: { structuredContent: { amount: 5 } } });
    expect(faults.ledger.countEffects()).toBe(2);
  });

  it("leaves half of a line behind", async () => {
    script({ steps: [{ do: "partial-line" }] });
    const server = start();
    server.send(call("1"));
    await server.stdoutEnded;
    expect(server.lines).toHaveLength(1);
    expect(server.lines[0]).toMatch(/^\{"jsonrpc":"2.0","id":"1"/);
    expect(() => JSON.parse(server.lines[0]!) as unknown).toThrow();
  });

  it("closes stdout and lives on", async () => {
    script({ steps: [{ do: "close-stdout" }] });
    const server = start();
    server.send(call("1"));
    await server.stdoutEnded;
    expect(server.child.exitCode).toBeNull();
    server.send(call("2"));
    await faults.ledger.untilEffects(2);
    server.child.stdin?.end();
    expect(await server.exit).toBe(0);
  });

  it("closes stdin and lives on: the next write fails", async () => {
    script({ methods: { "tools/list": [{ do: "close-stdin" }] } });
    const server = start();
    server.send({ id: "1", method: "tools/list" });
    await faults.ledger.until((ledger) => ledger.requests({ method: "tools/list" }).length === 1);
    // The pipe takes what is written before the other end is closed; then it breaks.
    let written = "written";
    while (written === "written") written = await server.write(call("2"));
    expect(written).toBe("EPIPE");
    expect(server.child.exitCode).toBeNull();
    expect(faults.ledger.countEffects()).toBe(0);
  });

  it("writes garbage before the answer, and more answers than asked for", async () => {
    script({
      steps: [{ do: "garbage", lines: ["hello", "{"] }, { do: "two-answers" }, { do: "unknown-id" }, { do: "bad-output" }],
    });
    const server = start();
    server.send(call("1"));
    expect(await server.answer("1")).toMatchObject({ result: { structuredContent: { amount: 5 } } });
    expect(server.lines.slice(0, 2)).toEqual(["hello", "{"]);
    server.send(call("2"));
    server.send(call("3"));
    server.send(call("4"));
    expect(await server.answer("4")).toMatchObject({ result: { content: [{ type: "hologram" }] } });
    const ids = server.lines.slice(3).map((line) => (JSON.parse(line) as { id: string }).id);
    expect(ids).toEqual(["2", "2", "unknown-3", "3", "4"]);
  });

  it("hangs until it is let go on, then answers late or is lost", async () => {
    script({ steps: [{ do: "hang" }, { do: "hang", then: { do: "exit" } }] });
    const server = start();
    server.send(call("1"));
    server.send(call("2"));
    await faults.ledger.untilEffects(2);
    expect(server.lines).toEqual([]);
    faults.release();
    expect(await server.answer("1")).toMatchObject({ result: {} });
    faults.release();
    expect(await server.exit).toBe(1);
  });

  it("takes a new script, tools and name while it runs", async () => {
    script();
    const server = start();
    server.send(call("1"));
    await server.answer("1");
    faults.script({ do: "tool-error" });
    faults.set({ tools: [], serverInfo: { name: "another", version: "2" } });
    server.send({ id: "2", method: "tools/list" });
    expect(await server.answer("2")).toMatchObject({ result: { tools: [] } });
    faults.set({ tools: [{ name: "charge", inputSchema: { type: "object" } }] });
    server.send(call("3"));
    expect(await server.answer("3")).toMatchObject({ result: { isError: true } });
    server.send(call("4"));
    expect((await server.answer("4"))["result"]).not.toHaveProperty("isError");
  });

  it("reports progress and makes tasks", async () => {
    script({
      steps: [
        { do: "answer", progress: 2 },
        { do: "task", working: 0 },
      ],
    });
    const server = start();
    server.send(call("1", { ...charge, _meta: { progressToken: "p" } }));
    await server.answer("1");
    expect(server.lines.map((line) => (JSON.parse(line) as { method?: string }).method)).toEqual([
      "notifications/progress",
      "notifications/progress",
      undefined,
    ]);
    server.send(call("2"));
    const { taskId } = ((await server.answer("2"))["result"] as { task: { taskId: string } }).task;
    server.send({ id: "3", method: "tasks/result", params: { taskId } });
    expect(await server.answer("3")).toMatchObject({ result: { structuredContent: { amount: 5 } } });
  });

  it("asks the client before it answers", async () => {
    script({ steps: [{ do: "elicit" }] });
    const server = start();
    server.send(call("1"));
    await faults.ledger.untilEffects(1);
    server.send({ id: "elicit-1", result: { action: "decline" } });
    expect(await server.answer("1")).toMatchObject({ result: { _meta: { elicited: { action: "decline" } } } });
  });

  it.each<[string, StdioScript, unknown]>([
    ["both", {}, { result: { supportedVersions: ["2026-07-28"] } }],
    ["legacy", { era: "legacy" }, { error: { code: -32601 } }],
    ["modern", { era: "modern" }, { result: { supportedVersions: ["2026-07-28"] } }],
  ])("answers server/discover as a server of this era: %s", async (_name, fields, expected) => {
    script(fields);
    const server = start();
    const { body } = modernRequest("d", "server/discover");
    server.send(body);
    expect(await server.answer("d")).toMatchObject(expected as object);
    server.send({ id: "i", method: "initialize", params: { protocolVersion: "2025-11-25" } });
    const initialized = await server.answer("i");
    if (fields.era === "modern") expect(initialized).toMatchObject({ error: { code: -32022 } });
    else expect(initialized).toMatchObject({ result: { protocolVersion: "2025-11-25" } });
  });

  it("can be silent about server/discover, end on it, or not start at all", async () => {
    script({ era: "legacy", discover: "silent" });
    const silent = start();
    silent.send(modernRequest("d", "server/discover").body);
    silent.send({ id: "i", method: "initialize", params: { protocolVersion: "2025-11-25" } });
    await silent.answer("i");
    expect(silent.lines).toHaveLength(1);
    faults.set({ discover: "exit" });
    silent.send(modernRequest("d", "server/discover").body);
    expect(await silent.exit).toBe(1);
    faults.set({ start: "crash" });
    expect(await start().exit).toBe(3);
  });

  it("ends when its stdin ends", async () => {
    script();
    const server = start();
    server.send({ id: "1", method: "ping" });
    await server.answer("1");
    server.child.stdin?.end();
    expect(await server.exit).toBe(0);
  });
});
