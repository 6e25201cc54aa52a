/** Owns: the 2026-07-28 face's rules, over a real socket. */
import { afterEach, describe, expect, it } from "vitest";
import * as sdk from "@modelcontextprotocol/server";
import { metaKeys } from "../../../src/gateway/envelope.ts";
import { HostingError } from "../../../src/hosting/connection.ts";
import {
  FakeServer,
  legacyFacts,
  modernFacts,
  post,
  rpc,
  send,
  stage,
  type Reply,
  type SendOptions,
  type Stage,
} from "./fakes.ts";

type Fields = Record<string, unknown>;

const open: Stage[] = [];
async function set(...options: Parameters<typeof stage>): Promise<Stage> {
  const made = await stage(...options);
  open.push(made);
  return made;
}
afterEach(async () => {
  for (const made of open.splice(0)) await made.close();
});

const version = "2026-07-28";
const envelope = (capabilities: Fields = {}, more: Fields = {}): Fields => ({
  [metaKeys.protocolVersion]: version,
  [metaKeys.clientInfo]: { name: "modern-tester", version: "1" },
  [metaKeys.clientCapabilities]: capabilities,
  ...more,
});
const names: Record<string, string> = {
  "tools/call": "name",
  "prompts/get": "name",
  "resources/read": "uri",
  "tasks/get": "taskId",
};

/** A well-formed request of this era. */
function ask(
  s: Stage,
  id: unknown,
  method: string,
  params: Fields = {},
  meta: Fields = envelope(),
  options: SendOptions = {},
): Promise<Reply> {
  const name = names[method];
  const { headers, ...rest } = options;
  return post(s, rpc(id, method, { ...params, _meta: meta }), {
    headers: {
      "mcp-protocol-version": version,
      "mcp-method": method,
      ...(name === undefined ? {} : { "mcp-name": String(params[name]) }),
      ...headers,
    },
    ...rest,
  });
}
const text = (value: string) => ({ content: [{ type: "text", text: value }] });
const book = (args: Fields = {}) => ({ name: "book", arguments: args });

describe("server/discover", () => {
  it("is answered from the server's own facts", async () => {
    const s = await set({ facts: modernFacts });
    const reply = await ask(s, 1, "server/discover");
    expect([reply.status, reply.headers["content-type"]]).toEqual([200, "application/json"]);
    expect(reply.headers).not.toHaveProperty("mcp-session-id");
    expect(await reply.json()).toEqual({
      jsonrpc: "2.0",
      id: 1,
      result: {
        resultType: "complete",
        supportedVersions: [version],
        capabilities: modernFacts.capabilities,
        instructions: "Modern.",
        ttlMs: 0,
        cacheScope: "private",
        _meta: { [metaKeys.serverInfo]: modernFacts.serverInfo },
      },
    });
  });

  it("leaves out what belongs to the older era of an older server", async () => {
    const s = await set({ facts: { ...legacyFacts, capabilities: { tools: {}, tasks: { list: {} } } } });
    expect(await (await ask(s, 1, "server/discover")).json()).toMatchObject({ result: { capabilities: { tools: {} } } });
  });

  it("says in one sentence that the server cannot be reached", async () => {
    const s = await set();
    s.server.connecting = () => Promise.reject(new HostingError("tls", "secret"));
    const body = await (await ask(s, 1, "server/discover")).body;
    expect(body).toMatch(/cannot be reached now: the secure connection to it failed/);
    expect(body).not.toMatch(/secret/);
  });
});

