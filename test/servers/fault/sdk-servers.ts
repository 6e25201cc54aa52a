/**
 * Owns: real SDK servers as peers, with the fault servers' tools and ledger and a switch that loses the answer after the effect:
 * v1 Streamable HTTP (with and without event store), v1 HTTP+SSE, v2 `createMcpHandler`; v1 and v2 stdio as a child (sdk-stdio-server.ts).
 * Leaves to others: exact faults (http-fault-server.ts, stdio-fault-server.ts), tools and effects (world.ts).
 */
/* eslint-disable @typescript-eslint/no-deprecated -- the older interfaces are what these servers are for */
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { Server as V1Server } from "@modelcontextprotocol/sdk/server/index.js";
import { SSEServerTransport } from "@modelcontextprotocol/sdk/server/sse.js";
import { StreamableHTTPServerTransport, type EventStore } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import {
  CallToolRequestSchema,
  ListToolsRequestSchema,
  type JSONRPCMessage,
  type Tool as V1Tool,
} from "@modelcontextprotocol/sdk/types.js";
import { createMcpHandler, Server as V2Server, type CallToolResult, type Tool } from "@modelcontextprotocol/server";
import { Ledger, LedgerReader, type EffectEntry, type EffectFilter, type RequestEntry } from "../ledger.ts";
import { setModes, type AnswerMode } from "../demo/control.ts";
import { FaultWorld, type FaultTool, type Json, type RpcId, type ServerInfo } from "./world.ts";

/** Which answers are lost: none, the next one, or every one. */
export type Losing = "never" | "once" | "always";

/**
 * How an answer is lost: the socket reset or closed (before the headers where the SDK has not sent them). With v1's event store also
 * after an event id has reached the client, so that the answer can be fetched by `Last-Event-ID`: the SSE stream ended by the SDK
 * (`stream`), or the socket reset (`reset-after-event`).
 */
export type Cut = "reset" | "fin" | "stream" | "reset-after-event";

export interface SdkServer {
  /** The endpoint (HTTP+SSE: of the event stream). */
  readonly url: string;
  readonly ledger: Ledger;
  readonly world: FaultWorld;
  /** Loses answers of tools/call after the effect. */
  lose(losing: Losing, cut?: Cut): void;
  effects(filter?: EffectFilter): EffectEntry[];
  /** tools/call requests that arrived. */
  calls(tool?: string): RequestEntry[];
  /** Ends every session and event stream, as a restarted server would. */
  forgetSessions(): Promise<void>;
  close(): Promise<void>;
}

export interface SdkServerOptions {
  /** Directory of the ledger. */
  readonly ledger: string;
  readonly tools?: readonly FaultTool[];
  readonly serverInfo?: ServerInfo;
  readonly port?: number;
}

/** Keeps events in memory, in the order in which they were stored. */
export class MemoryEventStore implements EventStore {
  readonly #events: { readonly id: string; readonly stream: string; readonly message: JSONRPCMessage }[] = [];

  storeEvent(stream: string, message: JSONRPCMessage): Promise<string> {
    const id = `${stream}/${this.#events.length + 1}`;
    this.#events.push({ id, stream, message });
    return Promise.resolve(id);
  }

  getStreamIdForEventId(id: string): Promise<string | undefined> {
    return Promise.resolve(this.#events.find((event) => event.id === id)?.stream);
  }

  async replayEventsAfter(
    id: string,
    { send }: { send: (eventId: string, message: JSONRPCMessage) => Promise<void> },
  ): Promise<string> {
    const at = this.#events.findIndex((event) => event.id === id);
    const stream = this.#events[at]?.stream;
    if (stream === undefined) throw new Error("Unknown event");
    for (const event of this.#events.slice(at + 1)) {
      // A priming event has no message.
      if (event.stream === stream && "jsonrpc" in event.message) await send(event.id, event.message);
    }
    return stream;
  }
}

/** What every one of these servers has: the world, the switch, and the count of what was lost. */
class Peer {
  readonly world: FaultWorld;
  readonly ledger: Ledger;
  losing: Losing = "never";
  how: Cut = "reset";

