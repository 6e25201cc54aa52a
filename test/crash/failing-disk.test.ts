import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, describe, expect, it } from "vitest";
import type { OpenDatabase } from "../../src/operations/journal-file.ts";
import { openSqliteJournal } from "../../src/operations/sqlite-journal.ts";
import { temporaryFolder } from "../support/temp.ts";
import { mustHold } from "./invariants.ts";
import type { Ordered } from "./program.ts";
import { openOnWatchedDisk, watchDisk } from "./wasm-disk.ts";
import { workload, type Line } from "./workload.ts";

const compiled = temporaryFolder();
afterAll(() => compiled.remove());

async function inFolder<T>(run: (directory: string) => Promise<T>): Promise<T> {
  const folder = temporaryFolder();
  try {
    return await run(join(folder.path, "journal"));
  } finally {
    folder.remove();
  }
}

/**
 * Lives the workload while the disk or the database does as `openDatabase` says, then once more when all is well again.
 * @param well ends the failing
 * @returns what was said before and after
 */
async function live(directory: string, calls: number, openDatabase: OpenDatabase, well: () => void): Promise<Line[]> {
  const said: Line[] = [];
  const journal = openSqliteJournal({ directory, watchMs: 0, busyMs: 0, checkpointBytes: 100_000, openDatabase });
  await workload(journal, calls, (line) => said.push(line));
  well();
  // The person has mended it: the same journal, still open, takes the next call.
  const before = said.length;
  await workload(journal, 1, (line) => said.push(line), 1000);
  expect(said.slice(before, before + 2)).toMatchObject([{ durable: true }, { sends: "op1000" }]);
  await journal.close();
  return said;
}

/** What a failing disk did to a run: calls that could not be journaled and so were not sent. */
function refused(said: readonly Line[], calls: number): number {
  return calls - new Set(said.flatMap((line) => ("sends" in line && line.sends !== "op1000" ? [line.sends] : []))).size;
}