describe("the envelope and its headers", () => {
  it("uses the SDK's names", () => {
    expect(Object.values(metaKeys)).toEqual([
      sdk.PROTOCOL_VERSION_META_KEY,
      sdk.CLIENT_INFO_META_KEY,
      sdk.CLIENT_CAPABILITIES_META_KEY,
      // eslint-disable-next-line @typescript-eslint/no-deprecated -- it is part of this version
      sdk.LOG_LEVEL_META_KEY,
      sdk.SERVER_INFO_META_KEY,
      sdk.SUBSCRIPTION_ID_META_KEY,
    ]);
  });

  const headers = { "mcp-protocol-version": version, "mcp-method": "tools/call", "mcp-name": "book" };
  const call = (meta: Fields | null = envelope(), params: Fields = book({ secret: "s3cret" })) =>
    rpc(1, "tools/call", { ...params, ...(meta === null ? {} : { _meta: meta }) });
  const table: [string, unknown, Record<string, string>, string[], number, number][] = [
    ["no version header", call(), headers, ["mcp-protocol-version"], 400, -32020],
    ["an older version header", call(), { ...headers, "mcp-protocol-version": "2025-11-25" }, [], 400, -32020],
    ["no method header", call(), headers, ["mcp-method"], 400, -32020],
    ["another method header", call(), { ...headers, "mcp-method": "tools/list" }, [], 400, -32020],
    ["no name header", call(), headers, ["mcp-name"], 400, -32020],
    ["another name header", call(), { ...headers, "mcp-name": "other" }, [], 400, -32020],
    ["a broken name header", call(), { ...headers, "mcp-name": "=?base64?!?=" }, [], 400, -32020],
    ["no envelope behind a modern header", call(null), headers, [], 400, -32602],
    ["an envelope without capabilities", call({ [metaKeys.protocolVersion]: version }), headers, [], 400, -32602],
    ["a version that is no string", call({ ...envelope(), [metaKeys.protocolVersion]: 5 }), headers, [], 400, -32602],
    [
      "a version not known",
      call({ ...envelope(), [metaKeys.protocolVersion]: "2030-01-01" }),
      { ...headers, "mcp-protocol-version": "2030-01-01" },
      [],
      400,
      -32022,
    ],
    ["a huge version", call({ ...envelope(), [metaKeys.protocolVersion]: "9".repeat(100_000) }), headers, [], 400, -32022],
    ["a batch", [call()], headers, [], 400, -32600],
    ["an initialize with a modern header", rpc(1, "initialize", {}), { ...headers, "mcp-method": "initialize" }, [], 400, -32020],
    ["nothing it accepts", call(), { ...headers, accept: "text/html" }, [], 406, -32000],
  ];

  it.each(table)("(%s) is refused, and nothing is sent", async (_what, message, sent, omit, status, code) => {
    const s = await set();
    const reply = await post(s, message, { headers: sent, omit });
    expect(reply.status).toBe(status);
    const body = await reply.body;
    expect(JSON.parse(body)).toMatchObject({ error: { code } });
    expect(body).not.toMatch(/s3cret/);
    expect(body.length).toBeLessThan(1500);
    expect(s.calls.count).toBe(0);
  });

  it("names the supported versions", async () => {
    const s = await set();
    const reply = await post(s, call({ ...envelope(), [metaKeys.protocolVersion]: "2030-01-01" }), {
      headers: { ...headers, "mcp-protocol-version": "2030-01-01" },
    });
    expect(await reply.json()).toMatchObject({ error: { data: { supported: [version], requested: "2030-01-01" } } });
  });

  it("takes a name header in base64", async () => {
    const s = await set();
    s.calls.automatic = () => text("done");
    const name = "bücher";
    const encoded = `=?base64?${Buffer.from(name).toString("base64")}?=`;
    expect(
      (await ask(s, 1, "tools/call", { name, arguments: {} }, envelope(), { headers: { "mcp-name": encoded } })).status,
    ).toBe(200);
  });

  it("checks the headers that mirror arguments, without repeating a value", async () => {
    const s = await set();
    s.calls.automatic = () => text("done");
    s.server.tools = [
      {
        name: "book",
        inputSchema: {
          type: "object",
          properties: {
            region: { type: "string", "x-mcp-header": "Region" },
            deep: { type: "object", properties: { n: { type: "integer", "x-mcp-header": "N" } } },
          },
        },
      },
    ];
    const args = { region: "s3cret", deep: { n: 42 } };
    const attempt = (headers: Record<string, string>) => ask(s, 1, "tools/call", book(args), envelope(), { headers });
    for (const bad of [
      {},
      { "mcp-param-region": "s3cret" },
      { "mcp-param-region": "other", "mcp-param-n": "42" },
      { "mcp-param-region": "s3cret", "mcp-param-n": "43" },
    ]) {
      const reply = await attempt(bad);
      const body = await reply.body;
      expect([reply.status, (JSON.parse(body) as { error: { code: number } }).error.code]).toEqual([400, -32020]);
      expect(body).not.toMatch(/s3cret/);
    }
    expect(s.calls.count).toBe(0);
    expect((await attempt({ "mcp-param-region": "s3cret", "mcp-param-n": "42.0" })).status).toBe(200);
    expect((await ask(s, 1, "tools/call", book({ region: null }), envelope())).status).toBe(200);
  });

  it("has no GET of its own and serves the older versions on the same URL", async () => {
    const s = await set();
    expect(
      (await send(s, { method: "GET", headers: { "mcp-protocol-version": version, accept: "text/event-stream" } })).status,
    ).toBe(400);
    expect((await post(s, rpc(1, "ping"))).status).toBe(200);
  });

  it.each([
    ["initialize"],
    ["ping"],
    ["logging/setLevel"],
    ["resources/subscribe"],
    ["tasks/list"],
    ["tasks/get"],
    ["sampling/createMessage"],
  ])("does not know %s any more", async (method) => {
    const s = await set();
    const reply = await ask(s, 1, method, { taskId: "t" });
    expect([reply.status, await reply.json()]).toMatchObject([404, { id: 1, error: { code: -32601 } }]);
  });
});

