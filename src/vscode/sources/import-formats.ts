/**
 * Owns: the configuration files of other MCP clients: reading the servers in them in the shape of our own setting, what an import of
 * them changes, and switching an imported server off where its client has a documented way. Pure.
 * Leaves to others: finding and writing the files (client-files.ts, actions/import-servers.ts).
 * Sources: the clients' own documentation, November 2026: VS Code "MCP configuration reference", Claude Desktop and Claude Code "MCP",
 * Cursor "Model Context Protocol", Windsurf "Cascade MCP Integration", Zed "Model Context Protocol", Codex "Model Context Protocol".
 */
import { applyEdits, modify, parse } from "jsonc-parser";
import type { ParseError } from "jsonc-parser";
import { parse as parseToml } from "smol-toml";
import { serverNamePattern } from "../../hosting/definitions.ts";

export const clientKinds = ["vscode", "claude-desktop", "claude-code", "cursor", "windsurf", "zed", "codex"] as const;
export type ClientKind = (typeof clientKinds)[number];

/** A server in the shape of our setting. */
export interface ImportedServer {
  /** In the client's file. */
  readonly originalName: string;
  readonly definition: Readonly<Record<string, unknown>>;
  /** What is left out or read in another way, one sentence each. */
  readonly notes: readonly string[];
  /** The client itself has it switched off. */
  readonly off: boolean;
}

export interface ClientFile {
  readonly servers: readonly ImportedServer[];
  readonly inputs: readonly Readonly<Record<string, unknown>>[];
  /** Servers that cannot be taken over, and mistakes in the file. */
  readonly problems: readonly string[];
}

type Fields = Readonly<Record<string, unknown>>;

