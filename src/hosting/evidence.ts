/**
 * Owns: the words in which a transport says what it can prove about one request on the wire.
 * Leaves to others: what that proof means for the operation (src/replay/classify.ts).
 * Source: DESIGN.md sections 1 and 3. Nothing here carries transport text: classes and numbers only.
 */

/** How far a request provably got. */
export type DeliveryStage =
  | "not-sent" // provably not one byte of the request left this process
  | "sending" // at least one byte was handed to the operating system
  | "sent" // the whole request was handed over
  | "answering" // bytes of an answer (headers, stream, line) arrived
  | "answered"; // a correlated JSON-RPC answer was read

/** The protocol era that was negotiated on the connection (both HTTP bindings and stdio). */
export type Era = "2025-11-25" | "2026-07-28";

/** The wire a hosted server is reached over. */
export type TransportKind = "stdio" | "http" | "sse";

/** Why a request ended without a correlated answer. */
export type LossKind =
  | "not-connected" // there was no live connection; nothing was written
  | "spawn-failed"
  | "connect-refused"
  | "dns"
  | "tls"
  | "connect-timeout"
  | "reset" // connection reset or closed by the peer (HTTP: before the answer was complete)
  | "truncated" // body shorter than announced
  | "not-json" // HTML, empty or otherwise unreadable body, or JSON that is no JSON-RPC answer to this id
  | "no-answer" // 202, or 200 whose exchange ended without an answer
  | "stream-ended" // an SSE stream ended without the answer
  | "http-status" // an HTTP status other than success; see httpStatus
  | "redirected" // a redirect, not followed
  | "session-gone" // 404 to a POST that carried a session id
  | "process-exit"
  | "stdin-closed" // EPIPE
  | "stdout-closed"
  | "closed-here" // this side closed the connection (stop, restart, shutdown)
  | "cancelled-here"; // this side gave up the exchange as the era's cancellation signal

/** Typed evidence about one request that has no answer. */
export interface Loss {
  readonly kind: LossKind;
  readonly stage: Exclude<DeliveryStage, "answered">;
  /** HTTP status, when there was one. */
  readonly httpStatus?: number;
  /** True when a refusal's body was JSON or empty (a word of the MCP endpoint, not of something in front of it). */
  readonly bodyIsJsonOrEmpty?: boolean;
  /** `Retry-After` or SSE `retry`, in milliseconds. */
  readonly retryAfterMs?: number;
  /** The number of a challenge to authorise (401, 403 `insufficient_scope`), for `ServerAuthorisation.settle`. */
  readonly challenge?: number;
}

/** A JSON-RPC response object exactly as read from the wire (unknown fields kept). */
export type JsonRpcAnswer =
  | { readonly jsonrpc: "2.0"; readonly id: string | number; readonly result: Record<string, unknown> }
  | { readonly jsonrpc: "2.0"; readonly id: string | number; readonly error: { code: number; message: string; data?: unknown } };

/** How a request ended: with an answer, or with evidence of a loss. */
export type Ending =
  | { readonly kind: "answer"; readonly answer: JsonRpcAnswer; readonly httpStatus?: number; readonly retryAfterMs?: number }
  | { readonly kind: "loss"; readonly loss: Loss };

/** Where to pick up an answer again: 2025-11-25 Streamable HTTP, "Resumability and Redelivery". */
export interface EventCursor {
  readonly eventId: string;
  readonly sessionId?: string;
  readonly protocolVersion: string;
  /** Not before this many milliseconds after the stream ended (SSE `retry`). */
  readonly retryMs?: number;
}
