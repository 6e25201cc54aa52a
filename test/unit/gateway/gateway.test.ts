/** Owns: the gateway's own door: sockets and ports, tokens, Host and Origin, limits, and bodies that are refused before anything runs. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, mkdtemp, rename, rm, stat, symlink, writeFile } from "node:fs/promises";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createGateway, GatewayError, type GatewayOptions } from "../../../src/gateway/gateway.ts";
import { FakeCalls, FakeServer, FakeTrust, initialize, post, rpc, send, stage, type Stage } from "./fakes.ts";

const open: Stage[] = [];
async function set(...options: Parameters<typeof stage>): Promise<Stage> {
  const made = await stage(...options);
  open.push(made);
  return made;
}
afterEach(async () => {
  for (const made of open.splice(0)) await made.close();
});

const options = (listen: GatewayOptions["listen"]): GatewayOptions => ({
  listen,
  servers: () => new Map(),
  calls: new FakeCalls(),
  trust: new FakeTrust(),
  log: () => undefined,
});
const portOf = (s: Stage) => Number(new URL(s.gateway.listening).port);

describe.skipIf(process.platform === "win32")("a unix socket", () => {
  let folder = "";
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "gw-"));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  it("is made with mode 0600 in a folder with mode 0700, and is gone after close", async () => {
    const path = join(folder, "new", "deeper", "s");
    const gateway = await createGateway(options({ kind: "unix", path }));
    expect(gateway.listening).toBe(`unix:${path}`);
    expect(gateway.urlOf("a.b")).toBe("/servers/a.b/mcp");
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect((await stat(join(folder, "new", "deeper"))).mode & 0o777).toBe(0o700);
    await gateway.close();
    await expect(stat(path)).rejects.toMatchObject({ code: "ENOENT" });
    await gateway.close();
  });

  it("of a dead process is replaced", async () => {
    const path = join(folder, "s");
    // A process that is killed leaves its socket behind.
    const program = `require("node:net").createServer().listen(${JSON.stringify(path)}, () => console.log("up"))`;
    const child = spawn(process.execPath, ["-e", program], { stdio: ["ignore", "pipe", "ignore"] });
    await once(child.stdout, "data");
    child.kill("SIGKILL");
    await once(child, "exit");
    expect((await stat(path)).isSocket()).toBe(true);
    const gateway = await createGateway(options({ kind: "unix", path }));
    const socket = connect(path);
    await once(socket, "connect");
    socket.destroy();
    await gateway.close();
  });

  it("of a live process is left alone", async () => {
    const path = join(folder, "s");
    const first = await createGateway(options({ kind: "unix", path }));
    const second = createGateway(options({ kind: "unix", path }));
    await expect(second).rejects.toMatchObject({ name: "GatewayError", code: "socket-taken" });
    await expect(second).rejects.toBeInstanceOf(GatewayError);
    const socket = connect(path);
    await once(socket, "connect");
    socket.destroy();
    await first.close();
  });

  it("is had by one only of many that start at once over a stale one", async () => {
    const path = join(folder, "s");
    const stale = createServer().listen(path);
    await once(stale, "listening");
    // Kept open it would be live; its file is left over once its descriptor is closed without unlinking.
    const link = join(folder, "moved");
    await rename(path, link);
    stale.close();
    await rename(link, path).catch(() => undefined);
    const results = await Promise.allSettled(
      Array.from({ length: 12 }, async (_, turns) => {
        for (let turn = 0; turn < turns; turn += 1) await new Promise((resolve) => setImmediate(resolve));
        return await createGateway(options({ kind: "unix", path }));
      }),
    );
    const had = results.filter((result) => result.status === "fulfilled");
    expect(had).toHaveLength(1);
    for (const result of results) {
      if (result.status === "rejected") expect(result.reason).toMatchObject({ code: "socket-taken" });
      else await result.value.close();
    }
  });

  it("is refused in a folder that others can enter, is no folder, or belongs to somebody's link", async () => {
    const wide = join(folder, "wide");
    await mkdir(wide);
    await chmod(wide, 0o755);
    await expect(createGateway(options({ kind: "unix", path: join(wide, "s") }))).rejects.toMatchObject({
      code: "folder-not-private",
    });
    expect((await stat(wide)).mode & 0o777).toBe(0o755);
    await symlink(folder, join(wide, "link"));
    await expect(createGateway(options({ kind: "unix", path: join(wide, "link", "s") }))).rejects.toMatchObject({
      code: "folder-not-private",
    });
    await writeFile(join(folder, "file"), "");
    await expect(createGateway(options({ kind: "unix", path: join(folder, "file", "s") }))).rejects.toMatchObject({
      code: "no-permission",
    });
  });

  it("does not replace what is no socket, and says when its path is too long", async () => {
    const path = join(folder, "s");
    await writeFile(path, "mine");
    await expect(createGateway(options({ kind: "unix", path }))).rejects.toMatchObject({ code: "socket-path" });
    expect((await stat(path)).size).toBe(4);
    await expect(createGateway(options({ kind: "unix", path: join(folder, "x".repeat(120)) }))).rejects.toMatchObject({
      code: "socket-path",
    });
  });

  it("may ask for a token too", async () => {
    const s = await set({ tokens: ["secret"] });
    expect((await post(s, rpc(1, "ping"))).status).toBe(401);
    expect((await post(s, rpc(1, "ping"), { headers: { authorization: "Bearer secret" } })).status).toBe(200);
  });
});

describe("a port", () => {
  it("needs a token or the person's explicit word", async () => {
    for (const tokens of [undefined, []]) {
      await expect(
        createGateway({ ...options({ kind: "tcp", host: "127.0.0.1", port: 0 }), ...(tokens === undefined ? {} : { tokens }) }),
      ).rejects.toMatchObject({ code: "no-token" });
    }
  });

  it("that is taken is a clear error", async () => {
    const s = await set({ tcp: true });
    await expect(
      createGateway({ ...options({ kind: "tcp", host: "127.0.0.1", port: portOf(s) }), noToken: true }),
    ).rejects.toMatchObject({ code: "port-taken" });
  });

  it("gives the URL of each server", async () => {
    const s = await set({ tcp: true });
    expect(s.gateway.listening).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    expect(s.gateway.urlOf("one")).toBe(`${s.gateway.listening}/servers/one/mcp`);
  });

  it.each([
    ["none", undefined],
    ["a wrong one", "Bearer wrong"],
    ["the right one with more behind it", "Bearer right-tokenx"],
    ["a part of it", "Bearer right"],
    ["an empty one", "Bearer "],
    ["another scheme", "Basic right-token"],
    ["no scheme", "right-token"],
    ["two", "Bearer right-token right-token"],
  ])("lets nobody in with a token that is %s", async (_what, authorization) => {
    const s = await set({ tcp: true, tokens: ["right-token", { name: "empty", token: "" }] });
    const reply = await post(s, initialize(), { headers: authorization === undefined ? {} : { authorization } });
    expect([reply.status, reply.headers["www-authenticate"]]).toEqual([401, "Bearer"]);
    expect(await reply.json()).toMatchObject({
      id: null,
      error: { code: -32000, message: "The bearer token is missing or wrong." },
    });
    expect(s.server.connects).toBe(0);
    expect(s.gateway.clients()).toEqual([]);
  });

  it("lets each token in, names it, and stops at once when it is revoked", async () => {
    let tokens = [
      { name: "first", token: "a" },
      { name: "second", token: "b" },
    ];
    const s = await set({ tcp: true, tokens: () => tokens, now: () => 42 });
    const as = (token: string) => post(s, initialize(), { headers: { authorization: `bearer ${token}` } });
    expect([(await as("a")).status, (await as("b")).status]).toEqual([200, 200]);
    expect(
      s.gateway.clients().map(({ token, name, version, lastUse, servers }) => ({ token, name, version, lastUse, servers })),
    ).toEqual(["first", "second"].map((token) => ({ token, name: "tester", version: "9", lastUse: 42, servers: ["one"] })));
    tokens = tokens.slice(1);
    expect([(await as("a")).status, (await as("b")).status]).toEqual([401, 200]);
  });

  it.each([
    ["evil.example", 403],
    ["evil.example:PORT", 403],
    ["127.0.0.1.evil.example", 403],
    ["localhost.evil.example:PORT", 403],
    ["0.0.0.0:PORT", 403],
    ["[::1]:PORT", 200],
    ["LOCALHOST:PORT", 200],
    ["127.0.0.1:PORT", 200],
    ["localhost", 200],
  ])("takes Host '%s' with status %i", async (host, status) => {
    const s = await set({ tcp: true });
    const reply = await post(s, rpc(1, "ping"), { headers: { host: host.replace("PORT", String(portOf(s))) } });
    expect(reply.status).toBe(status);
    if (status === 403) expect(await reply.json()).toMatchObject({ error: { message: expect.stringMatching(/Host/) as string } });
  });

  it("takes no empty Host", async () => {
    const s = await set({ tcp: true });
    const socket = connect(portOf(s), "127.0.0.1");
    socket.write("GET /servers/one/mcp HTTP/1.1\r\nHost:\r\nAccept: text/event-stream\r\n\r\n");
    const [answer] = (await once(socket, "data")) as [Buffer];
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 403 /);
    socket.destroy();
  });

  it.each([
    ["http://evil.example", 403],
    ["http://127.0.0.1", 403],
    ["http://127.0.0.1:1", 403],
    ["https://127.0.0.1:PORT", 403],
    ["http://localhost.evil.example:PORT", 403],
    ["null", 403],
    ["", 403],
    ["vscode-webview://x", 403],
    ["http://127.0.0.1:PORT", 200],
    ["http://localhost:PORT", 200],
    ["http://inspector.local:1", 200],
  ])("takes Origin '%s' with status %i", async (origin, status) => {
    const s = await stageWithOrigin("http://inspector.local:1");
    const reply = await post(s, rpc(1, "ping"), { headers: { origin: origin.replace("PORT", String(portOf(s))) } });
    expect(reply.status).toBe(status);
    if (status === 403)
      expect(await reply.json()).toMatchObject({ error: { message: expect.stringMatching(/Origin/) as string } });
  });

  async function stageWithOrigin(origin: string): Promise<Stage> {
    return await set({ tcp: true, listen: { kind: "tcp", host: "127.0.0.1", port: 0, allowedOrigins: [origin] } });
  }
});

describe("addresses", () => {
  it.each([
    ["/servers/two/mcp", 404, "No hosted server is called 'two'."],
    ["/servers/__proto__/mcp", 404, "No hosted server is called '__proto__'."],
    ["/servers/a%22%0a/mcp", 404, "No hosted server is called 'a??'."],
    ["/servers/%E0%A4%A/mcp", 404, "No such address. A hosted server's address is /servers/NAME/mcp."],
    ["/servers/one", 404, undefined],
    ["/servers/one/mcp/more", 404, undefined],
    ["/servers//mcp", 404, undefined],
    ["/", 404, undefined],
    ["/.well-known/oauth-protected-resource", 404, undefined],
    ["http://evil.example/servers/one/mcp", 404, undefined],
    ["/servers/one/mcp?x=1", 200, undefined],
    ["/servers/one/mcp/", 200, undefined],
  ])("%s is %i", async (path, status, message) => {
    const s = await set();
    const reply = await post(s, rpc(1, "ping"), { path });
    expect(reply.status).toBe(status);
    if (message !== undefined) expect(await reply.json()).toMatchObject({ error: { message } });
  });

  it("are read anew with each request", async () => {
    const s = await set();
    s.servers.set("two", new FakeServer("two"));
    expect((await post(s, initialize(), { path: "/servers/two/mcp" })).status).toBe(200);
  });

  it("give the server of now: a definition that was replaced takes its streams with it", async () => {
    const s = await set();
    const stream = await send(s, { method: "GET", headers: { accept: "text/event-stream" } });
    const other = new FakeServer("one");
    s.servers.set("one", other);
    expect((await post(s, initialize())).status).toBe(200);
    expect([s.server.connects, other.connects]).toEqual([0, 1]);
    expect(await stream.next()).toBe("end");
  });

  it.each([["PUT"], ["PATCH"], ["OPTIONS"], ["HEAD"], ["DELETE"]])("take no %s", async (method) => {
    const s = await set();
    expect((await send(s, { method })).status).toBe(405);
  });
});

describe("a body that is not understood", () => {
  const deep = (levels: number) =>
    `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${'{"a":'.repeat(levels)}1${"}".repeat(levels)}}`;
  const withId = (id: string) =>
    `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"book","arguments":{"secret":"s3cret"}}}`;

  const table: [string, string | Uint8Array, number, number][] = [
    ["empty", "", 400, -32700],
    ["cut short", '{"jsonrpc":"2.0","id":1,"method":"tools/c', 400, -32700],
    ["no JSON", "hello", 400, -32700],
    ["two values", '{"jsonrpc":"2.0","id":1,"method":"ping"}{}', 400, -32700],
    ["invalid UTF-8", Buffer.from('{"jsonrpc":"2.0","id":1,"method":"p\xffng"}', "latin1"), 400, -32700],
    [
      "an overlong UTF-8 form",
      Buffer.concat([Buffer.from('{"jsonrpc":"2.0","id":1,"method":"'), Buffer.from([0xc0, 0xaf]), Buffer.from('"}')]),
      400,
      -32700,
    ],
    ["UTF-16", Buffer.from(JSON.stringify(rpc(1, "ping")), "utf16le"), 400, -32700],
    ["null", "null", 400, -32600],
    ["a number", "3", 400, -32600],
    ["a string", '"ping"', 400, -32600],
    ["no jsonrpc", '{"id":1,"method":"ping"}', 400, -32600],
    ["jsonrpc 1.0", '{"jsonrpc":"1.0","id":1,"method":"ping"}', 400, -32600],
    ["jsonrpc as a number", '{"jsonrpc":2.0,"id":1,"method":"ping"}', 400, -32600],
    ["a method that is a number", '{"jsonrpc":"2.0","id":1,"method":1}', 400, -32600],
    ["an empty method", '{"jsonrpc":"2.0","id":1,"method":""}', 400, -32600],
    ["a huge method", JSON.stringify(rpc(1, "m".repeat(10_000))), 400, -32600],
    ["params that are an array", '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["book"]}', 400, -32600],
    ["params that are null", '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":null}', 400, -32600],
    ["_meta that is an array", '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"book","_meta":[]}}', 400, -32600],
    [
      "a progress token that is an object",
      '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"book","_meta":{"progressToken":{}}}}',
      400,
      -32600,
    ],
    ["id null", withId("null"), 400, -32600],
    ["id true", withId("true"), 400, -32600],
    ["id an object", withId("{}"), 400, -32600],
    ["id an array", withId("[1]"), 400, -32600],
    ["id a fraction", withId("1.5"), 400, -32600],
    ["id beyond 2^53", withId("9007199254740993"), 400, -32600],
    ["id infinite", withId("1e999"), 400, -32600],
    ["id a huge number", withId("9".repeat(100_000)), 400, -32600],
    ["id a huge string", withId(JSON.stringify("x".repeat(1_000_000))), 400, -32600],
    ["method and result at once", '{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}', 400, -32600],
    ["neither method nor result", '{"jsonrpc":"2.0","id":1}', 400, -32600],
    ["result and error at once", '{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}', 400, -32600],
    ["a result that is no object", '{"jsonrpc":"2.0","id":1,"result":1}', 400, -32600],
    ["an error without a code", '{"jsonrpc":"2.0","id":1,"error":{"message":"m"}}', 400, -32600],
    [
      "__proto__ on top",
      '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"book","__proto__":{"x":1}}}',
      400,
      -32600,
    ],
    [
      "__proto__ deep in arguments",
      '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"book","arguments":{"a":[{"__proto__":{"polluted":true}}]}}}',
      400,
      -32600,
    ],
    [
      "__proto__ written with escapes",
      '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"book","arguments":{"\\u005f_prot\\u006f__":{"polluted":true}}}}',
      400,
      -32600,
    ],
    ["deep nesting", deep(300), 400, -32600],
    ["very deep nesting of arrays", "[".repeat(1_000_000), 400, -32600],
    ["very deep nesting of objects", '{"a":'.repeat(1_000_000), 400, -32600],
  ];

  it.each(table)("(%s) is refused clearly, and nothing is sent", async (_what, body, status, code) => {
    const s = await set();
    const connection = await s.server.live();
    const reply = await send(s, { body });
    expect(reply.status).toBe(status);
    const said = await reply.body;
    expect(JSON.parse(said)).toMatchObject({ jsonrpc: "2.0", error: { code, message: expect.any(String) as string } });
    expect(said.length).toBeLessThan(1000);
    expect(said + JSON.stringify(s.log)).not.toMatch(/s3cret/);
    expect([s.calls.count, connection.requestCount, connection.notifications.size]).toEqual([0, 0, 0]);
    expect(({} as Record<string, unknown>)["polluted"]).toBeUndefined();
    // The gateway is well.
    expect((await post(s, rpc(1, "ping"))).status).toBe(200);
  });

  it("names the request that it refuses where its id could be read", async () => {
    const s = await set();
    expect(await (await post(s, { jsonrpc: "2.0", id: "mine", method: 5 })).json()).toMatchObject({ id: "mine" });
  });

  it("is not '__proto__' as a value, nor harmless depth", async () => {
    const s = await set();
    s.calls.automatic = () => ({ content: [] });
    expect(await (await post(s, rpc(1, "tools/call", { name: "book", arguments: { a: "__proto__" } }))).message()).toHaveProperty(
      "result",
    );
    expect(await (await send(s, { body: deep(100).replace('"params":{', '"params":{"name":"book",') })).message()).toHaveProperty(
      "result",
    );
  });

  it.each([
    ["text/plain", 415],
    ["", 415],
    ["application/json-seq", 415],
    ["application/x-www-form-urlencoded", 415],
    ["application/json; charset=latin1", 415],
    ["Application/JSON; charset=UTF-8", 200],
    ["application/json;charset=utf8", 200],
  ])("of type '%s' gets %i", async (type, status) => {
    const s = await set();
    expect((await post(s, rpc(1, "ping"), { headers: { "content-type": type } })).status).toBe(status);
  });

  it("in a content encoding is refused", async () => {
    const s = await set();
    expect((await post(s, rpc(1, "ping"), { headers: { "content-encoding": "gzip" } })).status).toBe(415);
  });

  it.each([
    [undefined, 200],
    ["*/*", 200],
    ["application/*;q=0.5", 200],
    ["text/event-stream", 200],
    ["text/html", 406],
    ["application/json;q=0, text/html", 406],
  ])("is answered to Accept '%s' with %i", async (accept, status) => {
    const s = await set();
    const reply = await post(s, rpc(1, "ping"), accept === undefined ? { omit: ["accept"] } : { headers: { accept } });
    expect(reply.status).toBe(status);
    if (accept === "text/event-stream") expect(await reply.message()).toMatchObject({ id: 1, result: {} });
  });

  it.each([["1999-01-01"], ["2025-11-2"], ["latest"], [""]])("with the version header '%s' is refused", async (version) => {
    const s = await set();
    const reply = await post(s, rpc(1, "tools/call", { name: "book" }), { headers: { "mcp-protocol-version": version } });
    expect(reply.status).toBe(400);
    expect(await reply.json()).toMatchObject({ id: 1, error: { code: -32000 } });
    expect(s.calls.count).toBe(0);
  });
});

