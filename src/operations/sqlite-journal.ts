/**
 * Owns: the operation journal on node:sqlite: one file, write-ahead log, full sync, several programs at once. Appends that are made
 * together share one transaction and one sync.
 * Leaves to others: opening the file (journal-file.ts), its tables (tables.ts), who lives (leases.ts), the thread (worker-journal.ts).
 */
import { setImmediate } from "node:timers/promises";
import { DatabaseSync } from "node:sqlite";
import { busy, isDamage, isDiskError, isMistake, problemOf } from "./failures.ts";
import {
  newerVersion,
  openForReading,
  openForWriting,
  pragma,
  type JournalFile,
  type JournalFileOptions,
  type OpenDatabase,
} from "./journal-file.ts";
import { JournalError, type Journal, type JournalEntry, type JournalSettings, type OperationQuery } from "./journal.ts";
import { schemaVersion } from "./migrations.ts";
import { IllegalTransition, type Operation, type OperationEvent, type OperationState } from "./model.ts";
import { findOrphans, isGone, loseOrphans } from "./orphans.ts";
import { everyEntry, everyEvent } from "./paging.ts";
import { retentionCutoff, retentionEveryMs, retentionTime, type Retention } from "./retention.ts";
import { suspectDamage } from "./salvage.ts";
import { Tables } from "./tables.ts";
import { withhold } from "./withhold.ts";

export interface SqliteJournalOptions extends JournalSettings {
  /** A folder for this journal alone; made private to the user. */
  readonly directory: string;
  /** Open for reading only (command line listings). */
  readonly readOnly?: boolean;
  /** How often to look for other programs' changes and for dead programs' calls, in milliseconds; 0: never. Default 500. */
  readonly watchMs?: number;
  /** How long to wait for another program's lock before a call is refused, in milliseconds. Default 2000. */
  readonly busyMs?: number;
  /** About how much may gather in the write-ahead log before it is brought into the file, in bytes. Default 4 MB. */
  readonly checkpointBytes?: number;
  readonly now?: () => number;
  readonly openDatabase?: OpenDatabase;
}

interface Pending {
  readonly events: readonly OperationEvent[];
  readonly durable: boolean;
  resolve(operations: readonly Operation[]): void;
  reject(error: unknown): void;
}

/** A journal that could not be opened is tried again at every so many looks. */
const ticksPerTry = 10;

/** What an append adds to the log besides its data, about, in bytes: a page of each table and index that it touches. */
const pagesOfAppend = 24_000;

/** Closed operations that leave in one transaction: appends need not wait for more. */
const prunedTogether = 100;

/**
 * Opens the journal, making folder and file when they are not there. It works in the calling thread (worker-journal.ts: in its own).
 * Never throws: what stands in the way is the journal's `problem`, and every append tries again and rejects with it.
 */
export function openSqliteJournal(options: SqliteJournalOptions): SqliteJournal {
  return new SqliteJournal(options);
}

export class SqliteJournal implements Journal {
  readonly #options: SqliteJournalOptions;
  readonly #fileOptions: JournalFileOptions;
  readonly #now: () => number;
  readonly #listeners = new Set<() => void>();
  readonly #timer: NodeJS.Timeout | undefined;
  #settings: JournalSettings;
  #file!: JournalFile;
  #tables: Tables | undefined;
  #problem: JournalError | undefined;
  #notice: string | undefined;
  #queue: Pending[] = [];
  #scheduled = false;
  #closed = false;
  /** What SQLite's `synchronous` is now. */
  #synchronous = "";
  #dataVersion = 0;
  #newestSeen = 0;
  #prunedAt = -Infinity;
  #ticks = 0;
  #appends = 0;
  /** Of what went into the log, about how many bytes were brought into the file. */
  #filed = 0;
  #logInDoubt = false;