export interface ReadOptions {
  /** Claude Code keeps servers apart by project: the folders that are open. */
  readonly folders?: readonly string[];
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/** Reads a client's file. Never throws: a file that cannot be read has no servers and one problem. */
export function readClientFile(kind: ClientKind, text: string, options: ReadOptions = {}): ClientFile {
  const root = kind === "codex" ? tomlOf(text) : jsonOf(text);
  if (typeof root === "string") return { servers: [], inputs: [], problems: [root] };
  const problems: string[] = [];
  const servers: ImportedServer[] = [];
  const taken = new Set<string>();
  for (const map of mapsIn(kind, root, options.folders ?? [])) {
    for (const [originalName, value] of Object.entries(map)) {
      if (taken.has(originalName)) continue;
      const read = isFields(value) ? readServer(kind, value, options.env ?? {}) : "is not an object";
      if (typeof read === "string") problems.push(`"${originalName}" ${read}.`);
      else {
        taken.add(originalName);
        servers.push({ originalName, ...read });
      }
    }
  }
  const inputs = kind === "vscode" && Array.isArray(root["inputs"]) ? root["inputs"].filter(isFields) : [];
  return { servers, inputs, problems };
}

function jsonOf(text: string): Fields | string {
  const errors: ParseError[] = [];
  const value: unknown = parse(text, errors, { allowTrailingComma: true, allowEmptyContent: true });
  if (errors.length > 0) return "The file is not JSON.";
  return value === undefined ? {} : isFields(value) ? value : "The file is not a JSON object.";
}

function tomlOf(text: string): Fields | string {
  try {
    return parseToml(text);
  } catch {
    return "The file is not TOML.";
  }
}

/** The maps of servers in a file, those that count first. */
function mapsIn(kind: ClientKind, root: Fields, folders: readonly string[]): Fields[] {
  const maps: unknown[] = [];
  if (kind === "vscode") maps.push(root["servers"], fieldsIn(root, "mcp")["servers"]);
  else if (kind === "zed") maps.push(root["context_servers"]);
  else if (kind === "codex") maps.push(root["mcp_servers"]);
  else {
    if (kind === "claude-code")
      for (const folder of folders) maps.push(fieldsIn(fieldsIn(root, "projects"), folder)["mcpServers"]);
    maps.push(root["mcpServers"]);
  }
  return maps.filter(isFields);
}

const notKept = (what: string): string => `Not taken over: ${what}.`;

/** @returns why not, in words that follow the server's name */
function readServer(
  kind: ClientKind,
  fields: Fields,
  env: Readonly<Record<string, string | undefined>>,
): Omit<ImportedServer, "originalName"> | string {
  const notes: string[] = [];
  const rest = new Set(Object.keys(fields));
  const take = (key: string): unknown => {
    rest.delete(key);
    return fields[key];
  };
  const off = take("disabled") === true || take("enabled") === false;
  const variables = (value: unknown): unknown => ours(kind, value, env, notes);
  const type = take("type") ?? take("transport");
  for (const quiet of ["source", "gallery", "version", "description"]) take(quiet);
  // Zed once had an object here: {path, args, env}.
  const command = take("command");
  const program = isFields(command) ? { args: take("args"), env: take("env"), ...command, command: command["path"] } : undefined;
  const url = take("url") ?? take("serverUrl") ?? take("httpUrl");
  if (typeof command === "string" || program !== undefined) {
    const name = program?.command ?? command;
    if (typeof name !== "string" || name === "") return "names no program";
    const args = program?.args ?? take("args");
    const definition = {
      type: "stdio",
      command: variables(name),
      ...(Array.isArray(args) && args.length > 0 ? { args: variables(args.map(String)) } : {}),
      ...environment(variables(program?.env ?? take("env")), kind === "codex" ? take("env_vars") : undefined),
      ...(typeof fields["envFile"] === "string" ? { envFile: variables(take("envFile")) } : {}),
      ...(typeof fields["cwd"] === "string" ? { cwd: variables(take("cwd")) } : {}),
    };
    if (rest.size > 0) notes.push(notKept([...rest].join(", ")));
    return { definition, notes: [...new Set(notes)], off };
  }
  if (typeof url !== "string" || url === "") {
    return kind === "zed" ? "comes with a Zed extension and has no command or URL of its own" : "has neither a command nor a URL";
  }
  const headers = { ...texts(take("headers")), ...(kind === "codex" ? codexHeaders(take) : {}) };
  const definition = {
    type: type === "sse" ? "sse" : "http",
    url: variables(url),
    ...(Object.keys(headers).length === 0 ? {} : { headers: variables(headers) }),
  };
  if (rest.size > 0) notes.push(notKept([...rest].join(", ")));
  return { definition, notes: [...new Set(notes)], off };
}

/** Codex: static headers, headers from the environment, and a bearer token from the environment. */
function codexHeaders(take: (key: string) => unknown): Record<string, string> {
  const token = take("bearer_token_env_var");
  const fromEnvironment = Object.entries(texts(take("env_http_headers"))).map(([name, variable]) => [
    name,
    `\${env:${variable}}`,
  ]);
  return {
    ...texts(take("http_headers")),
    ...(Object.fromEntries(fromEnvironment) as Record<string, string>),
    ...(typeof token === "string" ? { Authorization: `Bearer \${env:${token}}` } : {}),
  };
}

function environment(env: unknown, forwarded: unknown): { env?: Record<string, string> } {
  const names = Array.isArray(forwarded) ? forwarded.filter((name) => typeof name === "string") : [];
  const all = { ...Object.fromEntries(names.map((name) => [name, `\${env:${name}}`])), ...texts(env) };
  return Object.keys(all).length === 0 ? {} : { env: all };
}

/** Text values; numbers and booleans as texts, null left out. */
function texts(value: unknown): Record<string, string> {
  if (!isFields(value)) return {};
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, one]) =>
      typeof one === "string" || typeof one === "number" || typeof one === "boolean" ? [[key, String(one)]] : [],
    ),
  );
}

/** The client's variables as ours. */
function ours(kind: ClientKind, value: unknown, env: Readonly<Record<string, string | undefined>>, notes: string[]): unknown {
  if (Array.isArray(value)) return value.map((one) => ours(kind, one, env, notes));
  if (isFields(value)) return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, ours(kind, one, env, notes)]));
  if (typeof value !== "string") return value;
  if (kind === "claude-code") {
    // ${VAR} and ${VAR:-default}
    return value.replace(/\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}/g, (_whole, name: string, preset: string | undefined) => {
      if (preset === undefined || env[name] !== undefined) return `\${env:${name}}`;
      notes.push(`The default of ${name} was put in, because that variable is not set.`);
      return preset;
    });
  }
  if (kind === "cursor") {
    return value.replaceAll("${workspaceFolderBasename}", () => {
      notes.push("${workspaceFolderBasename} is not known here: write the folder's name.");
      return "${workspaceFolderBasename}";
    });
  }
  return value;
}