describe("limits", () => {
  /** A raw connection: what it sends is sent, what comes is collected. */
  async function raw(s: Stage): Promise<{ socket: Socket; over: Promise<string> }> {
    const socket = connect(s.socketPath);
    let all = "";
    socket.setEncoding("utf8").on("data", (chunk: string) => (all += chunk));
    const over = new Promise<string>((resolve) => socket.on("close", () => resolve(all)).on("error", () => undefined));
    await once(socket, "connect");
    return { socket, over };
  }
  const head = (length: number) =>
    `POST /servers/one/mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: ${length}\r\n\r\n`;
  const body = JSON.stringify(rpc(1, "tools/call", { name: "book", arguments: {} }));

  it("refuse a body that is announced too large, without reading it", async () => {
    const s = await set({ limits: { bodyBytes: 1000 } });
    const { socket, over } = await raw(s);
    socket.write(head(1001));
    const [answer] = (await once(socket, "data")) as [string];
    expect(answer).toMatch(/^HTTP\/1\.1 413 /);
    expect(answer).toMatch(/larger than 1000 bytes/);
    socket.destroy();
    await over;
  });

  it("refuse a body that turns out too large, and take one that just fits", async () => {
    const s = await set({ limits: { bodyBytes: body.length } });
    s.calls.automatic = () => ({ content: [] });
    const chunked = await send(s, { body: body + " ", headers: { "transfer-encoding": "chunked" } });
    expect(chunked.status).toBe(413);
    expect(await chunked.json()).toMatchObject({ error: { code: -32000 } });
    expect(s.calls.count).toBe(0);
    expect((await send(s, { body, headers: { "transfer-encoding": "chunked" } })).status).toBe(200);
  });

  it("bound what is read at once of all bodies, and give the room back", async () => {
    const s = await set({ limits: { allBodiesBytes: 100_000 } });
    const { socket, over } = await raw(s);
    socket.write(head(90_000) + " ".repeat(80_000));
    // The first body is being read: a second large one finds no room, a small one does.
    await expect
      .poll(async () => (await send(s, { body: `${" ".repeat(30_000)}${JSON.stringify(rpc(1, "ping"))}` })).status)
      .toBe(503);
    expect((await post(s, rpc(1, "ping"))).status).toBe(200);
    socket.destroy();
    await over;
    await expect
      .poll(async () => (await send(s, { body: `${" ".repeat(30_000)}${JSON.stringify(rpc(1, "ping"))}` })).status)
      .toBe(200);
  });

  it("send nothing of a body that is cut short", async () => {
    const s = await set();
    const { socket, over } = await raw(s);
    socket.end(head(body.length + 10) + body);
    await over;
    expect((await post(s, rpc(1, "ping"))).status).toBe(200);
    expect(s.calls.count).toBe(0);
  });

  it("give up on a body that trickles", async () => {
    const s = await set({ limits: { bodyTimeoutMs: 30 } });
    const { socket, over } = await raw(s);
    socket.write(head(body.length) + body.slice(0, 10));
    const [answer] = (await once(socket, "data")) as [string];
    expect(answer).toMatch(/^HTTP\/1\.1 408 /);
    expect(answer).toMatch(/did not arrive in time. Nothing was sent/);
    expect(s.calls.count).toBe(0);
    socket.destroy();
    await over;
  });

  it("give up on headers that trickle", async () => {
    const s = await set({ limits: { headersTimeoutMs: 60, bodyTimeoutMs: 30 } });
    const { socket, over } = await raw(s);
    socket.write("POST /servers/one/mcp HTTP/1.1\r\nHost: x\r\nX-Slow: ");
    const said = await over;
    expect(said).toMatch(/^HTTP\/1\.1 408 /);
    expect(said).toMatch(/"jsonrpc":"2\.0"/);
    socket.destroy();
  });

  it("refuse headers that are too large", async () => {
    const s = await set({ limits: { headerBytes: 2000 } });
    const reply = await post(s, rpc(1, "ping"), { headers: { "x-large": "x".repeat(3000) } });
    expect(reply.status).toBe(431);
    expect(await reply.json()).toMatchObject({ error: { message: "The request headers are too large." } });
  });

  it("answer what is no HTTP", async () => {
    const s = await set();
    const { socket, over } = await raw(s);
    socket.write("\x16\x03\x01 hello\r\n\r\n");
    expect(await over).toMatch(/^HTTP\/1\.1 400 .*"jsonrpc"/s);
  });

  it("refuse connections beyond the bound, and take them again when there is room", async () => {
    const s = await set({ limits: { connections: 2 } });
    const first = await raw(s);
    const second = await raw(s);
    const third = await raw(s);
    expect(await third.over).toMatch(/^HTTP\/1\.1 503 .*takes no more/s);
    first.socket.destroy();
    second.socket.destroy();
    await Promise.all([first.over, second.over]);
    await expect.poll(async () => (await post(s, rpc(1, "ping"))).status).toBe(200);
  });
});

