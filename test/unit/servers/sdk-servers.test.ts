/* eslint-disable @typescript-eslint/no-deprecated -- the older transport is what is tested */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client as ModernClient, StreamableHTTPClientTransport as ModernHttp } from "@modelcontextprotocol/client";
import { StdioClientTransport as ModernStdio } from "@modelcontextprotocol/client/stdio";
import { Client as LegacyClient } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport as LegacyStdio } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as LegacyHttp } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { sdkStdio, startV1Http, startV1Sse, startV2Http, type SdkServer } from "../../servers/fault/sdk-servers.ts";
import { eventsOf, exchange, initialize, messagesOf, modernRequest } from "./raw-client.ts";

// Every test starts processes of its own; a loaded machine needs its time for that.
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let directory: string;
const open: { close(): Promise<void> }[] = [];
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "msr-sdk-"));
});
afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
  rmSync(directory, { recursive: true, force: true });
});

function opened<T extends { close(): Promise<void> }>(one: T): T {
  open.unshift(one);
  return one;
}

const charge = { name: "charge", arguments: { account: "acme", amount: 5 } };

async function legacyClient(transport: unknown): Promise<LegacyClient> {
  const client = new LegacyClient({ name: "t", version: "1" });
  await client.connect(transport as Transport);
  return opened(client);
}

async function modernClient(transport: ModernHttp | ModernStdio): Promise<ModernClient> {
  const client = new ModernClient({ name: "t", version: "1" }, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
  await client.connect(transport);
  return opened(client);
}

/** A tools/call by hand. */
async function rawCall(server: SdkServer, session: Record<string, string>) {
  return exchange(server.url, { headers: session, body: { jsonrpc: "2.0", id: "call-1", method: "tools/call", params: charge } });
}

describe("v1 Streamable HTTP", () => {
  it("lists and calls the tools", async () => {
    const server = opened(await startV1Http({ ledger: directory }));
    const client = await legacyClient(new LegacyHttp(new URL(server.url)));
    expect((await client.listTools()).tools.find((tool) => tool.name === "put")?.annotations).toEqual({ idempotentHint: true });
    expect(await client.callTool(charge)).toMatchObject({ structuredContent: { amount: 5 } });
    expect(server.effects()).toHaveLength(1);
    expect(server.calls("charge")[0]?.headers).toHaveProperty("mcp-session-id");
  });

  it("with an event store: the lost answer can be fetched by its cursor", async () => {
    const server = opened(await startV1Http({ ledger: directory, eventStore: true, retryMs: 25 }));
    const session = await initialize(server.url);
    for (const cut of ["stream", "reset-after-event"] as const) {
      server.lose("once", cut);
      const lost = await rawCall(server, session);
      expect(lost.end).toBe(cut === "stream" ? "complete" : "cut");
      const [primed] = eventsOf(lost.body);
      expect(primed).toMatchObject({ retry: "25", data: "" });
      const resumed = await exchange(server.url, {
        headers: { ...session, "last-event-id": primed!.id! },
        until: (body) => body.includes("structuredContent"),
      });
      expect(messagesOf(resumed).at(-1)).toMatchObject({ id: "call-1", result: { structuredContent: { amount: 5 } } });
    }
    server.lose("once", "reset");
    expect(await rawCall(server, session)).toMatchObject({ end: "refused" });
    expect(server.effects()).toHaveLength(3);
    expect(server.calls()).toHaveLength(3);
  });

  it.each([true, false])("without an event store (JSON: %s): the effect is there, the answer is not", async (json) => {
    const server = opened(await startV1Http({ ledger: directory, json }));
    const session = await initialize(server.url);
    server.lose("once");
    expect((await rawCall(server, session)).end).not.toBe("complete");
    expect(server.effects()).toHaveLength(1);
    expect(messagesOf(await rawCall(server, session))[0]).toMatchObject({ result: { structuredContent: { amount: 5 } } });
    await server.forgetSessions();
    expect(await rawCall(server, session)).toMatchObject({ status: 404 });
  });
});

describe("v1 HTTP+SSE", () => {
  it("answers, and loses an answer with the event stream", async () => {
    const server = opened(await startV1Sse({ ledger: directory }));
    const client = await legacyClient(new SSEClientTransport(new URL(server.url)));
    expect(await client.callTool(charge)).toMatchObject({ structuredContent: { amount: 5 } });
    await client.close();

    server.lose("once");
    let endpoint: string | undefined;
    const { promise: ready, resolve } = Promise.withResolvers<string>();
    const stream = exchange(server.url, {
      until: (body) => {
        endpoint ??= /event: endpoint\ndata: (\S+)/.exec(body)?.[1];
        if (endpoint !== undefined) resolve(endpoint);
        return false;
      },
    });
    const target = new URL(await ready, server.url).href;
    await exchange(target, { body: { jsonrpc: "2.0", id: "call-1", method: "tools/call", params: charge } });
    expect((await stream).end).toBe("cut");
    expect(server.effects()).toHaveLength(2);
  });
});

describe("v2 createMcpHandler", () => {
  it.each(["auto", "sse"] as const)("serves both eras (%s)", async (responseMode) => {
    const server = opened(await startV2Http({ ledger: directory, responseMode }));
    const modern = await modernClient(new ModernHttp(new URL(server.url)));
    expect(await modern.callTool(charge)).toMatchObject({ structuredContent: { amount: 5 } });
    const legacy = await legacyClient(new LegacyHttp(new URL(server.url)));
    expect(await legacy.callTool(charge)).toMatchObject({ structuredContent: { amount: 5 } });
    expect(server.effects()).toHaveLength(2);
  });

  it.each(["auto", "sse"] as const)("loses the answer after the effect (%s)", async (responseMode) => {
    const server = opened(await startV2Http({ ledger: directory, responseMode, legacy: "reject" }));
    server.lose("once");
    expect((await exchange(server.url, modernRequest("1", "tools/call", charge))).end).not.toBe("complete");
    expect(server.effects()).toHaveLength(1);
    const answered = await exchange(server.url, modernRequest("2", "tools/call", charge));
    expect(messagesOf(answered).at(-1)).toMatchObject({ id: "2", result: { resultType: "complete" } });
    expect(server.calls()).toHaveLength(2);
  });

  it("refuses the older era when told so", async () => {
    const server = opened(await startV2Http({ ledger: directory, legacy: "reject" }));
    const reached = await exchange(server.url, {
      body: {
        jsonrpc: "2.0",
        id: 1,
        method: "initialize",
        params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "r", version: "1" } },
      },
    });
    expect(reached.status).toBe(400);
    expect(messagesOf(reached)[0]).toMatchObject({ error: { code: -32022 } });
  });
});

