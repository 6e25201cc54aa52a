/**
 * Owns: who is asking: the agents that were seen, told apart as well as a transport without sessions allows.
 * Leaves to others: what a caller's identity means for an operation (src/replay), which tokens exist (core.ts).
 */
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Caller } from "../operations/model.ts";
import { isObject } from "./messages.ts";

/** A client as a person may see it. */
export interface SeenClient {
  readonly name: string;
  readonly version?: string;
  /** The name of the token it used (TCP). */
  readonly token?: string;
  /** The hosted servers it has asked. */
  readonly servers: readonly string[];
  /** Milliseconds since the epoch. */
  readonly lastUse: number;
}

/** What the faces know of the client behind a request. */
export interface Client {
  /**
   * Equal for requests that may come from one client: same token, same self-given name, same User-Agent. What a client says of itself in
   * `initialize` or `_meta` is no part of it, since a legacy request on another connection does not say it again.
   */
  readonly key: string;
  /** It has said who it is. */
  readonly introduced?: true;
  readonly name: string;
  readonly version?: string;
  readonly token?: string;
  /** What it declared in its last `initialize`; undefined before one was seen. */
  readonly capabilities?: Readonly<Record<string, unknown>>;
  readonly servers: Set<string>;
  lastUse: number;
  /** The level of its last `logging/setLevel`, where the gateway keeps it (legacy agent, 2026-07-28 server). */
  logLevel?: unknown;
}

/** A client that the user configured through us (the stdio bridge, a copied snippet) may name itself with this header. */
export const clientHeader = "mcp-safe-replay-client";

const maxClients = 200;
const maxText = 200;

export class Clients {
  /** The latest of those that share a key. */
  readonly #byKey = new Map<string, Client>();
  /** All that were seen, told apart by what they say of themselves, too; the latest last. */
  readonly #seen = new Map<string, Client>();
  readonly #bySocket = new WeakMap<Socket, Client>();
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** The client of this request, as far as its headers and its connection tell. */
  identify(request: IncomingMessage, token: string | undefined): Client {
    const selfName = text(request.headers[clientHeader]);
    const userAgent = text(request.headers["user-agent"]);
    const key = JSON.stringify([token ?? "", selfName ?? "", userAgent ?? ""]);
    const onSocket = this.#bySocket.get(request.socket);
    const latest = this.#byKey.get(key);
    const known = onSocket?.key === key ? withCapabilitiesOf(onSocket, latest) : latest;
    if (known !== undefined) return known;
    return {
      key,
      name: selfName ?? userAgent ?? "unnamed client",
      ...(token === undefined ? {} : { token }),
      servers: new Set(),
      lastUse: 0,
    };
  }

  /** It uses this server now. */
  used(client: Client, server: string): void {
    client.lastUse = this.#now();
    client.servers.add(server);
    this.#remember(client);
  }

  /**
   * Records what an `initialize`, or a request of 2026-07-28, said of its client, for this connection and for whoever cannot be told apart
   * from it. This is its use, too.
   */
  initialized(request: IncomingMessage, before: Client, server: string, clientInfo: unknown, capabilities: unknown): Client {
    const info = isObject(clientInfo) ? clientInfo : {};
    const version = text(info["version"]);
    const own = text(info["title"]) ?? text(info["name"]);
    const named = {
      key: before.key,
      ...(own === undefined && before.introduced !== true ? {} : { introduced: true as const }),
      name: own ?? before.name,
      ...(version === undefined ? {} : { version }),
    };
    // The request that introduces a client is its first: what it asked until then is its own, unless that was another's.
    if (before.introduced !== true) this.#seen.delete(identityOf(before));
    const known = this.#seen.get(identityOf(named));
    const client: Client = {
      ...named,
      ...(before.token === undefined ? {} : { token: before.token }),
      ...(isObject(capabilities) ? { capabilities } : {}),
      servers: known?.servers ?? (before.introduced === true ? new Set() : before.servers),
      lastUse: this.#now(),
    };
    client.servers.add(server);
    this.#bySocket.set(request.socket, client);
    this.#remember(client);
    return client;
  }

  list(): readonly SeenClient[] {
    return [...this.#seen.values()]
      .map((client) => ({
        name: client.name,
        ...(client.version === undefined ? {} : { version: client.version }),
        ...(client.token === undefined ? {} : { token: client.token }),
        servers: [...client.servers],
        lastUse: client.lastUse,
      }))
      .sort((a, b) => b.lastUse - a.lastUse);
  }

  #remember(client: Client): void {
    this.#byKey.delete(client.key);
    this.#byKey.set(client.key, client);
    keepNewest(this.#byKey);
    const identity = identityOf(client);
    this.#seen.delete(identity);
    this.#seen.set(identity, client);
    keepNewest(this.#seen);
  }
}

/** What tells two clients apart for a person. */
function identityOf({ key, introduced, name, version }: Pick<Client, "key" | "introduced" | "name" | "version">): string {
  return introduced === true ? JSON.stringify([key, name, version ?? ""]) : key;
}

function keepNewest(clients: Map<string, Client>): void {
  const [oldest] = clients.keys();
  if (clients.size > maxClients && oldest !== undefined) clients.delete(oldest);
}

/**
 * Clients of one process may share its connections, so the one that initialised on this connection need not be the one that asks. What
 * either can do is taken for granted: an agent that is asked in vain says so itself, one that is never asked loses something.
 */
function withCapabilitiesOf(client: Client, other: Client | undefined): Client {
  if (other?.capabilities === undefined || other.capabilities === client.capabilities) return client;
  return { ...client, capabilities: { ...other.capabilities, ...client.capabilities } };
}

/**
 * Who asked, as it is recorded with the operation.
 * `_meta` keys: PLATFORM.md "VS Code as a client of the gateway"; `traceparent` is W3C Trace Context.
 */
export function callerOf(client: Client, params: Readonly<Record<string, unknown>> | undefined): Caller {
  const meta = params?.["_meta"];
  const field = (key: string) => (isObject(meta) ? text(meta[key]) : undefined);
  const conversationId = field("vscode.conversationId");
  const requestId = field("vscode.requestId");
  const traceparent = field("traceparent");
  return {
    client: client.name,
    ...(conversationId === undefined ? {} : { conversationId }),
    ...(requestId === undefined ? {} : { requestId }),
    ...(traceparent === undefined ? {} : { traceparent }),
  };
}

/** A short printable text, or undefined. */
export function text(value: unknown): string | undefined {
  if (typeof value !== "string") return undefined;
  const clean = value.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, "").trim();
  return clean === "" ? undefined : clean.slice(0, maxText);
}
