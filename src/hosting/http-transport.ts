/**
 * Owns: Streamable HTTP of both eras as a `Wire`: one POST per message, JSON or event-stream answers, and in the 2025-11-25 era the
 * session, the standalone GET stream and resuming by event id.
 * Leaves to others: sockets (http-exchange.ts), reading replies (http-reply.ts), which era it is (negotiate.ts), what a loss means.
 * Source: MCP 2025-11-25 "Transports", MCP 2026-07-28 "Streamable HTTP".
 */
import type { JSONRPCMessage, TransportSendOptions } from "@modelcontextprotocol/client";
import type { Clock } from "../clock.ts";
import { Bearer } from "./auth/bearer.ts";
import type { ServerAuthorisation } from "./auth/server-authorisation.ts";
import type { CallObserver } from "./connection.ts";
import type { Ending, EventCursor, JsonRpcAnswer, Loss } from "./evidence.ts";
import { HttpSockets, type HttpOutcome } from "./http-exchange.ts";
import { mediaType, readReply } from "./http-reply.ts";
import { messagesIn, parseJson, type JsonObject, type RpcNotification, type RpcRequest } from "./json-rpc.ts";
import type { Log } from "./log.ts";
import { isModern, mirrorHeaders } from "./modern.ts";
import { Router, type Exchange } from "./router.ts";
import { sendForClient } from "./send-for-client.ts";
import { readSse } from "./sse.ts";
import type { ExchangeOptions, Wire } from "./wire.ts";

export interface HttpTransportOptions {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly capabilities: JsonObject;
  readonly clock: Clock;
  readonly random: () => number;
  readonly log: Log;
  /** Milliseconds. */
  readonly connectTimeoutMs?: number;
  readonly authorisation?: ServerAuthorisation | undefined;
}

/** Waits between resuming an answer's stream when the server asked for none, in milliseconds. */
const resumeWaitsMs = [0, 100, 300, 900] as const;
/** The standalone stream is opened again not before the server's `retry`, and after full-jitter waits while nothing is heard on it. Milliseconds. */
const listenWaitMs = { least: 50, first: 1_000, longest: 60_000 } as const;
/** How long ending a session may take, in milliseconds. */
const deleteLimitMs = 2_000;

export class HttpTransport implements Wire {
  readonly kind = "http";
  readonly hasPerRequestStream = true;
  readonly closed: Promise<Loss>;
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: <T extends JSONRPCMessage>(message: T) => void;
  onstray: ((message: JsonObject) => boolean) | undefined;
  onsuspect: (() => void) | undefined;

  readonly #options: HttpTransportOptions;
  readonly #url: URL;
  readonly #sockets: HttpSockets;
  readonly #router: Router;
  readonly #bearer: Bearer;
  readonly #settleClosed: (loss: Loss) => void;
  #over = false;
  #sessionDead = false;
  #sessionId: string | undefined;
  #protocolVersion: string | undefined;
  #stopListening: (() => void) | undefined;
  #closing: Promise<void> | undefined;

