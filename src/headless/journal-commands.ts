/**
 * Owns: the commands about a journal: list, settle, close a conflict, export, verify; and what `serve` says of its journal.
 * Leaves to others: what the journal is (src/operations), what settles an operation (src/replay/settle.ts).
 */
import { statSync } from "node:fs";
import { resolve } from "node:path";
import { exportCsv, exportJsonl } from "../operations/export.ts";
import { JournalError, type Journal } from "../operations/journal.ts";
import { operationStates, settlements, type Operation, type OperationState, type Settlement } from "../operations/model.ts";
import { everyOperation } from "../operations/paging.ts";
import { openSqliteJournal } from "../operations/sqlite-journal.ts";
import { verdictText, verifyJournal } from "../operations/verify.ts";
import { acknowledgeConflict, settleOperation } from "../replay/settle.ts";
import type { HeadlessConfig } from "../gateway/headless-config.ts";
import { fingerprintOf } from "../hosting/definitions.ts";
import { log, parse, required, UsageError, write } from "./command-line.ts";
import { findOut, reconcileLines, type FindOutParts } from "./reconcile.ts";

export async function operations(argv: readonly string[]): Promise<number> {
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
    const query = state === undefined ? {} : { states: [state as OperationState] };
    const asJson = options.values["json"] === true;
    let count = 0;
    for await (const one of everyOperation(journal, query)) {
      if (asJson) await write(`${count === 0 ? "[\n" : ",\n"}${indented(await listed(journal, one))}`);
      else await write(listedLine(one));
      count += 1;
    }
    if (asJson) await write(count === 0 ? "[]\n" : "\n]\n");
    return 0;
  } finally {
    await journal.close();
  }
}

function listedLine(one: Operation): string {
  const conflict = one.conflict ? "  conflict: an answer contradicts the settlement" : "";
  return `${one.id}  ${one.state.padEnd(16)}  ${one.intention.server}/${one.intention.tool}  ${one.reason ?? ""}  ${new Date(one.createdAt).toISOString()}${conflict}\n`;
}

async function listed(journal: Journal, one: Operation): Promise<Record<string, unknown>> {
  return {
    id: one.id,
    server: one.intention.server,
    tool: one.intention.tool,
    state: one.state,
    reason: one.reason ?? null,
    conflict: one.conflict,
    attempts: one.attempts.map(({ rpcId, era, stage, outcome }) => ({ rpcId, era, stage, outcome: outcome ?? null })),
    createdAt: new Date(one.createdAt).toISOString(),
    events: (await journal.events(one.id)).map(({ type, actor, at, data }) => ({
      type,
      actor,
      at: new Date(at).toISOString(),
      data: withoutContents(data),
    })),
  };
}

/** As an element of an array that is written piece by piece. */
function indented(value: unknown): string {
  return JSON.stringify(value, null, 2).replace(/^/gm, "  ");
}

/** Listings are read over shoulders and pasted into reports: tool arguments and results stay in the journal (`export` has them). */
function withoutContents(data: unknown): Record<string, unknown> {
  const { arguments: _arguments, result: _result, error: _error, ...rest } = data as Record<string, unknown>;
  return rest;
}

/** What a command that asks a hosted server needs. */
export interface AskingParts {
  /** @throws UsageError */
  readonly config: (file: string) => HeadlessConfig;
  readonly clientInfo: FindOutParts["clientInfo"];
}

/** Shows an operation, finds out more about it, or settles it. */
export async function reconcile(argv: readonly string[], parts: AskingParts): Promise<number> {
  const { values, positionals } = parse(
    argv,
    {
      as: { type: "string" },
      evidence: { type: "string" },
      "look-up": { type: "boolean", default: false },
      recover: { type: "boolean", default: false },
      config: { type: "string" },
      "journal-dir": { type: "string" },
    },
    true,
  );
  const [id, ...more] = positionals;
  if (id === undefined || more.length > 0) throw new UsageError("reconcile: name exactly one operation ID");
  const wishes = (["as", "look-up", "recover"] as const).filter((name) => values[name] !== undefined && values[name] !== false);
  const [wish] = wishes;
  if (wishes.length > 1)
    throw new UsageError("reconcile: give one of --as, --look-up and --recover, or none to see what is known");
  if (wish === undefined) {
    if (values["evidence"] !== undefined) throw new UsageError("--as is needed");
    return show(id, values["journal-dir"] as string | undefined);
  }
  if (wish !== "as") return find(wish, id, values, parts);
  const as = required(values["as"], "--as");
  if (!(settlements as readonly string[]).includes(as)) throw new UsageError(`--as: must be one of ${settlements.join(", ")}`);
  const evidence = required(values["evidence"], "--evidence").trim();
  if (evidence === "") throw new UsageError("--evidence: say in a line how you know");
  const journal = openForWriting(values["journal-dir"]);
  try {
    const settled = await settleOperation(journal, id, as as Settlement, evidence, "person", Date.now());
    process.stdout.write(`${settled.id}  ${settled.state}\n`);
    return 0;
  } finally {
    await journal.close();
  }
}

async function show(id: string, directory: string | undefined): Promise<number> {
  const journal = openForReading(directory);
  try {
    const lines = reconcileLines(await known(journal, id), await journal.events(id));
    await write(`${lines.join("\n")}\n`);
    return 0;
  } finally {
    await journal.close();
  }
}

