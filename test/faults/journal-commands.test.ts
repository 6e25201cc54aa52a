/** The command line program and its journal: what it keeps, verifies, exports and says. */
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readdirSync, readFileSync, watch, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { listFiles, PackageManager } from "@vscode/vsce";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { OperationEvent } from "../../src/operations/model.ts";
import { openSqliteJournal } from "../../src/operations/sqlite-journal.ts";
import { startHttpFaultServer, type HttpFaultServer } from "../servers/fault/http-fault-server.ts";
import { Headless, runHeadless } from "../support/headless.ts";
import { repositoryRoot } from "../support/paths.ts";

let program: Headless;
let till: HttpFaultServer;
beforeEach(async () => {
  program = new Headless();
  till = await startHttpFaultServer({ binding: "http-json", ledger: join(program.folder.path, "ledger") });
});
afterEach(async () => {
  await till.close();
  await program.remove();
});

const config = (journal?: unknown): Record<string, unknown> => ({
  servers: { till: { type: "http", url: till.url } },
  ...(journal === undefined ? {} : { journal }),
});

async function charge(args: Record<string, unknown> = { account: "account-77", amount: 3 }): Promise<void> {
  const client = new Client({ name: "agent", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(program.urls["till"]!)));
  await client.callTool({ name: "charge", arguments: args });
  await client.close();
}

const journalCommand = (...args: string[]): ReturnType<typeof runHeadless> =>
  runHeadless([...args, "--journal-dir", program.journalDir]);
const file = (): string => join(program.journalDir, "journal.sqlite");

/** Every byte of the journal's folder. */
const bytes = (): string =>
  readdirSync(program.journalDir, { withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => readFileSync(join(program.journalDir, entry.name), "latin1"))
    .join("");

/** A settlement that an answer contradicts. */
async function contradicted(): Promise<string> {
  const journal = openSqliteJournal({ directory: program.journalDir, watchMs: 0 });
  const event = (type: string, data: unknown): OperationEvent =>
    ({ operationId: "op-1", type, actor: "gateway", at: 1, data }) as OperationEvent;
  const attempt = {
    number: 1,
    rpcId: "1",
    era: "2025-11-25",
    transport: "http",
    connectionId: "c",
    protocolVersion: "2025-11-25",
  };
  await journal.append(
    [
      event("prepared", {
        server: "till",
        tool: "charge",
        arguments: {},
        digest: "d",
        caller: { client: "agent" },
        fingerprint: "f",
        provenRead: false,
        declaredRead: false,
      }),
      event("sent", { ...attempt, cause: "call" }),
      event("lost", { attempt: 1, stage: "sent", reason: "timeout", kind: "timeout" }),
      event("settled", { as: "no-effect", evidence: "looked" }),
      event("late-answer", { attempt: 1, result: {}, isError: false }),
      event("conflict", { settledAs: "no-effect", isError: false }),
    ],
    { durable: true },
  );
  await journal.close();
  return "op-1";
}

describe("verify", () => {
  it("proves a whole journal, and fails when one byte of it was altered", async () => {
    await program.serve(config());
    await charge();
    // While it is in use.
    const running = await journalCommand("verify");
    expect(running.code).toBe(0);
    const [, head = ""] =
      /^The journal is whole: \d+ events, nothing altered or removed\. Head: ([0-9a-f]{64})\n$/.exec(running.stdout) ?? [];
    expect(head).not.toBe("");
    await program.end();
    expect(await journalCommand("verify", "--since", head)).toMatchObject({ code: 0 });
    expect(await journalCommand("verify", "--since", "0".repeat(64))).toMatchObject({
      code: 1,
      stdout: expect.stringContaining("NOT whole: the head that was noted earlier is not in the chain") as string,
    });

    const content = readFileSync(file());
    const at = content.indexOf("account-77");
    expect(at).toBeGreaterThan(0);
    content.writeUInt8(content.readUInt8(at + 9) + 1, at + 9);
    writeFileSync(file(), content);
    const altered = await journalCommand("verify");
    expect(altered.code).toBe(1);
    expect(altered.stdout).toMatch(/^The journal is NOT whole: .+\n$/);
  });

  it("says clearly when there is no journal, or no head", async () => {
    mkdirSync(program.journalDir);
    expect(await journalCommand("verify")).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("There is no journal in") as string,
    });
    expect(await journalCommand("verify", "--since", "abc")).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("--since") as string,
    });
    const foreign = new DatabaseSync(file());
    foreign.exec("CREATE TABLE theirs (x)");
    foreign.close();
    expect(await journalCommand("verify")).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("belongs to another program") as string,
    });
  });
});

describe("export", () => {
  it("writes operations as they stand, and events as they were, as JSONL and CSV", async () => {
    await program.serve(config());
    await charge();
    const operations = await journalCommand("export", "--format", "jsonl", "--what", "operations");
    expect(JSON.parse(operations.stdout)).toMatchObject({
      server: "till",
      tool: "charge",
      state: "completed",
      arguments: { amount: 3 },
    });
    const csv = await journalCommand("export", "--format", "csv", "--what", "operations");
    expect(csv.stdout.split("\r\n")[0]).toMatch(/^id,server,tool,state/);
    const events = await journalCommand("export", "--format", "jsonl");
    expect((JSON.parse(events.stdout.split("\n")[0]!) as { type: string }).type).toBe("prepared");
    expect(await journalCommand("export", "--format", "csv", "--what", "all")).toMatchObject({ code: 2 });
  });
});

