import { once } from "node:events";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { systemClock } from "../../../src/clock.ts";
import { HttpSockets, parseRetryAfter } from "../../../src/hosting/http-exchange.ts";
import { HttpTransport } from "../../../src/hosting/http-transport.ts";
import { connected, http, recorder } from "./fixtures/host.ts";
import { legacyHandlers, modernHandlers, RawServer, type Handler, type Handlers } from "./fixtures/raw-http.ts";

async function raw(handlers: Handlers): Promise<RawServer> {
  const server = await RawServer.start(handlers);
  onTestFinished(() => server.close());
  return server;
}

const call = { name: "book", arguments: { night: "2026-12-24" } };
const html = "<!doctype html><title>Login</title>";
const asJson = { "content-type": "application/json" };

interface Row {
  readonly name: string;
  readonly handler: Handler;
  readonly loss: Record<string, unknown>;
  /** Eras it applies to; default both. */
  readonly legacyOnly?: boolean;
}

const rows: Row[] = [
  { name: "a reset before the headers", handler: (turn) => turn.reset(), loss: { kind: "reset", stage: "sent" } },
  { name: "a close before the headers", handler: (turn) => turn.socket.destroy(), loss: { kind: "reset", stage: "sent" } },
  {
    name: "headers, then a reset",
    handler: (turn) => {
      turn.response.writeHead(200, { ...asJson, "content-length": "1000" });
      turn.response.write('{"jsonrpc":"2.0","id":', () => turn.reset());
    },
    loss: { kind: "reset", stage: "answering", httpStatus: 200 },
  },
  {
    name: "a body shorter than announced",
    handler: (turn) => {
      turn.response.writeHead(200, { ...asJson, "content-length": "1000" });
      turn.response.write('{"jsonrpc":"2.0","id":', () => turn.socket.end());
    },
    loss: { kind: "truncated", stage: "answering", httpStatus: 200 },
  },
  {
    name: "a chunked body without its end",
    handler: (turn) => {
      turn.response.writeHead(200, asJson);
      turn.response.write('{"jsonrpc":"2.0","id":', () => turn.socket.end());
    },
    loss: { kind: "truncated", stage: "answering", httpStatus: 200 },
  },
  {
    name: "200 with HTML",
    handler: (turn) => turn.status(200, html, { "content-type": "text/html" }),
    loss: { kind: "not-json", stage: "answering", httpStatus: 200 },
  },
  {
    name: "200 with an empty body",
    handler: (turn) => turn.status(200, "", asJson),
    loss: { kind: "not-json", stage: "answering", httpStatus: 200 },
  },
  {
    name: "200 with an answer to another id",
    handler: (turn) => turn.status(200, JSON.stringify({ jsonrpc: "2.0", id: "somebody-else", result: {} }), asJson),
    loss: { kind: "not-json", stage: "answering", httpStatus: 200 },
  },
  {
    name: "bytes that are no HTTP",
    handler: (turn) => turn.socket.end("garbage garbage\r\n\r\n"),
    loss: { kind: "not-json", stage: "answering" },
  },
  {
    name: "202 and no answer",
    handler: (turn) => turn.status(202),
    loss: { kind: "no-answer", stage: "answering", httpStatus: 202 },
  },
  ...[301, 302, 307, 308].map((status) => ({
    name: `a redirect (${status})`,
    handler: ((turn) => turn.status(status, "", { location: turn.server.url })) satisfies Handler,
    loss: { kind: "redirected", stage: "answering", httpStatus: status },
  })),
  ...[400, 401, 403, 405, 406, 413, 415, 422, 431].map((status) => ({
    name: `a refusal in JSON (${status})`,
    handler: ((turn) => turn.status(status, '{"message":"no"}', asJson)) satisfies Handler,
    loss: { kind: "http-status", stage: "answering", httpStatus: status, bodyIsJsonOrEmpty: true },
  })),
  {
    name: "a refusal in HTML",
    handler: (turn) => turn.status(403, html, { "content-type": "text/html" }),
    loss: { kind: "http-status", stage: "answering", httpStatus: 403, bodyIsJsonOrEmpty: false },
  },
  {
    name: "429 with Retry-After in seconds",
    handler: (turn) => turn.status(429, "", { "retry-after": "7" }),
    loss: { kind: "http-status", stage: "answering", httpStatus: 429, bodyIsJsonOrEmpty: true, retryAfterMs: 7_000 },
  },
  ...[408, 421, 500, 502, 503, 504].map((status) => ({
    name: `a failure (${status})`,
    handler: ((turn) => turn.status(status, "", {})) satisfies Handler,
    loss: { kind: "http-status", stage: "answering", httpStatus: status, bodyIsJsonOrEmpty: true },
  })),
  {
    name: "an event stream that ends at once",
    handler: (turn) => (turn.stream(), turn.response.end()),
    loss: { kind: "stream-ended", stage: "answering", httpStatus: 200 },
  },
  {
    name: "an event stream that is reset",
    handler: (turn) => {
      turn.stream();
      turn.reset();
    },
    loss: { kind: "stream-ended", stage: "answering", httpStatus: 200 },
  },
  {
    name: "an event stream that ends after an event without an id",
    handler: (turn) => {
      turn.stream();
      turn.event({ data: { jsonrpc: "2.0", method: "notifications/message", params: { level: "info", data: "working" } } });
      turn.response.end();
    },
    loss: { kind: "stream-ended", stage: "answering", httpStatus: 200 },
  },
  {
    name: "an event that was cut off",
    handler: (turn) => {
      turn.stream();
      turn.response.write('data: {"jsonrpc":"2.0","id":"', () => turn.socket.end());
    },
    loss: { kind: "stream-ended", stage: "answering", httpStatus: 200 },
  },
  {
    name: "an unknown session (404)",
    handler: (turn) =>
      turn.status(
        404,
        JSON.stringify({ jsonrpc: "2.0", error: { code: -32001, message: "Session not found" }, id: null }),
        asJson,
      ),
    loss: { kind: "session-gone", stage: "answering", httpStatus: 404, bodyIsJsonOrEmpty: true },
    legacyOnly: true,
  },
];

