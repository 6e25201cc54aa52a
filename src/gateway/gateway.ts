/**
 * Owns: the gateway's door: who may use it, what it refuses before anything is read, and the address of each hosted server.
 * Leaves to others: opening the socket, pipe or port (listening.ts), reading a request (incoming.ts), MCP itself (legacy-face.ts,
 * modern-face.ts), tokens and where the socket lies (core.ts), calls (src/replay).
 */
import { createHash, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { ListedTool } from "../hosting/connection.ts";
import type { HostedServer, ServerLogLine } from "../hosting/hosted-server.ts";
import type { Calls } from "../replay/calls.ts";
import type { TrustSource } from "../trust/trust.ts";
import { Clients, type SeenClient } from "./clients.ts";
import { metaKeys, modernVersion } from "./envelope.ts";
import { refuse } from "./exchange.ts";
import { FairQueue } from "./fair-queue.ts";
import type { FaceServices } from "./forward.ts";
import { endRaw, isJson, readBody, refuseUnread, serverNameOf, type BodyLimits } from "./incoming.ts";
import { LegacyFace, type AgentRequest } from "./legacy-face.ts";
import { GatewayError, listenAt, type Listen, type TcpListen } from "./listening.ts";
import { isObject, readMessages, type ReadBody } from "./messages.ts";
import { ModernFace } from "./modern-face.ts";
import { ServerHub } from "./server-hub.ts";
import { faults, type Fault } from "./texts.ts";

export { GatewayError, type Listen, type TcpListen, type UnixListen } from "./listening.ts";

/**
 * The client capabilities that a hosted server may be told of when it is connected: the gateway carries these requests to the agent whose
 * call caused them, and answers with an error when that agent cannot. (2025-11-25, "Client features"; tasks of the client's are not carried.)
 */
export const agentCapabilities = {
  elicitation: { form: {}, url: {} },
  sampling: { tools: {}, context: {} },
  roots: { listChanged: true },
} as const;

/** A secret that lets one client in; its name is shown, the secret never. */
export interface GatewayToken {
  readonly name: string;
  readonly token: string;
}

/** The secrets that let clients in, with or without names; a function is read at each request, so that a client can be revoked. */
export type Tokens = readonly (string | GatewayToken)[] | (() => readonly (string | GatewayToken)[]);

export interface GatewayLimits extends BodyLimits {
  /** Bytes of one request's headers. */
  readonly headerBytes: number;
  /** Connections open at once. */
  readonly connections: number;
  /** tools/call requests under way at once (and as many other requests). */
  readonly concurrent: number;
  /** Requests waiting for a place beyond those. */
  readonly waiting: number;
  /** Milliseconds for the headers of a request. */
  readonly headersTimeoutMs: number;
  /** Milliseconds a request other than a tools/call may take at the server; 0: no limit. */
  readonly requestTimeoutMs: number;
}

export const defaultLimits: GatewayLimits = {
  bodyBytes: 64 * 1024 * 1024,
  allBodiesBytes: 512 * 1024 * 1024,
  headerBytes: 32 * 1024,
  connections: 2048,
  concurrent: 512,
  waiting: 4096,
  headersTimeoutMs: 10_000,
  bodyTimeoutMs: 60_000,
  requestTimeoutMs: 600_000,
};

export interface GatewayOptions {
  readonly listen: Listen;
  /** Every request needs one of these as a bearer token. A port needs them, or `noToken`; a private socket may do without. */
  readonly tokens?: Tokens;
  /** Opens a port to every local program. Only a person's explicit word can ask for this. */
  readonly noToken?: boolean;
  /** Read at each request: definitions change. */
  servers(): ReadonlyMap<string, HostedServer>;
  /** The server that a legacy agent is served by, if it can be asked something: one that speaks its era, where there is one. */
  forLegacy?(server: HostedServer): Promise<HostedServer>;
  readonly calls: Pick<Calls, "call">;
  readonly trust: TrustSource;
  /** How agents see a tool of this server's, when that differs from what the server lists; read at each tools/list. */
  shownTool?(server: string, tool: ListedTool): ListedTool;
  /** Never arguments, secrets or an upstream's transport text. */
  log(line: ServerLogLine): void;
  /** Milliseconds between keep-alive comments on a stream. */
  readonly keepAliveMs?: number;
  readonly limits?: Partial<GatewayLimits>;
  /** Milliseconds since the epoch. */
  readonly now?: () => number;
}

export interface Gateway {
  /** `http://127.0.0.1:PORT` or `unix:PATH`. */
  readonly listening: string;
  /**
   * Opens a port beside the socket, over the same servers and calls. Needs tokens.
   * @throws GatewayError when the port cannot be had
   */
  listenTcp(listen: TcpListen): Promise<TcpDoor>;
  /** A hosted server's URL on a port; on a socket or pipe the path of its URL, `/servers/NAME/mcp`. */
  urlOf(name: string): string;
  /** The clients that were seen, latest first. */
  clients(): readonly SeenClient[];
  /** To be called when `servers()` gives other servers than before: the gateway then serves messages that belong to no request. */
  serversChanged(): void;
  /** Tells agents that they see other tools now (trust was granted or withdrawn); of one server, or of all. */
  announceTools(name?: string): void;
  /**
   * Stops listening, ends the standing streams, waits for answers that are under way, then cuts the rest.
   * @param graceMs milliseconds to wait (default 2000)
   */
  close(graceMs?: number): Promise<void>;
}

/** A port beside the socket. */
export interface TcpDoor {
  /** `http://127.0.0.1:PORT` */
  readonly listening: string;
  urlOf(name: string): string;
  /** Stops listening there and cuts what is open on it. */
  close(): Promise<void>;
}

/** One place where the gateway listens. */
interface Place {
  readonly listen: Listen;
  readonly http: Server;
  readonly sockets: Set<Socket>;
  listening: string;
}

const localHosts: ReadonlySet<string> = new Set(["127.0.0.1", "localhost", "[::1]"]);

/**
 * Opens the gateway.
 * @throws GatewayError when it cannot listen: the socket belongs to a live process, its folder is not private, the port is taken
 */
export async function createGateway(options: GatewayOptions): Promise<Gateway> {
  const gateway = new GatewayServer(options);
  await gateway.listen();
  return gateway;
}

class GatewayServer implements Gateway {
  readonly #options: GatewayOptions;
  readonly #limits: GatewayLimits;
  readonly #services: FaceServices;
  readonly #legacy: LegacyFace;
  readonly #main: Place;
  readonly #doors = new Set<Place>();
  readonly #hubs = new Map<HostedServer, ServerHub>();
  /** The server that each legacy twin stands for. */
  readonly #twins = new Map<HostedServer, HostedServer>();
  readonly #clients: Clients;
  #modern: ModernFace | undefined;
  #closing: Promise<void> | undefined;
  readonly #bodies = { bytes: 0 };
  #underWay = 0;
  #idle: (() => void) | undefined;

  constructor(options: GatewayOptions) {
    this.#options = options;
    this.#limits = { ...defaultLimits, ...options.limits };
    this.#clients = new Clients(options.now ?? Date.now);
    const { concurrent, waiting } = this.#limits;
    this.#services = {
      calls: options.calls,
      trust: options.trust,
      clients: this.#clients,
      keepAliveMs: options.keepAliveMs ?? 15_000,
      requestTimeoutMs: this.#limits.requestTimeoutMs,
      callQueue: new FairQueue(concurrent, waiting),
      requestQueue: new FairQueue(concurrent, waiting),
      queueLimit: waiting,
      shownTool: (server, tool) => options.shownTool?.(server, tool) ?? tool,
      log: (line) => options.log(line),
    };
    this.#legacy = new LegacyFace(this.#services);
    this.#main = this.#place(options.listen);
  }

  get listening(): string {
    return this.#main.listening;
  }

  urlOf(name: string): string {
    const path = pathOf(name);
    return this.#main.listen.kind === "tcp" ? `${this.#main.listening}${path}` : path;
  }

  async listenTcp(listen: TcpListen): Promise<TcpDoor> {
    if (this.#options.tokens === undefined) throw new GatewayError("no-token", "A port needs at least one bearer token.");
    const place = this.#place(listen);
    place.listening = await listenAt(place.http, listen);
    this.#doors.add(place);
    return {
      listening: place.listening,
      urlOf: (name) => `${place.listening}${pathOf(name)}`,
      close: async () => {
        this.#doors.delete(place);
        await closePlace(place);
      },
    };
  }

  clients(): readonly SeenClient[] {
    return this.#clients.list();
  }

  serversChanged(): void {
    this.#dropGone();
    for (const server of this.#options.servers().values()) this.#hubOf(server);
  }

  announceTools(name?: string): void {
    for (const hub of this.#hubs.values()) if (name === undefined || hub.server.name === name) hub.announceTools();
  }

  async listen(): Promise<void> {
    const { listen } = this.#options;
    if (listen.kind === "tcp") {
      const { tokens, noToken } = this.#options;
      if (noToken !== true && (tokens === undefined || (typeof tokens !== "function" && tokens.length === 0))) {
        throw new GatewayError("no-token", "A port needs at least one bearer token, or must be opened without one explicitly.");
      }
    }
    this.#main.listening = await listenAt(this.#main.http, listen);
    this.serversChanged();
  }

  close(graceMs = 2000): Promise<void> {
    this.#closing ??= this.#close(graceMs);
    return this.#closing;
  }

  async #close(graceMs: number): Promise<void> {
    const places = [this.#main, ...this.#doors];
    const closed = Promise.all(places.map(({ http }) => new Promise<void>((resolve) => http.close(() => resolve()))));
    for (const { http } of places) http.closeIdleConnections();
    for (const hub of this.#hubs.values()) hub.dispose();
    this.#hubs.clear();
    this.#modern?.close();
    if (this.#underWay > 0 && graceMs > 0) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, graceMs);
        this.#idle = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    for (const { sockets } of places) for (const socket of sockets) socket.destroy();
    await closed;
  }

  #place(listen: Listen): Place {
    const { headerBytes, headersTimeoutMs, bodyTimeoutMs, connections } = this.#limits;
    const server = createServer(
      {
        maxHeaderSize: headerBytes,
        headersTimeout: headersTimeoutMs,
        // A net under the gateway's own body clock, which gives the clearer answer.
        requestTimeout: headersTimeoutMs + bodyTimeoutMs * 2,
        connectionsCheckingInterval: Math.min(1000, Math.max(50, headersTimeoutMs / 4)),
        // An agent's pooled connection must not close under its next request.
        keepAliveTimeout: 600_000,
        keepAlive: true,
      },
      (request, response) => {
        this.#underWay += 1;
        response.on("close", () => {
          this.#underWay -= 1;
          if (this.#underWay === 0) this.#idle?.();
        });
        this.#handle(request, response, place).catch(() => {
          this.#options.log({ level: "error", text: "a request could not be handled" });
          if (response.headersSent) response.destroy();
          else refuse(response, { ...faults.internal(), status: 500 });
        });
      },
    );
    server.timeout = 0;
    server.on("connection", (socket) => {
      place.sockets.add(socket);
      socket.on("close", () => place.sockets.delete(socket));
      if (place.sockets.size > connections) endRaw(socket, faults.connections(connections));
    });
    server.on("clientError", (error: NodeJS.ErrnoException, socket: Duplex) => {
      const fault =
        error.code === "HPE_HEADER_OVERFLOW"
          ? faults.headersTooLarge()
          : error.code === "ERR_HTTP_REQUEST_TIMEOUT"
            ? faults.requestTimeout()
            : faults.http();
      endRaw(socket, fault);
    });
    server.on("error", () => this.#options.log({ level: "error", text: "the gateway's socket failed" }));
    const place: Place = { listen, http: server, sockets: new Set(), listening: "" };
    return place;
  }

  async #handle(request: IncomingMessage, response: ServerResponse, place: Place): Promise<void> {
    // Errors of the socket are seen as 'close'.
    request.on("error", () => {});
    response.on("error", () => {});
    if (this.#closing !== undefined) {
      refuse(response, faults.closing(), null, { connection: "close" });
      return;
    }
    const entry = this.#mayEnter(request, place);
    if ("fault" in entry) {
      const challenge: Record<string, string> = entry.fault.reason === "token" ? { "www-authenticate": "Bearer" } : {};
      refuseUnread(request, response, entry.fault, challenge);
      return;
    }
    const name = serverNameOf(request.url ?? "");
    if (name === undefined) {
      refuseUnread(request, response, faults.path());
      return;
    }
    const server = this.#options.servers().get(name);
    if (server === undefined) {
      refuseUnread(request, response, faults.serverUnknown(name));
      return;
    }
    const method = request.method ?? "";
    if (method !== "POST" && method !== "GET") {
      refuseUnread(request, response, faults.method(), { allow: "POST, GET" });
      return;
    }
    const client = this.#clients.identify(request, entry.token);
    const agent: AgentRequest = { request, response, hub: this.#hubOf(server), client };
    if (method === "GET") {
      this.#clients.used(client, name);
      this.#legacy.get(server.remembered === undefined ? await this.#ofItsEra(agent, client.capabilities) : agent);
      return;
    }

    if (!isJson(request)) {
      refuseUnread(request, response, faults.contentType());
      return;
    }
    const bytes = await readBody(request, this.#limits, this.#bodies);
    if (bytes === "gone") return;
    if (!(bytes instanceof Uint8Array)) {
      refuseUnread(request, response, bytes);
      return;
    }
    const body = readMessages(bytes);
    if (!body.ok) {
      refuse(response, body.fault, body.id);
      return;
    }
    if (looksModern(request, body)) {
      this.#modern ??= new ModernFace(this.#services);
      if (this.#modern.post(agent, body) === "handled") return;
    }
    const declared = capabilitiesIn(body);
    // Who initialises says who it is: the client that its headers point to may be another.
    if (declared === undefined) this.#clients.used(client, name);
    // What is answered from memory needs no server, and so no twin of it.
    if (server.remembered !== undefined && asksOnlyWhatIsRemembered(body)) {
      this.#legacy.post(agent, body);
      return;
    }
    this.#legacy.post(await this.#ofItsEra(agent, declared ?? client.capabilities), body);
  }

  /** A legacy agent that can be asked is served by the server that speaks its era, if there is one. */
  async #ofItsEra(agent: AgentRequest, capabilities: Readonly<Record<string, unknown>> | undefined): Promise<AgentRequest> {
    if (!isObject(capabilities?.["sampling"]) && !isObject(capabilities?.["elicitation"])) return agent;
    const { server } = agent.hub;
    const twin = await this.#options.forLegacy?.(server);
    if (twin === undefined || twin === server) return agent;
    this.#twins.set(twin, server);
    return { ...agent, hub: this.#hubOf(twin) };
  }

  #hubOf(server: HostedServer): ServerHub {
    const known = this.#hubs.get(server);
    if (known !== undefined) return known;
    this.#dropGone(); // a server that was not there before: others may have left
    const hub = new ServerHub(server, (line) => this.#options.log(line), this.#twins.has(server));
    this.#hubs.set(server, hub);
    return hub;
  }

  #dropGone(): void {
    const now = new Set(this.#options.servers().values());
    for (const [server, hub] of [...this.#hubs]) {
      if (now.has(this.#twins.get(server) ?? server)) continue;
      hub.dispose();
      this.#hubs.delete(server);
      this.#twins.delete(server);
    }
  }

  /** Token, Host and Origin. A socket in a private folder and a pipe are not reachable by web pages. */
  #mayEnter(request: IncomingMessage, { listen, listening }: Place): { token: string | undefined } | { fault: Fault } {
    const { tokens } = this.#options;
    if (listen.kind === "tcp") {
      if (!localHosts.has(hostnameOf(request.headers.host))) return { fault: faults.host() };
      const { origin } = request.headers;
      if (origin !== undefined && !isOwnOrigin(origin, listening) && listen.allowedOrigins?.includes(origin) !== true) {
        return { fault: faults.origin() };
      }
    }
    if (tokens === undefined) return { token: undefined };
    const known = (typeof tokens === "function" ? tokens() : tokens).map((one) =>
      typeof one === "string" ? { name: "", token: one } : one,
    );
    const name = matchingToken(request.headers.authorization, known);
    return name === undefined ? { fault: faults.token() } : { token: name === "" ? undefined : name };
  }
}

function isOwnOrigin(origin: string, listening: string): boolean {
  const { port } = new URL(listening);
  return [...localHosts].some((host) => origin === `http://${host}:${port}`);
}

function pathOf(name: string): string {
  return `/servers/${encodeURIComponent(name)}/mcp`;
}

async function closePlace({ http, sockets }: Place): Promise<void> {
  const closed = new Promise<void>((resolve) => http.close(() => resolve()));
  for (const socket of sockets) socket.destroy();
  await closed;
}

/** Whether the request may be of the 2026-07-28 era; the modern face decides for good. A legacy request never loads it. */
function looksModern(request: IncomingMessage, body: ReadBody): boolean {
  const header = request.headers["mcp-protocol-version"];
  if (typeof header === "string" && /^\s*\d{4}-\d{2}-\d{2}\s*$/.test(header) && header.trim() >= modernVersion) return true;
  return body.messages.some((message) => {
    const meta = message.kind === "response" ? undefined : message.params?.["_meta"];
    return isObject(meta) && Object.hasOwn(meta, metaKeys.protocolVersion);
  });
}

/** What an `initialize` in this body declares. */
function capabilitiesIn(body: ReadBody): Record<string, unknown> | undefined {
  for (const message of body.messages) {
    if (message.kind !== "request" || message.method !== "initialize") continue;
    const capabilities = message.params?.["capabilities"];
    return isObject(capabilities) ? capabilities : {};
  }
  return undefined;
}

/** Whether a server that is not started need not be started for this. */
function asksOnlyWhatIsRemembered(body: ReadBody): boolean {
  return body.messages.every(
    (message) =>
      message.kind !== "request" ||
      message.method === "initialize" ||
      message.method === "ping" ||
      message.method === "tools/list",
  );
}

function hostnameOf(host: string | undefined): string {
  return (host ?? "").replace(/:\d{1,5}$/, "").toLowerCase();
}

/** The name of the token that was sent. Every known token is compared, in constant time. */
function matchingToken(header: string | undefined, tokens: readonly GatewayToken[]): string | undefined {
  const sent = /^Bearer +([\x21-\x7e]+)$/i.exec(header ?? "")?.[1];
  if (sent === undefined) return undefined;
  const digest = sha256(sent);
  let found: string | undefined;
  for (const { name, token } of tokens) if (timingSafeEqual(sha256(token), digest) && token !== "") found = name;
  return found;
}

function sha256(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
