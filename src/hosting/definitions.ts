/**
 * Owns: what a hosted server's definition may be (mcp.json's shape), its variables and its fingerprint.
 * Leaves to others: where definitions come from (settings, config file), and whether the server is trusted.
 */
import { createHash } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { parseEnv } from "node:util";
import canonicalize from "canonicalize";
import * as z from "zod";

/** Names appear in URLs, in settings keys and in tool ids: letters, digits, `_`, `-`, `.`; no dot first. */
export const serverNamePattern = /^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$/;

/**
 * When a server is started: by the first call or question that needs it, when the window (or program) starts, or only by a person.
 * What it listed last is shown to agents before that.
 */
export const startPolicies = ["onUse", "onStartup", "manual"] as const;
export type StartPolicy = (typeof startPolicies)[number];

const strings = z.record(z.string(), z.string());
const start = z
  .enum(startPolicies, { error: `must be one of ${startPolicies.map((policy) => `'${policy}'`).join(", ")}` })
  .optional();

const stdioSchema = z.strictObject({
  type: z.literal("stdio").optional(),
  command: z.string().min(1, "must name a program"),
  args: z.array(z.string()).optional(),
  env: strings.optional(),
  envFile: z.string().min(1, "must name a file").optional(),
  cwd: z.string().min(1).optional(),
  start,
});

const httpUrl = z
  .string()
  .refine((value) => URL.canParse(value) && /^https?:$/.test(new URL(value).protocol), "must be an http:// or https:// URL");

const oauthSchema = z.strictObject({
  clientId: z.string().min(1, "must be a client id").optional(),
  clientSecret: z.string().min(1, "must not be empty").optional(),
  clientMetadataUrl: z
    .string()
    .refine(
      (value) => URL.canParse(value) && new URL(value).protocol === "https:" && new URL(value).pathname !== "/",
      "must be an https:// URL with a path",
    )
    .optional(),
  scopes: z.array(z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/, "must be a scope, without blanks")).optional(),
  grant: z.enum(["authorization-code", "client-credentials"]).optional(),
  privateKey: z.string().min(1, "must be a private key (PEM)").optional(),
  signingAlgorithm: z.enum(["ES256", "ES384", "RS256", "RS384", "RS512", "PS256", "EdDSA"]).optional(),
});

const httpSchema = z.strictObject({
  type: z.literal("http").optional(),
  url: httpUrl,
  headers: strings.optional(),
  oauth: oauthSchema.optional(),
  start,
});
const sseSchema = httpSchema.extend({ type: z.literal("sse") });

/** What a definition keeps apart: it is put in when the server is started or reached, and shown, stored or compared nowhere. */
interface WithSecrets {
  /** Placeholder (`${input:id}`, as it still stands in the definition) to its value. */
  readonly secrets?: Readonly<Record<string, string>>;
}

/** A server started as a child process. */
export interface StdioDefinition extends WithSecrets {
  readonly type: "stdio";
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd?: string;
}
/** What an authorisation needs to know beforehand. Servers whose authorisation server registers clients need nothing of it. */
export interface OAuthDefinition {
  /** Given out by the authorisation server to the person. */
  readonly clientId?: string | undefined;
  readonly clientSecret?: string | undefined;
  /** The address of a client id metadata document, for authorisation servers that take one. */
  readonly clientMetadataUrl?: string | undefined;
  /** Asked for where the server's challenge names none. */
  readonly scopes?: readonly string[] | undefined;
  /** `client-credentials`: the client's own account, without a person. */
  readonly grant?: "authorization-code" | "client-credentials" | undefined;
  /** Proves the client by a signature (`private_key_jwt`) in place of `clientSecret`. */
  readonly privateKey?: string | undefined;
  readonly signingAlgorithm?: string | undefined;
}
/** A server reached over Streamable HTTP (`http`) or HTTP+SSE of 2024-11-05 (`sse`). */
export interface RemoteDefinition extends WithSecrets {
  readonly type: "http" | "sse";
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly oauth?: OAuthDefinition;
}
export type ServerDefinition = StdioDefinition | RemoteDefinition;

/** One mistake: where it is (a path in the person's own words) and how to mend it. */
export interface Problem {
  readonly place: string;
  readonly message: string;
}

/** What a person entered for an input. */
export interface InputValue {
  /** Undefined: nothing yet. */
  readonly value: string | undefined;
  readonly secret: boolean;
}

export interface Variables {
  readonly workspaceFolder?: string | undefined;
  /** Default: the home folder of whoever runs this. */
  readonly userHome?: string | undefined;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The value of `${input:ID}`; undefined when no such input is declared. Without this, inputs are not known here. */
  readonly input?: (id: string) => InputValue | undefined;
  /** The text of an `envFile`; undefined when it cannot be read. Default: from the disk. */
  readonly readFile?: (path: string) => string | undefined;
}

