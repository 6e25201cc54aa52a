/**
 * Owns: how evidence of a loss reads to a person, and the `HostingError` made from it.
 * Leaves to others: what the loss means for a call (src/replay).
 */
import { HostingError } from "./connection.ts";
import type { Loss, LossKind } from "./evidence.ts";

const phrases: Readonly<Record<LossKind, string>> = {
  "not-connected": "there is no connection to the server",
  "spawn-failed": "the server's program could not be started",
  "connect-refused": "the server could not be reached",
  dns: "the server's name could not be resolved",
  tls: "no secure connection to the server could be made",
  "connect-timeout": "the server did not take the connection in time",
  reset: "the connection was closed before the answer was complete",
  truncated: "the server's answer was cut off",
  "not-json": "the server's answer was not JSON-RPC",
  "no-answer": "the server sent no answer",
  "stream-ended": "the server's event stream ended without the answer",
  "http-status": "the server answered with an HTTP error",
  redirected: "the server answered with a redirect, which is not followed",
  "session-gone": "the server no longer knows the session",
  "process-exit": "the server's program ended",
  "stdin-closed": "the server's program stopped reading",
  "stdout-closed": "the server's program stopped writing",
  "closed-here": "the connection was closed on this side",
  "cancelled-here": "the request was given up on this side",
};

/** The loss as a clause, without arguments, addresses or transport text. */
export function describeLoss(loss: Loss): string {
  const phrase = phrases[loss.kind];
  return loss.kind === "http-status" && loss.httpStatus !== undefined ? `${phrase} (HTTP ${loss.httpStatus})` : phrase;
}

/** A loss as a failure to make or use a connection: 401 and 403 become `unauthorised`. */
export function errorOf(loss: Loss, detail?: string): HostingError {
  const options = { retryAfterMs: loss.retryAfterMs, httpStatus: loss.httpStatus, detail, challenge: loss.challenge };
  if (loss.httpStatus === 401 || loss.httpStatus === 403) {
    return new HostingError("unauthorised", `The server asks for authorisation (HTTP ${loss.httpStatus}).`, options);
  }
  const clause = describeLoss(loss);
  return new HostingError(loss.kind, `${clause.charAt(0).toUpperCase()}${clause.slice(1)}.`, options);
}

/** What `Wire.send` rejects with: the SDK's client passes it on, and its loss can be read again. */
export class LossError extends Error {
  readonly loss: Loss;
  constructor(loss: Loss) {
    super(describeLoss(loss));
    this.name = "LossError";
    this.loss = loss;
  }
}
