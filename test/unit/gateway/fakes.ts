/**
 * Owns: fakes of what stands behind the gateway (hosted server, its connection, the calls, trust), ruled by the test, and small helpers to
 * speak to the gateway over a real socket.
 * Leaves to others: everything real.
 */
import { createHash } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type {
  CallObserver,
  HostedConnection,
  ListedTool,
  PreparedCall,
  RequestOptions,
  ServerFacts,
} from "../../../src/hosting/connection.ts";
import type { Ending, JsonRpcAnswer, Loss } from "../../../src/hosting/evidence.ts";
import type { HostedServer, RememberedServer, ServerLogLine, ServerStatus } from "../../../src/hosting/hosted-server.ts";
import type { CallAnswer, CallHooks, CallRequest, Calls } from "../../../src/replay/calls.ts";
import type { TrustSource } from "../../../src/trust/trust.ts";
import { createGateway, type Gateway, type GatewayOptions } from "../../../src/gateway/gateway.ts";

type Fields = Record<string, unknown>;

/** A promise with its handles. */
export function deferred<T>(): { promise: Promise<T>; resolve: (value: T) => void; reject: (error: unknown) => void } {
  return Promise.withResolvers<T>();
}

/** Things that happen one after the other; a reader waits for the next. */
export class Queue<T> {
  readonly #items: T[] = [];
  readonly #readers: ((item: T) => void)[] = [];

  push(item: T): void {
    const reader = this.#readers.shift();
    if (reader === undefined) this.#items.push(item);
    else reader(item);
  }

  next(): Promise<T> {
    const item = this.#items.shift();
    return item === undefined ? new Promise((resolve) => this.#readers.push(resolve)) : Promise.resolve(item);
  }

  get size(): number {
    return this.#items.length;
  }
}

/** One passed-on request as the fake connection saw it; the test ends it. */
export interface SeenRequest {
  readonly method: string;
  readonly params: Fields | undefined;
  readonly options: RequestOptions | undefined;
  end(ending: Ending): void;
  result(result: Fields): void;
  error(error: { code: number; message: string; data?: unknown }): void;
  lose(loss: Partial<Loss>): void;
}

export const legacyFacts: ServerFacts = {
  era: "2025-11-25",
  protocolVersion: "2025-11-25",
  transport: "stdio",
  serverInfo: { name: "fake", version: "1.2.3", title: "Fake", vendorField: [1] },
  capabilities: {
    tools: { listChanged: true },
    resources: { subscribe: true },
    prompts: {},
    logging: {},
    experimental: { x: { y: 1 } },
  },
  instructions: "Be kind.",
};

export const modernFacts: ServerFacts = {
  era: "2026-07-28",
  protocolVersion: "2026-07-28",
  transport: "http",
  serverInfo: { name: "fake-modern", version: "2.0.0" },
  capabilities: { tools: { listChanged: true }, resources: { subscribe: true, listChanged: true }, extensions: { "x/y": {} } },
  instructions: "Modern.",
};

let connections = 0;

export class FakeConnection implements HostedConnection {
  readonly connectionId = `connection-${(connections += 1)}`;
  readonly facts: ServerFacts;
  open = true;
  readonly closed = new Promise<Loss>(() => {});
  readonly requests = new Queue<SeenRequest>();
  readonly notifications = new Queue<{ method: string; params: Fields | undefined }>();
  readonly responses = new Queue<JsonRpcAnswer>();
  requestCount = 0;
  /** Answers a request without the test's help; undefined leaves it to the test. */
  automatic: (method: string, params: Fields | undefined) => Fields | undefined = () => undefined;

  constructor(facts: ServerFacts) {
    this.facts = facts;
  }

  prepareCall(_params: Fields, _observer: CallObserver): PreparedCall {
    throw new Error("the gateway must make calls through Calls only");
  }

