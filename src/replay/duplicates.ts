/**
 * Owns: the duplicate guard: what is answered instead of sending when an identical operation stands in the way.
 * Leaves to others: when two calls are identical (intention.ts), the texts (answers.ts).
 * Source: DESIGN.md section 5.
 */
import type { HostedServer } from "../hosting/hosted-server.ts";
import type { Operation } from "../operations/model.ts";
import { answerNotKept, heldAnswer, marked, settledAnswer } from "./answers.ts";
import { ourAnswer, type CallAnswer, type CallRequest } from "./calls.ts";
import { toolNamed, type Desk } from "./desk.ts";
import { declaresRead } from "./gate.ts";

/** An answer that nobody received is handed to an identical call for this long, in milliseconds (24 hours). */
export const guardWindowMs = 24 * 60 * 60 * 1000;

/** What the guard says of a call: answer it so, or send it, marked as a possible duplicate of another operation. */
export type Guarded =
  | { readonly send: false; readonly answer: CallAnswer }
  | { readonly send: true; readonly duplicateOf: string | undefined; readonly letThroughBy: string | undefined };

/** What stands in the journal. What is in flight in this program is the call manager's to see, at the very moment of sending. */
export async function guard(desk: Desk, server: HostedServer, digest: string, request: CallRequest): Promise<Guarded> {
  const mode = desk.settings.duplicateGuard;
  // A tool that consistently declares itself a read is never held: calling again is the agent's own decision.
  if (declaresRead(toolNamed(server.tools, request.tool))) return { send: true, duplicateOf: undefined, letThroughBy: undefined };

  let earlier: readonly Operation[] = [];
  try {
    earlier = await desk.journal.operations({ digest, states: ["unresolved", "completed", "effect-confirmed"], limit: 50 });
  } catch {
    // A journal that cannot be read cannot be written either: the call is refused when it is journaled.
  }
  earlier = earlier.filter((operation) => !operation.intention.declaredRead);

  const unresolved = earlier.filter((operation) => operation.state === "unresolved");
  const [first] = unresolved;
  if (first !== undefined && mode.unresolved !== "off") {
    const letThrough = unresolved.find((operation) => operation.letThrough);
    if (letThrough !== undefined) return { send: true, duplicateOf: letThrough.id, letThroughBy: letThrough.id };
    if (mode.unresolved === "warn") return { send: true, duplicateOf: first.id, letThroughBy: undefined };
    await desk.note(desk.event(first.id, "held", "agent", { verdict: ["identical-unresolved"] }));
    return { send: false, answer: ourAnswer(undefined, heldAnswer(first.id)) };
  }

  const undelivered = earlier.find(
    (operation) =>
      operation.state !== "unresolved" && !operation.delivered && inWindow(desk, operation) && sameCaller(operation, request),
  );
  if (undelivered !== undefined && mode.undelivered === "hold") return { send: false, answer: recorded(desk, undelivered) };
  return { send: true, duplicateOf: mode.undelivered === "warn" ? undelivered?.id : undefined, letThroughBy: undefined };
}

/** The recorded answer, or the confirmed fact, once. */
function recorded(desk: Desk, operation: Operation): CallAnswer {
  const delivered = (): void => desk.noteDelivered(operation.id, operation.intention.caller.client);
  const mark = { id: operation.id, state: operation.state, attempts: operation.attempts.length, via: "recorded" as const };
  if (operation.state === "completed" && operation.answer?.withheld !== undefined) {
    const { isError } = operation.answer;
    return { kind: "result", result: answerNotKept(operation.id, isError, mark), operationId: operation.id, delivered };
  }
  if (operation.state === "completed" && operation.answer?.error !== undefined) {
    return {
      kind: "error",
      error: operation.answer.error as { code: number; message: string },
      operationId: operation.id,
      delivered,
    };
  }
  const result =
    operation.state === "completed"
      ? marked((operation.answer?.result ?? {}) as Record<string, unknown>, mark)
      : settledAnswer(operation.id, "effect-confirmed", operation.settlement);
  return { kind: "result", result, operationId: operation.id, delivered };
}

function inWindow(desk: Desk, operation: Operation): boolean {
  return Math.abs(desk.clock.now() - operation.updatedAt) <= guardWindowMs;
}

/** The same client, and not provably another conversation. */
function sameCaller(operation: Operation, request: CallRequest): boolean {
  const before = operation.intention.caller;
  const now = request.caller;
  if (before.client !== now.client) return false;
  return before.conversationId === undefined || now.conversationId === undefined || before.conversationId === now.conversationId;
}
