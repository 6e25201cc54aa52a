/**
 * Owns: what is said on the answer to one 2026-07-28 request besides its answer: an error with its HTTP status, progress, notifications.
 * Leaves to others: the requests themselves (modern-face.ts, modern-calls.ts, modern-listen.ts).
 */
import { metaKeys } from "./envelope.ts";
import { errorMessage, type Exchange } from "./exchange.ts";
import { isObject, type RpcId } from "./messages.ts";
import type { ServerHub } from "./server-hub.ts";
import { codes, type Fault } from "./texts.ts";

type Fields = Record<string, unknown>;

const severity = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/** Answers with an error of ours. @returns whether it was handed over */
export function fail(exchange: Exchange, id: RpcId, fault: Fault): Promise<boolean> {
  return exchange.answer({ id, error: errorMessage(id, fault).error }, fault.status);
}

/** Passes progress on, with the token of the request that this agent waits on; without a token it is not wanted. */
export function sayProgress(exchange: Exchange, params: Fields | undefined, progress: Fields): void {
  const meta = params?.["_meta"];
  const token = isObject(meta) ? meta["progressToken"] : undefined;
  if (token === undefined) return;
  exchange.send(
    { jsonrpc: "2.0", method: "notifications/progress", params: { ...progress, progressToken: token } },
    { droppable: true },
  );
}

/** A notification on a request's own stream. This era has progress and, if the request asked for it, log messages there; vendors' pass. */
export function sayNotification(hub: ServerHub, exchange: Exchange, params: Fields | undefined, message: Fields): void {
  const { method } = message;
  if (typeof method !== "string" || method === "notifications/cancelled") return;
  if (hub.announceRelated(message, undefined)) return;
  if (method === "notifications/message") {
    const meta = params?.["_meta"];
    const wanted = isObject(meta) ? severity.indexOf(String(meta[metaKeys.logLevel])) : -1;
    const level = isObject(message["params"]) ? severity.indexOf(String(message["params"]["level"])) : -1;
    if (wanted < 0 || level < wanted) return;
  }
  exchange.send({ ...message, jsonrpc: "2.0" });
}

/** The HTTP status that this era gives to a JSON-RPC error: an unknown method, a missing client capability; all others are 200. */
export function statusOf(code: number): number {
  return code === codes.methodNotFound ? 404 : code === codes.missingClientCapability ? 400 : 200;
}
