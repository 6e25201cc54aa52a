/**
 * What a real agent sees: every feature, at the server itself and through the gateway, as transcripts that must be equal but for ids and
 * times. Clients: SDK v1 (legacy) and SDK v2 (which speaks the newest version that the other side has). Servers: server-everything over stdio
 * and over Streamable HTTP, the SDK v2 conformance server (both eras) over Streamable HTTP and over stdio, and a server with things that no
 * specification knows.
 *
 * Where a v2 client meets an older server, it speaks 2025-11-25 to the server itself and 2026-07-28 to the gateway: there the marks of the
 * newer version (`resultType`, cache hints, the server's name in `_meta`) are what differs by right, and are left out of the comparison.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { join } from "node:path";
import * as v2 from "@modelcontextprotocol/client";
import { StdioClientTransport as V2Stdio } from "@modelcontextprotocol/client/stdio";
import { Client as V1Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as V1Stdio } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as V1Http } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import * as z from "zod";
import { startEverythingV2, type EverythingV2 } from "../servers/everything-v2/http.ts";
import { Headless, headlessFile } from "../support/headless.ts";
import { repositoryRoot } from "../support/paths.ts";

type Json = Record<string, unknown>;
type Era = "2025-11-25" | "2026-07-28";

const capabilities = { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } };
/** Keeps every field, those that no SDK knows included. */
const anything = z.looseObject({});

// ── Agents ─────────────────────────────────────────────────────────────────────────────────────────

/** One client, in the same words for both SDKs. */
interface Agent {
  readonly era: Era;
  /** What it was asked, in order. */
  readonly asked: Json[];
  readonly facts: Json;
  /** The params of each progress notification, as it came. */
  readonly progress: Json[];
  /** The result, or the error as `{ error }`. */
  ask(method: string, params?: Json, options?: { onprogress?: (progress: Json) => void; signal?: AbortSignal }): Promise<Json>;
  notify(method: string, params: Json): Promise<void>;
  /** The next notification of this method; those before it stay. */
  heard(method: string): Promise<Json>;
  /** Follows lists and a resource, in the way of its era. */
  follow(uri: string): Promise<void>;
  close(): Promise<void>;
}

class Heard {
  readonly #messages: Json[] = [];
  readonly #waiting: { method: string; resolve: (message: Json) => void }[] = [];

  push(message: Json): void {
    const at = this.#waiting.findIndex(({ method }) => method === message["method"]);
    const [waiting] = at < 0 ? [] : this.#waiting.splice(at, 1);
    if (waiting === undefined) this.#messages.push(message);
    else waiting.resolve(message);
  }

