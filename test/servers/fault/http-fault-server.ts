/**
 * Owns: a scriptable MCP server on plain `node:http`, in the test's own process, that loses answers at exactly the place a step names, for
 * each HTTP binding; and the log of every request that reached it.
 * Leaves to others: the words of the script (steps.ts), tools, effects and answers (world.ts), the ledger on disk (../ledger.ts).
 */
import { randomUUID } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { Ledger, type EffectEntry, type EffectFilter } from "../ledger.ts";
import { bodyOf, CallStream, cut, cutHere, modernRefusal, openStream, writeEvent } from "./http-wire.ts";
import { hasEffect, Script, type BodyKind, type ResumeStep, type Step } from "./steps.ts";
import {
  FaultWorld,
  metaKeys,
  metaOf,
  type Era,
  type FaultTool,
  type Json,
  type Request,
  type RpcId,
  type ServerInfo,
} from "./world.ts";

/** The HTTP bindings. The form (JSON or SSE) is that of an answer; a step that needs a stream always gets one. */
export const httpBindings = ["http-json", "http-sse-ids", "http-sse", "modern-json", "modern-sse", "sse-2024"] as const;
/**
 * `http-json`, `http-sse-ids`, `http-sse`: 2025-11-25 with sessions, answers as JSON, SSE with or without event ids.
 * `modern-json`, `modern-sse`: 2026-07-28. `sse-2024`: HTTP+SSE of 2024-11-05.
 */
export type HttpBinding = (typeof httpBindings)[number];

export interface HttpFaultOptions {
  readonly binding: HttpBinding;
  /** Directory of the ledger. */
  readonly ledger: string;
  /** Default 0: any free port. */
  readonly port?: number;
  readonly tools?: readonly FaultTool[];
  readonly serverInfo?: ServerInfo;
  readonly instructions?: string;
  /** When set, every request needs this bearer token; others get 401 with a challenge. */
  readonly token?: string;
  /** 2025-11-25: answer GET with 405 instead of an event stream. Resuming by `Last-Event-ID` works all the same. */
  readonly withoutGetStream?: boolean;
  /** False leaves the ledger's lines to the operating system (long soaks). Default true. */
  readonly sync?: boolean;
}

/** One HTTP request as it arrived. */
export interface HttpRequest {
  /** `performance.now()` when its headers were read. */
  readonly at: number;
  readonly httpMethod: string;
  readonly path: string;
  readonly origin: "main" | "other";
  readonly headers: Readonly<Record<string, string>>;
  /** Number of the socket in this server's life, from 1. */
  readonly socket: number;
  /** 1 for the first request on its socket. */
  readonly requestOnSocket: number;
  readonly lastEventId: string | undefined;
  readonly sessionId: string | undefined;
  /** The body, when it was read and JSON. */
  message: Json | undefined;
  /** The JSON-RPC method; "response" for a client's response; `HTTP GET` and the like without a message. */
  method: string;
  rpcId: RpcId | undefined;
  /** tools/call only. */
  tool: string | undefined;
  /** The step that the script gave it. */
  step: Step | ResumeStep | undefined;
  /** True when the client ended the exchange before the server did. */
  closedByClient: boolean;
  /** `performance.now()` when this exchange (the answer or its stream) ended, for whatever reason. */
  endedAt: number | undefined;
}

export interface HttpFaultServer {
  readonly binding: HttpBinding;
  readonly era: Era;
  /** The endpoint (for `sse-2024`: of the event stream). */
  readonly url: string;
  /** The same server on another origin. */
  readonly otherUrl: string;
  readonly ledger: Ledger;
  readonly world: FaultWorld;

  /** All requests, or those with a JSON-RPC method (or `HTTP GET`, `HTTP DELETE`, `response`). */
  requests(method?: string): readonly HttpRequest[];
  /** The tools/call requests, those of one tool when it is given. */
  calls(tool?: string): readonly HttpRequest[];
  effects(filter?: EffectFilter): EffectEntry[];

  /** Appends steps: one is taken for each tools/call. */
  script(...steps: Step[]): void;
  /** Appends steps for another method; `HTTP GET` for GET requests without `Last-Event-ID`. */
  scriptFor(method: string, ...steps: Step[]): void;
  /** What happens to a tools/call when its steps are used up (default: it is answered). */
  byDefault(step: Step, method?: string): void;
  /** How many steps were not taken. */
  stepsLeft(method?: string): number;

  /** Changes the tool list; `announce` tells the clients. */
  setTools(tools: readonly FaultTool[], options?: { readonly announce?: boolean }): void;
  setServerInfo(info: ServerInfo): void;
  /** @param challenge what a request without it is answered with from now on */
  setToken(token: string | undefined, challenge?: string): void;
  /** Sends a notification on every open stream that is not a call's own. */
  notify(method: string, params?: Json): void;