describe("what the journal keeps", () => {
  it("is the configuration's to say, also while it runs: nothing of a digest's call is on disk", async () => {
    await program.serve(config({ arguments: "digest" }));
    await charge({ account: "wallet-one", amount: 1 });
    expect(bytes()).not.toContain("wallet-one");
    writeFileSync(
      program.configFile,
      JSON.stringify(config({ arguments: "redacted", redactedPaths: ["/account"], keepDays: 1, keepCount: 100 })),
    );
    process.kill(program.pid!, "SIGHUP");
    await expect.poll(() => program.stderr, { timeout: 30_000 }).toContain("was read again");
    await charge({ account: "wallet-two", amount: 2 });
    const events = (await journalCommand("export", "--format", "jsonl")).stdout.trim().split("\n");
    const prepared = events
      .map((line) => JSON.parse(line) as { type: string; data: Record<string, unknown> })
      .filter(({ type }) => type === "prepared");
    expect(prepared.map(({ data }) => [data["withheld"], data["arguments"]])).toEqual([
      ["all", {}],
      ["some", { account: "(redacted)", amount: 2 }],
    ]);
  });

  it.each([
    [{ arguments: "none" }, "journal.arguments"],
    [{ redactedPaths: ["account"] }, "journal.redactedPaths"],
    [{ keepDays: 0 }, "journal.keepDays"],
    [{ keepCount: 1.5 }, "journal.keepCount"],
    [{ keepdays: 3 }, "journal"],
  ])("%j is a mistake, named by its place", async (journal, place) => {
    writeFileSync(program.configFile, JSON.stringify(config(journal)));
    const ran = await journalCommand("serve", "--config", program.configFile, "--no-token");
    expect(ran.code).toBe(2);
    expect(ran.stderr).toContain(place);
  });
});

describe("what the journal has to say", () => {
  it("stands on stderr once: a damaged file was set aside", async () => {
    await program.serve(config());
    await charge();
    await program.end();
    const content = readFileSync(file());
    content.fill(0x58, 100, 4096);
    writeFileSync(file(), content);
    program.stderr = "";
    await program.serve(config());
    await charge({ account: "b", amount: 9 });
    await program.end();
    expect(program.stderr.match(/set aside/g)).toHaveLength(1);
    expect(readdirSync(program.journalDir).filter((name) => name.includes("damaged"))).not.toEqual([]);
  });

  it("lets a person close a conflict with a note, once, without touching the settlement", async () => {
    const id = await contradicted();
    expect((await journalCommand("operations")).stdout).toContain("conflict: an answer contradicts the settlement");
    expect(await journalCommand("acknowledge", id)).toMatchObject({ code: 2 });
    expect(await journalCommand("acknowledge", id, "--note", "cancelled it")).toMatchObject({
      code: 0,
      stdout: `${id}  no-effect  conflict closed\n`,
    });
    const [operation] = await program.operations();
    expect(operation).toMatchObject({ state: "no-effect", conflict: false });
    expect(operation?.events.at(-1)).toMatchObject({ type: "acknowledged", actor: "person", data: { note: "cancelled it" } });
    expect(await journalCommand("acknowledge", id, "--note", "again")).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("in no conflict") as string,
    });
    expect(await journalCommand("verify")).toMatchObject({ code: 0 });
  });
});

describe("the package", () => {
  it("has every bundle in it, the journal's thread among them", async () => {
    const packed = await listFiles({ cwd: repositoryRoot, packageManager: PackageManager.None });
    const built = readdirSync(join(repositoryRoot, "dist")).filter((name) => name.endsWith(".js"));
    expect(built.sort()).toEqual(["core.js", "extension.js", "headless.js", "journal-worker.js"]);
    for (const name of built) expect(packed).toContain(`dist/${name}`);
  });

  it("runs the journal in a thread of its own", async () => {
    writeFileSync(program.configFile, JSON.stringify(config()));
    const reports = join(program.folder.path, "reports");
    mkdirSync(reports);
    const child = execFile(process.execPath, [
      "--report-on-signal",
      `--report-directory=${reports}`,
      join(repositoryRoot, "dist", "headless.js"),
      "serve",
      "--config",
      program.configFile,
      "--journal-dir",
      program.journalDir,
      "--no-token",
    ]);
    let stderr = "";
    child.stderr?.on("data", (text: string) => (stderr += text));
    try {
      await once(child.stdout!, "data");
      const appeared = new Promise<void>((done) => {
        const watcher = watch(reports, () => {
          watcher.close();
          done();
        });
      });
      child.kill("SIGUSR2");
      await appeared;
      const threads = (): unknown => {
        try {
          const report = readFileSync(join(reports, readdirSync(reports)[0] ?? ""), "utf8");
          return (JSON.parse(report) as { workers: { header: { event: string } }[] }).workers.map(({ header }) => header.event);
        } catch {
          // It is still being written.
          return undefined;
        }
      };
      await expect.poll(threads, { timeout: 30_000 }).toEqual(["Worker thread subreport [journal]"]);
      expect(stderr).not.toContain("without a thread");
    } finally {
      const ended = once(child, "exit");
      child.kill("SIGTERM");
      await ended;
    }
  });

  it("says so when its thread's file is missing, and works all the same", async () => {
    const lonely = join(program.folder.path, "headless.js");
    writeFileSync(lonely, readFileSync(join(repositoryRoot, "dist", "headless.js")));
    writeFileSync(program.configFile, JSON.stringify(config()));
    const child = execFile(process.execPath, [
      lonely,
      "serve",
      "--config",
      program.configFile,
      "--journal-dir",
      program.journalDir,
      "--no-token",
    ]);
    let stderr = "";
    child.stderr?.on("data", (text: string) => (stderr += text));
    await once(child.stdout!, "data");
    const ended = once(child, "exit");
    child.kill("SIGTERM");
    await ended;
    expect(stderr).toContain("the journal works without a thread of its own (its file is missing)");
  });
});