  next(method: string): Promise<Json> {
    const at = this.#messages.findIndex((message) => message["method"] === method);
    const [found] = at < 0 ? [] : this.#messages.splice(at, 1);
    if (found !== undefined) return Promise.resolve(found);
    return new Promise((resolve) => this.#waiting.push({ method, resolve }));
  }
}

function answerTo(method: string, params: Json): Json {
  if (method === "roots/list") return { roots: [{ uri: "file:///workspace", name: "workspace" }] };
  if (method === "sampling/createMessage")
    return { model: "a model", role: "assistant", stopReason: "endTurn", content: { type: "text", text: "sampled" } };
  return params["mode"] === "url"
    ? { action: "accept" }
    : { action: "accept", content: { name: "Ada", username: "ada", confirm: true } };
}

type Where = { readonly command: string; readonly args: readonly string[] } | { readonly url: string };

const errorOf = (error: unknown): Json => {
  const { code, message, data } = error as { code?: unknown; message: string; data?: { text?: string } };
  // SDK v2 wraps what comes with an HTTP error status.
  if (typeof data?.text === "string") return { error: (JSON.parse(data.text) as { error: Json }).error };
  return { error: { code, message: message.replace(/^MCP error -?\d+: /, ""), ...(data === undefined ? {} : { data }) } };
};

/** Every progress notification as it comes: the SDKs' own handlers miss those that arrive together with the answer. */
function tap(transport: { onmessage?: unknown }, hear: (params: Json) => void): void {
  const listener = transport.onmessage as (...parts: unknown[]) => void;
  transport.onmessage = (message: Json, ...more: unknown[]) => {
    if (message["method"] === "notifications/progress") hear(message["params"] as Json);
    listener(message, ...more);
  };
}

async function v1Agent(where: Where): Promise<Agent> {
  const client = new V1Client({ name: "a v1 agent", version: "1" }, { capabilities });
  const heard = new Heard();
  const asked: Json[] = [];
  client.fallbackNotificationHandler = async (notification) => heard.push(notification);
  client.fallbackRequestHandler = async ({ method, params }) => {
    asked.push({ method, params });
    return answerTo(method, params ?? {});
  };
  const transport =
    "url" in where
      ? new V1Http(new URL(where.url))
      : new V1Stdio({ command: where.command, args: [...where.args], stderr: "ignore" });
  await client.connect(transport);
  const progress: Json[] = [];
  tap(transport, (params) => progress.push(params));
  const ask: Agent["ask"] = (method, params, options = {}) =>
    client
      .request({ method, ...(params === undefined ? {} : { params }) }, anything as never, options as never)
      .then((result) => result as Json, errorOf);
  return {
    era: "2025-11-25",
    asked,
    progress,
    facts: {
      serverInfo: client.getServerVersion(),
      capabilities: client.getServerCapabilities(),
      instructions: client.getInstructions(),
    },
    ask,
    notify: (method, params) => client.notification({ method, params }),
    heard: (method) => heard.next(method),
    follow: async (uri) => {
      await ask("resources/subscribe", { uri });
    },
    close: () => client.close(),
  };
}

async function v2Agent(where: Where): Promise<Agent> {
  const client = new v2.Client({ name: "a v2 agent", version: "2" }, { capabilities, versionNegotiation: { mode: "auto" } });
  const heard = new Heard();
  const asked: Json[] = [];
  const answer = (method: string, params: unknown): never => {
    asked.push({ method, params });
    return answerTo(method, (params ?? {}) as Json) as never;
  };
  client.fallbackNotificationHandler = async (notification) => heard.push(notification);
  client.setRequestHandler("roots/list", ({ params }) => answer("roots/list", params));
  client.setRequestHandler("sampling/createMessage", ({ params }) => answer("sampling/createMessage", params));
  client.setRequestHandler("elicitation/create", ({ params }) => answer("elicitation/create", params));
  const transport =
    "url" in where
      ? new v2.StreamableHTTPClientTransport(new URL(where.url))
      : new V2Stdio({ command: where.command, args: [...where.args], stderr: "ignore" });
  await client.connect(transport);
  const progress: Json[] = [];
  tap(transport, (params) => progress.push(params));
  const era: Era = client.getNegotiatedProtocolVersion() === "2026-07-28" ? "2026-07-28" : "2025-11-25";
  const ask: Agent["ask"] = (method, params, options = {}) =>
    client
      .request({ method, ...(params === undefined ? {} : { params }) }, anything, options as never)
      .then((result) => result, errorOf);
  return {
    era,
    asked,
    progress,
    facts: {
      serverInfo: client.getServerVersion(),
      capabilities: client.getServerCapabilities(),
      instructions: client.getInstructions(),
    },
    ask,
    notify: (method, params) => client.notification({ method, params }),
    heard: (method) => heard.next(method),
    follow: async (uri) => {
      if (era === "2025-11-25") await ask("resources/subscribe", { uri });
      else await client.listen({ resourceSubscriptions: [uri], toolsListChanged: true, promptsListChanged: true });
    },
    close: () => client.close(),
  };
}

// ── Servers ────────────────────────────────────────────────────────────────────────────────────────

const everythingFile = join(repositoryRoot, "node_modules/@modelcontextprotocol/server-everything/dist/index.js");
const vendorFile = join(repositoryRoot, "test/servers/vendor/vendor-server.ts");
const sdkV2File = join(repositoryRoot, "test/servers/everything-v2/stdio.ts");
const servers = ["everything, stdio", "everything, HTTP", "SDK v2, HTTP", "vendor, stdio", "SDK v2, stdio"] as const;
type Server = (typeof servers)[number];
const isSdkV2 = (server: Server): boolean => server.startsWith("SDK v2");
const clients = ["v1 legacy", "v2 modern", "v1 by the stdio bridge", "v2 by the stdio bridge"] as const;
type ClientKind = (typeof clients)[number];

let program: Headless;
let everythingHttp: { readonly url: string; readonly child: ChildProcess };
let sdkV2: EverythingV2;
const agents = new Map<string, Promise<{ direct: Agent; through: Agent }>>();
const opened: Agent[] = [];

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, "close");
  return port;
}

