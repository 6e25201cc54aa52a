import { describe, expect, it, onTestFinished } from "vitest";
import type { EventCursor } from "../../../src/hosting/evidence.ts";
import { connected, http, recorder } from "./fixtures/host.ts";
import { legacyHandlers, RawServer, type Handler, type Handlers, type Turn } from "./fixtures/raw-http.ts";

async function raw(handlers: Handlers): Promise<RawServer> {
  const server = await RawServer.start(handlers);
  onTestFinished(() => server.close());
  return server;
}

const call = { name: "book", arguments: {} };
const done = { content: [{ type: "text", text: "done" }] };
const answerTo = (id: unknown) => ({ jsonrpc: "2.0", id, result: done });
const loss = (kind: string) => ({ kind: "loss", loss: { kind, stage: "answering" } });

/** A server that loses the answer to a call after event e-1, and does as the test says when it is asked to resume. */
async function losing(resumed: Handler, retryMs?: number, standalone: Handler = (turn) => turn.status(405)): Promise<RawServer> {
  return raw(
    legacyHandlers({
      "tools/call": (turn) => {
        turn.stream();
        turn.event({ id: "e-1", ...(retryMs === undefined ? {} : { retry: retryMs }) });
        turn.response.end();
      },
      GET: (turn) => (turn.seen.headers["last-event-id"] === undefined ? standalone(turn) : resumed(turn)),
    }),
  );
}

const resumes = (server: RawServer) => server.requests("GET").filter((seen) => seen.headers["last-event-id"] !== undefined);

/** Makes the call, loses its answer, resumes it. */
async function loseAndResume(server: RawServer, signal?: AbortSignal) {
  const { connection } = await connected(http(server.url));
  const seen = recorder();
  const prepared = connection.prepareCall(call, seen);
  expect(await prepared.send()).toMatchObject({ kind: "loss", loss: { kind: "stream-ended", stage: "answering" } });
  const lostAt = performance.now();
  const cursor = seen.cursors.at(-1) as EventCursor;
  const again = recorder();
  const ending = await connection.resume(prepared.rpcId, cursor, again, signal);
  expect(server.requests("tools/call")).toHaveLength(1);
  return { ending, cursor, again, prepared, lostAt, connection };
}

const idOf = (turn: Turn) => turn.server.requests("tools/call")[0]?.body.id;

