import { describe, expect, it, onTestFinished } from "vitest";
import { busyMs, idleWaits, probeMs, wakeSpreadMs } from "../../../../src/hosting/health/probe.ts";
import { reconnectWaits } from "../../../../src/hosting/health/reconnects.ts";
import { wakeWatch } from "../../../../src/hosting/health/wake.ts";
import { FakeClock, host, http, type Hosted } from "../fixtures/host.ts";
import { legacyHandlers, modernHandlers, RawServer, type Handlers } from "../fixtures/raw-http.ts";

const call = (name: string) => ({ name, arguments: {} });

async function lab(
  handlers: Handlers = legacyHandlers(),
  clock = new FakeClock(),
): Promise<Hosted & { raw: RawServer; clock: FakeClock }> {
  const raw = await RawServer.start(handlers);
  onTestFinished(() => raw.close());
  const hosted = host(http(raw.url), { clock, random: () => 0.5 });
  return { ...hosted, raw, clock };
}

const asked = ({ server }: Hosted): number => server.health.probes;

/** A question that was asked and answered: the server is known to be there. */
async function answered(
  { server, raw, clock }: Hosted & { raw: RawServer; clock: FakeClock },
  method: string,
  count: number,
): Promise<void> {
  await raw.until(method, count);
  await expect.poll(() => server.health.latency).toMatchObject({ method, at: clock.now() });
  // Its answer has been taken in: the wait for the next question has begun.
  await new Promise((resolve) => setImmediate(resolve));
}

describe("an idle server", () => {
  it("is asked after a minute, then half as often each time, at last every quarter of an hour", async () => {
    const its = await lab();
    await its.server.connect();
    let count = 0;
    for (const wait of [60_000, 120_000, 240_000, 480_000, 900_000, 900_000]) {
      its.clock.advance(wait - 1);
      await new Promise((resolve) => setImmediate(resolve));
      expect(asked(its)).toBe(count);
      its.clock.advance(1);
      await answered(its, "ping", ++count);
    }
    expect(idleWaits).toEqual({ first: 60_000, longest: 900_000 });
    expect(its.states).toEqual(["connecting", "connected"]);
    expect(asked(its)).toBe(6);
  });

  it("is not asked while there is traffic, and then a minute after it", async () => {
    const its = await lab();
    const connection = await its.server.connect();
    for (let minute = 0; minute < 10; minute++) {
      its.clock.advance(50_000);
      await connection.prepareCall(call("book"), {}).send();
    }
    expect(its.raw.requests("ping")).toHaveLength(0);
    its.clock.advance(60_000);
    await its.raw.until("ping");
  });

  it("is healthy without knowing what a ping is", async () => {
    const its = await lab(legacyHandlers({ ping: (turn) => turn.error({ code: -32601, message: "Method not found" }) }));
    await its.server.connect();
    its.clock.advance(idleWaits.first);
    await answered(its, "ping", 1);
    expect(its.states).toEqual(["connecting", "connected"]);
    expect(its.raw.requests("tools/list")).toHaveLength(1);
  });

  it("of the 2026-07-28 era is asked with server/discover", async () => {
    const its = await lab(modernHandlers());
    await its.server.connect();
    its.clock.advance(idleWaits.first);
    await answered(its, "server/discover", 2);
    expect(its.raw.requests("ping")).toHaveLength(0);
  });

  it("is degraded when it does not answer, and connected again when it answers the second question", async () => {
    const its = await lab(legacyHandlers({ ping: () => undefined }));
    await its.server.connect();
    its.clock.advance(idleWaits.first);
    await its.raw.until("ping");
    expect(its.server.status.state).toBe("connected");
    its.clock.advance(probeMs);
    await its.until("degraded");
    expect(its.server.status.reason).toBe("The server did not answer a question in time.");
    await its.until("connected");
    expect(its.raw.requests("tools/list")).toHaveLength(2);
    expect(its.raw.requests("initialize")).toHaveLength(1);
  });
});