async function startEverythingHttp(): Promise<typeof everythingHttp> {
  const port = await freePort();
  const child = spawn(process.execPath, [everythingFile, "streamableHttp"], {
    env: { ...process.env, PORT: String(port) },
    stdio: ["ignore", "ignore", "pipe"],
  });
  await new Promise<void>((resolve, reject) => {
    let said = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      said += text;
      if (said.includes("listening on port")) resolve();
    });
    child.once("exit", () => reject(new Error(`server-everything ended: ${said}`)));
  });
  return { url: `http://127.0.0.1:${port}/mcp`, child };
}

const stdioOf = (server: Server) =>
  server === "vendor, stdio"
    ? { command: process.execPath, args: [vendorFile] }
    : server === "SDK v2, stdio"
      ? { command: process.execPath, args: [sdkV2File] }
      : { command: process.execPath, args: [everythingFile, "stdio"] };

function directly(server: Server): Where {
  if (server === "everything, HTTP") return { url: everythingHttp.url };
  return server === "SDK v2, HTTP" ? { url: sdkV2.url } : stdioOf(server);
}

/** Each client has a hosted server of its own: what one does there must not be seen by another. */
const hostedName = (client: ClientKind, server: Server) => `${clients.indexOf(client)}-${servers.indexOf(server)}`;

beforeAll(async () => {
  everythingHttp = await startEverythingHttp();
  sdkV2 = await startEverythingV2();
  program = new Headless();
  const definitions = clients.flatMap((client) =>
    servers.map((server) => {
      const where = directly(server);
      return [
        hostedName(client, server),
        // The v2 client that comes by HTTP has programs of its own: they speak the newer era. The other programs are opened for a legacy agent
        // first, and serve the v2 client that comes by the bridge in the older one.
        "url" in where
          ? { type: "http", url: where.url }
          : { type: "stdio", ...where, env: client === "v2 modern" ? { MSR_OWN: "1" } : {} },
      ] as const;
    }),
  );
  await program.serve({
    servers: Object.fromEntries(definitions),
    serverTrust: Object.fromEntries(definitions.map(([name]) => [name, true])),
    workspaceTrusted: true,
    // A cell that fails must not change the next one.
    duplicateGuard: "off",
  });
}, 120_000);
afterAll(async () => {
  await Promise.all(opened.map((agent) => agent.close().catch(() => undefined)));
  await program.remove();
  everythingHttp.child.kill();
  await sdkV2.close();
  printTable();
});

/** The pair of agents of a cell, made once. */
function pairOf(client: ClientKind, server: Server): Promise<{ direct: Agent; through: Agent }> {
  const key = hostedName(client, server);
  const make = async () => {
    const open = client.startsWith("v1") ? v1Agent : v2Agent;
    const through = client.endsWith("bridge")
      ? { command: process.execPath, args: [headlessFile, "connect", key, "--url", program.listening] }
      : { url: program.urls[key]! };
    const pair = { direct: await open(directly(server)), through: await open(through) };
    opened.push(pair.direct, pair.through);
    return pair;
  };
  const known = agents.get(key) ?? make();
  agents.set(key, known);
  return known;
}

