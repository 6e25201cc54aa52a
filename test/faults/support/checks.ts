/**
 * Owns: what every cell asserts: effects in the ledger, tools/call requests that reached the server, the operation's state and reason
 * in the journal, the caller's answer; and when the answer was lost, to measure the time from there.
 */
import { expect } from "vitest";
import type { OperationState, Reason } from "../../../src/operations/model.ts";
import type { Via } from "../../../src/replay/calls.ts";
import type { Answer, Lab, Subject } from "./lab.ts";

export interface Expected {
  readonly effects: number;
  readonly requests: number;
  readonly state: OperationState;
  readonly reason: Reason;
  /** How the server's own answer came; absent: the caller got it as it was. */
  readonly via?: Via;
}

/** C, when nothing can be recovered. */
export const unresolved = (reason: Reason, more: Partial<Expected> = {}): Expected => ({
  effects: 1,
  requests: 1,
  state: "unresolved",
  reason,
  ...more,
});
export const notExecuted = (reason: Reason, more: Partial<Expected> = {}): Expected => ({
  effects: 0,
  requests: 1,
  state: "not-executed",
  reason,
  ...more,
});
export const completed = (more: Partial<Expected> = {}): Expected => ({
  effects: 1,
  requests: 1,
  state: "completed",
  reason: "answered",
  ...more,
});
export const recovered = (more: Partial<Expected> = {}): Expected =>
  completed({ reason: "recovered", via: "recovered", ...more });
export const replayed = (more: Partial<Expected> = {}): Expected =>
  completed({ requests: 2, reason: "replayed", via: "replayed", ...more });
/** R, when it could not be read again. */
export const readLost = (reason: Reason, more: Partial<Expected> = {}): Expected => ({
  effects: 0,
  requests: 1,
  state: "dismissed",
  reason,
  ...more,
});

const openings: Partial<Record<OperationState, string>> = {
  unresolved: "UNRESOLVED: ",
  "not-executed": "NOT EXECUTED: ",
  dismissed: "NO ANSWER: ",
  "effect-confirmed": "DONE: ",
};

/** The four things but the time. Reads have no effects, whatever is expected of the other classes. */
export async function expectOutcome(lab: Lab, subject: Subject, answer: Answer, expected: Expected): Promise<void> {
  const operation = await lab.operation(subject);
  const requests = lab.requests(subject);
  const effects = subject.class === "R" ? 0 : expected.effects;
  expect({
    effects: lab.effects(subject),
    requests: requests.length,
    state: operation.state,
    reason: operation.reason,
    answer: answer.kind,
    ...(answer.mark === undefined ? {} : { via: answer.mark.via }),
  }).toEqual({
    effects,
    requests: expected.requests,
    state: expected.state,
    reason: expected.reason,
    answer: "result",
    ...(answer.mark === undefined ? {} : { via: expected.via }),
  });
  // Sent implies journaled: every request that arrived is an attempt of the operation, each with an id of its own.
  const journaled = operation.attempts.map((attempt) => attempt.rpcId);
  expect(new Set(journaled).size).toBe(journaled.length);
  for (const request of requests) expect(journaled).toContain(request.rpcId);

  const opening = openings[expected.state];
  if (opening === undefined) {
    if (expected.via !== undefined) expect(answer.mark).toMatchObject({ id: operation.id, state: "completed" });
    return;
  }
  expect(answer.text.slice(0, opening.length)).toBe(opening);
  expect(answer.isError).toBe(expected.state !== "effect-confirmed");
  // A read that was given up has nothing to settle, but its answer is not known.
  expect(answer.mark?.state).toBe(expected.state === "dismissed" ? "unresolved" : expected.state);
  expect(answer.mark?.id).toBe(operation.id);
  expectNoLeak(lab, subject, answer);
}

/** Neither arguments nor transport text: not in the answer, not in the log. */
export function expectNoLeak(lab: Lab, subject: Subject, answer: Answer): void {
  const secret = String(Object.values(subject.arguments)[0]);
  expect(JSON.stringify(answer.result)).not.toContain(secret);
  expect(answer.text).not.toMatch(/ECONN|EPIPE|socket hang up|fetch failed|127\.0\.0\.1/);
  expect(lab.log.filter((line) => line.includes(secret))).toEqual([]);
}