  /** How many calls hang now. */
  readonly hanging: number;
  /** Lets hanging calls go on, the oldest first; all of them when no count is given. */
  release(count?: number): void;
  /** Ends every session: the next request in one gets 404. */
  forgetSessions(): void;
  /** Closes the sockets that serve no request now; settles when the server's side is closed. */
  dropIdleSockets(how?: "fin" | "reset"): Promise<void>;
  /** Cuts every socket. */
  dropAllSockets(how?: "fin" | "reset"): void;
  /** Connections are refused from now on; open ones are cut. */
  goDown(): Promise<void>;
  /** Listens again, on the same port. */
  comeUp(): Promise<void>;
  /** As another process would come up: sockets cut, sessions gone, and what is given here changed. */
  restart(changes?: { readonly tools?: readonly FaultTool[]; readonly serverInfo?: ServerInfo }): Promise<void>;

  /** Settles when the condition holds; it is looked at after everything that happens in the server. */
  until(condition: () => boolean, limitMs?: number): Promise<void>;
  /** Settles when so many calls hang. */
  untilHanging(count: number, limitMs?: number): Promise<void>;
  /** Settles when so many tools/call requests have arrived. */
  untilCalls(count: number, limitMs?: number): Promise<void>;
  close(): Promise<void>;
}

interface Session {
  readonly id: string;
  /** Streams of calls, for resuming. */
  readonly streams: Map<string, CallStream>;
  /** The open GET stream (2025-11-25) or the event stream (HTTP+SSE). */
  events: ServerResponse | undefined;
  eventsRequest: HttpRequest | undefined;
}

interface Exchange {
  readonly log: HttpRequest;
  readonly response: ServerResponse;
  readonly request: Request;
  readonly session: Session | undefined;
}

interface Hanging {
  readonly go: () => void;
}

const refusedHeaders = { "content-type": "application/json" };

/** Starts a server; it is ready when this settles. */
export async function startHttpFaultServer(options: HttpFaultOptions): Promise<HttpFaultServer> {
  const server = new FaultServer(options);
  await server.start(options.port ?? 0);
  return server;
}

class FaultServer implements HttpFaultServer {
  readonly binding: HttpBinding;
  readonly era: Era;
  readonly ledger: Ledger;
  readonly world: FaultWorld;
  readonly #log: HttpRequest[] = [];
  readonly #script = new Script();
  readonly #sessions = new Map<string, Session>();
  readonly #listeners = new Map<RpcId, ServerResponse>();
  readonly #hanging: Hanging[] = [];
  readonly #asked = new Map<RpcId, (answer: Json) => void>();
  readonly #sockets = new Map<Socket, { readonly number: number; requests: number; busy: number }>();
  readonly #changes = new EventEmitter().setMaxListeners(0);
  readonly #withoutGetStream: boolean;
  #token: string | undefined;
  #tokenChallenge: string | undefined;
  #main: Server;
  #other: Server;
  #port = 0;
  #otherPort = 0;
  #counter = 0;
  #socketCounter = 0;

