import { describe, expect, it, onTestFinished } from "vitest";
import { readFileSync } from "node:fs";
import { crashLoop } from "../../../../src/hosting/health/reconnects.ts";
import { probeMs } from "../../../../src/hosting/health/probe.ts";
import { healthEvents, nameOf, nextState, serverStates, transitions } from "../../../../src/hosting/health/transitions.ts";
import type { HostedServerOptions } from "../../../../src/hosting/server-host.ts";
import { child, type Child } from "../fixtures/child.ts";
import { FakeClock, host, http, type Hosted } from "../fixtures/host.ts";
import { legacyHandlers, RawServer, type Handlers } from "../fixtures/raw-http.ts";

const call = (name = "book") => ({ name, arguments: {} });

interface Lab extends Hosted {
  readonly clock: FakeClock;
  readonly raw: RawServer;
  /** The workspace is trusted. */
  trusted: boolean;
}

async function lab(handlers: Handlers = {}, options: Partial<HostedServerOptions> = {}): Promise<Lab> {
  const raw = await RawServer.start(legacyHandlers(handlers));
  onTestFinished(() => raw.close());
  const clock = new FakeClock();
  const self: { trusted: boolean } = { trusted: true };
  const hosted = host(http(raw.url), { clock, random: () => 0.5, mayStart: () => self.trusted, ...options });
  return Object.assign(self, { ...hosted, clock, raw });
}

/** The rows that were taken, in order. */
const rowsOf = ({ server }: Hosted): string[] => server.health.history.map(nameOf);
const lastRow = (hosted: Hosted): string | undefined => rowsOf(hosted).at(-1);

/** Answers as set now, for as long as the test says so. */
const unauthorised: Handlers[string] = (turn) => turn.status(401);
const away: Handlers[string] = (turn) => turn.status(503);
const silent: Handlers[string] = () => undefined;

/** One way into each state. */
const enter = {
  stopped: () => lab(),
  "waiting-for-trust": async () => {
    const its = await lab();
    its.trusted = false;
    await its.server.connect().catch(() => undefined);
    return its;
  },
  "needs-authorisation": async () => {
    const its = await lab({ "server/discover": unauthorised });
    await its.server.connect().catch(() => undefined);
    return its;
  },
  connecting: async () => {
    const its = await lab({ "server/discover": silent });
    its.server.connect().catch(() => undefined);
    await its.raw.until("server/discover");
    return its;
  },
  connected: async () => {
    const its = await lab();
    await its.server.connect();
    return its;
  },
  degraded: async () => {
    const its = await lab({ "tools/call": (turn) => turn.reset(), ping: silent });
    const connection = await its.server.connect();
    await connection.prepareCall(call(), {}).send();
    await its.raw.until("ping");
    return its;
  },
  reconnecting: async () => {
    const its = await lab({ "server/discover": away });
    await its.server.connect().catch(() => undefined);
    return its;
  },
  failed: async () => {
    const its = await lab({ initialize: (turn) => turn.status(400) });
    await its.server.connect().catch(() => undefined);
    return its;
  },
} as const;

/** From here on the server answers as it should. */
function mend({ raw }: Lab): void {
  Object.assign(raw.handlers, legacyHandlers());
}

/** A server as a process that is in this state, with so many unexpected ends behind it. */
async function crashed(exits: number): Promise<Hosted & { clock: FakeClock; program: Child }> {
  const clock = new FakeClock();
  const program = child();
  const hosted = host(program.definition, { clock });
  for (let end = 0; end < exits; end++) {
    const connection = await hosted.server.connect();
    await connection.prepareCall(call("exit"), {}).send();
    await hosted.until("reconnecting");
  }
  await hosted.server.connect();
  return { ...hosted, clock, program };
}

