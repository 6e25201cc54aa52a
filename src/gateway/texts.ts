/**
 * Owns: every text that the gateway itself says on its transport: HTTP refusals and JSON-RPC errors, with their codes.
 * Leaves to others: the answers of tools/call that say what became of an operation (src/replay).
 * No text holds tool arguments, secrets or a word of an upstream's transport. Names that come from outside are printable and short.
 */
import type { HostingError } from "../hosting/connection.ts";

/** Why the gateway refused or could not answer: stable words, in `error.data["mcp-safe-replay/gateway"].reason`. */
export type FaultReason =
  | "path"
  | "server-unknown"
  | "method"
  | "host"
  | "origin"
  | "token"
  | "accept"
  | "content-type"
  | "body-too-large"
  | "body-incomplete"
  | "body-timeout"
  | "headers-too-large"
  | "request-timeout"
  | "http"
  | "connections"
  | "busy"
  | "closing"
  | "encoding"
  | "json"
  | "depth"
  | "forbidden-key"
  | "message"
  | "id"
  | "batch"
  | "duplicate-id"
  | "protocol-version"
  | "params"
  | "unsupported"
  | "headers"
  | "input-state"
  | "server-unreachable"
  | "no-answer"
  | "agent-unreachable"
  | "internal";

/** One refusal: the HTTP status when nothing has been sent yet, and the JSON-RPC error. */
export interface Fault {
  readonly status: number;
  readonly code: number;
  readonly reason: FaultReason;
  readonly message: string;
  readonly data?: Readonly<Record<string, unknown>>;
}

/** JSON-RPC 2.0 section 5.1, and MCP's own codes. */
export const codes = {
  parse: -32700,
  invalidRequest: -32600,
  methodNotFound: -32601,
  invalidParams: -32602,
  internal: -32603,
  refused: -32000,
  headerMismatch: -32020,
  missingClientCapability: -32021,
  unsupportedProtocolVersion: -32022,
} as const;

function fault(status: number, code: number, reason: FaultReason, message: string, data?: Record<string, unknown>): Fault {
  return { status, code, reason, message, ...(data === undefined ? {} : { data }) };
}

/** A name from outside as it may stand in a text: printable, no quotes, at most 80 characters. */
export function shown(name: string): string {
  const clean = name.replace(/[^\p{L}\p{N} _./:@+-]/gu, "?");
  return clean.length > 80 ? `${clean.slice(0, 79)}…` : clean;
}

const reached: Readonly<Record<HostingError["kind"], string>> = {
  "not-connected": "it is not connected",
  "spawn-failed": "its program could not be started",
  "connect-refused": "its address refused the connection",
  dns: "its host name could not be resolved",
  tls: "the secure connection to it failed",
  "connect-timeout": "it did not accept the connection in time",
  reset: "it closed the connection",
  truncated: "its answer was incomplete",
  "not-json": "its answer was not MCP",
  "no-answer": "it gave no answer",
  "stream-ended": "its stream ended without an answer",
  "http-status": "it answered with an HTTP error",
  redirected: "it answered with a redirect",
  "session-gone": "its session is gone",
  "process-exit": "its process ended",
  "stdin-closed": "its process does not read any more",
  "stdout-closed": "its process does not write any more",
  "closed-here": "it was stopped here",
  "cancelled-here": "the attempt was given up here",
  protocol: "it does not speak a known version of MCP",
  unauthorised: "it asks for an authorisation",
};

