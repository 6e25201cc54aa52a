import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { once } from "node:events";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { schemaVersion } from "../../src/operations/migrations.ts";
import { LedgerReader } from "../servers/ledger.ts";
import { Headless, runHeadless } from "../support/headless.ts";
import { repositoryRoot } from "../support/paths.ts";

let program: Headless;
beforeEach(() => {
  program = new Headless();
});
afterEach(() => program.remove());

const ledgerDir = () => join(program.folder.path, "ledger");
const booking = () => ({
  type: "stdio",
  command: process.execPath,
  args: [join(repositoryRoot, "test/servers/demo/booking.ts"), "--ledger", ledgerDir()],
});
const room = { hotel: "Grand", night: "2026-12-24", guest: "Ada Lovelace" };

async function connect(url: string, token?: string): Promise<Client> {
  const client = new Client({ name: "a real agent", version: "1" });
  const requestInit = token === undefined ? {} : { headers: { authorization: `Bearer ${token}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
  return client;
}
const book = async (
  client: Client,
): Promise<{ text: string; isError: boolean; meta: Record<string, Record<string, unknown>> }> => {
  const result = (await client.callTool({ name: "create_booking", arguments: room })) as {
    content: { text: string }[];
    isError?: boolean;
    _meta?: Record<string, Record<string, unknown>>;
  };
  return { text: result.content[0]?.text ?? "", isError: result.isError === true, meta: result._meta ?? {} };
};

describe("serve", () => {
  it("prints one line of JSON, keeps the lost booking unresolved, holds the identical call, and lets a person settle it", async () => {
    await program.serve({ servers: { booking: booking() }, workspaceTrusted: true });
    expect(program.listening).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    expect(program.urls).toEqual({ booking: `${program.listening}/servers/booking/mcp` });
    const client = await connect(program.urls["booking"]!);
    const ledger = new LedgerReader(ledgerDir());

    const lost = await book(client);
    expect(lost.isError).toBe(true);
    expect(lost.text).toContain("UNRESOLVED");
    expect(lost.text).not.toContain("Ada");
    expect(ledger.effects({ tool: "create_booking" })).toHaveLength(1);

    const held = await book(client);
    expect(held.text).toContain("HELD");
    expect(ledger.effects({ tool: "create_booking" })).toHaveLength(1);

    const [operation] = await program.operations();
    expect(operation).toMatchObject({
      server: "booking",
      tool: "create_booking",
      state: "unresolved",
      reason: "process-exit",
      attempts: [{ outcome: "unknown" }],
    });
    expect(lost.meta["mcp-safe-replay/operation"]).toMatchObject({ id: operation?.id, state: "unresolved" });
    expect(held.meta["mcp-safe-replay/operation"]).toMatchObject({ id: operation?.id, state: "held" });
    expect(JSON.stringify(await program.operations())).not.toContain("Ada");
    expect(program.stderr).not.toContain("Ada");

    const settled = await runHeadless([
      "reconcile",
      operation!.id,
      "--as",
      "effect-confirmed",
      "--evidence",
      "seen in the ledger",
      "--journal-dir",
      program.journalDir,
    ]);
    expect(settled).toMatchObject({ code: 0, stdout: `${operation!.id}  effect-confirmed\n` });
    const recorded = await book(client);
    expect(recorded.text).toContain("ALREADY DONE");
    expect(ledger.effects({ tool: "create_booking" })).toHaveLength(1);
    const again = await runHeadless([
      "reconcile",
      operation!.id,
      "--as",
      "no-effect",
      "--evidence",
      "x",
      "--journal-dir",
      program.journalDir,
    ]);
    expect(again.code).toBe(1);
    expect(again.stderr).toContain("not unresolved");
    await client.close();
  });

  it("shows what is known of an unresolved call, and a contract's lookup settles it from the command line", async () => {
    await program.serve({ servers: { booking: booking() }, workspaceTrusted: true });
    const client = await connect(program.urls["booking"]!);
    await book(client);
    const id = (await program.operations())[0]?.id ?? "";
    await client.close();
    await program.end();
    const at = ["--journal-dir", program.journalDir];
    const shown = await runHeadless(["reconcile", id, ...at]);
    expect(shown).toMatchObject({ code: 0, stderr: "" });
    expect(shown.stdout).toContain(`${id}  unresolved: the server's process ended before the answer arrived`);
    expect(shown.stdout).toContain("create_booking on booking, called ");
    expect(shown.stdout).toMatch(/attempt 1: over stdio \(2025-11-25\), RPC id .*; got as far as 'sent'; outcome unknown/);
    expect(shown.stdout).not.toMatch(/Ada|Grand|--recover/);
    // With the contract beside the server's definition.
    const lookup = {
      tool: "find_booking",
      arguments: { hotel: "{{arguments/hotel}}", night: "{{arguments/night}}", guest: "{{arguments/guest}}" },
      effect: "status == 'found'",
      noEffect: "status == 'none'",
      sameAs: { "/hotel": "booking.hotel", "/night": "booking.night", "/guest": "booking.guest" },
      consistentAfterSeconds: 1,
      recordsKeptSeconds: 86_400,
    };
    const config = join(program.folder.path, "with-contract.json");
    const contracts = { booking: { create_booking: { documentation: "https://hotel.example/docs", lookup } } };
    const write = (serverTrust: boolean) =>
      writeFileSync(
        config,
        JSON.stringify({
          servers: { booking: booking() },
          workspaceTrusted: true,
          serverTrust: { booking: serverTrust },
          contracts,
        }),
      );
    const find = (how: string) => runHeadless(["reconcile", id, how, "--config", config, ...at]);
    write(false);
    expect((await find("--look-up")).stdout).toMatch(/^undecided: the lookup tool is not a proven read.*\n.*unresolved\n$/);
    write(true);
    expect((await find("--recover")).stdout).toMatch(/^The server does not have the answer any more\.\n.*unresolved\n$/);
    expect((await find("--look-up")).stdout).toMatch(
      /^effect: the lookup tool 'find_booking' found the record.*\n.*effect-confirmed\n$/,
    );
    expect((await find("--look-up")).code).toBe(1);
    const after = await runHeadless(["reconcile", id, ...at]);
    expect(after.stdout).toContain("observed by the lookup: undecided");
    expect(after.stdout).toMatch(/observed: effect-confirmed; the lookup tool/);
    expect(new LedgerReader(ledgerDir()).effects({ tool: "create_booking" })).toHaveLength(1);
  });

  it("ends cleanly on SIGTERM, and finds what was in flight when it was killed", async () => {
    await program.serve({ servers: { booking: { ...booking(), env: { MSR_DEMO_LOSE: "hang" } } }, workspaceTrusted: true });
    const client = await connect(program.urls["booking"]!);
    const pending = book(client).catch(() => undefined);
    await expect.poll(() => new LedgerReader(ledgerDir()).effects().length, { timeout: 20_000 }).toBe(1);
    await program.end("SIGKILL");
    await client.close();
    await pending;
    await program.serve({ servers: { booking: booking() }, workspaceTrusted: true });
    expect(await program.operations()).toMatchObject([{ state: "unresolved", reason: "process-ended" }]);
    expect(await program.end("SIGTERM")).toBe(0);
  });

  it("asks for its token on TCP, and needs none on a private socket", async () => {
    const tokenFile = join(program.folder.path, "token");
    const token = "0123456789abcdef0123456789abcdef";
    writeFileSync(tokenFile, `${token}\n`);
    await program.serve({ servers: { booking: booking() } }, ["--token-file", tokenFile]);
    const url = program.urls["booking"]!;
    const post = (headers: Record<string, string>) =>
      fetch(url, {
        method: "POST",
        headers: { "content-type": "application/json", accept: "application/json, text/event-stream", ...headers },
        body: '{"jsonrpc":"2.0","id":1,"method":"ping"}',
      });
    expect((await post({})).status).toBe(401);
    expect((await post({ authorization: "Bearer wrong" })).status).toBe(401);
    expect((await post({ authorization: `Bearer ${token}` })).status).toBe(200);
    await program.end();
    const path = join(program.folder.path, "s", "gateway.sock");
    await program.serve({ servers: { booking: booking() } }, ["--listen", `unix:${path}`]);
    expect(program.listening).toBe(`unix:${path}`);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(statSync(join(path, "..")).mode & 0o777).toBe(0o700);
    await program.end();
    expect(existsSync(path)).toBe(false);
  });
});