describe("fetching a lost answer by GET with Last-Event-ID", () => {
  it("delivers it, in the same session, without a further POST", async () => {
    const server = await losing((turn) => {
      turn.stream();
      turn.event({ id: "e-2", data: answerTo(idOf(turn)) });
    });
    const { ending, prepared } = await loseAndResume(server);
    expect(ending).toMatchObject({ kind: "answer", answer: { id: prepared.rpcId, result: done } });
    expect(resumes(server)).toHaveLength(1);
    expect(resumes(server)[0]?.headers).toMatchObject({
      "last-event-id": "e-1",
      "mcp-session-id": "session-1",
      "mcp-protocol-version": "2025-11-25",
      accept: "text/event-stream",
    });
  });

  it("waits for the server's retry first", async () => {
    const server = await losing((turn) => {
      turn.stream();
      turn.event({ data: answerTo(idOf(turn)) });
    }, 80);
    const { cursor, lostAt } = await loseAndResume(server);
    expect(cursor.retryMs).toBe(80);
    expect((resumes(server)[0]?.at ?? 0) - lostAt).toBeGreaterThanOrEqual(78);
  });

  it("goes on from the latest event when the resumed stream ends again, and passes on what came on it", async () => {
    const server = await losing((turn) => {
      turn.stream();
      const round = resumes(turn.server).length;
      if (round === 3) turn.event({ data: answerTo(idOf(turn)) });
      else
        turn.event({
          id: `e-${round + 1}`,
          data: { jsonrpc: "2.0", method: "notifications/message", params: { level: "info", data: `round ${round}` } },
        });
      turn.response.end();
    });
    const { ending, again } = await loseAndResume(server);
    expect(ending.kind).toBe("answer");
    expect(resumes(server).map((seen) => seen.headers["last-event-id"])).toEqual(["e-1", "e-2", "e-3"]);
    expect(again.cursors).toMatchObject([{ eventId: "e-2" }, { eventId: "e-3" }]);
    expect(again.heard).toHaveLength(2);
  });

  it("keeps the cursor through empty streams, and stops after a few", async () => {
    const server = await losing((turn) => (turn.stream(), turn.response.end()));
    const { ending } = await loseAndResume(server);
    expect(ending).toEqual(loss("stream-ended"));
    expect(resumes(server).map((seen) => seen.headers["last-event-id"])).toEqual(["e-1", "e-1", "e-1", "e-1"]);
  });

  it("tries again when the GET itself fails in passing", async () => {
    const server = await losing((turn) => {
      const round = resumes(turn.server).length;
      if (round === 1) {
        turn.reset();
        return;
      }
      if (round === 2) {
        turn.status(503);
        return;
      }
      turn.stream();
      turn.event({ data: answerTo(idOf(turn)) });
    });
    expect((await loseAndResume(server)).ending.kind).toBe("answer");
    expect(resumes(server)).toHaveLength(3);
  });

  it.each([400, 404, 405, 410])(
    "gives up at once when the GET is refused (%i), without calling that a refusal of the call",
    async (status) => {
      const server = await losing((turn) =>
        turn.status(status, '{"jsonrpc":"2.0","error":{"code":-32001,"message":"gone"},"id":null}', {
          "content-type": "application/json",
        }),
      );
      const { ending, connection } = await loseAndResume(server);
      expect(ending).toEqual(loss("stream-ended"));
      expect(resumes(server)).toHaveLength(1);
      expect(connection.open).toBe(true);
    },
  );

  it("ends with the signal", async () => {
    const stop = new AbortController();
    const server = await losing((turn) => {
      turn.stream();
      stop.abort();
    });
    expect((await loseAndResume(server, stop.signal)).ending).toEqual(loss("cancelled-here"));
  });

  it("ends with the connection", async () => {
    const server = await losing((turn) => turn.stream());
    const { server: hosted, connection } = await connected(http(server.url));
    const seen = recorder();
    const prepared = connection.prepareCall(call, seen);
    await prepared.send();
    const ending = connection.resume(prepared.rpcId, seen.cursors.at(-1) as EventCursor, {});
    await expect.poll(() => resumes(server)).toHaveLength(1);
    await hosted.stop();
    expect(await ending).toEqual(loss("closed-here"));
  });

  it("takes the answer, too, when it comes on the standalone stream meanwhile", async () => {
    let standalone: Turn | undefined;
    const server = await losing(
      (turn) => {
        turn.stream();
        standalone?.event({ data: answerTo(idOf(turn)) });
      },
      undefined,
      (turn) => (turn.stream(), (standalone = turn)),
    );
    expect((await loseAndResume(server)).ending.kind).toBe("answer");
  });

  it("works over a connection that did not make the call, in the call's own session", async () => {
    const server = await losing((turn) => {
      turn.stream();
      turn.event({ data: answerTo(idOf(turn)) });
    });
    const first = await connected(http(server.url));
    const seen = recorder();
    const prepared = first.connection.prepareCall(call, seen);
    await prepared.send();
    const second = await connected(http(server.url));
    const ending = await second.connection.resume(prepared.rpcId, seen.cursors.at(-1) as EventCursor, {});
    expect(ending.kind).toBe("answer");
    expect(second.connection.facts.sessionId).toBe("session-2");
    expect(resumes(server)[0]?.headers["mcp-session-id"]).toBe("session-1");
  });

  it("joins the call when that is still listened to", async () => {
    let finish = (): void => undefined;
    const server = await raw(legacyHandlers({ "tools/call": (turn) => (finish = () => turn.result(done)) }));
    const { connection } = await connected(http(server.url));
    const prepared = connection.prepareCall(call, {});
    const ending = prepared.send();
    await server.until("tools/call");
    const resumed = connection.resume(prepared.rpcId, { eventId: "e-1", protocolVersion: "2025-11-25" }, {});
    finish();
    expect(await resumed).toBe(await ending);
    expect(resumes(server)).toHaveLength(0);
  });
});
