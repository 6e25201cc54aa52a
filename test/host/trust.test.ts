// Owns: proof that a lost call of a tool that may be repeated is replayed with trust and not without it, whoever calls, and that only
// the person's own settings and a matching consent make trust.

import assert from "node:assert/strict";
import * as vscode from "vscode";
import {
  callAsAgent,
  callByCommand,
  eventually,
  hostDemo,
  hostHttpFaults,
  latestOperationOf,
  run,
  setTrust,
  settingsApplied,
  userSetting,
  type CallPath,
  type Hosted,
} from "./support.ts";
import type { HttpFaultServer } from "../servers/fault/http-fault-server.ts";

const ways: readonly { readonly name: string; readonly call: CallPath }[] = [
  { name: "an agent", call: callAsAgent },
  { name: "the command", call: callByCommand },
];

describe("trust of a server", () => {
  let notes: Hosted;
  before(async () => {
    notes = await hostDemo("notes", "notes");
  });

  for (const { name, call } of ways) {
    it(`off: the lost save of ${name} is sent once and becomes unresolved`, async () => {
      const note = { title: `${name}, untrusted`, text: "Milk" };
      const answer = await call(notes, "save_note", note);
      assert.match(answer.text, /^UNRESOLVED: /);
      assert.equal(notes.ledger.submissions("save_note", note), 1);
      const operation = await latestOperationOf("notes");
      assert.equal(operation.state, "unresolved");
      assert.deepEqual(operation.events.at(-1)?.data, { verdict: ["server-not-trusted"] });
    });
  }

  it("on, by the setting alone: the consent is recorded when the extension sees the change", async () => {
    await setTrust("notes", true);
    assert.equal(userSetting("serverTrust")["notes"], true);
  });

  for (const { name, call } of ways) {
    it(`on: the lost save of ${name} is replayed: two requests, one answer, no error`, async () => {
      const note = { title: `${name}, trusted`, text: "Milk" };
      const answer = await call(notes, "save_note", note);
      assert.equal(answer.kind, "result");
      assert.doesNotMatch(answer.text, /UNRESOLVED|HELD|NOT EXECUTED/);
      assert.match(answer.text, /trusted/);
      assert.equal(notes.ledger.submissions("save_note", note), 2);
      const operation = await latestOperationOf("notes");
      assert.equal(operation.state, "completed");
      assert.deepEqual(
        operation.attempts.map(({ outcome }) => outcome),
        ["unknown", "observed"],
      );
    });
  }

  it("on: a lost read is read again", async () => {
    const answer = await callAsAgent(notes, "read_note", { title: "the command, trusted" });
    assert.match(answer.text, /Milk/);
    assert.equal(notes.ledger.submissions("read_note", { title: "the command, trusted" }), 2);
  });

  it("off again: not replayed any more, and an identical save is held", async () => {
    await setTrust("notes", false);
    const note = { title: "untrusted again", text: "Milk" };
    assert.match((await callByCommand(notes, "save_note", note)).text, /^UNRESOLVED: /);
    assert.match((await callByCommand(notes, "save_note", note)).text, /^HELD: /);
    assert.equal(notes.ledger.submissions("save_note", note), 1);
  });

  it("off: a lost read is unresolved, but reading again is the caller's own decision", async () => {
    const title = { title: "untrusted again" };
    assert.match((await callByCommand(notes, "read_note", title)).text, /^UNRESOLVED: /);
    assert.match((await callByCommand(notes, "read_note", title)).text, /Milk/);
    assert.equal(notes.ledger.submissions("read_note", title), 2);
  });
});

describe("trust that nobody gave", () => {
  let server: Hosted & { readonly faults: HttpFaultServer };
  let keys = 0;

  /** Calls a tool that may be repeated, loses the answer, and says how many requests there were. */
  async function requestsOfLostCall(): Promise<number> {
    keys += 1;
    const call = { key: `k${keys}`, value: "v" };
    server.faults.script({ do: "reset" });
    await callByCommand(server, "put", call);
    return server.ledger.submissions("put", call);
  }

  before(async () => {
    server = await hostHttpFaults("strongbox");
  });
  after(() => server.faults.close());

  for (const value of ["true", 1, { trusted: true }, null]) {
    it(`does not come from ${JSON.stringify(value)} in place of true`, async () => {
      await vscode.workspace
        .getConfiguration("mcpSafeReplay")
        .update("serverTrust", { ...userSetting("serverTrust"), strongbox: value }, vscode.ConfigurationTarget.Global);
      await settingsApplied();
      assert.equal(await requestsOfLostCall(), 1);
    });
  }

  it("does not come from the workspace", async () => {
    await setTrust("strongbox", false);
    const root = vscode.workspace.workspaceFolders?.[0]?.uri;
    assert.ok(root);
    const file = vscode.Uri.joinPath(root, ".vscode", "settings.json");
    const poison = {
      "mcpSafeReplay.serverTrust": { strongbox: true },
      "mcpSafeReplay.serverTrust.strongbox": true,
      "mcpSafeReplay.servers.intruder": { command: "false" },
      "mcpSafeReplay.duplicateGuard": "off",
    };
    try {
      await vscode.workspace.fs.writeFile(file, Buffer.from(JSON.stringify(poison)));
      await eventually("VS Code to have read the workspace's settings", () => {
        const merged = vscode.workspace.getConfiguration("mcpSafeReplay").get<Record<string, unknown>>("serverTrust");
        return merged?.["strongbox"] === true || undefined;
      });
      await settingsApplied();
      assert.equal(await requestsOfLostCall(), 1);
      await assert.rejects(run("mcpSafeReplay.stopServer", { server: "intruder" }), /no server "intruder"/);
    } finally {
      await vscode.workspace.fs.delete(file);
    }
  });

  it("ends when the server's definition changes, and is given anew by the command", async () => {
    await setTrust("strongbox", true);
    assert.equal(await requestsOfLostCall(), 2);
    const definition = { type: "http", url: server.faults.url, headers: { "x-changed": "yes" } };
    const servers = { ...userSetting("servers"), strongbox: definition };
    await vscode.workspace.getConfiguration("mcpSafeReplay").update("servers", servers, vscode.ConfigurationTarget.Global);
    await settingsApplied();
    assert.equal(userSetting("serverTrust")["strongbox"], true, "the switch stays on");
    assert.equal(await requestsOfLostCall(), 1);

    await run("mcpSafeReplay.trustServer", { server: "strongbox" });
    assert.equal(await requestsOfLostCall(), 2);
    await run("mcpSafeReplay.untrustServer", { server: "strongbox" });
    assert.equal(userSetting("serverTrust")["strongbox"], false, "the command writes the same setting");
    assert.equal(await requestsOfLostCall(), 1);
  });
});
