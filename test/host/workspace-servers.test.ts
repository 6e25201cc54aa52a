// Owns: proof that a trusted workspace's own file brings servers, that they never come before the person's, that they wait for what they
// need, and that its editor helps. Restricted Mode: test/e2e/restricted.test.ts.

import assert from "node:assert/strict";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import * as vscode from "vscode";
import { startHttpFaultServer, type HttpFaultServer } from "../servers/fault/http-fault-server.ts";
import { stdioFaults } from "../servers/fault/stdio-faults.ts";
import {
  callByCommand,
  changeSetting,
  eventually,
  hostHttpFaults,
  newFolder,
  nodeProgram,
  run,
  setTrust,
  settingsApplied,
  userSetting,
  type Hosted,
} from "./support.ts";

const root = (): string => {
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
  assert.ok(folder);
  return folder;
};
const file = (): string => join(root(), ".vscode", "mcp-safe-replay.json");

async function writeServers(content: unknown): Promise<void> {
  await mkdir(dirname(file()), { recursive: true });
  await writeFile(file(), typeof content === "string" ? content : JSON.stringify(content));
}

/** Waits until the server is hosted: then, and only then, it can be stopped. */
const untilHosted = (server: string): Promise<true> =>
  eventually(`"${server}" to be hosted`, async () => {
    await run("mcpSafeReplay.stopServer", { server });
    return true as const;
  });
const untilGone = (server: string): Promise<true> =>
  eventually(`"${server}" to be gone`, async () => {
    const error: unknown = await run("mcpSafeReplay.stopServer", { server }).catch((reason: unknown) => reason);
    return /no server/.test(String(error)) ? (true as const) : undefined;
  });

