/**
 * Owns: HTTP+SSE of 2024-11-05 as a `Wire`: one GET stream that names the endpoint and carries every answer, one POST per message.
 * Leaves to others: sockets (http-exchange.ts), reading replies (http-reply.ts), when this transport is used (negotiate.ts).
 * Source: MCP 2024-11-05 "Transports: HTTP with SSE".
 */
import type { JSONRPCMessage, TransportSendOptions } from "@modelcontextprotocol/client";
import type { Clock } from "../clock.ts";
import { Bearer } from "./auth/bearer.ts";
import type { ServerAuthorisation } from "./auth/server-authorisation.ts";
import type { CallObserver } from "./connection.ts";
import type { JsonRpcAnswer, Loss, LossKind } from "./evidence.ts";
import { LossError } from "./hosting-errors.ts";
import { HttpSockets } from "./http-exchange.ts";
import { mediaType, readReply } from "./http-reply.ts";
import { messagesIn, parseJson, type JsonObject, type RpcNotification, type RpcRequest } from "./json-rpc.ts";
import type { Log } from "./log.ts";
import { Router, type Exchange, type LossFacts } from "./router.ts";
import { sendForClient } from "./send-for-client.ts";
import { readSse } from "./sse.ts";
import type { ExchangeOptions, Wire } from "./wire.ts";

export interface SseTransportOptions {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly capabilities: JsonObject;
  readonly clock: Clock;
  readonly log: Log;
  /** Milliseconds. */
  readonly connectTimeoutMs?: number;
  readonly authorisation?: ServerAuthorisation | undefined;
  /** How long the server may take to name its endpoint, in milliseconds. */
  readonly endpointLimitMs?: number;
}

const defaultEndpointLimitMs = 10_000;

export class SseTransport implements Wire {
  readonly kind = "sse";
  readonly closed: Promise<Loss>;
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: <T extends JSONRPCMessage>(message: T) => void;
  onstray: ((message: JsonObject) => boolean) | undefined;
  onsuspect: (() => void) | undefined;

  readonly #options: SseTransportOptions;
  readonly #url: URL;
  readonly #sockets: HttpSockets;
  readonly #router: Router;
  readonly #bearer: Bearer;
  readonly #settleClosed: (loss: Loss) => void;
  #endpoint: URL | undefined;
  #protocolVersion: string | undefined;
  #over = false;
  #starting: Promise<void> | undefined;

  constructor(options: SseTransportOptions) {
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
    return this.#endpoint !== undefined && !this.#over;
  }

