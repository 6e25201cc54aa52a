/**
 * Owns: one HTTP exchange with proof of how far it got: connecting, first byte handed over, request flushed, headers, body.
 * Leaves to others: what is in the body (http-reply.ts, sse.ts), what a loss means (src/replay).
 *
 * It stands on node:http and node:https themselves, called at the moment of use, so that an editor's proxy and certificate
 * settings (which patch these modules) apply. No redirect is followed, nothing is sent twice, and nothing but the connect
 * timeout runs against the clock.
 */
import http from "node:http";
import https from "node:https";
import type { Clock } from "../clock.ts";
import type { LossKind } from "./evidence.ts";

/** Milliseconds. */
const defaultConnectTimeoutMs = 10_000;
/**
 * A socket that was idle for longer than this is closed rather than used again, in milliseconds. Servers commonly drop idle
 * sockets after 5 s; a request that meets such a drop has an unknown outcome, a new connection costs a round trip.
 */
const idleLimitMs = 1_500;

export interface HttpRequest {
  readonly method: "GET" | "POST" | "DELETE";
  readonly url: URL;
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  /** The request is about to be handed over, has been handed over. Called in this order, each at most once. */
  stage?(stage: "sending" | "sent"): void;
}

/** An answer's head, and its body for one reader. */
export interface HttpResponse {
  readonly status: number;
  /** A header's value by its lower-case name; several values joined with ", ". */
  header(name: string): string | undefined;
  /** The body as it arrives. The iteration ends early when the connection breaks; `broken` then says how. */
  body(): AsyncIterable<Buffer>;
  /** Reads a body that nobody needs to its end, so that its socket can be used again. */
  drain(): Promise<void>;
  /** After the body: undefined when it was complete. */
  readonly broken: "reset" | "truncated" | undefined;
}

/** A response, or why there is none. `sent` says whether a byte may have left. */
export type HttpOutcome =
  | { readonly kind: "response"; readonly response: HttpResponse }
  | {
      readonly kind: "lost";
      readonly loss: Extract<LossKind, "connect-refused" | "dns" | "tls" | "connect-timeout" | "reset" | "not-json">;
    };

export interface HttpExchange {
  /** Never rejects. */
  readonly outcome: Promise<HttpOutcome>;
  /** Closes the exchange and its socket. */
  abort(): void;
}

const dnsCodes = new Set(["ENOTFOUND", "EAI_AGAIN", "EAI_FAIL", "EAI_NODATA", "EAI_NONAME", "ENODATA", "ESERVFAIL"]);
const tlsCodes =
  /^(ERR_TLS_|ERR_SSL_|ERR_OSSL_|CERT_|CRL_|UNABLE_TO_|DEPTH_ZERO_|SELF_SIGNED_|ERROR_IN_C|INVALID_CA$|INVALID_PURPOSE$|PATH_LENGTH_EXCEEDED$|HOSTNAME_MISMATCH$|EPROTO$)/;

/** The loss behind an error, by its code and by whether a byte may have left. */
function lossOf(error: unknown, sending: boolean, secure: boolean): Extract<HttpOutcome, { kind: "lost" }>["loss"] {
  const code = codeOf(error);
  // Bytes came that are no HTTP.
  if (code.startsWith("HPE_")) return "not-json";
  if (sending) return "reset";
  if (dnsCodes.has(code)) return "dns";
  if (tlsCodes.test(code)) return "tls";
  if (code === "ETIMEDOUT") return "connect-timeout";
  // The peer hung up during the handshake.
  if (code === "ECONNRESET" || code === "EPIPE") return secure ? "tls" : "reset";
  return "connect-refused";
}

function codeOf(error: unknown): string {
  if (typeof error !== "object" || error === null) return "";
  if ("code" in error && typeof error.code === "string") return error.code;
  return error instanceof AggregateError ? codeOf(error.errors[0]) : "";
}

/**
 * Reads `Retry-After` (RFC 9110, 10.2.3): seconds or a date.
 * @returns milliseconds from `now`, never negative; undefined when it says nothing readable
 */
export function parseRetryAfter(value: string | undefined, now: number): number | undefined {
  if (value === undefined) return undefined;
  if (/^\d+$/.test(value.trim())) return Number(value.trim()) * 1_000;
  const date = Date.parse(value);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}

interface Attempt {
  readonly outgoing: http.ClientRequest;
}

/** The sockets of one connection to a server. `close()` ends all of them. */
export class HttpSockets {
  readonly #clock: Clock;
  readonly #connectTimeoutMs: number;
  readonly #agents: { readonly http: http.Agent; readonly https: https.Agent };
  readonly #underWay = new Set<() => void>();

