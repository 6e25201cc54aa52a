/**
 * Owns: reading a request body as JSON-RPC messages, strictly: bytes to values, nothing sent before all of it is understood.
 * Leaves to others: what a message means (legacy-face.ts, modern-face.ts).
 * Source: JSON-RPC 2.0 sections 4 to 6; MCP "Messages" (ids are strings or integers, params are objects).
 */
import { faults, type Fault } from "./texts.ts";

export type RpcId = string | number;

export interface RpcRequest {
  readonly kind: "request";
  readonly id: RpcId;
  readonly method: string;
  readonly params: Record<string, unknown> | undefined;
}
export interface RpcNotification {
  readonly kind: "notification";
  readonly method: string;
  readonly params: Record<string, unknown> | undefined;
}
export interface RpcResponse {
  readonly kind: "response";
  readonly id: RpcId;
  readonly answer:
    | { readonly result: Record<string, unknown> }
    | { readonly error: { readonly code: number; readonly message: string; readonly data?: unknown } };
}
export type RpcMessage = RpcRequest | RpcNotification | RpcResponse;

/** A body that was understood in full. */
export interface ReadBody {
  readonly ok: true;
  readonly batch: boolean;
  readonly messages: readonly RpcMessage[];
}
/** A body that was not; `id` is the request's id where it could be read. */
export interface UnreadBody {
  readonly ok: false;
  readonly fault: Fault;
  readonly id: RpcId | null;
}

/** Deeper bodies are refused: everything that walks JSON later may be recursive. */
export const maxDepth = 200;
/** Messages in one batch. */
export const maxBatch = 100;
const maxIdLength = 1024;
const maxMethodLength = 256;

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false });

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Reads a whole body. Never throws. */
export function readMessages(bytes: Uint8Array): ReadBody | UnreadBody {
  const refuse = (fault: Fault, id: RpcId | null = null): UnreadBody => ({ ok: false, fault, id });
  if (isTooDeep(bytes)) return refuse(faults.depth(maxDepth));
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch {
    return refuse(faults.encoding());
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return refuse(faults.json());
  }
  // An escaped form of the name is possible, so any escape makes the walk necessary.
  if ((text.includes("__proto__") || text.includes("\\u")) && hasForbiddenKey(value))
    return refuse(faults.forbiddenKey(), idOf(value));
  if (!Array.isArray(value)) {
    const read = readMessage(value);
    return "fault" in read ? refuse(read.fault, read.id) : { ok: true, batch: false, messages: [read] };
  }
  if (value.length === 0) return refuse(faults.batchEmpty());
  if (value.length > maxBatch) return refuse(faults.batchSize(maxBatch));
  const messages: RpcMessage[] = [];
  const ids = new Set<string>();
  for (const item of value) {
    const read = readMessage(item);
    if ("fault" in read) return refuse(read.fault);
    if (read.kind === "request") {
      const key = idKey(read.id);
      if (ids.has(key)) return refuse(faults.duplicateId());
      ids.add(key);
    }
    messages.push(read);
  }
  return { ok: true, batch: true, messages };
}

/** An id as a map key: `1` and `"1"` are two ids. */
export function idKey(id: RpcId): string {
  return `${typeof id === "number" ? "n" : "s"}:${id}`;
}

export function isRpcId(value: unknown): value is RpcId {
  return (typeof value === "string" && value.length <= maxIdLength) || (typeof value === "number" && Number.isSafeInteger(value));
}

function idOf(value: unknown): RpcId | null {
  return isObject(value) && isRpcId(value["id"]) ? value["id"] : null;
}

function readMessage(value: unknown): RpcMessage | { fault: Fault; id: RpcId | null } {
  const id = idOf(value);
  const wrong = (what: string) => ({ fault: faults.message(what), id });
  if (!isObject(value)) return wrong("it is not an object");
  if (value["jsonrpc"] !== "2.0") return wrong("'jsonrpc' must be \"2.0\"");
  const hasId = Object.hasOwn(value, "id");
  if (hasId && id === null) return { fault: faults.id(), id: null };
  if (Object.hasOwn(value, "method")) {
    const method = value["method"];
    if (typeof method !== "string" || method === "") return wrong("'method' must be a string");
    if (method.length > maxMethodLength) return wrong(`'method' is longer than ${maxMethodLength} characters`);
    if (Object.hasOwn(value, "result") || Object.hasOwn(value, "error")) return wrong("it has both 'method' and an answer");
    const params = value["params"];
    if (Object.hasOwn(value, "params") && !isObject(params)) return wrong("'params' must be an object");
    const read = isObject(params) ? params : undefined;
    const meta = read?.["_meta"];
    if (read !== undefined && Object.hasOwn(read, "_meta") && !isObject(meta)) return wrong("'params._meta' must be an object");
    if (isObject(meta) && Object.hasOwn(meta, "progressToken") && !isRpcId(meta["progressToken"])) {
      return wrong("'params._meta.progressToken' must be a string or an integer");
    }
    return id === null ? { kind: "notification", method, params: read } : { kind: "request", id, method, params: read };
  }
  if (id === null) return wrong("it has neither 'method' nor 'id'");
  const result = value["result"];
  const error = value["error"];
  if (Object.hasOwn(value, "result") === Object.hasOwn(value, "error")) return wrong("an answer has either 'result' or 'error'");
  if (Object.hasOwn(value, "result")) {
    return isObject(result) ? { kind: "response", id, answer: { result } } : wrong("'result' must be an object");
  }
  if (!isObject(error) || !Number.isSafeInteger(error["code"]) || typeof error["message"] !== "string") {
    return wrong("'error' must have a 'code' and a 'message'");
  }
  const data = Object.hasOwn(error, "data") ? { data: error["data"] } : {};
  return { kind: "response", id, answer: { error: { code: error["code"] as number, message: error["message"], ...data } } };
}

/** Whether brackets outside strings nest deeper than allowed. Works on bytes: JSON's structure is ASCII in UTF-8. */
function isTooDeep(bytes: Uint8Array): boolean {
  let depth = 0;
  let inString = false;
  for (let index = 0; index < bytes.length; index += 1) {
    const byte = bytes[index];
    if (inString) {
      if (byte === 0x5c) index += 1;
      else if (byte === 0x22) inString = false;
    } else if (byte === 0x22) inString = true;
    else if (byte === 0x7b || byte === 0x5b) {
      depth += 1;
      if (depth > maxDepth) return true;
    } else if (byte === 0x7d || byte === 0x5d) depth -= 1;
  }
  return false;
}

function hasForbiddenKey(value: unknown): boolean {
  const open: unknown[] = [value];
  while (open.length > 0) {
    const next = open.pop();
    if (typeof next !== "object" || next === null) continue;
    if (!Array.isArray(next) && Object.hasOwn(next, "__proto__")) return true;
    for (const item of Object.values(next)) if (typeof item === "object" && item !== null) open.push(item);
  }
  return false;
}