describe("a question", () => {
  it("is never asked while a call is in flight, however long that takes", async () => {
    let finish = (): void => undefined;
    const its = await lab(legacyHandlers({ "tools/call": (turn) => (finish = () => turn.result({})) }));
    const connection = await its.server.connect();
    const ending = connection.prepareCall(call("book"), {}).send();
    await its.raw.until("tools/call");
    its.clock.advance(3_600_000);
    expect(asked(its)).toBe(0);
    finish();
    expect((await ending).kind).toBe("answer");
    // The answer itself was proof.
    expect(asked(its)).toBe(0);
    expect(its.states).toEqual(["connecting", "connected"]);
  });

  it("is asked although a call is open that nobody waits for any more; a server that may be busy is not given up at once", async () => {
    const its = await lab(legacyHandlers({ "tools/call": () => undefined, ping: () => undefined }));
    const connection = await its.server.connect();
    const late = connection.prepareCall(call("book"), {});
    const ending = late.send();
    await its.raw.until("tools/call");
    its.raw.handlers["tools/list"] = () => undefined;
    late.stopWaiting();
    expect(its.server.status).toMatchObject({ state: "degraded", reason: "A call was not answered in time." });
    let round = 0;
    const silentSince = its.clock.now();
    for (;;) {
      round++;
      await its.raw.until("ping", round);
      its.clock.advance(probeMs);
      await its.raw.until("tools/list", round + 1);
      if (its.clock.now() + probeMs - silentSince >= busyMs.silence) break;
      its.clock.advance(probeMs);
      await expect.poll(() => its.clock.waits).toContain(busyMs.again);
      expect(its.server.status.state).toBe("degraded");
      its.clock.advance(busyMs.again);
    }
    expect(round).toBe(5);
    its.clock.advance(probeMs);
    await its.until("reconnecting");
    // The call itself is still listened to.
    expect(await Promise.race([ending, Promise.resolve("open")])).toBe("open");
  });

  it("is not asked again when the late answer of that call comes", async () => {
    let finish = (): void => undefined;
    const its = await lab(legacyHandlers({ "tools/call": (turn) => (finish = () => turn.result({})), ping: () => undefined }));
    const connection = await its.server.connect();
    const late = connection.prepareCall(call("book"), {});
    const ending = late.send();
    await its.raw.until("tools/call");
    late.stopWaiting();
    await its.raw.until("ping");
    finish();
    await ending;
    expect(its.server.status.state).toBe("connected");
    its.clock.advance(probeMs);
    await new Promise((resolve) => setImmediate(resolve));
    expect(its.raw.requests("tools/list")).toHaveLength(1);
  });
});

describe("a sleep of the computer", () => {
  it("leads to one question to each server, not all at the same moment", async () => {
    const clock = new FakeClock();
    const labs = [await lab(legacyHandlers(), clock), await lab(legacyHandlers(), clock)];
    for (const its of labs) await its.server.connect();
    clock.sleep(8 * 3_600_000);
    clock.advance(wakeWatch.every);
    for (const its of labs) expect(its.server.status.state).toBe("connected");
    clock.advance(wakeSpreadMs);
    for (const its of labs) {
      await answered(its, "ping", 1);
      expect(its.states).toEqual(["connecting", "connected", "degraded", "connected"]);
      expect(its.server.health.history.at(-2)?.why).toBe("The computer was asleep.");
    }
    clock.advance(idleWaits.first - wakeSpreadMs);
    for (const its of labs) expect(its.raw.requests("ping")).toHaveLength(1);
  });

  it("is not seen in a timer that is a little late", async () => {
    const its = await lab();
    await its.server.connect();
    its.clock.sleep(wakeWatch.late - 1);
    its.clock.advance(wakeWatch.every + wakeSpreadMs);
    expect(its.states).toEqual(["connecting", "connected"]);
  });
});

describe("what an HTTP server says of itself while it restarts", () => {
  for (const status of [500, 502, 503, 504, 429, 408])
    it(`${status} without Retry-After is tried again, within the bounds`, async () => {
      const its = await lab({
        "server/discover": (turn) => turn.status(status),
        initialize: (turn) => turn.status(status),
        GET: (turn) => turn.status(status),
      });
      await its.server.connect().catch(() => undefined);
      const waits: number[] = [];
      for (let attempt = 1; attempt <= 9; attempt++) {
        await its.until("reconnecting");
        expect(its.server.status.attempt).toBe(attempt);
        const wait = (its.server.status.nextTryAt ?? 0) - its.clock.now();
        waits.push(wait);
        const again = its.until("connecting");
        its.clock.advance(wait);
        await again;
      }
      expect(waits).toEqual([500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
      expect(Math.max(...waits)).toBeLessThanOrEqual(reconnectWaits.longest);
    });

  for (const status of [400, 404, 405])
    it(`${status} to everything is no reason to try again`, async () => {
      const its = await lab({
        "server/discover": (turn) => turn.status(status),
        initialize: (turn) => turn.status(status),
        GET: (turn) => turn.status(status),
      });
      await its.server.connect().catch(() => undefined);
      expect(its.server.status.state).toBe("failed");
      expect(its.clock.pending).toBe(0);
    });
});
