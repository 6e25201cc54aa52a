/**
 * Owns: what must hold of a journal after whatever became of the program or the disk (workload.ts says what it had been told before).
 */
import { DatabaseSync } from "node:sqlite";
import { expect } from "vitest";
import type { OpenDatabase } from "../../src/operations/journal-file.ts";
import { closedStates, type EventType } from "../../src/operations/model.ts";
import { openSqliteJournal } from "../../src/operations/sqlite-journal.ts";
import { verifyJournal } from "../../src/operations/verify.ts";
import type { Line } from "./workload.ts";

/**
 * Nothing acknowledged is lost, nothing was sent that is not journaled, and the journal is whole.
 * @param said what the program had said when it ended
 * @param powerCut what was acknowledged without waiting for the disk may be gone with the power, unless a sync came after it
 */
export async function mustHold(directory: string, said: readonly Line[], powerCut = false): Promise<void> {
  const journal = openSqliteJournal({ directory, watchMs: 0, openDatabase: withoutSyncs });
  try {
    expect([journal.problem, journal.notice]).toEqual([undefined, undefined]);
    const found = new Map<string, EventType[]>();
    for await (const event of journal.allEvents()) {
      found.set(event.operationId, [...(found.get(event.operationId) ?? []), event.type]);
    }
    const lastSync = said.findLastIndex((line) => "acked" in line && line.durable);
    const acked = new Map<string, EventType[]>();
    for (const [index, line] of said.entries()) {
      if (!("acked" in line) || (powerCut && index > lastSync)) continue;
      for (const [id, type] of line.acked) acked.set(id, [...(acked.get(id) ?? []), type]);
    }
    const pruning = said.some((line) => "pruning" in line);
    for (const [id, types] of acked) {
      const there = found.get(id);
      if (there === undefined && pruning && isClosed(types)) continue;
      expect([id, there?.slice(0, types.length)]).toEqual([id, types]);
    }
    for (const line of said) {
      if (!("sends" in line) || (pruning && found.get(line.sends) === undefined)) continue;
      const times = said.filter((other) => "sends" in other && other.sends === line.sends).length;
      const journaled = (found.get(line.sends) ?? []).filter((type) => type === "sent").length;
      expect([line.sends, journaled]).toEqual([line.sends, expect.toSatisfy((n: number) => n >= times)]);
    }
    // Whatever was under way is now lost, and says so; what closed stays closed.
    for (const operation of await journal.operations({ limit: 1_000_000 })) {
      expect([...closedStates, "unresolved"]).toContain(operation.state);
    }
  } finally {
    await journal.close();
  }
  expect(await verifyJournal(directory)).toMatchObject({ ok: true });
}

/** A look at what is there need not wait for the disk. */
const withoutSyncs: OpenDatabase = (path, options) => {
  const db = new DatabaseSync(path, options);
  const exec = db.exec.bind(db);
  db.exec = (sql) => exec(sql.replace(/synchronous=\w+/, "synchronous=OFF"));
  return db;
};

function isClosed(types: readonly EventType[]): boolean {
  const closing: readonly EventType[] = ["answered", "recovered", "refused", "settled", "delivered"];
  return closing.includes(types.at(-1) ?? "prepared");
}
