/**
 * Owns: what goes on between one hosted server and all agents that use it through its URL: calls in flight (for cancellation), the
 * server's own requests and who answers them, its notifications and who hears them, and resource subscriptions.
 * Leaves to others: the wire to the agent (the faces), the wire to the server (src/hosting), what a call means (src/replay).
 * Without session ids, an agent's answer arrives as a POST of its own and is matched by URL and request id.
 */
import { randomUUID } from "node:crypto";
import type { HostedConnection } from "../hosting/connection.ts";
import type { HostedServer, RememberedServer, ServerLogLine } from "../hosting/hosted-server.ts";
import type { Client } from "./clients.ts";
import { metaKeys, without } from "./envelope.ts";
import type { Exchange } from "./exchange.ts";
import { idKey, isObject, isRpcId, type RpcId, type RpcResponse } from "./messages.ts";
import { toServer } from "./texts.ts";

/** Where a server's request goes: the stream of the call that caused it, and who made that call. */
export interface Recipient {
  readonly exchange: Exchange;
  readonly client: Client;
}

export type AgentAnswer = RpcResponse["answer"];

/** A question of a server's that an agent has been asked, or not. */
export interface Question {
  /** Its call is over: nobody waits for the answer any more. */
  withdraw(): void;
  /** Settles once the server has its answer, whatever it is. */
  readonly answered: Promise<void>;
}

/** A request of a server's own, as it came. */
export interface ServerRequest {
  readonly id: RpcId;
  readonly method: string;
  readonly params?: unknown;
}

/** A request of an agent's that is under way. */
export interface UnderWay {
  readonly clientKey: string;
  /** Its id, where its agent can cancel it by a notification. */
  readonly id?: RpcId;
  cancel?(reason: string | undefined): void;
  /** Puts a request of the server's to the agent. */
  ask?(request: ServerRequest, connection: HostedConnection): void;
}

interface Asked {
  readonly exchange: Exchange;
  /** The server's request that this one stands for. */
  readonly origin?: { readonly connectionId: string; readonly id: RpcId; over(): void };
  settle(answer: AgentAnswer): void;
}

/** The client capability that each request of a server's needs (2025-11-25, "Client features"). */
const needs: Readonly<Record<string, string>> = {
  "sampling/createMessage": "sampling",
  "elicitation/create": "elicitation",
  "roots/list": "roots",
};

/** Notifications that concern every agent, wherever the server sent them. */
const changes: ReadonlySet<string> = new Set([
  "notifications/tools/list_changed",
  "notifications/prompts/list_changed",
  "notifications/resources/list_changed",
  "notifications/resources/updated",
]);

const maxSubscriptions = 1000;

/** The capability that a client must have declared to be asked this; undefined for a request that needs none. */
export function neededCapability(method: string): string | undefined {
  return Object.hasOwn(needs, method) ? needs[method] : undefined;
}

/** Answers a server's own request, if its connection is still there. */
export function respondTo(connection: HostedConnection | undefined, id: RpcId, answer: AgentAnswer): void {
  if (connection?.open === true) connection.respond({ jsonrpc: "2.0", id, ...answer });
}

export class ServerHub {
  readonly server: HostedServer;
  /** Whether the server is the twin of the one of its name, for agents of the older era. */
  readonly twin: boolean;
  readonly #log: (line: ServerLogLine) => void;
  readonly #underWay = new Set<UnderWay>();
  readonly #asked = new Map<string, Asked>();
  readonly #streams = new Map<Exchange, Client>();
  readonly #listeners = new Set<(message: Record<string, unknown>) => void>();
  readonly #subscriptions = new Map<string, Set<string>>();
  readonly #disposals: (() => void)[];
  #toolsConnection: string | undefined;
  #subscribedConnection: string | undefined;
  #listening: AbortController | undefined;
  #rootsRefused: HostedConnection | undefined;

