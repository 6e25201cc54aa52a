import { readdirSync, statSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, it } from "vitest";
import { migrate, schemaVersion } from "../../../src/operations/migrations.ts";
import { openSqliteJournal } from "../../../src/operations/sqlite-journal.ts";
import { verifyJournal } from "../../../src/operations/verify.ts";
import { all, attemptStart, intention, lost, makeEvent } from "../journal-contract.ts";
import { closing, fileOf, journalFolder } from "./journal-support.ts";

const now = Date.UTC(2026, 0, 2, 3, 4, 5);
const open = (directory: string, readOnly = false) =>
  closing(openSqliteJournal({ directory, watchMs: 0, now: () => now, readOnly }));
const backups = (directory: string): readonly string[] => readdirSync(directory).filter((name) => name.includes("format-1"));

/** A journal of format 1 with an unresolved operation and one that a program left under way. */
async function formatOne(): Promise<string> {
  const directory = journalFolder();
  await open(directory).close();
  const db = new DatabaseSync(fileOf(directory));
  db.exec(
    "DROP TABLE events; DROP TABLE operations; DROP TABLE owners; DROP TABLE gaps; DROP TABLE clocks; PRAGMA user_version=0",
  );
  migrate(db, 0, 1);
  const add = db.prepare("INSERT INTO events (number, operation_id, type, actor, at, data) VALUES (?, ?, ?, 'agent', 1, ?)");
  const put = db.prepare(
    "INSERT INTO operations (id, server, tool, digest, state, intention, derived, owner) VALUES (?, 'booking', 'create_booking', 'digest', ?, ?, ?, 'gone')",
  );
  const derived = (id: string, state: string) => ({
    id,
    state,
    reason: state === "unresolved" ? "connection-lost" : undefined,
    attempts: [
      {
        ...attemptStart(),
        stage: state === "unresolved" ? "sent" : "sending",
        outcome: state === "unresolved" ? "unknown" : undefined,
      },
    ],
    createdAt: 1,
    updatedAt: 1,
    conflict: false,
    delivered: false,
  });
  // Format 1 could have holes in its numbers.
  add.run(1, "a", "prepared", JSON.stringify(intention()));
  add.run(2, "a", "sent", JSON.stringify(attemptStart()));
  add.run(4, "a", "lost", JSON.stringify(lost));
  add.run(5, "b", "prepared", JSON.stringify(intention()));
  add.run(6, "b", "sent", JSON.stringify(attemptStart()));
  put.run("a", "unresolved", JSON.stringify(intention()), JSON.stringify(derived("a", "unresolved")));
  put.run("b", "in-flight", JSON.stringify(intention()), JSON.stringify(derived("b", "in-flight")));
  db.close();
  return directory;
}

describe("a journal of an older format", () => {
  it("is brought forward with everything in it, chained, and a whole private copy is kept", async () => {
    const directory = await formatOne();
    const journal = open(directory);
    expect(journal.problem).toBeUndefined();
    expect(journal.notice).toBe(
      `The operation journal was converted from format 1 to ${schemaVersion}; nothing was lost. A copy of it as it was is kept for 30 days: ${join(directory, "journal.format-1-20260102T030405Z.sqlite")}.`,
    );
    expect(await journal.operation("a")).toMatchObject({ state: "unresolved", reason: "connection-lost" });
    expect(await journal.operation("b")).toMatchObject({ state: "unresolved", reason: "process-ended" });
    expect((await all(journal.entries())).map((entry) => [entry.number, entry.operationId, entry.type])).toEqual([
      [1, "a", "prepared"],
      [2, "a", "sent"],
      [3, "a", "lost"],
      [4, "b", "prepared"],
      [5, "b", "sent"],
      [6, "b", "lost"],
    ]);
    await journal.append([makeEvent("a", "settled", { as: "no-effect", evidence: "looked" })], { durable: true });
    expect(await verifyJournal(directory)).toMatchObject({ ok: true, events: 7 });

    expect(backups(directory)).toEqual(["journal.format-1-20260102T030405Z.sqlite"]);
    const copy = join(directory, backups(directory)[0] ?? "");
    expect(statSync(copy).mode & 0o777).toBe(0o600);
    const db = new DatabaseSync(copy, { readOnly: true });
    expect(db.prepare("PRAGMA user_version").get()).toEqual({ user_version: 1 });
    expect(db.prepare("SELECT count(*) AS n FROM events").get()).toEqual({ n: 5 });
    db.close();
  });

  it("is not converted by a reader, which says how it will be", async () => {
    const directory = await formatOne();
    const reading = open(directory, true);
    expect(reading.problem).toMatchObject({
      code: "older-version",
      message: expect.stringContaining("starting VS Code") as string,
    });
    expect(await reading.operations({})).toEqual([]);
    expect(backups(directory)).toEqual([]);
  });

  it("stays what it was when the step to the next format fails half-way", async () => {
    const directory = await formatOne();
    const db = new DatabaseSync(fileOf(directory));
    // The step makes a table of this name at its end.
    db.exec("CREATE TABLE gaps (x)");
    expect(() => migrate(db, 1)).toThrow();
    expect(db.prepare("PRAGMA user_version").get()).toEqual({ user_version: 1 });
    expect(db.prepare("SELECT count(*) AS n FROM events").get()).toEqual({ n: 5 });
    db.exec("DROP TABLE gaps");
    migrate(db, 1);
    expect(db.prepare("PRAGMA user_version").get()).toEqual({ user_version: schemaVersion });
    db.close();
  });

  it("keeps the copy for thirty days", async () => {
    const directory = await formatOne();
    await open(directory).close();
    const copy = join(directory, backups(directory)[0] ?? "");
    const day = 24 * 60 * 60;
    utimesSync(copy, now / 1000, now / 1000 - 29 * day);
    await open(directory).close();
    expect(backups(directory)).toHaveLength(1);
    utimesSync(copy, now / 1000, now / 1000 - 31 * day);
    await open(directory).close();
    expect(backups(directory)).toHaveLength(0);
  });
});