  request(method: string, params: Fields | undefined, options?: RequestOptions): Promise<Ending> {
    this.requestCount += 1;
    const automatic = this.automatic(method, params);
    if (automatic !== undefined)
      return Promise.resolve({ kind: "answer", answer: { jsonrpc: "2.0", id: "u", result: automatic } });
    const { promise, resolve } = deferred<Ending>();
    options?.signal?.addEventListener("abort", () => resolve({ kind: "loss", loss: { kind: "cancelled-here", stage: "sent" } }), {
      once: true,
    });
    this.requests.push({
      method,
      params,
      options,
      end: resolve,
      result: (result) => resolve({ kind: "answer", answer: { jsonrpc: "2.0", id: "u", result } }),
      error: (error) => resolve({ kind: "answer", answer: { jsonrpc: "2.0", id: "u", error } }),
      lose: (loss) => resolve({ kind: "loss", loss: { kind: "reset", stage: "sent", ...loss } }),
    });
    return promise;
  }

  notify(method: string, params?: Fields): void {
    this.notifications.push({ method, params });
  }

  listTools(): Promise<readonly ListedTool[]> {
    return Promise.resolve([]);
  }

  resume(): Promise<Ending> {
    throw new Error("not the gateway's affair");
  }

  pollTask(): Promise<Ending> {
    throw new Error("not the gateway's affair");
  }

  onMessage(): () => void {
    return () => {};
  }

  respond(answer: JsonRpcAnswer): void {
    this.responses.push(answer);
  }

  close(): Promise<void> {
    this.open = false;
    return Promise.resolve();
  }
}

export class FakeServer implements HostedServer {
  readonly name: string;
  readonly definition = { type: "stdio", command: "fake", args: [], env: {} } as const;
  readonly fingerprint: string;
  status: ServerStatus = { state: "stopped", since: 0 };
  tools: readonly ListedTool[] = [];
  connection: FakeConnection | undefined;
  facts: ServerFacts;
  connects = 0;
  /** What the next connect() does. */
  connecting: () => Promise<FakeConnection>;
  readonly #messages = new Set<(message: Fields, connection: HostedConnection) => void>();
  readonly #changes = new Set<() => void>();
  readonly #toolChanges = new Set<() => void>();

  constructor(name: string, facts: ServerFacts = legacyFacts) {
    this.name = name;
    this.facts = facts;
    this.fingerprint = createHash("sha256").update(name).digest("hex");
    this.connecting = () => Promise.resolve(new FakeConnection(this.facts));
  }