// ── Features ───────────────────────────────────────────────────────────────────────────────────────

type Transcript = (agent: Agent) => Promise<unknown>;
type Cell = Transcript | string;

const call = (agent: Agent, name: string, args: Json = {}, more: Json = {}) =>
  agent.ask("tools/call", { name, arguments: args, ...more });
const asks =
  (...requests: [string, Json?][]): Transcript =>
  async (agent) => {
    const answers: unknown[] = [];
    for (const [method, params] of requests) answers.push([method, await agent.ask(method, params)]);
    return answers;
  };
const calls =
  (...list: [string, Json?][]): Transcript =>
  async (agent) => {
    const answers: unknown[] = [];
    for (const [name, args] of list) answers.push([name, await call(agent, name, args)]);
    return answers;
  };
/** A call in whose middle the agent is asked: what it was asked, and what came of it. */
const asking =
  (name: string, args: Json = {}): Transcript =>
  async (agent) => {
    agent.asked.length = 0;
    const result = await call(agent, name, args);
    return { asked: [...agent.asked], result };
  };
const progressing =
  (name: string, args: Json = {}): Transcript =>
  async (agent) => {
    agent.progress.length = 0;
    const { isError, content } = await agent.ask("tools/call", { name, arguments: args }, { onprogress: () => undefined });
    // The conformance server's tool answers with the token that it was given: an id.
    const texts = (content as { text: string }[]).map(({ text }) => (/^(\d+|<id>|[0-9a-f-]{36})$/.test(text) ? "<id>" : text));
    return { seen: [...agent.progress], isError, texts };
  };
const cancelling =
  (name: string, args: Json, after: Transcript): Transcript =>
  async (agent) => {
    const controller = new AbortController();
    const begun = Promise.withResolvers<undefined>();
    const ending = agent.ask(
      "tools/call",
      { name, arguments: args },
      { signal: controller.signal, onprogress: () => begun.resolve(undefined) },
    );
    await begun.promise;
    controller.abort("enough");
    return { ended: Object.keys(await ending), after: await after(agent) };
  };
const paged =
  (method: string, list: string): Transcript =>
  async (agent) => {
    const pages: unknown[] = [];
    let cursor: unknown;
    do {
      const page = await agent.ask(method, cursor === undefined ? {} : { cursor });
      pages.push(page);
      cursor = page["nextCursor"];
      expect(page).toHaveProperty(list);
    } while (cursor !== undefined);
    return pages;
  };

