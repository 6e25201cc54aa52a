// Owns: proof that a mistake is told in one clear message, leaves the rest working, and sends nothing. What the messages look like in
// the UI is proved in test/e2e.

import assert from "node:assert/strict";
import {
  callAsAgent,
  callByCommand,
  changeSetting,
  hostHttpFaults,
  run,
  setTrust,
  settingsApplied,
  userSetting,
  type Hosted,
} from "./support.ts";
import type { HttpFaultServer } from "../servers/fault/http-fault-server.ts";
import { defaultTools } from "../servers/fault/world.ts";

describe("bad input", () => {
  let till: Hosted & { readonly faults: HttpFaultServer };
  const charge = { account: "a1", amount: 3 };

  before(async () => {
    till = await hostHttpFaults("till");
    await callAsAgent(till, "lookup", { item: "chairs" });
  });
  after(() => till.faults.close());

  it("a mistake in one definition leaves the other servers working", async () => {
    await changeSetting("servers", { broken: { command: 5 }, "also broken": { command: "true" } });
    try {
      await settingsApplied();
      await assert.rejects(run("mcpSafeReplay.startServer", { server: "broken" }), /no server "broken"/);
      assert.ok(!Object.hasOwn(userSetting("serverTrust"), "broken"));
      assert.equal((await callByCommand(till, "charge", charge)).kind, "result");
      assert.equal(till.ledger.countEffects(), 1);
    } finally {
      await changeSetting("servers", { broken: undefined, "also broken": undefined });
    }
  });

  it("a server that is no good is not added", async () => {
    const before = userSetting("servers");
    const add = (name: string, definition: Record<string, unknown>): Promise<void> =>
      run("mcpSafeReplay.addServer", { name, definition });
    await assert.rejects(add("fresh", { url: "ftp://example.com" }), /mcpSafeReplay\.servers\.fresh\.url must be an http/);
    await assert.rejects(add("fresh", { command: "true", comand: "x" }), /does not know 'comand'/);
    await assert.rejects(add("no good name", { command: "true" }), /name may have letters, digits/);
    await assert.rejects(add("till", { command: "true" }), /There is a server "till" already/);
    assert.deepEqual(userSetting("servers"), before);
  });

  it("trust for a server that does not exist trusts nothing and stops nothing", async () => {
    await setTrust("nobody", true);
    assert.equal((await callByCommand(till, "charge", { ...charge, amount: 4 })).kind, "result");
    await changeSetting("serverTrust", { nobody: undefined });
  });

  it("a server or a tool that is not there, and arguments that fail the schema: nothing is sent", async () => {
    const sent = till.ledger.countCalls();
    const call = (server: string, tool: string, args: Record<string, unknown>): Promise<unknown> =>
      run("mcpSafeReplay.callTool", { server, tool, arguments: args });
    await assert.rejects(call("no-server", "charge", charge), /no server "no-server"/);
    await assert.rejects(call("till", "no_tool", charge), /Nothing was sent: the server "till" has no tool "no_tool"/);
    await assert.rejects(call("till", "charge", { account: "a1" }), /Nothing was sent: .*required property 'amount'/);
    await assert.rejects(
      call("till", "charge", { account: "a1", amount: "3" }),
      /Nothing was sent: arguments\/amount must be number/,
    );
    assert.equal(till.ledger.countCalls(), sent);
  });

  it("a tool that has gone since: nothing is sent", async () => {
    const sent = till.ledger.countCalls();
    till.faults.setTools(
      defaultTools.filter((tool) => tool.name !== "charge"),
      { announce: true },
    );
    await run("mcpSafeReplay.restartServer", { server: "till" });
    await assert.rejects(
      run("mcpSafeReplay.callTool", { server: "till", tool: "charge", arguments: charge }),
      /Nothing was sent: the server "till" has no tool "charge"/,
    );
    const answer = await callAsAgent(till, "charge", charge).catch((error: unknown) => String(error));
    assert.doesNotMatch(JSON.stringify(answer), /UNRESOLVED/);
    assert.equal(till.ledger.countCalls(), sent);
  });
});
