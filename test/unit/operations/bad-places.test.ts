import { chmodSync, chownSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { openSqliteJournal } from "../../../src/operations/sqlite-journal.ts";
import { intention, makeEvent } from "../journal-contract.ts";
import { closing, fileOf, journalFolder, Program } from "./journal-support.ts";

const prepared = [makeEvent("new", "prepared", intention())];
const root = process.getuid?.() === 0;
const nobody = 65_534;

/** A journal with one operation in it. */
async function filled(): Promise<string> {
  const directory = journalFolder();
  const journal = openSqliteJournal({ directory, watchMs: 0 });
  await journal.append([makeEvent("old", "prepared", intention())], { durable: true });
  await journal.append([makeEvent("old", "refused", { reason: "not-sent" })], { durable: true });
  await journal.close();
  return directory;
}

/** Leaves the program that the test starts just these rights (`r`, `rx`, …): its own, or as root those of a group that it is in. */
function leave(rights: string, path: string): void {
  const bits = (rights.includes("r") ? 4 : 0) + (rights.includes("w") ? 2 : 0) + (rights.includes("x") ? 1 : 0);
  if (root) chownSync(path, 0, nobody);
  chmodSync(path, root ? bits << 3 : bits << 6);
}

/** What a program without more rights makes of it: one clear problem, refused appends, and what it can read. */
async function opened(directory: string): Promise<{ code: string; message: string; read: number }> {
  const program = await Program.start({ directory, inProcess: true, asNobody: true });
  const problem = await program.problem();
  await expect(program.ask("append", prepared, { durable: true })).rejects.toMatchObject({
    name: "JournalError",
    code: problem?.code,
  });
  const operations = await program.ask("operations", {});
  await program.kill();
  return { code: problem?.code ?? "", message: problem?.message ?? "", read: operations.length };
}

// Windows has other rights than these.
describe.skipIf(process.platform === "win32")("a journal in a bad place", () => {
  it("in a folder that may not be written to says so, and can be read", async () => {
    const directory = await filled();
    leave("rx", dirname(directory));
    leave("r", fileOf(directory));
    leave("rx", directory);
    const found = await opened(directory);
    chmodSync(directory, 0o700);
    chmodSync(dirname(directory), 0o700);
    expect(found).toMatchObject({ code: "unwritable", read: 1 });
    expect(found.message).toBe(
      `The operation journal cannot be written: no permission. Give yourself the right to write to ${directory} and the files in it. Until then nothing is sent that is not a proven read.`,
    );
  });

  it("in a folder that cannot even be looked into says so", async () => {
    const directory = await filled();
    leave("", dirname(directory));
    const found = await opened(directory);
    chmodSync(dirname(directory), 0o700);
    expect(found).toMatchObject({ code: "unwritable", message: expect.stringContaining("no permission") as string, read: 0 });
  });
});

describe("a journal in a bad place", () => {
  it("with a file where its folder should be says so, and opens when the way is free", async () => {
    const directory = journalFolder();
    writeFileSync(directory, "");
    for (const place of [directory, join(directory, "deeper")]) {
      const journal = closing(openSqliteJournal({ directory: place, watchMs: 0 }));
      expect(journal.problem).toMatchObject({
        code: "unwritable",
        message: expect.stringContaining("a file is in its way") as string,
      });
      await expect(journal.append(prepared, { durable: true })).rejects.toMatchObject({ code: "unwritable" });
      expect(await journal.operations({})).toEqual([]);
    }
    const journal = closing(openSqliteJournal({ directory, watchMs: 0 }));
    rmSync(directory);
    await expect(journal.append(prepared, { durable: true })).resolves.toHaveLength(1);
    expect(journal.problem).toBeUndefined();
  });

  it("is opened by itself once nothing stands in its way any more", async () => {
    const directory = journalFolder();
    writeFileSync(directory, "");
    const journal = closing(openSqliteJournal({ directory, watchMs: 5 }));
    expect(journal.problem).toBeDefined();
    const told = new Promise<void>((done) => journal.onDidChange(done));
    rmSync(directory);
    await told;
    expect(journal.problem).toBeUndefined();
  });

  it("makes a missing folder, its parents too", async () => {
    const directory = join(journalFolder(), "a", "b");
    const journal = closing(openSqliteJournal({ directory, watchMs: 0 }));
    expect(journal.problem).toBeUndefined();
    await journal.append(prepared, { durable: true });
  });

  it("with a folder where its file should be says so", () => {
    const directory = journalFolder();
    mkdirSync(fileOf(directory), { recursive: true });
    expect(closing(openSqliteJournal({ directory, watchMs: 0 })).problem).toMatchObject({ code: "unwritable" });
  });
});
