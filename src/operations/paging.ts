/**
 * Owns: walking the journal page by page, so that memory stays bounded and the event loop free, however much there is.
 */
import { setImmediate } from "node:timers/promises";
import type { Journal, JournalEntry, OperationQuery } from "./journal.ts";
import type { Operation, OperationEvent } from "./model.ts";

/** @param read the next page after a number; empty at the end */
export async function* everyEntry(read: (after: number) => Promise<readonly JournalEntry[]>): AsyncGenerator<JournalEntry> {
  for (let after = 0; ;) {
    const page = await read(after);
    for (const entry of page) yield entry;
    const last = page.at(-1);
    if (last === undefined) return;
    after = last.number;
    await setImmediate();
  }
}

export async function* everyEvent(entries: AsyncIterable<JournalEntry>): AsyncGenerator<OperationEvent> {
  for await (const { number: _number, hash: _hash, ...entry } of entries) {
    if (entry.operationId !== "") yield entry as OperationEvent;
  }
}

/** Every operation that fits, newest first. `query.limit` is the size of a page. */
export async function* everyOperation(journal: Journal, query: OperationQuery = {}): AsyncGenerator<Operation> {
  for (let before = query.before; ;) {
    const page = await journal.operations({ limit: 200, ...query, ...(before === undefined ? {} : { before }) });
    for (const operation of page) yield operation;
    const last = page.at(-1);
    if (last === undefined) return;
    before = last.id;
    await setImmediate();
  }
}
