/**
 * Owns: the command line program: its arguments, its output and its exit codes (DESIGN.md section 9; tools rely on them).
 * Leaves to others: the commands about a journal (headless/journal-commands.ts), and everything that it does.
 * Exit codes: 0 done, 1 failed, 2 bad usage or configuration.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { isAbsolute, join, resolve } from "node:path";
import { systemClock } from "./clock.ts";
import { authoriseByCommand, grantsIn } from "./gateway/authorise-command.ts";
import { runBridge, type BridgeTarget } from "./gateway/bridge.ts";
import { createCore } from "./gateway/core.ts";
import { livingGateway } from "./gateway/meeting-place.ts";
import { GatewayError, type Listen } from "./gateway/gateway.ts";
import { ConfigError, readConfig, type HeadlessConfig } from "./gateway/headless-config.ts";
import { rehearseContract, type RehearsalParts } from "./gateway/rehearse.ts";
import { fingerprintOf } from "./hosting/definitions.ts";
import { JournalError } from "./operations/journal.ts";
import { log, parse, required, setLogFormat, UsageError } from "./headless/command-line.ts";
import { acknowledge, exportJournal, operations, reconcile, tellOfJournal, verify } from "./headless/journal-commands.ts";
import { openSqliteJournal } from "./operations/sqlite-journal.ts";
import { RehearsalError } from "./replay/rehearsal.ts";
import type { RehearsalRequest } from "./replay/rehearsal-plan.ts";
import { reportLines } from "./replay/rehearsal-words.ts";
import packageJson from "../package.json" with { type: "json" };

const { version } = packageJson;

const usage = `mcp-safe-replay ${version}: MCP servers behind a gateway that keeps account of every call and never repeats one on a guess

  mcp-safe-replay serve --config FILE --journal-dir DIR [--listen unix:PATH | 127.0.0.1:PORT] (--token-file FILE | --no-token)
                        [--log-format text|json]
  mcp-safe-replay connect NAME (--socket PATH | --url URL | --gateways DIR) [--token-file FILE] [--client NAME]
  mcp-safe-replay authorise NAME --config FILE --journal-dir DIR [--forget]
  mcp-safe-replay operations  --journal-dir DIR [--state STATE] [--json]
  mcp-safe-replay reconcile ID --journal-dir DIR [(--look-up | --recover) --config FILE]
  mcp-safe-replay reconcile ID --as effect-confirmed|no-effect|dismissed --evidence TEXT --journal-dir DIR
  mcp-safe-replay acknowledge ID --note TEXT --journal-dir DIR
  mcp-safe-replay export --journal-dir DIR --format jsonl|csv [--what events|operations]
  mcp-safe-replay verify --journal-dir DIR [--since HEAD]
  mcp-safe-replay rehearse --config FILE --server NAME --tool NAME --arguments JSON --confirm TEXT [--json]
                           [--other-arguments JSON] [--wait SECONDS] [--journal-dir DIR]
`;

async function main(argv: readonly string[]): Promise<number> {
  const [command, ...rest] = argv;
  switch (command) {
    case "serve":
      return serve(rest);
    case "connect":
      return connect(rest);
    case "authorise":
      return authorise(rest);
    case "operations":
      return operations(rest);
    case "reconcile":
      return reconcile(rest, {
        config: (file) => {
          const config = readConfigFile(file);
          refuseProblems(config);
          return config;
        },
        clientInfo: { name: "mcp-safe-replay", version },
      });
    case "acknowledge":
      return acknowledge(rest);
    case "export":
      return exportJournal(rest);
    case "verify":
      return verify(rest);
    case "rehearse":
      return rehearse(rest);
    case "--version":
      process.stdout.write(`${version}\n`);
      return 0;
    case undefined:
    case "help":
    case "--help":
      process.stdout.write(usage);
      return command === undefined ? 2 : 0;
    default:
      throw new UsageError(
        `unknown command '${command}' (serve, connect, authorise, operations, reconcile, acknowledge, export, verify, rehearse)`,
      );
  }
}

async function serve(argv: readonly string[]): Promise<number> {
  const options = parse(argv, {
    config: { type: "string" },
    "journal-dir": { type: "string" },
    listen: { type: "string", default: "127.0.0.1:0" },
    "token-file": { type: "string" },
    "no-token": { type: "boolean", default: false },
    "log-format": { type: "string", default: "text" },
  });
  const format = options.values["log-format"];
  if (format !== "text" && format !== "json") throw new UsageError("--log-format: must be text or json");
  setLogFormat(format);
  const configFile = required(options.values["config"], "--config");
  let config = readConfigFile(configFile);
  const journalDir = resolve(required(options.values["journal-dir"], "--journal-dir"));
  const listen = parseListen(String(options.values["listen"]));
  const token = tokenOf(listen, options.values["token-file"] as string | undefined, options.values["no-token"] === true);
  refuseProblems(config);

  // What stands in the way of the journal is a mistake to be mended before anything is served.
  const core = await createCore({
    journalDir,
    journal: config.journal,
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
    startPolicy: (name) => config.starts.get(name),
    log: (server, line) => log(line.level, server, line.text),
    clientInfo: { name: "mcp-safe-replay", version },
    grants: grantsIn(journalDir),
  });
  if (core.journal.problem !== undefined) {
    const { message } = core.journal.problem;
    await core.dispose();
    throw new UsageError(message);
  }
  const stopTelling = tellOfJournal(core.journal);
  await core.setDefinitions(config.definitions);

  const ended = new Promise<void>((done) => {
    for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => done());
  });
  // A mistake in the changed file leaves everything as it is.
  const reload = async (): Promise<void> => {
    try {
      const read = readConfigFile(configFile);
      refuseProblems(read);
      config = read;
      core.journal.configure(read.journal);
      await core.setDefinitions(read.definitions);
      core.gateway.announceTools();
      log("info", undefined, `${configFile} was read again: ${[...core.servers.keys()].join(", ") || "no servers"}`);
    } catch (error) {
      const why = error instanceof UsageError ? error.message : "it could not be applied";
      log("error", undefined, `the configuration was not changed: ${why}`);
    }
  };
  let reloading = Promise.resolve();
  if (process.platform !== "win32") process.on("SIGHUP", () => void (reloading = reloading.then(reload)));
  const servers = Object.fromEntries([...core.servers.keys()].map((name) => [name, core.gateway.urlOf(name)]));
  process.stdout.write(`${JSON.stringify({ listening: core.gateway.listening, servers })}\n`);
  const alive = setInterval(() => undefined, 2 ** 30);
  await ended;
  clearInterval(alive);
  await reloading;
  stopTelling();
  await core.dispose();
  return 0;
}

/** Speaks stdio on behalf of a client that cannot speak HTTP. */
async function connect(argv: readonly string[]): Promise<number> {
  const { values, positionals } = parse(
    argv,
    {
      socket: { type: "string" },
      url: { type: "string" },
      gateways: { type: "string" },
      "token-file": { type: "string" },
      client: { type: "string", default: "stdio" },
    },
    true,
  );
  const [name, ...more] = positionals;
  if (name === undefined || more.length > 0) throw new UsageError("connect: name exactly one server");
  const file = values["token-file"] as string | undefined;
  const token = file === undefined ? process.env["MCP_SAFE_REPLAY_TOKEN"] : readToken(file);
  const ended = new AbortController();
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => ended.abort());
  await runBridge({
    target: { ...(await placeOf(name, values)), ...(token === undefined || token === "" ? {} : { token }) },
    name: `${String(values["client"])} (${process.pid})`,
    input: process.stdin,
    output: process.stdout,
    log: (text) => log("warning", name, text),
    signal: ended.signal,
  });
  // What could be handed over has been; a client that does not read any more is not waited for.
  process.exit(0);
}