// ---- what an import changes ------------------------------------------------------------------------------------------------------

export interface PlannedServer {
  readonly originalName: string;
  /** Under which it is hosted. */
  readonly name: string;
  readonly definition: Fields;
  readonly notes: readonly string[];
}

export interface ImportPlan {
  readonly servers: readonly PlannedServer[];
  readonly inputs: readonly Fields[];
  /** Values that stood in the file as plain text and go to the secret storage: by the id of their input. */
  readonly secrets: Readonly<Record<string, string>>;
  /** The person's servers before and after, as text to be compared. Without secrets. */
  readonly before: string;
  readonly after: string;
}

const secretName = /(token|secret|passw|api[-_]?key|credential|authorization|cookie|private[-_]?key|access[-_]?key)/i;

/** What becomes of the person's servers when the chosen ones are added. Nothing that is there is changed. */
export function importPlan(
  chosen: readonly ImportedServer[],
  inputs: readonly Fields[],
  existing: Fields,
  existingInputs: readonly unknown[],
): ImportPlan {
  const names = new Set(Object.keys(existing));
  const secrets: Record<string, string> = {};
  const ids = new Set(existingInputs.map((one) => (isFields(one) ? String(one["id"]) : "")));
  const asked: Fields[] = [];
  // An input of the same id may be another question: the imported one gets an id of its own.
  const renamed = new Map<string, string>();
  const text = JSON.stringify(chosen.map(({ definition }) => definition));
  for (const input of inputs) {
    const id = String(input["id"]);
    if (!text.includes(`\${input:${id}}`)) continue;
    const free = freeName(id, ids);
    ids.add(free);
    renamed.set(id, free);
    asked.push({ ...input, id: free });
  }
  const servers = chosen.map(({ originalName, definition, notes }) => {
    const name = freeName(hostableName(originalName), names);
    names.add(name);
    const own = [...notes];
    if (name !== originalName) own.push(`Its name here is "${name}".`);
    const hide = (field: "env" | "headers", values: unknown): Fields =>
      Object.fromEntries(
        Object.entries(isFields(values) ? values : {}).map(([key, value]) => {
          if (typeof value !== "string" || value === "" || value.includes("${") || !secretName.test(key)) return [key, value];
          const [, scheme = "", secret = value] = /^((?:Bearer|Basic|Token)\s+)(.+)$/i.exec(value) ?? [];
          const id = freeName(`${name}-${key}`.replace(/[^A-Za-z0-9_.-]/g, "-"), ids);
          ids.add(id);
          secrets[id] = secret;
          asked.push({ id, type: "promptString", description: `${key} of ${name}`, password: true });
          own.push(
            `${field === "env" ? "The variable" : "The header"} ${key} is kept in the secret storage instead of the settings.`,
          );
          return [key, `${scheme}\${input:${id}}`];
        }),
      );
    const shown = rename(definition, renamed) as Fields;
    return {
      originalName,
      name,
      definition: {
        ...shown,
        ...(shown["env"] === undefined ? {} : { env: hide("env", shown["env"]) }),
        ...(shown["headers"] === undefined ? {} : { headers: hide("headers", shown["headers"]) }),
      },
      notes: own,
    };
  });
  const after = { ...existing, ...Object.fromEntries(servers.map(({ name, definition }) => [name, definition])) };
  return {
    servers,
    inputs: asked,
    secrets,
    before: listing(existing, existingInputs),
    after: listing(after, [...existingInputs, ...asked]),
  };
}