describe("tools/call", () => {
  it("goes through Calls; a quick answer is JSON, unknown fields kept, and what the era requires is filled in", async () => {
    const s = await set();
    await s.server.live();
    const sent = ask(s, "a", "tools/call", { ...book({ room: 1 }), extra: 1 }, envelope({}, { traceparent: "00-9", vendor: 2 }));
    const seen = await s.calls.seen.next();
    expect(seen.request).toMatchObject({
      server: "one",
      tool: "book",
      arguments: { room: 1 },
      caller: { client: "modern-tester", traceparent: "00-9" },
    });
    // An older server is not told the envelope of the other era.
    expect(seen.request.params).toEqual({ ...book({ room: 1 }), extra: 1, _meta: { traceparent: "00-9", vendor: 2 } });
    seen.result({ ...text("done"), structuredContent: { a: 1 }, unknown: { b: [1] }, _meta: { c: 3 } });
    const reply = await sent;
    expect(reply.headers["content-type"]).toBe("application/json");
    expect(await reply.json()).toEqual({
      jsonrpc: "2.0",
      id: "a",
      result: {
        ...text("done"),
        structuredContent: { a: 1 },
        unknown: { b: [1] },
        resultType: "complete",
        _meta: { c: 3, [metaKeys.serverInfo]: legacyFacts.serverInfo },
      },
    });
    await seen.delivered.first;
  });

  it("passes the agent's capabilities to a server of this era, and its result on untouched, input_required included", async () => {
    const s = await set({ facts: modernFacts });
    await s.server.live();
    const sent = ask(
      s,
      1,
      "tools/call",
      { ...book(), inputResponses: { k: { action: "accept" } }, requestState: "theirs" },
      envelope({ elicitation: {} }),
    );
    const seen = await s.calls.seen.next();
    expect(seen.request.params).toEqual({
      ...book(),
      inputResponses: { k: { action: "accept" } },
      requestState: "theirs",
      _meta: {
        [metaKeys.clientInfo]: { name: "modern-tester", version: "1" },
        [metaKeys.clientCapabilities]: { elicitation: {} },
      },
    });
    const result = {
      resultType: "input_required",
      inputRequests: { k: { method: "elicitation/create", params: {} } },
      requestState: "next",
      odd: 1,
    };
    seen.result(result);
    expect(await (await sent).json()).toEqual({ jsonrpc: "2.0", id: 1, result });
    await seen.delivered.first;
  });

  it("turns into a stream when there is progress, in order, with the agent's own token", async () => {
    const s = await set();
    const sent = ask(s, 1, "tools/call", book(), envelope({}, { progressToken: "mine" }));
    const seen = await s.calls.seen.next();
    for (const progress of [1, 2, 3]) seen.hooks.progress?.({ progressToken: "x", progress });
    const reply = await sent;
    expect(reply.headers["content-type"]).toBe("text/event-stream");
    seen.result(text("done"));
    const messages = [await reply.message(), await reply.message(), await reply.message(), await reply.message()];
    expect(messages.slice(0, 3).map((message) => message["params"])).toEqual(
      [1, 2, 3].map((progress) => ({ progressToken: "mine", progress })),
    );
    expect(messages[3]).toMatchObject({ id: 1, result: text("done") });
    expect(await reply.next()).toBe("end");
  });

  it("turns into a stream when it takes long", async () => {
    const s = await set({ keepAliveMs: 5 });
    const reply = await ask(s, 1, "tools/call", book());
    expect(reply.headers["content-type"]).toBe("text/event-stream");
    await reply.comments.next();
    (await s.calls.seen.next()).result(text("done"));
    expect(await reply.message()).toMatchObject({ id: 1 });
  });

  it("is cancelled by the agent's disconnect", async () => {
    const s = await set();
    const leaving = new AbortController();
    const sent = ask(s, 1, "tools/call", book(), envelope(), { signal: leaving.signal });
    const seen = await s.calls.seen.next();
    const aborted = new Promise((resolve) => seen.hooks.signal?.addEventListener("abort", resolve));
    leaving.abort();
    await expect(sent).rejects.toThrow();
    await aborted;
    seen.result(text("unresolved"));
    await (
      await ask(s, 2, "server/discover")
    ).body;
    expect(seen.delivered.count).toBe(0);
  });

  it("counts an agent that left while it was being told as not reached", async () => {
    const s = await set({ keepAliveMs: 5 });
    const reply = await ask(s, 1, "tools/call", book());
    reply.pause();
    const seen = await s.calls.seen.next();
    seen.result(text("x".repeat(32 * 1024 * 1024))); // more than a socket holds
    await (
      await ask(s, 2, "server/discover")
    ).body;
    reply.leave();
    await reply.body;
    await (
      await ask(s, 3, "server/discover")
    ).body;
    await (
      await ask(s, 4, "server/discover")
    ).body;
    expect(seen.delivered.count).toBe(0);
  });

  it("is not cancelled by a notification", async () => {
    const s = await set();
    const connection = await s.server.live();
    const sent = ask(s, 1, "tools/call", book());
    const seen = await s.calls.seen.next();
    const reply = await post(
      s,
      { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1, _meta: envelope() } },
      { headers: { "mcp-protocol-version": version, "mcp-method": "notifications/cancelled" } },
    );
    expect(reply.status).toBe(202);
    expect([seen.hooks.signal?.aborted, connection.notifications.size]).toEqual([false, 0]);
    seen.result(text("done"));
    await (
      await sent
    ).body;
  });

  it("passes on log messages only as far as the request asked for them, and vendors' notifications", async () => {
    const s = await set();
    const sent = ask(s, 1, "tools/call", book(), envelope({}, { [metaKeys.logLevel]: "warning" }));
    const seen = await s.calls.seen.next();
    const log = (level: string) => ({ jsonrpc: "2.0", method: "notifications/message", params: { level, data: 1 } });
    for (const level of ["info", "warning", "odd", "error"]) void seen.says(log(level));
    void seen.says({ jsonrpc: "2.0", method: "notifications/vendor" });
    const reply = await sent;
    seen.result(text("done"));
    expect([await reply.message(), await reply.message(), await reply.message()]).toEqual([
      log("warning"),
      log("error"),
      { jsonrpc: "2.0", method: "notifications/vendor" },
    ]);
    const silent = ask(s, 2, "tools/call", book());
    const second = await s.calls.seen.next();
    void second.says(log("emergency"));
    second.result(text("done"));
    expect((await silent).headers["content-type"]).toBe("application/json");
  });

  it("gives the era's HTTP status to errors that have one", async () => {
    const s = await set();
    for (const [code, status, shownCode] of [
      [-32021, 400, -32021],
      [-32601, 404, -32601],
      [-32002, 200, -32602],
      [-5, 200, -5],
    ] as const) {
      await s.server.live();
      const sent = ask(s, 1, "tools/call", book());
      (await s.calls.seen.next()).error({ code, message: "theirs", data: { d: 1 } });
      const reply = await sent;
      expect([reply.status, await reply.json()]).toEqual([
        status,
        { jsonrpc: "2.0", id: 1, error: { code: shownCode, message: "theirs", data: { d: 1 } } },
      ]);
    }
  });
});

