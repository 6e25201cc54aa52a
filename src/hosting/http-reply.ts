/**
 * Owns: reading the HTTP response to a POSTed request into its exchange: JSON or event stream, answer or typed loss.
 * Leaves to others: sending (http-exchange.ts), what a loss means (src/replay). Source: DESIGN.md section 3.
 */
import type { Clock } from "../clock.ts";
import { asAnswer, messagesIn, parseJson, rpcErrors } from "./json-rpc.ts";
import { parseRetryAfter, type HttpResponse } from "./http-exchange.ts";
import type { Exchange, LossFacts, Router } from "./router.ts";
import { readSse } from "./sse.ts";

/** How long a server may keep an event stream open after the answer, in milliseconds. */
const lingerMs = 1_000;

export interface ReplyParts {
  readonly router: Router;
  readonly clock: Clock;
  /**
   * Given when the request carried a session id: a 404 then says that the session is gone, unless it is the answer to an unknown method.
   * Called before the exchange ends, so that whoever is waiting for that finds the connection over.
   */
  readonly sessionGone?: (() => void) | undefined;
  /** An event id or a `retry` was seen on the exchange's own stream. */
  cursor?(seen: { readonly id?: string; readonly retryMs?: number }): void;
  /** Tells the authorisation how the server took the request. @returns the number of a challenge */
  taken?(status: number, challenge: string | undefined): number | undefined;
  /** Closes the exchange's socket. */
  readonly abort: () => void;
}

/** Follows the response to its end. The exchange is settled afterwards. */
export async function readReply(response: HttpResponse, exchange: Exchange, parts: ReplyParts): Promise<void> {
  const { router, clock } = parts;
  const { status } = response;
  const retryAfterMs = parseRetryAfter(response.header("retry-after"), clock.now());
  const challenge = parts.taken?.(status, response.header("www-authenticate"));
  const facts = {
    httpStatus: status,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    ...(challenge === undefined ? {} : { challenge }),
  };
  exchange.raise("answering");

  if (mediaType(response) === "text/event-stream") {
    let retryMs: number | undefined;
    let stopLinger = (): void => undefined;
    await readSse(response.body(), {
      event({ type, data, id }) {
        if (id !== undefined) parts.cursor?.({ id });
        if (type !== "message" || data === "") return;
        for (const message of messagesIn(parseJson(data))) router.receive(message, exchange, facts);
        if (exchange.settled) {
          stopLinger();
          stopLinger = clock.after(lingerMs, parts.abort);
        }
      },
      retry(ms) {
        retryMs = ms;
        parts.cursor?.({ retryMs: ms });
      },
    });
    stopLinger();
    if (status >= 200 && status < 300) {
      exchange.lose("stream-ended", { httpStatus: status, ...(retryMs === undefined ? {} : { retryAfterMs: retryMs }) });
      return;
    }
    exchange.lose("http-status", facts);
    return;
  }

  const chunks: Buffer[] = [];
  for await (const chunk of response.body()) chunks.push(chunk);
  const text = new TextDecoder().decode(Buffer.concat(chunks));
  const value = parseJson(text);
  if (status === 404 && !messagesIn(value).some(saysUnknownMethod)) parts.sessionGone?.();
  // An answer is an answer whatever the status, and even when the connection broke after its last byte.
  if (value !== undefined) for (const message of messagesIn(value)) router.receive(message, exchange, facts);
  if (exchange.settled) return;
  if (response.broken !== undefined) {
    exchange.lose(response.broken, facts);
    return;
  }
  loseByStatus(exchange, facts, value !== undefined || text.trim() === "", parts.sessionGone !== undefined);
}

function saysUnknownMethod(message: unknown): boolean {
  const answer = asAnswer(message);
  return answer !== undefined && "error" in answer && answer.error.code === rpcErrors.methodNotFound;
}

/** A complete response without an answer in it. */
function loseByStatus(
  exchange: Exchange,
  facts: LossFacts & { httpStatus: number },
  bodyIsJsonOrEmpty: boolean,
  inSession: boolean,
): void {
  const status = facts.httpStatus;
  if (status === 202 || status === 204) {
    exchange.lose("no-answer", facts);
    return;
  }
  if (status >= 200 && status < 300) {
    exchange.lose("not-json", facts);
    return;
  }
  if (status >= 300 && status < 400) {
    exchange.lose("redirected", facts);
    return;
  }
  if (status === 404 && inSession) {
    exchange.lose("session-gone", { ...facts, bodyIsJsonOrEmpty });
    return;
  }
  exchange.lose("http-status", { ...facts, bodyIsJsonOrEmpty });
}

/** The media type without its parameters, in lower case. */
export function mediaType(response: HttpResponse): string {
  return (response.header("content-type") ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
}
