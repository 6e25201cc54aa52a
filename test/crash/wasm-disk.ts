/**
 * Owns: a disk that a test rules. SQLite (the same release as in node:sqlite, compiled to WebAssembly) reaches its files through calls of
 * `node:fs`, so that every single write, sync, truncation and removal of the journal's file and log can be counted, recorded, refused, or be the last.
 * It stands in for node:sqlite under the real journal, by the journal's `openDatabase`.
 */
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { basename } from "node:path";
import type { DatabaseSync, SQLInputValue } from "node:sqlite";
import sqlite from "node-sqlite3-wasm";
import type { OpenDatabase } from "../../src/operations/journal-file.ts";

/** What the disk is asked to do, in order. */
export type DiskOperation =
  | { readonly kind: "write"; readonly file: string; readonly offset: number; readonly bytes: Buffer }
  | { readonly kind: "truncate"; readonly file: string; readonly size: number }
  /** `file` "." is the folder: what was removed stays removed. */
  | { readonly kind: "sync"; readonly file: string }
  | { readonly kind: "remove"; readonly file: string };

/** Called before each operation is done; what it throws is what the operation fails with. */
export type Watcher = (operation: DiskOperation) => void;

let watcher: Watcher | undefined;

/** Lets `watch` see every operation on journal files until it is called off. */
export function watchDisk(watch: Watcher): () => void {
  watcher = watch;
  return () => {
    watcher = undefined;
  };
}

const journalFile = /^journal\.sqlite(-wal|-journal)?$/;
const names = new Map<number, string>();

const real = { ...fs };
type Fs = Record<string, (...args: never[]) => unknown>;
const patched = fs as unknown as Fs;
patched["openSync"] = (path: string, ...rest: never[]) => {
  const descriptor = real.openSync(path, ...(rest as unknown as [string]));
  if (journalFile.test(basename(path))) names.set(descriptor, basename(path));
  else if (real.fstatSync(descriptor).isDirectory()) names.set(descriptor, ".");
  return descriptor;
};
patched["closeSync"] = (descriptor: number) => {
  names.delete(descriptor);
  real.closeSync(descriptor);
};
patched["writeSync"] = (descriptor: number, bytes: Buffer, from: number, length: number, offset: number) => {
  const file = names.get(descriptor);
  if (file !== undefined) watcher?.({ kind: "write", file, offset, bytes: Buffer.from(bytes.subarray(from, from + length)) });
  return real.writeSync(descriptor, bytes, from, length, offset);
};
patched["ftruncateSync"] = (descriptor: number, size: number) => {
  const file = names.get(descriptor);
  if (file !== undefined) watcher?.({ kind: "truncate", file, size });
  real.ftruncateSync(descriptor, size);
};
patched["fsyncSync"] = (descriptor: number) => {
  const file = names.get(descriptor);
  if (file !== undefined) watcher?.({ kind: "sync", file });
  // The order is what counts here, not the real disk's time.
};
// Its one kind of lock is a folder, and it takes its own for another program's half-done write, which it would leave half-done.
patched["accessSync"] = (path: string, mode?: number) => {
  if (path.endsWith(".lock")) throw Object.assign(new Error("ENOENT"), { code: "ENOENT" });
  real.accessSync(path, mode);
};
patched["unlinkSync"] = (path: string) => {
  if (journalFile.test(basename(path))) watcher?.({ kind: "remove", file: basename(path) });
  real.unlinkSync(path);
};

// The journal's own calls go the same way.
syncBuiltinESMExports();

/** SQLite's result codes by the messages that it gives for them (sqlite.org/rescode.html). */
const codes: readonly (readonly [RegExp, number])[] = [
  [/locked/, 5],
  [/readonly/, 8],
  [/I\/O error/, 10],
  [/malformed/, 11],
  [/disk is full/, 13],
  [/not open|unable to open/i, 14],
  [/constraint/, 19],
  [/not a database/, 26],
];

function coded<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    throw Object.assign(error as Error, { errcode: codes.find(([text]) => text.test(message))?.[1] ?? 1 });
  }
}

/** As node:sqlite's. One connection at a time: there is no shared memory here, so the log is kept with an exclusive lock. */
export const openOnWatchedDisk: OpenDatabase = (path, { readOnly = false }) => {
  const db = coded(() => new sqlite.Database(path, { readOnly }));
  const statements: { finalize(): void; readonly isFinalized: boolean }[] = [];
  const double = {
    get isOpen() {
      return db.isOpen;
    },
    get isTransaction() {
      return db.inTransaction;
    },
    exec(sql: string) {
      coded(() => db.exec(sql));
    },
    prepare(sql: string) {
      const statement = coded(() => db.prepare(sql));
      statements.push(statement);
      const all = (...values: SQLInputValue[]) => coded(() => statement.all(values as never));
      return {
        all,
        get: (...values: SQLInputValue[]) => all(...values)[0],
        iterate: (...values: SQLInputValue[]) => all(...values)[Symbol.iterator](),
        run: (...values: SQLInputValue[]) => coded(() => statement.run(values as never)),
      };
    },
    close() {
      for (const statement of statements) {
        try {
          if (!statement.isFinalized) statement.finalize();
        } catch {
          // It tells the error that its last step had.
        }
      }
      db.close();
    },
  };
  double.exec("PRAGMA locking_mode=EXCLUSIVE");
  return double as unknown as DatabaseSync;
};
