/** What agents get over the gateway when the journal cannot be written, whatever stands in its way. */
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createCore, type Core } from "../../../src/gateway/core.ts";
import type { ServerDefinition } from "../../../src/hosting/definitions.ts";
import { schemaVersion } from "../../../src/operations/migrations.ts";
import { openSqliteJournal } from "../../../src/operations/sqlite-journal.ts";
import { defaultReplaySettings } from "../../../src/replay/settings.ts";
import { startHttpFaultServer, type HttpFaultServer } from "../../servers/fault/http-fault-server.ts";
import { temporaryFolder } from "../../support/temp.ts";

vi.setConfig({ testTimeout: 120_000 });

let folder: { readonly path: string; remove(): void };
let till: HttpFaultServer;
let core: Core | undefined;
let agent: Client | undefined;
beforeEach(async () => {
  folder = temporaryFolder();
  till = await startHttpFaultServer({ binding: "http-json", ledger: join(folder.path, "ledger") });
});
afterEach(async () => {
  await agent?.close();
  await core?.dispose();
  await till.close();
  folder.remove();
  core = undefined;
  agent = undefined;
});

const directory = (): string => join(folder.path, "journal");
const file = (): string => join(directory(), "journal.sqlite");

async function serve(): Promise<Core> {
  core = await createCore({
    journalDir: directory(),
    listen: { kind: "tcp", host: "127.0.0.1", port: 0 },
    trust: {
      workspaceTrusted: () => true,
      serverTrustSetting: () => true,
      consentFingerprint: (name) => core?.servers.get(name)?.fingerprint,
    },
    settings: () => defaultReplaySettings,
    contracts: () => new Map(),
    log: () => undefined,
    clientInfo: { name: "test", version: "1" },
  });
  const definition: ServerDefinition = { type: "http", url: till.url, headers: {} };
  await core.setDefinitions(new Map([["till", definition]]));
  agent = new Client({ name: "agent", version: "1" });
  await agent.connect(new StreamableHTTPClientTransport(new URL(core.gateway.urlOf("till"))));
  return core;
}

async function ask(name: string, args: Record<string, unknown>): Promise<{ text: string; mark: unknown }> {
  const result = (await agent?.callTool({ name, arguments: args })) as {
    content: { text: string }[];
    _meta?: Record<string, unknown>;
  };
  return { text: result.content.map((one) => one.text).join(""), mark: result._meta?.["mcp-safe-replay/operation"] };
}

const troubles: readonly [string, string, RegExp, () => Promise<void>][] = [
  [
    "a foreign file in its place",
    "foreign",
    /belongs to another program\. Move it away/,
    () => {
      mkdirSync(directory());
      const db = new DatabaseSync(file());
      db.exec("CREATE TABLE theirs (x)");
      db.close();
      return Promise.resolve();
    },
  ],
  [
    "a file that is no database",
    "foreign",
    /belongs to another program\. Move it away/,
    () => {
      mkdirSync(directory());
      writeFileSync(file(), "a letter to somebody else, long enough to be more than a header of a hundred bytes ".repeat(10));
      return Promise.resolve();
    },
  ],
  [
    "a journal of a newer version",
    "newer-version",
    /written by a newer version.*Update MCP Safe Replay/,
    async () => {
      await openSqliteJournal({ directory: directory(), watchMs: 0 }).close();
      const db = new DatabaseSync(file());
      db.exec(`PRAGMA user_version=${schemaVersion + 1}`);
      db.close();
    },
  ],
  [
    "a file where its folder should be",
    "unwritable",
    /a file is in its way\. Move the file away/,
    () => {
      writeFileSync(directory(), "in the way");
      return Promise.resolve();
    },
  ],
];

describe("with a journal that cannot be written", () => {
  it.each(troubles)("(%s) a call is refused with the mend and not sent, and reads go on", async (_what, code, mend, make) => {
    await make();
    const { journal } = await serve();
    expect(journal.problem).toMatchObject({ code, message: expect.stringMatching(mend) as string });
    const refused = await ask("charge", { account: "secret-account", amount: 3 });
    expect(refused.mark).toMatchObject({ state: "not-executed", reason: "journal-failed", attempts: 0 });
    expect(refused.text).toMatch(/^NOT EXECUTED: /);
    expect(refused.text).toMatch(mend);
    expect(refused.text).not.toContain("secret-account");
    const read = await ask("lookup", { item: "chairs" });
    expect(read.mark).toBeUndefined();
    expect(till.ledger.calls().map((one) => one.tool)).toEqual(["lookup"]);
  });

  it("calls are sent again once the way is free, without a restart", async () => {
    writeFileSync(directory(), "in the way");
    const { journal } = await serve();
    expect((await ask("charge", { account: "a", amount: 3 })).text).toContain("NOT EXECUTED");
    rmSync(directory());
    expect((await ask("charge", { account: "a", amount: 3 })).mark).toBeUndefined();
    expect(journal.problem).toBeUndefined();
    expect(till.ledger.countEffects()).toBe(1);
  });
});
