/** Owns: the legacy face's rules, over a real socket. */
import { afterEach, describe, expect, it } from "vitest";
import { HostingError } from "../../../src/hosting/connection.ts";
import { both, FakeServer, initialize, modernFacts, post, rpc, send, stage, type Stage } from "./fakes.ts";

const open: Stage[] = [];
async function set(...options: Parameters<typeof stage>): Promise<Stage> {
  const made = await stage(...options);
  open.push(made);
  return made;
}
afterEach(async () => {
  for (const made of open.splice(0)) await made.close();
});

const call = (id: unknown, args: Record<string, unknown> = {}, meta?: Record<string, unknown>) =>
  rpc(id, "tools/call", { name: "book", arguments: args, ...(meta === undefined ? {} : { _meta: meta }) });
const text = (value: string) => ({ content: [{ type: "text", text: value }] });

describe("initialize", () => {
  it.each(["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])(
    "answers the asked version %s with the server's own facts",
    async (version) => {
      const s = await set();
      const reply = await post(s, initialize(version));
      expect(reply.status).toBe(200);
      expect(await reply.json()).toEqual({
        jsonrpc: "2.0",
        id: 0,
        result: {
          protocolVersion: version,
          capabilities: s.server.facts.capabilities,
          serverInfo: s.server.facts.serverInfo,
          instructions: "Be kind.",
        },
      });
      expect(s.server.connects).toBe(1);
    },
  );

  it("answers an unknown version with the newest legacy one", async () => {
    const s = await set();
    expect(await (await post(s, initialize("1990-01-01"))).json()).toMatchObject({ result: { protocolVersion: "2025-11-25" } });
  });

  it("never gives a session id", async () => {
    const s = await set();
    s.calls.automatic = () => text("done");
    const replies = [
      await post(s, initialize()),
      await post(s, { jsonrpc: "2.0", method: "notifications/initialized" }),
      await post(s, call(1), { headers: { "mcp-session-id": "mine" } }),
      await post(s, rpc(2, "ping")),
      await send(s, { method: "GET", headers: { accept: "text/event-stream" }, omit: ["content-type"] }),
    ];
    for (const reply of replies) expect(reply.headers).not.toHaveProperty("mcp-session-id");
    expect(replies.map((reply) => reply.status)).toEqual([200, 202, 200, 200, 200]);
  });

  it("says in one sentence that the server cannot be reached, without transport text, and tries again next time", async () => {
    const s = await set();
    const connecting = s.server.connecting;
    s.server.connecting = () =>
      Promise.reject(new HostingError("connect-refused", "secret ECONNREFUSED 10.0.0.1", { detail: "secret" }));
    const reply = await post(s, initialize());
    const body = await reply.body;
    expect(reply.status).toBe(200);
    expect(JSON.parse(body)).toMatchObject({
      id: 0,
      error: {
        message: expect.stringMatching(/^The server 'one' cannot be reached now: its address refused the connection\./) as string,
      },
    });
    expect(body + JSON.stringify(s.log)).not.toMatch(/ECONNREFUSED|10\.0\.0\.1|secret/);
    s.server.connecting = connecting;
    expect(await (await post(s, initialize())).json()).toMatchObject({ result: { protocolVersion: "2025-11-25" } });
  });

  it("leaves out what a legacy agent cannot be given of a 2026-07-28 server", async () => {
    const s = await set({ facts: modernFacts });
    const { result } = (await (await post(s, initialize())).json()) as { result: { capabilities: object } };
    expect(result.capabilities).toEqual({ tools: { listChanged: true }, resources: { subscribe: true, listChanged: true } });
  });
});

describe("tools/call", () => {
  it("goes through Calls with the params as they came, and streams the answer as the last event", async () => {
    const s = await set();
    await (
      await post(s, initialize())
    ).body;
    const message = rpc("a", "tools/call", {
      name: "book",
      arguments: { room: 1 },
      extra: { kept: true },
      _meta: {
        progressToken: "p",
        "vscode.conversationId": "c",
        "vscode.requestId": "r",
        traceparent: "00-1",
        vendor: 1,
      },
    });
    const reply = await post(s, message);
    expect(reply.headers["content-type"]).toBe("text/event-stream");
    const seen = await s.calls.seen.next();
    expect(seen.request).toEqual({
      server: "one",
      tool: "book",
      arguments: { room: 1 },
      params: message["params"],
      caller: { client: "tester", conversationId: "c", requestId: "r", traceparent: "00-1" },
    });
    for (const progress of [1, 2, 3]) seen.hooks.progress?.({ progressToken: "p", progress, total: 3, vendor: progress });
    void seen.says({ jsonrpc: "2.0", method: "notifications/message", params: { level: "info", data: "hi" } });
    expect(seen.delivered.count).toBe(0);
    seen.result({ ...text("done"), structuredContent: { a: 1 }, unknown: [1, { b: 2 }], _meta: { m: 1 } });
    const events = [
      await reply.message(),
      await reply.message(),
      await reply.message(),
      await reply.message(),
      await reply.message(),
    ];
    expect(events.slice(0, 3).map((event) => event["params"])).toEqual(
      [1, 2, 3].map((progress) => ({ progressToken: "p", progress, total: 3, vendor: progress })),
    );
    expect(events[3]).toMatchObject({ method: "notifications/message" });
    expect(events[4]).toEqual({
      jsonrpc: "2.0",
      id: "a",
      result: { ...text("done"), structuredContent: { a: 1 }, unknown: [1, { b: 2 }], _meta: { m: 1 } },
    });
    expect(await reply.next()).toBe("end");
    await seen.delivered.first;
    expect(seen.delivered.count).toBe(1);
  });

  it("counts an agent that left as not reached, and does not cancel the call", async () => {
    const s = await set();
    const reply = await post(s, call(1));
    const seen = await s.calls.seen.next();
    reply.leave();
    await reply.body;
    // A later request is answered after the gateway has seen the first one leave.
    await (
      await post(s, rpc(2, "ping"))
    ).body;
    seen.result(text("done"));
    await (
      await post(s, rpc(3, "ping"))
    ).body;
    expect(seen.hooks.signal?.aborted).toBe(false);
    expect(seen.delivered.count).toBe(0);
  });

  it.each([
    ["on a stream", both],
    ["in JSON", "application/json"],
  ])("counts an agent that left while it was being told %s as not reached", async (_how, accept) => {
    const s = await set({ keepAliveMs: 5 });
    const reply = await post(s, call(1), { headers: { accept } });
    reply.pause();
    const seen = await s.calls.seen.next();
    seen.result(text("x".repeat(32 * 1024 * 1024))); // more than a socket holds
    await (
      await post(s, rpc(2, "ping"))
    ).body;
    expect(seen.delivered.count).toBe(0);
    reply.leave();
    await reply.body;
    await (
      await post(s, rpc(3, "ping"))
    ).body;
    await (
      await post(s, rpc(4, "ping"))
    ).body;
    expect(seen.delivered.count).toBe(0);
  });

  it("answers in JSON when the agent takes JSON only", async () => {
    const s = await set();
    const sent = post(s, call(7, {}, { progressToken: 1 }), { headers: { accept: "application/json" } });
    const seen = await s.calls.seen.next();
    seen.hooks.progress?.({ progressToken: 1, progress: 1 });
    seen.result(text("done"));
    const reply = await sent;
    expect(reply.headers["content-type"]).toBe("application/json");
    expect(await reply.json()).toEqual({ jsonrpc: "2.0", id: 7, result: text("done") });
    await seen.delivered.first;
  });

  it("keeps a JSON-only agent's connection alive with white space", async () => {
    const s = await set({ keepAliveMs: 5 });
    const reply = await post(s, call(7), { headers: { accept: "application/json" } });
    expect(reply.status).toBe(200); // the head came before the answer
    (await s.calls.seen.next()).error({ code: -32042, message: "no", data: { url: 1 } });
    const body = await reply.body;
    expect(body).toMatch(/^ /);
    expect(JSON.parse(body)).toEqual({ jsonrpc: "2.0", id: 7, error: { code: -32042, message: "no", data: { url: 1 } } });
  });

  it("sends the headers before the answer, and keep-alive comments while the server works", async () => {
    const s = await set({ keepAliveMs: 5 });
    const reply = await post(s, call(1));
    const seen = await s.calls.seen.next();
    expect(await reply.comments.next()).toBe(": keep-alive");
    expect(await reply.comments.next()).toBe(": keep-alive");
    seen.result(text("done"));
    expect(await reply.message()).toMatchObject({ id: 1, result: text("done") });
  });

  it("passes the server's own JSON-RPC error on unchanged", async () => {
    const s = await set();
    const reply = await post(s, call(1));
    (await s.calls.seen.next()).error({ code: -1, message: "theirs", data: { a: [1] } });
    expect(await reply.message()).toEqual({ jsonrpc: "2.0", id: 1, error: { code: -1, message: "theirs", data: { a: [1] } } });
  });

  it("sends no progress to an agent that gave no token, and always the agent's own token", async () => {
    const s = await set();
    const without = await post(s, call(1));
    const first = await s.calls.seen.next();
    first.hooks.progress?.({ progressToken: "theirs", progress: 1 });
    first.result(text("a"));
    expect(await without.message()).toMatchObject({ id: 1 });
    const own = await post(s, call(2, {}, { progressToken: 0 }));
    const second = await s.calls.seen.next();
    second.hooks.progress?.({ progressToken: "theirs", progress: 1 });
    expect(await own.message()).toMatchObject({ method: "notifications/progress", params: { progressToken: 0, progress: 1 } });
    second.result(text("b"));
  });

  it.each([
    ["no params", undefined],
    ["no name", {}],
    ["a name that is no string", { name: 1 }],
    ["an empty name", { name: "" }],
    ["a huge name", { name: "x".repeat(2000) }],
    ["arguments that are an array", { name: "book", arguments: [] }],
    ["arguments that are null", { name: "book", arguments: null }],
    ["arguments that are a string", { name: "book", arguments: "secret" }],
  ])("refuses %s with invalid params, and makes no call", async (_what, params) => {
    const s = await set();
    const reply = await post(s, { jsonrpc: "2.0", id: 1, method: "tools/call", ...(params === undefined ? {} : { params }) });
    expect(await reply.message()).toMatchObject({
      id: 1,
      error: { code: -32602, message: expect.stringMatching(/^Invalid params: /) as string },
    });
    expect(s.calls.count).toBe(0);
  });

  it("lets an agent that does not read miss progress, but not the answer, and holds up nobody else", async () => {
    const s = await set();
    const reply = await post(s, call(1, {}, { progressToken: 1 }));
    reply.pause();
    const seen = await s.calls.seen.next();
    const before = process.memoryUsage().arrayBuffers + process.memoryUsage().heapUsed;
    const message = "x".repeat(100_000);
    for (let progress = 0; progress < 2000; progress += 1) seen.hooks.progress?.({ progressToken: 1, progress, message });
    expect(process.memoryUsage().arrayBuffers + process.memoryUsage().heapUsed - before).toBeLessThan(100_000_000); // of 200 MB
    expect((await post(s, rpc(2, "ping"))).status).toBe(200);
    seen.result(text("done"));
    reply.resume();
    let last = await reply.message();
    let count = 1;
    for (let next = await reply.next(); next !== "end"; next = await reply.next()) {
      last = next;
      count += 1;
    }
    expect(last).toMatchObject({ id: 1, result: text("done") });
    expect(count).toBeLessThan(1000);
    await seen.delivered.first;
  });

  it("carries 64 MiB in both directions", async () => {
    const s = await set();
    const large = "x".repeat(63 * 1024 * 1024);
    const reply = await post(s, call(1, { large }));
    const seen = await s.calls.seen.next();
    expect((seen.request.arguments["large"] as string).length).toBe(large.length);
    seen.result(text(large));
    const { result } = (await reply.message()) as { result: { content: { text: string }[] } };
    expect(result.content[0]?.text.length).toBe(large.length);
    await seen.delivered.first;
  }, 30_000);

  it("never invites a repeat when the call manager itself fails", async () => {
    const s = await set();
    s.calls.call = () => Promise.reject(new Error("secret"));
    const message = await (await post(s, call(1))).message();
    expect(message).toMatchObject({ id: 1, result: { isError: true } });
    expect(JSON.stringify(message)).toMatch(/Do not repeat it automatically/);
    expect(JSON.stringify([message, s.log])).not.toMatch(/secret/);
  });

  it("serves two requests with one id, each on its own exchange", async () => {
    const s = await set();
    const replies = await Promise.all([post(s, call(1, { n: 1 })), post(s, call(1, { n: 2 }))]);
    const seen = [await s.calls.seen.next(), await s.calls.seen.next()];
    for (const one of seen) one.result(text(String(one.request.arguments["n"])));
    const messages = await Promise.all(replies.map((reply) => reply.message()));
    expect(messages.map((message) => message["result"])).toEqual([text("1"), text("2")]);
  });

  it("bounds the calls under way, serves waiting clients in turn, and says clearly when no more can wait", async () => {
    const s = await set({ limits: { concurrent: 1, waiting: 3 } });
    const sendCall = (client: string, n: number) => post(s, call(n, { n }), { headers: { "user-agent": client } });
    const replies = [await sendCall("a", 1)];
    const first = await s.calls.seen.next();
    for (const [client, n] of [
      ["a", 2],
      ["a", 3],
      ["b", 4],
    ] as const)
      replies.push(await sendCall(client, n));
    const refused = await sendCall("b", 5);
    expect(await refused.message()).toMatchObject({
      id: 5,
      error: { code: -32000, message: expect.stringMatching(/busy.*not sent/) as string },
    });
    first.result(text("1"));
    const order = [];
    for (let index = 0; index < 3; index += 1) {
      const seen = await s.calls.seen.next();
      order.push(seen.request.arguments["n"]);
      seen.result(text("x"));
    }
    expect(order).toEqual([2, 4, 3]);
    for (const reply of replies) expect(await reply.message()).toHaveProperty("result");
    expect(s.calls.count).toBe(4);
  });
});

describe("notifications/cancelled", () => {
  const cancel = (requestId: unknown) => ({
    jsonrpc: "2.0",
    method: "notifications/cancelled",
    params: { requestId, reason: "user" },
  });

  it("cancels exactly the call of this client with this id, which is still answered", async () => {
    const s = await set();
    const mine = await post(s, call("1"), { headers: { "user-agent": "a" } });
    const mineSeen = await s.calls.seen.next();
    const other = await post(s, call("1"), { headers: { "user-agent": "b" } });
    const otherSeen = await s.calls.seen.next();
    const number = await post(s, call(1), { headers: { "user-agent": "a" } });
    const numberSeen = await s.calls.seen.next();
    const aborted = new Promise((resolve) => mineSeen.hooks.signal?.addEventListener("abort", resolve));
    expect((await post(s, cancel("1"), { headers: { "user-agent": "a" } })).status).toBe(202);
    await aborted;
    expect([otherSeen.hooks.signal?.aborted, numberSeen.hooks.signal?.aborted]).toEqual([false, false]);
    mineSeen.result(text("unresolved"));
    expect(await mine.message()).toMatchObject({ id: "1", result: text("unresolved") });
    expect(await mine.next()).toBe("end");
    // The agent does not read an answer to what it cancelled.
    await (
      await post(s, rpc(9, "ping"))
    ).body;
    expect(mineSeen.delivered.count).toBe(0);
    for (const [seen, reply] of [
      [otherSeen, other],
      [numberSeen, number],
    ] as const) {
      seen.result(text("x"));
      await reply.message();
    }
  });

  it("cancels nothing when two calls match", async () => {
    const s = await set();
    await Promise.all([post(s, call(1)), post(s, call(1))]);
    const seen = [await s.calls.seen.next(), await s.calls.seen.next()];
    await post(s, cancel(1));
    await (
      await post(s, rpc(9, "ping"))
    ).body;
    expect(seen.map((one) => one.hooks.signal?.aborted)).toEqual([false, false]);
    expect(s.log.some((line) => /several calls/.test(line.text))).toBe(true);
  });

  it("does not cancel the call of another hosted server with the same id", async () => {
    const s = await set();
    s.servers.set("two", new FakeServer("two"));
    await post(s, call(1), { path: "/servers/two/mcp" });
    const seen = await s.calls.seen.next();
    await post(s, cancel(1));
    await (
      await post(s, rpc(9, "ping"))
    ).body;
    expect(seen.hooks.signal?.aborted).toBe(false);
  });

  it.each([[undefined], [null], [{}], [Number.NaN], ["x".repeat(5000)]])("ignores the request id %j", async (id) => {
    const s = await set();
    expect((await post(s, cancel(id))).status).toBe(202);
  });

  it("cancels a passed-on request", async () => {
    const s = await set();
    const connection = await s.server.live();
    const sent = post(s, rpc(5, "resources/read", { uri: "u:1" }));
    const seen = await connection.requests.next();
    await post(s, cancel(5));
    expect(await (await sent).json()).toMatchObject({ id: 5, error: { message: "No answer; reading again is safe." } });
    expect(seen.options?.signal?.aborted).toBe(true);
  });
});

describe("tools/list", () => {
  const page = {
    tools: [
      {
        name: "read",
        title: "R",
        inputSchema: { type: "object" },
        annotations: { readOnlyHint: true, title: "t" },
        vendor: { x: 1 },
      },
      { name: "odd", inputSchema: { type: "object" }, annotations: { readOnlyHint: true, destructiveHint: true } },
      { name: "odd2", inputSchema: { type: "object" }, annotations: { readOnlyHint: true, idempotentHint: false } },
      { name: "plain", inputSchema: { type: "object" }, execution: { taskSupport: "optional" } },
    ],
    nextCursor: "n",
    _meta: { page: 1 },
    vendor: true,
  };
  const without = [
    { name: "odd", inputSchema: { type: "object" }, annotations: { destructiveHint: true } },
    { name: "odd2", inputSchema: { type: "object" }, annotations: { idempotentHint: false } },
    page.tools[3],
  ];

  it("passes the server's pages on unchanged, cursor and unknown fields included, but for contradictory hints", async () => {
    const s = await set();
    s.trust.trust(s.server);
    const connection = await s.server.live();
    const sent = post(s, rpc(1, "tools/list", { cursor: "c", _meta: { v: 1 } }));
    const seen = await connection.requests.next();
    expect(seen.params).toEqual({ cursor: "c", _meta: { v: 1 } });
    seen.result(page);
    expect(await (await sent).json()).toEqual({ jsonrpc: "2.0", id: 1, result: { ...page, tools: [page.tools[0], ...without] } });
  });

  it("takes readOnlyHint from the tools of a server that is not trusted at this moment", async () => {
    const s = await set();
    const connection = await s.server.live();
    connection.automatic = (method) => (method === "tools/list" ? page : undefined);
    const first = async () => {
      const { result } = (await (await post(s, rpc(1, "tools/list"))).json()) as { result: typeof page };
      return result.tools[0]?.annotations;
    };
    expect(await first()).toEqual({ title: "t" });
    s.trust.trust(s.server);
    expect(await first()).toEqual({ readOnlyHint: true, title: "t" });
    s.trust.servers.set("one", "another definition");
    expect(await first()).toEqual({ title: "t" });
    s.trust.trust(s.server);
    s.trust.workspace = false;
    expect(await first()).toEqual({ title: "t" });
  });
});

describe("everything else", () => {
  it("answers ping itself, without a server", async () => {
    const s = await set();
    s.server.connecting = () => Promise.reject(new HostingError("dns", "no"));
    expect(await (await post(s, rpc("p", "ping"))).json()).toEqual({ jsonrpc: "2.0", id: "p", result: {} });
  });

  it.each([
    ["resources/list", { cursor: "x" }],
    ["resources/read", { uri: "u:1", _meta: { progressToken: 4 } }],
    ["prompts/get", { name: "p", arguments: { a: "1" } }],
    ["completion/complete", { ref: { type: "ref/prompt", name: "p" }, argument: { name: "a", value: "" } }],
    ["logging/setLevel", { level: "debug" }],
    ["tasks/get", { taskId: "t" }],
    ["vendor/thing", { deep: { er: [1, null] } }],
    ["vendor/bare", undefined],
  ])("passes %s on and its answer back unchanged", async (method, params) => {
    const s = await set();
    const connection = await s.server.live();
    const sent = post(s, rpc("i", method, params));
    const seen = await connection.requests.next();
    expect([seen.method, seen.params]).toEqual([method, params]);
    const result = { a: 1, unknown: { b: [null, "x"] }, _meta: { c: 2 }, resultType: "odd" };
    seen.result(result);
    expect(await (await sent).json()).toEqual({ jsonrpc: "2.0", id: "i", result });
  });

  it("passes the server's error on unchanged", async () => {
    const s = await set();
    const connection = await s.server.live();
    const sent = post(s, rpc(1, "vendor/thing"));
    (await connection.requests.next()).error({ code: -32601, message: "Method not found", data: { x: 1 } });
    const reply = await sent;
    expect(reply.status).toBe(200);
    expect(await reply.json()).toEqual({
      jsonrpc: "2.0",
      id: 1,
      error: { code: -32601, message: "Method not found", data: { x: 1 } },
    });
  });

  it.each([
    ["resources/read", "sent", "No answer; reading again is safe."],
    ["tools/list", "answering", "No answer; reading again is safe."],
    ["prompts/get", "sending", "No answer; reading again is safe."],
    ["vendor/thing", "sent", "No answer; the server may have acted on this request. Verify before you ask again."],
    ["tasks/cancel", "sent", "No answer; the server may have acted on this request. Verify before you ask again."],
    ["vendor/thing", "not-sent", "The request did not reach the server; asking again is safe."],
  ] as const)("says of a lost %s at stage %s: %s", async (method, stage, message) => {
    const s = await set();
    const connection = await s.server.live();
    const sent = post(s, rpc(1, method));
    (await connection.requests.next()).lose({ kind: "http-status", httpStatus: 502, stage });
    expect(await (await sent).json()).toMatchObject({ id: 1, error: { message } });
  });

  it("relays progress of a passed-on request, then the answer, on a stream", async () => {
    const s = await set();
    const connection = await s.server.live();
    const sent = post(s, rpc(1, "resources/read", { uri: "u:1", _meta: { progressToken: "mine" } }));
    const seen = await connection.requests.next();
    seen.options?.observer?.progress?.({ progressToken: "other", progress: 5 });
    seen.options?.observer?.related?.({ jsonrpc: "2.0", method: "notifications/vendor", params: { x: 1 } });
    seen.result({ contents: [] });
    const reply = await sent;
    expect(await reply.message()).toMatchObject({ params: { progressToken: "mine", progress: 5 } });
    expect(await reply.message()).toEqual({ jsonrpc: "2.0", method: "notifications/vendor", params: { x: 1 } });
    expect(await reply.message()).toEqual({ jsonrpc: "2.0", id: 1, result: { contents: [] } });
  });

  it("passes other notifications on to a live server, and keeps initialized to itself", async () => {
    const s = await set();
    const connection = await s.server.live();
    for (const message of [
      { jsonrpc: "2.0", method: "notifications/initialized" },
      { jsonrpc: "2.0", method: "notifications/vendor", params: { a: 1 } },
    ]) {
      expect((await post(s, message)).status).toBe(202);
    }
    expect(await connection.notifications.next()).toEqual({ method: "notifications/vendor", params: { a: 1 } });
    expect(connection.notifications.size).toBe(0);
  });

  it.each([["server/discover"], ["subscriptions/listen"]])(
    "does not know %s of the later era, whatever the server speaks",
    async (method) => {
      const s = await set({ facts: modernFacts });
      const connection = await s.server.live();
      expect(await (await post(s, rpc(1, method, {}))).json()).toMatchObject({ id: 1, error: { code: -32601 } });
      expect(connection.requestCount).toBe(0);
    },
  );

  it("gives 405 to DELETE", async () => {
    const s = await set();
    const reply = await send(s, { method: "DELETE" });
    expect([reply.status, reply.headers.allow]).toEqual([405, "POST, GET"]);
    expect(await reply.json()).toMatchObject({ error: { code: -32000 } });
  });

  it("shares one subscription at the server among all agents", async () => {
    const s = await set();
    const connection = await s.server.live();
    const seen: string[] = [];
    connection.automatic = (method) => {
      seen.push(method);
      return {};
    };
    const as = (client: string, method: string) => post(s, rpc(1, method, { uri: "u:1" }), { headers: { "user-agent": client } });
    await (
      await as("a", "resources/subscribe")
    ).body;
    await (
      await as("b", "resources/subscribe")
    ).body;
    await (
      await as("a", "resources/unsubscribe")
    ).body;
    expect(seen).toEqual(["resources/subscribe", "resources/subscribe"]);
    await (
      await as("b", "resources/unsubscribe")
    ).body;
    expect(seen).toEqual(["resources/subscribe", "resources/subscribe", "resources/unsubscribe"]);
  });

  it("subscribes again on a new connection", async () => {
    const s = await set();
    const connection = await s.server.live();
    connection.automatic = () => ({});
    await (
      await post(s, rpc(1, "resources/subscribe", { uri: "u:1" }))
    ).body;
    connection.open = false;
    const next = await s.server.live();
    expect(await next.requests.next()).toMatchObject({ method: "resources/subscribe", params: { uri: "u:1" } });
  });
});

describe("batches", () => {
  const version = (value: string | undefined) => (value === undefined ? {} : { headers: { "mcp-protocol-version": value } });

  it.each([[undefined], ["2025-03-26"], ["2024-11-05"]])(
    "are served for version %s: answers on one stream, as they come",
    async (value) => {
      const s = await set();
      const batch = [rpc(1, "ping"), { jsonrpc: "2.0", method: "notifications/initialized" }, call("c"), rpc(2, "ping")];
      const reply = await post(s, batch, version(value));
      const answers = [await reply.message(), await reply.message()];
      const seen = await s.calls.seen.next();
      seen.result(text("done"));
      answers.push(await reply.message());
      expect(answers.map((answer) => answer["id"])).toEqual([1, 2, "c"]);
      expect(await reply.next()).toBe("end");
      await seen.delivered.first;
    },
  );

  it("are answered by one array for an agent that takes JSON only", async () => {
    const s = await set();
    s.calls.automatic = () => text("done");
    const reply = await post(s, [call(1), rpc(2, "ping")], { headers: { accept: "application/json" } });
    const answers = JSON.parse(await reply.body) as { id: number }[];
    expect(answers.map((answer) => answer.id).sort()).toEqual([1, 2]);
  });

  it("of notifications only get 202", async () => {
    const s = await set();
    expect((await post(s, [{ jsonrpc: "2.0", method: "notifications/x" }])).status).toBe(202);
  });

  it.each([
    ["a version without batches", [call(1)], "2025-06-18"],
    ["the newest legacy version", [call(1)], "2025-11-25"],
    ["initialize inside", [initialize(), call(1)], undefined],
    ["one id twice", [call(1), call(1)], undefined],
    ["an invalid message", [call(1), 3], undefined],
    ["nothing", [], undefined],
    ["too many messages", Array.from({ length: 101 }, (_, id) => call(id)), undefined],
  ])("with %s are refused as a whole, and nothing is sent", async (_what, batch, value) => {
    const s = await set();
    const reply = await post(s, batch, version(value));
    expect(reply.status).toBe(400);
    expect(await reply.json()).toMatchObject({ jsonrpc: "2.0", id: null, error: { code: -32600 } });
    expect(s.calls.count).toBe(0);
  });
});

describe("the server's own requests", () => {
  const question = {
    jsonrpc: "2.0",
    id: 77,
    method: "elicitation/create",
    params: { message: "Name?", requestedSchema: { type: "object" } },
  };

  it("go out on the stream of the call that caused them, and the answer comes back by a POST of its own", async () => {
    const s = await set();
    await (
      await post(s, initialize("2025-11-25", { elicitation: {} }))
    ).body;
    const connection = await s.server.live();
    const reply = await post(s, call(1));
    const seen = await s.calls.seen.next();
    let answered = false;
    const answering = seen.says(question).then(() => (answered = true));
    const asked = await reply.message();
    expect(answered).toBe(false); // until then the call's clock stands still
    expect(asked).toEqual({ ...question, id: expect.any(String) as string });
    expect(asked["id"]).not.toBe(77);
    const answer = await post(s, {
      jsonrpc: "2.0",
      id: asked["id"],
      result: { action: "accept", content: { name: "A" }, extra: 1 },
    });
    expect(answer.status).toBe(202);
    expect(await connection.responses.next()).toEqual({
      jsonrpc: "2.0",
      id: 77,
      result: { action: "accept", content: { name: "A" }, extra: 1 },
    });
    await answering;
    // A second answer has nothing to answer.
    await post(s, { jsonrpc: "2.0", id: asked["id"], result: { action: "decline" } });
    expect(connection.responses.size).toBe(0);
    seen.result(text("done"));
    expect(await reply.message()).toMatchObject({ id: 1, result: text("done") });
  });

  it("are not answered by a POST to another server's URL", async () => {
    const s = await set();
    s.servers.set("two", new FakeServer("two"));
    const connection = await s.server.live();
    const reply = await post(s, call(1));
    void (await s.calls.seen.next()).says(question);
    const { id } = await reply.message();
    await post(s, { jsonrpc: "2.0", id, result: { action: "accept" } }, { path: "/servers/two/mcp" });
    expect(connection.responses.size).toBe(0);
    await post(s, { jsonrpc: "2.0", id, error: { code: -1, message: "no" } });
    expect(await connection.responses.next()).toEqual({ jsonrpc: "2.0", id: 77, error: { code: -1, message: "no" } });
  });

  it("get an error when the agent has left, leaves, or did not declare the capability", async () => {
    const s = await set();
    const connection = await s.server.live();
    const reply = await post(s, call(1));
    const seen = await s.calls.seen.next();
    void seen.says(question);
    await reply.message();
    reply.leave();
    expect(await connection.responses.next()).toMatchObject({
      id: 77,
      error: { message: expect.stringMatching(/gone/) as string },
    });
    void seen.says({ ...question, id: 78 });
    expect(await connection.responses.next()).toMatchObject({ id: 78, error: { code: -32603 } });
    await (
      await post(s, initialize("2025-11-25", { roots: {} }), { headers: { "user-agent": "plain" } })
    ).body;
    await post(s, call(1), { headers: { "user-agent": "plain" } });
    void (await s.calls.seen.next()).says({ ...question, id: 79 });
    expect(await connection.responses.next()).toMatchObject({ id: 79, error: { code: -32601 } });
  });

  it("are withdrawn when their call is over, and when the server takes them back", async () => {
    const s = await set();
    const connection = await s.server.live();
    const reply = await post(s, call(1));
    const seen = await s.calls.seen.next();
    const answering = seen.says(question);
    const { id } = await reply.message();
    void seen.says({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 77, reason: "r" } });
    await answering;
    expect(await reply.message()).toEqual({
      jsonrpc: "2.0",
      method: "notifications/cancelled",
      params: { requestId: id, reason: "r" },
    });
    const withdrawn = seen.says({ ...question, id: 78 });
    await reply.message();
    seen.result(text("done"));
    await withdrawn;
    expect(await connection.responses.next()).toMatchObject({ id: 78, error: {} });
    expect(connection.responses.size).toBe(0);
  });

  it("of a call by a JSON-only agent go to its standing stream, or get an error", async () => {
    const s = await set();
    const connection = await s.server.live();
    const sent = post(s, call(1), { headers: { accept: "application/json" } });
    const seen = await s.calls.seen.next();
    void seen.says(question);
    expect(await connection.responses.next()).toMatchObject({
      id: 77,
      error: { message: expect.stringMatching(/No client/) as string },
    });
    const stream = await send(s, { method: "GET", headers: { accept: "text/event-stream" } });
    void seen.says({ ...question, id: 78 });
    const { id } = await stream.message();
    await post(s, { jsonrpc: "2.0", id, result: { action: "decline" } });
    expect(await connection.responses.next()).toEqual({ jsonrpc: "2.0", id: 78, result: { action: "decline" } });
    seen.result(text("done"));
    await (
      await sent
    ).body;
  });

  it("that belong to no call go to one agent that can answer, or get an error", async () => {
    const s = await set();
    const connection = await s.server.live();
    const roots = { jsonrpc: "2.0", id: 5, method: "roots/list" };
    s.server.says(roots);
    expect(await connection.responses.next()).toMatchObject({
      id: 5,
      error: { message: expect.stringMatching(/No client/) as string },
    });
    const as = (client: string) => ({ headers: { "user-agent": client, accept: "text/event-stream" } });
    await (
      await post(s, initialize("2025-11-25", { roots: {} }), { headers: { "user-agent": "able" } })
    ).body;
    await (
      await post(s, initialize("2025-11-25", {}), { headers: { "user-agent": "unable" } })
    ).body;
    const able = await send(s, { method: "GET", ...as("able") });
    // The server may ask again now that somebody is there.
    expect(await connection.notifications.next()).toEqual({ method: "notifications/roots/list_changed", params: undefined });
    await send(s, { method: "GET", ...as("unable") });
    s.server.says({ ...roots, id: 6 });
    const { id, method } = await able.message();
    expect(method).toBe("roots/list");
    await post(s, { jsonrpc: "2.0", id, result: { roots: [] } });
    expect(await connection.responses.next()).toEqual({ jsonrpc: "2.0", id: 6, result: { roots: [] } });
  });

  it("that name no call (stdio) go to the one agent that has a call under way", async () => {
    const s = await set();
    const connection = await s.server.live();
    await send(s, { method: "GET", headers: { accept: "text/event-stream", "user-agent": "bystander" } });
    const reply = await post(s, call(1));
    const seen = await s.calls.seen.next();
    s.server.says(question);
    const { id } = await reply.message();
    await post(s, { jsonrpc: "2.0", id, result: { action: "accept" } });
    expect(await connection.responses.next()).toEqual({ jsonrpc: "2.0", id: 77, result: { action: "accept" } });
    seen.result(text("done"));
    await reply.message();
  });

  it("that name no call are not put to an agent that may be the wrong one", async () => {
    const s = await set();
    const connection = await s.server.live();
    const replies = [];
    for (const client of ["a", "b"]) replies.push(await post(s, call(1), { headers: { "user-agent": client } }));
    const seen = [await s.calls.seen.next(), await s.calls.seen.next()];
    s.server.says(question);
    expect(await connection.responses.next()).toMatchObject({ id: 77, error: {} });
    expect(s.log.some((line) => /several clients/.test(line.text))).toBe(true);
    // The roots are no call's affair: any standing stream will do.
    const stream = await send(s, { method: "GET", headers: { accept: "text/event-stream" } });
    s.server.says({ jsonrpc: "2.0", id: 78, method: "roots/list" });
    expect(await stream.message()).toMatchObject({ method: "roots/list" });
    for (const one of seen) one.result(text("done"));
    for (const reply of replies) expect(await reply.message()).toHaveProperty("result");
  });

  it("that are pings are answered here", async () => {
    const s = await set();
    const connection = await s.server.live();
    s.server.says({ jsonrpc: "2.0", id: 5, method: "ping" });
    expect(await connection.responses.next()).toEqual({ jsonrpc: "2.0", id: 5, result: {} });
  });
});

