import { existsSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { createCore, type Core, type CoreOptions } from "../../../src/gateway/core.ts";
import type { ServerDefinition } from "../../../src/hosting/definitions.ts";
import type { StartPolicy } from "../../../src/hosting/hosted-server.ts";
import { defaultReplaySettings } from "../../../src/replay/settings.ts";
import { temporaryFolder } from "../../support/temp.ts";
import { child, lives } from "../hosting/fixtures/child.ts";
import { legacyHandlers, modernHandlers, RawServer, type Handlers } from "../hosting/fixtures/raw-http.ts";

type Fields = Record<string, unknown>;

function folderFor(): { readonly journal: string; readonly socket: string } {
  const folder = temporaryFolder();
  onTestFinished(() => folder.remove());
  return { journal: join(folder.path, "journal"), socket: join(folder.path, "s", "gateway.sock") };
}

async function coreIn(
  places: ReturnType<typeof folderFor>,
  start: StartPolicy | undefined,
  more: Partial<CoreOptions> = {},
): Promise<Core> {
  const core = await createCore({
    journalDir: places.journal,
    listen: { kind: "unix", path: places.socket },
    trust: { workspaceTrusted: () => true, serverTrustSetting: () => false, consentFingerprint: () => undefined },
    settings: () => defaultReplaySettings,
    contracts: () => new Map(),
    log: () => undefined,
    startPolicy: () => start,
    clientInfo: { name: "test", version: "1" },
    ...more,
  });
  onTestFinished(() => core.dispose());
  return core;
}

async function raw(handlers: Handlers = legacyHandlers()): Promise<RawServer> {
  const server = await RawServer.start(handlers);
  onTestFinished(() => server.close());
  return server;
}

const defined = (server: RawServer): ReadonlyMap<string, ServerDefinition> =>
  new Map([["one", { type: "http", url: server.url, headers: {} }]]);

/** One request of an agent's at the gateway; its JSON answer, of a stream the first message. */
function ask(socketPath: string, method: string, params: Fields = {}): Promise<Fields> {
  return new Promise((resolve, reject) => {
    const outgoing = request(
      {
        socketPath,
        path: "/servers/one/mcp",
        method: "POST",
        headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
        agent: false,
      },
      (answer) => {
        let text = "";
        answer.setEncoding("utf8");
        answer.on("data", (chunk: string) => (text += chunk));
        answer.on("end", () => {
          const data = text.split("\n").find((line) => line.startsWith("data: "));
          resolve(JSON.parse(data === undefined ? text : data.slice(6)) as Fields);
        });
      },
    );
    outgoing.on("error", reject);
    outgoing.end(JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }));
  });
}

const initialize = {
  protocolVersion: "2025-11-25",
  capabilities: { sampling: {}, elicitation: {} },
  clientInfo: { name: "agent", version: "1" },
};

/** The server was connected once, in an earlier run. */
async function onceConnected(places: ReturnType<typeof folderFor>, server: RawServer, start: StartPolicy): Promise<void> {
  const core = await coreIn(places, start);
  await core.setDefinitions(defined(server));
  await core.servers.get("one")?.start();
  await core.dispose();
  server.seen.length = 0;
}

describe("a server that is started on use", () => {
  for (const [era, handlers] of [
    ["2025-11-25", legacyHandlers],
    ["2026-07-28", modernHandlers],
  ] as const)
    it(`shows agents what it listed last without being started, and a call starts it (${era})`, async () => {
      const places = folderFor();
      const server = await raw(handlers());
      await onceConnected(places, server, "onUse");
      const core = await coreIn(places, "onUse", { discoverNew: true });
      await core.setDefinitions(defined(server));
      const hosted = core.servers.get("one");
      expect(hosted?.tools.map(({ name }) => name)).toEqual(["book", "look"]);

      const greeting = await ask(places.socket, "initialize", initialize);
      expect(greeting["result"]).toMatchObject({ serverInfo: { name: hosted?.remembered?.facts.serverInfo.name } });
      const listed = (await ask(places.socket, "tools/list"))["result"] as { tools: Fields[] };
      expect(listed.tools.map((tool) => tool["name"])).toEqual(["book", "look"]);
      // Nobody trusts this server: what it says of itself is not passed on from memory either.
      expect(listed.tools[1]?.["annotations"]).not.toMatchObject({ readOnlyHint: true });
      expect(server.seen).toEqual([]);
      expect(hosted?.status.state).toBe("stopped");

      const answer = await ask(places.socket, "tools/call", { name: "book", arguments: {} });
      expect(answer["result"]).toMatchObject({ content: [{ text: "done" }] });
      expect(hosted?.status.state).toBe("connected");
      expect(server.requests("tools/call")).toHaveLength(1);
    });

  it("tells agents when it turns out to have other tools than it had", async () => {
    const places = folderFor();
    const server = await raw();
    await onceConnected(places, server, "onUse");
    server.handlers["tools/list"] = (turn) => turn.result({ tools: [{ name: "other", inputSchema: {} }] });
    const core = await coreIn(places, "onUse");
    await core.setDefinitions(defined(server));
    await ask(places.socket, "tools/list");
    const told = new Promise<string>((resolve) => {
      const listening = request(
        {
          socketPath: places.socket,
          path: "/servers/one/mcp",
          method: "GET",
          headers: { accept: "text/event-stream" },
          agent: false,
        },
        (stream) => {
          stream.setEncoding("utf8");
          stream.on("data", (chunk: string) => {
            if (chunk.includes("list_changed")) resolve(chunk);
          });
          void core.servers.get("one")?.connect();
        },
      );
      onTestFinished(() => void listening.destroy());
      listening.on("error", () => undefined);
      listening.end();
    });
    expect(await told).toContain("notifications/tools/list_changed");
    const listed = (await ask(places.socket, "tools/list"))["result"] as { tools: Fields[] };
    expect(listed.tools.map((tool) => tool["name"])).toEqual(["other"]);
  });

  it("of which nothing is remembered is asked once, where that is wanted, and not again the next time", async () => {
    const places = folderFor();
    const server = await raw();
    const first = await coreIn(places, "onUse", { discoverNew: true });
    await first.setDefinitions(defined(server));
    await server.until("tools/list");
    await expect.poll(() => first.servers.get("one")?.status.state).toBe("connected");
    await first.dispose();
    server.seen.length = 0;
    const second = await coreIn(places, "onUse", { discoverNew: true });
    await second.setDefinitions(defined(server));
    await ask(places.socket, "tools/list");
    expect(server.seen).toEqual([]);
  });

  it("with another definition is another server: nothing is remembered of it", async () => {
    const places = folderFor();
    const server = await raw();
    await onceConnected(places, server, "onUse");
    const other = await raw(legacyHandlers({ "tools/list": (turn) => turn.result({ tools: [] }) }));
    const core = await coreIn(places, "onUse");
    await core.setDefinitions(defined(other));
    expect(core.servers.get("one")?.tools).toEqual([]);
    await ask(places.socket, "tools/list");
    expect(other.requests("tools/list").length).toBeGreaterThan(0);
  });
});

