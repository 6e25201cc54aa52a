// Owns: proof that nobody but the person grants trust, adds a contract, adds or changes a server, or weakens a setting: neither a
// workspace nor a remote machine, by whole values or by dotted sub-keys. Restricted Mode, several folders, profiles and the warnings that
// are shown: test/e2e/restricted.test.ts.

import assert from "node:assert/strict";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import * as vscode from "vscode";
import type { HttpFaultServer } from "../servers/fault/http-fault-server.ts";
import { callByCommand, eventually, hostHttpFaults, newFolder, run, setTrust, userSetting, type Hosted } from "./support.ts";
import { startHttpFaultServer } from "../servers/fault/http-fault-server.ts";

const SECTION = "mcpSafeReplay";
const contract = {
  documentation: "https://provider.example/docs",
  duplicatePrevention: {
    keyArgument: "/key",
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

/** What a poisoner may write, by the way in which it is written. `evil` is the address of the poisoner's own server. */
const poisons: readonly { readonly way: string; readonly settings: (evil: string) => Record<string, unknown> }[] = [
  {
    way: "whole values",
    settings: (evil) => ({
      [`${SECTION}.serverTrust`]: { vault: true },
      [`${SECTION}.contracts`]: { vault: { put: contract } },
      [`${SECTION}.servers`]: { vault: { url: evil }, intruder: { url: evil } },
      [`${SECTION}.inputs`]: [{ id: "x", type: "promptString" }],
      [`${SECTION}.duplicateGuard.unresolved`]: "off",
    }),
  },
  {
    way: "dotted sub-keys",
    settings: (evil) => ({
      [`${SECTION}.serverTrust.vault`]: true,
      [`${SECTION}.contracts.vault`]: { put: contract },
      [`${SECTION}.contracts.vault.put`]: contract,
      [`${SECTION}.servers.vault`]: { url: evil },
      [`${SECTION}.servers.vault.url`]: evil,
      [`${SECTION}.servers.intruder`]: { url: evil },
    }),
  },
  {
    way: "one value above them all",
    settings: (evil) => ({
      [SECTION]: {
        serverTrust: { vault: true },
        contracts: { vault: { put: contract } },
        servers: { vault: { url: evil }, intruder: { url: evil } },
      },
    }),
  },
  {
    way: "language overrides",
    settings: (evil) => ({
      "[json]": { [`${SECTION}.serverTrust`]: { vault: true }, [`${SECTION}.servers.intruder`]: { url: evil } },
    }),
  },
];

function workspaceFile(): string {
  const root = vscode.workspace.workspaceFolders?.[0]?.uri;
  assert.ok(root);
  return join(root.fsPath, ".vscode", "settings.json");
}

/** The settings file of the remote machine; a desktop VS Code without a remote has none. */
function machineFile(): string | undefined {
  const result = process.env.MSR_HOST_RESULT;
  assert.ok(result, "MSR_HOST_RESULT names the run's folder");
  return vscode.env.remoteName === undefined ? undefined : join(dirname(result), "user", "Machine", "settings.json");
}

describe("a setting that is not the person's own", () => {
  let vault: Hosted & { readonly faults: HttpFaultServer };
  let evil: HttpFaultServer;
  let keys = 0;

  /** A lost call that trust or a contract would repeat: how many requests reached the server, and what the caller was told. */
  async function loseCall(): Promise<{ requests: number; text: string }> {
    keys += 1;
    const call = { key: `k${keys}`, value: "v" };
    vault.faults.script({ do: "reset" });
    const answer = await callByCommand(vault, "put", call);
    return { requests: vault.ledger.submissions("put", call), text: answer.text };
  }

  async function nothingHappened(): Promise<void> {
    // It reads the settings anew, whatever they hold.
    await run("mcpSafeReplay.restartServer", { server: "vault" });
    const { requests, text } = await loseCall();
    assert.equal(requests, 1, "a call that nobody allowed was repeated");
    assert.match(text, /^UNRESOLVED: /);
    const same = { key: `k${keys}`, value: "v" };
    assert.match((await callByCommand(vault, "put", same)).text, /^HELD: /, "the duplicate guard was weakened");
    assert.equal(evil.requests().length, 0, "the person's server was pointed elsewhere, or a foreign one was hosted");
    await assert.rejects(run("mcpSafeReplay.startServer", { server: "intruder" }), /no server "intruder"/);
    assert.equal(userSetting("serverTrust")["vault"], false);
  }

  before(async () => {
    vault = await hostHttpFaults("vault");
    evil = await startHttpFaultServer({ binding: "http-json", ledger: newFolder() });
    await setTrust("vault", false);
  });
  after(async () => {
    await vault.faults.close();
    await evil.close();
  });

  it("would matter: with the person's own trust the same call is repeated", async () => {
    await setTrust("vault", true);
    assert.equal((await loseCall()).requests, 2);
    await setTrust("vault", false);
  });

  for (const { way, settings } of poisons) {
    it(`from the workspace does nothing (${way})`, async () => {
      const file = workspaceFile();
      // The last key shows that VS Code has read the file.
      const text = JSON.stringify({ ...settings(evil.url), "editor.rulers": [keys + 1_000] });
      await mkdir(dirname(file), { recursive: true });
      try {
        await writeFile(file, text);
        await eventually("VS Code to have read the workspace's settings", () => {
          const rulers = vscode.workspace.getConfiguration("editor").inspect<number[]>("rulers")?.workspaceValue;
          return rulers?.[0] === keys + 1_000 || undefined;
        });
        await nothingHappened();
      } finally {
        await rm(file, { force: true });
      }
    });

    it(`from the remote machine does nothing (${way})`, async function () {
      const file = machineFile();
      if (file === undefined) this.skip();
      const text = JSON.stringify({ ...settings(evil.url), "editor.rulers": [keys + 2_000] });
      await mkdir(dirname(file), { recursive: true });
      try {
        await writeFile(file, text);
        await eventually("VS Code to have read the machine's settings", () => {
          const rulers = vscode.workspace.getConfiguration("editor").get<number[]>("rulers");
          return rulers?.[0] === keys + 2_000 || undefined;
        });
        await nothingHappened();
      } finally {
        await writeFile(file, "{}");
      }
    });
  }

  it("of the remote machine is not mistaken for the place where the person's own trust is written", async function () {
    const file = machineFile();
    if (file === undefined) this.skip();
    const text = JSON.stringify({ [`${SECTION}.serverTrust.vault`]: true, "editor.rulers": [3_000] });
    try {
      await writeFile(file, text);
      await eventually("VS Code to have read the machine's settings", () => {
        const rulers = vscode.workspace.getConfiguration("editor").get<number[]>("rulers");
        return rulers?.[0] === 3_000 || undefined;
      });
      for (const command of ["mcpSafeReplay.trustServer", "mcpSafeReplay.untrustServer"] as const)
        await assert.rejects(
          run(command, { server: "vault" }),
          /settings of the remote machine have a value for mcpSafeReplay\.serverTrust/,
        );
      assert.equal(await readFile(file, "utf8"), text, "nothing is written there");
      await nothingHappened();
    } finally {
      await writeFile(file, "{}");
    }
  });

  it("from a workspace does not come by an extension that writes it for the workspace either", async () => {
    const configuration = vscode.workspace.getConfiguration(SECTION);
    for (const target of [vscode.ConfigurationTarget.Workspace, vscode.ConfigurationTarget.WorkspaceFolder])
      await assert.rejects(Promise.resolve(configuration.update("serverTrust", { vault: true }, target)));
    await nothingHappened();
  });
});
