import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import * as z from "zod";
import { CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Headless } from "../support/headless.ts";
import { repositoryRoot } from "../support/paths.ts";

/** A real agent client (SDK v1, legacy era) at the real server-everything: directly, and through the gateway. */

const everything = join(repositoryRoot, "node_modules/@modelcontextprotocol/server-everything/dist/index.js");
/** Keeps every field, those that the SDK does not know included. */
const anything = z.looseObject({});

/** An agent that can do what the gateway offers servers on behalf of its agents: ask the model, ask the person, name its roots. */
function agent(): Client {
  const client = new Client(
    { name: "a real agent", version: "1" },
    { capabilities: { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } } },
  );
  client.setRequestHandler(CreateMessageRequestSchema, () => ({
    model: "a model",
    role: "assistant" as const,
    content: { type: "text" as const, text: "a sampled answer" },
  }));
  client.setRequestHandler(ElicitRequestSchema, () => ({ action: "decline" as const }));
  client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: [{ uri: "file:///workspace", name: "workspace" }] }));
  return client;
}

let program: Headless;
let direct: Client;
let through: Client;

beforeAll(async () => {
  program = new Headless();
  // Trusted, so that tools/list is the server's own, hints included.
  await program.serve({
    servers: { everything: { type: "stdio", command: process.execPath, args: [everything, "stdio"] } },
    serverTrust: { everything: true },
    workspaceTrusted: true,
  });
  direct = agent();
  await direct.connect(new StdioClientTransport({ command: process.execPath, args: [everything, "stdio"], stderr: "ignore" }));
  through = agent();
  await through.connect(new StreamableHTTPClientTransport(new URL(program.urls["everything"]!)));
}, 60_000);
afterAll(async () => {
  await direct.close();
  await through.close();
  await program.remove();
});

/** Arguments for each tool; one that is not here is called without any. */
const argumentsOf: Record<string, Record<string, unknown>> = {
  echo: { message: "hello" },
  "get-sum": { a: 2, b: 3 },
  "get-annotated-message": { messageType: "success", includeImage: true },
  "get-resource-links": { count: 3 },
  "get-resource-reference": { resourceType: "Text", resourceId: 1 },
  "get-structured-content": { location: "Chicago" },
  "trigger-long-running-operation": { duration: 0.2, steps: 2 },
  "trigger-sampling-request": { prompt: "hello", maxTokens: 10 },
  "trigger-sampling-request-async": { prompt: "hello", maxTokens: 10 },
  "gzip-file-as-resource": { name: "x.gz", data: "data:text/plain,hello", outputType: "resource" },
};
const ask = (client: Client, method: string, params?: Record<string, unknown>) =>
  client.request({ method, ...(params ? { params } : {}) }, anything as never);
/** Times differ between two processes of the same program. */
const steady = (value: unknown): string =>
  JSON.stringify(value)
    .replace(/\d{1,2}:\d{2}:\d{2}( [AP]M)?/g, "<time>")
    .replace(/\d{4}-\d{2}-\d{2}T[\d:.]+Z/g, "<time>");

describe("server-everything through the gateway", () => {
  it("introduces itself alike", () => {
    expect(through.getServerVersion()).toEqual(direct.getServerVersion());
    expect(through.getInstructions()).toEqual(direct.getInstructions());
    expect(through.getServerCapabilities()).toEqual(direct.getServerCapabilities());
  });

  it.each(["tools/list", "resources/list", "resources/templates/list", "prompts/list"])(
    "answers %s alike, unknown fields included",
    async (method) => {
      expect(steady(await ask(through, method))).toEqual(steady(await ask(direct, method)));
    },
  );

  it("answers a call of every tool alike, unknown fields included", async () => {
    const { tools } = (await ask(direct, "tools/list")) as unknown as { tools: { name: string }[] };
    const table: string[] = [];
    for (const { name } of tools) {
      const params = { name, arguments: argumentsOf[name] ?? {} };
      const [one, two] = await Promise.all(
        [ask(direct, "tools/call", params), ask(through, "tools/call", params)].map((p) =>
          p.catch((error: unknown) => ({ code: (error as { code: unknown }).code })),
        ),
      );
      expect([name, steady(two)]).toEqual([name, steady(one)]);
      table.push(name);
    }
    expect(table.length).toBeGreaterThanOrEqual(9);
    console.log(`equal results directly and through the gateway: ${table.join(", ")}`);
  });

  it("relays progress with the agent's own token, in order", async () => {
    const seen: number[] = [];
    await through.callTool({ name: "trigger-long-running-operation", arguments: { duration: 0.3, steps: 3 } }, undefined, {
      onprogress: (progress) => seen.push(progress.progress),
    });
    expect(seen).toEqual([1, 2, 3]);
  });

  it("answers prompts, resources and completion alike", async () => {
    for (const [method, params] of [
      ["prompts/get", { name: "simple-prompt" }],
      ["resources/read", { uri: "demo://resource/dynamic/text/1" }],
      [
        "completion/complete",
        { ref: { type: "ref/prompt", name: "completable-prompt" }, argument: { name: "department", value: "E" } },
      ],
    ] as const) {
      expect(steady(await ask(through, method, params as never))).toEqual(steady(await ask(direct, method, params as never)));
    }
  });

  it("answers an unknown method and bad arguments with the server's own errors", async () => {
    const errorOf = async (client: Client, method: string, params?: Record<string, unknown>) =>
      ask(client, method, params).then(
        () => "no error",
        (error: unknown) => ({ code: (error as { code: number }).code, message: (error as Error).message }),
      );
    for (const [method, params] of [
      ["nothing/like/this", {}],
      ["prompts/get", { name: "no such prompt" }],
      ["resources/read", { uri: "demo://nothing" }],
    ] as const) {
      expect(await errorOf(through, method, params)).toEqual(await errorOf(direct, method, params));
    }
    const bad = { name: "get-sum", arguments: { a: "x" } };
    expect(await ask(through, "tools/call", bad)).toEqual(await ask(direct, "tools/call", bad));
  });
});