  constructor(name: string, options: SdkServerOptions) {
    this.ledger = new Ledger(options.ledger, { server: name });
    this.world = new FaultWorld(this.ledger);
    if (options.tools !== undefined) this.world.tools = options.tools;
    if (options.serverInfo !== undefined) this.world.serverInfo = options.serverInfo;
  }

  /** Whether this call's answer is lost; "once" is used up. */
  takeLoss(): boolean {
    const lost = this.losing !== "never";
    if (this.losing === "once") this.losing = "never";
    return lost;
  }

  record(message: unknown, headers?: Readonly<Record<string, string>>): void {
    const { method, id, params } = (message ?? {}) as { method?: string; id?: RpcId; params?: Json };
    this.ledger.recordRequest({ method: method ?? "response", rpcId: id, params, headers });
  }
}

function knows(world: FaultWorld, name: string): boolean {
  return world.tools.some((tool) => tool.name === name);
}

/**
 * A v1 server over the world's tools.
 * @param lost called when the effect is made: loses the answer if it is to be lost, holds it back while its promise is open
 */
export function v1Server(
  world: FaultWorld,
  lost: (rpcId: RpcId, endStream: (() => void) | undefined) => void | Promise<void>,
): V1Server {
  const server = new V1Server(world.serverInfo, { capabilities: { tools: { listChanged: true } } });
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: world.tools as unknown as V1Tool[] }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
    if (!knows(world, params.name)) throw new Error(`Unknown tool: ${params.name}`);
    const result = world.execute(params.name, params.arguments ?? {}, extra.requestId);
    await lost(extra.requestId, extra.closeSSEStream);
    return result;
  });
  return server;
}

/** A v2 server over the world's tools; serves both eras. */
export function v2Server(world: FaultWorld, lost: (rpcId: RpcId) => void | Promise<void>): V2Server {
  const server = new V2Server(world.serverInfo, { capabilities: { tools: { listChanged: true } } });
  server.setRequestHandler("tools/list", () => ({ tools: world.tools as unknown as Tool[] }));
  server.setRequestHandler("tools/call", async ({ params }, context) => {
    if (!knows(world, params.name)) throw new Error(`Unknown tool: ${params.name}`);
    const result = world.execute(params.name, params.arguments ?? {}, context.mcpReq.id);
    await lost(context.mcpReq.id);
    return result as unknown as CallToolResult;
  });
  return server;
}

function cutResponse(response: ServerResponse | undefined, how: Cut): void {
  if (how !== "fin") response?.socket?.resetAndDestroy();
  else response?.socket?.destroy();
}

/** Settles when the first part of a response's body has left this process. */
function firstWrite(response: ServerResponse): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const write = response.write.bind(response) as (...parts: unknown[]) => boolean;
  response.write = (...parts: unknown[]) => {
    response.write = write;
    const more = write(...parts);
    response.socket?.write("", () => resolve());
    return more;
  };
  return promise;
}

function headersOf(request: IncomingMessage): Record<string, string> {
  return Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)]));
}

async function readBody(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString("utf8");
  try {
    return text === "" ? undefined : (JSON.parse(text) as unknown);
  } catch {
    return undefined;
  }
}

async function listen(
  handle: (request: IncomingMessage, response: ServerResponse) => Promise<void>,
  port: number,
): Promise<{ readonly origin: string; close(): Promise<void> }> {
  const http = createServer((request, response) => {
    response.on("error", () => {});
    handle(request, response).catch((error: unknown) => response.destroy(error as Error));
  });
  http.on("connection", (socket) => socket.on("error", () => {}));
  http.listen(port, "127.0.0.1");
  await once(http, "listening");
  return {
    origin: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    async close() {
      const closed = new Promise<void>((resolve) => http.close(() => resolve()));
      http.closeAllConnections();
      await closed;
    },
  };
}

