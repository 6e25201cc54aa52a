import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parse as parseToml } from "smol-toml";
import { parse } from "jsonc-parser";
import { describe, expect, it } from "vitest";
import { readDefinitions } from "../../../src/hosting/definitions.ts";
import { clientPlaces } from "../../../src/vscode/sources/client-files.ts";
import {
  clientKinds,
  importPlan,
  readClientFile,
  switchedOff,
  type ClientKind,
  type ReadOptions,
} from "../../../src/vscode/sources/import-formats.ts";

const files: Readonly<Record<ClientKind, string>> = {
  vscode: "vscode-mcp.json",
  "claude-desktop": "claude_desktop_config.json",
  "claude-code": "claude.json",
  cursor: "cursor.json",
  windsurf: "windsurf.json",
  zed: "zed-settings.json",
  codex: "codex.toml",
};
const textOf = (kind: ClientKind): string => readFileSync(join(import.meta.dirname, "clients", files[kind]), "utf8");
const read = (kind: ClientKind, options: ReadOptions = {}) => readClientFile(kind, textOf(kind), { env: {}, ...options });
const definitionsOf = (kind: ClientKind, options: ReadOptions = {}) =>
  Object.fromEntries(read(kind, options).servers.map(({ originalName, definition }) => [originalName, definition]));
const planOf = (kind: ClientKind, existing: Record<string, unknown> = {}, options: ReadOptions = {}) => {
  const file = read(kind, options);
  return importPlan(file.servers, file.inputs, existing, []);
};

describe("servers in the file of another client", () => {
  it("of VS Code are taken over with their inputs", () => {
    expect(definitionsOf("vscode")).toEqual({
      github: {
        type: "http",
        url: "https://api.githubcopilot.com/mcp/",
        headers: { Authorization: "Bearer ${input:github_token}" },
      },
      playwright: { type: "stdio", command: "npx", args: ["-y", "@playwright/mcp@latest"] },
      perplexity: {
        type: "stdio",
        command: "npx",
        args: ["-y", "server-perplexity-ask"],
        envFile: "${workspaceFolder}/.env",
        env: { PERPLEXITY_API_KEY: "pplx-0123456789", RETRIES: "3" },
      },
    });
    expect(read("vscode").inputs).toHaveLength(2);
    expect(read("vscode").servers[2]?.notes).toEqual(["Not taken over: dev."]);
  });

  it("of VS Code's older setting are taken over too", () => {
    const { servers } = readClientFile("vscode", '{"editor.fontSize": 12, "mcp": {"servers": {"a": {"command": "a"}}}}');
    expect(servers.map(({ originalName }) => originalName)).toEqual(["a"]);
  });

  it("of Claude Desktop are taken over", () => {
    expect(definitionsOf("claude-desktop")["filesystem"]).toEqual({
      type: "stdio",
      command: "npx",
      args: ["-y", "@modelcontextprotocol/server-filesystem", "/home/ada/Desktop", "/home/ada/Downloads"],
    });
  });

  it("of Claude Code are those of the open folder and the person's own; its variables become ours", () => {
    expect(definitionsOf("claude-code", { folders: ["/home/ada/shop"] })).toEqual({
      db: { type: "stdio", command: "shop-db", args: ["--level", "info"] },
      stream: {
        type: "sse",
        url: "https://api.example.com/sse",
        headers: { Authorization: "Bearer ${env:API_KEY}" },
      },
      sentry: { type: "http", url: "https://mcp.sentry.dev/mcp" },
    });
    expect(definitionsOf("claude-code", { folders: ["/home/ada/shop"], env: { LOG_LEVEL: "x" } })["db"]).toMatchObject({
      args: ["--level", "${env:LOG_LEVEL}"],
    });
    expect(definitionsOf("claude-code")["db"]).toMatchObject({ args: ["-y", "@bytebase/dbhub", "--dsn", "${env:DSN}"] });
  });

  it("of Cursor are taken over", () => {
    expect(definitionsOf("cursor")).toEqual({
      local: {
        type: "stdio",
        command: "${workspaceFolder}/bin/server",
        args: ["--home", "${userHome}"],
        envFile: "${workspaceFolder}/.env",
        env: { KEY: "${env:KEY}" },
      },
      remote: { type: "http", url: "http://localhost:3000/mcp", headers: { API_KEY: "value" } },
    });
  });

  it("of Windsurf are taken over, one that is off there as off", () => {
    expect(read("windsurf").servers).toMatchObject([
      { originalName: "figma", off: false, definition: { type: "http", url: "https://figma.example/mcp" } },
      { originalName: "git", off: true, notes: ["Not taken over: disabledTools."] },
    ]);
  });

  it("of Zed are taken over, but for those that an extension of Zed brings", () => {
    expect(definitionsOf("zed")).toEqual({
      "local-mcp-server": { type: "stdio", command: "some-command", args: ["arg-1"] },
      older: { type: "stdio", command: "older-server", args: ["stdio"], env: { A: "1" } },
      remote: { type: "http", url: "https://example.com/mcp", headers: { Authorization: "Bearer zed-secret" } },
    });
    expect(read("zed").problems).toEqual([
      '"mcp-server-postgres" comes with a Zed extension and has no command or URL of its own.',
    ]);
  });

  it("of Codex are taken over, tokens by the names of their variables", () => {
    expect(definitionsOf("codex")).toEqual({
      context7: {
        type: "stdio",
        command: "npx",
        args: ["-y", "@upstash/context7-mcp"],
        env: { LOCAL_TOKEN: "${env:LOCAL_TOKEN}", MY_ENV_VAR: "MY_ENV_VALUE" },
      },
      figma: {
        type: "http",
        url: "https://mcp.figma.com/mcp",
        headers: { "X-Figma-Region": "us-east-1", Authorization: "Bearer ${env:FIGMA_OAUTH_TOKEN}" },
      },
      "chrome devtools": { type: "http", url: "http://localhost:3000/mcp" },
    });
    expect(read("codex").servers.map(({ off }) => off)).toEqual([false, false, true]);
  });

  it.each(clientKinds)("of %s are ones that we can host", (kind) => {
    const { servers, inputs, secrets } = planOf(kind, {}, { folders: ["/home/ada/shop"] });
    const passwords = new Map(inputs.map((input) => [String(input["id"]), input["password"] === true]));
    const env = Object.fromEntries(
      ["KEY", "FIGMA", "API_KEY", "DSN", "LOCAL_TOKEN", "FIGMA_OAUTH_TOKEN"].map((name) => [name, "v"]),
    );
    const { definitions, problems } = readDefinitions(
      Object.fromEntries(servers.map(({ name, definition }) => [name, definition])),
      "servers",
      {
        workspaceFolder: "/w",
        env,
        readFile: () => "",
        input: (id) => (passwords.has(id) ? { value: secrets[id] ?? "v", secret: passwords.get(id) === true } : undefined),
      },
    );
    expect(problems).toEqual([]);
    expect(definitions.size).toBe(servers.length);
    expect(servers.length).toBeGreaterThan(0);
  });

  it.each<[ClientKind, string]>([
    ["vscode", "{ not json"],
    ["vscode", "[]"],
    ["codex", "= nothing"],
    ["cursor", '{"mcpServers": {"a": 1, "b": {}, "c": {"command": ""}}}'],
  ])("that cannot be read lead to a sentence and never to an error (%s: %s)", (kind, text) => {
    const file = readClientFile(kind, text);
    expect(file.servers).toEqual([]);
    expect(file.problems.length).toBeGreaterThan(0);
  });

  it("of an empty file are none, without a complaint", () => {
    for (const kind of clientKinds) expect(readClientFile(kind, "")).toEqual({ servers: [], inputs: [], problems: [] });
  });
});

