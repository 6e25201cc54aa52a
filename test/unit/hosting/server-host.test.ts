import { describe, expect, it, onTestFinished } from "vitest";
import { crashLoop, reconnectWaits } from "../../../src/hosting/health/reconnects.ts";
import { child, lives } from "./fixtures/child.ts";
import { connected, FakeClock, host, http } from "./fixtures/host.ts";
import { legacyHandlers, modernHandlers, RawServer, type Handlers } from "./fixtures/raw-http.ts";

async function raw(handlers: Handlers): Promise<RawServer> {
  const server = await RawServer.start(handlers);
  onTestFinished(() => server.close());
  return server;
}

const call = (name: string) => ({ name, arguments: {} });
/** The largest value that a source of randomness gives, near enough. */
const most = () => 1;

describe("connecting", () => {
  it("is one attempt for all who ask, and one process", async () => {
    const server = child();
    const { server: hosted, states } = host(server.definition);
    const [one, two] = await Promise.all([hosted.connect(), hosted.connect()]);
    expect(one).toBe(two);
    expect(await hosted.connect()).toBe(one);
    expect(hosted.connection).toBe(one);
    expect(server.pids()).toHaveLength(1);
    expect(states).toEqual(["connecting", "connected"]);
  });

  it("is done only when tools/list was answered", async () => {
    let finish = (): void => undefined;
    const server = await raw(
      legacyHandlers({
        "tools/list": (turn) => (finish = () => turn.result({ tools: [{ name: "late", inputSchema: {}, vendorField: [1] }] })),
      }),
    );
    const { server: hosted } = host(http(server.url));
    const connecting = hosted.connect();
    await server.until("tools/list");
    expect(hosted.status.state).toBe("connecting");
    expect(hosted.connection).toBeUndefined();
    finish();
    await connecting;
    expect(hosted.status).toMatchObject({ state: "connected", era: "2025-11-25", facts: { serverInfo: { name: "raw" } } });
    expect(hosted.tools).toEqual([{ name: "late", inputSchema: {}, vendorField: [1] }]);
  });

  it("reads every page of the list", async () => {
    const server = await raw(
      legacyHandlers({
        "tools/list": (turn) => {
          const page = Number(turn.seen.body.params?.["cursor"] ?? 1);
          turn.result({ tools: [{ name: `t${page}` }], ...(page < 3 ? { nextCursor: String(page + 1) } : {}) });
        },
      }),
    );
    const { server: hosted } = await connected(http(server.url));
    expect(hosted.tools.map((tool) => tool.name)).toEqual(["t1", "t2", "t3"]);
  });

  it("to a server without tools is fine", async () => {
    const server = await raw(
      legacyHandlers({ "tools/list": (turn) => turn.error({ code: -32601, message: "Method not found" }) }),
    );
    const { server: hosted } = await connected(http(server.url));
    expect(hosted.tools).toEqual([]);
    expect(hosted.status.state).toBe("connected");
  });

  it("that fails for good says why and leaves no timer", async () => {
    const clock = new FakeClock();
    const server = await raw(legacyHandlers({ "server/discover": (turn) => turn.status(401) }));
    const { server: hosted } = host(http(server.url), { clock });
    await expect(hosted.connect()).rejects.toMatchObject({ kind: "unauthorised" });
    expect(hosted.status).toMatchObject({
      state: "needs-authorisation",
      reason: "The server asks for authorisation (HTTP 401).",
    });
    expect(clock.pending).toBe(0);
    server.handlers["server/discover"] = (turn) => turn.status(400);
    await hosted.connect();
    expect(hosted.status.state).toBe("connected");
  });
});