  constructor(options: SqliteJournalOptions) {
    this.#options = options;
    this.#settings = options;
    this.#now = options.now ?? Date.now;
    this.#fileOptions = {
      directory: options.directory,
      busyMs: options.busyMs ?? 2_000,
      now: this.#now,
      openDatabase: options.openDatabase ?? ((path, databaseOptions) => new DatabaseSync(path, databaseOptions)),
    };
    this.#open();
    const watchMs = options.watchMs ?? 500;
    if (watchMs > 0 && options.readOnly !== true) this.#timer = setInterval(() => this.#watch(), watchMs).unref();
  }

  get problem(): JournalError | undefined {
    return this.#problem;
  }

  get notice(): string | undefined {
    return this.#notice;
  }

  #open(again = false): void {
    this.#take(this.#options.readOnly === true ? openForReading(this.#fileOptions) : openForWriting(this.#fileOptions));
    const { db, lease } = this.#file;
    try {
      if (lease !== undefined) {
        this.#transaction(false, (tables) => tables.addOwner(lease.id, process.pid, this.#now()));
        this.#loseOrphans();
      }
      if (db !== undefined) this.#dataVersion = pragma(db, "data_version");
      this.#newestSeen = this.#tables?.newest().number ?? 0;
    } catch (error) {
      const problem = this.#failed(error);
      if (this.#options.readOnly === true) this.#problem = problem;
      else if (isDamage(error) && !again) this.#open(true);
      else this.#giveUpWriting(problem);
    }
  }

  #take(file: JournalFile): void {
    this.#file = file;
    this.#problem = file.problem;
    this.#notice = file.notice ?? this.#notice;
    this.#tables = file.db && new Tables(file.db);
    this.#synchronous = "";
    this.#appends = 0;
    this.#filed = 0;
    if (file.problem?.code === "unwritable") this.#logInDoubt = true;
  }

  /** Goes on for reading only, as far as that is possible. */
  #giveUpWriting(problem: JournalError): void {
    this.#shut();
    this.#take({ ...openForReading(this.#fileOptions), problem });
    this.#emit();
  }

  #shut(): void {
    this.#tables = undefined;
    if (this.#file.db?.isOpen === true) this.#file.db.close();
    this.#file.lease?.release();
  }

  // ---- writing ------------------------------------------------------------------------------------------------------------------

  append(events: readonly OperationEvent[], { durable }: { readonly durable: boolean }): Promise<readonly Operation[]> {
    const kept = events.map((event) => withhold(event, this.#settings.arguments));
    return new Promise((resolve, reject) => {
      this.#queue.push({ events: kept, durable, resolve, reject });
      if (this.#scheduled) return;
      this.#scheduled = true;
      // Appends of one turn of the event loop share one transaction and one sync.
      queueMicrotask(() => this.#flush());
    });
  }

  #flush(): void {
    this.#scheduled = false;
    const batch = this.#queue;
    this.#queue = [];
    if (batch.length === 0) return;
    const done: (() => void)[] = [];
    try {
      this.#mustWrite();
      this.#transaction(
        batch.some((item) => item.durable),
        (tables, db, owner) => {
          for (const item of batch) {
            db.exec("SAVEPOINT one");
            try {
              const operations = tables.write(item.events, owner);
              db.exec("RELEASE one");
              done.push(() => item.resolve(operations));
            } catch (error) {
              if (!(error instanceof IllegalTransition) && !isMistake(error)) throw error;
              db.exec("ROLLBACK TO one; RELEASE one");
              done.push(() => item.reject(error));
            }
          }
        },
      );
    } catch (error) {
      const problem = this.#failed(error);
      for (const item of batch) item.reject(problem);
      return;
    }
    this.#emit();
    for (const settle of done) settle();
    this.#appends += batch.length;
    this.#checkpointWhenDue();
  }

  /** Brings the log into the file now and then, after appends were answered and not while they wait. */
  #checkpointWhenDue(): void {
    const logged = this.#appends * pagesOfAppend + (this.#tables?.written ?? 0) - this.#filed;
    if (logged < (this.#options.checkpointBytes ?? 4_000_000)) return;
    this.#filed += logged;
    try {
      this.#file.db?.exec("PRAGMA wal_checkpoint(PASSIVE)");
    } catch (error) {
      this.#failed(error);
    }
  }

  /**
   * After a failed sync the system may have dropped what it had not yet written, and says so only once: a later sync would succeed over a
   * hole in the log, and everything behind the hole would be lost with the power. So the log is brought into the file and begun anew first.
   * @throws SQLite's error or JournalError when that cannot be done
   */
  #renewLog(): void {
    const done = this.#file.db?.prepare("PRAGMA wal_checkpoint(TRUNCATE)").get() as { busy: number } | undefined;
    if (done?.busy === 1) throw busy();
    this.#logInDoubt = false;
  }

  /** @throws JournalError when nothing can be written; before that, it tries once more what the person may have mended */
  #mustWrite(): void {
    if (this.#closed) throw new JournalError("closed", "The operation journal is closed.");
    this.#tryAgain();
    if (this.#problem !== undefined) throw this.#problem;
    if (this.#logInDoubt) this.#renewLog();
  }

  /** Opens the file once more for writing, if that could not be done and may be possible by now. */
  #tryAgain(): void {
    if (this.#file.lease !== undefined || this.#options.readOnly === true || this.#problem?.code === "newer-version") return;
    this.#shut();
    this.#open();
    if (this.#problem === undefined) this.#emit();
  }

  #transaction(durable: boolean, body: (tables: Tables, db: DatabaseSync, owner: string) => void): void {
    const { db, lease } = this.#file;
    if (db === undefined || lease === undefined || this.#tables === undefined) {
      throw this.#problem ?? new JournalError("unwritable", "The operation journal is open for reading only.");
    }
    // NORMAL leaves a commit in the log without waiting for the disk; it never damages the file (SQLite, "Write-Ahead Logging").
    const synchronous = durable ? "FULL" : "NORMAL";
    if (synchronous !== this.#synchronous) db.exec(`PRAGMA synchronous=${synchronous}`);
    this.#synchronous = synchronous;
    db.exec("BEGIN IMMEDIATE");
    try {
      const version = pragma(db, "user_version");
      if (version !== schemaVersion) throw newerVersion(version);
      body(this.#tables, db, lease.id);
      db.exec("COMMIT");
    } catch (error) {
      try {
        if (db.isTransaction) db.exec("ROLLBACK");
      } catch {
        // The first error is the one to tell.
      }
      throw error;
    }
  }

  /** What a failure means for what comes after it. @returns the error to tell */
  #failed(error: unknown): JournalError {
    const problem = problemOf(error, this.#options.directory);
    if (isDiskError(error)) this.#logInDoubt = true;
    if (isDamage(error)) {
      try {
        suspectDamage(this.#options.directory);
      } catch {
        // The next start will see it as this one did.
      }
      this.#giveUpWriting(problem);
    } else if (problem.code === "newer-version") {
      this.#giveUpWriting(problem);
    }
    return problem;
  }

  // ---- other programs -----------------------------------------------------------------------------------------------------------

  #watch(): void {
    if (this.#closed) return;
    this.#ticks += 1;
    if (this.#ticks % ticksPerTry === 0) this.#tryAgain();
    if (this.#tables === undefined || this.#file.db === undefined) return;
    try {
      if (this.#file.lease !== undefined) {
        this.#loseOrphans();
        if (performance.now() - this.#prunedAt >= retentionEveryMs) void this.prune().catch(() => undefined);
      }
      const version = pragma(this.#file.db, "data_version");
      if (version === this.#dataVersion) return;
      this.#dataVersion = version;
      // Another program wrote something; only what is in the chain concerns anybody.
      const newest = this.#tables.newest().number;
      if (newest === this.#newestSeen) return;
      this.#newestSeen = newest;
      this.#emit();
    } catch (error) {
      // A full or locked disk shows at the next append, where it matters; watching goes on.
      this.#failed(error);
    }
  }

  #loseOrphans(): void {
    const { directory } = this.#options;
    const { lease } = this.#file;
    if (lease === undefined || this.#tables === undefined) return;
    const gone = isGone(directory, lease.id);
    const { operations, owners } = findOrphans(this.#tables, gone);
    if (operations.length + owners.length === 0) return;
    // Looked at again inside the transaction: another program may have been quicker.
    this.#transaction(true, (tables) => loseOrphans(tables, directory, findOrphans(tables, gone), this.#now()));
    if (operations.length > 0) this.#emit();
  }

  // ---- leaving ------------------------------------------------------------------------------------------------------------------

  configure(settings: JournalSettings): void {
    this.#settings = settings;
    this.#prunedAt = -Infinity;
  }

  async prune(): Promise<number> {
    this.#prunedAt = performance.now();
    const { retention } = this.#settings;
    if (retention === undefined) return 0;
    let total = 0;
    try {
      for (let first = true; !this.#closed; first = false) {
        const pruned = this.#pruneSome(retention, first);
        if (pruned === 0) break;
        total += pruned;
        this.#checkpointWhenDue();
        await setImmediate();
      }
    } catch (error) {
      throw this.#failed(error);
    }
    if (total > 0) this.#emit();
    return total;
  }

  #pruneSome(retention: Retention, first: boolean): number {
    let pruned = 0;
    this.#transaction(false, (tables) => {
      const now = this.#now();
      if (first) tables.setClock("retention", retentionTime(now, tables.clock("retention") ?? tables.newest().at));
      const cutoff = retentionCutoff(tables.clock("retention") ?? now, retention);
      const leaving = tables.prunable(cutoff, retention.count, prunedTogether);
      if (leaving.length > 0) tables.prune(leaving, now);
      pruned = leaving.length;
    });
    this.#appends += pruned;
    return pruned;
  }

  // ---- reading ------------------------------------------------------------------------------------------------------------------

  operation(id: string): Promise<Operation | undefined> {
    return this.#read(undefined, (tables) => tables.operation(id));
  }

  operations(query: OperationQuery): Promise<readonly Operation[]> {
    return this.#read([], (tables) => tables.operations(query));
  }

  count(states: readonly OperationState[]): Promise<number> {
    return this.#read(0, (tables) => tables.count(states));
  }

  events(operationId: string): Promise<readonly OperationEvent[]> {
    return this.#read([], (tables) => tables.eventsOf(operationId));
  }

  /** The next page of entries after a number; empty at the end. */
  entriesAfter(number: number): Promise<readonly JournalEntry[]> {
    return this.#read([], (tables) => tables.entriesAfter(number));
  }

  entries(): AsyncIterable<JournalEntry> {
    return everyEntry((after) => this.entriesAfter(after));
  }

  allEvents(): AsyncIterable<OperationEvent> {
    return everyEvent(this.entries());
  }

  /** @param nothing what there is when the file cannot be read at all (`problem` says why) */
  async #read<T>(nothing: T, read: (tables: Tables) => T): Promise<T> {
    // What was appended before in this turn is written before this continues: a read sees it.
    if (this.#scheduled) await Promise.resolve();
    try {
      return this.#tables === undefined ? nothing : read(this.#tables);
    } catch (error) {
      throw this.#failed(error);
    }
  }

  // ---- ending -------------------------------------------------------------------------------------------------------------------

  onDidChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #emit(): void {
    for (const listener of this.#listeners) listener();
  }

  close(): Promise<void> {
    if (this.#closed) return Promise.resolve();
    this.#flush();
    this.#closed = true;
    clearInterval(this.#timer);
    this.#listeners.clear();
    const { lease } = this.#file;
    if (lease !== undefined) {
      try {
        // Nobody will hear the answers to what is still under way here.
        if (this.#logInDoubt) this.#renewLog();
        this.#transaction(true, (tables) => {
          const own = findOrphans(tables, (owner) => owner === lease.id);
          loseOrphans(tables, this.#options.directory, own, this.#now());
        });
      } catch {
        // Another program or the next start finds the lease given up.
      }
    }
    this.#shut();
    return Promise.resolve();
  }
}
