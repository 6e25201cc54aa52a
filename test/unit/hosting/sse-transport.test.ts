import { describe, expect, it, onTestFinished } from "vitest";
import type { ServerDefinition } from "../../../src/hosting/definitions.ts";
import { connected, host, recorder } from "./fixtures/host.ts";
import { RawServer, tools, type Handlers, type Turn } from "./fixtures/raw-http.ts";

const sse = (url: string): ServerDefinition => ({ type: "sse", url, headers: { "X-Key": "k" } });
const call = { name: "book", arguments: {} };
const done = { content: [{ type: "text", text: "done" }] };

interface SseServer {
  readonly server: RawServer;
  /** The event stream that is open now. */
  readonly stream: () => Turn;
  readonly send: (message: unknown) => void;
}

/** A server of 2024-11-05: answers come on the GET stream. */
async function started(more: Handlers = {}, endpoint = "/message?session=1"): Promise<SseServer> {
  let open: Turn | undefined;
  const stream = (): Turn => {
    if (!open) throw new Error("no stream");
    return open;
  };
  const send = (message: unknown): void => stream().event({ event: "message", data: message });
  const answering = (result: Record<string, unknown>) => (turn: Turn) => {
    turn.status(202, "Accepted");
    send({ jsonrpc: "2.0", id: turn.seen.body.id, result });
  };
  const server = await RawServer.start({
    GET: (turn) => {
      open = turn;
      turn.stream();
      turn.event({ event: "endpoint", data: endpoint });
    },
    initialize: answering({
      protocolVersion: "2024-11-05",
      capabilities: { tools: {} },
      serverInfo: { name: "old", version: "1" },
    }),
    "tools/list": answering({ tools }),
    "tools/call": answering(done),
    ping: answering({}),
    ...more,
  });
  onTestFinished(() => server.close());
  return { server, stream, send };
}

describe("HTTP+SSE of 2024-11-05", () => {
  it("connects, lists and calls; nothing but the old messages is sent", async () => {
    const { server } = await started();
    const { connection, server: hosted } = await connected(sse(server.url));
    expect(connection.facts).toMatchObject({ era: "2025-11-25", protocolVersion: "2024-11-05", transport: "sse" });
    const seen = recorder();
    expect(await connection.prepareCall(call, seen).send()).toMatchObject({ kind: "answer", answer: { result: done } });
    expect(seen.stages).toEqual(["sending", "sent", "answered"]);
    expect(server.seen.map((seen) => seen.method)).toEqual([
      "GET",
      "initialize",
      "notifications/initialized",
      "tools/list",
      "tools/call",
    ]);
    expect(server.requests("tools/call")[0]?.headers["x-key"]).toBe("k");
    expect(hosted.status.state).toBe("connected");
  });

  it.each([
    ["ends", (turn: Turn) => turn.response.end()],
    ["is reset", (turn: Turn) => turn.reset()],
  ])("everything under way is lost at once when the stream %s", async (_name, end) => {
    const { server, stream } = await started({ "tools/call": (turn) => turn.status(202) });
    const { connection, until, states } = await connected(sse(server.url));
    const [one, two] = [connection.prepareCall(call, {}).send(), connection.prepareCall({ name: "look" }, {}).send()];
    await server.until("tools/call", 2);
    end(stream());
    const lost = { kind: "loss", loss: { kind: "stream-ended", stage: "sent" } };
    expect([await one, await two]).toEqual([lost, lost]);
    expect(connection.open).toBe(false);
    await expect.poll(() => states).toContain("reconnecting");
    await until("connected");
    expect(server.requests("tools/call")).toHaveLength(2);
  });

  it.each([
    [
      "refused",
      (turn: Turn) => turn.status(400, "{}"),
      { kind: "http-status", httpStatus: 400, stage: "answering", bodyIsJsonOrEmpty: true },
    ],
    ["reset", (turn: Turn) => turn.reset(), { kind: "reset", stage: "sent" }],
    [
      "redirected",
      (turn: Turn) => turn.status(307, "", { location: "/elsewhere" }),
      { kind: "redirected", httpStatus: 307, stage: "answering" },
    ],
  ])("a POST that is %s loses its call only, once", async (_name, handler, loss) => {
    const { server } = await started({ "tools/call": handler });
    const { connection } = await connected(sse(server.url));
    expect(await connection.prepareCall(call, {}).send()).toEqual({ kind: "loss", loss });
    expect(connection.open).toBe(true);
    expect(server.requests("tools/call")).toHaveLength(1);
  });

  it("an answer that comes on the stream after the POST was lost is late", async () => {
    const { server, send } = await started({ "tools/call": (turn) => turn.reset() });
    const { connection } = await connected(sse(server.url));
    const seen = recorder();
    const prepared = connection.prepareCall(call, seen);
    await prepared.send();
    send({ jsonrpc: "2.0", id: prepared.rpcId, result: done });
    expect(await seen.late_).toMatchObject({ result: done });
  });

  it("an endpoint on another origin is not used", async () => {
    const { server } = await started({}, "http://localhost:1/message");
    const hosted = host(sse(server.url));
    await expect(hosted.server.connect()).rejects.toMatchObject({ kind: "redirected" });
    expect(server.seen.map((seen) => seen.method)).toEqual(["GET"]);
  });

  it.each<[string, (turn: Turn) => void, string]>([
    ["401", (turn) => turn.status(401), "unauthorised"],
    ["404", (turn) => turn.status(404), "http-status"],
    ["a page", (turn) => turn.status(200, "<html>", { "content-type": "text/html" }), "not-json"],
    ["a stream that ends without an endpoint", (turn) => (turn.stream(), turn.response.end()), "stream-ended"],
  ])("%s instead of the stream is a clear error", async (_name, handler, kind) => {
    const { server } = await started({ GET: handler });
    await expect(host(sse(server.url)).server.connect()).rejects.toMatchObject({ kind });
  });

  it("leaves no stream open when it is stopped", async () => {
    const { server, stream } = await started();
    const { server: hosted } = await connected(sse(server.url));
    const closed = new Promise<void>((resolve) => stream().response.once("close", resolve));
    await hosted.stop();
    await closed;
  });
});