/** Where the gateway is. */
async function placeOf(name: string, values: Readonly<Record<string, unknown>>): Promise<Omit<BridgeTarget, "token">> {
  const given = ["socket", "url", "gateways"].filter((option) => values[option] !== undefined);
  if (given.length !== 1) throw new UsageError("connect: give exactly one of --socket PATH, --url URL and --gateways DIR");
  const path = `/servers/${encodeURIComponent(name)}/mcp`;
  if (values["socket"] !== undefined) return { socketPath: required(values["socket"], "--socket"), path };
  if (values["gateways"] !== undefined) {
    const socketPath = await livingGateway(required(values["gateways"], "--gateways"));
    if (socketPath === undefined) throw new UsageError("--gateways: no window with a running gateway was found there");
    return { socketPath, path };
  }
  const text = required(values["url"], "--url");
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== "http:" || !["127.0.0.1", "localhost", "[::1]"].includes(url.hostname))
    throw new UsageError("--url: must be an http:// URL of this machine");
  return {
    host: url.hostname.replace(/^\[|\]$/g, ""),
    port: Number(url.port || 80),
    path: url.pathname === "/" ? path : url.pathname,
  };
}

/** Asks a person to authorise a remote server; `serve` finds what is kept. */
async function authorise(argv: readonly string[]): Promise<number> {
  const spec = {
    config: { type: "string" },
    "journal-dir": { type: "string" },
    forget: { type: "boolean", default: false },
  } as const;
  const { values, positionals } = parse(argv, spec, true);
  const [name, ...more] = positionals;
  if (name === undefined || more.length > 0) throw new UsageError("authorise: name exactly one server");
  const config = readConfigFile(required(values["config"], "--config"));
  refuseProblems(config);
  const definition = config.definitions.get(name);
  if (definition === undefined) throw new UsageError(`authorise: there is no server '${name}' in the configuration`);
  const journalDir = resolve(required(values["journal-dir"], "--journal-dir"));
  const ended = new AbortController();
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => ended.abort());
  return authoriseByCommand({
    name,
    definition,
    journalDir,
    forget: values["forget"] === true,
    clientInfo: { name: "mcp-safe-replay", version },
    say: (line) => process.stdout.write(`${line}\n`),
    tell: (line) => process.stderr.write(`${line}\n`),
    signal: ended.signal,
  });
}