describe("after an unexpected end", () => {
  it("a new connection is made, on a new process", async () => {
    const server = child();
    const { connection, until, states, server: hosted } = await connected(server.definition);
    await connection.prepareCall(call("exit"), {}).send();
    await until("reconnecting");
    expect(hosted.status.reason).toBe("The connection was lost: the server's program ended.");
    await until("connected");
    expect(states).toEqual(["connecting", "connected", "reconnecting", "connecting", "connected"]);
    expect(hosted.connection).not.toBe(connection);
    expect(server.pids()).toHaveLength(2);
    expect(lives(server.pids()[0] ?? 0)).toBe(false);
  });

  it("the new process starts only when nothing is left of the old one", async () => {
    const server = child("stubborn");
    const { connection, until } = await connected(server.definition, { limits: { grace: 800 } });
    await connection.prepareCall(call("close-stdout"), {}).send();
    await until("reconnecting");
    await until("connected");
    const story = server.entries().flatMap((entry) => ["started", "signal"].filter((what) => what in entry));
    expect(story).toEqual(["started", "signal", "started"]);
    expect(lives(server.pids()[0] ?? 0)).toBe(false);
  });

  it("the waits double up to a minute, and a caller's wish ends one at once", async () => {
    const clock = new FakeClock();
    const server = await raw(legacyHandlers());
    const url = server.url;
    await server.close();
    const { server: hosted, until } = host(http(url), { clock, random: most });
    const waits: number[] = [];
    await hosted.connect().catch(() => undefined);
    for (let attempt = 0; attempt < 9; attempt++) {
      await until("reconnecting");
      const [wait = 0] = clock.waits;
      waits.push(wait);
      expect(clock.pending).toBe(1);
      const connecting = until("connecting");
      if (attempt === 4) hosted.connect().catch(() => undefined);
      else clock.advance(wait);
      await connecting;
    }
    expect(waits).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
    expect(reconnectWaits).toEqual({ first: 1_000, longest: 60_000 });
    await until("reconnecting");
    await hosted.stop();
    expect(clock.pending).toBe(0);
  });

  it("the waits are spread over the whole range", async () => {
    const clock = new FakeClock();
    const { server: hosted } = host(http("http://127.0.0.1:1/mcp"), { clock, random: () => 0.25 });
    await hosted.connect().catch(() => undefined);
    expect(clock.waits).toEqual([250]);
  });

  it("a server's Retry-After is respected, by callers too", async () => {
    const clock = new FakeClock();
    const server = await raw(legacyHandlers({ "server/discover": (turn) => turn.status(503, "", { "retry-after": "30" }) }));
    const { server: hosted, until } = host(http(server.url), { clock, random: most });
    await expect(hosted.connect()).rejects.toMatchObject({ kind: "http-status", retryAfterMs: 30_000 });
    expect(hosted.status.state).toBe("reconnecting");
    clock.advance(10_000);
    await expect(hosted.connect()).rejects.toMatchObject({ retryAfterMs: 20_000 });
    expect(server.seen).toHaveLength(1);
    server.handlers["server/discover"] = (turn) => turn.status(400);
    clock.advance(20_000);
    await until("connected");
  });

  it("a process that ends five times within a minute stays down until it is started again", async () => {
    const clock = new FakeClock();
    const server = child("crash");
    const { server: hosted, until } = host(server.definition, { clock });
    hosted.connect().catch(() => undefined);
    for (let turn = 0; turn < 2; turn++) {
      await until("reconnecting");
      const connecting = until("connecting");
      clock.advance(clock.waits[0] ?? 0);
      await connecting;
    }
    await until("failed");
    // Each attempt of an unknown era starts it twice: the first end may have been the question's fault.
    expect(server.pids()).toHaveLength(6);
    expect(crashLoop).toEqual({ exits: 5, windowMs: 60_000 });
    expect(hosted.status.reason).toMatch(/ended 5 times within a minute/);
    expect(clock.pending).toBe(0);
    await expect(hosted.connect()).rejects.toMatchObject({ kind: "process-exit" });
    expect(server.pids()).toHaveLength(6);
    await expect(hosted.start()).rejects.toMatchObject({ kind: "process-exit" });
    expect(server.pids()).toHaveLength(8);
    expect(hosted.status.state).toBe("reconnecting");
  });

  it("a process that ends now and then does not", async () => {
    const clock = new FakeClock();
    const server = child();
    const { server: hosted, until } = host(server.definition, { clock });
    for (let round = 0; round < crashLoop.exits + 1; round++) {
      const connection = await hosted.connect();
      await connection.prepareCall(call("exit"), {}).send();
      await until("reconnecting");
      clock.advance(0);
      await until("connected");
      clock.advance(20_000);
    }
    expect(server.pids()).toHaveLength(crashLoop.exits + 2);
    expect(hosted.status.state).toBe("connected");
  });
});

describe("stopping", () => {
  it("ends the process and makes no new one", async () => {
    const clock = new FakeClock();
    const server = child();
    const { server: hosted, connection } = await connected(server.definition, { clock });
    await hosted.stop();
    expect(connection.open).toBe(false);
    expect((await connection.closed).kind).toBe("closed-here");
    expect(hosted.status.state).toBe("stopped");
    expect(hosted.connection).toBeUndefined();
    expect(clock.pending).toBe(0);
    expect(lives(server.pids()[0] ?? 0)).toBe(false);
  });

  it("and starting again makes one", async () => {
    const server = child();
    const { server: hosted, connection } = await connected(server.definition);
    await hosted.restart();
    expect(hosted.connection).not.toBe(connection);
    expect(server.pids().map(lives)).toEqual([false, true]);
  });

  it("a connection by hand stops the server, until somebody wants it again", async () => {
    const { server: hosted, connection, until } = await connected(child().definition);
    await connection.close();
    await until("stopped");
    expect(hosted.connection).toBeUndefined();
    expect((await hosted.connect()).open).toBe(true);
  });

  it("for good refuses every later wish", async () => {
    const { server: hosted } = await connected(child().definition);
    await hosted.dispose();
    await expect(hosted.connect()).rejects.toMatchObject({ kind: "closed-here" });
  });
});

