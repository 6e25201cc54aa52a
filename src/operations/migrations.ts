/**
 * Owns: the journal file's format and the way from each format to the next, forward only.
 * A change of what the events derive (model.ts `apply`) needs a step that derives the operations table again.
 * Leaves to others: the copy that is kept before (journal-file.ts).
 */
import type { DatabaseSync } from "node:sqlite";
import { chainStart, link, type ChainRow } from "./chain.ts";

/** Marks the file as ours ("MSRJ"), so that a foreign database is never written to. */
export const applicationId = 0x4d53524a;

type Step = (db: DatabaseSync) => void;

const steps: readonly Step[] = [
  (db) =>
    db.exec(`
      CREATE TABLE events (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        operation_id TEXT NOT NULL,
        type TEXT NOT NULL,
        actor TEXT NOT NULL,
        at INTEGER NOT NULL,
        data TEXT NOT NULL
      );
      CREATE INDEX events_by_operation ON events (operation_id, number);
      CREATE TABLE operations (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        server TEXT NOT NULL,
        tool TEXT NOT NULL,
        digest TEXT NOT NULL,
        state TEXT NOT NULL,
        intention TEXT NOT NULL,
        derived TEXT NOT NULL,
        answer TEXT,
        owner TEXT NOT NULL
      );
      CREATE INDEX operations_by_state ON operations (state, number);
      CREATE INDEX operations_by_digest ON operations (digest, number);
      CREATE INDEX operations_by_owner ON operations (owner, state);
      CREATE TABLE owners (id TEXT PRIMARY KEY, pid INTEGER NOT NULL, started TEXT NOT NULL, heartbeat INTEGER NOT NULL);`),
  // The hash chain, what retention needs, and leases in place of process ids and heartbeats.
  (db) => {
    db.exec(`
      ALTER TABLE events RENAME TO unchained;
      DROP INDEX events_by_operation;
      CREATE TABLE events (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        operation_id TEXT NOT NULL,
        type TEXT NOT NULL,
        actor TEXT NOT NULL,
        at INTEGER NOT NULL,
        data TEXT NOT NULL,
        hash TEXT NOT NULL
      );
      CREATE TABLE gaps (first INTEGER PRIMARY KEY, last INTEGER NOT NULL UNIQUE, hash TEXT NOT NULL);
      CREATE TABLE clocks (name TEXT PRIMARY KEY, at INTEGER NOT NULL);
      ALTER TABLE operations ADD COLUMN updated INTEGER NOT NULL DEFAULT 0;
      UPDATE operations SET updated = json_extract(derived, '$.updatedAt');
      DROP INDEX operations_by_owner;
      DROP TABLE owners;
      CREATE TABLE owners (id TEXT PRIMARY KEY, pid INTEGER NOT NULL, opened INTEGER NOT NULL);`);
    const add = db.prepare("INSERT INTO events (number, operation_id, type, actor, at, data, hash) VALUES (?, ?, ?, ?, ?, ?, ?)");
    let number = 0;
    let hash = chainStart;
    for (const old of db.prepare("SELECT * FROM unchained ORDER BY number").iterate() as unknown as Iterable<ChainRow>) {
      // Numbers without a hole: one that is missing later was removed.
      const row = { ...old, number: ++number };
      hash = link(hash, row);
      add.run(row.number, row.operation_id, row.type, row.actor, row.at, row.data, hash);
    }
    db.exec("DROP TABLE unchained; CREATE INDEX events_by_operation ON events (operation_id, number);");
  },
  // A contradicted settlement is found however old it is.
  (db) => db.exec("CREATE INDEX operations_in_conflict ON operations (number) WHERE json_extract(derived, '$.conflict')"),
];

/** The format that this version writes (PRAGMA user_version). */
export const schemaVersion = steps.length;

/**
 * Brings a file from one format to another, each step in a transaction of its own: a crash leaves one format or the next. A new file is
 * made in one: one that was never finished is not taken for a journal of an older format.
 */
export function migrate(db: DatabaseSync, from: number, to = schemaVersion): void {
  for (let next = from; next < to;) {
    const end = from === 0 ? to : next + 1;
    db.exec("BEGIN EXCLUSIVE");
    try {
      for (const step of steps.slice(next, end)) step(db);
      db.exec(`PRAGMA application_id=${applicationId}; PRAGMA user_version=${end}`);
      db.exec("COMMIT");
    } catch (error) {
      if (db.isTransaction) db.exec("ROLLBACK");
      throw error;
    }
    next = end;
  }
}
