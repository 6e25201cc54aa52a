/**
 * Owns: the command line program: its arguments, its output and its exit codes (DESIGN.md section 9; tools rely on them).
 * Leaves to others: everything that it does.
 * Exit codes: 0 done, 1 failed, 2 bad usage or configuration.
 */
import { readFileSync, statSync } from "node:fs";
import { isAbsolute, resolve } from "node:path";
import { parseArgs } from "node:util";
import { createCore } from "./gateway/core.ts";
import { GatewayError, type Listen } from "./gateway/gateway.ts";
import { ConfigError, readConfig, type HeadlessConfig } from "./gateway/headless-config.ts";
import { exportCsv, exportJsonl } from "./operations/export.ts";
import { JournalError, type Journal } from "./operations/journal.ts";
import { operationStates, settlements, type OperationState, type Settlement } from "./operations/model.ts";
import { openSqliteJournal } from "./operations/sqlite-journal.ts";
import { settleOperation } from "./replay/settle.ts";
import packageJson from "../package.json" with { type: "json" };

const { version } = packageJson;

const usage = `mcp-safe-replay ${version}: MCP servers behind a gateway that keeps account of every call and never repeats one on a guess

  mcp-safe-replay serve --config FILE --journal-dir DIR [--listen unix:PATH | 127.0.0.1:PORT] (--token-file FILE | --no-token)
  mcp-safe-replay operations  --journal-dir DIR [--state STATE] [--json]
  mcp-safe-replay reconcile ID --as effect-confirmed|no-effect|dismissed --evidence TEXT --journal-dir DIR
  mcp-safe-replay export --journal-dir DIR --format jsonl|csv
`;

/** Bad usage or configuration: one line, exit 2. */
class UsageError extends Error {}

async function main(argv: readonly string[]): Promise<number> {
  const [command, ...rest] = argv;
  switch (command) {
    case "serve":
      return serve(rest);
    case "operations":
      return operations(rest);
    case "reconcile":
      return reconcile(rest);
    case "export":
      return exportJournal(rest);
    case "--version":
      process.stdout.write(`${version}\n`);
      return 0;
    case undefined:
    case "help":
    case "--help":
      process.stdout.write(usage);
      return command === undefined ? 2 : 0;
    default:
      throw new UsageError(`unknown command '${command}' (serve, operations, reconcile, export)`);
  }
}

async function serve(argv: readonly string[]): Promise<number> {
  const options = parse(argv, {
    config: { type: "string" },
    "journal-dir": { type: "string" },
    listen: { type: "string", default: "127.0.0.1:0" },
    "token-file": { type: "string" },
    "no-token": { type: "boolean", default: false },
  });
  const config = readConfigFile(required(options.values["config"], "--config"));
  const journalDir = resolve(required(options.values["journal-dir"], "--journal-dir"));
  const listen = parseListen(String(options.values["listen"]));
  const token = tokenOf(listen, options.values["token-file"] as string | undefined, options.values["no-token"] === true);
  for (const problem of config.problems) log("error", undefined, `${problem.place}: ${problem.message}`);
  if (config.problems.length > 0) {
    const [first] = config.problems;
    throw new UsageError(`${first?.place ?? "configuration"}: ${first?.message ?? "is wrong"}`);
  }

  // What stands in the way of the journal is a mistake to be mended before anything is served.
  const core = await createCore({
    journalDir,
    listen,
    ...(token === undefined ? {} : { token }),
    trust: {
      workspaceTrusted: () => config.workspaceTrusted,
      serverTrustSetting: (name) => config.serverTrust.get(name) === true,
      // The configuration file is the person's own word about exactly the definitions that stand beside it.
      consentFingerprint: (name) => core.servers.get(name)?.fingerprint,
    },
    settings: () => config.settings,
    contracts: () => config.contracts,
    log: (server, line) => log(line.level, server, line.text),
    clientInfo: { name: "mcp-safe-replay", version },
  });
  if (core.journal.problem !== undefined) {
    const { message } = core.journal.problem;
    await core.dispose();
    throw new UsageError(message);
  }
  await core.setDefinitions(config.definitions);

  const ended = new Promise<void>((done) => {
    for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => done());
  });
  const servers = Object.fromEntries([...core.servers.keys()].map((name) => [name, core.gateway.urlOf(name)]));
  process.stdout.write(`${JSON.stringify({ listening: core.gateway.listening, servers })}\n`);
  const alive = setInterval(() => undefined, 2 ** 30);
  await ended;
  clearInterval(alive);
  await core.dispose();
  return 0;
}

