/**
 * Owns: the client under test of @modelcontextprotocol/conformance: an agent in front of our gateway, the scenario's server hosted behind
 * it, so that what is judged is what our hosting layer puts on the wire.
 * Leaves to others: the scenarios and their verdicts. The scenario's name comes in MCP_CONFORMANCE_SCENARIO, its server's URL as the last
 * argument.
 */
import { join } from "node:path";
import { createCore, type Core } from "../../src/gateway/core.ts";
import type { Interaction } from "../../src/hosting/auth/flow.ts";
import { loopbackReceiver } from "../../src/hosting/auth/loopback.ts";
import { readDefinitions, type ServerDefinition } from "../../src/hosting/definitions.ts";
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
  readonly client_id?: string;
  readonly client_secret?: string;
  readonly private_key_pem?: string;
  readonly signing_algorithm?: string;
};

/**
 * The agent speaks the era that the scenario is about, but where it is the gateway's part that is judged: asking an agent that does not
 * know `input_required` and calling again, mirroring arguments into headers, leaving tools out whose headers are not valid.
 */
const gatewaysPart = ["sep-2322-client-request-state", "http-custom-headers", "http-invalid-tool-headers"];
const modern = process.env["MCP_CONFORMANCE_PROTOCOL_VERSION"] === "2026-07-28" && !gatewaysPart.includes(scenario);

/** What a person would write for this scenario's server. */
function definition(): ServerDefinition {
  const { client_id: clientId, client_secret: clientSecret, private_key_pem: privateKey, signing_algorithm: algorithm } = context;
  const grant = scenario.startsWith("auth/client-credentials") ? { grant: "client-credentials" } : {};
  const client = {
    ...(clientId === undefined ? {} : { clientId }),
    ...(clientSecret === undefined ? {} : { clientSecret }),
    ...(privateKey === undefined ? {} : { privateKey }),
    ...(algorithm === undefined ? {} : { signingAlgorithm: algorithm }),
  };
  // The address that the scenarios expect of a client that has such a document.
  const document =
    scenario === "auth/basic-cimd" ? { clientMetadataUrl: "https://conformance-test.local/client-metadata.json" } : {};
  const oauth = scenario.startsWith("auth/") ? { oauth: { ...client, ...grant, ...document } } : {};
  const { definitions, problems } = readDefinitions({ scenario: { url, ...oauth } }, "servers", { env: {} });
  const read = definitions.get("scenario");
  if (read === undefined) throw new Error(JSON.stringify(problems));
  return read;
}

/** A person who says yes: the authorisation server's redirect is followed as a browser would. */
const person: Interaction = {
  receive: loopbackReceiver,
  async open(page) {
    const answer = await fetch(page, { redirect: "manual" });
    const location = answer.headers.get("location");
    if (location === null) throw new Error(`no redirect: ${answer.status}`);
    await fetch(new URL(location, page));
    return true;
  },
};

/** As often as a server may want more of a person in one run. */
const authorisations = 3;

/** Does something; where a person has to authorise, that happens, and it is done again. */
async function authorised<T>(core: Core, act: () => Promise<T>, failed: (result: T) => boolean): Promise<T> {
  const authorisation = core.servers.get("scenario")?.authorisation;
  for (let times = 0; ; times++) {
    const result = await act();
    if (!failed(result) || authorisation?.need === undefined || times === authorisations) return result;
    await authorisation.authorise(person);
  }
}

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
    await core.setDefinitions(new Map([["scenario", definition()]]));
    const agent = new Agent({
      socket,
      path: core.gateway.urlOf("scenario"),
      asked: (_method, params) => accept(params),
      era: modern ? "2026-07-28" : "2025-11-25",
    });
    const server = core.servers.get("scenario");
    if (scenario.startsWith("auth/"))
      await authorised(
        core,
        () => server?.start().catch(() => "failed") ?? Promise.resolve(),
        (result) => result === "failed",
      );
    await act(agent, core);
  } finally {
    await core.dispose();
    folder.remove();
  }
}

/** What the scenario wants the client to do; most want no more than to see it list and call tools. */
async function act(agent: Agent, core: Core): Promise<void> {
  if (!modern) must(await agent.initialize());
  if (scenario.startsWith("auth/")) return actAuthorised(agent, core);
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

/** A call that the server refuses for want of an authorisation is answered as not executed, and the agent may make it again. */
async function actAuthorised(agent: Agent, core: Core): Promise<void> {
  const isError = (answer: RpcAnswer): boolean => answer.kind !== "result" || answer.result["isError"] === true;
  const listed = must(await authorised(core, () => agent.request("tools/list", {}).answer, isError));
  for (const { name, inputSchema } of listed["tools"] as Listed[]) {
    const answer = must(await authorised(core, () => agent.call(name, sample(inputSchema)).answer, isError));
    if (isError({ kind: "result", result: answer } as RpcAnswer)) throw new Error(`refused: ${JSON.stringify(answer)}`);
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