describe("the servers of a workspace", () => {
  let remote: HttpFaultServer;
  let mine: Hosted & { readonly faults: HttpFaultServer };

  before(async () => {
    remote = await startHttpFaultServer({ binding: "http-json", ledger: newFolder(), serverInfo: { name: "ws", version: "1" } });
    mine = await hostHttpFaults("mine");
  });
  after(async () => {
    await rm(file(), { force: true });
    await untilGone("ws-remote");
    await remote.close();
    await mine.faults.close();
    await changeSetting("serverTrust", { "ws-remote": undefined, "ws-program": undefined });
  });

  it("are hosted, in the shape of mcp.json, with comments, variables and an env file", async () => {
    const program = stdioFaults(newFolder(), { serverInfo: { name: "ws-program", version: "1" } });
    await writeFile(join(root(), "servers.env"), "WS_TEST=1\n");
    await writeServers(`{
      // ours
      "servers": {
        "ws-remote": { "url": ${JSON.stringify(remote.url)} },
        "ws-program": {
          "command": ${JSON.stringify(nodeProgram())},
          "args": ${JSON.stringify(program.args)},
          "envFile": "\${workspaceFolder}/servers.env",
        },
      },
    }`);
    await untilHosted("ws-remote");
    await untilHosted("ws-program");
    const hosted = { name: "ws-program", title: "ws-program", ledger: program.ledger };
    assert.equal((await callByCommand(hosted, "charge", { account: "a", amount: 1 })).kind, "result");
    assert.equal(program.ledger.countEffects(), 1);
  });

  it("are listed for trust as not trusted", async () => {
    await eventually("its row", () => (Object.hasOwn(userSetting("serverTrust"), "ws-remote") ? true : undefined));
    assert.equal(userSetting("serverTrust")["ws-remote"], false);
  });

  it("are trusted by the person's own switch alone", async () => {
    const hosted: Hosted = { name: "ws-remote", title: "ws", ledger: remote.ledger };
    const lose = async (key: string): Promise<number> => {
      remote.script({ do: "reset" });
      await callByCommand(hosted, "put", { key, value: "v" });
      return remote.ledger.submissions("put", { key, value: "v" });
    };
    assert.equal(await lose("w1"), 1);
    await setTrust("ws-remote", true);
    assert.equal(await lose("w2"), 2);
    // Another definition under the trusted name: the grant was for the one before.
    await writeServers({ servers: { "ws-remote": { url: remote.url, headers: { "x-changed": "yes" } } } });
    await untilGone("ws-program");
    assert.equal(await lose("w3"), 1);
    await setTrust("ws-remote", false);
  });

  it("cannot use a contract that the person wrote for a server of this name, unless they are trusted", async () => {
    const configuration = vscode.workspace.getConfiguration("mcpSafeReplay");
    const before = configuration.inspect("contracts")?.globalValue;
    const contract = {
      documentation: "https://provider.example/docs",
      duplicatePrevention: {
        keyArgument: "/account",
        suppliedBy: "caller",
        retentionSeconds: 86_400,
        promises: {
          scopedToAccountAndOperation: true,
          boundToPayload: true,
          atomicUnderConcurrency: true,
          retainedForWholeWindow: true,
          reachesProvider: true,
        },
      },
    };
    const lose = async (hosted: Hosted, faults: HttpFaultServer, account: string): Promise<number> => {
      faults.script({ do: "reset" });
      await callByCommand(hosted, "charge", { account, amount: 1 });
      return faults.ledger.submissions("charge", { account, amount: 1 });
    };
    try {
      const contracts = { "ws-remote": { charge: contract }, mine: { charge: contract } };
      await configuration.update("contracts", contracts, vscode.ConfigurationTarget.Global);
      await settingsApplied();
      await eventually("the person's own server to have its contract", async () =>
        (await lose(mine, mine.faults, `m${Date.now()}`)) === 2 ? true : undefined,
      );
      assert.equal(await lose({ name: "ws-remote", title: "ws", ledger: remote.ledger }, remote, "w"), 1);
    } finally {
      await configuration.update("contracts", before, vscode.ConfigurationTarget.Global);
      await settingsApplied();
    }
  });

  it("never come before a server of the person's with the same name", async () => {
    const seen = remote.requests().length;
    await writeServers({ servers: { "ws-remote": { url: remote.url }, mine: { url: `${remote.url}?shadow` } } });
    await settingsApplied();
    await run("mcpSafeReplay.restartServer", { server: "mine" });
    await callByCommand(mine, "charge", { account: "shadow", amount: 1 });
    assert.equal(mine.ledger.countEffects({ tool: "charge" }) > 0, true);
    assert.ok(
      !remote
        .requests()
        .slice(seen)
        .some(({ path }) => path.includes("shadow")),
    );
  });

  it("do not even take the name of one of the person's that has a mistake", async () => {
    await changeSetting("servers", { broken: { command: 5 } });
    await writeServers({ servers: { "ws-remote": { url: remote.url }, broken: { url: remote.url } } });
    await settingsApplied();
    await assert.rejects(run("mcpSafeReplay.startServer", { server: "broken" }), /a server of your own has this name/);
    await changeSetting("servers", { broken: undefined });
  });

  it("that need a value wait, and say so", async () => {
    await writeServers({
      servers: {
        "ws-remote": { url: remote.url },
        "ws-keyed": { url: remote.url, headers: { Authorization: "Bearer ${input:key}" } },
      },
      inputs: [{ id: "key", type: "promptString", description: "Key of the test", password: true }],
    });
    await eventually("it to wait", async () => {
      const error: unknown = await run("mcpSafeReplay.startServer", { server: "ws-keyed" }).catch((reason: unknown) => reason);
      return /not running\. It needs a value from you: Key of the test/.test(String(error)) ? true : undefined;
    });
  });

  it("have a row of actions above each of them, and completion and hover from the schema", async () => {
    await writeServers({ servers: { "ws-remote": { url: remote.url } } });
    await untilHosted("ws-remote");
    const uri = vscode.Uri.file(file());
    const document = await vscode.workspace.openTextDocument(uri);
    await vscode.window.showTextDocument(document);
    const titles = await eventually("the rows", async () => {
      const lenses = await vscode.commands.executeCommand<vscode.CodeLens[]>("vscode.executeCodeLensProvider", uri, 20);
      const found = lenses.map(({ command }) => command?.title ?? "");
      return found.includes("stopped") ? found : undefined;
    });
    assert.deepEqual(titles, ["stopped", "$(debug-start) Start", "$(workspace-untrusted) Trust for Replay", "$(output) Log"]);

    const inUrl = document.positionAt(document.getText().indexOf('"url"') + 2);
    const hover = await eventually("the hover", async () => {
      const hovers = await vscode.commands.executeCommand<vscode.Hover[]>("vscode.executeHoverProvider", uri, inUrl);
      const texts = hovers.flatMap(({ contents }) => contents.map((one) => (one as vscode.MarkdownString).value));
      return texts.find((text) => text.includes("The server's URL"));
    });
    assert.ok(hover);
    const completions = await vscode.commands.executeCommand<vscode.CompletionList>(
      "vscode.executeCompletionItemProvider",
      uri,
      document.positionAt(document.getText().indexOf('"url"')),
    );
    const labels = completions.items.map(({ label }) => (typeof label === "string" ? label : label.label));
    assert.ok(labels.includes("headers"), labels.join(", "));
    await vscode.commands.executeCommand("workbench.action.closeAllEditors");
  });

  it("go when the file goes", async () => {
    await rm(file());
    await untilGone("ws-remote");
  });
});
