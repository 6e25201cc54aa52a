/**
 * Owns: from typed evidence to outcome: the one table that says whether a lost call is `not-executed` or `unknown`. Pure.
 * Leaves to others: the evidence (src/hosting), what is done about an unknown outcome (call-manager.ts).
 * Source: DESIGN.md section 3. Never looks at the text of an error.
 */
import type { Loss, LossKind } from "../hosting/evidence.ts";
import type { Reason } from "../operations/model.ts";

/**
 * Refusals: with one of these statuses and a JSON or empty body the MCP endpoint itself says that it did not run the call.
 * A body of another kind (an HTML page of something in front of it) proves nothing.
 */
export const refusals: ReadonlySet<number> = new Set([400, 401, 403, 404, 405, 406, 413, 415, 422, 429, 431]);

export type Verdict =
  /** Proved: never sent, or refused before it could run. `sendable`: it never left, so sending it is no replay. */
  | { readonly outcome: "not-executed"; readonly reason: Reason; readonly sendable: boolean }
  /** Everything else. `connectionLoss`: of the class that the replay gate may consider. */
  | { readonly outcome: "unknown"; readonly reason: Reason; readonly connectionLoss: boolean };

interface Row {
  readonly reason: Reason;
  readonly connectionLoss: boolean;
}

/** What each kind of loss means once at least one byte may have left. */
export const unknowns: Readonly<Record<LossKind, Row>> = {
  // The first six never wrote a byte; if a transport reports them with a later stage, the outcome is unknown all the same.
  "not-connected": { reason: "connection-lost", connectionLoss: true },
  "spawn-failed": { reason: "connection-lost", connectionLoss: true },
  "connect-refused": { reason: "connection-lost", connectionLoss: true },
  dns: { reason: "connection-lost", connectionLoss: true },
  tls: { reason: "connection-lost", connectionLoss: true },
  "connect-timeout": { reason: "connection-lost", connectionLoss: true },
  reset: { reason: "connection-lost", connectionLoss: true },
  truncated: { reason: "answer-unreadable", connectionLoss: true },
  "not-json": { reason: "answer-unreadable", connectionLoss: true },
  "no-answer": { reason: "no-answer", connectionLoss: true },
  "stream-ended": { reason: "connection-lost", connectionLoss: true },
  "http-status": { reason: "http-status", connectionLoss: true },
  redirected: { reason: "redirected", connectionLoss: false },
  "session-gone": { reason: "session-gone", connectionLoss: true },
  "process-exit": { reason: "process-exit", connectionLoss: true },
  "stdin-closed": { reason: "connection-lost", connectionLoss: true },
  "stdout-closed": { reason: "connection-lost", connectionLoss: true },
  "closed-here": { reason: "server-stopped", connectionLoss: false },
  "cancelled-here": { reason: "cancelled", connectionLoss: false },
};

/** What a loss establishes about the call that was lost. */
export function classify(loss: Loss): Verdict {
  if (loss.stage === "not-sent")
    return {
      outcome: "not-executed",
      reason: "not-sent",
      sendable: loss.kind !== "cancelled-here" && loss.kind !== "closed-here",
    };
  if (loss.kind === "session-gone" && loss.bodyIsJsonOrEmpty !== false)
    return { outcome: "not-executed", reason: "session-gone", sendable: false };
  if (loss.httpStatus !== undefined && refusals.has(loss.httpStatus) && loss.bodyIsJsonOrEmpty === true) {
    return { outcome: "not-executed", reason: "refused", sendable: false };
  }
  return { outcome: "unknown", ...unknowns[loss.kind] };
}
