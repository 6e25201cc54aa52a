import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, it } from "vitest";
import { setAsideAndSalvage } from "../../../src/operations/salvage.ts";
import { openSqliteJournal } from "../../../src/operations/sqlite-journal.ts";
import { verifyJournal } from "../../../src/operations/verify.ts";
import { all, answered, attemptStart, intention, lost, makeEvent } from "../journal-contract.ts";
import { closing, fileOf, journalFolder, Program } from "./journal-support.ts";

const page = 4096;
const now = Date.UTC(2026, 0, 2, 3, 4, 5);
const open = (directory: string) => closing(openSqliteJournal({ directory, watchMs: 0, now: () => now }));
const asides = (directory: string): readonly string[] =>
  readdirSync(directory).filter((name) => /^journal\.damaged-.*\.sqlite$/.test(name));

/** 60 operations of three events and some size: every third unresolved, the others completed. */
async function fill(): Promise<string> {
  const directory = journalFolder();
  const journal = openSqliteJournal({ directory, watchMs: 0 });
  for (let i = 0; i < 60; i++) {
    const id = `op${String(i).padStart(2, "0")}`;
    const about = intention({ arguments: { note: id.repeat(100) } });
    await journal.append([makeEvent(id, "prepared", about), makeEvent(id, "sent", attemptStart())], { durable: false });
    await journal.append([i % 3 === 0 ? makeEvent(id, "lost", lost) : makeEvent(id, "answered", answered())], { durable: false });
  }
  await journal.close();
  return directory;
}

/** Overwrites a part of the journal's file. */
function damage(directory: string, from: number, length: number, byte: number): void {
  const content = readFileSync(fileOf(directory));
  content.fill(byte, from, from + length);
  writeFileSync(fileOf(directory), content);
}

/** A page that holds rows of a table (SQLite file format, section 1.6: a table leaf is 0x0d). */
function leafWith(directory: string, text: string): number {
  const content = readFileSync(fileOf(directory));
  for (let at = page; at < content.length; at += page) {
    if (content[at] === 0x0d && content.subarray(at, at + page).includes(text)) return at;
  }
  throw new Error(`no page with ${text}`);
}