async function operations(argv: readonly string[]): Promise<number> {
  const options = parse(argv, {
    "journal-dir": { type: "string" },
    state: { type: "string" },
    json: { type: "boolean", default: false },
  });
  const state = options.values["state"] as string | undefined;
  if (state !== undefined && !(operationStates as readonly string[]).includes(state)) {
    throw new UsageError(`--state: must be one of ${operationStates.join(", ")}`);
  }
  const journal = openForReading(options.values["journal-dir"] as string | undefined);
  try {
    const list = await journal.operations({
      ...(state === undefined ? {} : { states: [state as OperationState] }),
      limit: 100_000,
    });
    if (options.values["json"] !== true) {
      for (const one of list) {
        process.stdout.write(
          `${one.id}  ${one.state.padEnd(16)}  ${one.intention.server}/${one.intention.tool}  ${one.reason ?? ""}  ${new Date(one.createdAt).toISOString()}\n`,
        );
      }
      return 0;
    }
    const rows = await Promise.all(
      list.map(async (one) => ({
        id: one.id,
        server: one.intention.server,
        tool: one.intention.tool,
        state: one.state,
        reason: one.reason ?? null,
        attempts: one.attempts.map(({ rpcId, era, stage, outcome }) => ({ rpcId, era, stage, outcome: outcome ?? null })),
        createdAt: new Date(one.createdAt).toISOString(),
        events: (await journal.events(one.id)).map(({ type, actor, at, data }) => ({
          type,
          actor,
          at: new Date(at).toISOString(),
          data: withoutContents(data),
        })),
      })),
    );
    process.stdout.write(`${JSON.stringify(rows, null, 2)}\n`);
    return 0;
  } finally {
    await journal.close();
  }
}

/** Listings are read over shoulders and pasted into reports: tool arguments and results stay in the journal (`export` has them). */
function withoutContents(data: unknown): Record<string, unknown> {
  const { arguments: _arguments, result: _result, error: _error, ...rest } = data as Record<string, unknown>;
  return rest;
}

async function reconcile(argv: readonly string[]): Promise<number> {
  const options = parse(argv, { as: { type: "string" }, evidence: { type: "string" }, "journal-dir": { type: "string" } }, true);
  const [id, ...more] = options.positionals;
  if (id === undefined || more.length > 0) throw new UsageError("reconcile: name exactly one operation ID");
  const as = required(options.values["as"], "--as");
  if (!(settlements as readonly string[]).includes(as)) throw new UsageError(`--as: must be one of ${settlements.join(", ")}`);
  const evidence = required(options.values["evidence"], "--evidence").trim();
  if (evidence === "") throw new UsageError("--evidence: say in a line how you know");
  const directory = resolve(required(options.values["journal-dir"], "--journal-dir"));
  mustBeFolder(directory);
  const journal = openSqliteJournal({ directory, watchMs: 0 });
  try {
    if (journal.problem) throw new UsageError(journal.problem.message);
    const settled = await settleOperation(journal, id, as as Settlement, evidence, "person", Date.now());
    process.stdout.write(`${settled.id}  ${settled.state}\n`);
    return 0;
  } finally {
    await journal.close();
  }
}

async function exportJournal(argv: readonly string[]): Promise<number> {
  const options = parse(argv, { "journal-dir": { type: "string" }, format: { type: "string" } });
  const format = required(options.values["format"], "--format");
  if (format !== "jsonl" && format !== "csv") throw new UsageError("--format: must be jsonl or csv");
  const journal = openForReading(options.values["journal-dir"] as string | undefined);
  try {
    for await (const line of format === "jsonl" ? exportJsonl(journal) : exportCsv(journal)) await write(line);
    return 0;
  } finally {
    await journal.close();
  }
}