const eras = [
  { era: "2025-11-25", handlers: legacyHandlers },
  { era: "2026-07-28", handlers: modernHandlers },
] as const;

describe.each(eras)("a call lost over Streamable HTTP of $era", ({ era, handlers }) => {
  it.each(rows.filter((row) => row.legacyOnly !== true || era === "2025-11-25"))("by $name", async ({ handler, loss }) => {
    const server = await raw(handlers({ "tools/call": handler }));
    const { connection } = await connected(http(server.url));
    expect(connection.facts).toMatchObject({ era, transport: "http" });
    const seen = recorder();
    const prepared = connection.prepareCall(call, seen);
    expect(server.requests("tools/call")).toHaveLength(0);

    const ending = await prepared.send();

    expect(ending).toEqual({ kind: "loss", loss });
    expect(server.requests("tools/call")).toHaveLength(1);
    expect(server.requests("tools/call")[0]?.body).toMatchObject({ id: prepared.rpcId, params: call });
    expect(seen.stages[0]).toBe("sending");
    expect(seen.stages.at(-1)).toBe(loss["stage"]);
  });
});

/** A TCP server that does as the test says with each connection. */
async function tcp(take: (socket: Socket) => void): Promise<{ port: number; sockets: Socket[] }> {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => undefined);
    take(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, sockets };
}

/** One request on a transport of its own, without a handshake. */
async function send(url: string, options: { connectTimeoutMs?: number; arguments?: unknown } = {}) {
  const transport = new HttpTransport({
    url,
    headers: {},
    capabilities: {},
    clock: systemClock,
    random: Math.random,
    log: () => undefined,
    ...options,
  });
  onTestFinished(() => transport.close());
  const seen = recorder();
  const ending = await transport.exchange(
    { jsonrpc: "2.0", id: "write-201", method: "tools/call", params: { name: "book", arguments: options.arguments ?? {} } },
    seen,
  ).ending;
  return { ending, stages: seen.stages };
}