describe("rediscovering", () => {
  it("asks again on the connection that is still open", async () => {
    const server = child();
    const { server: hosted, connection } = await connected(server.definition);
    const changed = new Promise<void>((resolve) => hosted.onDidChangeTools(resolve));
    expect(await hosted.rediscover(connection)).toBe(connection);
    await changed;
    expect(hosted.tools.map((tool) => tool.name)).toEqual(["answer", "list-2"]);
    expect(server.received("tools/list")).toHaveLength(2);
  });

  it("makes a new one when that is over", async () => {
    const server = child();
    const { server: hosted, connection } = await connected(server.definition);
    await connection.prepareCall(call("kill"), {}).send();
    const [one, two] = await Promise.all([hosted.rediscover(connection), hosted.rediscover(connection)]);
    expect(one).not.toBe(connection);
    expect(two).toBe(one);
    expect(one.open).toBe(true);
    expect(server.pids()).toHaveLength(2);
  });

  it("makes a new one when the question itself ends the old one", async () => {
    const server = await raw(legacyHandlers());
    const { server: hosted, connection } = await connected(http(server.url));
    server.handlers["tools/list"] = (turn) =>
      turn.seen.headers["mcp-session-id"] === "session-1" ? turn.status(404) : turn.result({ tools: [] });
    const found = await hosted.rediscover(connection);
    expect(found.facts.sessionId).toBe("session-2");
    expect(hosted.tools).toEqual([]);
  });
});

describe("a suspicion", () => {
  it("is settled by a ping: a server that answers it keeps its connection", async () => {
    const server = await raw(legacyHandlers({ "tools/call": (turn) => turn.reset() }));
    const { connection, states, server: hosted, until } = await connected(http(server.url));
    await connection.prepareCall(call("book"), {}).send();
    expect(hosted.status).toMatchObject({
      state: "degraded",
      reason: "A request was lost: the connection was closed before the answer was complete.",
      facts: { serverInfo: { name: "raw" } },
    });
    expect(hosted.connection).toBe(connection);
    await server.until("ping");
    await until("connected");
    expect(connection.open).toBe(true);
    expect(states).toEqual(["connecting", "connected", "degraded", "connected"]);
  });

  it("is ended by the answer to any request, without a question", async () => {
    let finish = (): void => undefined;
    const server = await raw(
      legacyHandlers({
        "tools/call": (turn) => {
          if (turn.seen.body.params?.["name"] === "look") finish = () => turn.result({});
          else turn.reset();
        },
      }),
    );
    const { connection, states } = await connected(http(server.url));
    const sibling = connection.prepareCall(call("look"), {}).send();
    await server.until("tools/call");
    await connection.prepareCall(call("book"), {}).send();
    expect(states.at(-1)).toBe("degraded");
    finish();
    await sibling;
    expect(states.at(-1)).toBe("connected");
    expect((await connection.request("resources/list", undefined)).kind).toBe("answer");
    expect(server.requests("ping")).toHaveLength(0);
  });

  it("waits until no request is under way", async () => {
    let finish = (): void => undefined;
    const server = await raw(
      legacyHandlers({
        "tools/call": (turn) => {
          if (turn.seen.body.params?.["name"] === "look") finish = () => turn.reset();
          else turn.reset();
        },
      }),
    );
    const { connection } = await connected(http(server.url));
    const sibling = connection.prepareCall(call("look"), {}).send();
    await server.until("tools/call");
    await connection.prepareCall(call("book"), {}).send();
    await connection.prepareCall(call("book"), {}).send();
    expect(server.requests("ping")).toHaveLength(0);
    finish();
    expect((await sibling).kind).toBe("loss");
    await server.until("ping");
  });

  it("does not wait for a cancelled request, which nobody waits for", async () => {
    const server = await raw(
      legacyHandlers({ "tools/call": (turn) => (turn.seen.body.params?.["name"] === "look" ? undefined : turn.reset()) }),
    );
    const { connection } = await connected(http(server.url));
    const prepared = connection.prepareCall(call("look"), {});
    const cancelled = prepared.send();
    await server.until("tools/call");
    prepared.cancel();
    await connection.prepareCall(call("book"), {}).send();
    await server.until("ping");
    await connection.close();
    expect(await cancelled).toMatchObject({ kind: "loss", loss: { kind: "closed-here" } });
  });

  it("is dropped by any answer, an error too: a server without ping is a healthy server", async () => {
    const server = await raw(
      legacyHandlers({ "tools/call": (turn) => turn.status(500), ping: (turn) => turn.error({ code: -32601, message: "no" }) }),
    );
    const { connection } = await connected(http(server.url));
    for (const round of [1, 2]) {
      await connection.prepareCall(call("book"), {}).send();
      await server.until("ping", round);
      // One suspicion at a time: the next call's comes when this one is settled.
      expect((await connection.request("resources/list", undefined)).kind).toBe("answer");
    }
    expect(connection.open).toBe(true);
    expect(server.requests("tools/list")).toHaveLength(1);
  });

  it("is confirmed by tools/list before the connection is given up for a new one", async () => {
    const server = await raw(legacyHandlers({ "tools/call": (turn) => turn.status(500) }));
    const { connection, states, until } = await connected(http(server.url));
    const dead = (name: string) => {
      const healthy = server.handlers[name];
      server.handlers[name] = (turn) =>
        turn.seen.headers["mcp-session-id"] === "session-1" ? turn.status(400) : healthy?.(turn);
    };
    dead("ping");
    dead("tools/list");
    await connection.prepareCall(call("book"), {}).send();
    expect(await connection.closed).toMatchObject({ kind: "http-status", httpStatus: 400 });
    await expect.poll(() => states).toContain("reconnecting");
    await until("connected");
    expect(
      server.seen.map((seen) => seen.method).filter((method) => method !== "GET" && method !== "notifications/initialized"),
    ).toEqual([
      "server/discover",
      "initialize",
      "tools/list",
      "tools/call",
      "ping",
      "tools/list",
      "DELETE",
      "initialize",
      "tools/list",
    ]);
  });

  it("asks a modern server with server/discover", async () => {
    const server = await raw(modernHandlers({ "tools/call": (turn) => turn.reset() }));
    const { connection } = await connected(http(server.url));
    await connection.prepareCall(call("book"), {}).send();
    await server.until("server/discover", 2);
    expect(connection.open).toBe(true);
  });

  it("does not arise from a cancelled request", async () => {
    const server = child();
    const { connection } = await connected(server.definition);
    await connection.request("tools/call", call("hang"), { timeoutMs: 20 });
    expect((await connection.prepareCall(call("answer"), {}).send()).kind).toBe("answer");
    expect(server.received("ping")).toHaveLength(0);
  });
});

