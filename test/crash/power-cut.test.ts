import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openSqliteJournal } from "../../src/operations/sqlite-journal.ts";
import { temporaryFolder } from "../support/temp.ts";
import { mustHold } from "./invariants.ts";
import { Disk } from "./disk.ts";
import { openOnWatchedDisk, watchDisk, type DiskOperation } from "./wasm-disk.ts";
import { workload, type Line } from "./workload.ts";

let folder: ReturnType<typeof temporaryFolder>;
let places = 0;
beforeEach(() => (folder = temporaryFolder()));
afterEach(() => folder.remove());

/** A fresh place for a journal's files. */
function place(): string {
  const path = join(folder.path, String(++places));
  mkdirSync(path, { mode: 0o700 });
  return path;
}

/** What the disk was asked to do and what the program said, in the order in which it happened. */
type Recorded = DiskOperation | { readonly kind: "said"; readonly line: Line };

async function record(calls: number): Promise<readonly Recorded[]> {
  const recorded: Recorded[] = [];
  const directory = place();
  const stop = watchDisk((operation) => recorded.push(operation));
  const journal = openSqliteJournal({ directory, watchMs: 0, checkpointBytes: 100_000, openDatabase: openOnWatchedDisk });
  expect(journal.problem).toBeUndefined();
  await workload(journal, calls, (line) => recorded.push({ kind: "said", line }));
  await journal.close();
  stop();
  return recorded;
}

/** The same numbers in every run (Mulberry32): a failure can be seen again. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

async function holdsWith(files: ReadonlyMap<string, Buffer>, said: readonly Line[], powerCut: boolean): Promise<void> {
  const directory = place();
  for (const [name, content] of files) writeFileSync(join(directory, name), content, { mode: 0o600 });
  await mustHold(directory, said, powerCut);
  rmSync(directory, { recursive: true });
}

describe("a power cut", () => {
  it("at every write and sync loses nothing that was acknowledged as durable", { timeout: 600_000 }, async () => {
    const recorded = await record(12);
    const disk = new Disk();
    const said: Line[] = [];
    let cuts = 0;
    for (const [index, one] of recorded.entries()) {
      if (one.kind === "said") {
        said.push(one.line);
        continue;
      }
      disk.do(one);
      const dice = random(index);
      // Nothing that was not synced; some of it, in any order; some of it torn in the middle.
      const worlds = [() => 0, () => Math.round(dice()), () => (dice() < 0.5 ? dice() : Math.round(dice()))];
      for (const survives of worlds) {
        await holdsWith(disk.content(survives), said, true);
        cuts += 1;
      }
    }
    const operations = recorded.filter((one) => one.kind !== "said").length;
    expect(operations).toBeGreaterThan(400);
    console.log(`power cut after each of ${operations} disk operations, ${cuts} states of the disk: nothing lost`);
  });
});

describe("a sync that fails", () => {
  /** Runs the workload; the n-th sync fails, and what it should have brought to the disk never gets there (the system says so only once). */
  async function run(n: number): Promise<{ syncs: number; said: readonly Line[]; disk: Disk }> {
    const disk = new Disk();
    const said: Line[] = [];
    let syncs = 0;
    const stop = watchDisk((operation) => {
      if (operation.kind === "sync") syncs += 1;
      if (operation.kind === "sync" && syncs === n) {
        disk.forget(operation.file);
        throw Object.assign(new Error("EIO: i/o error"), { code: "EIO" });
      }
      disk.do(operation);
    });
    const journal = openSqliteJournal({
      directory: place(),
      watchMs: 0,
      checkpointBytes: 100_000,
      openDatabase: openOnWatchedDisk,
    });
    await workload(journal, 12, (line) => said.push(line));
    for (const last of [1000, 1001]) await workload(journal, 1, (line) => said.push(line), last);
    stop();
    expect(said.some((line) => "sends" in line && Number(line.sends.slice(2)) >= 1000)).toBe(true);
    // The power goes before the journal is closed.
    const there = { syncs, said: [...said], disk };
    await journal.close();
    return there;
  }

  it("takes nothing with it that is acknowledged later, for every sync", { timeout: 600_000 }, async () => {
    const { syncs } = await run(0);
    expect(syncs).toBeGreaterThan(20);
    for (let n = 1; n <= syncs; n++) {
      const { said, disk } = await run(n);
      await holdsWith(
        disk.content(() => 0),
        said,
        true,
      );
    }
    console.log(`each of ${syncs} syncs failed and lost what it was for: nothing lost that was acknowledged`);
  });
});

describe("a write-ahead log of node:sqlite", () => {
  it("that ends anywhere, or in rubbish, still holds all that was acknowledged by then", { timeout: 600_000 }, async () => {
    const directory = place();
    const file = join(directory, "journal.sqlite");
    const log = `${file}-wal`;
    const journal = openSqliteJournal({ directory, watchMs: 0 });
    // Everything from here on is in the log: it is far from its thousand pages.
    copyFileSync(file, join(folder.path, "before"));
    const said: { line: Line; bytes: number }[] = [];
    await workload(journal, 6, (line) => said.push({ line, bytes: readFileSync(log).length }));
    const whole = readFileSync(log);
    const database = readFileSync(file);
    expect(database.equals(readFileSync(join(folder.path, "before")))).toBe(true);
    await journal.close();

    const frame = 24 + 4096;
    const cuts = new Set<number>([0, 16, 32]);
    for (let at = 32; at < whole.length; at += frame) {
      for (const within of [0, 12, 24 + 512, frame - 1]) if (at + within <= whole.length) cuts.add(at + within);
    }
    let states = 0;
    for (const cut of cuts) {
      const heard = said.filter(({ bytes }) => bytes <= cut).map(({ line }) => line);
      const rubbish = Buffer.from(whole);
      const dice = random(cut);
      for (let at = cut; at < rubbish.length; at++) rubbish[at] = Math.floor(dice() * 256);
      for (const content of [whole.subarray(0, cut), rubbish]) {
        await holdsWith(
          new Map([
            ["journal.sqlite", database],
            ["journal.sqlite-wal", content],
          ]),
          heard,
          false,
        );
        states += 1;
      }
    }
    console.log(`log cut short or overwritten at ${cuts.size} places, ${states} states of it: nothing lost`);
  });
});
