/**
 * Owns: the two worked decisions of the second source document, end to end over the 2026-07-28 HTTP binding: a lost inventory read, and a
 * lost booking result (`booking-intent-17`, first RPC `write-201`), once with an authorised lookup and once with duplicate prevention.
 */
import { describe, expect, it } from "vitest";
import type { OperationEvent } from "../../src/operations/model.ts";
import type { HttpFaultServer } from "../servers/fault/http-fault-server.ts";
import type { FaultTool, Json } from "../servers/fault/world.ts";
import { Lab, type Answer, type LabOptions } from "./support/lab.ts";
import { plainLoss } from "./support/peers.ts";

const text = { type: "string" } as const;
const tools: readonly FaultTool[] = [
  // No annotations: that it only reads is what the contract says, not a metadata label.
  { name: "check_inventory", inputSchema: { type: "object", properties: { item: text }, required: ["item"] } },
  {
    name: "create_booking",
    inputSchema: {
      type: "object",
      properties: { operation: text, hotel: text, night: text },
      required: ["operation", "hotel", "night"],
    },
  },
  {
    name: "find_booking",
    inputSchema: { type: "object", properties: { operation: text }, required: ["operation"] },
    annotations: { readOnlyHint: true },
  },
];

const booking = { operation: "booking-intent-17", hotel: "Grand", night: "2026-12-24" };
const documentation = "https://provider.example/docs/bookings";

/** The provider: a stock that sinks with every look, and bookings by application operation identity. */
class Provider {
  stock = 12;
  readonly keepsOneForEachOperation: boolean;

  constructor(http: HttpFaultServer, options: { keepsOneForEachOperation: boolean }) {
    this.keepsOneForEachOperation = options.keepsOneForEachOperation;
    http.world.execute = (tool, args, rpcId, effect) => this.#execute(http, tool, args, rpcId, effect ?? true);
  }

  #execute(http: HttpFaultServer, tool: string, args: Json, rpcId: string | number, effect: boolean): Json {
    const key = String(args["operation"]);
    if (tool === "check_inventory") {
      this.stock -= 1;
      return result(`${this.stock} rooms.`, { item: args["item"], count: this.stock });
    }
    const made = http.ledger.effects({ tool: "create_booking", key });
    if (tool === "find_booking") {
      const status = made.length === 0 ? "none" : made.length === 1 ? "found" : "ambiguous";
      return result(status, { status, booking: made.length === 1 ? (made[0]?.arguments ?? null) : null });
    }
    const known = this.keepsOneForEachOperation && made.length > 0;
    if (effect && !known) http.ledger.recordEffect({ tool, arguments: args, key, rpcId });
    return result("Booked.", { booking: args });
  }
}

function result(words: string, structuredContent: Json): Json {
  return { content: [{ type: "text", text: words }], structuredContent };
}