describe("changed tools", () => {
  it("are listed again when the server says so", async () => {
    const { server: hosted, connection } = await connected(child().definition);
    const changed = new Promise<void>((resolve) => hosted.onDidChangeTools(resolve));
    await connection.prepareCall(call("changed"), {}).send();
    await changed;
    expect(hosted.tools.map((tool) => tool.name)).toEqual(["answer", "list-2"]);
  });

  it("are told only when they changed", async () => {
    const server = await raw(legacyHandlers());
    const { server: hosted, connection } = await connected(http(server.url));
    let told = 0;
    hosted.onDidChangeTools(() => told++);
    await hosted.rediscover(connection);
    expect(told).toBe(0);
  });
});

describe("nothing is left behind", () => {
  /** Sockets, pipes and processes; the polling of this test has timers of its own. */
  const handles = () =>
    process
      .getActiveResourcesInfo()
      .filter((kind) => /TCP|Pipe|Process/.test(kind))
      .sort();

  it("by 30 restarts of a process", { timeout: 60_000 }, async () => {
    const server = child();
    const { server: hosted } = host(server.definition);
    await hosted.connect();
    await hosted.stop();
    await expect.poll(handles).not.toContain("ProcessWrap");
    const [before, listeners] = [handles(), process.listenerCount("exit")];
    for (let round = 0; round < 30; round++) {
      await hosted.connect();
      await hosted.stop();
    }
    expect(server.pids().filter(lives)).toEqual([]);
    await expect.poll(handles).toEqual(before);
    expect(process.listenerCount("exit")).toBe(listeners);
  });

  it("by 100 connections to a server over HTTP", { timeout: 60_000 }, async () => {
    const server = await raw(legacyHandlers({ GET: (turn) => turn.stream() }));
    const { server: hosted } = host(http(server.url));
    await hosted.connect();
    await hosted.stop();
    await expect.poll(() => server.open).toBe(0);
    const before = handles();
    for (let round = 0; round < 100; round++) {
      const connection = await hosted.connect();
      await connection.prepareCall(call("book"), {}).send();
      await hosted.stop();
    }
    await expect.poll(() => server.open).toBe(0);
    await expect.poll(handles).toEqual(before);
    expect(server.requests("DELETE")).toHaveLength(101);
  });
});
