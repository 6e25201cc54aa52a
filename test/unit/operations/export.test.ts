import { describe, expect, it } from "vitest";
import { exportCsv, exportJsonl } from "../../../src/operations/export.ts";
import { openSqliteJournal } from "../../../src/operations/sqlite-journal.ts";
import { all, answered, attemptStart, intention, lost, makeEvent } from "../journal-contract.ts";
import { closing, journalFolder } from "./journal-support.ts";

async function filled() {
  const journal = closing(openSqliteJournal({ directory: journalFolder(), watchMs: 0, now: () => 5 }));
  const tricky = { note: 'a "quoted", line\nand another', formula: "=1+1" };
  await journal.append([makeEvent("a", "prepared", intention({ arguments: tricky })), makeEvent("a", "sent", attemptStart())], {
    durable: false,
  });
  await journal.append([makeEvent("a", "answered", answered())], { durable: false });
  await journal.append([makeEvent("=b", "prepared", intention()), makeEvent("=b", "sent", attemptStart())], { durable: false });
  await journal.append([makeEvent("=b", "lost", lost), makeEvent("=b", "settled", { as: "no-effect", evidence: "looked" })], {
    durable: false,
  });
  return journal;
}

/** RFC 4180, section 2. */
function parseCsv(text: string): string[][] {
  const rows: string[][] = [[]];
  for (const match of text.matchAll(/(?:"((?:[^"]|"")*)"|([^,\r\n"]*))(,|\r\n)/g)) {
    rows.at(-1)?.push(match[1]?.replaceAll('""', '"') ?? match[2] ?? "");
    if (match[3] === "\r\n") rows.push([]);
  }
  return rows.slice(0, -1);
}

describe("export", () => {
  it("gives every event as one JSON line, with its place in the chain", async () => {
    const journal = await filled();
    const lines = (await all(exportJsonl(journal))).join("").trimEnd().split("\n");
    const events = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(events.map((event) => [event["number"], event["operation"], event["type"]])).toEqual([
      [1, "a", "prepared"],
      [2, "a", "sent"],
      [3, "a", "answered"],
      [4, "=b", "prepared"],
      [5, "=b", "sent"],
      [6, "=b", "lost"],
      [7, "=b", "settled"],
    ]);
    expect(events[0]).toMatchObject({
      at: "1970-01-01T00:00:00.001Z",
      data: { arguments: { formula: "=1+1" } },
      hash: expect.any(String) as string,
    });
  });

  it("gives every event as a CSV row that a spreadsheet takes for no formula", async () => {
    const rows = parseCsv((await all(exportCsv(await filled()))).join(""));
    expect(rows[0]).toEqual(["number", "operation", "type", "actor", "at", "data", "hash"]);
    expect(rows).toHaveLength(8);
    expect(rows[4]?.[1]).toBe("'=b");
    expect(JSON.parse(rows[1]?.[5] ?? "")).toMatchObject({ arguments: { note: 'a "quoted", line\nand another' } });
  });

  it("gives every operation as it stands now, newest first", async () => {
    const journal = await filled();
    const operations = (await all(exportJsonl(journal, "operations"))).map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(operations).toMatchObject([
      {
        id: "=b",
        state: "no-effect",
        reason: "connection-lost",
        settlement: { as: "no-effect", evidence: "looked" },
        answer: null,
      },
      { id: "a", state: "completed", server: "booking", tool: "create_booking", answer: { isError: false }, withheld: null },
    ]);
    const rows = parseCsv((await all(exportCsv(journal, "operations"))).join(""));
    expect(rows.map((row) => [row[0], row[3]])).toEqual([
      ["id", "state"],
      ["'=b", "no-effect"],
      ["a", "completed"],
    ]);
    expect(new Set(rows.map((row) => row.length))).toEqual(new Set([rows[0]?.length]));
  });

  it("walks more than one page of operations, each once", async () => {
    const journal = closing(openSqliteJournal({ directory: journalFolder(), watchMs: 0 }));
    const events = Array.from({ length: 450 }, (_, i) => makeEvent(`op${i}`, "prepared", intention()));
    await journal.append(events, { durable: false });
    const ids = (await all(exportJsonl(journal, "operations"))).map((line) => (JSON.parse(line) as { id: string }).id);
    expect(ids).toEqual(events.map((event) => event.operationId).reverse());
  });

  it("gives what has no calendar date as the number that it is", async () => {
    const journal = closing(openSqliteJournal({ directory: journalFolder(), watchMs: 0 }));
    await journal.append([makeEvent("a", "prepared", intention(), 9e15)], { durable: false });
    expect((await all(exportJsonl(journal))).join("")).toContain('"at":"9000000000000000"');
  });
});