export interface ReadDefinitions {
  readonly definitions: Map<string, ServerDefinition>;
  readonly problems: Problem[];
  /** Servers that are without a mistake but for values that a person has yet to enter: name to the ids of those inputs. */
  readonly waiting: Map<string, readonly string[]>;
  /** When a server is started, where that is said. It is no part of the definition: it starts or reaches nothing else. */
  readonly starts: Map<string, StartPolicy>;
}

/**
 * Reads a map of definitions. A mistake in one server never touches the others.
 * @param place what to call the map in messages, for example `mcpSafeReplay.servers`
 */
export function readDefinitions(input: unknown, place: string, variables: Variables): ReadDefinitions {
  const definitions = new Map<string, ServerDefinition>();
  const problems: Problem[] = [];
  const waiting = new Map<string, readonly string[]>();
  const starts = new Map<string, StartPolicy>();
  if (input === undefined) return { definitions, problems, waiting, starts };
  if (typeof input !== "object" || input === null || Array.isArray(input)) {
    problems.push({ place, message: "must be an object of server names and definitions" });
    return { definitions, problems, waiting, starts };
  }
  for (const [name, value] of Object.entries(input)) {
    const here = `${place}.${name}`;
    if (!serverNamePattern.test(name)) {
      problems.push({
        place: here,
        message: "a server's name may have letters, digits, '-', '_' and '.' (64 at most, no '.' first)",
      });
      continue;
    }
    const read = readDefinition(value, here, variables);
    if (read.definition) definitions.set(name, read.definition);
    if (read.start !== undefined) starts.set(name, read.start);
    if (read.waiting !== undefined && read.problems.length === 0) waiting.set(name, read.waiting);
    problems.push(...read.problems);
  }
  return { definitions, problems, waiting, starts };
}

function readDefinition(
  value: unknown,
  place: string,
  variables: Variables,
): { definition?: ServerDefinition; problems: Problem[]; waiting?: readonly string[]; start?: StartPolicy } {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return { problems: [{ place, message: "must be an object with 'command' (stdio) or 'url' (http, sse)" }] };
  }
  const fields = value as Record<string, unknown>;
  const type = fields["type"] ?? ("command" in fields ? "stdio" : "url" in fields ? "http" : undefined);
  if (type !== "stdio" && type !== "http" && type !== "sse") {
    const message =
      fields["type"] === undefined ? "needs 'command' (stdio) or 'url' (http, sse)" : "must be 'stdio', 'http' or 'sse'";
    return { problems: [{ place: fields["type"] === undefined ? place : `${place}.type`, message }] };
  }
  const schema = type === "stdio" ? stdioSchema : type === "http" ? httpSchema : sseSchema;
  const reading: Reading = { variables, problems: [], missing: new Set(), secrets: {} };
  const substituted = substitute(value, place, reading);
  const { problems } = reading;
  for (const field of ["command", "cwd", "envFile"]) {
    const text = (substituted as Record<string, unknown>)[field];
    if (typeof text === "string" && Object.keys(reading.secrets).some((placeholder) => text.includes(placeholder)))
      problems.push({ place: `${place}.${field}`, message: "must not use an input that is a password" });
  }
  if (problems.length > 0) return { problems };
  // What a person has yet to enter may stand where a URL has to be: it is judged once it is there.
  if (reading.missing.size > 0) return { problems, waiting: [...reading.missing] };
  const parsed = schema.safeParse(substituted);
  if (!parsed.success) return { problems: problemsOf(parsed.error, place) };
  const data = parsed.data;
  const begin = data.start === undefined ? {} : { start: data.start };
  const secrets = Object.keys(reading.secrets).length === 0 ? {} : { secrets: reading.secrets };
  if ("command" in data) {
    const fromFile = data.envFile === undefined ? {} : readEnvFile(data.envFile, variables);
    if (fromFile === undefined)
      return { problems: [{ place: `${place}.envFile`, message: `names a file that cannot be read (${data.envFile ?? ""})` }] };
    const definition: StdioDefinition = {
      type: "stdio",
      command: data.command,
      args: data.args ?? [],
      env: { ...fromFile, ...data.env },
      ...(data.cwd === undefined ? {} : { cwd: data.cwd }),
      ...secrets,
    };
    return { definition, problems: [], ...begin };
  }
  const { url, headers = {}, oauth } = data;
  const remote = { type: type as "http" | "sse", url, headers };
  if (oauth === undefined) return { definition: { ...remote, ...secrets }, problems: [], ...begin };
  if (oauth.grant === "client-credentials" && (oauth.clientId === undefined || !(oauth.clientSecret ?? oauth.privateKey)))
    return {
      problems: [{ place: `${place}.oauth`, message: "needs 'clientId' and 'clientSecret' (or 'privateKey') for this grant" }],
    };
  const apart = oauthApart(oauth);
  return {
    definition: { ...remote, oauth: apart.oauth, secrets: { ...reading.secrets, ...apart.secrets } },
    problems: [],
    ...begin,
  };
}