  constructor(options: HttpTransportOptions) {
    this.#options = options;
    this.#url = new URL(options.url);
    this.#bearer = new Bearer(options.authorisation);
    this.#sockets = new HttpSockets(
      options.clock,
      options.connectTimeoutMs === undefined ? {} : { connectTimeoutMs: options.connectTimeoutMs },
    );
    const { promise, resolve } = Promise.withResolvers<Loss>();
    this.closed = promise;
    this.#settleClosed = resolve;
    this.#router = new Router({
      capabilities: options.capabilities,
      log: options.log,
      respond: (answer) => void this.post(answer),
      stray: (message) => this.onstray?.(message) ?? false,
      notification: (message) => this.onmessage?.(message as unknown as JSONRPCMessage),
    });
  }

  get open(): boolean {
    return !this.#over;
  }

  get sessionId(): string | undefined {
    return this.#sessionId;
  }

  start(): Promise<void> {
    return Promise.resolve();
  }

  setProtocolVersion(version: string): void {
    this.#protocolVersion = version;
    this.#router.modern = isModern(version);
  }

  send(message: JSONRPCMessage, options?: TransportSendOptions): Promise<void> {
    return sendForClient(this, message, options);
  }

  exchange(request: RpcRequest, observer: CallObserver, options: ExchangeOptions = {}): Exchange {
    const exchange = this.#router.begin(request.id, observer, options.callerToken);
    if (this.#over) exchange.lose("not-connected");
    // Whatever goes wrong, nobody is left waiting.
    else this.#post(request, exchange, options).catch(() => exchange.lose("reset"));
    return exchange;
  }

  async post(message: RpcNotification | JsonRpcAnswer): Promise<void> {
    if (this.#over) return;
    const modern = this.#protocolVersion !== undefined && isModern(this.#protocolVersion);
    const outcome = await this.#sockets.open({
      method: "POST",
      url: this.#url,
      headers: this.#headers({
        ...postHeaders,
        ...(modern && "method" in message ? { "mcp-method": message.method } : {}),
      }),
      body: JSON.stringify(message),
    }).outcome;
    if (outcome.kind === "lost") return this.onsuspect?.();
    await outcome.response.drain();
    if (outcome.response.status === 404 && this.#sessionId !== undefined) this.#sessionGone(404);
  }

  listen(): void {
    if (this.#over || this.#stopListening || this.#protocolVersion === undefined || isModern(this.#protocolVersion)) return;
    this.#listen(undefined, 0);
  }

  giveUp(loss: Loss): void {
    if (this.#over) return;
    this.#over = true;
    this.#stopListening?.();
    this.#settleClosed(loss);
    this.onclose?.();
  }

  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    this.giveUp({ kind: "closed-here", stage: "not-sent" });
    for (const exchange of this.#router.exchanges) exchange.abort("closed-here");
    if (this.#sessionId !== undefined && !this.#sessionDead) await this.#endSession();
    this.#sockets.close();
  }

  /** 2025-11-25, "Session Management": a server may refuse this (405), which is as good. */
  async #endSession(): Promise<void> {
    const request = this.#sockets.open({ method: "DELETE", url: this.#url, headers: this.#headers({}) });
    const stop = this.#options.clock.after(deleteLimitMs, () => request.abort());
    const outcome = await request.outcome;
    if (outcome.kind === "response") await outcome.response.drain();
    stop();
  }

  #headers(
    more: Readonly<Record<string, string>>,
    session?: { readonly id: string | undefined; readonly version: string },
  ): Record<string, string> {
    const sessionId = session ? session.id : this.#sessionId;
    const version = session ? session.version : this.#protocolVersion;
    return {
      ...Object.fromEntries(Object.entries(this.#options.headers).map(([name, value]) => [name.toLowerCase(), value])),
      ...this.#bearer.header(),
      ...(version === undefined ? {} : { "mcp-protocol-version": version }),
      ...(sessionId === undefined ? {} : { "mcp-session-id": sessionId }),
      ...more,
    };
  }

  async #post(request: RpcRequest, exchange: Exchange, options: ExchangeOptions): Promise<void> {
    const inSession = this.#sessionId !== undefined;
    let cursor: EventCursor | undefined;
    let retryMs: number | undefined;
    const ready = this.#bearer.ready();
    if (ready) await ready;
    // Given up while a token was fetched: nothing leaves.
    if (exchange.settled) return;
    const taken = this.#bearer.watch();
    const http = this.#sockets.open({
      method: "POST",
      url: this.#url,
      headers: this.#headers({ ...options.headers, ...mirrorHeaders(request), ...postHeaders }),
      body: JSON.stringify(request),
      stage: (stage) => exchange.raise(stage),
    });
    exchange.onabort = () => http.abort();
    const outcome = await http.outcome;
    if (outcome.kind === "lost") {
      if (outcome.loss === "not-json") exchange.raise("answering");
      exchange.lose(outcome.loss);
      return;
    }
    const { response } = outcome;
    if (request.method === "initialize" && response.status < 300) this.#sessionId = response.header("mcp-session-id");
    await readReply(response, exchange, {
      router: this.#router,
      clock: this.#options.clock,
      taken,
      sessionGone: inSession ? () => this.#sessionGone(404) : undefined,
      abort: () => http.abort(),
      cursor: (seen) => {
        // No event is a place to resume from in the 2026-07-28 era, whatever ids a server sends.
        if (this.#protocolVersion === undefined || isModern(this.#protocolVersion)) return;
        retryMs = seen.retryMs ?? retryMs;
        const eventId = seen.id ?? cursor?.eventId;
        if (eventId === undefined || exchange.settled) return;
        cursor = cursorOf(eventId, this.#sessionId, this.#protocolVersion, retryMs);
        exchange.observer.cursor?.(cursor);
      },
    });
  }

  #sessionGone(httpStatus: number): void {
    this.#sessionDead = true;
    this.giveUp({ kind: "session-gone", stage: "answering", httpStatus });
  }

  // The standalone stream (2025-11-25, "Listening for Messages from the Server").

  #listen(lastEventId: string | undefined, failures: number): void {
    const http = this.#sockets.open({
      method: "GET",
      url: this.#url,
      headers: this.#headers({
        accept: "text/event-stream",
        ...(lastEventId === undefined ? {} : { "last-event-id": lastEventId }),
      }),
    });
    let stopped = false;
    this.#stopListening = () => {
      stopped = true;
      http.abort();
    };
    void this.#followListening(http.outcome, lastEventId).then((end) => {
      if (stopped || this.#over || end === "refused") return;
      const next = end.heard ? 0 : failures + 1;
      const ceiling = Math.min(listenWaitMs.longest, listenWaitMs.first * 2 ** next);
      const backoff = next === 0 ? listenWaitMs.least : this.#options.random() * ceiling;
      const wait = Math.max(backoff, end.retryMs ?? listenWaitMs.first);
      this.#stopListening = this.#options.clock.after(wait, () => this.#listen(end.lastEventId, next));
    });
  }

  /** @returns "refused" when the server offers no such stream */
  async #followListening(
    outcome: Promise<HttpOutcome>,
    lastEventId: string | undefined,
  ): Promise<"refused" | { lastEventId: string | undefined; retryMs: number | undefined; heard: boolean }> {
    const end = { lastEventId, retryMs: undefined as number | undefined, heard: false };
    const result = await outcome;
    if (result.kind === "lost") return end;
    const { response } = result;
    if (response.status !== 200 || mediaType(response) !== "text/event-stream") {
      await response.drain();
      // 405 says that there is no such stream. A 404 may mean the session or just the missing stream: a request tells them apart.
      if (response.status === 404 && this.#sessionId !== undefined) this.onsuspect?.();
      return response.status >= 500 ? end : "refused";
    }
    await readSse(response.body(), {
      event: ({ type, data, id }) => {
        end.heard = true;
        end.lastEventId = id ?? end.lastEventId;
        if (type === "message" && data !== "") for (const message of messagesIn(parseJson(data))) this.#router.receive(message);
      },
      retry: (ms) => {
        end.retryMs = ms;
      },
    });
    return end;
  }

  // Resuming an answer's own stream (2025-11-25, "Resumability and Redelivery"). Only ever a GET.

  async resume(rpcId: string, from: EventCursor, observer: CallObserver, signal?: AbortSignal): Promise<Ending> {
    // The request itself is still listened to: its answer is one and the same.
    const underWay = this.#router.find(rpcId);
    if (underWay) return underWay.ending;
    const exchange = this.#router.begin(rpcId, observer);
    exchange.raise("answering");
    // Whatever a GET is answered says nothing about the call: a failed resume never carries a refusal's status.
    if (this.#over || isModern(from.protocolVersion)) exchange.lose("stream-ended");
    const onAbort = (): void => exchange.abort("cancelled-here");
    if (signal?.aborted === true) onAbort();
    signal?.addEventListener("abort", onAbort, { once: true });
    let cursor = from;
    let fruitless = 0;
    while (!exchange.settled) {
      const wait = cursor.retryMs ?? resumeWaitsMs[fruitless] ?? 0;
      if (wait > 0) await this.#wait(wait, exchange);
      if (exchange.settled) break;
      const turn = await this.#resumeOnce(cursor, exchange);
      if (turn === "refused") exchange.lose("stream-ended");
      fruitless = turn !== "refused" && turn.eventId !== cursor.eventId ? 0 : fruitless + 1;
      if (fruitless >= resumeWaitsMs.length) exchange.lose("stream-ended");
      if (turn !== "refused") cursor = turn;
    }
    signal?.removeEventListener("abort", onAbort);
    return exchange.ending;
  }

  /** One GET. @returns where to go on from, or "refused" when the server will not resume */
  async #resumeOnce(cursor: EventCursor, exchange: Exchange): Promise<EventCursor | "refused"> {
    const http = this.#sockets.open({
      method: "GET",
      url: this.#url,
      headers: this.#headers(
        { accept: "text/event-stream", "last-event-id": cursor.eventId },
        { id: cursor.sessionId, version: cursor.protocolVersion },
      ),
    });
    // Answered on whatever stream, or given up: this one is no longer needed.
    void exchange.ending.then(() => http.abort());
    const outcome = await http.outcome;
    if (outcome.kind === "lost") return cursor;
    const { response } = outcome;
    if (response.status !== 200 || mediaType(response) !== "text/event-stream") {
      await response.drain();
      return response.status >= 500 || response.status === 429 ? cursor : "refused";
    }
    let latest = cursor;
    const seen = (eventId: string, retryMs: number | undefined): void => {
      latest = cursorOf(eventId, cursor.sessionId, cursor.protocolVersion, retryMs);
      if (!exchange.settled) exchange.observer.cursor?.(latest);
    };
    await readSse(response.body(), {
      event: ({ type, data, id }) => {
        if (id !== undefined) seen(id, latest.retryMs);
        if (type === "message" && data !== "")
          for (const message of messagesIn(parseJson(data))) this.#router.receive(message, exchange);
      },
      retry: (ms) => seen(latest.eventId, ms),
    });
    return latest;
  }

  /** Waits, but not past the exchange's end. */
  #wait(ms: number, exchange: Exchange): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const stop = this.#options.clock.after(ms, resolve);
    void exchange.ending.then(() => resolve());
    return promise.finally(stop);
  }
}

const postHeaders = { "content-type": "application/json", accept: "application/json, text/event-stream" } as const;

function cursorOf(
  eventId: string,
  sessionId: string | undefined,
  protocolVersion: string,
  retryMs: number | undefined,
): EventCursor {
  return {
    eventId,
    protocolVersion,
    ...(sessionId === undefined ? {} : { sessionId }),
    ...(retryMs === undefined ? {} : { retryMs }),
  };
}
