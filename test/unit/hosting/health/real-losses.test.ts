import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { idleWaits, probeMs } from "../../../../src/hosting/health/probe.ts";
import { siblingsMs } from "../../../../src/hosting/retired.ts";
import { child, lives } from "../fixtures/child.ts";
import { connected, FakeClock, host, http } from "../fixtures/host.ts";
import { legacyHandlers, RawServer, type Handlers } from "../fixtures/raw-http.ts";

const call = (name: string) => ({ name, arguments: {} });

async function raw(handlers: Handlers, port = 0): Promise<RawServer> {
  const server = await RawServer.start(handlers, port);
  onTestFinished(() => server.close());
  return server;
}

/** A TCP proxy that can stop forwarding without telling anybody: no FIN, no RST, new connections are taken and starve. */
async function proxyTo(port: number): Promise<{ url: string; freeze: () => void; thaw: () => void; swallowed: () => number }> {
  let frozen = false;
  let swallowed = 0;
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    sockets.add(near);
    near.on("error", () => undefined);
    near.once("close", () => sockets.delete(near));
    near.on("data", () => {
      if (frozen) swallowed++;
    });
    // Whatever was begun while it was frozen stays so.
    if (frozen) return;
    const far = connect(port, "127.0.0.1");
    sockets.add(far);
    far.on("error", () => undefined);
    far.once("close", () => sockets.delete(far));
    near.on("data", (chunk) => {
      if (!frozen) far.write(chunk);
    });
    far.on("data", (chunk) => {
      if (!frozen) near.write(chunk);
    });
    near.once("close", () => far.destroy());
    far.once("close", () => {
      if (!frozen) near.destroy();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    freeze: () => (frozen = true),
    thaw: () => (frozen = false),
    swallowed: () => swallowed,
  };
}

describe("a peer that is gone without a word", () => {
  it("is noticed by two unanswered questions, and found again when it is back", async () => {
    const clock = new FakeClock();
    const server = await raw(legacyHandlers({ GET: (turn) => turn.stream() }));
    const proxy = await proxyTo(Number(new URL(server.url).port));
    const { server: hosted, until } = await connected(http(proxy.url), { clock, random: () => 0.5 });
    await server.until("GET");
    proxy.freeze();
    clock.advance(idleWaits.first);
    await expect.poll(proxy.swallowed).toBe(1);
    clock.advance(probeMs);
    await until("degraded");
    expect(hosted.status.reason).toBe("The server did not answer a question in time.");
    // The first question, its cancellation, the second question.
    await expect.poll(proxy.swallowed).toBe(3);
    clock.advance(probeMs);
    await until("reconnecting");
    proxy.thaw();
    clock.advance(500);
    await until("connected");
    expect(hosted.connection?.facts.sessionId).toBe("session-2");
    expect(hosted.health).toMatchObject({
      reconnects: { total: 1, lastHour: 1 },
      lastReconnect: { why: "The connection was lost: the server sent no answer." },
    });
    // The session that was given up is deleted.
    await server.until("DELETE");
    expect(server.requests("DELETE")[0]?.headers["mcp-session-id"]).toBe("session-1");
  });
});

describe("a process that hangs", () => {
  it("is noticed, ended for good, and replaced by one new process", async () => {
    const clock = new FakeClock();
    const program = child();
    const { until, server: hosted } = await connected(program.definition, { clock, random: () => 0.5 });
    const [pid = 0] = program.pids();
    process.kill(pid, "SIGSTOP");
    clock.advance(idleWaits.first);
    await expect.poll(() => clock.waits).toContain(probeMs);
    clock.advance(probeMs);
    await until("degraded");
    await expect.poll(() => clock.waits).toContain(probeMs);
    clock.advance(probeMs);
    await until("reconnecting");
    // A stopped process hears neither the end of its stdin nor SIGTERM.
    for (let step = 0; step < 3; step++) {
      await expect.poll(() => clock.pending > 0 || hosted.status.state === "connected").toBe(true);
      clock.advance(1_000);
    }
    await until("connected");
    expect(program.pids()).toHaveLength(2);
    expect(program.pids().map(lives)).toEqual([false, true]);
  });

  it("with a call under way is waited for no longer than the bound", async () => {
    const clock = new FakeClock();
    const program = child();
    const { until, server: hosted, connection } = await connected(program.definition, { clock });
    const ending = connection.prepareCall(call("hang"), {}).send();
    const reconnecting = hosted.reconnect();
    await until("connecting");
    clock.advance(siblingsMs.stdio - 1);
    expect(program.pids()).toHaveLength(1);
    clock.advance(1);
    expect(await ending).toMatchObject({ kind: "loss", loss: { kind: "closed-here" } });
    await reconnecting;
    expect(program.pids()).toHaveLength(2);
  });
});

describe("siblings in flight", () => {
  it("on the old connection end by themselves while the new one is at work", async () => {
    let finish = (): void => undefined;
    const server = await raw(
      legacyHandlers({
        "tools/call": (turn) => {
          if (turn.seen.body.params?.["name"] === "slow")
            finish = () => turn.result({ content: [{ type: "text", text: "slow" }] });
          else if (turn.seen.headers["mcp-session-id"] === "session-1") turn.status(404);
          else turn.result({ content: [] });
        },
      }),
    );
    const { connection, server: hosted, until } = await connected(http(server.url));
    const sibling = connection.prepareCall(call("slow"), {}).send();
    await server.until("tools/call");
    expect(await connection.prepareCall(call("book"), {}).send()).toMatchObject({ loss: { kind: "session-gone" } });
    await until("reconnecting");
    const fresh = await hosted.connect();
    expect(fresh).not.toBe(connection);
    expect((await fresh.prepareCall(call("book"), {}).send()).kind).toBe("answer");
    finish();
    expect(await sibling).toMatchObject({ kind: "answer", answer: { result: { content: [{ text: "slow" }] } } });
  });

  it("are not cut off by a person who asks for a new connection", async () => {
    let finish = (): void => undefined;
    const server = await raw(legacyHandlers({ "tools/call": (turn) => (finish = () => turn.result({})) }));
    const { connection, server: hosted } = await connected(http(server.url));
    const sibling = connection.prepareCall(call("book"), {}).send();
    await server.until("tools/call");
    await hosted.reconnect();
    expect(hosted.connection).not.toBe(connection);
    expect(hosted.health.lastReconnect?.why).toBe("A new connection was asked for.");
    expect(server.requests("DELETE")).toHaveLength(0);
    finish();
    expect((await sibling).kind).toBe("answer");
    await server.until("DELETE");
  });
});

it("a server that comes back with other tools is shown with those", async () => {
  const clock = new FakeClock();
  const first = await raw(legacyHandlers());
  const port = Number(new URL(first.url).port);
  const { server: hosted, connection, until } = await connected(http(first.url), { clock, random: () => 0.5 });
  let told = 0;
  hosted.onDidChangeTools(() => told++);
  await first.close();
  await connection.prepareCall(call("book"), {}).send();
  await until("reconnecting");
  await raw(legacyHandlers({ "tools/list": (turn) => turn.result({ tools: [{ name: "other", inputSchema: {} }] }) }), port);
  clock.advance(500);
  await until("connected");
  expect(hosted.tools.map(({ name }) => name)).toEqual(["other"]);
  expect(told).toBe(1);
});

describe("a hundred reconnects leave nothing behind", () => {
  const handles = () =>
    process
      .getActiveResourcesInfo()
      .filter((kind) => /TCP|Pipe|Process/.test(kind))
      .sort();
  const listeners = () => ["exit", "SIGTERM", "SIGINT", "beforeExit"].map((event) => process.listenerCount(event));

  it("over HTTP: sessions that end", { timeout: 60_000 }, async () => {
    const clock = new FakeClock();
    const server = await raw(
      legacyHandlers({
        GET: (turn) => turn.stream(),
        "tools/call": (turn) => turn.status(404),
      }),
    );
    const { server: hosted, until } = host(http(server.url), { clock });
    await hosted.connect();
    await hosted.stop();
    await expect.poll(() => server.open).toBe(0);
    const before = [handles(), listeners()];
    await hosted.connect();
    const timers = clock.pending;
    for (let round = 0; round < 100; round++) {
      const connection = await hosted.connect();
      await connection.prepareCall(call("book"), {}).send();
      await until("reconnecting");
      clock.advance(0);
      await until("connected");
    }
    expect(hosted.health.reconnects.total).toBe(100);
    expect(hosted.health.history.length).toBeLessThanOrEqual(200);
    await expect.poll(() => clock.pending).toBe(timers);
    await hosted.stop();
    expect(clock.pending).toBe(0);
    await expect.poll(() => server.open).toBe(0);
    await expect.poll(handles).toEqual(before[0]);
    expect(listeners()).toEqual(before[1]);
  });

  it("of a process: programs that end", { timeout: 120_000 }, async () => {
    const clock = new FakeClock();
    const program = child();
    const { server: hosted, until } = host(program.definition, { clock });
    await hosted.connect();
    await hosted.stop();
    await expect.poll(handles).not.toContain("ProcessWrap");
    const before = [handles(), listeners()];
    await hosted.connect();
    const timers = clock.pending;
    for (let round = 0; round < 100; round++) {
      const connection = await hosted.connect();
      await connection.prepareCall(call("exit"), {}).send();
      await until("reconnecting");
      clock.advance(0);
      await until("connected");
      clock.advance(20_000);
    }
    expect(hosted.health.reconnects.total).toBe(100);
    expect(program.pids().filter(lives)).toHaveLength(1);
    await expect.poll(() => clock.pending).toBe(timers);
    await hosted.stop();
    expect(program.pids().filter(lives)).toEqual([]);
    await expect.poll(handles).toEqual(before[0]);
    expect(listeners()).toEqual(before[1]);
  });
});
