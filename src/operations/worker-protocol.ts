/**
 * Owns: what the journal's thread and its owner say to each other.
 */
import { JournalError, type JournalSettings } from "./journal.ts";
import { IllegalTransition } from "./model.ts";
import type { Verdict } from "./verify.ts";
import type { SqliteJournal, SqliteJournalOptions } from "./sqlite-journal.ts";

/** What can be asked of the journal in its thread: each method answers with a promise. */
export type Asked = "append" | "operation" | "operations" | "count" | "events" | "entriesAfter" | "prune" | "close";

export type Arguments<M extends Asked> = Parameters<SqliteJournal[M]>;
export type Answer<M extends Asked> = Awaited<ReturnType<SqliteJournal[M]>>;

/** Functions do not cross between threads. */
export type WorkerOptions = Omit<SqliteJournalOptions, "now" | "openDatabase">;

/** The same file as a thread that verifies a folder's journal and ends. */
export interface VerifyOptions {
  readonly verify: string;
}

export type VerifyAnswer = { readonly verdict: Verdict } | { readonly error: PackedError };

export type ToWorker =
  | { readonly [M in Asked]: { readonly ask: M; readonly id: number; readonly args: Arguments<M> } }[Asked]
  | { readonly configure: JournalSettings };

export type FromWorker =
  | { readonly id: number; readonly value: unknown }
  | { readonly id: number; readonly error: PackedError }
  | { readonly state: { readonly problem: PackedError | undefined; readonly notice: string | undefined } }
  | { readonly changed: true };

/** An error's class does not cross either. */
type PackedError =
  | { readonly kind: "journal"; readonly code: JournalError["code"]; readonly message: string }
  | { readonly kind: "illegal"; readonly type: IllegalTransition["type"]; readonly from: IllegalTransition["from"] }
  | { readonly kind: "other"; readonly message: string };

export function pack(error: unknown): PackedError {
  if (error instanceof JournalError) return { kind: "journal", code: error.code, message: error.message };
  if (error instanceof IllegalTransition) return { kind: "illegal", type: error.type, from: error.from };
  return { kind: "other", message: error instanceof Error ? error.message : String(error) };
}

export function unpack(error: PackedError): Error {
  if (error.kind === "journal") return new JournalError(error.code, error.message);
  if (error.kind === "illegal") return new IllegalTransition(error.type, error.from);
  return new TypeError(error.message);
}