describe("each row of the table", () => {
  it("stopped -- wanted --> connecting: the first wish starts it", async () => {
    const its = await enter.stopped();
    expect(its.server.status.state).toBe("stopped");
    await its.server.connect();
    expect(rowsOf(its)).toEqual(["stopped -- wanted --> connecting", "connecting -- listed --> connected"]);
    expect(its.raw.requests("tools/list")).toHaveLength(1);
  });

  it("stopped -- not-trusted --> waiting-for-trust: nothing reaches a server whose workspace is not trusted", async () => {
    const its = await enter["waiting-for-trust"]();
    expect(rowsOf(its)).toEqual(["stopped -- not-trusted --> waiting-for-trust"]);
    await expect(its.server.connect()).rejects.toMatchObject({ kind: "not-connected" });
    await expect(its.server.start()).rejects.toMatchObject({ kind: "not-connected" });
    expect(rowsOf(its)).toHaveLength(1);
    expect(its.raw.seen).toEqual([]);
    expect(its.clock.pending).toBe(0);
  });

  it("waiting-for-trust -- wanted --> connecting: once the workspace is trusted", async () => {
    const its = await enter["waiting-for-trust"]();
    its.trusted = true;
    await its.server.connect();
    expect(rowsOf(its)).toContain("waiting-for-trust -- wanted --> connecting");
    expect(its.server.status.state).toBe("connected");
  });

  it("waiting-for-trust -- stop --> stopped", async () => {
    const its = await enter["waiting-for-trust"]();
    await its.server.stop();
    expect(lastRow(its)).toBe("waiting-for-trust -- stop --> stopped");
  });

  it("needs-authorisation -- wanted --> connecting: asked for again, after authorisation", async () => {
    const its = await enter["needs-authorisation"]();
    mend(its);
    await its.server.start();
    expect(rowsOf(its)).toContain("needs-authorisation -- wanted --> connecting");
    expect(its.server.status.state).toBe("connected");
  });

  it("needs-authorisation -- not-trusted --> waiting-for-trust", async () => {
    const its = await enter["needs-authorisation"]();
    its.trusted = false;
    await expect(its.server.connect()).rejects.toMatchObject({ kind: "not-connected" });
    expect(lastRow(its)).toBe("needs-authorisation -- not-trusted --> waiting-for-trust");
    expect(its.raw.seen).toHaveLength(1);
  });

  it("needs-authorisation -- stop --> stopped", async () => {
    const its = await enter["needs-authorisation"]();
    await its.server.stop();
    expect(lastRow(its)).toBe("needs-authorisation -- stop --> stopped");
  });

  it("connecting -- listed --> connected: only when tools/list was answered", async () => {
    const its = await lab({ "tools/list": silent });
    const connecting = its.server.connect();
    const { body } = await its.raw.until("tools/list");
    expect(body["method"]).toBe("tools/list");
    expect(its.server.status.state).toBe("connecting");
    its.clock.advance(30_000);
    await expect(connecting).rejects.toMatchObject({ kind: "no-answer" });
    mend(its);
    await its.server.connect();
    expect(lastRow(its)).toBe("connecting -- listed --> connected");
  });

  it("connecting -- attempt-failed --> reconnecting: with the number and time of the next attempt", async () => {
    const its = await enter.reconnecting();
    expect(lastRow(its)).toBe("connecting -- attempt-failed --> reconnecting");
    expect(its.server.status).toMatchObject({ attempt: 1, nextTryAt: its.clock.now() + 500 });
    for (const [attempt, wait] of [
      [2, 1_000],
      [3, 2_000],
    ] as const) {
      const again = its.until("connecting");
      its.clock.advance(wait / 2);
      await again;
      expect(its.server.status).toMatchObject({ state: "connecting", attempt: attempt - 1 });
      await its.until("reconnecting");
      expect(its.server.status).toMatchObject({ attempt, nextTryAt: its.clock.now() + wait });
    }
  });

  it("connecting -- refused --> failed: waiting does not mend it, and nothing is tried", async () => {
    const its = await enter.failed();
    expect(lastRow(its)).toBe("connecting -- refused --> failed");
    expect(its.server.status).toMatchObject({ reason: expect.stringMatching(/HTTP 400/), since: its.clock.now() });
    expect(its.clock.pending).toBe(0);
  });

  it("connecting -- unauthorised --> needs-authorisation: nothing is tried until somebody asks", async () => {
    const its = await enter["needs-authorisation"]();
    expect(lastRow(its)).toBe("connecting -- unauthorised --> needs-authorisation");
    expect(its.clock.pending).toBe(0);
    its.clock.advance(3_600_000);
    expect(its.raw.seen).toHaveLength(1);
  });

  it("connecting -- crash-loop --> failed: with what the program said last", async () => {
    const clock = new FakeClock();
    const program = child("crash");
    const hosted = host(program.definition, { clock });
    hosted.server.connect().catch(() => undefined);
    for (let turn = 0; turn < 2; turn++) {
      await hosted.until("reconnecting");
      const connecting = hosted.until("connecting");
      clock.advance(clock.waits[0] ?? 0);
      await connecting;
    }
    await hosted.until("failed");
    expect(lastRow(hosted)).toBe("connecting -- crash-loop --> failed");
    expect(clock.pending).toBe(0);
  });

  it("connecting -- stop --> stopped: the attempt is given up", async () => {
    const its = await enter.connecting();
    await its.server.stop();
    expect(lastRow(its)).toBe("connecting -- stop --> stopped");
    expect(its.clock.pending).toBe(0);
    await expect.poll(() => its.raw.open).toBe(0);
  });

  it("connected -- suspected --> degraded: calls are still sent on it", async () => {
    const its = await enter.degraded();
    expect(lastRow(its)).toBe("connected -- suspected --> degraded");
    expect(its.server.status).toMatchObject({ era: "2025-11-25", reason: expect.stringMatching(/A request was lost/) });
    expect(its.server.connection).toBeDefined();
  });

  it("connected -- lost --> reconnecting: a session that the server ended", async () => {
    const its = await enter.connected();
    its.raw.handlers["tools/call"] = (turn) => turn.status(404);
    await (await its.server.connect()).prepareCall(call(), {}).send();
    await its.until("reconnecting");
    expect(lastRow(its)).toBe("connected -- lost --> reconnecting");
    expect(its.server.status.reason).toBe("The connection was lost: the server no longer knows the session.");
    await expect.poll(() => its.clock.waits).toEqual([500]);
  });

  it("connected -- crash-loop --> failed: the fifth end within a minute", async () => {
    const hosted = await crashed(crashLoop.exits - 1);
    const connection = await hosted.server.connect();
    await connection.prepareCall(call("exit"), {}).send();
    await hosted.until("failed");
    expect(lastRow(hosted)).toBe("connected -- crash-loop --> failed");
    expect(hosted.server.status.lastOutput).toBeUndefined();
    expect(hosted.program.pids()).toHaveLength(crashLoop.exits);
    await expect.poll(() => hosted.clock.pending).toBe(0);
    await expect(hosted.server.connect()).rejects.toMatchObject({ kind: "process-exit" });
  });

  it("connected -- stop --> stopped: its session is ended", async () => {
    const its = await enter.connected();
    await its.server.stop();
    expect(lastRow(its)).toBe("connected -- stop --> stopped");
    expect(its.raw.requests("DELETE")).toHaveLength(1);
    expect(its.clock.pending).toBe(0);
  });

  it("degraded -- proved --> connected: by the answer to any request", async () => {
    const its = await enter.degraded();
    const connection = await its.server.connect();
    expect((await connection.request("resources/list", undefined)).kind).toBe("answer");
    expect(lastRow(its)).toBe("degraded -- proved --> connected");
    expect(its.server.connection).toBe(connection);
  });

  it("degraded -- lost --> reconnecting: neither question was answered", async () => {
    const its = await enter.degraded();
    its.raw.handlers["tools/list"] = silent;
    its.clock.advance(probeMs);
    await its.raw.until("tools/list", 2);
    expect(its.server.status.state).toBe("degraded");
    its.clock.advance(probeMs);
    await its.until("reconnecting");
    expect(lastRow(its)).toBe("degraded -- lost --> reconnecting");
    expect(its.server.status.reason).toBe("The connection was lost: the server sent no answer.");
  });

  it("degraded -- unauthorised --> needs-authorisation: it refuses its questions too", async () => {
    const its = await enter.connected();
    for (const method of ["tools/call", "ping", "tools/list"]) its.raw.handlers[method] = unauthorised;
    await (await its.server.connect()).prepareCall(call(), {}).send();
    await its.until("needs-authorisation");
    expect(lastRow(its)).toBe("degraded -- unauthorised --> needs-authorisation");
    await its.raw.until("DELETE");
    await expect.poll(() => its.clock.pending).toBe(0);
  });

  it("degraded -- crash-loop --> failed: the fifth end, of one that hung before", async () => {
    const hosted = await crashed(crashLoop.exits - 1);
    const pid = hosted.program.pids().at(-1) ?? 0;
    process.kill(pid, "SIGSTOP");
    const connection = await hosted.server.connect();
    const lost = connection.prepareCall(call("hang"), {});
    const ending = lost.send();
    lost.stopWaiting();
    expect(hosted.server.status.state).toBe("degraded");
    process.kill(pid, "SIGKILL");
    await hosted.until("failed");
    expect(lastRow(hosted)).toBe("degraded -- crash-loop --> failed");
    expect(await ending).toMatchObject({ kind: "loss", loss: { kind: "process-exit" } });
  });

  it("degraded -- stop --> stopped", async () => {
    const its = await enter.degraded();
    await its.server.stop();
    expect(lastRow(its)).toBe("degraded -- stop --> stopped");
    expect(its.clock.pending).toBe(0);
  });

  it("reconnecting -- wanted --> connecting: a caller does not wait", async () => {
    const its = await enter.reconnecting();
    mend(its);
    await its.server.connect();
    expect(rowsOf(its)).toContain("reconnecting -- wanted --> connecting");
    expect(its.clock.waits.filter((wait) => wait === 500)).toEqual([]);
  });

  it("reconnecting -- due --> connecting: the wait is over", async () => {
    const its = await enter.reconnecting();
    mend(its);
    its.clock.advance(499);
    expect(its.server.status.state).toBe("reconnecting");
    its.clock.advance(1);
    await its.until("connected");
    expect(rowsOf(its)).toContain("reconnecting -- due --> connecting");
  });

  it("reconnecting -- not-trusted --> waiting-for-trust: whether a caller asks or the wait is over", async () => {
    for (const asked of [true, false]) {
      const its = await enter.reconnecting();
      const before = its.raw.seen.length;
      its.trusted = false;
      if (asked) await its.server.connect().catch(() => undefined);
      else its.clock.advance(500);
      expect(lastRow(its)).toBe("reconnecting -- not-trusted --> waiting-for-trust");
      expect(its.raw.seen).toHaveLength(before);
      expect(its.clock.pending).toBe(0);
    }
  });

  it("reconnecting -- stop --> stopped", async () => {
    const its = await enter.reconnecting();
    await its.server.stop();
    expect(lastRow(its)).toBe("reconnecting -- stop --> stopped");
    expect(its.clock.pending).toBe(0);
  });

  it("failed -- wanted --> connecting: asked for again", async () => {
    const its = await enter.failed();
    mend(its);
    await its.server.connect();
    expect(rowsOf(its)).toContain("failed -- wanted --> connecting");
  });

  it("failed -- not-trusted --> waiting-for-trust", async () => {
    const its = await enter.failed();
    its.trusted = false;
    await its.server.connect().catch(() => undefined);
    expect(lastRow(its)).toBe("failed -- not-trusted --> waiting-for-trust");
  });

  it("failed -- stop --> stopped", async () => {
    const its = await enter.failed();
    await its.server.stop();
    expect(lastRow(its)).toBe("failed -- stop --> stopped");
  });
});

describe("the table", () => {
  it("has one test for each row, by its name", () => {
    const source = readFileSync(new URL(import.meta.url), "utf8");
    const titled = [...source.matchAll(/^ {2}it\("(\S+ -- \S+ --> [a-z-]+)/gm)].map(([, name]) => name);
    expect(titled.sort()).toEqual(transitions.map(nameOf).sort());
  });

  it("names every state and every event, and each state but the first can be left and reached", () => {
    for (const state of serverStates) {
      expect(transitions.some(({ from }) => from === state)).toBe(true);
      expect(transitions.some(({ to }) => to === state)).toBe(true);
    }
    expect(new Set(transitions.map(({ on }) => on))).toEqual(new Set(healthEvents));
    expect(new Set(transitions.map(({ from, on }) => `${from}/${on}`)).size).toBe(transitions.length);
  });

  it("refuses whatever it does not have, as a mistake in the program", () => {
    const legal = new Set(transitions.map(({ from, on }) => `${from}/${on}`));
    for (const from of serverStates)
      for (const on of healthEvents)
        if (!legal.has(`${from}/${on}`)) expect(() => nextState(from, on)).toThrow(/cannot take the event/);
  });
});