describe("the GET stream", () => {
  const listen = (s: Stage, client = "tests") =>
    send(s, { method: "GET", headers: { accept: "text/event-stream", "user-agent": client } });

  it("carries what belongs to no call to every agent, and stays alive", async () => {
    const s = await set({ keepAliveMs: 5 });
    await s.server.live();
    const streams = [await listen(s, "a"), await listen(s, "b")];
    expect(streams.map((stream) => stream.headers["content-type"])).toEqual(["text/event-stream", "text/event-stream"]);
    for (const message of [
      { jsonrpc: "2.0", method: "notifications/tools/list_changed" },
      { jsonrpc: "2.0", method: "notifications/resources/updated", params: { uri: "u:1", extra: 1 } },
      { jsonrpc: "2.0", method: "notifications/message", params: { level: "info", data: { a: 1 } } },
      { jsonrpc: "2.0", method: "notifications/vendor", params: { a: 1 } },
    ]) {
      s.server.says(message);
      for (const stream of streams) expect(await stream.message()).toEqual(message);
    }
    await streams[0]?.comments.next();
  });

  it("announces other tools after a new connection, and when trust changed", async () => {
    const s = await set();
    const connection = await s.server.live();
    s.server.toolsChanged();
    const stream = await listen(s);
    s.server.toolsChanged(); // the same connection: the server announces its own changes
    connection.open = false;
    await s.server.live();
    s.server.toolsChanged();
    expect(await stream.message()).toEqual({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    s.gateway.announceTools("other");
    s.gateway.announceTools("one");
    expect(await stream.message()).toEqual({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
  });

  it("hears a change that the server announced on a call's own stream, once per agent", async () => {
    const s = await set();
    await s.server.live();
    const stream = await listen(s, "a");
    const withStream = await post(s, call(1), { headers: { "user-agent": "a" } });
    const first = await s.calls.seen.next();
    const withoutStream = await post(s, call(2), { headers: { "user-agent": "b" } });
    const second = await s.calls.seen.next();
    const changed = { jsonrpc: "2.0", method: "notifications/tools/list_changed" };
    void second.says(changed);
    expect(await stream.message()).toEqual(changed);
    expect(await withoutStream.message()).toEqual(changed);
    void first.says(changed);
    expect(await stream.message()).toEqual(changed);
    first.result(text("done"));
    expect(await withStream.message()).toMatchObject({ id: 1 });
    second.result(text("done"));
  });

  it("needs an agent that takes streams", async () => {
    const s = await set();
    expect((await send(s, { method: "GET", headers: { accept: "application/json" } })).status).toBe(406);
  });

  it("ends when its server is no longer hosted", async () => {
    const s = await set();
    const stream = await listen(s);
    s.servers.delete("one");
    s.gateway.serversChanged();
    expect(await stream.next()).toBe("end");
    expect((await post(s, rpc(1, "ping"))).status).toBe(404);
  });
});

describe("a 2026-07-28 server behind a legacy agent", () => {
  it("gets the agent's capabilities and log level with each request, and its marks are taken out of results", async () => {
    const s = await set({ facts: modernFacts });
    await (
      await post(s, initialize("2025-11-25", { elicitation: {}, tasks: {} }))
    ).body;
    const connection = await s.server.live();
    expect(await (await post(s, rpc(1, "logging/setLevel", { level: "warning" }))).json()).toEqual({
      jsonrpc: "2.0",
      id: 1,
      result: {},
    });
    const sent = post(s, rpc(2, "tools/list"));
    const seen = await connection.requests.next();
    expect(seen.params).toEqual({
      _meta: { "io.modelcontextprotocol/clientCapabilities": { elicitation: {} }, "io.modelcontextprotocol/logLevel": "warning" },
    });
    seen.result({
      tools: [],
      ttlMs: 5,
      cacheScope: "public",
      resultType: "complete",
      x: 1,
      _meta: { "io.modelcontextprotocol/serverInfo": {}, y: 2 },
    });
    expect(await (await sent).json()).toEqual({ jsonrpc: "2.0", id: 2, result: { tools: [], x: 1, _meta: { y: 2 } } });
  });

  it("asks for input by input_required: the agent is asked in its own way, and the next round echoes the state exactly", async () => {
    const s = await set({ facts: modernFacts });
    await (
      await post(s, initialize("2025-11-25", { elicitation: {} }))
    ).body;
    await s.server.live();
    const reply = await post(s, call(1, { room: 1 }));
    const first = await s.calls.seen.next();
    const params = { message: "Name?", requestedSchema: { type: "object", properties: {} } };
    first.result({
      resultType: "input_required",
      inputRequests: { who: { method: "elicitation/create", params } },
      requestState: "st\u00e4te",
    });
    const asked = await reply.message();
    expect(asked).toMatchObject({ method: "elicitation/create", params });
    expect(first.delivered.count).toBe(1); // the face has read it for the agent
    await post(s, { jsonrpc: "2.0", id: asked["id"], result: { action: "accept", content: { n: 1 } } });
    const second = await s.calls.seen.next();
    expect(second.request.arguments).toEqual({ room: 1 });
    expect(second.request.params).toMatchObject({
      name: "book",
      arguments: { room: 1 },
      inputResponses: { who: { action: "accept", content: { n: 1 } } },
      requestState: "st\u00e4te",
    });
    second.result({ ...text("done"), resultType: "complete" });
    expect(await reply.message()).toEqual({ jsonrpc: "2.0", id: 1, result: text("done") });
  });

  it("stops when the agent does not give the input, and says what to do", async () => {
    const s = await set({ facts: modernFacts });
    const reply = await post(s, call(1));
    (await s.calls.seen.next()).result({
      resultType: "input_required",
      inputRequests: { who: { method: "elicitation/create", params: {} } },
      requestState: "s",
    });
    const { id } = await reply.message();
    await post(s, { jsonrpc: "2.0", id, error: { code: -32601, message: "no" } });
    expect(await reply.message()).toMatchObject({
      id: 1,
      result: { isError: true, content: [{ text: expect.stringMatching(/did not give it/) as string }] },
    });
    expect(s.calls.count).toBe(1);
  });

  it("cannot ask for ever", async () => {
    const s = await set({ facts: modernFacts });
    s.calls.automatic = () => ({ resultType: "input_required", requestState: "again" });
    const reply = await post(s, call(1));
    expect(await reply.message()).toMatchObject({ id: 1, result: { isError: true } });
    expect(s.calls.count).toBe(11);
  });

  it("hears of resource subscriptions by one listen request", async () => {
    const s = await set({ facts: modernFacts });
    const connection = await s.server.live();
    const stream = await send(s, { method: "GET", headers: { accept: "text/event-stream" } });
    expect(await (await post(s, rpc(1, "resources/subscribe", { uri: "u:1" }))).json()).toMatchObject({ result: {} });
    const first = await connection.requests.next();
    expect([first.method, first.params]).toEqual(["subscriptions/listen", { notifications: { resourceSubscriptions: ["u:1"] } }]);
    first.options?.observer?.related?.({
      jsonrpc: "2.0",
      method: "notifications/resources/updated",
      params: { uri: "u:1", _meta: { "io.modelcontextprotocol/subscriptionId": "theirs", x: 1 } },
    });
    expect(await stream.message()).toEqual({
      jsonrpc: "2.0",
      method: "notifications/resources/updated",
      params: { uri: "u:1", _meta: { x: 1 } },
    });
    await (
      await post(s, rpc(2, "resources/unsubscribe", { uri: "u:1" }))
    ).body;
    expect(first.options?.signal?.aborted).toBe(true);
  });
});
