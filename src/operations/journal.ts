/**
 * Owns: the interface of the operation journal. One contract test suite (test/unit/journal-contract.ts) holds for every implementation.
 * Leaves to others: how it is kept (sqlite-journal.ts, worker-journal.ts), what the events mean (model.ts).
 */
import type { Operation, OperationEvent, OperationState } from "./model.ts";
import type { Retention } from "./retention.ts";
import type { KeptArguments } from "./withhold.ts";

export interface OperationQuery {
  readonly states?: readonly OperationState[];
  readonly server?: string;
  readonly digest?: string;
  /** Only those whose settlement an answer contradicts, and nobody has seen to it yet. */
  readonly conflict?: true;
  /** Newest first; default 1000. */
  readonly limit?: number;
  /** Operations created before this one (its id): the next page. */
  readonly before?: string;
}

/** The journal could not do what was asked. `code` is stable; `message` is safe to show and names the mend. */
export class JournalError extends Error {
  readonly code:
    | "unwritable"
    | "foreign"
    | "damaged"
    | "older-version"
    | "newer-version"
    | "unknown-operation"
    | "not-unresolved"
    | "arguments-withheld"
    | "closed";
  constructor(code: JournalError["code"], message: string) {
    super(message);
    this.name = "JournalError";
    this.code = code;
  }
}

/** Something that was done to the journal itself. It stands in the same chain as the operations' events. */
export type JournalRecord = {
  readonly operationId: "";
  readonly actor: "gateway";
  /** Milliseconds since the epoch. */
  readonly at: number;
} & (
  | {
      /** Closed operations left by the retention setting. `gaps`: the digest of what stands in their place (chain.ts). */
      readonly type: "pruned";
      readonly data: { readonly operations: number; readonly events: number; readonly gaps: string };
    }
  | {
      /** A damaged file was set aside under this name; what could be read of it came before this record. */
      readonly type: "salvaged";
      readonly data: {
        readonly setAside: string;
        readonly operations: number;
        readonly events: number;
        readonly unreadable: number;
      };
    }
);

/** An event or record with its place in the chain: `hash` covers it and, through the hash before it, everything before it. */
export type JournalEntry = (OperationEvent | JournalRecord) & { readonly number: number; readonly hash: string };

/** What a person may change while the journal is open. */
export interface JournalSettings {
  /** What is kept of arguments and answers from now on; default everything. */
  readonly arguments?: KeptArguments;
  /** How long closed operations are kept; default for ever. */
  readonly retention?: Retention;
}

export interface Journal {
  /**
   * Appends events in order, all or none. With `durable` they are on disk (full sync) when the promise resolves.
   * Rejects with `JournalError` when they could not be written, and with `IllegalTransition` when the table of transitions forbids one.
   */
  append(events: readonly OperationEvent[], options: { readonly durable: boolean }): Promise<readonly Operation[]>;
  operation(id: string): Promise<Operation | undefined>;
  operations(query: OperationQuery): Promise<readonly Operation[]>;
  count(states: readonly OperationState[]): Promise<number>;
  events(operationId: string): Promise<readonly OperationEvent[]>;
  /** Every event in journal order, in pages. */
  allEvents(): AsyncIterable<OperationEvent>;
  /** Every event and record in journal order with its number and hash, in pages. */
  entries(): AsyncIterable<JournalEntry>;
  /** Why it cannot be written (a newer version, no permission, damage), or undefined when all is well. Appends reject with it. */
  readonly problem: JournalError | undefined;
  /** What a person should be told though all goes on: a damaged file was set aside, with what was salvaged. */
  readonly notice: string | undefined;
  /** All settings as they are from now on; one that is left out has its default. What is in the journal already is not rewritten. */
  configure(settings: JournalSettings): void;
  /** Lets closed operations leave by the retention setting; it also happens by itself, every hour. @returns how many left */
  prune(): Promise<number>;
  /** Called after a change by this or any other program on the same journal, and when `problem` or `notice` changed. */
  onDidChange(listener: () => void): () => void;
  close(): Promise<void>;
}
