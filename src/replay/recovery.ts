/**
 * Owns: fetching the answer to an attempt already made, where the protocol can: the event cursor (2025-11-25 Streamable HTTP) or the
 * task id (both eras). Creates no request for work.
 * Leaves to others: when to try (course.ts, reconcile.ts).
 * Sources: DESIGN.md section 4, step 1; the second source document, step 3.
 */
import type { HostedConnection } from "../hosting/connection.ts";
import type { EventCursor, JsonRpcAnswer } from "../hosting/evidence.ts";
import type { Attempt, Operation } from "../operations/model.ts";
import { Watch } from "./attempt.ts";
import type { CallHooks } from "./calls.ts";
import type { Desk } from "./desk.ts";

export interface Recovered {
  readonly attempt: number;
  readonly answer: JsonRpcAnswer;
  readonly how: "cursor" | "task";
}

/** The attempts whose answers could be fetched, the last one first. There is no cursor in the 2026-07-28 era. */
export function recoverable(operation: Operation): readonly Attempt[] {
  return operation.attempts
    .filter((attempt) => attempt.outcome !== "observed" && attempt.outcome !== "not-executed")
    .filter((attempt) => attempt.taskId !== undefined || hasUsableCursor(attempt))
    .reverse();
}

function hasUsableCursor(attempt: Attempt): boolean {
  return attempt.cursor !== undefined && attempt.era === "2025-11-25" && attempt.transport === "http";
}

/** @returns undefined when there is nothing to fetch, or it is gone */
export async function recover(
  desk: Desk,
  operation: Operation,
  connection: HostedConnection,
  hooks: CallHooks,
): Promise<Recovered | undefined> {
  for (const attempt of recoverable(operation)) {
    if (attempt.taskId !== undefined) {
      const ending = await connection.pollTask(attempt.taskId, hooks.signal);
      if (ending.kind === "answer") return { attempt: attempt.number, answer: ending.answer, how: "task" };
    }
    if (attempt.cursor !== undefined && hasUsableCursor(attempt)) {
      const cursor: EventCursor = {
        ...attempt.cursor,
        ...(attempt.sessionId === undefined ? {} : { sessionId: attempt.sessionId }),
        protocolVersion: attempt.protocolVersion,
      };
      const watch = new Watch(desk, { id: operation.id, hooks }, attempt.number);
      const ending = await connection.resume(attempt.rpcId, cursor, watch.observer, hooks.signal);
      if (ending.kind === "answer") return { attempt: attempt.number, answer: ending.answer, how: "cursor" };
    }
  }
  return undefined;
}
