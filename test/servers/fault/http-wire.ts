/**
 * Owns: the pieces of the wire that the HTTP fault server is made of: event streams that can be resumed, bodies that are no answers, cut
 * sockets, the checks of the 2026-07-28 binding.
 * Leaves to others: when they are used (http-fault-server.ts).
 */
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { BodyKind, ResumeStep } from "./steps.ts";
import { metaKeys, metaOf, type Json, type Request } from "./world.ts";

interface StoredEvent {
  readonly id: string | undefined;
  readonly data: string;
}

/** One SSE stream that belongs to a call: what was sent on it, and who is reading now. */
export class CallStream {
  readonly id: string;
  readonly withIds: boolean;
  readonly events: StoredEvent[] = [];
  response: ServerResponse | undefined;
  /** The answer that was not sent yet. */
  pending: Json | undefined;
  answered = false;
  resume: ResumeStep[] = [];

  constructor(id: string, withIds: boolean) {
    this.id = id;
    this.withIds = withIds;
  }

  #write(event: StoredEvent, retryMs?: number): void {
    const { response } = this;
    if (response === undefined || response.destroyed || response.writableEnded) return;
    if (event.id !== undefined) response.write(`id: ${event.id}\n`);
    if (retryMs !== undefined) response.write(`retry: ${retryMs}\n`);
    response.write(`event: message\ndata: ${event.data}\n\n`);
  }

  #store(data: string): StoredEvent {
    const event = { id: this.withIds ? `${this.id}:${this.events.length + 1}` : undefined, data };
    this.events.push(event);
    return event;
  }

  send(message: Json): void {
    if (message["method"] === undefined) this.answered = true;
    this.#write(this.#store(JSON.stringify(message)));
  }

  /** An event with an id and no data: the place to resume from (2025-11-25). */
  prime(retryMs?: number): void {
    this.#write(this.#store(""), retryMs);
  }

  announceRetry(retryMs: number): void {
    this.response?.write(`retry: ${retryMs}\n\n`);
  }

  has(eventId: string): boolean {
    return this.events.some((event) => event.id === eventId);
  }

  replayAfter(eventId: string): void {
    const at = this.events.findIndex((event) => event.id === eventId);
    for (const event of this.events.slice(at + 1)) this.#write(event);
  }
}

export function openStream(response: ServerResponse, headers: Readonly<Record<string, string>> = {}): void {
  if (response.headersSent) return;
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache", ...headers });
  response.flushHeaders();
}

export function writeEvent(response: ServerResponse | undefined, message: Json): void {
  if (response === undefined || response.destroyed || response.writableEnded) return;
  response.write(`event: message\ndata: ${JSON.stringify(message)}\n\n`);
}

/** Base64 form of a header value that is no plain ASCII (2026-07-28, `=?base64?…?=`). */
function decodeHeader(value: string | undefined): string | undefined {
  const encoded = /^=\?base64\?([A-Za-z0-9+/=]*)\?=$/.exec(value ?? "")?.[1];
  return encoded === undefined ? value : Buffer.from(encoded, "base64").toString("utf8");
}

export function bodyOf(kind: BodyKind, status: number, message: Json | undefined): [type: string | undefined, body: string] {
  switch (kind) {
    case "json":
      return ["application/json", JSON.stringify({ status, error: "scripted" })];
    case "html":
      return ["text/html", `<!doctype html><title>${status}</title><p>Something in front of the server.</p>`];
    case "empty":
      return [undefined, ""];
    case "text":
      return ["text/plain", "No JSON."];
    case "half-json": {
      const text = JSON.stringify(message ?? {});
      return ["application/json", text.slice(0, Math.floor(text.length / 2))];
    }
    case "other-id":
      return ["application/json", JSON.stringify({ ...message, id: "unknown" })];
  }
}

/** Sockets that this side cut. */
export const cutHere = new WeakSet<Socket>();

export function cut(socket: Socket, how: "reset" | "fin"): void {
  cutHere.add(socket);
  // A socket that was ended already cannot be reset: libuv refuses (EINVAL), and Node.js would never close it.
  if (how === "fin" || socket.destroyed || socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}

/**
 * What the 2026-07-28 HTTP binding refuses with HTTP 400 before anything runs: a missing or unknown version, headers that disagree with
 * the body, a missing envelope.
 */
export function modernRefusal(
  headers: Readonly<Record<string, string>>,
  request: Request,
): { readonly code: number; readonly message: string; readonly data?: Json } | undefined {
  const meta = metaOf(request.params);
  const version = meta[metaKeys.protocolVersion];
  const unsupported = {
    code: -32022,
    message: "Unsupported protocol version",
    data: { supported: ["2026-07-28"], requested: version ?? request.params["protocolVersion"] ?? "unknown" },
  };
  if (version === undefined) {
    const claimed = headers["mcp-protocol-version"] === "2026-07-28";
    return claimed ? { code: -32602, message: "The _meta envelope is missing" } : unsupported;
  }
  const named = request.method === "tools/call" ? "name" : request.method.startsWith("tasks/") ? "taskId" : undefined;
  const disagrees =
    headers["mcp-protocol-version"] !== version
      ? "MCP-Protocol-Version"
      : headers["mcp-method"] !== request.method
        ? "Mcp-Method"
        : named !== undefined && decodeHeader(headers["mcp-name"]) !== request.params[named]
          ? "Mcp-Name"
          : undefined;
  if (disagrees !== undefined) return { code: -32020, message: `${disagrees} disagrees with the body` };
  if (typeof meta[metaKeys.clientCapabilities] !== "object") {
    return { code: -32602, message: "clientCapabilities is missing in the _meta envelope" };
  }
  return version === "2026-07-28" ? undefined : unsupported;
}
