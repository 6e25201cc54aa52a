/* eslint-disable @typescript-eslint/no-deprecated -- the older transport is what is tested */
import { mkdtempSync, rmSync } from "node:fs";
import { Agent } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client as ModernClient, StreamableHTTPClientTransport as ModernTransport } from "@modelcontextprotocol/client";
import { Client as LegacyClient } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StreamableHTTPClientTransport as LegacyTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  httpBindings,
  startHttpFaultServer,
  type HttpBinding,
  type HttpFaultOptions,
  type HttpFaultServer,
} from "../../servers/fault/http-fault-server.ts";
import type { Step } from "../../servers/fault/steps.ts";
import { defaultTools } from "../../servers/fault/world.ts";
import { LedgerReader } from "../../servers/ledger.ts";
import { eventsOf, exchange, initialize, messagesOf, modernRequest, type Reached } from "./raw-client.ts";

let directory: string;
let server: HttpFaultServer;
const open: { close(): Promise<void> }[] = [];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "msr-fault-"));
});
afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
  rmSync(directory, { recursive: true, force: true });
});

async function start(binding: HttpBinding, options: Partial<HttpFaultOptions> = {}): Promise<HttpFaultServer> {
  server = await startHttpFaultServer({ binding, ledger: directory, ...options });
  open.unshift(server);
  return server;
}

const charge = { name: "charge", arguments: { account: "acme", amount: 5 } };

/** Calls a tool by hand, as the binding wants it (all but `sse-2024`). */
async function call(
  id = "call-1",
  params: Record<string, unknown> = charge,
  options: { session?: Record<string, string>; agent?: Agent; until?: (body: string) => boolean } = {},
): Promise<Reached> {
  const { session, ...rest } = options;
  if (server.era === "2026-07-28") return exchange(server.url, { ...modernRequest(id, "tools/call", params), ...rest });
  const headers = session ?? (await initialize(server.url));
  return exchange(server.url, { headers, body: { jsonrpc: "2.0", id, method: "tools/call", params }, ...rest });
}

