/**
 * Owns: one HTTP request before it is understood: its path, its type, its whole body within the limits, and how it is refused unread.
 * Leaves to others: which limits there are and who may come in (gateway.ts), what a body says (messages.ts).
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { errorMessage, refuse } from "./exchange.ts";
import { faults, type Fault } from "./texts.ts";

export interface BodyLimits {
  /** Bytes of one request body. */
  readonly bodyBytes: number;
  /** Bytes of all request bodies that are being read at once. */
  readonly allBodiesBytes: number;
  /** Milliseconds for a body. */
  readonly bodyTimeoutMs: number;
}

/** The server's name in `/servers/NAME/mcp`, a query string ignored. */
export function serverNameOf(url: string): string | undefined {
  const found = /^\/servers\/([^/?#]{1,200})\/mcp\/?(?:\?.*)?$/.exec(url);
  if (found?.[1] === undefined) return undefined;
  try {
    return decodeURIComponent(found[1]);
  } catch {
    return undefined;
  }
}

export function isJson(request: IncomingMessage): boolean {
  const encoding = request.headers["content-encoding"];
  if (encoding !== undefined && encoding.toLowerCase() !== "identity") return false;
  const [type, ...parameters] = (request.headers["content-type"] ?? "").split(";");
  const charset = parameters.map((parameter) => /^\s*charset\s*=\s*"?([^"\s]+)"?\s*$/i.exec(parameter)?.[1]).find(Boolean);
  return type?.trim().toLowerCase() === "application/json" && (charset === undefined || /^utf-?8$/i.test(charset));
}

/** The whole body; a fault when it is too large or too slow; "gone" when the agent left or cut it short. Never rejects. */
export function readBody(
  request: IncomingMessage,
  limits: BodyLimits,
  all: { bytes: number },
): Promise<Uint8Array | Fault | "gone"> {
  const announced = request.headers["content-length"];
  if (announced !== undefined && Number(announced) > limits.bodyBytes)
    return Promise.resolve(faults.bodyTooLarge(limits.bodyBytes));
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const settle = (outcome: Uint8Array | Fault | "gone") => {
      clearTimeout(timer);
      all.bytes -= size;
      request.off("data", onData).off("end", onEnd).off("close", onClose);
      resolve(outcome);
    };
    const onData = (chunk: Buffer) => {
      size += chunk.length;
      all.bytes += chunk.length;
      if (all.bytes > limits.allBodiesBytes) settle(faults.bodies());
      else if (size > limits.bodyBytes) settle(faults.bodyTooLarge(limits.bodyBytes));
      else chunks.push(chunk);
    };
    const onEnd = () => settle(Buffer.concat(chunks, size));
    const onClose = () => settle("gone");
    const timer = setTimeout(() => settle(faults.bodyTimeout()), limits.bodyTimeoutMs);
    request.on("data", onData).on("end", onEnd).on("close", onClose);
  });
}

/** Refuses a request whose body was not read: the answer goes out, the rest of the body is thrown away for a moment, then the line is cut. */
export function refuseUnread(
  request: IncomingMessage,
  response: ServerResponse,
  fault: Fault,
  headers: Record<string, string> = {},
): void {
  refuse(response, fault, null, headers);
  if (request.complete || request.destroyed) return;
  const timer = setTimeout(() => request.destroy(), 2000);
  timer.unref();
  request.once("close", () => clearTimeout(timer));
  request.resume();
}

/** An answer on a connection that has no request. */
export function endRaw(socket: Duplex, fault: Fault): void {
  if (!socket.writable || socket.destroyed) {
    socket.destroy();
    return;
  }
  const answering = (socket as Duplex & { _httpMessage?: { headersSent?: boolean } })._httpMessage;
  if (answering?.headersSent === true) {
    socket.destroy();
    return;
  }
  const body = JSON.stringify(errorMessage(null, fault));
  const status = `${fault.status} Refused`;
  socket.end(
    `HTTP/1.1 ${status}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
    () => socket.destroy(),
  );
}