/** Waits when the reader is slower than we are, so that memory stays bounded. */
function write(text: string): Promise<void> {
  return new Promise((done) => {
    if (process.stdout.write(text)) done();
    else process.stdout.once("drain", done);
  });
}

function openForReading(directory: string | undefined): Journal {
  const folder = resolve(required(directory, "--journal-dir"));
  mustBeFolder(folder);
  const journal = openSqliteJournal({ directory: folder, readOnly: true });
  if (journal.problem && journal.problem.code !== "newer-version") throw new UsageError(journal.problem.message);
  return journal;
}

function mustBeFolder(folder: string): void {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() !== true)
    throw new UsageError(`--journal-dir: ${folder} is not a folder`);
}

function readConfigFile(file: string): HeadlessConfig {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch {
    throw new UsageError(`--config: ${file} cannot be read`);
  }
  try {
    return readConfig(text, process.env);
  } catch (error) {
    if (error instanceof ConfigError) throw new UsageError(`${file}: ${error.message}`);
    throw error;
  }
}

function parseListen(text: string): Listen {
  if (text.startsWith("unix:")) {
    const path = text.slice(5);
    if (!isAbsolute(path)) throw new UsageError("--listen: unix: needs an absolute path");
    return { kind: "unix", path };
  }
  const match = /^(127\.0\.0\.1|localhost):(\d{1,5})$/.exec(text);
  const port = Number(match?.[2]);
  if (match === null || port > 65_535) throw new UsageError("--listen: must be unix:PATH or 127.0.0.1:PORT (loopback only)");
  return { kind: "tcp", host: "127.0.0.1", port };
}

function tokenOf(listen: Listen, file: string | undefined, none: boolean): string | undefined {
  if (listen.kind === "unix") return undefined;
  if (file !== undefined && none) throw new UsageError("--token-file and --no-token exclude each other");
  if (none) {
    log("warning", undefined, "running without a token: every program of this machine can call your tools");
    return undefined;
  }
  if (file === undefined)
    throw new UsageError("on TCP every request needs a token: give --token-file FILE (or, knowingly, --no-token)");
  let token: string;
  try {
    token = readFileSync(file, "utf8").trim();
  } catch {
    throw new UsageError(`--token-file: ${file} cannot be read`);
  }
  if (token.length < 16 || /\s/.test(token))
    throw new UsageError("--token-file: must hold one token of at least 16 characters without spaces");
  return token;
}

type OptionSpec = Record<string, { type: "string" | "boolean"; default?: string | boolean }>;

function parse(argv: readonly string[], options: OptionSpec, positionals = false) {
  try {
    return parseArgs({ args: [...argv], options, allowPositionals: positionals, strict: true });
  } catch (error) {
    throw new UsageError(error instanceof Error ? (error.message.split("\n")[0] ?? "bad usage") : "bad usage");
  }
}

function required(value: unknown, name: string): string {
  if (typeof value !== "string" || value === "") throw new UsageError(`${name} is needed`);
  return value;
}

function log(level: string, server: string | undefined, text: string): void {
  process.stderr.write(
    `${new Date().toISOString()} ${level}${server === undefined ? "" : ` [${server}]`} ${text.replace(/\s*\n\s*/g, " | ")}\n`,
  );
}

main(process.argv.slice(2)).then(
  (code) => process.exit(code),
  (error: unknown) => {
    if (error instanceof UsageError) process.stderr.write(`mcp-safe-replay: ${error.message}\n`);
    else if (error instanceof JournalError || error instanceof GatewayError)
      process.stderr.write(`mcp-safe-replay: ${error.message}\n`);
    else process.stderr.write(`mcp-safe-replay: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
    process.exit(error instanceof UsageError || error instanceof GatewayError ? 2 : 1);
  },
);