describe("a 2025-11-25 server that asks in the middle of a call", () => {
  const question = { jsonrpc: "2.0", id: 7, method: "elicitation/create", params: { message: "Name?" } };
  type Input = { result: { resultType: string; inputRequests: Record<string, unknown>; requestState: string } };

  async function asked(s: Stage) {
    const connection = await s.server.live();
    const sent = ask(s, 1, "tools/call", book({ room: 1 }), envelope({ elicitation: {} }));
    const seen = await s.calls.seen.next();
    let answered = false;
    const answering = seen.says(question).then(() => (answered = true));
    const { result } = (await (await sent).json()) as Input;
    expect(answered).toBe(false);
    return { connection, seen, result, keys: Object.keys(result.inputRequests), answering };
  }
  const back = (
    s: Stage,
    id: unknown,
    state: string,
    responses: Fields,
    params: Fields = book({ room: 1 }),
    options: SendOptions = {},
  ) =>
    ask(
      s,
      id,
      "tools/call",
      { ...params, requestState: state, inputResponses: responses },
      envelope({ elicitation: {} }, { progressToken: `p${String(id)}` }),
      options,
    );

  it("is heard as input_required; the retry answers it and goes on with the same call", async () => {
    const s = await set();
    const { connection, seen, result, keys, answering } = await asked(s);
    expect(result).toMatchObject({
      resultType: "input_required",
      inputRequests: { [keys[0] ?? ""]: { method: "elicitation/create", params: { message: "Name?" } } },
    });
    const second = back(s, 2, result.requestState, { [keys[0] ?? ""]: { action: "accept", content: { n: 1 } } });
    expect(await connection.responses.next()).toEqual({ jsonrpc: "2.0", id: 7, result: { action: "accept", content: { n: 1 } } });
    await answering;
    seen.hooks.progress?.({ progressToken: "x", progress: 1 });
    seen.result(text("done"));
    const reply = await second;
    expect(await reply.message()).toMatchObject({ params: { progressToken: "p2" } });
    expect(await reply.message()).toMatchObject({ id: 2, result: text("done") });
    await seen.delivered.first;
    expect(s.calls.count).toBe(1);
  });

  it("without naming the call (stdio) is heard just so", async () => {
    const s = await set();
    const connection = await s.server.live();
    const sent = ask(s, 1, "tools/call", book({ room: 1 }), envelope({ elicitation: {} }));
    const seen = await s.calls.seen.next();
    s.server.says(question);
    const { result } = (await (await sent).json()) as Input;
    const [key] = Object.keys(result.inputRequests);
    const second = back(s, 2, result.requestState, { [key ?? ""]: { action: "decline" } });
    expect(await connection.responses.next()).toEqual({ jsonrpc: "2.0", id: 7, result: { action: "decline" } });
    seen.result(text("done"));
    expect(await (await second).json()).toMatchObject({ id: 2 });
    // The call is over: a further question is nobody's.
    s.server.says({ ...question, id: 8 });
    expect(await connection.responses.next()).toMatchObject({ id: 8, error: {} });
  });

  it("may ask again; each question is answered once", async () => {
    const s = await set();
    const { connection, seen, result, keys } = await asked(s);
    const second = back(s, 2, result.requestState, { [keys[0] ?? ""]: { action: "accept" } });
    await connection.responses.next();
    void seen.says({ ...question, id: 8 });
    const next = ((await (await second).json()) as Input).result;
    const [key] = Object.keys(next.inputRequests);
    const third = back(s, 3, next.requestState, { [key ?? ""]: { action: "decline" }, [keys[0] ?? ""]: { action: "accept" } });
    expect(await connection.responses.next()).toEqual({ jsonrpc: "2.0", id: 8, result: { action: "decline" } });
    expect(connection.responses.size).toBe(0);
    seen.result(text("done"));
    expect(await (await third).json()).toMatchObject({ id: 3, result: text("done") });
  });

  it("is asked again when the retry brings nothing for it", async () => {
    const s = await set();
    const { result, keys } = await asked(s);
    const again = ((await (await back(s, 2, result.requestState, {})).json()) as Input).result;
    expect(Object.keys(again.inputRequests)).toEqual(keys);
  });

  it("does not have its call cancelled by the end of a round, but by a disconnect in a later one", async () => {
    const s = await set();
    const { connection, seen, result, keys } = await asked(s);
    await (
      await ask(s, 5, "server/discover")
    ).body;
    expect(seen.hooks.signal?.aborted).toBe(false);
    const leaving = new AbortController();
    const second = back(s, 2, result.requestState, { [keys[0] ?? ""]: { action: "accept" } }, book({ room: 1 }), {
      signal: leaving.signal,
    });
    await connection.responses.next();
    const aborted = new Promise((resolve) => seen.hooks.signal?.addEventListener("abort", resolve));
    leaving.abort();
    await expect(second).rejects.toThrow();
    await aborted;
  });

  it("is answered when the agent returns after the call is over", async () => {
    const s = await set();
    const { connection, seen, result } = await asked(s);
    seen.result(text("done without it"));
    expect(await connection.responses.next()).toMatchObject({ id: 7, error: {} });
    expect(seen.delivered.count).toBe(0);
    expect(await (await back(s, 2, result.requestState, {})).json()).toMatchObject({ id: 2, result: text("done without it") });
    await seen.delivered.first;
    expect(await (await back(s, 3, result.requestState, {})).json()).toMatchObject({ error: { code: -32602 } });
  });

  it.each([
    ["an unknown state", "mcp-safe-replay.AAAA", book({ room: 1 }), "/servers/one/mcp"],
    ["other arguments", undefined, book({ room: 2 }), "/servers/one/mcp"],
    ["another tool", undefined, { name: "cancel", arguments: { room: 1 } }, "/servers/one/mcp"],
    ["another server", undefined, book({ room: 1 }), "/servers/two/mcp"],
  ])("refuses a retry with %s, and sends nothing", async (_what, state, params, path) => {
    const s = await set();
    s.servers.set("two", new FakeServer("two"));
    const { connection, result, keys } = await asked(s);
    const reply = await back(s, 2, state ?? result.requestState, { [keys[0] ?? ""]: { action: "accept" } }, params, { path });
    expect(await reply.json()).toMatchObject({
      id: 2,
      error: { code: -32602, message: expect.stringMatching(/Nothing was sent/) as string },
    });
    expect([s.calls.count, connection.responses.size]).toEqual([1, 0]);
  });

  it("gets an error from an agent that did not declare the capability, and for what this era cannot carry", async () => {
    const s = await set();
    const connection = await s.server.live();
    void ask(s, 1, "tools/call", book(), envelope({ sampling: {} }));
    const seen = await s.calls.seen.next();
    void seen.says(question);
    expect(await connection.responses.next()).toMatchObject({ id: 7, error: { code: -32601 } });
    void seen.says({ ...question, id: 8, method: "vendor/ask" });
    expect(await connection.responses.next()).toMatchObject({ id: 8, error: { code: -32601 } });
    seen.result(text("done"));
  });
});

