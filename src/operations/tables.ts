/**
 * Owns: how events and operations lie in the database's tables, and every SQL statement on them. The events are the truth, in one hash
 * chain; the operations table is derived from them in the same transaction, so that lists need no replaying.
 * Leaves to others: transactions (sqlite-journal.ts), the format (migrations.ts), what events mean (model.ts).
 */
import type { DatabaseSync, SQLInputValue, StatementSync } from "node:sqlite";
import { chainStart, digestOfGaps, link, type ChainRow, type Gap } from "./chain.ts";
import type { JournalEntry, JournalRecord, OperationQuery } from "./journal.ts";
import { apply, closedStates, type Operation, type OperationEvent, type OperationState } from "./model.ts";

/** A page of entries ends after this many, or when their data passes the size (in characters): memory stays bounded. */
const pageEntries = 500;
const pageCharacters = 1_000_000;

const underWay = "'prepared', 'in-flight'";
const closed = closedStates.map((state) => `'${state}'`).join(", ");

export class Tables {
  readonly #db: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  /** Characters of event data that were written so far. */
  written = 0;

  constructor(db: DatabaseSync) {
    this.#db = db;
  }

  // ---- reading ------------------------------------------------------------------------------------------------------------------

  operation(id: string): Operation | undefined {
    const row = this.#get("SELECT intention, derived, answer FROM operations WHERE id = ?", id) as OperationRow | undefined;
    return row && toOperation(row);
  }

  operations(query: OperationQuery): readonly Operation[] {
    const limit = query.limit ?? 1000;
    const where: string[] = [];
    const values: SQLInputValue[] = [];
    if (query.digest !== undefined) {
      where.push("digest = ?");
      values.push(query.digest);
    }
    if (query.server !== undefined) {
      where.push("server = ?");
      values.push(query.server);
    }
    if (query.conflict === true) where.push("json_extract(derived, '$.conflict')");
    if (query.before !== undefined) {
      where.push("number < (SELECT number FROM operations WHERE id = ?)");
      values.push(query.before);
    }
    const numbers = (more: readonly string[]): string =>
      `SELECT number FROM operations ${where.length + more.length > 0 ? `WHERE ${[...where, ...more].join(" AND ")}` : ""} ORDER BY number DESC LIMIT ?`;
    const { states } = query;
    const parts: string[] = [];
    const given: SQLInputValue[] = [];
    if (states === undefined) {
      parts.push(numbers([]));
      given.push(...values, limit);
    } else if (query.digest !== undefined) {
      // The plus keeps the index by state out: the one by digest finds a handful.
      parts.push(numbers([`+state IN (${states.map(() => "?").join(", ")})`]));
      given.push(...values, ...states, limit);
    } else {
      // Each state in the order of its index and no further than the page: nothing is sorted but the page.
      for (const state of states) {
        parts.push(numbers(["state = ?"]));
        given.push(...values, state, limit);
      }
    }
    if (parts.length === 0) return [];
    const found = parts.map((part) => `SELECT number FROM (${part})`).join(" UNION ALL ");
    const sql = `SELECT intention, derived, answer FROM operations WHERE number IN (${found}) ORDER BY number DESC LIMIT ?`;
    return (this.#all(sql, ...given, limit) as OperationRow[]).map(toOperation);
  }

  count(states: readonly OperationState[]): number {
    const sql = `SELECT count(*) AS n FROM operations WHERE state IN (${states.map(() => "?").join(", ")})`;
    return (this.#get(sql, ...states) as { n: number }).n;
  }

  eventsOf(operationId: string): readonly OperationEvent[] {
    return this.entriesOf(operationId).map(({ number: _number, hash: _hash, ...event }) => event as OperationEvent);
  }

  /** The next page of entries after a number; empty at the end. */
  entriesAfter(number: number): readonly JournalEntry[] {
    return this.rowsAfter(number).map(toEntry);
  }

  rowsAfter(number: number): readonly EventRow[] {
    const rows: EventRow[] = [];
    let characters = 0;
    const sql = `SELECT * FROM events WHERE number > ? ORDER BY number LIMIT ${pageEntries}`;
    for (const row of this.#prepare(sql).iterate(number) as unknown as Iterable<EventRow>) {
      rows.push(row);
      characters += row.data.length;
      if (characters > pageCharacters) break;
    }
    return rows;
  }

  /** An operation's events with their numbers. */
  entriesOf(operationId: string): readonly JournalEntry[] {
    return (this.#all("SELECT * FROM events WHERE operation_id = ? ORDER BY number", operationId) as EventRow[]).map(toEntry);
  }

  newest(): { readonly number: number; readonly hash: string; readonly at: number | undefined } {
    const row = this.#get("SELECT number, hash, at FROM events ORDER BY number DESC LIMIT 1") as EventRow | undefined;
    return row ?? { number: 0, hash: chainStart, at: undefined };
  }

  /** How many operations the events speak of. */
  operationsWithEvents(): number {
    const sql = "SELECT count(DISTINCT operation_id) AS n FROM events WHERE operation_id <> ''";
    return (this.#get(sql) as { n: number }).n;
  }

  /** Every operation as it is stored, with the columns that lists are made by. */
  *storedOperations(): Generator<{ readonly columns: OperationColumns; readonly operation: Operation }> {
    const sql = "SELECT * FROM operations WHERE number > ? ORDER BY number LIMIT 100";
    for (let after = 0; ;) {
      const rows = this.#all(sql, after) as (OperationRow & OperationColumns)[];
      for (const row of rows) yield { columns: row, operation: toOperation(row) };
      const last = rows.at(-1);
      if (last === undefined) return;
      after = last.number;
    }
  }

  gaps(): readonly Gap[] {
    return this.#all("SELECT first, last, hash FROM gaps ORDER BY first") as Gap[];
  }

  // ---- writing ------------------------------------------------------------------------------------------------------------------

  /**
   * Appends events and brings the operations up to date; inside the caller's transaction.
   * @param owner who holds an operation that these events put under way
   * @throws IllegalTransition when the table of transitions forbids one; the caller rolls back
   */
  write(events: readonly OperationEvent[], owner: string): readonly Operation[] {
    let { number, hash } = this.newest();
    const changed = new Map<string, { before: Operation | undefined; after: Operation; owned: boolean }>();
    for (const event of events) {
      const known = changed.get(event.operationId);
      const before = known?.after ?? this.operation(event.operationId);
      const after = apply(before, event);
      number += 1;
      hash = this.#addEvent(hash, {
        number,
        operation_id: event.operationId,
        type: event.type,
        actor: event.actor,
        at: event.at,
        data: JSON.stringify(event.data),
      });
      changed.set(event.operationId, {
        before: known === undefined ? before : known.before,
        after,
        owned: known?.owned === true || event.type === "prepared" || event.type === "sent",
      });
    }
    for (const { before, after, owned } of changed.values()) this.#putOperation(before, after, owned ? owner : undefined);
    return [...changed.values()].map((one) => one.after);
  }

  /** Appends a record of what was done to the journal itself. */
  record({ type, actor, at, data }: JournalRecord): void {
    const { number, hash } = this.newest();
    this.#addEvent(hash, { number: number + 1, operation_id: "", type, actor, at, data: JSON.stringify(data) });
  }

  #addEvent(previous: string, row: ChainRow): string {
    const hash = link(previous, row);
    this.written += row.data.length;
    this.#run(
      "INSERT INTO events (number, operation_id, type, actor, at, data, hash) VALUES (?, ?, ?, ?, ?, ?, ?)",
      row.number,
      row.operation_id,
      row.type,
      row.actor,
      row.at,
      row.data,
      hash,
    );
    return hash;
  }