  constructor(server: HostedServer, log: (line: ServerLogLine) => void, twin = false) {
    this.server = server;
    this.twin = twin;
    this.#log = log;
    this.#toolsConnection = server.connection?.connectionId;
    this.#subscribedConnection = server.connection?.connectionId;
    this.#disposals = [
      server.onMessage((message, connection) => this.#unclaimed(message, connection)),
      server.onDidChangeTools(() => this.#toolsChanged()),
      server.onDidChange(() => this.#renewSubscriptions()),
    ];
  }

  dispose(): void {
    for (const disposal of this.#disposals) disposal();
    this.#listening?.abort();
    for (const asked of [...this.#asked.values()]) asked.settle({ error: toServer.gone });
    for (const stream of [...this.#streams.keys()]) stream.end();
    this.#streams.clear();
    this.#listeners.clear();
  }

  // ── Calls in flight ──────────────────────────────────────────────────────────────────────────────

  /** Registers a request for as long as it is under way. */
  underWay(request: UnderWay): () => void {
    this.#underWay.add(request);
    return () => this.#underWay.delete(request);
  }

  /** Cancels the call of this client with this id, if exactly one is in flight. */
  cancel(client: Client, id: unknown, reason: unknown): boolean {
    if (!isRpcId(id)) return false;
    const matching = [...this.#underWay].filter(
      (one) => one.clientKey === client.key && one.id !== undefined && idKey(one.id) === idKey(id),
    );
    const [only] = matching;
    if (matching.length !== 1 || only === undefined) {
      if (matching.length > 1)
        this.#log({ level: "warning", text: `${this.server.name}: a cancellation matches several calls and was ignored` });
      return false;
    }
    only.cancel?.(typeof reason === "string" ? reason : undefined);
    return true;
  }

  // ── The server's own requests ────────────────────────────────────────────────────────────────────

  /**
   * Asks the agent something on a call's stream. `settle` is called exactly once: with the agent's answer, or with an error when it cannot
   * or will not answer.
   * @returns withdraws the question (its call is over); `settle` is then called with an error
   */
  ask(
    question: { readonly method: string; readonly params?: unknown },
    to: Recipient | undefined,
    settle: (answer: AgentAnswer) => void,
    origin?: Asked["origin"],
  ): () => void {
    const refuse = (error: AgentAnswer): (() => void) => {
      settle(error);
      return () => {};
    };
    if (to === undefined) return refuse({ error: toServer.none });
    const need = neededCapability(question.method);
    if (need !== undefined && to.client.capabilities !== undefined && !isObject(to.client.capabilities[need])) {
      return refuse({ error: toServer.unsupported });
    }
    // An agent that takes JSON only may still have a GET stream open.
    const exchange = to.exchange.canStream ? to.exchange : to.exchange.gone ? undefined : this.#streamOf(to.client.key)?.exchange;
    if (exchange === undefined) return refuse({ error: to.exchange.gone ? toServer.gone : toServer.none });
    const id = `gateway-${randomUUID()}`;
    let stop: () => void = () => {};
    const asked: Asked = {
      exchange,
      ...(origin === undefined ? {} : { origin }),
      settle: (answer) => {
        if (!this.#asked.delete(id)) return;
        stop();
        settle(answer);
      },
    };
    this.#asked.set(id, asked);
    stop = exchange.onGone(() => asked.settle({ error: toServer.gone }));
    if (
      !exchange.send({
        jsonrpc: "2.0",
        id,
        method: question.method,
        ...(question.params === undefined ? {} : { params: question.params }),
      })
    ) {
      asked.settle({ error: toServer.gone });
    }
    return () => asked.settle({ error: toServer.noInput });
  }

  /** An agent's answer to a question of ours. False when nothing of that id is open at this URL. */
  answered(response: RpcResponse): boolean {
    const asked = typeof response.id === "string" ? this.#asked.get(response.id) : undefined;
    asked?.settle(response.answer);
    return asked !== undefined;
  }

  /** Passes on a message of the server's that belongs to a call; a question when it is a request. */
  relate(message: Record<string, unknown>, to: Recipient, connection: HostedConnection | undefined): Question | undefined {
    const method = message["method"];
    if (typeof method !== "string") return undefined;
    const id = message["id"];
    if (isRpcId(id)) return this.#askFor({ ...message, method, id }, to, connection);
    if (method === "notifications/cancelled" && this.#withdrawn(message, connection)) return undefined;
    if (!this.announceRelated(message, to)) to.exchange.send({ ...message, jsonrpc: "2.0" });
    return undefined;
  }

  /**
   * A change that the server announced on a call's own stream concerns every agent.
   * @param to the agent of that call; it hears it on the call's stream when it has no standing one
   * @returns false when the message is no such change
   */
  announceRelated(message: Record<string, unknown>, to: Recipient | undefined): boolean {
    const method = message["method"];
    if (typeof method !== "string" || !changes.has(method)) return false;
    this.#announce({ ...message, jsonrpc: "2.0" });
    if (to !== undefined && this.#streamOf(to.client.key) === undefined) to.exchange.send({ ...message, jsonrpc: "2.0" });
    return true;
  }

  #askFor(request: ServerRequest, to: Recipient | undefined, connection: HostedConnection | undefined): Question {
    const answered = Promise.withResolvers<void>();
    const respond = (answer: AgentAnswer) => {
      respondTo(connection, request.id, answer);
      answered.resolve();
    };
    let withdraw = (): void => undefined;
    if (request.method === "ping") respond({ result: {} });
    else {
      const origin =
        connection === undefined
          ? undefined
          : { connectionId: connection.connectionId, id: request.id, over: () => answered.resolve() };
      withdraw = this.ask(request, to, respond, origin);
    }
    return { withdraw: () => withdraw(), answered: answered.promise };
  }

  /** The server takes a request of its own back: the agent is told, by the id that it knows. */
  #withdrawn(message: Record<string, unknown>, connection: HostedConnection | undefined): boolean {
    const params = message["params"];
    const requestId = isObject(params) ? params["requestId"] : undefined;
    if (connection === undefined || !isRpcId(requestId)) return false;
    for (const [id, asked] of this.#asked) {
      if (asked.origin?.connectionId !== connection.connectionId || idKey(asked.origin.id) !== idKey(requestId)) continue;
      this.#asked.delete(id);
      asked.origin.over();
      asked.exchange.send({ ...message, jsonrpc: "2.0", params: { ...(params as object), requestId: id } });
      return true;
    }
    return false;
  }

  // ── What belongs to no call ──────────────────────────────────────────────────────────────────────

  /** Adds an agent's GET stream; it hears what belongs to no call. */
  addStream(exchange: Exchange, client: Client): void {
    this.#streams.set(exchange, client);
    exchange.onGone(() => this.#streams.delete(exchange));
    // A server that asked for the roots while nobody was there may ask again.
    const refused = this.#rootsRefused;
    if (refused !== undefined && isObject(client.capabilities?.["roots"])) {
      this.#rootsRefused = undefined;
      if (refused.open) refused.notify("notifications/roots/list_changed");
    }
  }

  /** Hears the server's notifications that belong to no call. */
  listen(listener: (message: Record<string, unknown>) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * What a server that is not started said of itself last, for an agent that asks only that. When the server lists other tools once it is
   * started, all agents are told.
   */
  fromMemory(): RememberedServer | undefined {
    const { remembered } = this.server;
    if (remembered !== undefined) this.#toolsConnection ??= "remembered";
    return remembered;
  }

  /** Tells every agent that the tools it sees have changed. */
  announceTools(): void {
    this.#announce({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
  }

  #unclaimed(message: Record<string, unknown>, connection: HostedConnection): void {
    const method = message["method"];
    const id = message["id"];
    if (typeof method !== "string") return;
    if (isRpcId(id)) {
      this.#unclaimedRequest({ ...message, method, id }, connection);
      return;
    }
    if (method === "notifications/cancelled") {
      this.#withdrawn(message, connection);
      return;
    }
    if (method === "notifications/tools/list_changed") this.#toolsConnection = connection.connectionId;
    this.#announce({ ...message, jsonrpc: "2.0" });
  }

  /**
   * A request that names no call (on stdio none does). It goes to the one agent that has something under way; the roots, which are no call's
   * affair, and what comes while nothing is under way go to a standing stream. With several agents at work, a question that might reach the
   * wrong one is not asked.
   */
  #unclaimedRequest(request: ServerRequest, connection: HostedConnection): void {
    const stream = this.#streamOf(undefined, neededCapability(request.method));
    const atWork = [...this.#underWay].filter((one) => one.ask !== undefined);
    const agents = new Set(atWork.map((one) => one.clientKey));
    const roots = request.method === "roots/list";
    if (agents.size === 0 || (roots && stream !== undefined)) {
      if (roots && stream === undefined) this.#rootsRefused = connection;
      this.#askFor(request, stream, connection);
    } else if (agents.size === 1) {
      atWork.at(-1)?.ask?.(request, connection);
    } else {
      const text = `${this.server.name}: a question could belong to calls of several clients and was not asked`;
      this.#log({ level: "warning", text });
      respondTo(connection, request.id, { error: toServer.none });
    }
  }

  #announce(message: Record<string, unknown>): void {
    const params = message["params"];
    const meta = isObject(params) ? params["_meta"] : undefined;
    const plain =
      isObject(params) && isObject(meta) && Object.hasOwn(meta, metaKeys.subscriptionId)
        ? { ...message, params: { ...params, _meta: without(meta, [metaKeys.subscriptionId]) } }
        : message;
    for (const stream of [...this.#streams.keys()]) stream.send(plain);
    for (const listener of [...this.#listeners]) listener(plain);
  }

  /** The newest GET stream, of one client or of any, that can be asked for something. */
  #streamOf(clientKey: string | undefined, need?: string): Recipient | undefined {
    const candidates = [...this.#streams].reverse().filter(([exchange, client]) => {
      if (!exchange.canStream || (clientKey !== undefined && client.key !== clientKey)) return false;
      return need === undefined || client.capabilities === undefined || isObject(client.capabilities[need]);
    });
    const [found] = candidates;
    return found === undefined ? undefined : { exchange: found[0], client: found[1] };
  }

  /** A change that the server itself announced has gone out already; one that came with a new connection has not. */
  #toolsChanged(): void {
    const now = this.server.connection?.connectionId;
    if (now === undefined || now === this.#toolsConnection) return;
    const first = this.#toolsConnection === undefined;
    this.#toolsConnection = now;
    if (!first) this.announceTools();
  }

  // ── Resource subscriptions: one at the server for all agents ─────────────────────────────────────

  /** Whether this agent is the first for the resource, so that the server has to be told. */
  subscribe(subscriber: string, uri: string): boolean {
    const known = this.#subscriptions.get(uri);
    if (known !== undefined) {
      known.add(subscriber);
      return false;
    }
    if (this.#subscriptions.size < maxSubscriptions) this.#subscriptions.set(uri, new Set([subscriber]));
    this.#listenModern();
    return true;
  }

  /** Whether this agent was the last for the resource, so that the server has to be told. */
  unsubscribe(subscriber: string, uri: string): boolean {
    const known = this.#subscriptions.get(uri);
    if (known === undefined) return true;
    known.delete(subscriber);
    if (known.size > 0) return false;
    this.#subscriptions.delete(uri);
    this.#listenModern();
    return true;
  }

  /** A new connection knows nothing of the subscriptions of the one before. */
  #renewSubscriptions(): void {
    const connection = this.server.connection;
    if (connection === undefined || connection.connectionId === this.#subscribedConnection) return;
    this.#subscribedConnection = connection.connectionId;
    if (connection.facts.era === "2026-07-28") {
      this.#listenModern();
      return;
    }
    for (const uri of this.#subscriptions.keys()) void connection.request("resources/subscribe", { uri });
  }

  /** A 2026-07-28 server is told by one `subscriptions/listen` for all agents, asked anew when the set of resources changes. */
  #listenModern(): void {
    const connection = this.server.connection;
    this.#listening?.abort();
    this.#listening = undefined;
    if (connection?.facts.era !== "2026-07-28" || this.#subscriptions.size === 0) return;
    const controller = new AbortController();
    this.#listening = controller;
    void connection.request(
      "subscriptions/listen",
      { notifications: { resourceSubscriptions: [...this.#subscriptions.keys()] } },
      {
        signal: controller.signal,
        observer: {
          related: (message) => {
            if (message["method"] === "notifications/resources/updated") this.#announce({ ...message, jsonrpc: "2.0" });
          },
        },
      },
    );
  }
}