describe("other requests", () => {
  it.each([
    ["resources/list", { cursor: "c" }, true],
    ["resources/read", { uri: "u:1" }, true],
    ["prompts/get", { name: "p" }, false],
    ["vendor/thing", { a: [null] }, false],
  ])("%s passes on and back, with the era's cache fields where it needs them", async (method, params, cached) => {
    const s = await set();
    const connection = await s.server.live();
    const sent = ask(s, 1, method, params);
    const seen = await connection.requests.next();
    expect([seen.method, seen.params]).toEqual([method, params]);
    seen.result({ a: 1, unknown: { b: 1 } });
    expect(await (await sent).json()).toEqual({
      jsonrpc: "2.0",
      id: 1,
      result: {
        a: 1,
        unknown: { b: 1 },
        resultType: "complete",
        ...(cached ? { ttlMs: 0, cacheScope: "private" } : {}),
        _meta: { [metaKeys.serverInfo]: legacyFacts.serverInfo },
      },
    });
  });

  it("a server of this era is passed on untouched, its HTTP status too", async () => {
    const s = await set({ facts: modernFacts });
    const connection = await s.server.live();
    const list = ask(s, 1, "tools/list");
    const result = {
      tools: [{ name: "t", inputSchema: { type: "object" }, x: 1 }],
      resultType: "complete",
      ttlMs: 7,
      cacheScope: "public",
      y: 2,
    };
    (await connection.requests.next()).result(result);
    expect(await (await list).json()).toEqual({ jsonrpc: "2.0", id: 1, result });
    const sent = ask(s, 2, "vendor/thing");
    (await connection.requests.next()).end({
      kind: "answer",
      httpStatus: 404,
      answer: { jsonrpc: "2.0", id: "u", error: { code: -32601, message: "Method not found" } },
    });
    const reply = await sent;
    expect([reply.status, await reply.json()]).toEqual([
      404,
      { jsonrpc: "2.0", id: 2, error: { code: -32601, message: "Method not found" } },
    ]);
  });

  it("tools/list is honest here too", async () => {
    const s = await set();
    const connection = await s.server.live();
    connection.automatic = () => ({
      tools: [{ name: "t", inputSchema: { type: "object" }, annotations: { readOnlyHint: true }, execution: {} }],
    });
    const list = async () => ((await (await ask(s, 1, "tools/list")).json()) as { result: { tools: object[] } }).result.tools[0];
    expect(await list()).toEqual({ name: "t", inputSchema: { type: "object" }, annotations: {} });
    s.trust.trust(s.server);
    expect(await list()).toEqual({ name: "t", inputSchema: { type: "object" }, annotations: { readOnlyHint: true } });
  });

  it("are cancelled by the agent's disconnect", async () => {
    const s = await set();
    const connection = await s.server.live();
    const leaving = new AbortController();
    const sent = ask(s, 1, "resources/read", { uri: "u:1" }, envelope(), { signal: leaving.signal });
    const seen = await connection.requests.next();
    const aborted = new Promise((resolve) => seen.options?.signal?.addEventListener("abort", resolve));
    leaving.abort();
    await expect(sent).rejects.toThrow();
    await aborted;
  });

  it("say that a lost read is safe to repeat", async () => {
    const s = await set();
    const connection = await s.server.live();
    const sent = ask(s, 1, "resources/read", { uri: "u:1" });
    (await connection.requests.next()).lose({});
    expect(await (await sent).json()).toMatchObject({ id: 1, error: { message: "No answer; reading again is safe." } });
  });
});

