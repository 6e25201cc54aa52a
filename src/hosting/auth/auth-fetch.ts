/**
 * Owns: how the authorisation talks HTTP: to which addresses, no redirect to another host, bounded in time and size.
 * Leaves to others: what is asked (discovery.ts, flow.ts), sockets (http-exchange.ts).
 *
 * It never follows a redirect; the SDK's helpers follow one by themselves within an origin, and only where the method stays.
 */
import type { FetchLike } from "@modelcontextprotocol/client";
import type { Clock } from "../../clock.ts";
import { HttpSockets } from "../http-exchange.ts";
import { AuthorisationError } from "./auth-errors.ts";

/** Milliseconds for one whole answer, and bytes of it. */
const timeLimitMs = 20_000;
const sizeLimit = 512 * 1024;
/** Statuses that a `Response` cannot have a body with. */
const bodiless = new Set([204, 205, 304]);

/** This machine, by RFC 8252 section 7.3 and RFC 6761 section 6.3. */
export function isLoopback(hostname: string): boolean {
  return hostname === "localhost" || hostname.endsWith(".localhost") || /^127(\.\d+){3}$/.test(hostname) || hostname === "[::1]";
}

/**
 * Whether the authorisation of this server may use that address. https; or plain http on this machine. A server elsewhere may not point to
 * this machine at all: what listens here is none of its business.
 * @throws AuthorisationError
 */
export function assertAllowed(address: string | URL, serverUrl: string): void {
  if (!URL.canParse(String(address))) throw new AuthorisationError("unreadable");
  const url = new URL(address);
  const here = isLoopback(url.hostname);
  const secure = url.protocol === "https:" || (url.protocol === "http:" && here);
  if (!secure || (here && !isLoopback(new URL(serverUrl).hostname))) throw new AuthorisationError("insecure-address");
}

export interface AuthFetchOptions {
  readonly serverUrl: string;
  readonly clock: Clock;
  readonly signal?: AbortSignal | undefined;
}

/** @returns a fetch that rejects with `AuthorisationError` and nothing else */
export function authFetch(options: AuthFetchOptions): FetchLike {
  const { serverUrl, clock, signal } = options;
  return async (input, init) => {
    const url = new URL(input);
    const method = (init?.method ?? "GET").toUpperCase();
    if (method !== "GET" && method !== "POST") throw new AuthorisationError("unreadable");
    // The server's own origin is the person's choice, even over plain http; but only for what is no secret.
    if (method !== "GET" || url.origin !== new URL(serverUrl).origin) assertAllowed(url, serverUrl);
    if (signal?.aborted === true) throw new AuthorisationError("cancelled");
    const sockets = new HttpSockets(clock);
    let failure: "unreachable" | "cancelled" = "unreachable";
    const body = init?.body === undefined || init.body === null ? undefined : bodyText(init.body);
    const exchange = sockets.open({
      method,
      url,
      headers: Object.fromEntries(new Headers(init?.headers).entries()),
      ...(body === undefined ? {} : { body }),
    });
    const onAbort = (): void => {
      failure = "cancelled";
      exchange.abort();
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    const stop = clock.after(timeLimitMs, () => exchange.abort());
    try {
      const outcome = await exchange.outcome;
      if (outcome.kind === "lost") throw new AuthorisationError(failure);
      const { response } = outcome;
      const chunks: Buffer[] = [];
      let size = 0;
      for await (const chunk of response.body()) {
        size += chunk.length;
        if (size > sizeLimit) throw new AuthorisationError("unreachable");
        chunks.push(chunk);
      }
      if (response.broken !== undefined || response.status < 200 || response.status > 599) throw new AuthorisationError(failure);
      const headers = new Headers();
      for (const name of ["content-type", "location", "www-authenticate"]) {
        const value = response.header(name);
        if (value !== undefined) headers.set(name, value);
      }
      return new Response(bodiless.has(response.status) ? null : Buffer.concat(chunks), { status: response.status, headers });
    } finally {
      stop();
      signal?.removeEventListener("abort", onAbort);
      sockets.close();
    }
  };
}

function bodyText(body: unknown): string {
  if (typeof body === "string") return body;
  if (body instanceof URLSearchParams) return body.toString();
  throw new AuthorisationError("unreadable");
}
