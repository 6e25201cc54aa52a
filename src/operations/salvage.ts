/**
 * Owns: what happens to a damaged journal file: it is set aside under another name, untouched, and what can be read of it is kept in a
 * fresh journal. Whatever is in doubt becomes `unresolved`, never forgotten and never closed.
 * Every step can be interrupted and is taken up again at the next start: a marker file names the set-aside until all is done.
 * Leaves to others: deciding that the file is damaged, and that no other program has it open (journal-file.ts).
 */
import {
  copyFileSync,
  existsSync,
  openSync,
  closeSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { IllegalTransition, closedStates, type OperationEvent, type OperationState } from "./model.ts";
import { migrate } from "./migrations.ts";
import { Tables } from "./tables.ts";

const fileName = "journal.sqlite";
const markerName = "journal.damaged";
/** SQLite's write-ahead log: it belongs to its file. The index beside it (`-shm`) is made anew from it. */
const logSuffix = "-wal";
const indexSuffix = "-shm";

/** After this many unreadable numbers in a row there is nothing more to come. */
const giveUpAfter = 100_000;

/** Notes that the file was seen to be damaged, for the next start to look into. */
export function suspectDamage(directory: string): void {
  const marker = join(directory, markerName);
  if (!existsSync(marker)) writeFileSync(marker, "", { mode: 0o600 });
}

/** What an earlier run noted: `name`: a set-aside that was begun; `suspected`: damage was seen. */
export function damageNoted(directory: string): { readonly name: string | undefined } | undefined {
  const marker = join(directory, markerName);
  if (!existsSync(marker)) return undefined;
  const name = readFileSync(marker, "utf8");
  return { name: name === "" ? undefined : name };
}

export function forgetDamage(directory: string): void {
  rmSync(join(directory, markerName), { force: true });
}

/**
 * Sets the journal file aside and puts a fresh one with everything readable in its place. No other program may have it open.
 * @returns what the person should be told
 */
export function setAsideAndSalvage(directory: string, now: number): string {
  const live = join(directory, fileName);
  const name = damageNoted(directory)?.name ?? freeName(directory, now);
  writeFileSync(join(directory, markerName), name, { mode: 0o600, flush: true });
  const aside = join(directory, name);
  if (!existsSync(aside)) {
    // The log first: a file without its log is still damaged, a log without its file would be thrown away.
    if (existsSync(live + logSuffix)) renameSync(live + logSuffix, aside + logSuffix);
    rmSync(live + indexSuffix, { force: true });
    if (existsSync(live)) renameSync(live, aside);
  }
  let told = `The operation journal was damaged. It was set aside as ${aside}.`;
  // When there is a live file again, an earlier run got this far.
  if (!existsSync(live)) {
    const fresh = join(directory, "journal.salvage.sqlite");
    const saved = salvage(aside, fresh, name, now);
    renameSync(fresh, live);
    told += ` ${saved.operations} operations could be read and are kept, ${saved.unreadable} entries could not. Look through the unresolved operations: whatever was in doubt is there.`;
  }
  forgetDamage(directory);
  return told;
}

function freeName(directory: string, now: number): string {
  const stamp = new Date(now).toISOString().replace(/[-:]|\.\d+/g, "");
  for (let number = 1; ; number++) {
    const name = `journal.damaged-${stamp}${number === 1 ? "" : `-${number}`}.sqlite`;
    if (!existsSync(join(directory, name))) return name;
  }
}

function salvage(aside: string, fresh: string, name: string, now: number): { operations: number; unreadable: number } {
  const copy = `${fresh}-source`;
  for (const path of [fresh, `${fresh}-journal`, copy, copy + logSuffix, copy + indexSuffix]) rmSync(path, { force: true });
  closeSync(openSync(fresh, "wx", 0o600));
  const target = new DatabaseSync(fresh);
  try {
    migrate(target, 0);
    const tables = new Tables(target);
    let events = 0;
    let operations = 0;
    let unreadable = 0;
    target.exec("BEGIN");
    const source = openWhatIsLeft(aside, copy, readFileSync(fresh));
    if (source !== undefined) {
      for (const row of readableRows(source, "events")) {
        const event = row === undefined ? undefined : eventOf(row);
        if (event?.operationId === "") continue; // Records speak of the old chain.
        if (event !== undefined && keep(target, () => tables.write([event], ""))) events += 1;
        else unreadable += 1;
      }
      // Of an operation whose events are gone, the derived row still says that it is nobody's closed case. What is under way now has no
      // owner: whoever opens the journal next records it as lost.
      for (const row of readableRows(source, "operations")) {
        const event = row === undefined ? undefined : preparedOf(row, now);
        if (event !== undefined && tables.operation(event.operationId) === undefined)
          keep(target, () => tables.write([event], ""));
      }
      operations = (target.prepare("SELECT count(*) AS n FROM operations").get() as { n: number }).n;
      source.close();
    }
    tables.record({
      operationId: "",
      type: "salvaged",
      actor: "gateway",
      at: now,
      data: { setAside: name, operations, events, unreadable },
    });
    target.exec("COMMIT");
    return { operations, unreadable };
  } finally {
    target.close();
    for (const path of [copy, copy + logSuffix, copy + indexSuffix]) rmSync(path, { force: true });
  }
}

/** @returns false when what was read makes no sense: what came before it is missing, or it is not what was written */
function keep(target: DatabaseSync, write: () => void): boolean {
  target.exec("SAVEPOINT one");
  try {
    write();
    target.exec("RELEASE one");
    return true;
  } catch (error) {
    if (!(error instanceof IllegalTransition) && !(error instanceof TypeError)) throw error;
    target.exec("ROLLBACK TO one; RELEASE one");
    return false;
  }
}

/** The damaged file as well as it can be opened: as it is, or with the header or the whole first page of a fresh journal. */
function openWhatIsLeft(aside: string, copy: string, fresh: Buffer): DatabaseSync | undefined {
  const headerBytes = 100;
  const pageBytes = 4096;
  for (const replaced of [0, headerBytes, pageBytes]) {
    rmSync(copy + indexSuffix, { force: true });
    copyFileSync(aside, copy);
    if (existsSync(aside + logSuffix)) copyFileSync(aside + logSuffix, copy + logSuffix);
    if (replaced > 0) {
      const file = openSync(copy, "r+");
      writeSync(file, fresh, 0, replaced, 0);
      // The number of pages is then the file's own (SQLite file format, 1.3.7).
      writeSync(file, Buffer.alloc(4), 0, 4, 28);
      closeSync(file);
    }
    const db = new DatabaseSync(copy);
    try {
      db.prepare("SELECT number, operation_id, type, actor, at, data FROM events LIMIT 1");
      return db;
    } catch {
      db.close();
    }
  }
  return undefined;
}

type Row = Readonly<Record<string, unknown>>;

/** Every row that can be read, in order; undefined stands for one that cannot. */
function* readableRows(db: DatabaseSync, table: "events" | "operations"): Generator<Row | undefined> {
  const next = db.prepare(`SELECT * FROM ${table} WHERE number >= ? ORDER BY number LIMIT 1`);
  const last = lastNumber(db, table);
  let number = 1;
  let missing = 0;
  while (missing < giveUpAfter && number <= last) {
    let row: Row | undefined;
    try {
      row = next.get(number);
      if (row === undefined) break;
    } catch {
      missing += 1;
      number += 1;
      continue;
    }
    for (; missing > 0; missing--) yield undefined;
    number = Math.max(number, Number(row["number"])) + 1;
    yield row;
  }
  if (last !== Infinity) for (; missing > 0; missing--) yield undefined;
}

function lastNumber(db: DatabaseSync, table: string): number {
  const read = (sql: string): number => {
    try {
      return Number(Object.values(db.prepare(sql).get() ?? {})[0] ?? 0);
    } catch {
      return 0;
    }
  };
  const last = Math.max(
    read(`SELECT max(number) FROM ${table}`),
    read(`SELECT seq FROM sqlite_sequence WHERE name = '${table}'`),
  );
  return last === 0 ? Infinity : last;
}

function eventOf(row: Row): OperationEvent | undefined {
  try {
    return {
      operationId: row["operation_id"],
      type: row["type"],
      actor: row["actor"],
      at: row["at"],
      data: JSON.parse(String(row["data"])) as unknown,
    } as OperationEvent;
  } catch {
    return undefined;
  }
}

function preparedOf(row: Row, now: number): OperationEvent | undefined {
  if ((closedStates as readonly OperationState[]).includes(row["state"] as OperationState)) return undefined;
  try {
    return {
      operationId: String(row["id"]),
      type: "prepared",
      actor: "agent",
      at: Number(row["updated"] ?? now),
      data: JSON.parse(String(row["intention"])) as unknown,
    } as OperationEvent;
  } catch {
    return undefined;
  }
}
