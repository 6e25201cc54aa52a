import { readFileSync, writeFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import fc from "fast-check";
import { beforeEach, describe, expect, it } from "vitest";
import { chainStart, digestOfGaps, link, type ChainRow, type Gap } from "../../../src/operations/chain.ts";
import { openSqliteJournal } from "../../../src/operations/sqlite-journal.ts";
import { verifyJournal } from "../../../src/operations/verify.ts";
import { answered, attemptStart, intention, lost, makeEvent } from "../journal-contract.ts";
import { fileOf, journalFolder, tamper } from "./journal-support.ts";

let directory: string;

/** 1 to 3: `a`, completed. 4 to 6: `b`, unresolved. 7 to 9: `c`, completed. 10: `b` settled. */
async function fill(retention?: { days: number; count: number }): Promise<void> {
  directory = journalFolder();
  const journal = openSqliteJournal({ directory, watchMs: 0, ...(retention === undefined ? {} : { retention }) });
  for (const id of ["a", "b", "c"]) {
    await journal.append([makeEvent(id, "prepared", intention({ arguments: { guest: id } }))], { durable: false });
    await journal.append([makeEvent(id, "sent", attemptStart())], { durable: false });
    await journal.append([id === "b" ? makeEvent(id, "lost", lost) : makeEvent(id, "answered", answered())], { durable: false });
  }
  if (retention === undefined) {
    await journal.append([makeEvent("b", "settled", { as: "no-effect", evidence: "looked" })], { durable: true });
  } else await journal.prune();
  await journal.close();
}
beforeEach(() => fill());

/** Everything that can be read from the journal's file, by table and by index. */
function dump(of: string): unknown {
  const db = new DatabaseSync(fileOf(of));
  try {
    return [
      "SELECT * FROM events ORDER BY number",
      "SELECT number FROM events WHERE operation_id = 'b' ORDER BY number",
      "SELECT number, id, server, tool, digest, state, intention, derived, answer, updated FROM operations ORDER BY number",
      "SELECT id FROM operations WHERE state = 'no-effect'",
      "SELECT id FROM operations WHERE digest = 'digest' ORDER BY number",
      "SELECT id FROM operations WHERE id = 'c'",
      "SELECT * FROM gaps",
    ].map((sql) => db.prepare(sql).all());
  } finally {
    db.close();
  }
}

describe("verify", () => {
  it("finds a journal whole that nobody touched, open or closed, and says how much there is", async () => {
    const verdict = await verifyJournal(directory);
    expect(verdict).toMatchObject({ ok: true, events: 10, head: expect.stringMatching(/^[0-9a-f]{64}$/) as string });
    const journal = openSqliteJournal({ directory, watchMs: 0 });
    expect(await verifyJournal(directory)).toEqual(verdict);
    await journal.close();
  });

  it.each([
    ["an event's data", "UPDATE events SET data = replace(data, 'looked', 'locked') WHERE number = 10", 10],
    ["an event's time", "UPDATE events SET at = at + 1 WHERE number = 4", 4],
    ["an event's type", "UPDATE events SET type = 'task' WHERE number = 6", 6],
    ["an event's actor", "UPDATE events SET actor = 'person' WHERE number = 2", 2],
    ["an event's operation", "UPDATE events SET operation_id = 'a' WHERE number = 5", 5],
    ["an event's hash", "UPDATE events SET hash = replace(hash, substr(hash, 1, 1), 'x') WHERE number = 3", 3],
    [
      "the order",
      "UPDATE events SET number = 100 WHERE number = 5; UPDATE events SET number = 5 WHERE number = 6; UPDATE events SET number = 6 WHERE number = 100",
      5,
    ],
    ["an event in the middle, removed", "DELETE FROM events WHERE number = 5", 5],
    ["the first event, removed", "DELETE FROM events WHERE number = 1", 1],
    ["the newest event, removed", "DELETE FROM events WHERE number = 10", 10],
    [
      "an event, inserted",
      "INSERT INTO events SELECT 11, operation_id, 'held', actor, at, data, hash FROM events WHERE number = 10",
      11,
    ],
    [
      "an operation, removed with its events",
      "DELETE FROM events WHERE operation_id = 'c'; DELETE FROM operations WHERE id = 'c'",
      7,
    ],
    ["a removal covered up by a gap", "DELETE FROM events WHERE number = 5; INSERT INTO gaps VALUES (5, 5, (SELECT 'x'))", 6],
    ["an operation's state", "UPDATE operations SET state = 'dismissed' WHERE id = 'b'", 10],
    [
      "an operation's settlement",
      "UPDATE operations SET derived = json_set(derived, '$.settlement.as', 'dismissed') WHERE id = 'b'",
      10,
    ],
    ["an operation's arguments", "UPDATE operations SET intention = replace(intention, '\"b\"', '\"x\"') WHERE id = 'b'", 10],
    ["an operation's answer", "UPDATE operations SET answer = NULL WHERE id = 'a'", 3],
    ["an operation's digest", "UPDATE operations SET digest = 'other' WHERE id = 'a'", 3],
    ["an operation missing from the list", "DELETE FROM operations WHERE id = 'b'", 0],
    [
      "an operation that never was",
      "INSERT INTO operations SELECT 9, 'x', server, tool, digest, state, intention, derived, answer, owner, updated FROM operations WHERE id = 'a'",
      0,
    ],
  ])("sees a change of %s", async (_what, sql, at) => {
    tamper(directory, sql);
    expect(await verifyJournal(directory)).toMatchObject({ ok: false, at, message: expect.any(String) as string });
  });

  it("sees a removed event though a gap was put in its place with the right hash", async () => {
    const db = new DatabaseSync(fileOf(directory));
    const { hash } = db.prepare("SELECT hash FROM events WHERE number = 5").get() as { hash: string };
    db.close();
    tamper(directory, `DELETE FROM events WHERE number = 5; INSERT INTO gaps VALUES (5, 5, '${hash}')`);
    expect(await verifyJournal(directory)).toMatchObject({
      ok: false,
      message: "events are missing that retention did not take",
    });
  });

  it("follows the chain across what retention took, and sees a gap that was widened", async () => {
    await fill({ days: 10_000, count: 0 });
    expect(await verifyJournal(directory)).toMatchObject({ ok: true, events: 4 });
    const db = new DatabaseSync(fileOf(directory));
    const gaps = db.prepare("SELECT * FROM gaps ORDER BY first").all() as unknown as Gap[];
    const { hash } = db.prepare("SELECT hash FROM events WHERE number = 4").get() as { hash: string };
    db.close();
    expect(gaps.map(({ first, last }) => [first, last])).toEqual([
      [1, 3],
      [7, 9],
    ]);
    tamper(directory, `DELETE FROM events WHERE number = 4; UPDATE gaps SET last = 4, hash = '${hash}' WHERE first = 1`);
    expect(await verifyJournal(directory)).toMatchObject({ ok: false, message: "the gaps are not those that retention left" });
  });

  it("sees, with a head that was noted earlier, even a journal that was written anew from end to end", async () => {
    const before = await verifyJournal(directory);
    const since = before.ok ? before.head : "";
    const journal = openSqliteJournal({ directory, watchMs: 0 });
    await journal.append([makeEvent("d", "prepared", intention())], { durable: true });
    await journal.append([makeEvent("d", "refused", { reason: "not-sent" })], { durable: true });
    await journal.close();
    expect(await verifyJournal(directory, { since })).toMatchObject({ ok: true, events: 12 });

    const db = new DatabaseSync(fileOf(directory));
    db.exec("UPDATE events SET data = replace(data, 'looked', 'locked') WHERE number = 10");
    db.exec("UPDATE operations SET derived = replace(derived, 'looked', 'locked')");
    let hash = chainStart;
    for (const row of db.prepare("SELECT * FROM events ORDER BY number").all() as unknown as ChainRow[]) {
      hash = link(hash, row);
      db.prepare("UPDATE events SET hash = ? WHERE number = ?").run(hash, row.number);
    }
    db.close();
    expect(await verifyJournal(directory)).toMatchObject({ ok: true });
    expect(await verifyJournal(directory, { since })).toMatchObject({ ok: false });
  });

  it("sees any altered byte that alters what the journal says", async () => {
    const whole = readFileSync(fileOf(directory));
    const saying = dump(directory);
    let seen = 0;
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 0, max: whole.length - 1 }), fc.integer({ min: 1, max: 255 }), async (offset, flip) => {
        const altered = Buffer.from(whole);
        altered[offset] = (altered[offset] ?? 0) ^ flip;
        writeFileSync(fileOf(directory), altered);
        const ok = await verifyJournal(directory).then(
          (verdict) => verdict.ok,
          () => false,
        );
        if (!ok) seen += 1;
        else expect(dump(directory)).toEqual(saying);
      }),
      { numRuns: 250 },
    );
    expect(seen).toBeGreaterThan(20);
  });

  it("says so when there is no journal, or none that this version can read", async () => {
    await expect(verifyJournal(journalFolder())).rejects.toMatchObject({ code: "unwritable" });
    tamper(directory, "PRAGMA application_id=7");
    await expect(verifyJournal(directory)).rejects.toMatchObject({ code: "foreign" });
  });
});

describe("the chain", () => {
  it("is SHA-256 over the hash before and the whole row", () => {
    const row = { number: 1, operation_id: "a", type: "prepared", actor: "agent", at: 1, data: "{}" };
    const hash = link(chainStart, row);
    expect(hash).toMatch(/^[0-9a-f]{64}$/);
    for (const change of [
      { number: 2 },
      { operation_id: "b" },
      { type: "sent" },
      { actor: "person" },
      { at: 2 },
      { data: "{ }" },
    ]) {
      expect(link(chainStart, { ...row, ...change })).not.toBe(hash);
    }
    expect(link(hash, row)).not.toBe(hash);
    expect(digestOfGaps([])).toBe(chainStart);
    expect(digestOfGaps([{ first: 1, last: 2, hash }])).not.toBe(digestOfGaps([{ first: 1, last: 3, hash }]));
  });
});