function sdkServer(peer: Peer, url: string, ends: { forgetSessions(): Promise<void>; close(): Promise<void> }): SdkServer {
  return {
    url,
    ledger: peer.ledger,
    world: peer.world,
    lose(losing, cut = "reset") {
      peer.losing = losing;
      peer.how = cut;
    },
    effects: (filter) => peer.ledger.effects(filter),
    calls: (tool) => peer.ledger.calls(tool),
    forgetSessions: () => ends.forgetSessions(),
    async close() {
      await ends.forgetSessions();
      await ends.close();
    },
  };
}

export interface V1HttpOptions extends SdkServerOptions {
  /** Keep events, so that a lost answer can be fetched by `Last-Event-ID`. Default false. */
  readonly eventStore?: boolean;
  /** Answer with one JSON body instead of an SSE stream. Default false. */
  readonly json?: boolean;
  /** `retry` in the priming event (needs the event store). */
  readonly retryMs?: number;
}

/** v1 SDK, Streamable HTTP with sessions (2025-11-25 and earlier). */
export async function startV1Http(options: V1HttpOptions): Promise<SdkServer> {
  const peer = new Peer("sdk-v1-http", options);
  interface Session {
    readonly transport: StreamableHTTPServerTransport;
    readonly responses: Map<RpcId, { readonly response: ServerResponse; readonly started: Promise<void> }>;
  }
  const sessions = new Map<string, Session>();

  async function newSession(): Promise<Session> {
    const responses: Session["responses"] = new Map();
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      enableJsonResponse: options.json ?? false,
      ...(options.eventStore === true ? { eventStore: new MemoryEventStore() } : {}),
      ...(options.retryMs === undefined ? {} : { retryInterval: options.retryMs }),
      onsessioninitialized: (id) => void sessions.set(id, session),
      onsessionclosed: (id) => void sessions.delete(id),
    });
    const session = { transport, responses };
    const server = v1Server(peer.world, async (rpcId, endStream) => {
      if (!peer.takeLoss()) return;
      const waiting = responses.get(rpcId);
      if (peer.how === "reset-after-event") await waiting?.started;
      if (peer.how === "stream" && endStream !== undefined) endStream();
      else cutResponse(waiting?.response, peer.how);
    });
    // An answer that nobody can be given any more is what these servers are for.
    server.onerror = () => {};
    await server.connect(transport);
    return session;
  }

  const http = await listen(async (request, response) => {
    const body = request.method === "POST" ? await readBody(request) : undefined;
    if (request.method === "POST") peer.record(body, headersOf(request));
    else peer.record({ method: `HTTP ${request.method}` }, headersOf(request));
    const id = request.headers["mcp-session-id"];
    const session = typeof id === "string" ? sessions.get(id) : await newSession();
    if (session === undefined) {
      response.writeHead(404, { "content-type": "application/json" });
      response.end(JSON.stringify({ jsonrpc: "2.0", error: { code: -32001, message: "Session not found" }, id: null }));
      return;
    }
    const rpcId = (body as { id?: RpcId } | undefined)?.id;
    if (rpcId !== undefined) {
      session.responses.set(rpcId, { response, started: firstWrite(response) });
      response.once("close", () => session.responses.delete(rpcId));
    }
    await session.transport.handleRequest(request, response, body);
  }, options.port ?? 0);

  return sdkServer(peer, `${http.origin}/mcp`, {
    async forgetSessions() {
      const open = [...sessions.values()];
      sessions.clear();
      for (const session of open) await session.transport.close();
    },
    close: () => http.close(),
  });
}