/** Servers and inputs as text, sorted, with what looks like a secret left out. */
function listing(servers: Fields, inputs: readonly unknown[]): string {
  const masked = (definition: unknown): unknown => {
    if (!isFields(definition)) return definition;
    const mask = (values: unknown): unknown =>
      isFields(values)
        ? Object.fromEntries(
            Object.entries(values).map(([key, value]) => [
              key,
              typeof value === "string" && secretName.test(key) && !value.includes("${") ? "(hidden)" : value,
            ]),
          )
        : values;
    return {
      ...definition,
      ...("env" in definition ? { env: mask(definition["env"]) } : {}),
      ...("headers" in definition ? { headers: mask(definition["headers"]) } : {}),
    };
  };
  const sorted = Object.entries(servers).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return `${JSON.stringify({ servers: Object.fromEntries(sorted.map(([name, one]) => [name, masked(one)])), inputs }, null, 2)}\n`;
}

function rename(value: unknown, ids: ReadonlyMap<string, string>): unknown {
  if (typeof value === "string")
    return value.replace(/\$\{input:([^}]*)\}/g, (_whole, id: string) => `\${input:${ids.get(id) ?? id}}`);
  if (Array.isArray(value)) return value.map((one) => rename(one, ids));
  if (isFields(value)) return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, rename(one, ids)]));
  return value;
}

/** A name that may be part of a URL and of a tool's id. */
function hostableName(name: string): string {
  if (serverNamePattern.test(name)) return name;
  const mended = name
    .replace(/[^A-Za-z0-9_.-]+/g, "-")
    .replace(/^[.-]+|-+$/g, "")
    .slice(0, 60);
  return serverNamePattern.test(mended) ? mended : "server";
}

function freeName(name: string, taken: ReadonlySet<string>): string {
  if (!taken.has(name)) return name;
  for (let number = 2; ; number += 1) if (!taken.has(`${name}-${number}`)) return `${name}-${number}`;
}

// ---- switching the original off --------------------------------------------------------------------------------------------------

/** What is done to a server's entry when it is switched off, in words; undefined: the client has no documented way. */
export const switchOffWords: Readonly<Partial<Record<ClientKind, string>>> = {
  vscode: "taken out of mcp.json",
  zed: 'set to "enabled": false',
  codex: "set to enabled = false",
};

/** The file's text with these servers switched off, comments and everything else kept; undefined where that is not possible. */
export function switchedOff(kind: ClientKind, text: string, names: readonly string[]): string | undefined {
  if (kind === "codex")
    return names.reduce<string | undefined>((now, name) => (now === undefined ? now : codexOff(now, name)), text);
  if (kind !== "vscode" && kind !== "zed") return undefined;
  const root = jsonOf(text);
  if (typeof root === "string") return undefined;
  const inSettings = kind === "vscode" && !isFields(root["servers"]);
  const path = kind === "zed" ? ["context_servers"] : inSettings ? ["mcp", "servers"] : ["servers"];
  const formattingOptions = { insertSpaces: !/^\t/m.test(text), tabSize: /^( {2,8})\S/m.exec(text)?.[1]?.length ?? 2 };
  return names.reduce((now, name) => {
    const where = kind === "zed" ? [...path, name, "enabled"] : [...path, name];
    return applyEdits(now, modify(now, where, kind === "zed" ? false : undefined, { formattingOptions }));
  }, text);
}

/** `enabled = false` in the server's own table; undefined when the server is not written as a table of its own. */
function codexOff(text: string, name: string): string | undefined {
  const lines = text.split("\n");
  const heads = [name, `"${name}"`, `'${name}'`].map((written) => `[mcp_servers.${written}]`);
  const head = lines.findIndex((line) => heads.includes(line.replace(/#.*$/, "").replace(/\s+/g, "")));
  if (head < 0) return undefined;
  const following = lines.findIndex((line, index) => index > head && /^\s*\[/.test(line));
  const end = following < 0 ? lines.length : following;
  const set = lines.findIndex((line, index) => index > head && index < end && /^\s*enabled\s*=/.test(line));
  const changed = set < 0 ? lines.toSpliced(head + 1, 0, "enabled = false") : lines.with(set, "enabled = false");
  const result = changed.join("\n");
  // Whatever the text looks like, the outcome has to be what was wanted.
  const read = tomlOf(result);
  return typeof read !== "string" && fieldsIn(fieldsIn(read, "mcp_servers"), name)["enabled"] === false ? result : undefined;
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function fieldsIn(value: Fields, key: string): Fields {
  const found = Object.hasOwn(value, key) ? value[key] : undefined;
  return isFields(found) ? found : {};
}