describe("a damaged journal", () => {
  it.each([
    ["with its header lost", 0, 100, 0],
    ["with its first page lost", 0, page, 0],
    ["with its first page's mark damaged", 0, 40, 0x41],
  ])("%s is set aside untouched, and everything in it is kept", async (_what, from, length, byte) => {
    const directory = await fill();
    damage(directory, from, length, byte);
    const before = readFileSync(fileOf(directory));
    const journal = open(directory);
    expect(journal.problem).toBeUndefined();
    expect(asides(directory)).toEqual(["journal.damaged-20260102T030405Z.sqlite"]);
    const aside = join(directory, "journal.damaged-20260102T030405Z.sqlite");
    expect(readFileSync(aside).equals(before)).toBe(true);
    expect(journal.notice).toContain(
      `It was set aside as ${aside}. 60 operations could be read and are kept, 0 entries could not.`,
    );
    expect(await journal.count(["unresolved"])).toBe(20);
    expect(await journal.count(["completed"])).toBe(40);
    expect((await all(journal.entries())).find((entry) => entry.type === "salvaged")).toMatchObject({
      data: { operations: 60, events: 180, unreadable: 0 },
    });
    await journal.append([makeEvent("new", "prepared", intention())], { durable: true });
    await journal.close();
    expect(await verifyJournal(directory)).toMatchObject({ ok: true });
    expect(statSync(fileOf(directory)).mode & 0o777).toBe(0o600);
    expect(open(directory).notice).toBeUndefined();
  });

  it("with a page of events lost keeps the others, and every operation in doubt as unresolved", async () => {
    const directory = await fill();
    damage(directory, leafWith(directory, "op30op30op30"), page, 0);
    const journal = open(directory);
    // Found when it is read, set aside at the next write.
    await expect(all(journal.entries())).rejects.toMatchObject({ code: "damaged" });
    expect(journal.problem).toMatchObject({ code: "damaged" });
    await journal.append([makeEvent("new", "prepared", intention())], { durable: true });
    expect(journal.problem).toBeUndefined();
    expect(journal.notice).toContain("Look through the unresolved operations");
    const unresolved = (await journal.operations({ states: ["unresolved"] })).map((one) => one.id);
    for (let i = 0; i < 60; i += 3) expect(unresolved).toContain(`op${String(i).padStart(2, "0")}`);
    expect(await journal.count(["completed"])).toBeGreaterThan(30);
    expect(await verifyJournal(directory)).toMatchObject({ ok: true });
  });

  it("with a page of operations lost makes them anew from their events", async () => {
    const directory = await fill();
    const journal = open(directory);
    await journal.close();
    const db = new DatabaseSync(fileOf(directory));
    const { rootpage } = db.prepare("SELECT rootpage FROM sqlite_master WHERE name = 'operations'").get() as { rootpage: number };
    db.close();
    damage(directory, (rootpage - 1) * page, page, 0xff);
    const again = open(directory);
    await expect(again.operations({})).rejects.toMatchObject({ code: "damaged" });
    await again.append([makeEvent("op00", "held", { verdict: [] })], { durable: true });
    expect(again.notice).toContain("60 operations could be read");
    expect(await again.count(["unresolved"])).toBe(20);
  });

  it("cut short keeps what is left, and never closes what was open", async () => {
    const directory = await fill();
    const content = readFileSync(fileOf(directory));
    writeFileSync(fileOf(directory), content.subarray(0, Math.floor(content.length / page / 2) * page));
    const journal = open(directory);
    expect(journal.problem).toBeUndefined();
    expect(journal.notice).toMatch(/was damaged/);
    for (const operation of await journal.operations({})) {
      if (Number(operation.id.slice(2)) % 3 === 0) expect(operation.state).toBe("unresolved");
    }
    expect(await verifyJournal(directory)).toMatchObject({ ok: true });
  });

  it("keeps what was only in the write-ahead log", async () => {
    const directory = await fill();
    const program = await Program.start({ directory, inProcess: true });
    await program.ask("append", [makeEvent("late", "prepared", intention()), makeEvent("late", "sent", attemptStart())], {
      durable: true,
    });
    await program.kill();
    damage(directory, 0, 100, 0);
    const journal = open(directory);
    expect(await journal.operation("late")).toMatchObject({ state: "unresolved", reason: "process-ended" });
    expect(await journal.count(["unresolved"])).toBe(21);
  });

  it("is left in place while another program has it open, and set aside when that is gone", async () => {
    const directory = await fill();
    const program = await Program.start({ directory });
    damage(directory, 0, 100, 0);
    const journal = open(directory);
    expect(journal.problem).toMatchObject({
      code: "damaged",
      message: expect.stringContaining("Close every other window") as string,
    });
    await expect(journal.append([makeEvent("a", "prepared", intention())], { durable: true })).rejects.toMatchObject({
      code: "damaged",
    });
    expect(asides(directory)).toEqual([]);
    await program.kill();
    await expect(journal.append([makeEvent("a", "prepared", intention())], { durable: true })).resolves.toHaveLength(1);
    expect(journal.notice).toContain("60 operations");
  });

  it("is mended though the program dies at any step of it", async () => {
    const directory = await fill();
    damage(directory, 0, 100, 0);
    const damaged = readFileSync(fileOf(directory));
    const aside = join(directory, "journal.damaged-x.sqlite");
    const marker = join(directory, "journal.damaged");
    const steps: (() => void)[] = [
      // The set-aside has a name, nothing was moved.
      () => writeFileSync(fileOf(directory), damaged),
      // Moved, and a half-made fresh journal lies there.
      () => {
        writeFileSync(aside, damaged);
        writeFileSync(join(directory, "journal.salvage.sqlite"), "half");
      },
      // The fresh journal is in place; only the marker is left.
      () => {
        writeFileSync(aside, damaged);
        writeFileSync(marker, "journal.damaged-x.sqlite");
        setAsideAndSalvage(directory, now);
      },
    ];
    for (const step of steps) {
      for (const path of [fileOf(directory), aside, marker]) rmSync(path, { force: true });
      step();
      writeFileSync(marker, "journal.damaged-x.sqlite");
      const journal = open(directory);
      expect(await journal.count(["unresolved"])).toBe(20);
      expect(readFileSync(aside).equals(damaged)).toBe(true);
      expect(existsSync(marker)).toBe(false);
      await journal.close();
    }
  });

  it("was not damaged after all: a suspicion is looked into and forgotten", async () => {
    const directory = await fill();
    writeFileSync(join(directory, "journal.damaged"), "");
    const journal = open(directory);
    expect([journal.problem, journal.notice]).toEqual([undefined, undefined]);
    expect(asides(directory)).toEqual([]);
    expect(existsSync(join(directory, "journal.damaged"))).toBe(false);
  });
});
