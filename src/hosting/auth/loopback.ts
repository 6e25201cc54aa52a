/**
 * Owns: the loopback redirect of RFC 8252 section 7.3: one free port of 127.0.0.1, open for one authorisation, one answer.
 * Leaves to others: what the answer means (flow.ts).
 */
import { timingSafeEqual } from "node:crypto";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { RedirectAnswer, RedirectReceiver } from "./flow.ts";

const path = "/authorised";

/** Opens the port. Whatever does not carry this authorisation's own state is refused and changes nothing. */
export async function loopbackReceiver(): Promise<RedirectReceiver> {
  const answered = Promise.withResolvers<RedirectAnswer>();
  let expected: string | undefined;
  const server = createServer({ maxHeaderSize: 16 * 1024, requestTimeout: 10_000 }, (request, response) => {
    const url = new URL(request.url ?? "/", "http://127.0.0.1");
    request.resume();
    // (On another port where an editor forwards it.)
    if (
      request.method !== "GET" ||
      url.pathname !== path ||
      !/^(127\.0\.0\.1|localhost)(:\d+)?$/.test(request.headers.host ?? "")
    ) {
      page(response, 404, "There is nothing here.");
      return;
    }
    if (expected === undefined || !sameState(url.searchParams.get("state"), expected)) {
      page(response, 400, "This does not belong to the authorisation under way. Nothing was done.");
      return;
    }
    // One use.
    expected = undefined;
    const answer = readAnswer(url.searchParams);
    const words = answer.code === undefined ? "The authorisation was not given." : "Authorised.";
    // Once the page is there, or the browser gone: the port is closed then.
    response.once("close", () => answered.resolve(answer));
    page(response, 200, `${words} You can close this page and go back.`);
  });
  server.maxConnections = 16;
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host: "127.0.0.1", port: 0, exclusive: true }, resolve);
  });
  const { port } = server.address() as AddressInfo;
  return {
    redirectUri: `http://127.0.0.1:${port}${path}`,
    wait(state) {
      expected = state;
      return answered.promise;
    },
    close() {
      expected = undefined;
      server.close();
      server.closeAllConnections();
    },
  };
}

/** The parameters of a redirect (RFC 6749 section 4.1.2, RFC 9207). */
export function readAnswer(parameters: URLSearchParams): RedirectAnswer {
  const one = (name: string): string | undefined => parameters.get(name) ?? undefined;
  return { code: one("code"), error: one("error"), iss: one("iss") };
}

/** In constant time for states of the same length. */
export function sameState(given: string | null, expected: string): boolean {
  const one = Buffer.from(given ?? "");
  const other = Buffer.from(expected);
  return one.length === other.length && timingSafeEqual(one, other);
}

function page(response: ServerResponse, status: number, text: string): void {
  const html = `<!doctype html><html lang="en"><meta charset="utf-8"><title>MCP Safe Replay</title><body style="font:16px system-ui;margin:3em"><p>${text}</p></body></html>`;
  response.writeHead(status, {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    connection: "close",
  });
  response.end(html);
}