export const faults = {
  path: (): Fault => fault(404, codes.invalidRequest, "path", "No such address. A hosted server's address is /servers/NAME/mcp."),
  serverUnknown: (name: string): Fault =>
    fault(404, codes.invalidRequest, "server-unknown", `No hosted server is called '${shown(name)}'.`),
  method: (): Fault =>
    fault(405, codes.refused, "method", "This address takes POST and GET only. There is no session to delete."),
  methodModern: (): Fault => fault(405, codes.refused, "method", "This protocol version uses POST only."),
  host: (): Fault => fault(403, codes.refused, "host", "The Host header names another host than this one."),
  origin: (): Fault => fault(403, codes.refused, "origin", "The Origin header names a page that may not use this gateway."),
  token: (): Fault => fault(401, codes.refused, "token", "The bearer token is missing or wrong."),
  accept: (): Fault => fault(406, codes.refused, "accept", "The Accept header must allow application/json or text/event-stream."),
  acceptStream: (): Fault => fault(406, codes.refused, "accept", "The Accept header of a GET must allow text/event-stream."),
  contentType: (): Fault =>
    fault(415, codes.refused, "content-type", "The body must be application/json in UTF-8, without a content encoding."),
  bodyTooLarge: (limit: number): Fault =>
    fault(413, codes.refused, "body-too-large", `The body is larger than ${limit} bytes. Nothing was sent.`),
  bodies: (): Fault => fault(503, codes.refused, "busy", "The gateway is reading too much at once. Nothing was sent."),
  bodyTimeout: (): Fault => fault(408, codes.refused, "body-timeout", "The body did not arrive in time. Nothing was sent."),
  headersTooLarge: (): Fault => fault(431, codes.refused, "headers-too-large", "The request headers are too large."),
  requestTimeout: (): Fault => fault(408, codes.refused, "request-timeout", "The request did not arrive in time."),
  http: (): Fault => fault(400, codes.invalidRequest, "http", "This is not a readable HTTP request."),
  connections: (limit: number): Fault =>
    fault(503, codes.refused, "connections", `The gateway has ${limit} open connections and takes no more. Nothing was sent.`),
  busy: (limit: number): Fault =>
    fault(
      200,
      codes.refused,
      "busy",
      `The gateway is busy: ${limit} requests are waiting already. This one was not sent; asking again later is safe.`,
    ),
  notSentCancelled: (): Fault =>
    fault(200, codes.refused, "busy", "The request was cancelled before it was sent. Nothing was sent."),
  closing: (): Fault => fault(503, codes.refused, "closing", "The gateway is closing. Nothing was sent."),
  encoding: (): Fault => fault(400, codes.parse, "encoding", "The body is not valid UTF-8."),
  json: (): Fault => fault(400, codes.parse, "json", "The body is not valid JSON."),
  depth: (limit: number): Fault => fault(400, codes.invalidRequest, "depth", `The body is nested deeper than ${limit} levels.`),
  forbiddenKey: (): Fault =>
    fault(400, codes.invalidRequest, "forbidden-key", "The body has a member called '__proto__', which is not taken."),
  message: (what: string): Fault => fault(400, codes.invalidRequest, "message", `This is not a JSON-RPC 2.0 message: ${what}.`),
  id: (): Fault =>
    fault(
      400,
      codes.invalidRequest,
      "id",
      "A request's id must be a string of at most 1024 characters or an integer between -(2^53-1) and 2^53-1.",
    ),
  batchVersion: (): Fault =>
    fault(400, codes.invalidRequest, "batch", "This protocol version has no batches. Send one message per request."),
  batchEmpty: (): Fault => fault(400, codes.invalidRequest, "batch", "The batch is empty."),
  batchSize: (limit: number): Fault =>
    fault(400, codes.invalidRequest, "batch", `The batch has more than ${limit} messages. Nothing was sent.`),
  batchInitialize: (): Fault => fault(400, codes.invalidRequest, "batch", "'initialize' must not be part of a batch."),
  duplicateId: (): Fault =>
    fault(400, codes.invalidRequest, "duplicate-id", "Two requests of the batch have the same id. Nothing was sent."),
  protocolVersion: (): Fault =>
    fault(400, codes.refused, "protocol-version", "The MCP-Protocol-Version header names a version that is not supported."),
  unsupportedVersion: (requested: string, supported: readonly string[]): Fault =>
    fault(400, codes.unsupportedProtocolVersion, "protocol-version", `Unsupported protocol version: ${shown(requested)}`, {
      supported: [...supported],
      requested: shown(requested),
    }),
  params: (what: string): Fault => fault(200, codes.invalidParams, "params", `Invalid params: ${what}.`),
  unsupported: (status: 200 | 404): Fault => fault(status, codes.methodNotFound, "unsupported", "Method not found"),
  headers: (what: string): Fault =>
    fault(400, codes.headerMismatch, "headers", `The request headers and the body disagree: ${what}.`),
  inputState: (): Fault =>
    fault(
      200,
      codes.invalidParams,
      "input-state",
      "Invalid or expired requestState: the call that asked for this input is not waiting any more. Nothing was sent.",
    ),
  serverUnreachable: (name: string, kind: HostingError["kind"] | undefined): Fault =>
    fault(
      200,
      codes.internal,
      "server-unreachable",
      `The server '${shown(name)}' cannot be reached now: ${kind === undefined ? "an internal error" : (reached[kind] ?? "an internal error")}. Nothing was sent; asking again later is safe.`,
    ),
  noAnswerRead: (): Fault => fault(200, codes.internal, "no-answer", "No answer; reading again is safe."),
  noAnswer: (): Fault =>
    fault(200, codes.internal, "no-answer", "No answer; the server may have acted on this request. Verify before you ask again."),
  notSent: (): Fault => fault(200, codes.internal, "no-answer", "The request did not reach the server; asking again is safe."),
  internal: (): Fault => fault(200, codes.internal, "internal", "The gateway failed while it handled this request."),
} as const;

/** A fault as a JSON-RPC error object. */
export function errorOf(fault: Fault): { code: number; message: string; data: Record<string, unknown> } {
  return {
    code: fault.code,
    message: fault.message,
    data: { ...fault.data, "mcp-safe-replay/gateway": { reason: fault.reason } },
  };
}

/** What an upstream server is told when the agent cannot answer its request. */
export const toServer = {
  unsupported: { code: codes.methodNotFound, message: "The client of this call does not support this request." },
  gone: { code: codes.internal, message: "The client of this call is gone and cannot answer." },
  none: { code: codes.internal, message: "No client is there to answer this request." },
  noInput: { code: codes.internal, message: "The client of this call gave no answer to this request." },
} as const;

/** A tools/call result of the gateway's own, for what only the gateway can know. Nothing here invites a repeat. */
export function ownResult(text: string): Record<string, unknown> {
  return { content: [{ type: "text", text }], isError: true };
}

export const resultTexts = {
  /** The call manager broke its promise never to reject. */
  failed: "The gateway failed while it handled this call. The tool may have run. Do not repeat it automatically; verify first.",
  /** The server asked for input (2026-07-28 `input_required`) and this client gave none. */
  inputMissing:
    "The server asked for further input before it would go on with this call, and this client did not give it. Verify what the tool has done before you call it again.",
  inputRounds:
    "The server asked for further input more often than the gateway allows for one call. Verify what the tool has done before you call it again.",
  /** The stdio bridge lost its gateway in the middle of a call. */
  bridgeLost:
    "The connection to the gateway was lost before the answer came. The tool may have run. Do not repeat it automatically; verify first: MCP Safe Replay keeps account of the call.",
  /** The stdio bridge did not reach its gateway: nothing was sent. */
  bridgeNotSent:
    "MCP Safe Replay is not running, or its gateway is elsewhere now. Nothing was sent; calling again is safe once it runs.",
} as const;
