/**
 * Owns: the journal as text: JSONL and CSV (RFC 4180) of its events or of its operations. Streaming: one page in memory at a time.
 * It holds arguments and answers, as far as the journal keeps them: whoever writes it to a file makes that private.
 */
import type { Journal, JournalEntry } from "./journal.ts";
import type { Operation } from "./model.ts";
import { everyOperation } from "./paging.ts";

/** `events`: everything that happened, in order, with the hash chain; `operations`: how each stands now, newest first. */
export type Exported = "events" | "operations";

export async function* exportJsonl(journal: Journal, what: Exported = "events"): AsyncGenerator<string> {
  if (what === "events") for await (const entry of journal.entries()) yield `${JSON.stringify(eventRow(entry))}\n`;
  else for await (const operation of everyOperation(journal)) yield `${JSON.stringify(operationRow(operation))}\n`;
}

export async function* exportCsv(journal: Journal, what: Exported = "events"): AsyncGenerator<string> {
  if (what === "events") {
    yield line(eventColumns);
    for await (const entry of journal.entries()) yield line(cells(eventRow(entry), eventColumns));
  } else {
    yield line(operationColumns);
    for await (const operation of everyOperation(journal)) yield line(cells(operationRow(operation), operationColumns));
  }
}

const eventColumns = ["number", "operation", "type", "actor", "at", "data", "hash"] as const;

function eventRow(entry: JournalEntry): Record<(typeof eventColumns)[number], unknown> {
  const { number, operationId, type, actor, at, data, hash } = entry;
  return { number, operation: operationId, type, actor, at: moment(at), data, hash };
}

const operationColumns = [
  "id",
  "server",
  "tool",
  "state",
  "reason",
  "created",
  "updated",
  "delivered",
  "conflict",
  "settlement",
  "attempts",
  "caller",
  "digest",
  "withheld",
  "arguments",
  "answer",
] as const;

function operationRow(operation: Operation): Record<(typeof operationColumns)[number], unknown> {
  const { intention, settlement } = operation;
  return {
    id: operation.id,
    server: intention.server,
    tool: intention.tool,
    state: operation.state,
    reason: operation.reason ?? null,
    created: moment(operation.createdAt),
    updated: moment(operation.updatedAt),
    delivered: operation.delivered,
    conflict: operation.conflict,
    settlement: settlement === undefined ? null : { ...settlement, at: moment(settlement.at) },
    attempts: operation.attempts,
    caller: intention.caller,
    digest: intention.digest,
    withheld: intention.withheld ?? null,
    arguments: intention.arguments,
    answer: operation.answer ?? null,
  };
}

/** ISO 8601 in UTC; a time that no calendar has stays the number that it is. */
function moment(at: number): string {
  return Math.abs(at) <= 8.64e15 ? new Date(at).toISOString() : String(at);
}

function cells(row: Record<string, unknown>, columns: readonly string[]): readonly string[] {
  return columns.map((column) => {
    const value = row[column];
    return value === null ? "" : typeof value === "string" ? value : JSON.stringify(value);
  });
}

function line(texts: readonly string[]): string {
  return `${texts.map(cell).join(",")}\r\n`;
}

/** A quoted cell; one that a spreadsheet would take for a formula is disarmed by a leading apostrophe. */
function cell(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