const notThere = (what: string) => `this server has no ${what}`;
const everything = { "everything, stdio": true, "everything, HTTP": true } as const;
const features: Readonly<Record<string, (server: Server, client: ClientKind) => Cell>> = {
  introduction: (_server, client) => async (agent) => ({
    ...agent.facts,
    ...(client.startsWith("v1") ? { ping: await agent.ask("ping") } : {}),
  }),
  "tools: list": () => paged("tools/list", "tools"),
  "tools: call, every kind of content": (server) =>
    server in everything
      ? calls(
          ["echo", { message: "héllo \u{1F600} \u2028" }],
          ["get-sum", { a: 2, b: 3.5 }],
          ["get-tiny-image"],
          ["get-annotated-message", { messageType: "success", includeImage: true }],
          ["get-resource-links", { count: 3 }],
          ["get-resource-reference", { resourceType: "Text", resourceId: 1 }],
        )
      : isSdkV2(server)
        ? calls(
            ["test_simple_text"],
            ["test_image_content"],
            ["test_audio_content"],
            ["test_embedded_resource"],
            ["test_multiple_content_types"],
          )
        : calls(["say-vendor"]),
  "tools: errors": (server) =>
    server in everything
      ? calls(["get-sum", { a: "x" }], ["echo", {}])
      : calls([isSdkV2(server) ? "test_error_handling" : "echo-params", {}]),
  "structured content": (server) =>
    server in everything ? calls(["get-structured-content", { location: "Chicago" }]) : notThere("tool with structured content"),
  "resources: list, read, templates, errors": (server) =>
    server in everything
      ? asks(
          ["resources/list"],
          ["resources/templates/list"],
          ["resources/read", { uri: "demo://resource/dynamic/text/1" }],
          ["resources/read", { uri: "demo://resource/dynamic/blob/2" }],
        )
      : isSdkV2(server)
        ? asks(
            ["resources/list"],
            ["resources/templates/list"],
            ["resources/read", { uri: "test://static-text" }],
            ["resources/read", { uri: "test://static-binary" }],
            ["resources/read", { uri: "test://template/123/data" }],
            ["resources/read", { uri: "test://nothing" }],
          )
        : notThere("resources"),
  "resources: subscriptions": (server) =>
    server in everything
      ? async (agent) => {
          const uri = "demo://resource/dynamic/text/1";
          await agent.follow(uri);
          const on = await call(agent, "toggle-subscriber-updates");
          const update = await agent.heard("notifications/resources/updated");
          await call(agent, "toggle-subscriber-updates");
          return { on: on["content"], update };
        }
      : notThere(isSdkV2(server) ? "resource that changes" : "resources"),
  prompts: (server) =>
    server in everything
      ? asks(
          ["prompts/list"],
          ["prompts/get", { name: "simple-prompt" }],
          ["prompts/get", { name: "args-prompt", arguments: { city: "Oslo", state: "x" } }],
          ["prompts/get", { name: "no such prompt" }],
        )
      : isSdkV2(server)
        ? asks(
            ["prompts/list"],
            ["prompts/get", { name: "test_simple_prompt" }],
            ["prompts/get", { name: "test_prompt_with_arguments", arguments: { arg1: "a", arg2: "b" } }],
            ["prompts/get", { name: "test_prompt_with_image" }],
          )
        : notThere("prompts"),
  completion: (server) =>
    server in everything
      ? asks([
          "completion/complete",
          { ref: { type: "ref/prompt", name: "completable-prompt" }, argument: { name: "department", value: "E" } },
        ])
      : isSdkV2(server)
        ? asks([
            "completion/complete",
            { ref: { type: "ref/prompt", name: "test_prompt_with_arguments" }, argument: { name: "arg1", value: "x" } },
          ])
        : notThere("completion"),
  logging: (server, client) =>
    isSdkV2(server) && client.startsWith("v1")
      ? async (agent) => {
          const level = await agent.ask("logging/setLevel", { level: "debug" });
          const result = await call(agent, "test_tool_with_logging");
          const heard: Json[] = [];
          for (let one = 0; one < 3; one += 1) heard.push(await agent.heard("notifications/message"));
          return { level, result, heard: heard.map(({ method, params }) => ({ method, params })) };
        }
      : server in everything && client.startsWith("v1")
        ? async (agent) => {
            const level = await agent.ask("logging/setLevel", { level: "debug" });
            await call(agent, "toggle-simulated-logging");
            const message = await agent.heard("notifications/message");
            await call(agent, "toggle-simulated-logging");
            // Which of its messages comes first is chance.
            return { level, method: message["method"] };
          }
        : server === "vendor, stdio"
          ? notThere("logging")
          : "2026-07-28 asks for log messages by the request; these servers log outside of requests, or only when asked by setLevel",
  progress: (server) =>
    server in everything
      ? progressing("trigger-long-running-operation", { duration: 0.3, steps: 3 })
      : isSdkV2(server)
        ? progressing("test_tool_with_progress")
        : notThere("progress"),
  cancellation: (server) =>
    server in everything
      ? cancelling("trigger-long-running-operation", { duration: 2, steps: 20 }, calls(["echo", { message: "after" }]))
      : notThere("tool that takes long enough"),
  "list-changed": (server, client) =>
    server === "vendor, stdio"
      ? async (agent) => {
          if (agent.era === "2026-07-28") await agent.follow("vendor://none");
          const before = await paged("tools/list", "tools")(agent);
          await call(agent, "grow");
          const { method } = await agent.heard("notifications/tools/list_changed");
          return { before, method, after: await paged("tools/list", "tools")(agent) };
        }
      : isSdkV2(server) && client.startsWith("v2")
        ? async (agent) => {
            await agent.follow("test://watched-resource");
            await call(agent, "test_trigger_tool_change");
            const tools = await agent.heard("notifications/tools/list_changed");
            await call(agent, "test_trigger_prompt_change");
            const prompts = await agent.heard("notifications/prompts/list_changed");
            return [tools["method"], prompts["method"]];
          }
        : "this server tells of changes only while it starts, or only to subscriptions of 2026-07-28",
  roots: (server) =>
    server in everything
      ? async (agent) => {
          const { content } = await call(agent, "get-roots-list");
          return content;
        }
      : isSdkV2(server)
        ? asking("test_input_required_result_list_roots")
        : notThere("use for roots"),
  sampling: (server, client) =>
    server in everything
      ? asking("trigger-sampling-request", { prompt: "hello", maxTokens: 10 })
      : isSdkV2(server)
        ? asking(client.startsWith("v1") ? "test_sampling" : "test_input_required_result_sampling", { prompt: "hello" })
        : notThere("use for sampling"),
  "elicitation: form": (server, client) =>
    server in everything
      ? asking("trigger-elicitation-request")
      : isSdkV2(server)
        ? asking(client.startsWith("v1") ? "test_elicitation" : "test_input_required_result_elicitation", { message: "Who?" })
        : notThere("use for elicitation"),
  "elicitation: url": (server) =>
    server in everything
      ? asking("trigger-url-elicitation", { url: "https://example.com/x", elicitationId: "e-1" })
      : notThere("elicitation by URL"),
  "elicitation: several rounds": (server) =>
    isSdkV2(server) ? asking("test_input_required_result_multi_round") : notThere("call of several rounds"),
  "tasks (2025-11-25)": (server, client) =>
    !(server in everything)
      ? notThere("tasks")
      : client.startsWith("v2")
        ? "2026-07-28 has other tasks, which this server does not know; the gateway offers none to such a client"
        : async (agent) => {
            const made = await call(agent, "simulate-research-query", { topic: "x" }, { task: { ttl: 60_000 } });
            const { taskId } = made["task"] as { taskId: string };
            const result = await agent.ask("tasks/result", { taskId });
            const after = await agent.ask("tasks/get", { taskId });
            return {
              made: Object.keys(made["task"] as Json).sort(),
              result: Object.keys(result).sort(),
              status: after["status"],
              unknown: await agent.ask("tasks/get", { taskId: "no-such-task" }),
            };
          },
  "tasks (2026-07-28)": () => "no public server has them yet; the fault servers' own are in the fault matrix",
  "unknown fields": (server) =>
    server === "vendor, stdio" ? paged("tools/list", "vendorPage") : "covered by the comparison of whole results",
  _meta: (server) =>
    server === "vendor, stdio"
      ? async (agent) => {
          const _meta = { "vendor.example/x": { y: [1] }, traceparent: "00-1-2-01" };
          const { content, ...rest } = await call(agent, "echo-params", { a: 1 }, { _meta, vendorParam: 5 });
          return { arrived: JSON.parse((content as { text: string }[])[0]!.text) as unknown, rest };
        }
      : "nothing here gives it back",
  pagination: (server) => (server === "vendor, stdio" ? paged("tools/list", "tools") : "everything fits on one page"),
  "vendor methods": (server) =>
    server === "vendor, stdio"
      ? asks(["vendor.example/echo", { a: { b: [1, null] } }], ["vendor.example/none", { a: 1 }])
      : asks(["vendor.example/none", { a: 1 }]),
  "vendor notifications": (server, client) =>
    server !== "vendor, stdio"
      ? notThere("vendor notifications")
      : client.startsWith("v2")
        ? "2026-07-28 has no stream for what belongs to no request and no subscription"
        : async (agent) => {
            await call(agent, "say-vendor");
            const said = await agent.heard("notifications/vendor/said");
            await agent.notify("notifications/vendor/heard", { x: [1, { y: 2 }] });
            return { said, heard: await agent.ask("vendor.example/notified", {}) };
          },
};