async function find(
  how: "look-up" | "recover",
  id: string,
  values: Readonly<Record<string, unknown>>,
  { config: read, clientInfo }: AskingParts,
): Promise<number> {
  const config = read(required(values["config"], "--config"));
  const journal = openForWriting(values["journal-dir"]);
  // The programs and timers of a hosted server do not keep this one alive.
  const alive = setInterval(() => undefined, 2 ** 30);
  try {
    const operation = await known(journal, id);
    const definition = config.definitions.get(operation.intention.server);
    if (definition === undefined)
      throw new UsageError(`--config: there is no server '${operation.intention.server}' in the configuration`);
    const found = await findOut(how, operation, {
      journal,
      definition,
      desk: {
        trust: {
          workspaceTrusted: () => config.workspaceTrusted,
          serverTrustSetting: (name) => config.serverTrust.get(name) === true,
          // The configuration file is the person's own word about exactly the definitions that stand beside it.
          consentFingerprint: () => fingerprintOf(definition),
        },
        settings: () => config.settings,
        contracts: () => config.contracts,
        log: (name, text) => log("info", name, text),
      },
      clientInfo,
    });
    await write(`${found}\n${id}  ${(await known(journal, id)).state}\n`);
    return 0;
  } finally {
    clearInterval(alive);
    await journal.close();
  }
}

async function known(journal: Journal, id: string): Promise<Operation> {
  const operation = await journal.operation(id);
  if (operation === undefined) throw new JournalError("unknown-operation", `There is no operation ${id}.`);
  return operation;
}

/** A person has seen that an answer contradicts a settlement. */
export async function acknowledge(argv: readonly string[]): Promise<number> {
  const options = parse(argv, { note: { type: "string" }, "journal-dir": { type: "string" } }, true);
  const [id, ...more] = options.positionals;
  if (id === undefined || more.length > 0) throw new UsageError("acknowledge: name exactly one operation ID");
  const note = required(options.values["note"], "--note").trim();
  if (note === "") throw new UsageError("--note: say in a line what you found");
  const journal = openForWriting(options.values["journal-dir"]);
  try {
    const closed = await acknowledgeConflict(journal, id, note, Date.now());
    process.stdout.write(`${closed.id}  ${closed.state}  conflict closed\n`);
    return 0;
  } finally {
    await journal.close();
  }
}

/** Exit 1 when something was altered or removed. */
export async function verify(argv: readonly string[]): Promise<number> {
  const { values } = parse(argv, { "journal-dir": { type: "string" }, since: { type: "string" } });
  const directory = resolve(required(values["journal-dir"], "--journal-dir"));
  mustBeFolder(directory);
  const since = values["since"] as string | undefined;
  if (since !== undefined && !/^[0-9a-f]{64}$/.test(since))
    throw new UsageError("--since: must be a head that an earlier verify printed, 64 hexadecimal digits");
  try {
    const verdict = await verifyJournal(directory, since === undefined ? {} : { since });
    await write(`${verdictText(verdict)}\n`);
    return verdict.ok ? 0 : 1;
  } catch (error) {
    if (error instanceof JournalError) throw new UsageError(error.message);
    throw error;
  }
}

export async function exportJournal(argv: readonly string[]): Promise<number> {
  const options = parse(argv, {
    "journal-dir": { type: "string" },
    format: { type: "string" },
    what: { type: "string", default: "events" },
  });
  const what = options.values["what"];
  if (what !== "events" && what !== "operations") throw new UsageError("--what: must be events or operations");
  const format = required(options.values["format"], "--format");
  if (format !== "jsonl" && format !== "csv") throw new UsageError("--format: must be jsonl or csv");
  const journal = openForReading(options.values["journal-dir"] as string | undefined);
  try {
    for await (const line of format === "jsonl" ? exportJsonl(journal, what) : exportCsv(journal, what)) await write(line);
    return 0;
  } finally {
    await journal.close();
  }
}

/** Says once what the journal has to say, and what comes to stand in its way while it runs. @returns what ends that */
export function tellOfJournal(journal: Journal): () => void {
  let notice: string | undefined;
  let problem: string | undefined;
  const tell = (): void => {
    if (journal.notice !== undefined && journal.notice !== notice) log("warning", undefined, journal.notice);
    notice = journal.notice;
    const now = journal.problem?.message;
    if (now !== undefined && now !== problem) log("error", undefined, now);
    else if (now === undefined && problem !== undefined) log("info", undefined, "the operation journal can be written again");
    problem = now;
  };
  tell();
  return journal.onDidChange(tell);
}

function openForReading(directory: string | undefined): Journal {
  const folder = resolve(required(directory, "--journal-dir"));
  mustBeFolder(folder);
  const journal = openSqliteJournal({ directory: folder, readOnly: true });
  if (journal.problem && journal.problem.code !== "newer-version") throw new UsageError(journal.problem.message);
  return journal;
}

/** The caller closes it. */
function openForWriting(given: unknown): Journal {
  const directory = resolve(required(given, "--journal-dir"));
  mustBeFolder(directory);
  const journal = openSqliteJournal({ directory, watchMs: 0 });
  if (journal.notice !== undefined) log("warning", undefined, journal.notice);
  const { problem } = journal;
  if (problem === undefined) return journal;
  void journal.close();
  throw new UsageError(problem.message);
}

function mustBeFolder(folder: string): void {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() !== true)
    throw new UsageError(`--journal-dir: ${folder} is not a folder`);
}
