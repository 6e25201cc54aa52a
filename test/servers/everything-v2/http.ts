/**
 * Owns: the SDK v2 conformance server (server.mjs) over Streamable HTTP on plain `node:http`: 2026-07-28 by `createMcpHandler`, the older
 * versions in sessions with an event store, as its authors serve it.
 * Leaves to others: its features (server.mjs).
 */
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import {
  classifyInboundRequest,
  createMcpHandler,
  hostHeaderValidationResponse,
  isInitializeRequest,
  localhostAllowedHostnames,
  WebStandardStreamableHTTPServerTransport,
  type EventStore,
  type JSONRPCMessage,
  type McpServer,
} from "@modelcontextprotocol/server";
import { createMcpServer } from "./server.mjs";

export interface EverythingV2 {
  readonly url: string;
  close(): Promise<void>;
}

export interface EverythingV2Options {
  /** What it serves. Default: both. */
  readonly eras?: "both" | "modern" | "legacy";
}

function eventStore(): EventStore {
  const events: { readonly id: string; readonly stream: string; readonly message: JSONRPCMessage }[] = [];
  return {
    storeEvent(stream, message) {
      const id = `${stream}::${events.length + 1}`;
      events.push({ id, stream, message });
      return Promise.resolve(id);
    },
    async replayEventsAfter(id, { send }) {
      const at = events.findIndex((event) => event.id === id);
      const stream = events[at]?.stream ?? id;
      for (const event of events.slice(at + 1))
        if (event.stream === stream && "jsonrpc" in event.message) await send(event.id, event.message);
      return stream;
    },
  };
}

export async function startEverythingV2({ eras = "both" }: EverythingV2Options = {}): Promise<EverythingV2> {
  const modern = createMcpHandler(() => create(), { legacy: "reject" });
  const create = (): McpServer => createMcpServer(modern.notify, sessions);
  const sessions = new Map<string, WebStandardStreamableHTTPServerTransport>();

  async function session(request: Request, body: unknown): Promise<Response> {
    const id = request.headers.get("mcp-session-id");
    const known = id === null ? undefined : sessions.get(id);
    if (known !== undefined) return known.handleRequest(request, body === undefined ? {} : { parsedBody: body });
    if (id !== null) return refusal(404, -32001, "Session not found");
    if (!isInitializeRequest(body)) return refusal(400, -32000, "Bad Request: Session ID required");
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      eventStore: eventStore(),
      retryInterval: 5000,
      onsessioninitialized: (fresh) => void sessions.set(fresh, transport),
      onsessionclosed: (ended) => void sessions.delete(ended),
    });
    await create().connect(transport);
    return transport.handleRequest(request, { parsedBody: body });
  }

  async function answer(request: Request, body: unknown): Promise<Response> {
    const strange = hostHeaderValidationResponse(request, localhostAllowedHostnames());
    if (strange !== undefined) return strange;
    if (request.method !== "POST")
      return eras === "modern" ? refusal(405, -32000, "Method not allowed") : session(request, undefined);
    const version = request.headers.get("mcp-protocol-version");
    const method = request.headers.get("mcp-method");
    const inbound = classifyInboundRequest({
      httpMethod: "POST",
      ...(version === null ? {} : { protocolVersionHeader: version }),
      ...(method === null ? {} : { mcpMethodHeader: method }),
      body,
    });
    const toModern = eras === "modern" || (eras === "both" && inbound.kind !== "legacy");
    return toModern ? modern.fetch(request, { parsedBody: body }) : session(request, body);
  }

  const http = createServer((incoming, response) => {
    response.on("error", () => {});
    serve(incoming, response, answer).catch((error: unknown) => response.destroy(error as Error));
  });
  http.on("connection", (socket) => socket.on("error", () => {}));
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
    async close() {
      await modern.close();
      for (const transport of [...sessions.values()]) await transport.close();
      const closed = once(http, "close");
      http.close();
      http.closeAllConnections();
      await closed;
    },
  };
}

async function serve(
  incoming: IncomingMessage,
  response: ServerResponse,
  answer: (request: Request, body: unknown) => Promise<Response>,
): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString("utf8");
  const gone = new AbortController();
  response.once("close", () => gone.abort());
  const method = incoming.method ?? "GET";
  const request = new Request(new URL(incoming.url ?? "/", `http://${incoming.headers.host ?? "localhost"}`), {
    method,
    headers: Object.entries(incoming.headers).map(([name, value]): [string, string] => [name, String(value)]),
    signal: gone.signal,
    ...(text === "" ? {} : { body: text }),
  });
  let body: unknown;
  try {
    body = text === "" ? undefined : JSON.parse(text);
  } catch {
    respond(response, refusal(400, -32700, "Parse error"));
    return;
  }
  respond(response, await answer(request, body));

  function respond(to: ServerResponse, from: Response): void {
    if (to.destroyed) return;
    to.writeHead(from.status, Object.fromEntries(from.headers));
    to.flushHeaders();
    void pump(to, from);
  }
}

async function pump(to: ServerResponse, from: Response): Promise<void> {
  try {
    if (from.body !== null) for await (const chunk of from.body) to.write(chunk);
    to.end();
  } catch {
    to.destroy();
  }
}

function refusal(status: number, code: number, message: string): Response {
  return Response.json({ jsonrpc: "2.0", error: { code, message }, id: null }, { status });
}
