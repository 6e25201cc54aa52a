/**
 * Owns: a program with the real journal that lives the workload and is killed in the midst of it, for kill.test.ts.
 * It says its lines on standard output, each before the next thing is done.
 */
import { writeSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import type { OpenDatabase } from "../../src/operations/journal-file.ts";
import { openSqliteJournal } from "../../src/operations/sqlite-journal.ts";
import { openJournal } from "../../src/operations/worker-journal.ts";
import { workload } from "./workload.ts";

export interface Ordered {
  /** `statements`: node:sqlite, counted by statement; `writes`: the watched disk, counted by write; `thread`: until somebody kills it. */
  readonly mode: "statements" | "writes" | "thread";
  readonly directory: string;
  readonly calls: number;
  /** Dies just before this one, counted from 1. */
  readonly dieAt?: number;
}

const { mode, directory, calls, dieAt } = JSON.parse(process.argv[2] ?? "{}") as Ordered;
const say = (line: unknown): void => {
  for (;;) {
    try {
      writeSync(1, `${JSON.stringify(line)}\n`);
      return;
    } catch (error) {
      // The pipe is full: said is said only when it is in there.
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
    }
  }
};

let count = 0;
function step(): void {
  count += 1;
  if (count === dieAt) process.kill(process.pid, "SIGKILL");
}

if (mode === "thread") {
  const journal = await openJournal({ directory, watchMs: 20 });
  for (let first = 0; ; first += calls) await workload(journal, calls, say, first);
} else {
  let openDatabase: OpenDatabase = (path, options) => counted(new DatabaseSync(path, options));
  if (mode === "writes") {
    const disk = await import("./wasm-disk.ts");
    disk.watchDisk(step);
    openDatabase = disk.openOnWatchedDisk;
  }
  const journal = openSqliteJournal({ directory, watchMs: 0, checkpointBytes: 100_000, openDatabase });
  await workload(journal, calls, say);
  await journal.close();
  say({ count });
}

/** Each statement of a database is a step. */
function counted(db: DatabaseSync): DatabaseSync {
  const exec = db.exec.bind(db);
  db.exec = (sql) => {
    step();
    exec(sql);
  };
  const prepare = db.prepare.bind(db);
  db.prepare = (sql) => {
    const statement = prepare(sql);
    for (const method of ["run", "get", "all"] as const) {
      const real = statement[method].bind(statement) as (...args: unknown[]) => never;
      statement[method] = (...args: unknown[]) => {
        step();
        return real(...args);
      };
    }
    return statement;
  };
  return db;
}
