/**
 * Owns: the client under test of @modelcontextprotocol/conformance: an agent in front of our gateway, the scenario's server hosted behind
 * it, so that what is judged is what our hosting layer puts on the wire.
 * Leaves to others: the scenarios and their verdicts. The scenario's name comes in MCP_CONFORMANCE_SCENARIO, its server's URL as the last
 * argument.
 */
import { join } from "node:path";
import { createCore } from "../../src/gateway/core.ts";
import { defaultReplaySettings } from "../../src/replay/settings.ts";
import { Agent, type RpcAnswer } from "../faults/support/agent.ts";
import type { Json } from "../servers/fault/world.ts";
import { temporaryFolder } from "../support/temp.ts";

interface Listed {
  readonly name: string;
  readonly uri?: string;
  readonly inputSchema?: Json;
}

const url = process.argv.at(-1) ?? "";
const scenario = process.env["MCP_CONFORMANCE_SCENARIO"] ?? "";
const context = JSON.parse(process.env["MCP_CONFORMANCE_CONTEXT"] ?? "{}") as {
  readonly toolCalls?: readonly { readonly name: string; readonly arguments: Json }[];
};

/**
 * The agent speaks the era that the scenario is about, but where it is the gateway's part that is judged: asking an agent that does not
 * know `input_required` and calling again, mirroring arguments into headers, leaving tools out whose headers are not valid.
 */
const gatewaysPart = ["sep-2322-client-request-state", "http-custom-headers", "http-invalid-tool-headers"];
const modern = process.env["MCP_CONFORMANCE_PROTOCOL_VERSION"] === "2026-07-28" && !gatewaysPart.includes(scenario);

async function main(): Promise<void> {
  const folder = temporaryFolder();
  const socket = join(folder.path, "s", "gateway");
  const core = await createCore({
    journalDir: join(folder.path, "journal"),
    listen: { kind: "unix", path: socket },
    trust: {
      workspaceTrusted: () => true,
      serverTrustSetting: () => true,
      consentFingerprint: (name) => core.servers.get(name)?.fingerprint,
    },
    settings: () => ({ ...defaultReplaySettings, requestTimeoutMs: 20_000 }),
    contracts: () => new Map(),
    log: (server, { level, text }) => process.stderr.write(`${level} ${server ?? "-"} ${text}\n`),
    clientInfo: { name: "mcp-safe-replay", version: "1.0.0" },
  });
  try {
    await core.setDefinitions(new Map([["scenario", { type: "http", url, headers: {} }]]));
    const agent = new Agent({
      socket,
      path: core.gateway.urlOf("scenario"),
      asked: (_method, params) => accept(params),
      era: modern ? "2026-07-28" : "2025-11-25",
    });
    await act(agent);
  } finally {
    await core.dispose();
    folder.remove();
  }
}

/** What the scenario wants the client to do; most want no more than to see it list and call tools. */
async function act(agent: Agent): Promise<void> {
  if (!modern) must(await agent.initialize());
  const tools = await list(agent, "tools");
  switch (scenario) {
    case "initialize":
    case "request-metadata":
    case "json-schema-ref-no-deref":
      return;
    case "tools_call":
      await call(agent, "add_numbers", { a: 5, b: 3 });
      return;
    case "http-custom-headers":
      for (const wanted of context.toolCalls ?? []) await call(agent, wanted.name, wanted.arguments);
      return;
    case "http-standard-headers":
      for (const { name } of tools) await call(agent, name, {});
      for (const { uri } of await list(agent, "resources")) must(await agent.request("resources/read", { uri }).answer);
      for (const { name } of await list(agent, "prompts")) must(await agent.request("prompts/get", { name }).answer);
      return;
    case "json-schema-2020-12-preservation":
      await call(agent, "json_schema_echo", { schema: tools.find(({ name }) => name !== "json_schema_echo")?.inputSchema });
      return;
    default:
      // Calls at the same time, so that what belongs to one could get into another.
      await Promise.all(tools.map(({ name, inputSchema }) => call(agent, name, sample(inputSchema))));
  }
}

async function list(agent: Agent, what: "tools" | "resources" | "prompts"): Promise<readonly Listed[]> {
  const result = must(await agent.request(`${what}/list`, {}).answer);
  return result[what] as Listed[];
}

async function call(agent: Agent, tool: string, callArguments: Json): Promise<void> {
  must(await agent.call(tool, callArguments).answer);
}

function must(answer: RpcAnswer): Json {
  if (answer.kind !== "result") throw new Error(`no result: ${JSON.stringify(answer)}`);
  return answer.result;
}

/** A person who accepts what is offered: every field with a default gets it (SEP-1034), a field to be ticked is ticked. */
function accept(params: Json): Json {
  const schema = params["requestedSchema"] as { readonly properties?: Record<string, { default?: unknown; type?: string }> };
  const content: Record<string, unknown> = {};
  for (const [name, field] of Object.entries(schema.properties ?? {})) {
    if (field.default !== undefined) content[name] = field.default;
    else if (field.type === "boolean") content[name] = true;
  }
  return { action: "accept", content };
}

/** Some value for every required argument. */
function sample(schema: Json | undefined): Json {
  const properties = (schema?.["properties"] ?? {}) as Record<string, { type?: string }>;
  const values: Record<string, unknown> = {
    string: "x",
    number: 1,
    integer: 1,
    boolean: true,
    array: [],
    object: {},
    null: null,
  };
  const required = (schema?.["required"] ?? []) as string[];
  return Object.fromEntries(required.map((name) => [name, values[properties[name]?.type ?? "string"]]));
}

await main();
