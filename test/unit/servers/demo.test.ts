import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { build } from "esbuild";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { setModes } from "../../servers/demo/control.ts";
import { LedgerReader } from "../../servers/ledger.ts";
import { exchange } from "./raw-client.ts";

// Every test starts processes of its own; a loaded machine needs its time for that.
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const demos = join(import.meta.dirname, "../../servers/demo");
let directory: string;
let ledger: LedgerReader;
const open: (() => Promise<unknown>)[] = [];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "msr-demo-"));
  ledger = new LedgerReader(directory);
});
afterEach(async () => {
  for (const end of open.splice(0)) await end();
  rmSync(directory, { recursive: true, force: true });
});

async function overStdio(program: string, env: Record<string, string> = {}): Promise<Client> {
  const client = new Client({ name: "t", version: "1" });
  await client.connect(
    new StdioClientTransport({
      command: process.execPath,
      args: [program, "--ledger", directory],
      env: { ...env },
      stderr: "ignore",
    }),
  );
  open.unshift(() => client.close());
  return client;
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill("SIGTERM");
  await exited;
}

async function startHttp(program: string): Promise<string> {
  const child = spawn(process.execPath, [program, "--http", "0"], {
    env: { ...process.env, MSR_DEMO_LEDGER: directory },
    stdio: ["ignore", "pipe", "inherit"],
  });
  open.push(() => end(child));
  const [line] = (await once(createInterface({ input: child.stdout }), "line")) as [string];
  return (JSON.parse(line) as { listening: string }).listening;
}