/** Puts a contract to the test. Exit 1 when a promise is broken. */
async function rehearse(argv: readonly string[]): Promise<number> {
  const { values } = parse(argv, {
    config: { type: "string" },
    server: { type: "string" },
    tool: { type: "string" },
    arguments: { type: "string" },
    "other-arguments": { type: "string" },
    confirm: { type: "string" },
    wait: { type: "string", default: "0" },
    "journal-dir": { type: "string" },
    json: { type: "boolean", default: false },
  });
  const config = readConfigFile(required(values["config"], "--config"));
  refuseProblems(config);
  const server = required(values["server"], "--server");
  const definition = config.definitions.get(server);
  if (definition === undefined) throw new UsageError(`--server: there is no server '${server}' in the configuration`);
  const waitSeconds = Number(values["wait"]);
  if (!(waitSeconds >= 0)) throw new UsageError("--wait: must be a number of seconds");
  const request: RehearsalRequest = {
    server,
    tool: required(values["tool"], "--tool"),
    arguments: jsonObject(required(values["arguments"], "--arguments"), "--arguments"),
    ...(values["other-arguments"] === undefined
      ? {}
      : { otherArguments: jsonObject(String(values["other-arguments"]), "--other-arguments") }),
    waitMs: waitSeconds * 1000,
  };
  // Without a folder of the person's: one of our own, which is kept when something in it stays unresolved.
  const given = values["journal-dir"];
  const directory = typeof given === "string" ? resolve(given) : mkdtempSync(join(tmpdir(), "mcp-safe-replay-rehearsal-"));
  const journal = openSqliteJournal({ ...config.journal, directory });
  if (journal.notice !== undefined) log("warning", undefined, journal.notice);
  const ended = new AbortController();
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => ended.abort());
  const alive = setInterval(() => undefined, 2 ** 30);
  try {
    if (journal.problem) throw new UsageError(journal.problem.message);
    const parts: RehearsalParts = {
      desk: {
        journal,
        servers: () => new Map(),
        trust: {
          workspaceTrusted: () => config.workspaceTrusted,
          serverTrustSetting: (name) => config.serverTrust.get(name) === true,
          // The configuration file is the person's own word about exactly the definitions that stand beside it.
          consentFingerprint: () => fingerprintOf(definition),
        },
        settings: () => config.settings,
        contracts: () => config.contracts,
        clock: systemClock,
        random: Math.random,
        log: (name, text) => log("info", name, text),
      },
      server: { definition, clientInfo: { name: "mcp-safe-replay", version } },
    };
    const report = await rehearseContract(parts, request, String(values["confirm"] ?? ""), {
      signal: ended.signal,
      progress: (text) => log("info", server, `rehearsal: ${text}`),
    });
    const lines = values["json"] === true ? [JSON.stringify(report, null, 2)] : reportLines(report);
    process.stdout.write(`${lines.join("\n")}\n`);
    return report.findings.some((finding) => finding.verdict === "broken") ? 1 : 0;
  } catch (error) {
    if (error instanceof RehearsalError) throw new UsageError(error.message);
    throw error;
  } finally {
    clearInterval(alive);
    const open = journal.problem ? 1 : await journal.count(["unresolved", "in-flight", "prepared"]);
    await journal.close();
    if (given === undefined && open === 0) rmSync(directory, { recursive: true, force: true });
    else if (given === undefined)
      log("warning", server, `calls of the rehearsal are unresolved; their journal is in ${directory}`);
  }
}

function jsonObject(text: string, name: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // Said below.
  }
  throw new UsageError(`${name}: must be a JSON object`);
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

function refuseProblems({ problems }: HeadlessConfig): void {
  for (const problem of problems) log("error", undefined, `${problem.place}: ${problem.message}`);
  const [first] = problems;
  if (first !== undefined) throw new UsageError(`${first.place}: ${first.message}`);
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
  return readToken(file);
}

function readToken(file: string): string {
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

/** Ends once what was said is with its reader: a pipe takes a long listing in pieces. */
function leave(code: number): void {
  if (process.stdout.writableLength === 0 || process.stdout.destroyed) process.exit(code);
  process.stdout.write("", () => process.exit(code));
}

main(process.argv.slice(2)).then(leave, (error: unknown) => {
  if (error instanceof UsageError) process.stderr.write(`mcp-safe-replay: ${error.message}\n`);
  else if (error instanceof JournalError || error instanceof GatewayError)
    process.stderr.write(`mcp-safe-replay: ${error.message}\n`);
  else process.stderr.write(`mcp-safe-replay: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  process.exit(error instanceof UsageError || error instanceof GatewayError ? 2 : 1);
});