  #putOperation(before: Operation | undefined, after: Operation, owner: string | undefined): void {
    const { intention, answer, ...derived } = after;
    const answerText = answer === undefined ? null : JSON.stringify(answer);
    if (before === undefined) {
      this.#run(
        `INSERT INTO operations (id, server, tool, digest, state, intention, derived, answer, owner, updated)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
        after.id,
        intention.server,
        intention.tool,
        intention.digest,
        after.state,
        JSON.stringify(intention),
        JSON.stringify(derived),
        answerText,
        owner ?? "",
        after.updatedAt,
      );
      return;
    }
    this.#run(
      "UPDATE operations SET state = ?, derived = ?, updated = ?, owner = coalesce(?, owner) WHERE id = ?",
      after.state,
      JSON.stringify(derived),
      after.updatedAt,
      owner ?? null,
      after.id,
    );
    if (answer !== before.answer) this.#run("UPDATE operations SET answer = ? WHERE id = ?", answerText, after.id);
  }

  // ---- owners -------------------------------------------------------------------------------------------------------------------

  addOwner(id: string, pid: number, now: number): void {
    this.#run("INSERT INTO owners (id, pid, opened) VALUES (?, ?, ?)", id, pid, now);
  }

  owners(): readonly string[] {
    return (this.#all("SELECT id FROM owners") as { id: string }[]).map((row) => row.id);
  }

  removeOwner(id: string): void {
    this.#run("DELETE FROM owners WHERE id = ?", id);
  }

  /** Operations under way and who holds them. */
  underWay(): readonly { readonly id: string; readonly owner: string }[] {
    return this.#all(`SELECT id, owner FROM operations WHERE state IN (${underWay})`) as { id: string; owner: string }[];
  }

  // ---- leaving ------------------------------------------------------------------------------------------------------------------

  /** Closed operations last changed before `cutoff`, or older than the newest `count` of them; oldest first. */
  prunable(cutoff: number, count: number, limit: number): readonly string[] {
    const beyond = this.#get(
      `SELECT number FROM operations WHERE state IN (${closed}) ORDER BY number DESC LIMIT 1 OFFSET ?`,
      Math.min(count, Number.MAX_SAFE_INTEGER),
    ) as { number: number } | undefined;
    const rows = this.#all(
      `SELECT id FROM operations WHERE state IN (${closed}) AND (updated < ? OR number <= ?)
       AND NOT json_extract(derived, '$.conflict') ORDER BY number LIMIT ?`,
      cutoff,
      beyond?.number ?? 0,
      limit,
    ) as { id: string }[];
    return rows.map((row) => row.id);
  }

  /** Takes operations and their events out, leaving gaps that keep the chain whole, and records it; inside the caller's transaction. */
  prune(operations: readonly string[], now: number): void {
    const { number, hash } = this.newest();
    const removed: { number: number; hash: string }[] = [];
    const take = (where: string, ...values: SQLInputValue[]): void => {
      removed.push(...(this.#all(`SELECT number, hash FROM events WHERE ${where}`, ...values) as typeof removed));
      this.#run(`DELETE FROM events WHERE ${where}`, ...values);
    };
    for (const id of operations) {
      take("operation_id = ?", id);
      this.#run("DELETE FROM operations WHERE id = ?", id);
    }
    const events = removed.length;
    // Only the newest record of its kind says anything: it holds the digest of all gaps.
    take("operation_id = '' AND type = 'pruned'");
    removed.sort((a, b) => a.number - b.number);
    let run: Gap | undefined;
    for (const row of removed) {
      if (run !== undefined && row.number === run.last + 1) run = { ...run, last: row.number, hash: row.hash };
      else {
        if (run !== undefined) this.#addGap(run);
        run = { first: row.number, last: row.number, hash: row.hash };
      }
    }
    if (run !== undefined) this.#addGap(run);
    const data = { operations: operations.length, events, gaps: digestOfGaps(this.gaps()) };
    this.#addEvent(hash, {
      number: number + 1,
      operation_id: "",
      type: "pruned",
      actor: "gateway",
      at: now,
      data: JSON.stringify(data),
    });
  }

  /** One gap with its neighbours: there are never two side by side. */
  #addGap({ first, last, hash }: Gap): void {
    const before = this.#get("SELECT * FROM gaps WHERE last = ?", first - 1) as Gap | undefined;
    const after = this.#get("SELECT * FROM gaps WHERE first = ?", last + 1) as Gap | undefined;
    for (const gap of [before, after]) if (gap !== undefined) this.#run("DELETE FROM gaps WHERE first = ?", gap.first);
    const whole = { first: before?.first ?? first, last: after?.last ?? last, hash: after?.hash ?? hash };
    this.#run("INSERT INTO gaps (first, last, hash) VALUES (?, ?, ?)", whole.first, whole.last, whole.hash);
  }

  /** A moment kept under a name, in milliseconds since the epoch. */
  clock(name: string): number | undefined {
    return (this.#get("SELECT at FROM clocks WHERE name = ?", name) as { at: number } | undefined)?.at;
  }

  setClock(name: string, at: number): void {
    this.#run("INSERT INTO clocks (name, at) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET at = excluded.at", name, at);
  }

  // ---- statements, each prepared once -------------------------------------------------------------------------------------------

  #prepare(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (statement === undefined) this.#statements.set(sql, (statement = this.#db.prepare(sql)));
    return statement;
  }

  #get(sql: string, ...values: SQLInputValue[]): unknown {
    return this.#prepare(sql).get(...values);
  }

  #all(sql: string, ...values: SQLInputValue[]): unknown[] {
    return this.#prepare(sql).all(...values);
  }

  #run(sql: string, ...values: SQLInputValue[]): void {
    this.#prepare(sql).run(...values);
  }
}

interface OperationRow {
  readonly intention: string;
  readonly derived: string;
  readonly answer: string | null;
}

export interface OperationColumns {
  readonly number: number;
  readonly id: string;
  readonly server: string;
  readonly tool: string;
  readonly digest: string;
  readonly state: string;
  readonly updated: number;
}

export type EventRow = ChainRow & { readonly hash: string };

function toOperation(row: OperationRow): Operation {
  return {
    ...(JSON.parse(row.derived) as Omit<Operation, "intention" | "answer">),
    intention: JSON.parse(row.intention) as Operation["intention"],
    ...(row.answer === null ? {} : { answer: JSON.parse(row.answer) as NonNullable<Operation["answer"]> }),
  };
}

function toEntry(row: EventRow): JournalEntry {
  return {
    operationId: row.operation_id,
    type: row.type,
    actor: row.actor,
    at: row.at,
    data: JSON.parse(row.data) as unknown,
    number: row.number,
    hash: row.hash,
  } as JournalEntry;
}
