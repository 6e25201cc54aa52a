// Owns: proof that an agent's call through VS Code's own MCP client reaches a hosted server, what it gets when the answer is lost, and
// how a person settles it by commands with arguments.

import assert from "node:assert/strict";
import type { HttpFaultServer } from "../servers/fault/http-fault-server.ts";
import { defaultTools, type FaultTool } from "../servers/fault/world.ts";
import {
  agentTool,
  answerOf,
  callAsAgent,
  hostDemo,
  hostHttpFaults,
  latestOperationOf,
  operationsOf,
  run,
  setTrust,
  type Hosted,
} from "./support.ts";

describe("an agent that books a room through VS Code's own MCP client", () => {
  const room = { hotel: "Hotel Astoria", night: "2026-12-24", guest: "Ada Lovelace" };
  let booking: Hosted;
  let id = "";

  before(async () => {
    booking = await hostDemo("booking", "hotel");
  });

  it("finds the tools of the hosted server, unchanged", async () => {
    const tool = await agentTool(booking, "create_booking");
    assert.match(tool.description, /^Books one room for one night\./);
    assert.deepEqual((tool.inputSchema as { required?: unknown }).required, ["hotel", "night", "guest"]);
  });

  it("gets the server's own answer", async () => {
    const answer = await callAsAgent(booking, "find_booking", { hotel: room.hotel });
    assert.deepEqual(answer, { kind: "result", text: '{"found":false,"status":"none"}' });
    assert.equal(booking.ledger.countCalls("find_booking"), 1);
  });

  it("is told a stable text without arguments when the answer to a booking is lost", async () => {
    const answer = await callAsAgent(booking, "create_booking", room);
    const operation = await latestOperationOf("hotel");
    id = operation.id;
    assert.deepEqual(answer, {
      kind: "result",
      text:
        "UNRESOLVED: this tool call may have completed before its answer was lost (the server's process ended before the answer arrived). " +
        "It was not repeated. Do not repeat it automatically: calling again could do it twice. First verify whether it took effect, for " +
        `example with a tool that only reads, or ask the person to reconcile it in MCP Safe Replay. Operation ${id}.`,
    });
    assert.equal(operation.state, "unresolved");
    assert.equal(booking.ledger.countEffects(), 1);
    assert.equal(booking.ledger.countCalls("create_booking"), 1);
  });

  it("is not let through with the identical call, whatever the order of its arguments", async () => {
    const { hotel, night, guest } = room;
    const answer = await callAsAgent(booking, "create_booking", { guest, night, hotel });
    assert.match(answer.text, new RegExp(`^HELD: an identical earlier call is still unresolved \\(operation ${id}\\)`));
    for (const secret of Object.values(room)) assert.ok(!answer.text.includes(secret), answer.text);
    assert.equal(booking.ledger.countEffects(), 1);
    assert.equal(booking.ledger.countCalls("create_booking"), 1);
  });

  it("may make another booking meanwhile", async () => {
    await callAsAgent(booking, "create_booking", { ...room, guest: "Grace Hopper" });
    assert.equal(booking.ledger.countEffects(), 2);
    const other = await latestOperationOf("hotel");
    await run("mcpSafeReplay.reconcile", { id: other.id, as: "dismissed" });
  });

  it("has its call repeated once, as a further attempt of the same operation, after a person found that it did not happen", async () => {
    await run("mcpSafeReplay.reconcile", { id, as: "no-effect", evidence: "asked the hotel" });
    assert.equal(booking.ledger.countCalls("create_booking"), 2, "settling sends nothing");

    const answer = answerOf(await run("mcpSafeReplay.repeatCall", { id }));
    assert.match(answer.text, /^Booked\. Reference R-3\./);
    const operation = (await operationsOf("hotel")).find((one) => one.id === id);
    assert.equal(operation?.state, "completed");
    assert.deepEqual(
      operation.attempts.map(({ outcome }) => outcome),
      ["unknown", "observed"],
    );
    assert.equal(new Set(operation.attempts.map(({ rpcId }) => rpcId)).size, 2, "each attempt has an RPC id of its own");
    assert.equal(booking.ledger.countCalls("create_booking"), 3);
  });

  it("leaves a full record, without arguments in the listing", async () => {
    const operation = (await operationsOf("hotel")).find((one) => one.id === id);
    const types = operation?.events.map(({ type }) => type).filter((type) => type !== "delivered");
    assert.deepEqual(types, ["prepared", "sent", "lost", "held", "held", "settled", "repeated", "sent", "answered"]);
    for (const secret of Object.values(room)) assert.ok(!JSON.stringify(operation).includes(secret));
  });

  it("gets the established fact instead of another booking, once, after a person found that it happened", async () => {
    const stay = { ...room, night: "2026-12-25" };
    await callAsAgent(booking, "create_booking", stay);
    const lost = await latestOperationOf("hotel");
    await run("mcpSafeReplay.reconcile", { id: lost.id, as: "effect-confirmed", evidence: "Seen in the list of bookings" });
    const before = booking.ledger.countCalls("create_booking");

    const answer = await callAsAgent(booking, "create_booking", stay);
    assert.match(answer.text, new RegExp(`^ALREADY DONE: .*\\(operation ${lost.id}\\).*Seen in the list of bookings`));
    assert.equal(booking.ledger.countCalls("create_booking"), before, "nothing was sent");
  });

  it("cannot have settled twice, or without evidence, or repeated what was not settled as not having happened", async () => {
    await assert.rejects(run("mcpSafeReplay.reconcile", { id, as: "no-effect", evidence: "again" }), /is not unresolved/);
    await assert.rejects(run("mcpSafeReplay.reconcile", { id, as: "effect-confirmed", evidence: "  " }), /evidence is needed/);
    await assert.rejects(run("mcpSafeReplay.repeatCall", { id }), /cannot be repeated/);
    await assert.rejects(run("mcpSafeReplay.repeatCall", { id: "no-such-operation" }), /no operation no-such-operation/);
  });
});

describe("an agent's call that is under way", () => {
  let slow: Hosted & { readonly faults: HttpFaultServer };
  let accounts = 0;

  before(async () => {
    slow = await hostHttpFaults("slow-pay");
    await callAsAgent(slow, "lookup", { item: "chairs" });
  });
  after(() => slow.faults.close());

  /** Makes a call, lets something happen while it is under way, and only then lets the server answer. */
  async function meanwhile(happens: () => Promise<void>): Promise<void> {
    accounts += 1;
    slow.faults.script({ do: "hang" });
    const call = callAsAgent(slow, "charge", { account: `account-${accounts}`, amount: 1 });
    await slow.faults.untilHanging(1);
    await happens();
    slow.faults.release();
    const answer = await call;
    assert.equal(answer.kind, "result", answer.text);
    assert.match(answer.text, new RegExp(`account-${accounts}`));
  }

  it("is answered although the server is trusted meanwhile", () => meanwhile(() => setTrust("slow-pay", true)));

  it("is answered although the server gets another tool meanwhile", () =>
    meanwhile(async () => {
      const refund: FaultTool = { name: "refund", description: "Pays back.", inputSchema: { type: "object" } };
      slow.faults.setTools([...defaultTools, refund], { announce: true });
      await agentTool(slow, "refund");
    }));
});
