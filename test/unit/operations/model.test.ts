import { describe, expect, it } from "vitest";
import {
  apply,
  contradicts,
  IllegalTransition,
  operationStates,
  transitions,
  type EventType,
  type Operation,
  type OperationEvent,
} from "../../../src/operations/model.ts";

const intention = {
  server: "s",
  tool: "t",
  arguments: {},
  digest: "d",
  caller: { client: "c" },
  fingerprint: "f",
  provenRead: false,
  declaredRead: false,
};
const event = (type: EventType, data: unknown, at = 1): OperationEvent =>
  ({ operationId: "op", type, actor: "agent", at, data }) as OperationEvent;
const attempt = (number: number) => ({
  number,
  rpcId: `rpc-${number}`,
  era: "2025-11-25",
  transport: "stdio",
  connectionId: "c",
  protocolVersion: "2025-11-25",
  cause: "call",
});
const after = (...events: OperationEvent[]): Operation => {
  let operation: Operation | undefined;
  for (const one of events) operation = apply(operation, one);
  if (operation === undefined) throw new Error("no events");
  return operation;
};
const prepared = event("prepared", intention);
const sent = event("sent", attempt(1));
const lost = event("lost", { attempt: 1, stage: "sent", reason: "connection-lost", kind: "reset" });
const answered = event("answered", { attempt: 1, result: { content: [] }, isError: false, reason: "answered" });
const settled = (as: string): OperationEvent => ({ ...event("settled", { as, evidence: "seen" }), actor: "person" });

describe("the life of an operation", () => {
  it("goes from prepared over in-flight to completed", () => {
    expect(after(prepared).state).toBe("prepared");
    expect(after(prepared, sent).state).toBe("in-flight");
    expect(after(prepared, sent, answered)).toMatchObject({
      state: "completed",
      reason: "answered",
      attempts: [{ stage: "answered", outcome: "observed" }],
    });
  });

  it("keeps a lost answer as unresolved until it is settled, recovered or late", () => {
    expect(after(prepared, sent, lost)).toMatchObject({
      state: "unresolved",
      reason: "connection-lost",
      attempts: [{ outcome: "unknown" }],
    });
    expect(after(prepared, sent, lost, settled("effect-confirmed")).state).toBe("effect-confirmed");
    expect(after(prepared, sent, lost, settled("no-effect")).state).toBe("no-effect");
    expect(after(prepared, sent, lost, settled("dismissed")).state).toBe("dismissed");
    const late = event("late-answer", { attempt: 1, result: {}, isError: false });
    expect(after(prepared, sent, lost, late)).toMatchObject({ state: "completed", reason: "late-answer", delivered: false });
  });

  it("repeats as a further attempt of the same operation, only after no-effect", () => {
    const repeated = event("repeated", { attempt: 2, evidence: "looked" });
    const operation = after(
      prepared,
      sent,
      lost,
      settled("no-effect"),
      repeated,
      event("sent", { ...attempt(2), cause: "repeat" }),
    );
    expect(operation).toMatchObject({ state: "in-flight", attempts: [{ number: 1 }, { number: 2, cause: "repeat" }] });
    expect(() => after(prepared, sent, lost, settled("effect-confirmed"), repeated)).toThrow(IllegalTransition);
    expect(() => after(prepared, sent, lost, repeated)).toThrow(IllegalTransition);
  });

  it("never rewrites a settlement: a late answer is appended and a contradiction flagged", () => {
    const late = event("late-answer", { attempt: 1, result: {}, isError: false });
    const conflict = event("conflict", { settledAs: "no-effect", isError: false });
    expect(after(prepared, sent, lost, settled("no-effect"), late, conflict)).toMatchObject({
      state: "no-effect",
      conflict: true,
    });
  });

  it("has no way out of the table", () => {
    for (const state of operationStates) {
      for (const type of Object.keys(transitions) as EventType[]) {
        if (transitions[type][state] !== undefined) continue;
        expect(() => apply({ ...after(prepared), state }, event(type, { attempt: 1, as: "dismissed" }))).toThrow(
          IllegalTransition,
        );
      }
    }
    expect(() => apply(undefined, sent)).toThrow(IllegalTransition);
  });

  it("settles only what is unresolved, and once", () => {
    expect(() => after(prepared, sent, settled("no-effect"))).toThrow(IllegalTransition);
    expect(() => after(prepared, sent, lost, settled("no-effect"), settled("effect-confirmed"))).toThrow(IllegalTransition);
  });

  it("knows which answers contradict which word", () => {
    expect(contradicts("no-effect", { isError: false })).toBe(true);
    expect(contradicts("no-effect", { isError: true })).toBe(false);
    expect(contradicts("effect-confirmed", { isError: true })).toBe(true);
    expect(contradicts("effect-confirmed", { isError: false })).toBe(false);
    expect(contradicts("dismissed", { isError: false })).toBe(false);
  });
});