/** A secret that does not come from an input is kept apart like one that does. */
function oauthApart(oauth: OAuthDefinition): { readonly oauth: OAuthDefinition; readonly secrets: Record<string, string> } {
  const secrets: Record<string, string> = {};
  const open = (["clientSecret", "privateKey"] as const).map((field) => {
    const value = oauth[field];
    if (value === undefined || /\$\{input:[^}]*\}/.test(value)) return {};
    const placeholder = `\${input:oauth.${field}}`;
    secrets[placeholder] = value;
    return { [field]: placeholder };
  });
  return { oauth: Object.assign({}, oauth, ...open) as OAuthDefinition, secrets };
}

/** Bytes of an env file. */
const envFileLimit = 1024 * 1024;

function readEnvFile(path: string, variables: Variables): Record<string, string> | undefined {
  const text = (variables.readFile ?? readTextFile)(path);
  if (text === undefined) return undefined;
  return Object.fromEntries(Object.entries(parseEnv(text)).filter((entry): entry is [string, string] => entry[1] !== undefined));
}

/** A file's text; undefined for anything that is no readable file of moderate size. */
function readTextFile(path: string): string | undefined {
  try {
    const facts = statSync(path);
    return facts.isFile() && facts.size <= envFileLimit ? readFileSync(path, "utf8") : undefined;
  } catch {
    return undefined;
  }
}

/** Zod's issues as problems with a dotted path that a person can find. */
export function problemsOf(error: z.ZodError, place: string): Problem[] {
  return error.issues.map((issue) => ({
    place: [place, ...issue.path.map(String)].join("."),
    message:
      issue.code === "unrecognized_keys" ? `does not know ${issue.keys.map((key) => `'${key}'`).join(", ")}` : issue.message,
  }));
}

/** One definition while it is read. */
interface Reading {
  readonly variables: Variables;
  readonly problems: Problem[];
  /** Inputs without a value. */
  readonly missing: Set<string>;
  readonly secrets: Record<string, string>;
}

function substitute(value: unknown, place: string, reading: Reading): unknown {
  if (typeof value === "string") {
    return value.replace(/\$\{([^}]*)\}/g, (whole, name: string) => {
      const found = valueOf(name, whole, reading);
      if (typeof found === "string") return found;
      reading.problems.push({ place, message: found.mistake });
      return whole;
    });
  }
  if (Array.isArray(value)) return value.map((item, index) => substitute(item, `${place}.${index}`, reading));
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, substitute(item, `${place}.${key}`, reading)]));
  }
  return value;
}

/** What stands in place of one variable: its value, or itself while it has none yet or must stay apart. */
function valueOf(name: string, whole: string, { variables, missing, secrets }: Reading): string | { readonly mistake: string } {
  if (name === "workspaceFolder") return variables.workspaceFolder ?? { mistake: "${workspaceFolder} needs an open folder" };
  if (name === "userHome") return variables.userHome ?? homedir();
  if (name.startsWith("env:")) {
    return variables.env[name.slice(4)] ?? { mistake: `the environment variable ${name.slice(4)} is not set` };
  }
  if (name.startsWith("input:") && variables.input !== undefined) {
    const id = name.slice(6);
    const input = variables.input(id);
    if (input === undefined) return { mistake: `there is no input '${id}'` };
    if (input.value === undefined) {
      missing.add(id);
      return whole;
    }
    if (!input.secret) return input.value;
    secrets[whole] = input.value;
    return whole;
  }
  const known = ["workspaceFolder", "userHome", "env:NAME", ...(variables.input === undefined ? [] : ["input:ID"])];
  return { mistake: `does not know the variable ${whole} (known: ${known.map((one) => `\${${one}}`).join(", ")})` };
}

/** The definition with its secrets in their places: what is started or reached. For nothing else. */
export function withSecrets<T extends ServerDefinition>(definition: T): T {
  const { secrets } = definition;
  if (secrets === undefined) return definition;
  const fill = (value: unknown): unknown => {
    if (typeof value === "string")
      return value.replace(/\$\{input:[^}]*\}/g, (whole) => (Object.hasOwn(secrets, whole) ? (secrets[whole] ?? whole) : whole));
    if (Array.isArray(value)) return value.map(fill);
    if (typeof value === "object" && value !== null)
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, fill(item)]));
    return value;
  };
  const { secrets: _, ...open } = definition;
  return fill(open) as T;
}

/** Whether two definitions start or reach the same, secrets included. */
export function sameDefinition(one: ServerDefinition, other: ServerDefinition): boolean {
  return canonicalize(one) === canonicalize(other);
}

/**
 * What a trust grant is bound to: SHA-256 (hex) over the RFC 8785 form of the definition, variables resolved but for secrets: a new
 * password is no other server. Any change of command, arguments, environment, folder, URL or headers makes another one.
 */
export function fingerprintOf(definition: ServerDefinition): string {
  const { secrets: _, ...open } = definition;
  return createHash("sha256")
    .update(canonicalize(open) ?? "")
    .digest("hex");
}