describe("a disk that fails", () => {
  const calls = 6;
  const diskError = Object.assign(new Error("EIO: i/o error"), { code: "EIO" });

  it.each([
    ["once", (count: number, n: number) => count === n],
    ["from then on", (count: number, n: number) => count >= n],
  ])("at the n-th write, sync, truncation or removal, %s, for every n", { timeout: 600_000 }, async (how, fails) => {
    let total = 0;
    const run = (n: number): Promise<number> =>
      inFolder(async (directory) => {
        let count = 0;
        const stop = watchDisk(() => {
          count += 1;
          if (n > 0 && fails(count, n)) throw diskError;
        });
        const well = (): void => {
          if (n === 0) total = count;
          stop();
        };
        const said = await live(directory, calls, openOnWatchedDisk, well);
        await mustHold(directory, said);
        return refused(said, calls);
      });
    expect(await run(0)).toBe(0);
    expect(total).toBeGreaterThan(200);
    let unsent = 0;
    for (let n = 1; n <= total; n++) unsent += await run(n);
    expect(unsent).toBeGreaterThan(0);
    console.log(`disk operation failed ${how}: ${total} runs, ${unsent} calls refused and not sent, nothing lost`);
  });

  it("at the n-th statement of node:sqlite, full, for every n", { timeout: 600_000 }, async () => {
    let total = 0;
    const run = (n: number): Promise<number> =>
      inFolder(async (directory) => {
        let count = 0;
        let failing = true;
        const step = (): void => {
          count += 1;
          if (failing && n > 0 && count >= n) throw Object.assign(new Error("database or disk is full"), { errcode: 13 });
        };
        const said = await live(
          directory,
          calls,
          (path, options) => failingDatabase(new DatabaseSync(path, options), step),
          () => {
            if (n === 0) total = count;
            failing = false;
          },
        );
        await mustHold(directory, said);
        return refused(said, calls);
      });
    expect(await run(0)).toBe(0);
    expect(total).toBeGreaterThan(150);
    let unsent = 0;
    for (let n = 1; n <= total; n++) unsent += await run(n);
    console.log(`statement failed as on a full disk: ${total} runs, ${unsent} calls refused and not sent, nothing lost`);
  });

  it("by being full at every size of the database", { timeout: 600_000 }, async () => {
    let unsent = 0;
    let runs = 0;
    for (let pages = 1; ; pages++) {
      const missing = await inFolder(async (directory) => {
        const open: DatabaseSync[] = [];
        const limit = (to: number): void => {
          for (const db of open) if (db.isOpen) db.exec(`PRAGMA max_page_count=${to}`);
        };
        let most = pages;
        const said = await live(
          directory,
          calls,
          (path, options) => {
            const db = new DatabaseSync(path, options);
            open.push(db);
            if (options.readOnly !== true) db.exec(`PRAGMA max_page_count=${most}`);
            return db;
          },
          () => limit((most = 1_000_000)),
        );
        await mustHold(directory, said);
        return refused(said, calls);
      });
      runs += 1;
      unsent += missing;
      if (missing === 0 && pages > 20) break;
    }
    console.log(`database full at every size: ${runs} runs, ${unsent} calls refused and not sent, nothing lost`);
  });

  // The limit is the shell's, in units of 512 bytes; Windows has none.
  it.skipIf(process.platform === "win32")("by letting no file grow further, at every size", { timeout: 600_000 }, async () => {
    let runs = 0;
    let unsent = 0;
    for (let units = 0; ; units += 4) {
      const missing = await inFolder(async (directory) => {
        const order: Ordered = { mode: "statements", directory, calls };
        const child = spawn(
          "sh",
          [
            "-c",
            `ulimit -f ${units}; exec "$0" "$@"`,
            process.execPath,
            join(import.meta.dirname, "program.ts"),
            JSON.stringify(order),
          ],
          { stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, NODE_COMPILE_CACHE: compiled.path } },
        );
        let text = "";
        child.stdout.setEncoding("utf8").on("data", (more: string) => (text += more));
        const [code] = (await once(child, "close")) as [number | null];
        expect([units, code]).toEqual([units, 0]);
        const lines = text
          .trimEnd()
          .split("\n")
          .map((line) => JSON.parse(line) as Line);
        await mustHold(directory, lines);
        return refused(lines, calls);
      });
      runs += 1;
      unsent += missing;
      if (missing === 0) break;
    }
    console.log(`files that may not grow, at every size: ${runs} runs, ${unsent} calls refused and not sent, nothing lost`);
  });

  it("by being read-only for a while", { timeout: 600_000 }, async () => {
    await inFolder(async (directory) => {
      const open: DatabaseSync[] = [];
      const said: Line[] = [];
      const journal = openSqliteJournal({
        directory,
        watchMs: 0,
        openDatabase: (path, options) => {
          const db = new DatabaseSync(path, options);
          open.push(db);
          return db;
        },
      });
      const readOnly = (on: boolean): void => {
        for (const db of open) if (db.isOpen) db.exec(`PRAGMA query_only=${on ? "ON" : "OFF"}`);
      };
      await workload(journal, calls, (line) => said.push(line));
      readOnly(true);
      const before = said.length;
      await workload(journal, calls, (line) => said.push(line), 100);
      expect(said.slice(before)).toEqual([{ pruning: true }]);
      await expect(journal.append([], { durable: true })).rejects.toMatchObject({
        code: "unwritable",
        message: expect.stringContaining("no permission") as string,
      });
      expect(await journal.operations({ states: ["unresolved"] })).toHaveLength(1);
      readOnly(false);
      await workload(journal, calls, (line) => said.push(line), 200);
      expect(said.filter((line) => "sends" in line && Number(line.sends.slice(2)) >= 200)).toHaveLength(calls + 1);
      await journal.close();
      await mustHold(directory, said);
    });
  });
});

/** Each statement of a database is a step. */
function failingDatabase(db: DatabaseSync, step: () => void): DatabaseSync {
  const exec = db.exec.bind(db);
  db.exec = (sql) => {
    // What undoes a transaction writes nothing.
    if (!sql.startsWith("ROLLBACK")) step();
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