// ── The comparison ─────────────────────────────────────────────────────────────────────────────────

/** Ids and times, and nothing else. */
function steady(value: unknown): unknown {
  const text = JSON.stringify(value, (key, one: unknown) => {
    if (key === "progressToken" || key === "taskId") return "<id>";
    // A time may be inside.
    return key === "blob" && typeof one === "string" ? Buffer.from(one, "base64").toString("latin1") : one;
  })
    .replace(/\d{1,2}:\d{2}:\d{2}( [AP]M)?/g, "<time>")
    .replace(/\d{4}-\d{2}-\d{2}T[\d:.<>a-z]+Z/g, "<time>")
    .replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "<id>");
  return JSON.parse(text);
}

const cacheMarks = ["ttlMs", "cacheScope", "resultType", "elicitationId"];
const serverInfoKey = "io.modelcontextprotocol/serverInfo";
/** The marks of 2026-07-28 taken out (that version has no `elicitationId`), where one side spoke the older version. */
function withoutMarks(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutMarks);
  if (typeof value !== "object" || value === null) return value;
  const fields: Json = {};
  for (const [key, one] of Object.entries(value)) {
    if (cacheMarks.includes(key) || key === "execution" || key === "tasks") continue;
    if (key === "_meta") {
      const { [serverInfoKey]: _info, "io.modelcontextprotocol/subscriptionId": _id, ...rest } = one as Json;
      if (Object.keys(rest).length > 0) fields[key] = withoutMarks(rest);
    } else fields[key] = withoutMarks(one);
  }
  return fields;
}