  constructor(clock: Clock, options: { connectTimeoutMs?: number; idleLimitMs?: number } = {}) {
    this.#clock = clock;
    this.#connectTimeoutMs = options.connectTimeoutMs ?? defaultConnectTimeoutMs;
    // An agent's `timeout` closes sockets in its free list only; on a socket in use node:http does nothing but report it.
    const agent = { keepAlive: true, timeout: options.idleLimitMs ?? idleLimitMs };
    this.#agents = { http: new http.Agent(agent), https: new https.Agent(agent) };
  }

  /** Starts a request. Nothing is written before the connection stands, so what fails earlier was provably not sent. */
  open(request: HttpRequest): HttpExchange {
    const { promise, resolve } = Promise.withResolvers<HttpOutcome>();
    const exchange: { attempt?: Attempt; aborted: boolean } = { aborted: false };
    const abort = (): void => {
      exchange.aborted = true;
      exchange.attempt?.outgoing.destroy();
    };
    this.#underWay.add(abort);
    const start = (): void => {
      try {
        exchange.attempt = this.#start(request, resolve, () => {
          // An idle socket turned out to be dead before anything was written to it: the next one is as good as the first.
          if (exchange.aborted) resolve({ kind: "lost", loss: "reset" });
          else start();
        });
        const { outgoing } = exchange.attempt;
        outgoing.once("close", () => {
          if (exchange.attempt?.outgoing === outgoing) this.#underWay.delete(abort);
        });
      } catch {
        // A header of the definition that HTTP does not allow: nothing was opened.
        this.#underWay.delete(abort);
        resolve({ kind: "lost", loss: "connect-refused" });
      }
    };
    start();
    return { outcome: promise, abort };
  }

  #start(request: HttpRequest, settle: (outcome: HttpOutcome) => void, again: () => void): Attempt {
    const secure = request.url.protocol === "https:";
    let done = false;
    let sending = false;
    let timedOut = false;
    let reset = false;
    const outgoing = (secure ? https : http).request(request.url, {
      method: request.method,
      headers: { ...request.headers },
      agent: secure ? this.#agents.https : this.#agents.http,
    });
    const stopTimer = this.#clock.after(this.#connectTimeoutMs, () => {
      timedOut = true;
      outgoing.destroy();
    });
    const lose = (error: unknown): void => {
      if (done) return;
      done = true;
      stopTimer();
      if (outgoing.reusedSocket && !sending && !timedOut) {
        again();
        return;
      }
      settle({ kind: "lost", loss: timedOut ? "connect-timeout" : lossOf(error, sending, secure) });
    };

    outgoing.once("socket", (socket) => {
      const handOver = (): void => {
        // What has failed must never write: its place may have been taken already.
        if (done || outgoing.destroyed || socket.destroyed) return;
        stopTimer();
        sending = true;
        request.stage?.("sending");
        outgoing.end(request.body, () => request.stage?.("sent"));
      };
      // A new socket is ready when it is connected and, over TLS, when the handshake is done.
      if ((socket as { secureConnecting?: boolean }).secureConnecting === true) socket.once("secureConnect", handOver);
      else if (socket.connecting) socket.once("connect", handOver);
      // An idle one may have been closed by the peer: a whole turn of the event loop (two, from inside one) brings such news as is here.
      else if (outgoing.reusedSocket) setImmediate(() => setImmediate(handOver));
      else handOver();
    });
    outgoing.on("error", (error: NodeJS.ErrnoException) => {
      // `read ECONNRESET` is a reset by the peer; a mere end of the stream has no system call.
      if (error.syscall === "read") reset = true;
      lose(error);
    });
    outgoing.once("close", () => lose(undefined));
    outgoing.once("response", (incoming) => {
      done = true;
      stopTimer();
      let broken: HttpResponse["broken"];
      // Without a listener an error between the head and the reader would end the process; the iteration reports it too.
      incoming.on("error", () => undefined);
      settle({
        kind: "response",
        response: {
          status: incoming.statusCode ?? 0,
          header(name) {
            const value = incoming.headers[name];
            return Array.isArray(value) ? value.join(", ") : value;
          },
          async *body() {
            try {
              for await (const chunk of incoming) yield chunk as Buffer;
            } catch {
              broken = reset ? "reset" : "truncated";
            }
            if (!incoming.complete) broken ??= reset ? "reset" : "truncated";
          },
          drain() {
            if (incoming.closed) return Promise.resolve();
            const { promise, resolve } = Promise.withResolvers<void>();
            incoming.once("close", resolve).resume();
            return promise;
          },
          get broken() {
            return broken;
          },
        },
      });
    });
    return { outgoing };
  }

  /** Ends every exchange under way and every idle socket. */
  close(): void {
    for (const abort of [...this.#underWay]) abort();
    this.#agents.http.destroy();
    this.#agents.https.destroy();
  }
}