describe("an import", () => {
  it("changes nothing that is there, and shows what it adds", () => {
    const existing = { mine: { command: "mine" }, playwright: { command: "my-own" } };
    const plan = planOf("vscode", existing);
    expect(JSON.parse(plan.before)).toEqual({ servers: existing, inputs: [] });
    const after = JSON.parse(plan.after);
    expect(after.servers.mine).toEqual(existing.mine);
    expect(after.servers.playwright).toEqual(existing.playwright);
    expect(Object.keys(after.servers)).toEqual(["github", "mine", "perplexity", "playwright", "playwright-2"]);
    expect(plan.servers.find(({ name }) => name === "playwright-2")?.notes).toContain('Its name here is "playwright-2".');
  });

  it("gives a server a name that can be part of a URL", () => {
    expect(planOf("claude-desktop").servers.map(({ name }) => name)).toEqual(["filesystem", "My-Notes"]);
    const odd = readClientFile(
      "cursor",
      '{"mcpServers": {"../x": {"command": "x"}, "日本": {"command": "y"}, "__proto__": {"command": "z"}}}',
    );
    expect(importPlan(odd.servers, [], {}, []).servers.map(({ name }) => name)).toEqual(["x", "server"]);
  });

  it("takes the inputs along that a chosen server uses, under an id that nobody has", () => {
    const file = read("vscode");
    const plan = importPlan([file.servers[0]!], file.inputs, {}, [{ id: "github_token", type: "promptString" }]);
    expect(plan.inputs.map(({ id }) => id)).toEqual(["github_token-2"]);
    expect(plan.servers[0]?.definition).toMatchObject({ headers: { Authorization: "Bearer ${input:github_token-2}" } });
    expect(importPlan([file.servers[1]!], file.inputs, {}, []).inputs).toEqual([]);
  });

  it("moves secrets out of the text: the settings get an input, the secret storage the value", () => {
    for (const [kind, secret] of [
      ["vscode", "pplx-0123456789"],
      ["claude-desktop", "n-42"],
      ["zed", "zed-secret"],
    ] as const) {
      const plan = planOf(kind);
      expect(Object.values(plan.secrets)).toEqual([secret]);
      expect(JSON.stringify([plan.servers, plan.inputs, plan.before, plan.after])).not.toContain(secret);
    }
    const zed = planOf("zed");
    expect(zed.servers[2]?.definition).toMatchObject({ headers: { Authorization: "Bearer ${input:remote-Authorization}" } });
    expect(zed.inputs).toEqual([
      { id: "remote-Authorization", type: "promptString", description: "Authorization of remote", password: true },
    ]);
  });

  it("does not show a secret that stands in the person's settings already", () => {
    const existing = { old: { url: "https://x/", headers: { Authorization: "Bearer abc" }, env: { MY_TOKEN: "def" } } };
    const { before, after } = planOf("cursor", existing);
    for (const secret of ["abc", "def"]) expect(before + after).not.toContain(secret);
  });
});

