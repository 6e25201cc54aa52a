/**
 * Owns: reading and writing single JSON-RPC messages, leniently where the peer wrote them and strictly where we do.
 * Leaves to others: which message belongs to which call (router.ts).
 * Source: JSON-RPC 2.0; MCP 2025-11-25 and 2026-07-28, "Base Protocol".
 */
import type { JsonRpcAnswer } from "./evidence.ts";

export type JsonObject = Record<string, unknown>;
export type RpcId = string | number;

/** A request of ours, ready to be written. */
export interface RpcRequest {
  readonly jsonrpc: "2.0";
  readonly id: RpcId;
  readonly method: string;
  readonly params?: JsonObject;
}

export interface RpcNotification {
  readonly jsonrpc: "2.0";
  readonly method: string;
  readonly params?: JsonObject;
}

/** JSON-RPC error codes that decide something here. -32020 to -32022: 2026-07-28, "Error Codes". */
export const rpcErrors = {
  methodNotFound: -32601,
  internal: -32603,
  headerMismatch: -32020,
  missingClientCapability: -32021,
  unsupportedProtocolVersion: -32022,
} as const;

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The object under `key`, or nothing. */
export function objectIn(value: unknown, key: string): JsonObject | undefined {
  if (!isObject(value)) return undefined;
  const found = value[key];
  return isObject(found) ? found : undefined;
}

export function isRpcId(value: unknown): value is RpcId {
  return typeof value === "string" || typeof value === "number";
}

/** Parses JSON text. @returns undefined when it is none (JSON has no undefined) */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** The messages in a parsed value: a batch (2025-03-26) is an array of them. */
export function messagesIn(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [value];
}

/**
 * Reads a message as an answer: any object with an id and a `result` or an `error`, however odd the rest of it is.
 * What was read is kept as it came; only an `error` without a numeric code and a text gets them, because callers rely on both.
 */
export function asAnswer(message: unknown): JsonRpcAnswer | undefined {
  if (!isObject(message) || !isRpcId(message["id"]) || "method" in message) return undefined;
  const error = message["error"];
  if (error !== undefined && error !== null) {
    if (isObject(error) && typeof error["code"] === "number" && typeof error["message"] === "string") {
      return message as unknown as JsonRpcAnswer;
    }
    const fields = isObject(error) ? error : { data: error };
    const code = typeof fields["code"] === "number" ? fields["code"] : rpcErrors.internal;
    const text = typeof fields["message"] === "string" ? fields["message"] : "The server answered with an error.";
    return { ...message, error: { ...fields, code, message: text } } as unknown as JsonRpcAnswer;
  }
  return "result" in message ? (message as unknown as JsonRpcAnswer) : undefined;
}

/** Two ids are the same id whether the peer echoed a number or its text. */
export function idKey(id: RpcId): string {
  return String(id);
}
