// Owns: proof of the way from an existing mcp.json to protected servers: what is imported, what is shown before and after, where the
// secrets go, and that the originals can be switched off. The formats: test/unit/vscode/import-formats.test.ts. By mouse: test/e2e.

import assert from "node:assert/strict";
import { readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import * as vscode from "vscode";
import { startHttpFaultServer, type HttpFaultServer } from "../servers/fault/http-fault-server.ts";
import { callByCommand, changeSetting, eventually, newFolder, run, settingsApplied, userSetting } from "./support.ts";

const secret = "sesame-4711-open";

function inputs(): readonly { id: string; password?: boolean }[] {
  return vscode.workspace.getConfiguration("mcpSafeReplay").inspect<{ id: string }[]>("inputs")?.globalValue ?? [];
}

/** Every file of this run (settings, journal, logs, state) that holds the text. */
function filesWith(text: string, folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true }).flatMap((entry) => {
    const path = join(entry.parentPath, entry.name);
    if (!entry.isFile() || statSync(path).size > 64 * 1024 * 1024) return [];
    return readFileSync(path).includes(text) ? [path] : [];
  });
}

describe("importing servers", () => {
  let server: HttpFaultServer;
  let file: string;
  let original: string;

  before(async () => {
    server = await startHttpFaultServer({
      binding: "http-json",
      ledger: newFolder(),
      serverInfo: { name: "shop", version: "1" },
      token: secret,
    });
    file = join(newFolder(), "mcp.json");
    original = `{
  // The servers of this person
  "servers": {
    "shop": { "type": "http", "url": ${JSON.stringify(server.url)}, "headers": { "Authorization": "Bearer ${secret}" } },
    "spare": { "command": "spare-server", "args": ["--region", "\${input:region}"] }
  },
  "inputs": [{ "type": "promptString", "id": "region", "description": "Region", "default": "eu" }]
}
`;
    writeFileSync(file, original);
  });
  after(async () => {
    await changeSetting("servers", { shop: undefined, spare: undefined });
    await changeSetting("serverTrust", { shop: undefined, spare: undefined });
    await run("mcpSafeReplay.forgetSecrets", {});
    await vscode.workspace.getConfiguration("mcpSafeReplay").update("inputs", undefined, vscode.ConfigurationTarget.Global);
    await settingsApplied();
    await server.close();
  });

  it("changes nothing when something is wrong", async () => {
    const servers = userSetting("servers");
    const path = join(newFolder(), "nothing.json");
    await assert.rejects(run("mcpSafeReplay.importServers", { client: "vscode", path }), /cannot be read/);
    await assert.rejects(
      run("mcpSafeReplay.importServers", { client: "vscode", path: file, servers: ["nobody"] }),
      /no server "nobody"/,
    );
    writeFileSync(path, '{"mcpServers": {"a": {"command": "a"}}}');
    await assert.rejects(
      run("mcpSafeReplay.importServers", { client: "cursor", path, switchOff: true }),
      /Cursor has no documented way.*Nothing was imported/,
    );
    assert.deepEqual(userSetting("servers"), servers);
  });

  it("adds the chosen server, shows before and after, and switches the original off with a backup", async () => {
    const known = Object.keys(userSetting("servers"));
    const outcome = await run("mcpSafeReplay.importServers", {
      client: "vscode",
      path: file,
      servers: ["shop"],
      switchOff: true,
    });
    assert.ok(outcome);
    assert.deepEqual(outcome.names, ["shop"]);
    const listed = (text: string): Record<string, unknown> => (JSON.parse(text) as { servers: Record<string, unknown> }).servers;
    assert.deepEqual(Object.keys(listed(outcome.before)), known.toSorted());
    assert.deepEqual(listed(outcome.after)["shop"], {
      type: "http",
      url: server.url,
      headers: { Authorization: "Bearer ${input:shop-Authorization}" },
    });
    assert.equal(outcome.backup, `${file}.backup`);
    assert.equal(readFileSync(outcome.backup, "utf8"), original);
    const left = readFileSync(file, "utf8");
    assert.match(left, /The servers of this person/);
    assert.doesNotMatch(left, /"shop"/);
    assert.match(left, /"spare"/);
  });

  it("gets the server going with its secret, which is in no setting", async () => {
    const hosted = { name: "shop", title: "shop", ledger: server.ledger };
    const answer = await eventually("the imported server to answer", async () => {
      const given = await callByCommand(hosted, "charge", { account: "imported", amount: 2 });
      return given.kind === "result" && !given.text.startsWith("NOT EXECUTED") ? given : undefined;
    });
    assert.equal(answer.kind, "result");
    assert.equal(server.requests("tools/call").at(-1)?.headers["authorization"], `Bearer ${secret}`);
    assert.deepEqual(
      inputs().map(({ id, password }) => ({ id, password })),
      [{ id: "shop-Authorization", password: true }],
    );
    assert.ok(!JSON.stringify([userSetting("servers"), inputs()]).includes(secret));
  });

  it("leaves the secret in no file: settings, journal, logs, state", async () => {
    const result = process.env.MSR_HOST_RESULT;
    assert.ok(result);
    const found = filesWith(secret, dirname(result));
    assert.deepEqual(found, []);
    // The search itself works: what is in the settings is found.
    assert.ok(filesWith("shop-Authorization", dirname(result)).length > 0);
  });

  it("lets a server wait whose input nobody answered yet", async () => {
    const outcome = await run("mcpSafeReplay.importServers", { client: "vscode", path: file, servers: ["spare"] });
    assert.deepEqual(outcome?.names, ["spare"]);
    assert.equal(outcome?.backup, undefined);
    assert.match(readFileSync(file, "utf8"), /"spare"/);
    await eventually("it to wait", async () => {
      const error: unknown = await run("mcpSafeReplay.startServer", { server: "spare" }).catch((reason: unknown) => reason);
      return /needs a value from you: Region/.test(String(error)) ? true : undefined;
    });
  });

  it("forgets its secrets by command: the server waits until the value is entered again", async () => {
    await run("mcpSafeReplay.forgetSecrets", {});
    await assert.rejects(run("mcpSafeReplay.startServer", { server: "shop" }), /needs a value from you: Authorization of shop/);
    const before = server.requests().length;
    await assert.rejects(
      run("mcpSafeReplay.callTool", { server: "shop", tool: "charge", arguments: {} }),
      /Nothing was sent|no server/,
    );
    assert.equal(server.requests().length, before);
  });

  it("finds nothing new a second time: the name is taken, so another one is used", async () => {
    const outcome = await run("mcpSafeReplay.importServers", { client: "vscode", path: file, servers: ["spare"] });
    assert.deepEqual(outcome?.names, ["spare-2"]);
    await changeSetting("servers", { "spare-2": undefined });
    await changeSetting("serverTrust", { "spare-2": undefined });
  });
});