/** v1 SDK, HTTP+SSE of 2024-11-05. A lost answer takes the session's event stream with it. */
export async function startV1Sse(options: SdkServerOptions): Promise<SdkServer> {
  const peer = new Peer("sdk-v1-sse", options);
  const sessions = new Map<string, { transport: SSEServerTransport; response: ServerResponse }>();

  const http = await listen(async (request, response) => {
    const url = new URL(request.url ?? "/", "http://localhost");
    if (request.method === "GET" && url.pathname === "/sse") {
      peer.record({ method: "HTTP GET" }, headersOf(request));
      const transport = new SSEServerTransport("/message", response);
      sessions.set(transport.sessionId, { transport, response });
      response.once("close", () => sessions.delete(transport.sessionId));
      const server = v1Server(peer.world, () => {
        if (!peer.takeLoss()) return;
        if (peer.how === "stream") response.end();
        else cutResponse(response, peer.how);
      });
      server.onerror = () => {};
      await server.connect(transport);
      return;
    }
    const session = sessions.get(url.searchParams.get("sessionId") ?? "");
    if (request.method !== "POST" || session === undefined) {
      response.writeHead(url.pathname === "/message" ? 404 : 405).end();
      return;
    }
    const body = await readBody(request);
    peer.record(body, headersOf(request));
    await session.transport.handlePostMessage(request, response, body);
  }, options.port ?? 0);

  return sdkServer(peer, `${http.origin}/sse`, {
    forgetSessions: async () => {
      for (const { transport } of [...sessions.values()]) await transport.close();
      sessions.clear();
    },
    close: () => http.close(),
  });
}

export interface V2HttpOptions extends SdkServerOptions {
  /** Form of a 2026-07-28 answer. Default `auto`: JSON, or SSE when something is sent before the answer. */
  readonly responseMode?: "auto" | "sse" | "json";
  /** 2025-11-25 requests: served without sessions (default) or refused. */
  readonly legacy?: "stateless" | "reject";
}

/** v2 SDK, `createMcpHandler` behind plain `node:http`. */
export async function startV2Http(options: V2HttpOptions): Promise<SdkServer> {
  const peer = new Peer("sdk-v2-http", options);
  const responses = new WeakMap<Request, ServerResponse>();
  const handler = createMcpHandler(
    ({ requestInfo }) => {
      const response = requestInfo === undefined ? undefined : responses.get(requestInfo);
      return v2Server(peer.world, () => {
        if (peer.takeLoss()) cutResponse(response, peer.how);
      });
    },
    { responseMode: options.responseMode ?? "auto", legacy: options.legacy ?? "stateless" },
  );

  const http = await listen(async (incoming, response) => {
    const body = incoming.method === "POST" ? await readBody(incoming) : undefined;
    if (incoming.method === "POST") peer.record(body, headersOf(incoming));
    else peer.record({ method: `HTTP ${incoming.method}` }, headersOf(incoming));
    const gone = new AbortController();
    response.once("close", () => gone.abort());
    const request = new Request(new URL(incoming.url ?? "/", "http://127.0.0.1"), {
      method: incoming.method ?? "GET",
      headers: headersOf(incoming),
      signal: gone.signal,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    responses.set(request, response);
    const answer = await handler.fetch(request, body === undefined ? {} : { parsedBody: body });
    if (response.destroyed) return;
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    response.flushHeaders();
    if (answer.body !== null) for await (const chunk of answer.body) response.write(chunk);
    response.end();
  }, options.port ?? 0);

  return sdkServer(peer, `${http.origin}/mcp`, {
    forgetSessions: () => Promise.resolve(),
    async close() {
      await handler.close();
      await http.close();
    },
  });
}

// ---- stdio ----

export interface SdkStdio {
  readonly command: string;
  readonly args: readonly string[];
  readonly ledger: LedgerReader;
  /** Loses answers of a tool after the effect: the process ends (modes of ../demo/control.ts). Works on a running process. */
  lose(tool: string, mode: AnswerMode): void;
}

/** How to start a stdio server on the v1 or v2 SDK. Only v2 knows 2026-07-28. */
export function sdkStdio(directory: string, sdk: "v1" | "v2"): SdkStdio {
  const ledger = new Ledger(directory, { server: `sdk-${sdk}-stdio` });
  return {
    command: process.execPath,
    args: [fileURLToPath(new URL("sdk-stdio-server.ts", import.meta.url)), "--dir", directory, "--sdk", sdk],
    ledger,
    lose: (tool, mode) => setModes(directory, { [tool]: mode }),
  };
}