  start(): Promise<void> {
    return (this.#starting ??= this.#start());
  }

  setProtocolVersion(version: string): void {
    this.#protocolVersion = version;
  }

  send(message: JSONRPCMessage, options?: TransportSendOptions): Promise<void> {
    return sendForClient(this, message, options);
  }

  exchange(request: RpcRequest, observer: CallObserver, options: ExchangeOptions = {}): Exchange {
    const exchange = this.#router.begin(request.id, observer, options.callerToken);
    if (!this.open || !this.#endpoint) exchange.lose("not-connected");
    // Whatever goes wrong, nobody is left waiting.
    else this.#post(this.#endpoint, request, exchange, options).catch(() => exchange.lose("reset"));
    return exchange;
  }

  async post(message: RpcNotification | JsonRpcAnswer): Promise<void> {
    if (!this.open || !this.#endpoint) return;
    const http = this.#sockets.open({
      method: "POST",
      url: this.#endpoint,
      headers: this.#headers(postHeaders),
      body: JSON.stringify(message),
    });
    const outcome = await http.outcome;
    if (outcome.kind === "lost") return this.onsuspect?.();
    await outcome.response.drain();
  }

  giveUp(loss: Loss): void {
    if (this.#over) return;
    this.#over = true;
    this.#settleClosed(loss);
    this.onclose?.();
  }

  close(): Promise<void> {
    this.giveUp({ kind: "closed-here", stage: "not-sent" });
    for (const exchange of this.#router.exchanges) exchange.abort("closed-here");
    this.#sockets.close();
    return Promise.resolve();
  }

  #headers(more: Readonly<Record<string, string>>): Record<string, string> {
    return {
      ...Object.fromEntries(Object.entries(this.#options.headers).map(([name, value]) => [name.toLowerCase(), value])),
      ...this.#bearer.header(),
      ...(this.#protocolVersion === undefined ? {} : { "mcp-protocol-version": this.#protocolVersion }),
      ...more,
    };
  }

  /** Opens the stream and waits for its `endpoint` event. */
  async #start(): Promise<void> {
    const ready = this.#bearer.ready();
    if (ready) await ready;
    const taken = this.#bearer.watch();
    const http = this.#sockets.open({ method: "GET", url: this.#url, headers: this.#headers({ accept: "text/event-stream" }) });
    const named = Promise.withResolvers<void>();
    // The limit may fall due while the head is still awaited: that failure is heard below.
    named.promise.catch(() => undefined);
    const fail = (kind: LossKind, facts: LossFacts = {}): void => {
      const loss: Loss = { kind, stage: "not-sent", ...facts };
      named.reject(new LossError(loss));
      this.giveUp(loss);
    };
    const stop = this.#options.clock.after(this.#options.endpointLimitMs ?? defaultEndpointLimitMs, () => {
      fail("no-answer");
      http.abort();
    });
    const outcome = await http.outcome;
    if (outcome.kind === "lost") fail(outcome.loss);
    else if (outcome.response.status !== 200) {
      const challenge = taken(outcome.response.status, outcome.response.header("www-authenticate"));
      await outcome.response.drain();
      fail(outcome.response.status >= 300 && outcome.response.status < 400 ? "redirected" : "http-status", {
        httpStatus: outcome.response.status,
        ...(challenge === undefined ? {} : { challenge }),
      });
    } else if (mediaType(outcome.response) !== "text/event-stream") {
      fail("not-json", { httpStatus: 200 });
      http.abort();
    } else {
      void readSse(outcome.response.body(), {
        event: ({ type, data }) => {
          if (type === "endpoint") {
            this.#endpoint = this.#endpointIn(data);
            if (this.#endpoint) {
              named.resolve();
              return;
            }
            fail("redirected");
            http.abort();
          } else if (type === "message") {
            for (const message of messagesIn(parseJson(data))) this.#router.receive(message);
          }
        },
      }).then(() => {
        // Every answer was to come on this stream.
        this.#router.loseAll("stream-ended");
        fail("stream-ended");
      });
    }
    try {
      await named.promise;
    } finally {
      stop();
    }
  }

  /** The endpoint, which must be on the stream's own origin: messages and credentials go nowhere else. */
  #endpointIn(data: string): URL | undefined {
    if (!URL.canParse(data, this.#url.href)) return undefined;
    const endpoint = new URL(data, this.#url);
    return endpoint.origin === this.#url.origin ? endpoint : undefined;
  }

  async #post(endpoint: URL, request: RpcRequest, exchange: Exchange, options: ExchangeOptions): Promise<void> {
    const ready = this.#bearer.ready();
    if (ready) await ready;
    // Given up while a token was fetched: nothing leaves.
    if (exchange.settled) return;
    const taken = this.#bearer.watch();
    const http = this.#sockets.open({
      method: "POST",
      url: endpoint,
      headers: this.#headers({ ...options.headers, ...postHeaders }),
      body: JSON.stringify(request),
      stage: (stage) => exchange.raise(stage),
    });
    const outcome = await http.outcome;
    if (outcome.kind === "lost") {
      exchange.lose(outcome.loss);
      return;
    }
    const { response } = outcome;
    if (response.status >= 200 && response.status < 300 && mediaType(response) !== "text/html") {
      taken(response.status, undefined);
      // Accepted: the answer comes on the stream. (A web page is the word of something in front of the server.)
      await response.drain();
      return;
    }
    await readReply(response, exchange, {
      router: this.#router,
      clock: this.#options.clock,
      taken,
      abort: () => http.abort(),
    });
  }
}

const postHeaders = { "content-type": "application/json", accept: "application/json" } as const;