describe("close", () => {
  it("lets an answer that is under way go out, ends standing streams, and takes nothing new", async () => {
    const s = await set();
    const reply = await post(s, rpc(1, "tools/call", { name: "book" }));
    const seen = await s.calls.seen.next();
    const stream = await send(s, { method: "GET", headers: { accept: "text/event-stream" } });
    const closing = s.gateway.close(5000);
    expect(await stream.next()).toBe("end");
    await expect(post(s, rpc(2, "ping"))).rejects.toThrow();
    seen.result({ content: [] });
    expect(await reply.message()).toMatchObject({ id: 1, result: { content: [] } });
    await seen.delivered.first;
    await closing;
  });

  it("cuts what takes longer than the grace", async () => {
    const s = await set();
    const reply = await post(s, rpc(1, "tools/call", { name: "book" }));
    const seen = await s.calls.seen.next();
    await s.gateway.close(10);
    expect(await reply.next()).toBe("end");
    seen.result({ content: [] });
    await Promise.resolve();
    expect(seen.delivered.count).toBe(0);
    expect(seen.hooks.signal?.aborted).toBe(false);
  });
});

describe("clients", () => {
  it("are seen with name and last use, told apart as well as it goes, without control characters", async () => {
    let now = 1;
    const s = await set({ now: () => now });
    await post(s, rpc(1, "ping"), { headers: { "user-agent": "curl/8" } });
    now = 2;
    await post(s, {
      ...initialize(),
      params: { protocolVersion: "2025-11-25", clientInfo: { name: "Evil\u202e\n name", version: 3 } },
    });
    now = 3;
    await post(s, rpc(1, "ping"), { headers: { "mcp-safe-replay-client": "bridge 1", "user-agent": "node" } });
    expect(s.gateway.clients()).toEqual([
      { name: "bridge 1", servers: ["one"], lastUse: 3 },
      { name: "Evil name", servers: ["one"], lastUse: 2 },
      { name: "curl/8", servers: ["one"], lastUse: 1 },
    ]);
  });

  it("of one token and one User-Agent are told apart by what they say of themselves", async () => {
    let now = 0;
    const s = await set({ now: () => (now += 1) });
    const headers = { "user-agent": "node" };
    const say = (name: string) =>
      post(
        s,
        { ...initialize(), params: { protocolVersion: "2025-11-25", clientInfo: { name, version: "1" }, capabilities: {} } },
        { headers },
      );
    await say("Cursor");
    await say("Zed");
    await say("Cursor");
    expect(s.gateway.clients().map(({ name, lastUse }) => [name, lastUse])).toEqual([
      ["Cursor", 3],
      ["Zed", 2],
    ]);
    // A request of 2026-07-28 says it each time, and is nobody else's use.
    const modern = rpc(1, "tools/call", {
      name: "book",
      _meta: {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { name: "Zed", version: "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
      },
    });
    void post(s, modern, {
      headers: { ...headers, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "book" },
    });
    const seen = await s.calls.seen.next();
    expect(seen.request.caller.client).toBe("Zed");
    expect(s.gateway.clients().map(({ name, lastUse }) => [name, lastUse])).toEqual([
      ["Zed", 4],
      ["Cursor", 3],
    ]);
    seen.result({ content: [] });
  });

  it("are not remembered without bound", async () => {
    const s = await set();
    for (let index = 0; index < 300; index += 1)
      await (
        await post(s, rpc(1, "ping"), { headers: { "user-agent": `u${index}` } })
      ).body;
    expect(s.gateway.clients().length).toBeLessThanOrEqual(200);
  });
});