describe("a call that provably never left", () => {
  it("because the connection was refused", async () => {
    const server = await raw(legacyHandlers());
    const { connection } = await connected(http(server.url));
    await server.close();
    const seen = recorder();
    expect(await connection.prepareCall(call, seen).send()).toEqual({
      kind: "loss",
      loss: { kind: "connect-refused", stage: "not-sent" },
    });
    expect(seen.stages).toEqual([]);
  });

  it("because the name does not resolve", async () => {
    expect(await send("http://no-such-host.invalid/mcp")).toEqual({
      ending: { kind: "loss", loss: { kind: "dns", stage: "not-sent" } },
      stages: [],
    });
  });

  it("because the peer speaks no TLS", async () => {
    const { port } = await tcp((socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
    expect(await send(`https://127.0.0.1:${port}/mcp`)).toEqual({
      ending: { kind: "loss", loss: { kind: "tls", stage: "not-sent" } },
      stages: [],
    });
  });

  it("because the peer hangs up during the TLS handshake", async () => {
    const { port } = await tcp((socket) => socket.resetAndDestroy());
    expect(await send(`https://127.0.0.1:${port}/mcp`)).toEqual({
      ending: { kind: "loss", loss: { kind: "tls", stage: "not-sent" } },
      stages: [],
    });
  });

  it("because no connection came about in time", async () => {
    const { port } = await tcp(() => undefined);
    expect(await send(`https://127.0.0.1:${port}/mcp`, { connectTimeoutMs: 50 })).toEqual({
      ending: { kind: "loss", loss: { kind: "connect-timeout", stage: "not-sent" } },
      stages: [],
    });
  });

  it("because the definition holds a header that HTTP does not allow", async () => {
    const transport = new HttpTransport({
      url: "http://127.0.0.1:1/",
      headers: { "x-key": "a\nb" },
      capabilities: {},
      clock: systemClock,
      random: Math.random,
      log: () => undefined,
    });
    onTestFinished(() => transport.close());
    const { ending } = transport.exchange({ jsonrpc: "2.0", id: "a", method: "ping" }, {});
    expect(await ending).toEqual({ kind: "loss", loss: { kind: "connect-refused", stage: "not-sent" } });
  });

  it("because it was cancelled before it was sent", async () => {
    const server = await raw(legacyHandlers());
    const { connection } = await connected(http(server.url));
    const prepared = connection.prepareCall(call, {});
    prepared.cancel();
    expect(await prepared.send()).toEqual({ kind: "loss", loss: { kind: "cancelled-here", stage: "not-sent" } });
    expect(server.requests("tools/call")).toHaveLength(0);
  });
});

describe("a call that left in part", () => {
  it("is lost while its body is being written", async () => {
    const { port } = await tcp((socket) => socket.once("data", () => socket.resetAndDestroy()));
    const { ending, stages } = await send(`http://127.0.0.1:${port}/mcp`, { arguments: { text: "x".repeat(50_000_000) } });
    expect(ending).toEqual({ kind: "loss", loss: { kind: "reset", stage: "sending" } });
    expect(stages).toEqual(["sending"]);
  });
});

describe("connections that are kept", () => {
  it("are used again at once, and closed when they were idle for too long", async () => {
    const server = await raw({ POST: (turn) => turn.status(200) });
    const sockets = new HttpSockets(systemClock, { idleLimitMs: 50 });
    onTestFinished(() => sockets.close());
    const post = async () => {
      const outcome = await sockets.open({ method: "POST", url: new URL(server.url), headers: {}, body: "{}" }).outcome;
      if (outcome.kind === "response") await outcome.response.drain();
      return outcome.kind;
    };
    const closed = server.untilClosed();
    expect([await post(), await post()]).toEqual(["response", "response"]);
    expect(server.connections).toBe(1);
    await closed;
    expect(await post()).toBe("response");
    expect(server.connections).toBe(2);
  });

  it("never carry a request when the peer has closed them: it goes over a new one, once", async () => {
    const server = await raw(legacyHandlers({ "tools/call": (turn) => turn.result({}) }));
    const { connection } = await connected(http(server.url));
    for (let round = 0; round < 20; round++) {
      server.dropIdle();
      const ending = await connection.prepareCall(call, {}).send();
      expect(ending.kind).toBe("answer");
    }
    expect(server.requests("tools/call")).toHaveLength(20);
  });

  it("that the peer resets under a request leave its outcome unknown, and it is not sent again", async () => {
    const server = await raw(
      legacyHandlers({
        "tools/call": (turn) =>
          turn.server.seen.filter((other) => other.port === turn.seen.port).length > 1 ? turn.reset() : turn.result({}),
      }),
    );
    const { connection } = await connected(http(server.url));
    const ending = await connection.prepareCall(call, {}).send();
    expect(ending).toEqual({ kind: "loss", loss: { kind: "reset", stage: "sent" } });
    expect(server.requests("tools/call")).toHaveLength(1);
  });

  it("may be silent for longer than the idle limit while a request is out", async () => {
    const server = await raw({ POST: (turn) => void setTimeout(() => turn.status(200), 120) });
    const sockets = new HttpSockets(systemClock, { idleLimitMs: 20 });
    onTestFinished(() => sockets.close());
    const outcome = await sockets.open({ method: "POST", url: new URL(server.url), headers: {}, body: "{}" }).outcome;
    expect(outcome.kind).toBe("response");
  });
});

describe("Retry-After", () => {
  it.each([
    ["7", 7_000],
    ["0", 0],
    [new Date(1_000_000_000_000 + 3_000).toUTCString(), 3_000],
    [new Date(0).toUTCString(), 0],
    ["soon", undefined],
    [undefined, undefined],
  ])("%s", (value, expected) => {
    expect(parseRetryAfter(value, 1_000_000_000_000)).toBe(expected);
  });
});
