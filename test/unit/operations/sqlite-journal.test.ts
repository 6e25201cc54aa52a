import { chmodSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, it } from "vitest";
import { schemaVersion } from "../../../src/operations/migrations.ts";
import { openSqliteJournal } from "../../../src/operations/sqlite-journal.ts";
import { openJournal } from "../../../src/operations/worker-journal.ts";
import { attemptStart, intention, journalContract, makeEvent } from "../journal-contract.ts";
import { temporaryFolder } from "../../support/temp.ts";
import { closing, fileOf, journalFolder, tamper } from "./journal-support.ts";

const open = (directory: string) => closing(openSqliteJournal({ directory, watchMs: 0, busyMs: 50 }));
const prepared = (id: string) => makeEvent(id, "prepared", intention());
const durable = { durable: true };

journalContract("SQLite", () => {
  const folder = temporaryFolder();
  return {
    open: (settings) => Promise.resolve(openSqliteJournal({ directory: folder.path, watchMs: 0, ...settings })),
    remove: () => folder.remove(),
  };
});

journalContract("SQLite in a thread of its own", () => {
  const folder = temporaryFolder();
  return {
    open: (settings) => openJournal({ directory: folder.path, watchMs: 0, ...settings }),
    remove: () => folder.remove(),
  };
});

describe("the SQLite journal", () => {
  it("is private to the user: folders, file and side files", async () => {
    const directory = journalFolder();
    const journal = open(directory);
    await journal.append([prepared("a")], durable);
    for (const name of [".", "leases"]) expect([name, statSync(join(directory, name)).mode & 0o777]).toEqual([name, 0o700]);
    for (const name of ["journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"]) {
      expect([name, statSync(join(directory, name)).mode & 0o777]).toEqual([name, 0o600]);
    }
  });

  it("makes a folder and file private that were there before", async () => {
    const directory = journalFolder();
    await open(directory).close();
    chmodSync(directory, 0o755);
    chmodSync(fileOf(directory), 0o644);
    await open(directory).append([prepared("a")], durable);
    expect([statSync(directory).mode & 0o777, statSync(fileOf(directory)).mode & 0o777]).toEqual([0o700, 0o600]);
  });

  it("lets appends of one turn share one transaction, and waits for the disk when one of them asks for it", async () => {
    const said: string[] = [];
    const journal = closing(
      openSqliteJournal({
        directory: journalFolder(),
        watchMs: 0,
        openDatabase: (path, options) => {
          const db = new DatabaseSync(path, options);
          const exec = db.exec.bind(db);
          db.exec = (sql) => {
            said.push(sql);
            exec(sql);
          };
          return db;
        },
      }),
    );
    said.length = 0;
    await Promise.all(["a", "b", "c"].map((id) => journal.append([prepared(id)], { durable: id === "b" })));
    expect(said.filter((sql) => sql === "COMMIT")).toHaveLength(1);
    expect(said.filter((sql) => sql.startsWith("PRAGMA synchronous"))).toEqual(["PRAGMA synchronous=FULL"]);
    said.length = 0;
    await journal.append([prepared("d")], { durable: false });
    expect(said).toContain("PRAGMA synchronous=NORMAL");
  });

  it("rejects only the append that cannot be written as it is", async () => {
    const journal = open(journalFolder());
    const bad = journal.append([makeEvent("bad", "prepared", intention({ server: undefined }))], durable);
    const good = journal.append([prepared("good")], durable);
    await expect(bad).rejects.toBeInstanceOf(TypeError);
    await expect(good).resolves.toHaveLength(1);
    expect((await journal.operations({})).map((one) => one.id)).toEqual(["good"]);
  });

  it("opens a journal of a newer version for reading only and says what to do", async () => {
    const directory = journalFolder();
    const first = open(directory);
    await first.append([prepared("a"), makeEvent("a", "refused", { reason: "not-sent" })], durable);
    await first.close();
    // The next format may have other tables.
    tamper(directory, `ALTER TABLE owners RENAME TO holders; PRAGMA user_version=${schemaVersion + 1}`);
    const journal = open(directory);
    expect(journal.problem).toMatchObject({ code: "newer-version" });
    expect(journal.problem?.message).toContain("Update MCP Safe Replay");
    expect(await journal.operation("a")).toMatchObject({ state: "not-executed" });
    await expect(journal.append([prepared("b")], durable)).rejects.toMatchObject({ code: "newer-version" });
  });

  it("stops writing at once when a newer version takes the journal over, and goes on reading", async () => {
    const directory = journalFolder();
    const journal = open(directory);
    await journal.append([prepared("a")], durable);
    tamper(directory, `PRAGMA user_version=${schemaVersion + 1}`);
    let told = 0;
    journal.onDidChange(() => told++);
    await expect(journal.append([prepared("b")], durable)).rejects.toMatchObject({ code: "newer-version" });
    expect([journal.problem?.code, told]).toEqual(["newer-version", 1]);
    expect(await journal.operation("a")).toMatchObject({ state: "prepared" });
  });

  it("leaves a foreign file alone, says what to do, and goes on when it is gone", async () => {
    const text = journalFolder();
    await open(text).close();
    const content = "not a database, but long enough to look like one ".repeat(40);
    writeFileSync(fileOf(text), content);
    const database = journalFolder();
    await open(database).close();
    tamper(database, "PRAGMA application_id=7");
    for (const directory of [text, database]) {
      const before = readFileSync(fileOf(directory));
      const journal = open(directory);
      expect(journal.problem).toMatchObject({ code: "foreign" });
      expect(journal.problem?.message).toMatch(/belongs to another program\. Move it away/);
      await expect(journal.append([prepared("a")], durable)).rejects.toMatchObject({ code: "foreign" });
      expect(await journal.operations({})).toEqual([]);
      expect(readFileSync(fileOf(directory)).equals(before)).toBe(true);
      writeFileSync(fileOf(directory), "");
      await expect(journal.append([prepared("a")], durable)).resolves.toHaveLength(1);
      expect(journal.problem).toBeUndefined();
    }
  });

  it("refuses when another program keeps it locked, and goes on when it is free again", async () => {
    const directory = journalFolder();
    const journal = open(directory);
    const other = new DatabaseSync(fileOf(directory));
    other.exec("BEGIN IMMEDIATE");
    await expect(journal.append([prepared("a")], durable)).rejects.toMatchObject({
      code: "unwritable",
      message: expect.stringContaining("locked by another program") as string,
    });
    other.exec("ROLLBACK");
    other.close();
    await expect(journal.append([prepared("a")], durable)).resolves.toHaveLength(1);
  });

  it("lists a journal that nobody has open without changing it", async () => {
    const directory = journalFolder();
    const journal = open(directory);
    await journal.append([prepared("a"), makeEvent("a", "sent", attemptStart())], durable);
    const reading = closing(openSqliteJournal({ directory, readOnly: true }));
    expect(await reading.operation("a")).toMatchObject({ state: "in-flight" });
    await expect(reading.append([prepared("b")], durable)).rejects.toMatchObject({ code: "unwritable" });
    const none = openSqliteJournal({ directory: join(directory, "none"), readOnly: true });
    expect(none.problem?.message).toMatch(/no journal in .*Check the folder's name/);
  });
});
