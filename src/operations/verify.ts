/**
 * Owns: the proof that a journal is whole: nothing altered, moved or removed since it was written (chain.ts says what that shows).
 * Checked are the file's own structure, every link of the chain, the gaps that retention left, and that the operations are what their
 * events say.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { isDeepStrictEqual } from "node:util";
import { chainStart, digestOfGaps, link, type Gap } from "./chain.ts";
import { isDamage } from "./failures.ts";
import { journalFileName, openForReading } from "./journal-file.ts";
import { apply, type Operation, type OperationEvent } from "./model.ts";
import { Tables } from "./tables.ts";

export type Verdict =
  | {
      readonly ok: true;
      /** Events and records that were checked. */
      readonly events: number;
      /** The newest hash, hex. Noted elsewhere, it proves later that everything up to here is still there (`since`). */
      readonly head: string;
    }
  | {
      readonly ok: false;
      /** The number of the first event that is not right; 0 when it is not one event's fault. */
      readonly at: number;
      readonly message: string;
    };

/** A verdict in a line for people and logs. */
export function verdictText(verdict: Verdict): string {
  return verdict.ok
    ? `The journal is whole: ${verdict.events} events, nothing altered or removed. Head: ${verdict.head}`
    : `The journal is NOT whole: ${verdict.message}.`;
}

/**
 * Verifies the journal in a folder, which may be in use.
 * @param since a head of an earlier verdict that must still be in the chain
 * @throws JournalError when there is no journal, or none that can be read here
 */
export async function verifyJournal(directory: string, options: { readonly since?: string } = {}): Promise<Verdict> {
  const file = openForReading({
    directory,
    busyMs: 2_000,
    now: Date.now,
    openDatabase: (path, databaseOptions) => new DatabaseSync(path, databaseOptions),
  });
  const { db } = file;
  if (db === undefined) {
    if (file.problem?.code === "damaged" && existsSync(join(directory, journalFileName))) return broken(0, file.problem.message);
    throw file.problem ?? new Error("the journal cannot be read");
  }
  try {
    // One moment of a journal that others may be writing to.
    db.exec("BEGIN");
    return verify(db, options.since);
  } catch (error) {
    if (error instanceof SyntaxError) return broken(0, "the record of an operation is not what was written");
    if (!isDamage(error)) throw error;
    return broken(0, "the file is damaged: SQLite cannot read it to the end");
  } finally {
    db.close();
  }
}

function verify(db: DatabaseSync, since: string | undefined): Verdict {
  const structure = Object.values(db.prepare("PRAGMA integrity_check(1)").get() ?? {})[0];
  if (structure !== "ok") return broken(0, `the file is damaged: ${String(structure)}`);
  const tables = new Tables(db);
  const chain = verifyChain(tables, db, since);
  return chain.ok ? (verifyOperations(tables) ?? chain) : chain;
}

function verifyChain(tables: Tables, db: DatabaseSync, since: string | undefined): Verdict {
  const gaps = tables.gaps();
  const openGaps: Gap[] = [...gaps];
  let number = 0;
  let hash = chainStart;
  let events = 0;
  let attested: string | undefined;
  let found = since === undefined;
  const jump = (): void => {
    for (let gap = openGaps[0]; gap?.first === number + 1; gap = openGaps[0]) {
      number = gap.last;
      hash = gap.hash;
      found ||= hash === since;
      openGaps.shift();
    }
  };
  for (let rows = tables.rowsAfter(0); rows.length > 0; rows = tables.rowsAfter(number)) {
    for (const row of rows) {
      jump();
      if (row.number !== number + 1) return broken(number + 1, `event ${number + 1} was removed`);
      const expected = link(hash, row);
      if (expected !== row.hash)
        return broken(row.number, `event ${row.number} is not what was written, or stands in another's place`);
      number = row.number;
      hash = row.hash;
      found ||= hash === since;
      events += 1;
      if (row.type === "pruned" && row.operation_id === "") attested = (JSON.parse(row.data) as { gaps: string }).gaps;
    }
  }
  jump();
  const [gap] = openGaps;
  if (gap !== undefined) return broken(gap.first, `a gap from ${gap.first} to ${gap.last} is not where events are missing`);
  if (gaps.length > 0 && attested === undefined)
    return broken(gaps[0]?.first ?? 0, "events are missing that retention did not take");
  if (attested !== undefined && attested !== digestOfGaps(gaps)) {
    return broken(gaps[0]?.first ?? 0, "the gaps are not those that retention left");
  }
  const written = db.prepare("SELECT seq FROM sqlite_sequence WHERE name = 'events'").get() as { seq: number } | undefined;
  if ((written?.seq ?? 0) !== number)
    return broken(number + 1, `the newest events were removed: ${written?.seq ?? 0} were written, ${number} are there`);
  if (!found)
    return broken(0, "the head that was noted earlier is not in the chain: it was written anew, or retention took that event");
  return { ok: true, events, head: hash };
}

/** The derived table says what the events say: no operation forgotten, invented or changed. */
function verifyOperations(tables: Tables): Verdict | undefined {
  let operations = 0;
  for (const { columns, operation } of tables.storedOperations()) {
    operations += 1;
    const numbered = tables.entriesOf(columns.id);
    let derived: Operation | undefined;
    for (const entry of numbered) {
      try {
        derived = apply(derived, entry as OperationEvent);
      } catch {
        return broken(entry.number, `event ${entry.number} is illegal where it stands`);
      }
    }
    const at = numbered.at(-1)?.number ?? 0;
    if (derived === undefined) return broken(0, `operation ${columns.id} has no events`);
    const { intention } = operation;
    const same =
      columns.state === operation.state &&
      columns.server === intention.server &&
      columns.tool === intention.tool &&
      columns.digest === intention.digest &&
      columns.updated === operation.updatedAt &&
      agrees(operation, derived);
    if (!same) return broken(at, `operation ${columns.id} is not what its events say`);
  }
  if (operations !== tables.operationsWithEvents()) return broken(0, "an operation that has events is missing from the list");
  return undefined;
}

/** What is stored must be what is derived; fields that a later version derives besides are no one's tampering. */
function agrees(stored: Operation, derived: Operation): boolean {
  const plain = JSON.parse(JSON.stringify(derived)) as Record<string, unknown>;
  const keys = [...Object.keys(stored), "answer", "settlement"] as readonly (keyof Operation)[];
  return keys.every((key) => isDeepStrictEqual(stored[key], plain[key]));
}

function broken(at: number, message: string): Verdict {
  return { ok: false, at, message };
}
