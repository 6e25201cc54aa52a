import { readFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, it } from "vitest";
import type { EventType, OperationEvent } from "../../../src/operations/model.ts";
import { retentionTime, type Retention } from "../../../src/operations/retention.ts";
import { openSqliteJournal, type SqliteJournal } from "../../../src/operations/sqlite-journal.ts";
import { verifyJournal } from "../../../src/operations/verify.ts";
import { answered, attemptStart, intention, lost, makeEvent } from "../journal-contract.ts";
import { closing, fileOf, journalFolder } from "./journal-support.ts";

const day = 24 * 60 * 60 * 1000;
const start = 1_700_000_000_000;

/** Every kind of end that an operation can have, and the two that are none. */
const ends: Record<string, readonly (readonly [EventType, unknown])[]> = {
  completed: [
    ["sent", attemptStart()],
    ["answered", answered()],
  ],
  "not-executed": [["refused", { reason: "not-sent" }]],
  "effect-confirmed": [
    ["sent", attemptStart()],
    ["lost", lost],
    ["settled", { as: "effect-confirmed", evidence: "seen" }],
  ],
  "no-effect": [
    ["sent", attemptStart()],
    ["lost", lost],
    ["settled", { as: "no-effect", evidence: "seen" }],
  ],
  dismissed: [
    ["sent", attemptStart()],
    ["lost", lost],
    ["settled", { as: "dismissed", evidence: "seen" }],
  ],
  unresolved: [
    ["sent", attemptStart()],
    ["lost", lost],
  ],
  "in-flight": [["sent", attemptStart()]],
  acknowledged: [
    ["sent", attemptStart()],
    ["lost", lost],
    ["settled", { as: "no-effect", evidence: "seen" }],
    ["late-answer", answered()],
    ["conflict", { settledAs: "no-effect", isError: false }],
    ["acknowledged", { note: "cancelled it" }],
  ],
  conflict: [
    ["sent", attemptStart()],
    ["lost", lost],
    ["settled", { as: "no-effect", evidence: "seen" }],
    ["late-answer", answered()],
    ["conflict", { settledAs: "no-effect", isError: false }],
  ],
};

function operation(id: string, end: string, at: number): readonly OperationEvent[] {
  return [["prepared", intention()] as const, ...(ends[end] ?? [])].map(([type, data]) => makeEvent(id, type, data, at));
}

const folder = (): { directory: string; clock: { now: number }; open: (retention?: Retention) => SqliteJournal } => {
  const directory = journalFolder();
  const clock = { now: start };
  return {
    directory,
    clock,
    open: (retention) =>
      closing(
        openSqliteJournal({
          directory,
          watchMs: 0,
          now: () => clock.now,
          ...(retention === undefined ? {} : { retention }),
        }),
      ),
  };
};
const ids = async (journal: SqliteJournal): Promise<readonly string[]> =>
  (await journal.operations({})).map((one) => one.id).sort();

describe("retention", () => {
  it("lets every closed state go when its days are over, and keeps what waits for somebody", async () => {
    const { directory, clock, open } = folder();
    const journal = open({ days: 30, count: 1000 });
    for (const end of Object.keys(ends)) await journal.append(operation(end, end, start), { durable: false });
    clock.now = start + 29 * day;
    await journal.append(operation("young", "completed", clock.now), { durable: false });
    expect(await journal.prune()).toBe(0);
    // Looked at daily, as while a window is open.
    for (let days = 0; days <= 30; days++) {
      clock.now = start + days * day + 1;
      await journal.prune();
    }
    expect(await ids(journal)).toEqual(["conflict", "in-flight", "unresolved", "young"]);
    expect(await verifyJournal(directory)).toMatchObject({ ok: true });
  });

  it("keeps at most so many closed operations, the newest, and counts no others", async () => {
    const { directory, open } = folder();
    const journal = open({ days: 10_000, count: 3 });
    for (let i = 0; i < 250; i++) await journal.append(operation(`c${i}`, "completed", start), { durable: false });
    for (let i = 0; i < 5; i++) await journal.append(operation(`u${i}`, "unresolved", start), { durable: false });
    expect(await journal.prune()).toBe(247);
    expect(await ids(journal)).toEqual(["c247", "c248", "c249", "u0", "u1", "u2", "u3", "u4"]);
    expect(await journal.prune()).toBe(0);
    expect(await verifyJournal(directory)).toMatchObject({ ok: true });
    // What left is one gap, however many runs it took; a second one is the records of those runs.
    const db = new DatabaseSync(fileOf(directory), { readOnly: true });
    expect(db.prepare("SELECT first, last FROM gaps").all()).toEqual([
      { first: 1, last: 741 },
      { first: 766, last: 767 },
    ]);
    db.close();
  });

  it("keeps everything while nothing is said about it", async () => {
    const { open } = folder();
    const journal = open();
    await journal.append(operation("a", "completed", 1), { durable: false });
    expect(await journal.prune()).toBe(0);
  });

  it("is not fooled by a clock that jumps ahead for a while", async () => {
    const { clock, open } = folder();
    const journal = open({ days: 30, count: 1000 });
    await journal.append(operation("a", "completed", start), { durable: false });
    await journal.prune();
    clock.now = start + 3650 * day;
    await journal.prune();
    clock.now = start + day;
    await journal.prune();
    expect(await ids(journal)).toEqual(["a"]);
    // The true time does its work.
    for (let days = 2; days <= 31; days++) {
      clock.now = start + days * day + 1;
      await journal.prune();
    }
    expect(await ids(journal)).toEqual([]);
  });

  it("goes on by a day at most from one look to the next, and back with the clock", () => {
    expect(retentionTime(start + 100 * day, start)).toBe(start + day);
    expect(retentionTime(start + 60_000, start)).toBe(start + 60_000);
    expect(retentionTime(start - 100 * day, start)).toBe(start - 100 * day);
    expect(retentionTime(start, undefined)).toBe(start);
  });

  it("leaves nothing of what left in the file", async () => {
    const { directory, open } = folder();
    const journal = open({ days: 10_000, count: 0 });
    const secret = "4242-4242-4242-4242";
    await journal.append(operation("a", "unresolved", start), { durable: false });
    await journal.append([makeEvent("b", "prepared", intention({ arguments: { card: secret } }))], { durable: false });
    await journal.append([makeEvent("b", "refused", { reason: "not-sent" })], { durable: true });
    await journal.prune();
    await journal.close();
    expect(readFileSync(fileOf(directory)).includes(secret)).toBe(false);
  });
});