  constructor(options: HttpFaultOptions) {
    this.binding = options.binding;
    this.era = options.binding.startsWith("modern") ? "2026-07-28" : "2025-11-25";
    this.ledger = new Ledger(options.ledger, { server: `fault-${options.binding}`, sync: options.sync ?? true });
    this.world = new FaultWorld(this.ledger);
    if (options.tools !== undefined) this.world.tools = options.tools;
    if (options.serverInfo !== undefined) this.world.serverInfo = options.serverInfo;
    this.world.instructions = options.instructions;
    this.#token = options.token;
    this.#withoutGetStream = options.withoutGetStream ?? false;
    this.#main = this.#newServer("main");
    this.#other = this.#newServer("other");
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}${this.binding === "sse-2024" ? "/sse" : "/mcp"}`;
  }

  get otherUrl(): string {
    return `http://127.0.0.1:${this.#otherPort}${this.binding === "sse-2024" ? "/sse" : "/mcp"}`;
  }

  async start(port: number): Promise<void> {
    this.#port = await listen(this.#main, port);
    this.#otherPort = await listen(this.#other, 0);
  }

  // ---- what tests read and say ----

  requests(method?: string): readonly HttpRequest[] {
    return method === undefined ? this.#log : this.#log.filter((request) => request.method === method);
  }

  calls(tool?: string): readonly HttpRequest[] {
    return this.requests("tools/call").filter((request) => tool === undefined || request.tool === tool);
  }

  effects(filter?: EffectFilter): EffectEntry[] {
    return this.ledger.effects(filter);
  }

  script(...steps: Step[]): void {
    this.#script.add("tools/call", steps);
  }

  scriptFor(method: string, ...steps: Step[]): void {
    this.#script.add(method, steps);
  }

  byDefault(step: Step, method = "tools/call"): void {
    this.#script.setDefault(method, step);
  }

  stepsLeft(method = "tools/call"): number {
    return this.#script.left(method);
  }

  setTools(tools: readonly FaultTool[], options: { readonly announce?: boolean } = {}): void {
    this.world.tools = tools;
    if (options.announce === true) this.notify("notifications/tools/list_changed");
  }

  setServerInfo(info: ServerInfo): void {
    this.world.serverInfo = info;
  }

  setToken(token: string | undefined, challenge?: string): void {
    this.#token = token;
    this.#tokenChallenge = challenge ?? this.#tokenChallenge;
  }

  notify(method: string, params: Json = {}): void {
    const message = { jsonrpc: "2.0", method, params };
    for (const session of this.#sessions.values()) writeEvent(session.events, message);
    for (const [id, response] of this.#listeners) {
      writeEvent(response, { ...message, params: { ...params, _meta: { ...metaOf(params), [metaKeys.subscriptionId]: id } } });
    }
  }

  get hanging(): number {
    return this.#hanging.length;
  }

  release(count = this.#hanging.length): void {
    for (const hanging of this.#hanging.splice(0, count)) hanging.go();
    this.#changed();
  }

  forgetSessions(): void {
    for (const session of this.#sessions.values()) session.events?.end();
    this.#sessions.clear();
  }

  async dropIdleSockets(how: "fin" | "reset" = "fin"): Promise<void> {
    const idle = [...this.#sockets].filter(([, use]) => use.busy === 0).map(([socket]) => socket);
    const closed = idle.map((socket) => once(socket, "close"));
    for (const socket of idle) cut(socket, how);
    await Promise.all(closed);
  }

  dropAllSockets(how: "fin" | "reset" = "reset"): void {
    for (const socket of this.#sockets.keys()) cut(socket, how);
  }

  async goDown(): Promise<void> {
    const closed = Promise.all([stop(this.#main), stop(this.#other)]);
    this.dropAllSockets("reset");
    await closed;
  }

  async comeUp(): Promise<void> {
    this.#main = this.#newServer("main");
    this.#other = this.#newServer("other");
    await listen(this.#main, this.#port);
    await listen(this.#other, this.#otherPort);
  }

  async restart(changes: { readonly tools?: readonly FaultTool[]; readonly serverInfo?: ServerInfo } = {}): Promise<void> {
    await this.goDown();
    this.#sessions.clear();
    this.#listeners.clear();
    if (changes.tools !== undefined) this.world.tools = changes.tools;
    if (changes.serverInfo !== undefined) this.world.serverInfo = changes.serverInfo;
    await this.comeUp();
  }

  async until(condition: () => boolean, limitMs = 10_000): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const check = (): void => {
      try {
        if (condition()) resolve();
      } catch (error) {
        reject(error);
      }
    };
    const limit = setTimeout(() => {
      const seen = this.#log.map((request) => request.method).join(", ");
      reject(new Error(`The fault server did not get there within ${limitMs} ms. Requests: ${seen}; hanging: ${this.hanging}`));
    }, limitMs);
    this.#changes.on("change", check);
    try {
      check();
      await promise;
    } finally {
      clearTimeout(limit);
      this.#changes.off("change", check);
    }
  }

  untilHanging(count: number, limitMs?: number): Promise<void> {
    return this.until(() => this.hanging >= count, limitMs);
  }

  untilCalls(count: number, limitMs?: number): Promise<void> {
    return this.until(() => this.calls().length >= count, limitMs);
  }

  async close(): Promise<void> {
    this.#hanging.length = 0;
    await this.goDown();
  }

  #changed(): void {
    this.#changes.emit("change");
  }

  // ---- requests ----

  #newServer(origin: "main" | "other"): Server {
    // No clock of Node's own: a connection ends when the script or the client ends it.
    const server = createServer({
      keepAliveTimeout: 0,
      requestTimeout: 0,
      headersTimeout: 0,
      connectionsCheckingInterval: 1_000_000,
    });
    server.on("connection", (socket: Socket) => {
      socket.setNoDelay(true);
      this.#socketCounter += 1;
      this.#sockets.set(socket, { number: this.#socketCounter, requests: 0, busy: 0 });
      socket.on("error", () => {});
      socket.once("close", () => {
        this.#sockets.delete(socket);
        this.#changed();
      });
    });
    server.on("request", (request: IncomingMessage, response: ServerResponse) => {
      this.#handle(request, response, origin).catch((error: unknown) => {
        if (!response.destroyed) response.destroy(error as Error);
      });
    });
    return server;
  }

  async #handle(request: IncomingMessage, response: ServerResponse, origin: "main" | "other"): Promise<void> {
    const use = this.#sockets.get(request.socket) ?? { number: 0, requests: 0, busy: 0 };
    use.requests += 1;
    use.busy += 1;
    const headers = Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)]));
    const log: HttpRequest = {
      at: performance.now(),
      httpMethod: request.method ?? "",
      path: request.url ?? "",
      origin,
      headers,
      socket: use.number,
      requestOnSocket: use.requests,
      lastEventId: headers["last-event-id"],
      sessionId: headers["mcp-session-id"],
      message: undefined,
      method: `HTTP ${request.method ?? ""}`,
      rpcId: undefined,
      tool: undefined,
      step: undefined,
      closedByClient: false,
      endedAt: undefined,
    };
    response.once("close", () => {
      use.busy -= 1;
      log.endedAt ??= performance.now();
      log.closedByClient = !response.writableEnded && !cutHere.has(request.socket);
      this.#changed();
    });
    response.on("error", () => {});
    request.on("error", () => {});
    if (request.method !== "POST") {
      this.#record(log);
      this.#withoutBody(log, request, response);
      return;
    }

    const chunks: Buffer[] = [];
    for await (const chunk of request) {
      chunks.push(chunk as Buffer);
      if (chunks.length === 1 && this.#resetEarly(log, chunks[0] ?? Buffer.alloc(0), use.requests, response)) return;
    }
    this.#parse(log, Buffer.concat(chunks).toString("utf8"));
    this.#record(log);
    if (!this.#authorised(log, response)) return;
    if (this.binding === "sse-2024") {
      this.#postOf2024(log, response);
      return;
    }
    if (this.era === "2026-07-28") {
      this.#modernPost(log, response);
      return;
    }
    this.#legacyPost(log, response);
  }

  /** Steps that act before the body is read. The method is read from the first part of the body. */
  #resetEarly(log: HttpRequest, first: Buffer, requestOnSocket: number, response: ServerResponse): boolean {
    const start = first.toString("utf8");
    if (!/"method"\s*:\s*"tools\/call"/.test(start)) return false;
    const next = this.#script.peek("tools/call");
    const early = next.do === "reset-while-reading" || (next.do === "stale-socket" && requestOnSocket > 1);
    if (!early) return false;
    log.step = this.#script.take("tools/call");
    this.#parse(log, start);
    log.method = "tools/call";
    this.#record(log);
    const tool = log.tool;
    if (hasEffect(log.step) && tool !== undefined) {
      this.world.execute(tool, (log.message?.["params"] as Json | undefined)?.["arguments"] as Json, log.rpcId ?? "");
    }
    this.#cut(response, "reset");
    return true;
  }

  #parse(log: HttpRequest, text: string): void {
    let body: unknown;
    try {
      body = JSON.parse(text);
    } catch {
      return;
    }
    if (typeof body !== "object" || body === null || Array.isArray(body)) return;
    const message = body as Json;
    log.message = message;
    const { method, id } = message;
    log.method = typeof method === "string" ? method : "response";
    if (typeof id === "string" || typeof id === "number") log.rpcId = id;
    if (log.method === "tools/call") log.tool = String((message["params"] as Json | undefined)?.["name"]);
  }

  #record(log: HttpRequest): void {
    this.ledger.recordRequest({
      method: log.method,
      rpcId: log.rpcId,
      params: log.message?.["params"] as Json | undefined,
      headers: log.headers,
    });
    this.#log.push(log);
    this.#changed();
  }

  #authorised(log: HttpRequest, response: ServerResponse): boolean {
    if (this.#token === undefined || log.headers["authorization"] === `Bearer ${this.#token}`) return true;
    this.#challenge(response, 401, this.#tokenChallenge);
    return false;
  }

  #challenge(response: ServerResponse, status: number, challenge: string | undefined): void {
    const error = status === 403 ? "insufficient_scope" : "invalid_token";
    response.writeHead(status, { ...refusedHeaders, "www-authenticate": challenge ?? `Bearer error="${error}", scope="tools"` });
    response.end(JSON.stringify({ error }));
  }

  #withoutBody(log: HttpRequest, request: IncomingMessage, response: ServerResponse): void {
    request.resume();
    if (!this.#authorised(log, response)) return;
    if (this.era === "2026-07-28") {
      response.writeHead(405, { allow: "POST" }).end();
      return;
    }
    if (this.binding === "sse-2024") {
      this.#streamOf2024(log, response);
      return;
    }
    const session = this.#sessions.get(log.sessionId ?? "");
    if (session === undefined) {
      this.#withoutSession(log, response);
      return;
    }
    if (request.method === "DELETE") {
      if (this.#failed(log, "HTTP DELETE", response)) return;
      this.#sessions.delete(session.id);
      session.events?.end();
      response.writeHead(200).end();
      return;
    }
    if (request.method !== "GET") {
      response.writeHead(405, { allow: "GET, POST, DELETE" }).end();
      return;
    }
    if (log.lastEventId !== undefined) {
      this.#resume(log, session, log.lastEventId, response);
      return;
    }
    if (this.#failed(log, "HTTP GET", response)) return;
    if (this.#withoutGetStream) {
      response.writeHead(405, { allow: "POST, DELETE" }).end();
      return;
    }
    openStream(response, { "mcp-session-id": session.id });
    this.#attachEvents(session, log, response);
  }

  #attachEvents(session: Session, log: HttpRequest, response: ServerResponse): void {
    session.events = response;
    session.eventsRequest = log;
    response.once("close", () => {
      if (session.events === response) session.events = undefined;
    });
    this.#changed();
  }

  /** A scripted step for a request that is no JSON-RPC request; true when it was dealt with. */
  #failed(log: HttpRequest, method: string, response: ServerResponse): boolean {
    const step = this.#script.take(method);
    log.step = step;
    switch (step.do) {
      case "answer":
        return false;
      case "status":
        this.#status(response, step, undefined);
        return true;
      case "unauthorised":
        this.#challenge(response, step.status ?? 401, step.challenge);
        return true;
      case "fin":
        this.#cut(response, "fin");
        return true;
      case "reset":
        this.#cut(response, "reset");
        return true;
      case "hang":
        this.#hang(() => response.destroy());
        return true;
      case "stream-end":
        openStream(response);
        response.end();
        return true;
      default:
        throw new Error(`A ${method} cannot be dealt with by the step ${step.do}`);
    }
  }

  #withoutSession(log: HttpRequest, response: ServerResponse): void {
    const [status, code, message] =
      log.sessionId === undefined
        ? ([400, -32000, "Bad Request: Mcp-Session-Id header is required"] as const)
        : ([404, -32001, "Session not found"] as const);
    this.#sendJson(response, status, { jsonrpc: "2.0", error: { code, message }, id: log.rpcId ?? null });
  }

  #legacyPost(log: HttpRequest, response: ServerResponse): void {
    const { message } = log;
    if (message === undefined) {
      this.#sendJson(response, 400, { jsonrpc: "2.0", error: { code: -32700, message: "Parse error" }, id: null });
      return;
    }
    let session = this.#sessions.get(log.sessionId ?? "");
    if (log.method === "initialize")
      session = { id: randomUUID(), streams: new Map(), events: undefined, eventsRequest: undefined };
    if (session === undefined) {
      this.#withoutSession(log, response);
      return;
    }
    if (!this.#notification(log, message, response)) return;
    if (log.method === "initialize") {
      this.#sessions.set(session.id, session);
      response.setHeader("mcp-session-id", session.id);
    }
    this.#serve({ log, response, request: requestOf(log, message), session });
  }

  /** Deals with a notification or a client's response; true when it is a request. */
  #notification(log: HttpRequest, message: Json, response: ServerResponse): boolean {
    if (log.method !== "response" && log.rpcId !== undefined) return true;
    if (log.method === "response" && log.rpcId !== undefined) {
      this.#asked.get(log.rpcId)?.(message);
      this.#asked.delete(log.rpcId);
    }
    if (!this.#failed(log, log.method, response)) response.writeHead(202).end();
    return false;
  }

  #modernPost(log: HttpRequest, response: ServerResponse): void {
    const { message } = log;
    if (message === undefined) {
      this.#sendJson(response, 400, { jsonrpc: "2.0", error: { code: -32700, message: "Parse error" }, id: null });
      return;
    }
    if (!this.#notification(log, message, response)) return;
    const request = requestOf(log, message);
    const refused = modernRefusal(log.headers, request);
    if (refused !== undefined) {
      this.#sendJson(response, 400, { jsonrpc: "2.0", id: request.id, error: refused });
      return;
    }
    if (request.method === "subscriptions/listen" && this.#script.peek(request.method).do === "answer") {
      this.#listen(request, response);
      return;
    }
    this.#serve({ log, response, request, session: undefined });
  }

  #listen(request: Request, response: ServerResponse): void {
    openStream(response);
    writeEvent(response, {
      jsonrpc: "2.0",
      method: "notifications/subscriptions/acknowledged",
      params: { notifications: request.params["notifications"] ?? {}, _meta: { [metaKeys.subscriptionId]: request.id } },
    });
    this.#listeners.set(request.id, response);
    response.once("close", () => this.#listeners.delete(request.id));
    this.#changed();
  }

  #streamOf2024(log: HttpRequest, response: ServerResponse): void {
    if (log.httpMethod !== "GET" || !log.path.startsWith("/sse")) {
      response.writeHead(405).end();
      return;
    }
    if (this.#failed(log, "HTTP GET", response)) return;
    const session: Session = { id: randomUUID(), streams: new Map(), events: undefined, eventsRequest: undefined };
    this.#sessions.set(session.id, session);
    openStream(response);
    response.write(`event: endpoint\ndata: /message?sessionId=${session.id}\n\n`);
    response.once("close", () => this.#sessions.delete(session.id));
    this.#attachEvents(session, log, response);
  }

  #postOf2024(log: HttpRequest, response: ServerResponse): void {
    const path = new URL(log.path, this.url);
    const session = this.#sessions.get(path.searchParams.get("sessionId") ?? "");
    // A POST to the event stream's own path tells a client that this is the older transport.
    if (path.pathname !== "/message") {
      response.writeHead(405, { allow: "GET" }).end();
      return;
    }
    if (session === undefined || log.message === undefined) {
      response.writeHead(session === undefined ? 404 : 400).end();
      return;
    }
    if (!this.#notification(log, log.message, response)) return;
    this.#serve({ log, response, request: requestOf(log, log.message), session });
  }

  // ---- answers, and losing them ----

  #serve(exchange: Exchange): void {
    const { log, request } = exchange;
    const taken = this.#script.take(request.method);
    // On a new socket it is an ordinary call.
    const step: Step = taken.do === "stale-socket" ? { do: "answer" } : taken;
    log.step = taken;
    const reply = this.world.reply(this.era, request, step);
    const body = "error" in reply ? { error: reply.error } : { result: reply.result };
    const message: Json = { jsonrpc: "2.0", id: request.id, ...body };
    const status = "error" in reply ? (reply.status ?? 200) : 200;
    this.#deliver(exchange, message, status, step.do === "task" ? (step.deliver ?? { do: "answer" }) : step);
    this.#changed();
  }

  #deliver(exchange: Exchange, message: Json, status: number, step: Step): void {
    const { log, response, request, session } = exchange;
    switch (step.do) {
      case "answer":
      case "tool-error":
      case "error":
      case "bad-output":
      case "input-required":
      case "task":
      case "header-mismatch":
      case "unsupported-version":
      case "stale-socket": {
        this.#answer(exchange, [message], status, step.progress);
        return;
      }
      case "answer-then-break": {
        this.#answerThenBreak(exchange, message);
        return;
      }
      case "two-answers": {
        this.#answer(exchange, [message, otherText(message)], status, step.progress);
        return;
      }
      case "unknown-id": {
        const stray = { ...message, id: `unknown-${String(request.id)}` };
        this.#answer(exchange, step.then === "end" ? [stray] : [stray, message], status, step.progress);
        return;
      }
      case "elicit": {
        this.#elicit(exchange, message, step.message ?? "Really?");
        return;
      }
      case "hang": {
        this.#hangCall(exchange, message, status, step);
        return;
      }
      case "reset":
      case "fin":
        if (step.progress !== undefined && this.#streams(exchange)) {
          const stream = this.#open(exchange);
          stream.pending = message;
          this.#progress(exchange, stream, step.progress);
        }
        this.#cutFlushed(response, step.do);
        return;
      case "headers-then-reset": {
        this.#headersThenCut(exchange, message, step.how ?? "reset");
        return;
      }
      case "truncated": {
        this.#truncate(exchange, message);
        return;
      }
      case "accepted":
        response.writeHead(202).end();
        return;
      case "stream-end": {
        this.#endStream(exchange, message, step);
        return;
      }
      case "status": {
        this.#status(response, step, message);
        return;
      }
      case "redirect": {
        const target = step.to === "other-origin" ? this.otherUrl : this.url;
        response.writeHead(step.status ?? 307, { location: new URL(log.path, target).href, "content-length": "0" }).end();
        return;
      }
      case "session-gone": {
        if (session !== undefined) this.#sessions.delete(session.id);
        const id = step.body === "json-without-id" ? null : request.id;
        const error = { jsonrpc: "2.0", error: { code: -32001, message: "Session not found" }, id };
        if (step.body === "empty") response.writeHead(404).end();
        else this.#sendJson(response, 404, error);
        return;
      }
      case "unauthorised": {
        this.#challenge(response, step.status ?? 401, step.challenge);
        return;
      }
      case "reset-while-reading": {
        this.#cut(response, "reset");
        return;
      }
      case "exit":
      case "kill":
      case "partial-line":
      case "close-stdout":
      case "close-stdin":
      case "garbage":
        throw new Error(`The step ${step.do} is for stdio`);
    }
  }

  /** Whether an answer goes out as an event rather than as a JSON body. */
  #streams({ log }: Exchange): boolean {
    if (this.binding === "sse-2024") return true;
    const streams = this.binding === "http-sse" || this.binding === "http-sse-ids" || this.binding === "modern-sse";
    return streams && log.method !== "initialize" && log.method !== "server/discover";
  }

  #answer(exchange: Exchange, messages: readonly Json[], status: number, progress: number | undefined): void {
    if (status === 200 && this.#streams(exchange)) {
      const stream = this.#open(exchange);
      this.#progress(exchange, stream, progress);
      for (const message of messages) stream.send(message);
      this.#finish(exchange);
      return;
    }
    if (this.binding === "sse-2024") {
      const stream = this.#open(exchange);
      for (const message of messages) stream.send(message);
      return;
    }
    this.#sendJson(exchange.response, status, messages.length === 1 ? messages[0] : messages);
  }

  /** Opens the stream on which a call's messages go out (HTTP+SSE: the POST is accepted, they go on the session's events). */
  #open(
    exchange: Exchange,
    options: { readonly prime?: boolean; readonly retryMs?: number | undefined; readonly ids?: boolean | undefined } = {},
  ): CallStream {
    const { response, session } = exchange;
    const { prime = true, retryMs, ids = this.binding === "http-sse-ids" } = options;
    this.#counter += 1;
    const stream = new CallStream(`s${this.#counter}`, ids);
    session?.streams.set(stream.id, stream);
    if (this.binding === "sse-2024") {
      if (!response.headersSent) response.writeHead(202).end("Accepted");
      stream.response = session?.events;
      return stream;
    }
    stream.response = response;
    openStream(response, session === undefined ? {} : { "mcp-session-id": session.id });
    if (stream.withIds && prime) stream.prime(retryMs);
    else if (retryMs !== undefined) stream.announceRetry(retryMs);
    return stream;
  }

  #finish({ response }: Exchange): void {
    if (this.binding !== "sse-2024") response.end();
  }

  #progress({ request }: Exchange, stream: CallStream, count = 0): void {
    const { progressToken } = metaOf(request.params);
    for (let progress = 1; progress <= count; progress += 1) {
      stream.send(
        progressToken === undefined
          ? { jsonrpc: "2.0", method: "notifications/message", params: { level: "info", data: `step ${progress}` } }
          : { jsonrpc: "2.0", method: "notifications/progress", params: { progressToken, progress, total: count } },
      );
    }
  }

  #hang(go: () => void): void {
    this.#hanging.push({ go });
    this.#changed();
  }

  #hangCall(exchange: Exchange, message: Json, status: number, step: Step & { readonly do: "hang" }): void {
    const { response, session } = exchange;
    if (step.late === "get-stream") {
      response.writeHead(202).end();
      this.#hang(() => writeEvent(session?.events, message));
      return;
    }
    if (step.then !== undefined) {
      const { then } = step;
      this.#hang(() => this.#deliver(exchange, message, status, then));
      return;
    }
    if (!this.#streams(exchange)) {
      this.#hang(() => this.#sendJson(response, status, message));
      return;
    }
    const stream = this.#open(exchange);
    this.#progress(exchange, stream, step.progress);
    // Whoever reads the stream by then: the call's own response, or a GET that resumed it.
    this.#hang(() => {
      stream.send(message);
      if (this.binding !== "sse-2024") stream.response?.end();
    });
  }

  #elicit(exchange: Exchange, message: Json, question: string): void {
    const stream = this.#open(exchange);
    const id = `elicit-${this.#counter}`;
    this.#asked.set(id, (answered) => {
      const facts = { ...((message["result"] as Json | undefined) ?? {}) };
      stream.send({ ...message, result: { ...facts, _meta: { elicited: answered["result"] ?? answered["error"] } } });
      this.#finish(exchange);
    });
    stream.send({
      jsonrpc: "2.0",
      id,
      method: "elicitation/create",
      params: {
        mode: "form",
        message: question,
        requestedSchema: { type: "object", properties: { yes: { type: "boolean" } }, required: ["yes"] },
      },
    });
  }

  #headersThenCut(exchange: Exchange, message: Json, how: "reset" | "fin"): void {
    const { response } = exchange;
    if (this.binding === "sse-2024") {
      response.writeHead(202, { "content-length": "8" });
      response.flushHeaders();
    } else if (this.#streams(exchange)) {
      openStream(response);
    } else {
      response.writeHead(200, {
        "content-type": "application/json",
        "content-length": Buffer.byteLength(JSON.stringify(message)),
      });
      response.flushHeaders();
    }
    this.#cutFlushed(response, how);
  }

  #answerThenBreak(exchange: Exchange, message: Json): void {
    const { response } = exchange;
    if (this.#streams(exchange)) {
      const stream = this.#open(exchange);
      stream.send(message);
      if (stream.response !== undefined) this.#cutFlushed(stream.response, "reset");
      return;
    }
    const text = JSON.stringify(message);
    response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(text) + 100 });
    response.write(text);
    this.#cutFlushed(response, "reset");
  }

  #truncate(exchange: Exchange, message: Json): void {
    const { response, session } = exchange;
    const text = JSON.stringify(message);
    const half = text.slice(0, Math.floor(text.length / 2));
    if (this.#streams(exchange)) {
      const stream = this.#open(exchange);
      stream.pending = message;
      const reader = stream.response;
      reader?.write(`event: message\ndata: ${half}`);
      if (reader !== undefined) this.#cutFlushed(reader, "fin");
      if (session !== undefined && this.binding === "sse-2024") this.#sessions.delete(session.id);
      return;
    }
    response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(text) });
    response.write(half);
    this.#cutFlushed(response, "fin");
  }

  #endStream(exchange: Exchange, message: Json, step: Step & { readonly do: "stream-end" }): void {
    const stream = this.#open(exchange, { prime: step.after !== "headers", retryMs: step.retryMs, ids: step.ids });
    this.#progress(exchange, stream, step.events ?? step.progress ?? 0);
    stream.pending = message;
    stream.resume = [...(step.resume ?? [])];
    this.#end(stream, step.how ?? "end");
  }

  #end(stream: CallStream, how: "end" | "reset"): void {
    const { response } = stream;
    stream.response = undefined;
    if (response === undefined) return;
    if (how === "end") response.end();
    else this.#cutFlushed(response, "reset");
  }

  #resume(log: HttpRequest, session: Session, eventId: string, response: ServerResponse): void {
    const stream = [...session.streams.values()].find((candidate) => candidate.has(eventId));
    const expired = { jsonrpc: "2.0", error: { code: -32000, message: "Invalid or expired event ID" }, id: null };
    if (stream === undefined) {
      this.#sendJson(response, 400, expired);
      return;
    }
    const step = (stream.resume.length > 1 ? stream.resume.shift() : stream.resume[0]) ?? ({ do: "answer" } as const);
    log.step = step;
    switch (step.do) {
      case "reset": {
        this.#cut(response, "reset");
        return;
      }
      case "status": {
        this.#status(response, step, undefined);
        return;
      }
      case "expired": {
        this.#sendJson(response, 400, expired);
        return;
      }
      case "answer":
      case "end":
      case "hang":
        break;
    }
    stream.response = response;
    openStream(response, { "mcp-session-id": session.id });
    stream.replayAfter(eventId);
    const finish = (): void => {
      if (stream.pending !== undefined) stream.send(stream.pending);
      stream.pending = undefined;
      response.end();
    };
    // A call that still hangs is answered on this response when it goes on.
    if (step.do === "answer" && (stream.pending !== undefined || stream.answered)) finish();
    if (step.do === "hang") this.#hang(finish);
    if (step.do === "end") {
      if (step.retryMs !== undefined) stream.announceRetry(step.retryMs);
      for (let count = 1; count <= (step.events ?? 0); count += 1) {
        stream.send({ jsonrpc: "2.0", method: "notifications/message", params: { level: "info", data: `later step ${count}` } });
      }
      this.#end(stream, step.how ?? "end");
    }
    this.#changed();
  }

  #status(
    response: ServerResponse,
    step: {
      readonly status: number;
      readonly body?: BodyKind;
      readonly retryAfter?: string | number;
      readonly headers?: Readonly<Record<string, string>>;
    },
    message: Json | undefined,
  ): void {
    const [type, body] = bodyOf(step.body ?? "json", step.status, message);
    response.writeHead(step.status, {
      ...(type === undefined ? {} : { "content-type": type }),
      ...(step.retryAfter === undefined ? {} : { "retry-after": String(step.retryAfter) }),
      ...step.headers,
      "content-length": Buffer.byteLength(body),
    });
    response.end(body);
  }

  #sendJson(response: ServerResponse, status: number, body: unknown): void {
    const text = JSON.stringify(body);
    response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text) });
    response.end(text);
  }

  #cut(response: ServerResponse, how: "reset" | "fin"): void {
    const { socket } = response;
    if (socket !== null) cut(socket, how);
  }

  /** Cuts when what was written before has left this process. */
  #cutFlushed(response: ServerResponse, how: "reset" | "fin"): void {
    const { socket } = response;
    if (socket === null || !response.headersSent) {
      this.#cut(response, how);
      return;
    }
    socket.write("", () => this.#cut(response, how));
  }
}

// ---- small parts ----

function requestOf(log: HttpRequest, message: Json): Request {
  const params = message["params"];
  return {
    id: log.rpcId ?? "",
    method: log.method,
    params: typeof params === "object" && params !== null ? (params as Json) : {},
  };
}

/** The same answer with another text: what a second, contradicting answer looks like. */
function otherText(message: Json): Json {
  return { ...message, result: { content: [{ type: "text", text: "A second answer." }] } };
}

async function listen(server: Server, port: number): Promise<number> {
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

function stop(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
  });
}