async function overHttp(url: string): Promise<Client> {
  const client = new Client({ name: "t", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  open.unshift(() => client.close());
  return client;
}

const booking = { hotel: "Ritz", night: "2026-12-24", guest: "Ada" };

describe("booking", () => {
  it("over stdio: books, ends without an answer, and is found by the next process", async () => {
    const first = await overStdio(join(demos, "booking.ts"));
    await expect(first.callTool({ name: "create_booking", arguments: booking })).rejects.toThrow();
    expect(ledger.countEffects({ tool: "create_booking" })).toBe(1);
    const second = await overStdio(join(demos, "booking.ts"));
    const found = await second.callTool({ name: "find_booking", arguments: booking });
    expect(found.structuredContent).toMatchObject({ found: true, booking: { reference: "R-1", ...booking } });
    // Whoever asks for the same again gets it, and has two.
    expect(await second.callTool({ name: "create_booking", arguments: booking })).toMatchObject({
      structuredContent: { booking: { reference: "R-2" } },
    });
    expect((await second.callTool({ name: "find_booking", arguments: booking })).structuredContent).toMatchObject({
      status: "ambiguous",
    });
    await second.callTool({ name: "cancel_booking", arguments: { reference: "R-2" } });
    expect((await second.callTool({ name: "find_booking", arguments: booking })).structuredContent).toMatchObject({
      found: true,
    });
  });

  it("over HTTP: the socket is gone before the headers, the server lives on", async () => {
    const url = await startHttp(join(demos, "booking.ts"));
    const client = await overHttp(url);
    await expect(client.callTool({ name: "create_booking", arguments: booking })).rejects.toThrow();
    expect(ledger.countEffects({ tool: "create_booking" })).toBe(1);
    expect((await client.callTool({ name: "find_booking", arguments: booking })).structuredContent).toMatchObject({
      found: true,
    });
    expect(ledger.countCalls("create_booking")).toBe(1);
    expect(await exchange(url, { headers: { origin: "https://example.com" }, body: {} })).toMatchObject({ status: 403 });
  });

  it("makes a booking with a key once", async () => {
    setModes(directory, { create_booking: "answer" });
    const client = await overStdio(join(demos, "booking.ts"));
    const keyed = { ...booking, idempotencyKey: "booking-intent-17" };
    await client.callTool({ name: "create_booking", arguments: keyed });
    expect(await client.callTool({ name: "create_booking", arguments: keyed })).toMatchObject({
      structuredContent: { booking: { reference: "R-1" } },
    });
    expect(await client.callTool({ name: "create_booking", arguments: { ...keyed, guest: "Bob" } })).toMatchObject({
      isError: true,
    });
    expect(ledger.countEffects()).toBe(1);
    expect(
      (await client.callTool({ name: "find_booking", arguments: { reference: "booking-intent-17" } })).structuredContent,
    ).toMatchObject({ found: true });
  });

  it("obeys the control file while it runs, and the environment before that", async () => {
    const url = await startHttp(join(demos, "booking.ts"));
    const client = await overHttp(url);
    const book = (guest: string) => client.callTool({ name: "create_booking", arguments: { ...booking, guest } });
    setModes(directory, { create_booking: "lose-once" });
    await expect(book("a")).rejects.toThrow();
    await book("b");
    setModes(directory, { create_booking: "lose-always", find_booking: "ambiguous" });
    await expect(book("c")).rejects.toThrow();
    await expect(book("c")).rejects.toThrow();
    expect((await client.callTool({ name: "find_booking", arguments: { guest: "a" } })).structuredContent).toMatchObject({
      status: "ambiguous",
    });
    setModes(directory, { create_booking: "hang", find_booking: "forbidden" });
    void book("d").catch(() => {});
    await ledger.untilEffects(5);
    expect(await client.callTool({ name: "find_booking", arguments: {} })).toMatchObject({ isError: true });

    const other = await overStdio(join(demos, "booking.ts"), { MSR_DEMO_LOSE: "answer" });
    setModes(directory, { create_booking: "" });
    await other.callTool({ name: "create_booking", arguments: { ...booking, guest: "e" } });
  });
});

describe("notes", () => {
  it("loses the first answer of each distinct call and answers the next; the note is saved once in effect", async () => {
    const client = await overHttp(await startHttp(join(demos, "notes.ts")));
    const save = () => client.callTool({ name: "save_note", arguments: { title: "a", text: "b" } });
    const read = () => client.callTool({ name: "read_note", arguments: { title: "a" } });
    await expect(save()).rejects.toThrow();
    expect(await save()).toMatchObject({ structuredContent: { saved: true } });
    await expect(read()).rejects.toThrow();
    expect(await read()).toMatchObject({ structuredContent: { text: "b" } });
    expect(ledger.countEffects({ tool: "save_note" })).toBe(2);
    expect(ledger.countDistinctEffects({ tool: "save_note" })).toBe(1);
  });
});

describe("inventory", () => {
  it("reports progress over HTTP and tells contradictions as they are", async () => {
    const client = await overHttp(await startHttp(join(demos, "inventory.ts")));
    const { tools } = await client.listTools();
    expect(Object.fromEntries(tools.map((tool) => [tool.name, tool.annotations]))).toEqual({
      check_inventory: { readOnlyHint: true, openWorldHint: false },
      write_off: { readOnlyHint: true, destructiveHint: true },
      restock: undefined,
      slow_count: { readOnlyHint: true, openWorldHint: false },
    });
    const progress: number[] = [];
    await client.callTool({ name: "slow_count", arguments: { seconds: 0, steps: 3 } }, undefined, {
      onprogress: (step) => progress.push(step.progress),
    });
    expect(progress).toEqual([1, 2, 3]);
    await client.callTool({ name: "write_off", arguments: { item: "chairs", count: 20 } });
    await client.callTool({ name: "restock", arguments: { item: "chairs", count: 5 } });
    expect((await client.callTool({ name: "check_inventory", arguments: { item: "chairs" } })).structuredContent).toMatchObject({
      count: 105,
    });
  });
});

describe("a demo server as a program", () => {
  it.each([
    [[], 2],
    [["--nonsense"], 2],
    [["--ledger", "x", "--http", "many"], 2],
  ] as const)("says what is wrong with %j", async (args, code) => {
    const child = spawn(process.execPath, [join(demos, "booking.ts"), ...args], {
      cwd: directory,
      stdio: ["ignore", "ignore", "pipe"],
    });
    let said = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => (said += text));
    const [status] = (await once(child, "close")) as [number];
    expect(status).toBe(code);
    expect(said).toMatch(/^booking: .+\n$/);
  });

  it.each(["cjs", "esm"] as const)("runs as a bundle of one file (%s)", async (format) => {
    const outfile = join(directory, format === "cjs" ? "booking.cjs" : "booking.mjs");
    await build({
      entryPoints: [join(demos, "booking.ts")],
      outfile,
      format,
      bundle: true,
      platform: "node",
      target: "node22",
      logLevel: "error",
      ...(format === "cjs"
        ? { logOverride: { "empty-import-meta": "silent" } }
        : { banner: { js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);' } }),
    });
    const client = await overStdio(outfile);
    await client.callTool({ name: "find_booking", arguments: booking });
    expect(ledger.countCalls("find_booking")).toBe(1);
  });
});