describe.each(["modern-json", "modern-sse"] as const)("over %s", (transport) => {
  async function withLab(contracts: LabOptions["contracts"], body: (lab: Lab, http: HttpFaultServer) => Promise<void>) {
    const lab = await Lab.open(transport, { tools, contracts: contracts ?? {} });
    try {
      if (lab.peer.http === undefined) throw new Error("over HTTP");
      await body(lab, lab.peer.http);
    } finally {
      await lab.close();
    }
  }

  /** The next calls of a tool go out under these RPC ids. */
  async function rpcIds(lab: Lab, tool: string, ...ids: string[]): Promise<void> {
    const connection = await lab.server.connect();
    const prepare = connection.prepareCall.bind(connection);
    connection.prepareCall = (params, observer) => prepare(params, observer, params["name"] === tool ? ids.shift() : undefined);
  }

  const call = async (lab: Lab, tool: string, args: Json): Promise<Answer> =>
    lab.call("agent", { class: "C", tool, arguments: args }).answer;
  const rpcIdsSeen = (lab: Lab, tool: string): unknown[] => lab.peer.ledger.calls(tool).map(({ rpcId }) => rpcId);
  const events = async (lab: Lab): Promise<readonly OperationEvent[]> => {
    const [operation] = await lab.core.journal.operations({});
    return lab.core.journal.events(operation?.id ?? "");
  };
  const lookup = {
    documentation,
    lookup: {
      tool: "find_booking",
      arguments: { operation: "{{arguments/operation}}" },
      effect: "status == 'found'",
      noEffect: "status == 'none'",
      sameAs: { "/operation": "booking.operation", "/hotel": "booking.hotel", "/night": "booking.night" },
      consistentAfterSeconds: 0,
      recordsKeptSeconds: 86_400,
    },
  };

  it("reissues the lost inventory read under a new RPC id, and says that the answer is a new observation", () =>
    withLab({ check_inventory: { documentation, nonMutating: { freshDataAcceptable: true } } }, async (lab, http) => {
      new Provider(http, { keepsOneForEachOperation: false });
      await rpcIds(lab, "check_inventory", "read-101", "read-102");
      http.script(plainLoss(transport));
      const answer = await call(lab, "check_inventory", { item: "rooms" });
      expect(rpcIdsSeen(lab, "check_inventory")).toEqual(["read-101", "read-102"]);
      // Not the lost answer's 11, but what there is now.
      expect(answer.result?.["structuredContent"]).toEqual({ item: "rooms", count: 10 });
      expect(answer.result?.["_meta"]).toMatchObject({ "mcp-safe-replay/observation": "new" });
      expect(answer.mark).toMatchObject({ state: "completed", via: "replayed", attempts: 2 });
      const [operation] = await lab.core.journal.operations({});
      expect(operation).toMatchObject({
        state: "completed",
        reason: "replayed",
        attempts: [
          { rpcId: "read-101", outcome: "unknown", era: "2026-07-28" },
          { rpcId: "read-102", outcome: "observed", cause: "replay" },
        ],
      });
      expect(http.requests("HTTP GET")).toEqual([]);
      expect(http.effects()).toEqual([]);
    }));

  it("does not reissue it when the contract says that fresh data is not acceptable", () =>
    withLab({ check_inventory: { documentation, nonMutating: { freshDataAcceptable: false } } }, async (lab, http) => {
      new Provider(http, { keepsOneForEachOperation: false });
      http.script(plainLoss(transport));
      const answer = await call(lab, "check_inventory", { item: "rooms" });
      expect(answer.text).toContain("NO ANSWER: ");
      expect(lab.peer.ledger.countCalls()).toBe(1);
    }));

  it("reconciles the lost booking by its operation identity, without a second create", () =>
    withLab({ create_booking: lookup }, async (lab, http) => {
      new Provider(http, { keepsOneForEachOperation: false });
      await rpcIds(lab, "create_booking", "write-201", "write-202");
      http.script(plainLoss(transport));
      const answer = await call(lab, "create_booking", booking);
      expect(answer.text).toContain("DONE: this call took effect.");
      expect(rpcIdsSeen(lab, "create_booking")).toEqual(["write-201"]);
      expect(lab.peer.ledger.calls("find_booking").map(({ params }) => params?.["arguments"])).toEqual([
        { operation: "booking-intent-17" },
      ]);
      expect(http.effects()).toMatchObject([{ tool: "create_booking", key: "booking-intent-17", rpcId: "write-201" }]);
      await lab.untilOperation({ class: "C", tool: "create_booking", arguments: booking }, ({ delivered }) => delivered);
      // First on record that the result was not observed; then the evidence and the decision.
      const [operation] = await lab.core.journal.operations({});
      expect(operation).toMatchObject({ state: "effect-confirmed", reason: "lookup", attempts: [{ outcome: "unknown" }] });
      expect((await events(lab)).map(({ type }) => type)).toEqual([
        "prepared",
        "sent",
        "lost",
        "looked-up",
        "settled",
        "delivered",
      ]);
    }));

  it("keeps it unresolved when the lookup's record is ambiguous, and holds the repeat", () =>
    withLab({ create_booking: lookup }, async (lab, http) => {
      new Provider(http, { keepsOneForEachOperation: false });
      // An earlier booking of another night under the same identity, as a provider without uniqueness may have it.
      http.ledger.recordEffect({
        tool: "create_booking",
        arguments: { ...booking, night: "2026-12-23" },
        key: booking.operation,
      });
      await rpcIds(lab, "create_booking", "write-201", "write-202");
      http.script(plainLoss(transport));
      const answer = await call(lab, "create_booking", booking);
      expect(answer.text).toContain("UNRESOLVED: ");
      expect((await events(lab)).find(({ type }) => type === "looked-up")?.data).toMatchObject({ found: "undecided" });
      const again = await call(lab, "create_booking", booking);
      expect(again.text).toContain("HELD: ");
      expect(rpcIdsSeen(lab, "create_booking")).toEqual(["write-201"]);
      expect(http.effects().filter(({ rpcId }) => rpcId !== undefined)).toHaveLength(1);
      expect((await lab.core.journal.operations({})).map(({ state }) => state)).toEqual(["unresolved"]);
    }));

  it("repeats it with the same key and a new RPC id where the provider documents duplicate prevention: one booking", () =>
    withLab(
      {
        create_booking: {
          documentation,
          duplicatePrevention: {
            keyArgument: "/operation",
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
        },
      },
      async (lab, http) => {
        new Provider(http, { keepsOneForEachOperation: true });
        await rpcIds(lab, "create_booking", "write-201", "write-202");
        http.script(plainLoss(transport));
        const answer = await call(lab, "create_booking", booking);
        expect(answer.isError).toBe(false);
        expect(answer.mark).toMatchObject({ state: "completed", via: "replayed", attempts: 2 });
        const sent = lab.peer.ledger.calls("create_booking");
        expect(sent.map(({ rpcId }) => rpcId)).toEqual(["write-201", "write-202"]);
        // Identical arguments, the key among them.
        expect(sent.map(({ params }) => params?.["arguments"])).toEqual([booking, booking]);
        expect(http.effects()).toMatchObject([{ key: "booking-intent-17", rpcId: "write-201" }]);
        const [operation] = await lab.core.journal.operations({});
        expect(operation).toMatchObject({ state: "completed", intention: { key: "booking-intent-17" } });
        expect((await events(lab)).find(({ type }) => type === "replayed")?.data).toMatchObject({ verdict: ["contract"] });
      },
    ));
});
