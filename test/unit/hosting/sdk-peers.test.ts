import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import type { ServerDefinition } from "../../../src/hosting/definitions.ts";
import type { EventCursor } from "../../../src/hosting/evidence.ts";
import { sdkStdio, startV1Http, startV1Sse, startV2Http, type SdkServer } from "../../servers/fault/sdk-servers.ts";
import { connected, host, http, recorder } from "./fixtures/host.ts";

function folder(): string {
  const path = mkdtempSync(join(tmpdir(), "hosting-sdk-"));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

async function peer(started: Promise<SdkServer>): Promise<SdkServer> {
  const server = await started;
  onTestFinished(() => server.close());
  return server;
}

const sse = (url: string): ServerDefinition => ({ type: "sse", url, headers: {} });
const stdio = (command: string, args: readonly string[]): ServerDefinition => ({ type: "stdio", command, args, env: {} });

describe("an SDK server over HTTP is negotiated, listed and called", () => {
  it.each<[string, () => Promise<SdkServer>, string, string]>([
    ["v1 Streamable HTTP, event streams", () => startV1Http({ ledger: folder() }), "2025-11-25", "http"],
    ["v1 Streamable HTTP, event store", () => startV1Http({ ledger: folder(), eventStore: true }), "2025-11-25", "http"],
    ["v1 Streamable HTTP, JSON", () => startV1Http({ ledger: folder(), json: true }), "2025-11-25", "http"],
    ["v1 HTTP+SSE behind an http definition", () => startV1Sse({ ledger: folder() }), "2025-11-25", "sse"],
    ["v2 createMcpHandler, JSON when it can", () => startV2Http({ ledger: folder() }), "2026-07-28", "http"],
    ["v2 createMcpHandler, event streams", () => startV2Http({ ledger: folder(), responseMode: "sse" }), "2026-07-28", "http"],
    [
      "v2 createMcpHandler without the older era",
      () => startV2Http({ ledger: folder(), legacy: "reject" }),
      "2026-07-28",
      "http",
    ],
  ])("%s", async (_name, start, era, transport) => {
    const server = await peer(start());
    const { connection, server: hosted } = await connected(http(server.url));
    expect(hosted.status).toMatchObject({ state: "connected", era });
    expect(connection.facts).toMatchObject({ era, transport, serverInfo: { name: server.world.serverInfo.name } });
    expect(hosted.tools.map((tool) => tool.name)).toEqual(server.world.tools.map((tool) => tool.name));
    const seen = recorder();
    const ending = await connection.prepareCall({ name: server.world.tools[0]?.name, arguments: {} }, seen).send();
    expect(ending.kind).toBe("answer");
    expect(server.calls()).toHaveLength(1);
  });
});

describe("an answer lost by an SDK server after the effect", () => {
  it.each<[string, () => Promise<SdkServer>]>([
    ["v1 event stream", () => startV1Http({ ledger: folder() })],
    ["v1 JSON", () => startV1Http({ ledger: folder(), json: true })],
    ["v2 JSON", () => startV2Http({ ledger: folder() })],
    ["v2 event stream", () => startV2Http({ ledger: folder(), responseMode: "sse" })],
  ])("over %s: lost at once, one request, one effect", async (_name, start) => {
    const server = await peer(start());
    const { connection } = await connected(http(server.url));
    server.lose("always");
    const ending = await connection.prepareCall({ name: server.world.tools[0]?.name, arguments: {} }, {}).send();
    expect(ending.kind).toBe("loss");
    expect(server.calls()).toHaveLength(1);
    expect(server.effects()).toHaveLength(1);
    server.lose("never");
    expect((await connection.prepareCall({ name: server.world.tools[0]?.name, arguments: {} }, {}).send()).kind).toBe("answer");
  });

  it("with an event store: fetched by its cursor, one request, one effect", async () => {
    const server = await peer(startV1Http({ ledger: folder(), eventStore: true, retryMs: 20 }));
    const { connection } = await connected(http(server.url));
    server.lose("once", "stream");
    const seen = recorder();
    const prepared = connection.prepareCall({ name: server.world.tools[0]?.name, arguments: {} }, seen);
    expect(await prepared.send()).toMatchObject({ kind: "loss", loss: { kind: "stream-ended", stage: "answering" } });
    const cursor = seen.cursors.at(-1) as EventCursor;
    expect(cursor).toMatchObject({ sessionId: connection.facts.sessionId, protocolVersion: "2025-11-25", retryMs: 20 });
    const ending = await connection.resume(prepared.rpcId, cursor, recorder());
    expect(ending).toMatchObject({ kind: "answer", answer: { id: prepared.rpcId } });
    expect(server.calls()).toHaveLength(1);
    expect(server.effects()).toHaveLength(1);
  });

  it("with an event store, in another life of ours: fetched by a fresh connection", async () => {
    const server = await peer(startV1Http({ ledger: folder(), eventStore: true }));
    const first = await connected(http(server.url));
    server.lose("once", "stream");
    const seen = recorder();
    const prepared = first.connection.prepareCall({ name: server.world.tools[0]?.name, arguments: {} }, seen);
    await prepared.send();
    const second = await connected(http(server.url));
    const ending = await second.connection.resume(prepared.rpcId, seen.cursors.at(-1) as EventCursor, {});
    expect(ending.kind).toBe("answer");
    expect(server.calls()).toHaveLength(1);
  });

  it("with its event stream over HTTP+SSE: lost at once, and a new stream is opened for later calls", async () => {
    const server = await peer(startV1Sse({ ledger: folder() }));
    const { connection, server: hosted, states } = await connected(sse(server.url));
    server.lose("once", "stream");
    const ending = await connection.prepareCall({ name: server.world.tools[0]?.name, arguments: {} }, {}).send();
    expect(ending).toMatchObject({ kind: "loss", loss: { kind: "stream-ended" } });
    await expect.poll(() => states).toContain("reconnecting");
    const again = await hosted.connect();
    expect(again).not.toBe(connection);
    expect((await again.prepareCall({ name: server.world.tools[0]?.name, arguments: {} }, {}).send()).kind).toBe("answer");
    expect(server.calls()).toHaveLength(2);
  });

  it("with its session: a new one is made for later calls", async () => {
    const server = await peer(startV1Http({ ledger: folder() }));
    const { connection, server: hosted } = await connected(http(server.url));
    await server.forgetSessions();
    const ending = await connection.prepareCall({ name: server.world.tools[0]?.name, arguments: {} }, {}).send();
    expect(ending).toMatchObject({ kind: "loss", loss: { kind: "session-gone", bodyIsJsonOrEmpty: true } });
    const again = await hosted.connect();
    expect(again.facts.sessionId).not.toBe(connection.facts.sessionId);
    expect(server.effects()).toHaveLength(0);
  });
});

describe("an SDK server over stdio", () => {
  it.each([
    ["v1", "2025-11-25"],
    ["v2", "2026-07-28"],
  ] as const)("%s speaks %s, and its end after the effect loses the answer at once", async (sdk, era) => {
    const server = sdkStdio(folder(), sdk);
    const { connection, server: hosted } = await connected(stdio(server.command, server.args));
    expect(connection.facts).toMatchObject({ era, transport: "stdio" });
    const name = hosted.tools[0]?.name ?? "";
    expect((await connection.prepareCall({ name, arguments: {} }, {}).send()).kind).toBe("answer");
    server.lose(name, "lose-always");
    expect(await connection.prepareCall({ name, arguments: {} }, {}).send()).toEqual({
      kind: "loss",
      loss: { kind: "process-exit", stage: "sent" },
    });
    expect(server.ledger.calls()).toHaveLength(2);
  });

  it("the reference server lists its tools and echoes", async () => {
    const everything = createRequire(import.meta.url).resolve("@modelcontextprotocol/server-everything/dist/index.js");
    const { connection, server: hosted } = await connected(stdio(process.execPath, [everything]));
    expect(hosted.tools.map((tool) => tool.name)).toContain("echo");
    const seen = recorder();
    expect(await connection.prepareCall({ name: "echo", arguments: { message: "hello" } }, seen).send()).toMatchObject({
      kind: "answer",
      answer: { result: { content: [{ type: "text", text: "Echo: hello" }] } },
    });
    const progressing = connection.prepareCall(
      { name: "trigger-long-running-operation", arguments: { duration: 0.1, steps: 2 }, _meta: { progressToken: "p" } },
      seen,
    );
    await progressing.send();
    expect(seen.progressed).toMatchObject([
      { progressToken: "p", progress: 1 },
      { progressToken: "p", progress: 2 },
    ]);
    expect(await connection.request("resources/list", {})).toMatchObject({ kind: "answer" });
  });
});

describe("an address where nothing listens", () => {
  it("is a clear error", async () => {
    await expect(host(http("http://127.0.0.1:1/mcp")).server.connect()).rejects.toMatchObject({
      kind: "connect-refused",
      message: "The server could not be reached.",
    });
  });
});
