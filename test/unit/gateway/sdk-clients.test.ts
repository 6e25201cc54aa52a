/** Owns: the SDKs' own clients against the gateway: v1 (the older versions) and v2 (both eras), over a port with a token. */
import * as v2 from "@modelcontextprotocol/client";
import { Client as V1Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as V1Transport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  LoggingMessageNotificationSchema,
  ResultSchema,
  ToolListChangedNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { afterEach, describe, expect, it } from "vitest";
import { legacyFacts, modernFacts, Queue, stage, type Stage } from "./fakes.ts";

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function set(...options: Parameters<typeof stage>): Promise<Stage> {
  const made = await stage({ tcp: true, tokens: [{ name: "t", token: "tok" }], ...options[0] });
  closing.push(() => made.close());
  return made;
}

const headers = { authorization: "Bearer tok" };
const tools = [{ name: "book", inputSchema: { type: "object" as const }, description: "Books.", vendor: { x: 1 } }];
const text = (value: string) => ({ content: [{ type: "text", text: value }] });

async function v1Client(s: Stage, prepare?: (client: V1Client) => void) {
  const client = new V1Client({ name: "v1", version: "1" }, { capabilities: { elicitation: {}, sampling: {}, roots: {} } });
  prepare?.(client);
  const transport = new V1Transport(new URL(s.gateway.urlOf("one")), { requestInit: { headers } });
  await client.connect(transport);
  closing.push(() => client.close());
  return { client, transport };
}

async function v2Client(s: Stage, mode: "auto" | "legacy" | { pin: string }, prepare?: (client: v2.Client) => void) {
  const client = new v2.Client(
    { name: "v2", version: "2" },
    { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode } },
  );
  prepare?.(client);
  await client.connect(new v2.StreamableHTTPClientTransport(new URL(s.gateway.urlOf("one")), { requestInit: { headers } }));
  closing.push(() => client.close());
  return client;
}