describe("subscriptions/listen", () => {
  const filter = { toolsListChanged: true, promptsListChanged: true, resourceSubscriptions: ["u:1", "u:2"] };
  const stamp = (id: unknown) => ({ [metaKeys.subscriptionId]: id });

  it("acknowledges what the server can do, and carries just that, stamped", async () => {
    const s = await set({ keepAliveMs: 5 });
    const connection = await s.server.live();
    connection.automatic = () => ({});
    const reply = await ask(s, "L", "subscriptions/listen", { notifications: filter });
    expect(await reply.message()).toEqual({
      jsonrpc: "2.0",
      method: "notifications/subscriptions/acknowledged",
      params: { notifications: { toolsListChanged: true, resourceSubscriptions: ["u:1", "u:2"] }, _meta: stamp("L") },
    });
    for (const [method, uri] of [
      ["prompts/list_changed"],
      ["message"],
      ["resources/updated", "u:9"],
      ["resources/updated", "u:2"],
      ["tools/list_changed"],
    ]) {
      s.server.says({
        jsonrpc: "2.0",
        method: `notifications/${String(method)}`,
        params: uri === undefined ? {} : { uri, extra: 1 },
      });
    }
    expect(await reply.message()).toEqual({
      jsonrpc: "2.0",
      method: "notifications/resources/updated",
      params: { uri: "u:2", extra: 1, _meta: stamp("L") },
    });
    expect(await reply.message()).toEqual({
      jsonrpc: "2.0",
      method: "notifications/tools/list_changed",
      params: { _meta: stamp("L") },
    });
    await reply.comments.next();
  });

  it("subscribes at an older server, and unsubscribes when the last agent has left", async () => {
    const s = await set();
    const connection = await s.server.live();
    const streams = [
      await ask(s, 1, "subscriptions/listen", { notifications: filter }),
      await ask(s, 2, "subscriptions/listen", { notifications: { resourceSubscriptions: ["u:1"] } }),
    ];
    const told = async () => {
      const seen = await connection.requests.next();
      seen.result({});
      return [seen.method, seen.params?.["uri"]];
    };
    expect([await told(), await told()]).toEqual([
      ["resources/subscribe", "u:1"],
      ["resources/subscribe", "u:2"],
    ]);
    streams[0]?.leave();
    expect(await told()).toEqual(["resources/unsubscribe", "u:2"]);
    streams[1]?.leave();
    expect(await told()).toEqual(["resources/unsubscribe", "u:1"]);
  });

  it("ends at once when nothing can be honoured, and with its result when the gateway closes", async () => {
    const s = await set({ facts: { ...legacyFacts, capabilities: { tools: { listChanged: true } } } });
    const nothing = await ask(s, 1, "subscriptions/listen", { notifications: { promptsListChanged: true } });
    expect(await nothing.message()).toMatchObject({ params: { notifications: {} } });
    expect(await nothing.message()).toMatchObject({ id: 1, result: { resultType: "complete", _meta: stamp(1) } });
    const standing = await ask(s, 2, "subscriptions/listen", { notifications: { toolsListChanged: true } });
    await standing.message();
    const closing = s.gateway.close(1000);
    expect(await standing.message()).toMatchObject({ id: 2, result: { resultType: "complete" } });
    await closing;
  });

  it.each([
    [undefined],
    [[]],
    [{ toolsListChanged: "yes" }],
    [{ resourceSubscriptions: "u:1" }],
    [{ resourceSubscriptions: [1] }],
  ])("refuses the filter %j", async (notifications) => {
    const s = await set();
    expect(
      await (await ask(s, 1, "subscriptions/listen", notifications === undefined ? {} : { notifications })).json(),
    ).toMatchObject({ error: { code: -32602 } });
  });
});