describe("switching the original off", () => {
  it("takes it out of VS Code's mcp.json and keeps comments and all else", () => {
    const text = textOf("vscode");
    const off = switchedOff("vscode", text, ["playwright", "perplexity"]) ?? "";
    expect(off).toContain("// Servers of VS Code");
    expect(Object.keys(parse(off).servers)).toEqual(["github"]);
    expect(parse(off).inputs).toEqual(parse(text).inputs);
    const inSettings = switchedOff("vscode", '{"a": 1, "mcp": {"servers": {"x": {"command": "x"}}}}', ["x"]) ?? "";
    expect(parse(inSettings)).toEqual({ a: 1, mcp: { servers: {} } });
  });

  it("says so in Zed's settings", () => {
    const off = switchedOff("zed", textOf("zed"), ["remote"]) ?? "";
    expect(off).toContain("// Zed settings");
    expect(parse(off).context_servers.remote.enabled).toBe(false);
    expect(parse(off).theme).toBe("One Dark");
    expect(readClientFile("zed", off).servers.find(({ originalName }) => originalName === "remote")?.off).toBe(true);
  });

  it("says so in Codex's file, whatever was said before", () => {
    const text = textOf("codex");
    const off = switchedOff("codex", text, ["context7", "figma"]) ?? "";
    expect(off).toContain("# Documentation");
    const before = parseToml(text) as { mcp_servers: Record<string, { enabled?: boolean }> };
    const after = parseToml(off) as { mcp_servers: Record<string, { enabled?: boolean }> };
    expect(after.mcp_servers["context7"]?.enabled).toBe(false);
    expect(after.mcp_servers["figma"]?.enabled).toBe(false);
    for (const server of Object.values(after.mcp_servers)) delete server.enabled;
    for (const server of Object.values(before.mcp_servers)) delete server.enabled;
    expect(after).toEqual(before);
  });

  it("is not attempted where the text does not let itself be changed with certainty", () => {
    expect(switchedOff("codex", 'mcp_servers = { a = { command = "a" } }', ["a"])).toBeUndefined();
  });

  it("is not offered where the client has no documented way", () => {
    for (const kind of ["claude-desktop", "claude-code", "cursor", "windsurf"] as const)
      expect(switchedOff(kind, textOf(kind), ["x"])).toBeUndefined();
  });
});

describe("the files of other clients", () => {
  it("are looked for where each system keeps them", () => {
    const common = { userFolder: "/u/User", folders: ["/w"], home: "/home/ada", env: {} };
    const linux = clientPlaces({ ...common, platform: "linux" }).map(({ path }) => path);
    expect(linux).toContain("/u/User/mcp.json");
    expect(linux).toContain("/w/.vscode/mcp.json");
    expect(linux).toContain("/home/ada/.config/Claude/claude_desktop_config.json");
    expect(linux).toContain("/home/ada/.codex/config.toml");
    const mac = clientPlaces({ ...common, platform: "darwin" }).map(({ path }) => path);
    expect(mac).toContain("/home/ada/Library/Application Support/Claude/claude_desktop_config.json");
    expect(new Set(clientPlaces({ ...common, platform: "linux" }).map(({ kind }) => kind))).toEqual(new Set(clientKinds));
  });
});