const table = new Map<string, string>();

function printTable(): void {
  const columns = clients.flatMap((client) => servers.map((server) => [client, server] as const));
  const reasons: string[] = [];
  const lines = Object.keys(features).map((feature) => {
    const cells = columns.map(([client, server]) => {
      const cell = table.get(`${feature}|${client}|${server}`) ?? "?";
      if (cell.length <= 5) return cell.padEnd(6);
      if (!reasons.includes(cell)) reasons.push(cell);
      return `n/a ${reasons.indexOf(cell) + 1}`.padEnd(6);
    });
    return `  ${feature.padEnd(42)} ${cells.join(" ")}`;
  });
  const head = columns.map(([client, server]) =>
    `${"abcd"[clients.indexOf(client)] ?? ""}${servers.indexOf(server) + 1}`.padEnd(6),
  );
  console.log(
    [
      "Transcripts at the server itself and through the gateway:",
      `  clients: ${clients.map((client, index) => `${"abcd"[index] ?? ""} ${client}`).join(", ")}`,
      `  servers: ${servers.map((server, index) => `${index + 1} ${server}`).join(", ")}`,
      `  ${"feature".padEnd(42)} ${head.join(" ")}`,
      ...lines,
      ...reasons.map((reason, index) => `  n/a ${index + 1}: ${reason}`),
    ].join("\n"),
  );
}

for (const client of clients) {
  describe.each(servers)(`${client} client at %s`, (server) => {
    it.each(Object.keys(features))("%s", async (feature) => {
      const cell = features[feature]!(server, client);
      const key = `${feature}|${client}|${server}`;
      if (typeof cell === "string") {
        table.set(key, cell);
        return;
      }
      table.set(key, "FAIL");
      const { direct, through } = await pairOf(client, server);
      const clean = direct.era === through.era ? (value: unknown) => value : withoutMarks;
      const atServer = clean(steady(await cell(direct)));
      const atGateway = clean(steady(await cell(through)));
      expect(atGateway).toEqual(atServer);
      table.set(key, direct.era === through.era ? "equal" : "eq*");
    });
  });
}