describe("a server that is started by hand only", () => {
  it("refuses calls, provably unsent, until a person starts it, and again once it is stopped", async () => {
    const places = folderFor();
    const server = await raw();
    const core = await coreIn(places, "manual", { discoverNew: true });
    await core.setDefinitions(defined(server));
    const hosted = core.servers.get("one");
    const call = () => ask(places.socket, "tools/call", { name: "book", arguments: {} });
    expect((await call())["result"]).toMatchObject({
      isError: true,
      _meta: { "mcp-safe-replay/operation": { state: "not-executed" } },
    });
    expect(server.seen).toEqual([]);
    expect(hosted?.status.state).toBe("stopped");
    await hosted?.start();
    expect((await call())["result"]).toMatchObject({ content: [{ text: "done" }] });
    await hosted?.stop();
    expect((await call())["result"]).toMatchObject({ isError: true });
    expect(server.requests("tools/call")).toHaveLength(1);
  });
});

it("a server that is started on startup is connected before anybody asks", async () => {
  const places = folderFor();
  const server = await raw();
  const core = await coreIn(places, "onStartup");
  await core.setDefinitions(defined(server));
  await expect.poll(() => core.servers.get("one")?.status.state).toBe("connected");
});

it("without a word on when to start it, a server is asked anew, and nothing is remembered", async () => {
  const places = folderFor();
  const server = await raw();
  const core = await coreIn(places, undefined, { discoverNew: true });
  await core.setDefinitions(defined(server));
  expect(server.seen).toEqual([]);
  await ask(places.socket, "tools/list");
  expect(server.requests("tools/list").length).toBeGreaterThan(0);
  await core.dispose();
  expect(existsSync(join(places.journal, "tools.json"))).toBe(false);
});

it("a server whose workspace is not trusted is not reached by a call", async () => {
  const places = folderFor();
  const server = await raw();
  let trusted = false;
  const core = await coreIn(places, "onUse", { mayStart: () => trusted });
  await core.setDefinitions(defined(server));
  const call = () => ask(places.socket, "tools/call", { name: "book", arguments: {} });
  expect((await call())["result"]).toMatchObject({ isError: true });
  expect(core.servers.get("one")?.status.state).toBe("waiting-for-trust");
  expect(server.seen).toEqual([]);
  trusted = true;
  expect((await call())["result"]).toMatchObject({ content: [{ text: "done" }] });
});

it("a changed definition restarts exactly that server, and a changed start policy none", async () => {
  const places = folderFor();
  const [one, two] = [await raw(), await raw()];
  const core = await coreIn(places, "onStartup");
  const definitions = (header: string): ReadonlyMap<string, ServerDefinition> =>
    new Map([
      ["one", { type: "http", url: one.url, headers: { "x-header": header } }],
      ["two", { type: "http", url: two.url, headers: {} }],
    ]);
  await core.setDefinitions(definitions("a"));
  const connected = async () => {
    for (const server of core.servers.values()) await expect.poll(() => server.status.state).toBe("connected");
  };
  await connected();
  const before = core.servers.get("two")?.connection;
  await core.setDefinitions(definitions("b"));
  await connected();
  expect(core.servers.get("two")?.connection).toBe(before);
  expect(two.requests("initialize")).toHaveLength(1);
  expect(one.requests("initialize").map(({ headers }) => headers["x-header"])).toEqual(["a", "b"]);
  await expect.poll(() => one.requests("DELETE").length).toBe(1);
});

it("a program whose definition changed starts only when nothing is left of the one before", { timeout: 30_000 }, async () => {
  const places = folderFor();
  const program = child("stubborn");
  const core = await coreIn(places, "onStartup");
  const definitions = (value: string): ReadonlyMap<string, ServerDefinition> =>
    new Map([["one", { ...program.definition, env: { VALUE: value } }]]);
  await core.setDefinitions(definitions("a"));
  await expect.poll(() => core.servers.get("one")?.status.state, { timeout: 20_000 }).toBe("connected");
  await core.setDefinitions(definitions("b"));
  await expect.poll(() => core.servers.get("one")?.status.state, { timeout: 20_000 }).toBe("connected");
  const story = program.entries().flatMap((entry) => ["started", "signal"].filter((what) => what in entry));
  expect(story).toEqual(["started", "signal", "started"]);
  expect(program.pids().map(lives)).toEqual([false, true]);
});