  async connect(): Promise<HostedConnection> {
    if (this.connection?.open === true) return this.connection;
    this.connects += 1;
    this.connection = await this.connecting();
    for (const listener of this.#changes) listener();
    return this.connection;
  }

  /** Connects and gives the fake itself. */
  async live(): Promise<FakeConnection> {
    await this.connect();
    if (this.connection === undefined) throw new Error("not connected");
    return this.connection;
  }

  rediscover(): Promise<HostedConnection> {
    throw new Error("not the gateway's affair");
  }
  remembered: RememberedServer | undefined = undefined;
  readonly health = { reconnects: { total: 0, lastHour: 0 }, probes: 0, history: [] };
  start(): Promise<void> {
    return Promise.resolve();
  }
  reconnect(): Promise<void> {
    return Promise.resolve();
  }
  stop(): Promise<void> {
    return Promise.resolve();
  }
  restart(): Promise<void> {
    return Promise.resolve();
  }
  dispose(): Promise<void> {
    return Promise.resolve();
  }
  onDidChange(listener: () => void): () => void {
    this.#changes.add(listener);
    return () => this.#changes.delete(listener);
  }
  onDidChangeTools(listener: () => void): () => void {
    this.#toolChanges.add(listener);
    return () => this.#toolChanges.delete(listener);
  }
  onLog(): () => void {
    return () => {};
  }
  onMessage(listener: (message: Fields, connection: HostedConnection) => void): () => void {
    this.#messages.add(listener);
    return () => this.#messages.delete(listener);
  }

  /** The server says something that belongs to no call. */
  says(message: Fields): void {
    if (this.connection === undefined) throw new Error("not connected");
    for (const listener of this.#messages) listener(message, this.connection);
  }

  toolsChanged(): void {
    for (const listener of this.#toolChanges) listener();
  }
}

/** One call as the fake call manager saw it; the test answers it. */
export interface SeenCall {
  readonly request: CallRequest;
  readonly hooks: CallHooks;
  /** What the server says on the call's stream; for a question the promise settles when it has been answered. */
  says(message: Fields): Promise<void>;
  /** How often the gateway said that the answer was delivered. */
  readonly delivered: { count: number; first: Promise<void> };
  result(result: Fields): void;
  error(error: { code: number; message: string; data?: unknown }): void;
}

export class FakeCalls implements Pick<Calls, "call"> {
  readonly seen = new Queue<SeenCall>();
  count = 0;
  /** Answers without the test's help; undefined leaves it to the test. */
  automatic: (request: CallRequest) => Fields | undefined = () => undefined;

  call(request: CallRequest, hooks: CallHooks): Promise<CallAnswer> {
    this.count += 1;
    const id = `operation-${this.count}`;
    const { promise, resolve } = deferred<CallAnswer>();
    const first = deferred<void>();
    const delivered = { count: 0, first: first.promise };
    const common = {
      operationId: id,
      delivered: () => {
        delivered.count += 1;
        first.resolve();
      },
    };
    const automatic = this.automatic(request);
    if (automatic !== undefined) return Promise.resolve({ kind: "result", result: automatic, ...common });
    this.seen.push({
      request,
      hooks,
      says: async (message) => hooks.related?.(message),
      delivered,
      result: (result) => resolve({ kind: "result", result, ...common }),
      error: (error) => resolve({ kind: "error", error, ...common }),
    });
    return promise;
  }
}

/** Trust that the test switches. */
export class FakeTrust implements TrustSource {
  workspace = true;
  readonly servers = new Map<string, string>();

  workspaceTrusted(): boolean {
    return this.workspace;
  }
  serverTrustSetting(server: string): boolean {
    return this.servers.has(server);
  }
  consentFingerprint(server: string): string | undefined {
    return this.servers.get(server);
  }
  trust(server: HostedServer): void {
    this.servers.set(server.name, server.fingerprint);
  }
}

export interface Stage {
  readonly gateway: Gateway;
  readonly server: FakeServer;
  readonly servers: Map<string, FakeServer>;
  readonly calls: FakeCalls;
  readonly trust: FakeTrust;
  readonly log: ServerLogLine[];
  readonly socketPath: string;
  close(): Promise<void>;
}

/** A gateway on a socket (default) or a free port, with one fake server `one`. */
export async function stage(options: Partial<GatewayOptions> & { tcp?: boolean; facts?: ServerFacts } = {}): Promise<Stage> {
  const { tcp = false, facts = legacyFacts, ...rest } = options;
  const folder = await mkdtemp(join(tmpdir(), "gw-"));
  const socketPath = join(folder, "s");
  const server = new FakeServer("one", facts);
  const servers = new Map([["one", server]]);
  const calls = new FakeCalls();
  const trust = new FakeTrust();
  const log: ServerLogLine[] = [];
  const gateway = await createGateway({
    listen: tcp ? { kind: "tcp", host: "127.0.0.1", port: 0 } : { kind: "unix", path: socketPath },
    ...(tcp && rest.tokens === undefined ? { noToken: true } : {}),
    servers: () => servers,
    calls,
    trust,
    log: (line) => log.push(line),
    ...rest,
  });
  return {
    gateway,
    server,
    servers,
    calls,
    trust,
    log,
    socketPath,
    async close() {
      await gateway.close(0);
      await rm(folder, { recursive: true, force: true });
    },
  };
}

export const both = "application/json, text/event-stream";

/** A response whose events can be read one by one. */
export class Reply {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly #message: IncomingMessage;
  readonly #events = new Queue<Fields | "end">();
  readonly comments = new Queue<string>();
  readonly body: Promise<string>;

  constructor(message: IncomingMessage) {
    this.#message = message;
    this.status = message.statusCode ?? 0;
    this.headers = message.headers;
    message.setEncoding("utf8");
    const chunks: string[] = [];
    let open: string[] = [];
    const stream = message.headers["content-type"] === "text/event-stream";
    this.body = new Promise((resolve) => {
      message.on("data", (chunk: string) => {
        chunks.push(chunk);
        if (!stream) return;
        const complete = `${open.at(-1)?.at(-1) ?? ""}${chunk}`.includes("\n\n");
        open.push(chunk);
        if (!complete) return;
        const events = open.join("").split("\n\n");
        open = [events.pop() ?? ""];
        for (const event of events) {
          if (event.startsWith(":")) this.comments.push(event);
          const data = event.split("\n").filter((line) => line.startsWith("data: "));
          if (data.length > 0) this.#events.push(JSON.parse(data.map((line) => line.slice(6)).join("\n")) as Fields);
        }
      });
      const over = () => {
        resolve(chunks.join(""));
        this.#events.push("end");
      };
      message.on("end", over).on("close", over).on("error", over);
    });
  }

  /** The next event's message; "end" when the stream is over. */
  next(): Promise<Fields | "end"> {
    return this.#events.next();
  }

  /** The next event's message. */
  async message(): Promise<Fields> {
    const next = await this.next();
    if (next === "end") throw new Error("the stream ended");
    return next;
  }

  async json(): Promise<Fields> {
    return JSON.parse(await this.body) as Fields;
  }

  /** The agent stops reading, and reads again. */
  pause(): void {
    this.#message.pause();
  }
  resume(): void {
    this.#message.resume();
  }

  /** The agent leaves. */
  leave(): void {
    this.#message.destroy();
  }
}

export interface SendOptions {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Record<string, string>;
  readonly body?: string | Uint8Array;
  /** Header names that are left out. */
  readonly omit?: readonly string[];
  readonly signal?: AbortSignal;
}

/** Sends one HTTP request to the gateway, on a connection of its own; resolves with the response's head. */
export function send(stage: Stage, options: SendOptions = {}): Promise<Reply> {
  const headers: Record<string, string> = {
    "content-type": "application/json",
    accept: both,
    "user-agent": "tests",
    ...options.headers,
  };
  const kept = Object.fromEntries(Object.entries(headers).filter(([name]) => options.omit?.includes(name) !== true));
  const url = stage.gateway.listening.startsWith("http") ? new URL(stage.gateway.listening) : undefined;
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      {
        ...(url === undefined ? { socketPath: stage.socketPath } : { host: url.hostname, port: url.port }),
        method: options.method ?? "POST",
        path: options.path ?? "/servers/one/mcp",
        headers: kept,
        agent: false,
        ...(options.signal === undefined ? {} : { signal: options.signal }),
      },
      (message) => resolve(new Reply(message)),
    );
    request.on("error", reject);
    request.end(options.body);
  });
}

/** Posts one JSON-RPC message (or a batch). */
export function post(stage: Stage, message: unknown, options: SendOptions = {}): Promise<Reply> {
  return send(stage, { ...options, body: JSON.stringify(message) });
}

export function rpc(id: unknown, method: string, params?: Fields): Fields {
  return { jsonrpc: "2.0", id, method, ...(params === undefined ? {} : { params }) };
}

export const initialize = (version = "2025-11-25", capabilities: Fields = {}): Fields =>
  rpc(0, "initialize", { protocolVersion: version, capabilities, clientInfo: { name: "tester", version: "9" } });