describe("bad usage and configuration end with 2, one clear line, and nothing sent", () => {
  const good = { servers: {}, workspaceTrusted: true };
  it.each<[string, unknown, string]>([
    ["text that is no JSON", "{", "is not JSON"],
    ["no servers", {}, "servers: "],
    ["an unknown key", { ...good, server: {} }, "configuration: does not know 'server'"],
    ["a mistake in a definition", { servers: { a: { command: "" } } }, "servers.a.command: must name a program"],
    [
      "a trust key without a server",
      { ...good, serverTrust: { nobody: true } },
      "serverTrust.nobody: there is no server of this name",
    ],
    ["a trust value that is no boolean", { ...good, serverTrust: { a: "yes" } }, "serverTrust.a"],
    ["more replays than there may be", { ...good, replay: { maxReplays: 4 } }, "replay.maxReplays"],
    ["an unknown guard", { ...good, duplicateGuard: "maybe" }, "duplicateGuard"],
    ["a time limit of nothing", { ...good, requestTimeoutSeconds: 0 }, "requestTimeoutSeconds"],
  ])("for %s", async (_, config, message) => {
    writeFileSync(program.configFile, typeof config === "string" ? config : JSON.stringify(config));
    const ran = await runHeadless(["serve", "--config", program.configFile, "--journal-dir", program.journalDir, "--no-token"]);
    expect(ran.code).toBe(2);
    expect(ran.stdout).toBe("");
    expect(ran.stderr).toContain(message);
  });

  it.each<[string, string[], string]>([
    ["no command", [], ""],
    ["an unknown command", ["serv"], "unknown command 'serv'"],
    ["an unknown option", ["operations", "--journal", "x"], "--journal"],
    ["no journal", ["operations"], "--journal-dir is needed"],
    ["a folder that is not there", ["operations", "--journal-dir", "/nowhere/at/all"], "is not a folder"],
    ["an unknown state", ["operations", "--journal-dir", "/", "--state", "lost"], "--state"],
    ["an unknown settlement", ["reconcile", "x", "--as", "maybe", "--evidence", "x", "--journal-dir", "/"], "--as"],
    ["two wishes at once", ["reconcile", "x", "--recover", "--look-up", "--journal-dir", "/"], "give one of --as"],
    ["a lookup without a configuration", ["reconcile", "x", "--look-up", "--journal-dir", "/"], "--config is needed"],
    ["no evidence", ["reconcile", "x", "--as", "dismissed", "--journal-dir", "/"], "--evidence is needed"],
    ["an unknown format", ["export", "--journal-dir", "/", "--format", "xml"], "--format"],
    ["no token on TCP", ["serve", "--config", "CONFIG", "--journal-dir", "JOURNAL"], "needs a token"],
    [
      "an address that is not loopback",
      ["serve", "--config", "CONFIG", "--journal-dir", "JOURNAL", "--listen", "0.0.0.0:1", "--no-token"],
      "loopback only",
    ],
    [
      "a token file that is not there",
      ["serve", "--config", "CONFIG", "--journal-dir", "JOURNAL", "--token-file", "/nowhere"],
      "cannot be read",
    ],
    [
      "a config file that is not there",
      ["serve", "--config", "/nowhere", "--journal-dir", "JOURNAL", "--no-token"],
      "cannot be read",
    ],
  ])("for %s", async (_, args, message) => {
    writeFileSync(program.configFile, JSON.stringify(good));
    const filled = args.map((arg) => (arg === "CONFIG" ? program.configFile : arg === "JOURNAL" ? program.journalDir : arg));
    const ran = await runHeadless(filled);
    expect(ran.code).toBe(2);
    expect(ran.stderr).toContain(message);
    expect(existsSync(program.journalDir)).toBe(false);
  });

  it("for a port that is taken", async () => {
    const other = createServer().listen(0, "127.0.0.1");
    await once(other, "listening");
    const { port } = other.address() as { port: number };
    writeFileSync(program.configFile, JSON.stringify(good));
    const ran = await runHeadless([
      "serve",
      "--config",
      program.configFile,
      "--journal-dir",
      program.journalDir,
      "--no-token",
      "--listen",
      `127.0.0.1:${port}`,
    ]);
    expect(ran.code).toBe(2);
    expect(ran.stderr).toContain(String(port));
    other.close();
  });

  it("for a journal of a newer version, which can still be listed", async () => {
    await program.serve({ servers: { booking: booking() } });
    const client = await connect(program.urls["booking"]!);
    await book(client);
    await client.close();
    await program.end();
    const db = new DatabaseSync(join(program.journalDir, "journal.sqlite"));
    db.exec(`PRAGMA user_version=${schemaVersion + 1}`);
    db.close();
    const ran = await runHeadless(["serve", "--config", program.configFile, "--journal-dir", program.journalDir, "--no-token"]);
    expect(ran.code).toBe(2);
    expect(ran.stderr).toContain("Update MCP Safe Replay");
    expect(await program.operations()).toHaveLength(1);
  });

  it("for a journal folder that cannot be used", async () => {
    writeFileSync(program.configFile, JSON.stringify(good));
    writeFileSync(program.journalDir, "in the way");
    const ran = await runHeadless(["serve", "--config", program.configFile, "--journal-dir", program.journalDir, "--no-token"]);
    expect(ran.code).toBe(2);
    expect(ran.stderr).toContain("a file is in its way");
    expect(readFileSync(program.journalDir, "utf8")).toBe("in the way");
  });
});

describe("export", () => {
  it("writes every event as JSONL and CSV", async () => {
    await program.serve({ servers: { booking: booking() } });
    const client = await connect(program.urls["booking"]!);
    await book(client);
    await client.close();
    await program.end();
    const jsonl = await runHeadless(["export", "--journal-dir", program.journalDir, "--format", "jsonl"]);
    const events = jsonl.stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as { type: string; data: Record<string, unknown> });
    expect(events.map((event) => event.type)).toEqual(["prepared", "sent", "lost", "held"]);
    expect(events[0]?.data).toMatchObject({ arguments: room });
    const csv = await runHeadless(["export", "--journal-dir", program.journalDir, "--format", "csv"]);
    expect(csv.stdout.trim().split("\r\n")).toHaveLength(5);
  });
});