describe.each(httpBindings)("a client of the %s binding", (binding) => {
  async function connect(): Promise<(name: string, args: Record<string, unknown>) => Promise<Record<string, unknown>>> {
    if (binding.startsWith("modern")) {
      const client = new ModernClient({ name: "t", version: "1" }, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
      await client.connect(new ModernTransport(new URL(server.url)));
      open.unshift(client);
      expect((await client.listTools()).tools.map((tool) => tool.name)).toEqual(defaultTools.map((tool) => tool.name));
      return (name, args) => client.callTool({ name, arguments: args });
    }
    const client = new LegacyClient({ name: "t", version: "1" });
    const transport =
      binding === "sse-2024" ? new SSEClientTransport(new URL(server.url)) : new LegacyTransport(new URL(server.url));
    await client.connect(transport);
    open.unshift(client);
    expect((await client.listTools()).tools.map((tool) => tool.name)).toEqual(defaultTools.map((tool) => tool.name));
    return (name, args) => client.callTool({ name, arguments: args });
  }

  it("lists the tools and calls them; effects and requests are in the ledger on disk", async () => {
    await start(binding);
    const callTool = await connect();
    expect(await callTool("charge", { account: "acme", amount: 5 })).toMatchObject({ structuredContent: { account: "acme" } });
    expect(await callTool("lookup", { item: "chairs" })).toMatchObject({ structuredContent: { count: 12 } });
    await callTool("put", { key: "a", value: "1" });
    await callTool("contradictory", { item: "x" });
    expect(await callTool("find_charge", { account: "acme" })).toMatchObject({ structuredContent: { status: "found" } });
    const onDisk = new LedgerReader(directory);
    expect(onDisk.effects().map((effect) => effect.tool)).toEqual(["charge", "put", "contradictory"]);
    expect(onDisk.calls().map((request) => request.tool)).toEqual(["charge", "lookup", "put", "contradictory", "find_charge"]);
    expect(server.calls()).toHaveLength(5);
    expect(server.calls("charge")[0]).toMatchObject({ step: { do: "answer" }, origin: "main" });
  });

  it("makes a keyed charge once, and refuses the key for another charge", async () => {
    await start(binding);
    const callTool = await connect();
    const keyed = { account: "acme", amount: 5, idempotencyKey: "intent-17" };
    await callTool("charge", keyed);
    await callTool("charge", keyed);
    expect(await callTool("charge", { ...keyed, amount: 6 })).toMatchObject({
      isError: true,
      structuredContent: { status: 422 },
    });
    expect(server.effects({ tool: "charge", key: "intent-17" })).toHaveLength(1);
  });

  it("has the effect before the answer is lost", async () => {
    await start(binding);
    const callTool = await connect();
    const lost: Step[] = binding === "sse-2024" ? [{ do: "reset" }] : [{ do: "reset" }, { do: "fin" }];
    for (const step of lost) {
      server.script(step);
      await expect(callTool("charge", { account: step.do, amount: 1 })).rejects.toThrow();
      expect(server.effects({ tool: "charge" }).at(-1)).toMatchObject({ arguments: { account: step.do } });
    }
    expect(server.calls()).toHaveLength(lost.length);
    expect(await callTool("lookup", { item: "x" })).toMatchObject({ structuredContent: { count: 12 } });
  });

  it("gets results and errors as scripted", async () => {
    await start(binding);
    const callTool = await connect();
    server.script({ do: "tool-error", text: "No." }, { do: "error", code: -32050, message: "Broken" });
    expect(await callTool("charge", { account: "a", amount: 1 })).toMatchObject({ isError: true, content: [{ text: "No." }] });
    await expect(callTool("charge", { account: "b", amount: 1 })).rejects.toMatchObject({ code: -32050 });
    expect(server.effects().map((effect) => effect.arguments["account"])).toEqual(["a"]);
    expect(server.stepsLeft()).toBe(0);
  });

  it("waits while a call hangs, and gets the answer when it is let go on", async () => {
    await start(binding);
    const callTool = await connect();
    server.script({ do: "hang" });
    const answer = callTool("charge", { account: "acme", amount: 5 });
    await server.untilHanging(1);
    expect(server.effects()).toHaveLength(1);
    server.release();
    expect(await answer).toMatchObject({ structuredContent: { account: "acme" } });
  });

  it("sees the tools of a restarted server", async () => {
    await start(binding);
    await connect();
    const tools = [{ ...defaultTools[2]!, annotations: { idempotentHint: false } }];
    const { url } = server;
    await server.restart({ tools, serverInfo: { name: "another", version: "2.0.0" } });
    expect(server.url).toBe(url);
    expect(server.world.tools).toBe(tools);
    if (binding === "sse-2024") return;
    const session = server.era === "2025-11-25" ? await initialize(url) : {};
    const { headers, body } = modernRequest("list", "tools/list");
    const listed = await exchange(url, { body, headers: { ...headers, ...session } });
    expect(messagesOf(listed)[0]).toMatchObject({ result: { tools: [{ annotations: { idempotentHint: false } }] } });
  });
});

const effectAnd = (count: number) => (): void => expect(server.effects()).toHaveLength(count);

describe.each(["http-json", "modern-json"] as const)("a lost JSON answer (%s)", (binding) => {
  const rows: [name: string, step: Step, expected: Partial<Reached>, effects: number][] = [
    ["reset before headers", { do: "reset" }, { end: "refused", errorCode: "ECONNRESET" }, 1],
    ["FIN before headers", { do: "fin" }, { end: "refused", errorCode: "ECONNRESET" }, 1],
    ["headers, then reset", { do: "headers-then-reset" }, { end: "cut", status: 200, body: "" }, 1],
    ["headers, then FIN", { do: "headers-then-reset", how: "fin" }, { end: "cut", status: 200, body: "" }, 1],
    ["truncated body", { do: "truncated" }, { end: "cut", status: 200 }, 1],
    ["HTML", { do: "status", status: 200, body: "html" }, { end: "complete", status: 200 }, 1],
    ["empty body", { do: "status", status: 200, body: "empty" }, { end: "complete", status: 200, body: "" }, 1],
    ["half of the JSON", { do: "status", status: 200, body: "half-json" }, { end: "complete", status: 200 }, 1],
    ["202", { do: "accepted" }, { end: "complete", status: 202, body: "" }, 1],
    ["503", { do: "status", status: 503, retryAfter: 2 }, { end: "complete", status: 503 }, 1],
    ["429", { do: "status", status: 429, retryAfter: 2 }, { end: "complete", status: 429 }, 0],
    ["400 with an effect all the same", { do: "status", status: 400, effect: true }, { end: "complete", status: 400 }, 1],
    ["401", { do: "unauthorised" }, { end: "complete", status: 401 }, 0],
    ["403", { do: "unauthorised", status: 403 }, { end: "complete", status: 403 }, 0],
    ["307", { do: "redirect" }, { end: "complete", status: 307 }, 0],
    ["reset while reading", { do: "reset-while-reading" }, { end: "refused" }, 0],
    ["stream end", { do: "stream-end" }, { end: "complete", status: 200 }, 1],
    ["stream reset", { do: "stream-end", how: "reset" }, { end: "cut", status: 200 }, 1],
  ];

  it.each(rows)("%s", async (_name, step, expected, effects) => {
    await start(binding);
    server.script(step);
    expect(await call()).toMatchObject(expected);
    effectAnd(effects)();
    expect(server.calls()).toHaveLength(1);
    expect(server.calls()[0]).toMatchObject({ rpcId: "call-1", tool: "charge", step });
    expect(messagesOf(await call("call-2"))[0]).toMatchObject({ id: "call-2", result: { structuredContent: { amount: 5 } } });
  });

  it("resets while the client is still writing", async () => {
    await start(binding);
    server.script({ do: "reset-while-reading" });
    const long = { ...charge, arguments: { ...charge.arguments, note: "x".repeat(32_000_000) } };
    expect(await call("call-1", long)).toMatchObject({ end: "refused" });
    expect(server.calls()).toHaveLength(1);
    effectAnd(0)();
  });

  it("names Retry-After and the challenge", async () => {
    await start(binding);
    server.script({ do: "status", status: 503, retryAfter: 2 }, { do: "unauthorised", challenge: 'Bearer realm="x"' });
    expect((await call()).headers["retry-after"]).toBe("2");
    expect((await call()).headers["www-authenticate"]).toBe('Bearer realm="x"');
  });

  it("sees who follows a redirect, also to another origin", async () => {
    await start(binding);
    server.script({ do: "redirect", status: 308, to: "other-origin" });
    const { location } = (await call()).headers;
    expect(location).toBe(server.otherUrl);
    const session = server.era === "2025-11-25" ? { "mcp-session-id": server.calls()[0]!.sessionId! } : {};
    const { body, headers } = modernRequest("call-1", "tools/call", charge);
    await exchange(location!, { body, headers: { ...headers, ...session } });
    expect(server.calls().map((request) => request.origin)).toEqual(["main", "other"]);
    effectAnd(1)();
  });

  it("gives two answers, a stray one, and one that violates the schema", async () => {
    await start(binding);
    server.script({ do: "two-answers" }, { do: "unknown-id", then: "end" }, { do: "bad-output" });
    expect(messagesOf(await call()).map((message) => message["id"])).toEqual(["call-1", "call-1"]);
    expect(messagesOf(await call()).map((message) => message["id"])).toEqual(["unknown-call-1"]);
    expect(messagesOf(await call())[0]).toMatchObject({ result: { content: [{ type: "hologram" }] } });
  });

  it("resets a request on a used socket unread, and answers it on a new one", async () => {
    await start(binding);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    open.unshift({ close: async () => agent.destroy() });
    const session = binding === "http-json" ? await initialize(server.url) : {};
    await call("call-1", charge, { session, agent });
    server.script({ do: "stale-socket" }, { do: "stale-socket" });
    expect(await call("call-2", charge, { session, agent })).toMatchObject({ end: "refused" });
    effectAnd(1)();
    expect(await call("call-3", charge, { session })).toMatchObject({ end: "complete" });
    effectAnd(2)();
    const onSockets = server.calls().map((request) => request.requestOnSocket);
    expect(onSockets.slice(-2)).toEqual([2, 1]);
  });

  it("closes idle sockets only", async () => {
    await start(binding);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    open.unshift({ close: async () => agent.destroy() });
    const session = binding === "http-json" ? await initialize(server.url) : {};
    await call("call-1", charge, { session, agent });
    server.script({ do: "hang" });
    const hanging = call("call-2", charge, { session });
    await server.untilHanging(1);
    await server.dropIdleSockets();
    server.release();
    expect(await hanging).toMatchObject({ end: "complete", status: 200 });
  });

  it("refuses connections while it is down and comes back on the same port", async () => {
    await start(binding);
    const { url } = server;
    await server.goDown();
    expect(await exchange(url, modernRequest("x", "tools/call", charge))).toMatchObject({
      end: "refused",
      errorCode: "ECONNREFUSED",
    });
    await server.comeUp();
    expect(server.url).toBe(url);
    expect(await call()).toMatchObject({ end: "complete", status: 200 });
  });

  it("wants its token", async () => {
    await start(binding, { token: "t" });
    expect(await exchange(server.url, modernRequest("x", "tools/call", charge))).toMatchObject({ status: 401 });
    effectAnd(0)();
    server.setToken(undefined);
    expect(await call()).toMatchObject({ status: 200 });
  });

  it("sees that the client left", async () => {
    await start(binding);
    server.script({ do: "hang" });
    const agent = new Agent({ keepAlive: false });
    const lost = call("call-1", charge, { agent });
    await server.untilHanging(1);
    agent.destroy();
    await lost;
    await server.until(() => server.calls()[0]!.closedByClient);
    effectAnd(1)();
  });
});

describe.each(["http-sse", "modern-sse"] as const)("an SSE answer without event ids (%s)", (binding) => {
  it("comes after progress", async () => {
    await start(binding);
    server.script({ do: "answer", progress: 2 });
    const reached = await call("call-1", { ...charge, _meta: { progressToken: "p" } });
    expect(
      messagesOf(reached)
        .map((message) => message["method"] ?? "answer")
        .at(-1),
    ).toBe("answer");
    expect(messagesOf(reached)).toHaveLength(3);
    expect(eventsOf(reached.body).every((event) => event.id === undefined)).toBe(true);
  });

  it.each<[string, Step, Partial<Reached>]>([
    ["stream end", { do: "stream-end", events: 1 }, { end: "complete", status: 200 }],
    ["stream reset", { do: "stream-end", events: 1, how: "reset" }, { end: "cut", status: 200 }],
    ["headers, then reset", { do: "headers-then-reset" }, { end: "cut", status: 200 }],
    ["half of the event", { do: "truncated" }, { end: "cut", status: 200 }],
  ])("is lost: %s", async (_name, step, expected) => {
    await start(binding);
    server.script(step);
    const reached = await call();
    expect(reached).toMatchObject(expected);
    expect(messagesOf(reached).some((message) => "result" in message)).toBe(false);
    effectAnd(1)();
  });

  it("has ids when the step says so, and 2026-07-28 still knows no GET", async () => {
    await start(binding);
    server.script({ do: "stream-end", ids: true });
    const [primed] = eventsOf((await call()).body);
    expect(primed?.id).toMatch(/^s\d+:1$/);
    const get = await exchange(server.url, {
      headers: {
        "last-event-id": primed!.id!,
        ...(server.calls()[0]!.sessionId === undefined ? {} : { "mcp-session-id": server.calls()[0]!.sessionId! }),
      },
    });
    expect(get.status).toBe(binding === "modern-sse" ? 405 : 200);
    expect(server.requests("HTTP GET")).toHaveLength(1);
  });
});

describe("resuming (http-sse-ids)", () => {
  let session: Record<string, string>;
  const resume = (eventId: string, until?: (body: string) => boolean) =>
    exchange(server.url, { headers: { ...session, "last-event-id": eventId }, ...(until === undefined ? {} : { until }) });
  const lastId = (reached: Reached): string => eventsOf(reached.body).at(-1)!.id!;
  const answered = (reached: Reached) => messagesOf(reached).find((message) => message["id"] === "call-1");

  beforeEach(async () => {
    await start("http-sse-ids");
    session = await initialize(server.url);
  });

  it("fetches the answer by GET; one call, one effect", async () => {
    server.script({ do: "stream-end", retryMs: 40 });
    const first = await call("call-1", charge, { session });
    expect(eventsOf(first.body)).toMatchObject([{ id: "s1:1", retry: "40", data: "" }]);
    expect(answered(await resume(lastId(first)))).toMatchObject({ result: { structuredContent: { amount: 5 } } });
    expect(server.calls()).toHaveLength(1);
    effectAnd(1)();
    const [get] = server.requests("HTTP GET");
    expect(get).toMatchObject({ lastEventId: "s1:1", step: { do: "answer" } });
    expect(get!.at).toBeGreaterThanOrEqual(server.calls()[0]!.endedAt!);
  });

  it("ends again with more events, then answers from the latest one", async () => {
    server.script({ do: "stream-end", events: 1, resume: [{ do: "end", events: 2 }, { do: "reset" }, { do: "answer" }] });
    const first = await call("call-1", charge, { session });
    expect(eventsOf(first.body)).toHaveLength(2);
    const second = await resume(lastId(first));
    expect(eventsOf(second.body).map((event) => event.id)).toEqual(["s1:3", "s1:4"]);
    expect(await resume(lastId(second))).toMatchObject({ end: "refused" });
    const third = await resume(lastId(second));
    expect(eventsOf(third.body)).toHaveLength(1);
    expect(answered(third)).toBeDefined();
    // A client that missed it can have it again, by the same cursor.
    expect(answered(await resume(lastId(second)))).toBeDefined();
  });

  it.each([404, 405, 400])("answers the GET with %i", async (status) => {
    server.script({ do: "stream-end", resume: [{ do: "status", status }] });
    const first = await call("call-1", charge, { session });
    expect(await resume(lastId(first))).toMatchObject({ status });
  });

  it("says that an event is expired, or that it never knew it", async () => {
    server.script({ do: "stream-end", resume: [{ do: "expired" }] });
    const first = await call("call-1", charge, { session });
    expect(await resume(lastId(first))).toMatchObject({ status: 400 });
    expect(await resume("s99:1")).toMatchObject({ status: 400 });
  });

  it("keeps a resumed stream open until the call goes on", async () => {
    server.script({ do: "hang" });
    const first = await call("call-1", charge, { session, until: (body) => body.includes("\n\n") });
    const resumed = resume(lastId(first));
    await server.until(() => server.requests("HTTP GET").length === 1);
    server.release();
    expect(answered(await resumed)).toBeDefined();
  });

  it("is not possible in a session that is gone", async () => {
    server.script({ do: "stream-end" });
    const first = await call("call-1", charge, { session });
    server.forgetSessions();
    expect(await resume(lastId(first))).toMatchObject({ status: 404 });
  });

  it("gives the v1 SDK client its answer", async () => {
    server.script({ do: "stream-end", retryMs: 1 });
    const client = new LegacyClient({ name: "t", version: "1" });
    await client.connect(new LegacyTransport(new URL(server.url)));
    open.unshift(client);
    expect(await client.callTool(charge)).toMatchObject({ structuredContent: { amount: 5 } });
    expect(server.calls()).toHaveLength(1);
  });
});

describe("sessions (2025-11-25)", () => {
  it("a session that is gone refuses the call; a new one takes it", async () => {
    await start("http-json");
    const session = await initialize(server.url);
    server.script({ do: "session-gone" });
    expect(await call("call-1", charge, { session })).toMatchObject({ status: 404 });
    expect(await call("call-2", charge, { session })).toMatchObject({ status: 404 });
    expect(await call("call-3", charge, { session: {} })).toMatchObject({ status: 400 });
    effectAnd(0)();
    expect(await call("call-4")).toMatchObject({ status: 200 });
  });

  it("an answer can come late, on the GET stream", async () => {
    await start("http-json");
    const session = await initialize(server.url);
    const stream = exchange(server.url, { headers: session, until: (body) => body.includes("call-1") });
    await server.until(() => server.requests("HTTP GET").length === 1);
    server.script({ do: "hang", late: "get-stream" });
    expect(await call("call-1", charge, { session })).toMatchObject({ status: 202 });
    server.release();
    expect(messagesOf(await stream)[0]).toMatchObject({ id: "call-1" });
  });

  it("the server can ask the client before it answers", async () => {
    await start("http-sse");
    const session = await initialize(server.url);
    server.script({ do: "elicit", message: "Sure?" });
    const answer = call("call-1", charge, { session });
    await server.untilCalls(1);
    await exchange(server.url, {
      headers: session,
      body: { jsonrpc: "2.0", id: "elicit-1", result: { action: "accept", content: { yes: true } } },
    });
    expect(messagesOf(await answer)).toMatchObject([
      { method: "elicitation/create", params: { message: "Sure?" } },
      { id: "call-1", result: { _meta: { elicited: { action: "accept" } } } },
    ]);
    expect(server.requests("response")).toHaveLength(1);
  });

  it("announces changed tools on the GET stream", async () => {
    await start("http-json");
    const session = await initialize(server.url);
    const stream = exchange(server.url, { headers: session, until: (body) => body.includes("list_changed") });
    await server.until(() => server.requests("HTTP GET").length === 1);
    server.setTools([], { announce: true });
    expect(messagesOf(await stream)[0]).toMatchObject({ method: "notifications/tools/list_changed" });
  });

  it("other methods can be scripted", async () => {
    await start("http-json", { withoutGetStream: true });
    server.scriptFor("tools/list", { do: "status", status: 503 });
    server.scriptFor("ping", { do: "error", code: -32601 });
    const session = await initialize(server.url);
    const ask = (method: string) => exchange(server.url, { headers: session, body: { jsonrpc: "2.0", id: method, method } });
    expect(await ask("tools/list")).toMatchObject({ status: 503 });
    expect(await ask("tools/list")).toMatchObject({ status: 200 });
    expect(messagesOf(await ask("ping"))[0]).toMatchObject({ error: { code: -32601 } });
    expect(await exchange(server.url, { headers: session })).toMatchObject({ status: 405 });
    expect(await exchange(server.url, { headers: session, method: "DELETE" })).toMatchObject({ status: 200 });
    expect(await ask("tools/list")).toMatchObject({ status: 404 });
  });
});

describe("2026-07-28", () => {
  it("checks headers, envelope and version before anything runs", async () => {
    await start("modern-json");
    const { headers, body } = modernRequest("c", "tools/call", charge);
    const code = async (change: Record<string, string>, message: unknown = body): Promise<[number | undefined, unknown]> => {
      const reached = await exchange(server.url, { headers: { ...headers, ...change }, body: message });
      return [reached.status, (messagesOf(reached)[0] as { error?: { code: number } }).error?.code];
    };
    expect(await code({ "mcp-name": "other" })).toEqual([400, -32020]);
    expect(await code({ "mcp-method": "tools/list" })).toEqual([400, -32020]);
    expect(await code({ "mcp-protocol-version": "2025-11-25" })).toEqual([400, -32020]);
    expect(await code({}, { ...body, params: charge })).toEqual([400, -32602]);
    expect(await code({}, { jsonrpc: "2.0", id: 1, method: "server/nonsense", params: body["params"] })).toEqual([400, -32020]);
    const unknown = modernRequest("m", "nonsense");
    expect(await exchange(server.url, unknown)).toMatchObject({ status: 404 });
    const legacy = await exchange(server.url, {
      body: { jsonrpc: "2.0", id: 1, method: "initialize", params: { protocolVersion: "2025-11-25" } },
    });
    expect(messagesOf(legacy)[0]).toMatchObject({ error: { code: -32022, data: { supported: ["2026-07-28"] } } });
    effectAnd(0)();
  });

  it("refuses as scripted, without an effect", async () => {
    await start("modern-json");
    server.script({ do: "header-mismatch" }, { do: "unsupported-version" }, { do: "error", code: -32601, status: 404 });
    expect(await call()).toMatchObject({ status: 400 });
    expect(messagesOf(await call())[0]).toMatchObject({ error: { code: -32022 } });
    expect(await call()).toMatchObject({ status: 404 });
    effectAnd(0)();
  });

  it("asks for input, and makes the effect in the round that has it", async () => {
    await start("modern-json");
    const client = new ModernClient(
      { name: "t", version: "1" },
      { versionNegotiation: { mode: { pin: "2026-07-28" } }, capabilities: { elicitation: { form: {} } } },
    );
    client.setRequestHandler("elicitation/create", () => ({ action: "accept" as const, content: { yes: true } }));
    await client.connect(new ModernTransport(new URL(server.url)));
    open.unshift(client);
    server.script({ do: "input-required", requestState: "round-1" });
    expect(await client.callTool(charge)).toMatchObject({ structuredContent: { amount: 5 } });
    expect(server.calls()).toHaveLength(2);
    expect(server.calls()[1]?.message).toMatchObject({
      params: { requestState: "round-1", inputResponses: { confirm: { action: "accept" } } },
    });
    expect(server.calls()[0]?.rpcId).not.toBe(server.calls()[1]?.rpcId);
    effectAnd(1)();
  });

  it("tells subscribers that the tools changed", async () => {
    await start("modern-json");
    const listen = modernRequest("sub", "subscriptions/listen", { notifications: { toolsListChanged: true } });
    const stream = exchange(server.url, { ...listen, until: (body) => body.includes("list_changed") });
    await server.until(() => server.requests("subscriptions/listen").length === 1);
    server.setTools([], { announce: true });
    expect(messagesOf(await stream)[1]).toMatchObject({
      method: "notifications/tools/list_changed",
      params: { _meta: { "io.modelcontextprotocol/subscriptionId": "sub" } },
    });
  });
});

describe("tasks", () => {
  it("2026-07-28: tasks/get says working, then has the result", async () => {
    await start("modern-json");
    server.script({ do: "task", working: 1 });
    const [created] = messagesOf(await call());
    expect(created).toMatchObject({ result: { resultType: "task", status: "working" } });
    effectAnd(1)();
    const { taskId } = (created as { result: { taskId: string } }).result;
    const get = async () => messagesOf(await exchange(server.url, modernRequest("g", "tasks/get", { taskId })))[0];
    expect(await get()).toMatchObject({ result: { resultType: "complete", status: "working" } });
    expect(await get()).toMatchObject({ result: { status: "completed", result: { structuredContent: { amount: 5 } } } });
    expect(server.world.tasks()).toEqual([{ taskId, rpcId: "call-1" }]);
  });

  it("2025-11-25: tasks/get, then tasks/result", async () => {
    await start("http-json");
    const session = await initialize(server.url);
    server.script({ do: "task", working: 1 });
    const [created] = messagesOf(await call("call-1", { ...charge, task: { ttl: 1000 } }, { session }));
    const { taskId } = (created as { result: { task: { taskId: string } } }).result.task;
    const ask = async (method: string) =>
      messagesOf(
        await exchange(server.url, { headers: session, body: { jsonrpc: "2.0", id: "t", method, params: { taskId } } }),
      )[0];
    expect(await ask("tasks/get")).toMatchObject({ result: { status: "working" } });
    expect(await ask("tasks/get")).toMatchObject({ result: { status: "completed" } });
    expect(await ask("tasks/result")).toMatchObject({ result: { structuredContent: { amount: 5 } } });
  });

  it("can fail, be forgotten, or be lost before its id is known", async () => {
    await start("modern-json");
    server.script(
      { do: "task", working: 0, ends: "failed" },
      { do: "task", forget: true },
      { do: "task", deliver: { do: "reset" } },
    );
    await call("failing");
    await call("forgotten");
    expect(await call("lost")).toMatchObject({ end: "refused" });
    const ids = server.world.tasks().map((task) => task.taskId);
    const get = async (taskId: string) => messagesOf(await exchange(server.url, modernRequest("g", "tasks/get", { taskId })))[0];
    expect(await get(ids[0]!)).toMatchObject({ result: { status: "failed", error: { code: -32603 } } });
    expect(await get(ids[1]!)).toMatchObject({ error: { code: -32602 } });
    effectAnd(3)();
  });
});

describe("HTTP+SSE (sse-2024)", () => {
  async function openStream(
    until: (body: string) => boolean,
  ): Promise<{ stream: Promise<Reached>; post: (body: Record<string, unknown>) => Promise<Reached> }> {
    const { promise, resolve } = Promise.withResolvers<string>();
    const stream = exchange(server.url, {
      until: (body) => {
        const endpoint = /event: endpoint\ndata: (\S+)/.exec(body)?.[1];
        if (endpoint !== undefined) resolve(endpoint);
        return until(body);
      },
    });
    const endpoint = new URL(await promise, server.url).href;
    return { stream, post: (body) => exchange(endpoint, { body: { jsonrpc: "2.0", ...body } }) };
  }
  const callBody = { id: "call-1", method: "tools/call", params: charge };

  it("accepts the POST and answers on the stream", async () => {
    await start("sse-2024");
    const { stream, post } = await openStream((body) => body.includes("call-1"));
    expect(await post(callBody)).toMatchObject({ status: 202 });
    expect(messagesOf(await stream)[0]).toMatchObject({ id: "call-1", result: { structuredContent: { amount: 5 } } });
  });

  it.each<[string, Step, Partial<Reached>, Partial<Reached>]>([
    ["the stream ends", { do: "stream-end" }, { status: 202 }, { end: "complete" }],
    ["the stream is reset", { do: "stream-end", how: "reset" }, { status: 202 }, { end: "cut" }],
    ["half of the event", { do: "truncated" }, { status: 202 }, { end: "cut" }],
  ])("loses the answer: %s", async (_name, step, posted, streamed) => {
    await start("sse-2024");
    server.script(step);
    const { stream, post } = await openStream(() => false);
    expect(await post(callBody)).toMatchObject(posted);
    const reached = await stream;
    expect(reached).toMatchObject(streamed);
    expect(messagesOf(reached)).toEqual([]);
    effectAnd(1)();
    expect(await post(callBody)).toMatchObject({ status: 404 });
  });

  it("loses the POST alone", async () => {
    await start("sse-2024");
    server.script({ do: "reset" }, { do: "status", status: 503 });
    const { stream, post } = await openStream((body) => body.includes("call-1"));
    expect(await post({ ...callBody, id: "lost" })).toMatchObject({ end: "refused" });
    expect(await post({ ...callBody, id: "failed" })).toMatchObject({ status: 503 });
    effectAnd(2)();
    await post(callBody);
    expect(messagesOf(await stream)).toHaveLength(1);
  });
});