describe("SDK stdio servers", () => {
  it("v1: answers, then is lost with its process", async () => {
    const server = sdkStdio(directory, "v1");
    const client = await legacyClient(new LegacyStdio({ command: server.command, args: [...server.args] }));
    expect(await client.callTool(charge)).toMatchObject({ structuredContent: { amount: 5 } });
    server.lose("charge", "lose-once");
    await expect(client.callTool(charge)).rejects.toThrow();
    expect(server.ledger.countEffects()).toBe(2);
    expect(server.ledger.countCalls("charge")).toBe(2);
  });

  it("v2: serves both eras and loses the answer with its process", async () => {
    const server = sdkStdio(directory, "v2");
    const modern = await modernClient(new ModernStdio({ command: server.command, args: [...server.args] }));
    expect(await modern.callTool(charge)).toMatchObject({ structuredContent: { amount: 5 } });
    const legacy = await legacyClient(new LegacyStdio({ command: server.command, args: [...server.args] }));
    expect(await legacy.callTool(charge)).toMatchObject({ structuredContent: { amount: 5 } });
    server.lose("charge", "lose-once");
    await expect(modern.callTool(charge)).rejects.toThrow();
    expect(server.ledger.countEffects()).toBe(3);
    expect(await legacy.callTool(charge)).toMatchObject({ structuredContent: { amount: 5 } });
  });
});