describe("the v1 client", () => {
  it("connects, without a session, and sees the server's own facts", async () => {
    const s = await set();
    const { client, transport } = await v1Client(s);
    expect(transport.sessionId).toBeUndefined();
    expect(client.getServerVersion()).toMatchObject({ name: "fake", version: "1.2.3" });
    expect(client.getServerCapabilities()).toEqual(legacyFacts.capabilities);
    expect(client.getInstructions()).toBe("Be kind.");
    expect(await client.ping()).toEqual({});
    expect(s.gateway.clients()).toMatchObject([{ name: "v1", version: "1", token: "t" }]);
  });

  it("lists tools with all their fields and calls one, with progress in order", async () => {
    const s = await set();
    const { client } = await v1Client(s);
    const connection = await s.server.live();
    connection.automatic = (method) => (method === "tools/list" ? { tools, nextCursor: "n" } : undefined);
    expect(await client.request({ method: "tools/list" }, ResultSchema)).toEqual({ tools, nextCursor: "n" });
    const progress: number[] = [];
    const calling = client.callTool({ name: "book", arguments: { room: 1 } }, undefined, {
      onprogress: (p) => progress.push(p.progress),
    });
    const seen = await s.calls.seen.next();
    const token = (seen.request.params["_meta"] as { progressToken: number }).progressToken;
    for (const step of [1, 2, 3]) seen.hooks.progress?.({ progressToken: token, progress: step });
    seen.result({ ...text("done"), structuredContent: { a: 1 }, odd: { kept: true } });
    expect(await calling).toEqual({ ...text("done"), structuredContent: { a: 1 }, odd: { kept: true } });
    expect(progress).toEqual([1, 2, 3]);
    await seen.delivered.first;
  });

  it("answers elicitation and sampling in the middle of a call", async () => {
    const s = await set();
    const { client } = await v1Client(s);
    client.setRequestHandler(ElicitRequestSchema, (request) => ({
      action: "accept",
      content: { asked: request.params.message },
    }));
    client.setRequestHandler(CreateMessageRequestSchema, () => ({
      model: "m",
      role: "assistant",
      content: { type: "text", text: "hi" },
    }));
    const connection = await s.server.live();
    const calling = client.callTool({ name: "book" });
    const seen = await s.calls.seen.next();
    void seen.says({
      jsonrpc: "2.0",
      id: 1,
      method: "elicitation/create",
      params: { message: "Name?", requestedSchema: { type: "object", properties: {} } },
    });
    expect(await connection.responses.next()).toEqual({
      jsonrpc: "2.0",
      id: 1,
      result: { action: "accept", content: { asked: "Name?" } },
    });
    void seen.says({ jsonrpc: "2.0", id: 2, method: "sampling/createMessage", params: { messages: [], maxTokens: 1 } });
    expect(await connection.responses.next()).toMatchObject({ id: 2, result: { model: "m" } });
    seen.result(text("done"));
    expect(await calling).toEqual(text("done"));
  });

  it("hears what belongs to no call", async () => {
    const s = await set();
    const heard = new Queue<string>();
    const { client } = await v1Client(s, (fresh) => {
      fresh.setNotificationHandler(ToolListChangedNotificationSchema, () => heard.push("tools"));
      fresh.setNotificationHandler(LoggingMessageNotificationSchema, (notification) =>
        heard.push(String(notification.params.data)),
      );
    });
    // The client opens its standing stream by itself after the handshake; a request it is asked there proves that it is open.
    const connection = await s.server.live();
    await expect
      .poll(async () => {
        s.server.says({ jsonrpc: "2.0", id: "probe", method: "roots/list" });
        return (await connection.responses.next()) as { error?: { message: string } };
      })
      .not.toMatchObject({ error: { message: "No client is there to answer this request." } });
    s.server.says({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    s.server.says({ jsonrpc: "2.0", method: "notifications/message", params: { level: "info", data: "hello" } });
    expect([await heard.next(), await heard.next()]).toEqual(["tools", "hello"]);
    await client.ping();
  });

  it("cancels a call by its signal", async () => {
    const s = await set();
    const { client } = await v1Client(s);
    const giveUp = new AbortController();
    const calling = client.callTool({ name: "book" }, undefined, { signal: giveUp.signal });
    const seen = await s.calls.seen.next();
    const aborted = new Promise((resolve) => seen.hooks.signal?.addEventListener("abort", resolve));
    giveUp.abort("enough");
    await expect(calling).rejects.toThrow();
    await aborted;
    expect(seen.hooks.signal?.reason).toBe("enough");
    seen.result(text("unresolved"));
  });

  it("gets the server's JSON-RPC error as it is", async () => {
    const s = await set();
    const { client } = await v1Client(s);
    const calling = client.callTool({ name: "book" });
    (await s.calls.seen.next()).error({ code: -32042, message: "theirs", data: { elicitations: [] } });
    await expect(calling).rejects.toMatchObject({ code: -32042, data: { elicitations: [] } });
  });

  it("is turned away without the token", async () => {
    const s = await set();
    const client = new V1Client({ name: "v1", version: "1" });
    const transport = new V1Transport(new URL(s.gateway.urlOf("one")));
    await expect(client.connect(transport as Parameters<V1Client["connect"]>[0])).rejects.toMatchObject({ code: 401 });
  });

  it("makes a thousand calls at once, each answered once with its own answer", async () => {
    const s = await set({ limits: { concurrent: 64, waiting: 2000 } });
    s.calls.automatic = (request) => text(String(request.arguments["n"]));
    const { client } = await v1Client(s);
    const results = await Promise.all(
      Array.from({ length: 1000 }, (_, n) => client.callTool({ name: "book", arguments: { n } })),
    );
    expect(results.map((result) => (result["content"] as { text: string }[])[0]?.text)).toEqual(
      Array.from({ length: 1000 }, (_, n) => String(n)),
    );
    expect(s.calls.count).toBe(1000);
  }, 30_000);
});

describe("the v2 client", () => {
  it.each([
    ["auto", legacyFacts, "2026-07-28"],
    ["auto", modernFacts, "2026-07-28"],
    [{ pin: "2026-07-28" }, modernFacts, "2026-07-28"],
    ["legacy", modernFacts, "2025-11-25"],
    ["legacy", legacyFacts, "2025-11-25"],
  ] as const)("in mode %j speaks to the gateway in front of any server", async (mode, facts, version) => {
    const s = await set({ facts });
    const client = await v2Client(s, mode);
    expect(client.getNegotiatedProtocolVersion()).toBe(version);
    expect(client.getServerVersion()).toMatchObject({ name: facts.serverInfo.name });
    const connection = await s.server.live();
    connection.automatic = (method) =>
      method === "tools/list"
        ? { tools, ...(facts.era === "2026-07-28" ? { resultType: "complete", ttlMs: 0, cacheScope: "private" } : {}) }
        : undefined;
    expect((await client.listTools()).tools[0]).toMatchObject({ name: "book", description: "Books." });
    const progress: number[] = [];
    const calling = client.callTool({ name: "book", arguments: { room: 1 } }, { onprogress: (p) => progress.push(p.progress) });
    const seen = await s.calls.seen.next();
    const token = (seen.request.params["_meta"] as { progressToken: number }).progressToken;
    for (const step of [1, 2]) seen.hooks.progress?.({ progressToken: token, progress: step });
    seen.result({ ...text("done"), ...(facts.era === "2026-07-28" ? { resultType: "complete" } : {}) });
    expect((await calling).content).toEqual(text("done").content);
    expect(progress).toEqual([1, 2]);
    await seen.delivered.first;
  });

  it("cancels a modern call by closing its stream", async () => {
    const s = await set();
    const client = await v2Client(s, { pin: "2026-07-28" });
    const giveUp = new AbortController();
    const calling = client.callTool({ name: "book" }, { signal: giveUp.signal });
    const seen = await s.calls.seen.next();
    const aborted = new Promise((resolve) => seen.hooks.signal?.addEventListener("abort", resolve));
    giveUp.abort();
    await expect(calling).rejects.toThrow();
    await aborted;
    seen.result(text("x"));
  });

  it.each([
    ["a 2025-11-25 server's question", legacyFacts],
    ["a 2026-07-28 server's input_required", modernFacts],
  ])("answers %s by itself in rounds", async (_what, facts) => {
    const s = await set({ facts });
    const client = await v2Client(s, { pin: "2026-07-28" }, (fresh) => {
      fresh.setRequestHandler("elicitation/create", () => ({ action: "accept", content: { name: "A" } }));
    });
    const connection = await s.server.live();
    const calling = client.callTool({ name: "book", arguments: { room: 1 } });
    const seen = await s.calls.seen.next();
    const params = { mode: "form", message: "Name?", requestedSchema: { type: "object", properties: {} } };
    if (facts.era === "2025-11-25") {
      void seen.says({ jsonrpc: "2.0", id: 5, method: "elicitation/create", params });
      expect(await connection.responses.next()).toMatchObject({ id: 5, result: { action: "accept", content: { name: "A" } } });
      seen.result(text("done"));
    } else {
      seen.result({
        resultType: "input_required",
        inputRequests: { k: { method: "elicitation/create", params } },
        requestState: "s",
      });
      const next = await s.calls.seen.next();
      expect(next.request.params).toMatchObject({
        requestState: "s",
        inputResponses: { k: { action: "accept", content: { name: "A" } } },
      });
      next.result({ ...text("done"), resultType: "complete" });
    }
    expect((await calling).content).toEqual(text("done").content);
  });

  it("hears changes on its subscription", async () => {
    const s = await set();
    const heard = new Queue<string>();
    const client = await v2Client(s, { pin: "2026-07-28" }, (fresh) => {
      fresh.setNotificationHandler("notifications/tools/list_changed", () => heard.push("tools"));
      fresh.setNotificationHandler("notifications/resources/updated", (notification) => heard.push(notification.params.uri));
    });
    const connection = await s.server.live();
    connection.automatic = (method) => (method.startsWith("resources/") ? {} : undefined);
    const subscription = await client.listen({ toolsListChanged: true, resourceSubscriptions: ["u:1"] });
    s.server.says({ jsonrpc: "2.0", method: "notifications/resources/updated", params: { uri: "u:1" } });
    s.server.says({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    expect([await heard.next(), await heard.next()]).toEqual(["u:1", "tools"]);
    await subscription.close();
  });

  it("answers a 2026-07-28 server's input_required on a legacy connection", async () => {
    const s = await set({ facts: modernFacts });
    const client = await v2Client(s, "legacy", (fresh) => {
      fresh.setRequestHandler("elicitation/create", () => ({ action: "decline" }));
    });
    const calling = client.callTool({ name: "book" });
    (await s.calls.seen.next()).result({
      resultType: "input_required",
      inputRequests: {
        k: { method: "elicitation/create", params: { message: "?", requestedSchema: { type: "object", properties: {} } } },
      },
      requestState: "s",
    });
    const next = await s.calls.seen.next();
    expect(next.request.params).toMatchObject({ requestState: "s", inputResponses: { k: { action: "decline" } } });
    next.result({ ...text("done"), resultType: "complete" });
    expect(await calling).toEqual(text("done"));
  });
});
