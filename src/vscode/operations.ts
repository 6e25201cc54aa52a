/**
 * Owns: what the views show of the journal: a snapshot that follows it, sorted into what needs a person and what does not.
 * Leaves to others: the journal itself, and how it looks (views).
 */
import { EventEmitter } from "vscode";
import type { Disposable, Event, LogOutputChannel } from "vscode";
import type { Operation } from "../operations/model.ts";
import type { CoreHost } from "./core-host.ts";
import { DisposableList } from "./disposables.ts";

export interface Snapshot {
  /** Consequential and unresolved: somebody must establish what happened. Newest first, like all of these. */
  readonly unresolved: readonly Operation[];
  /** Unresolved calls of tools that declare themselves reads. */
  readonly reads: readonly Operation[];
  /** Settled, and then an answer said otherwise. */
  readonly conflicts: readonly Operation[];
  /** Settled lately. */
  readonly settled: readonly Operation[];
}

const empty: Snapshot = { unresolved: [], reads: [], conflicts: [], settled: [] };
const settledShown = 10;
const settledLooked = 500;
const completedLooked = 100;
/** Changes come in bursts: one look at the journal for all of them. */
const quietMs = 40;

export class Operations implements Disposable {
  readonly #host: CoreHost;
  readonly #log: LogOutputChannel;
  readonly #disposables = new DisposableList();
  readonly #changed = this.#disposables.add(new EventEmitter<void>());
  readonly onDidChange: Event<void> = this.#changed.event;
  #snapshot: Snapshot = empty;
  #timer: NodeJS.Timeout | undefined;
  #reading = false;
  #again = false;

  constructor(host: CoreHost, log: LogOutputChannel) {
    this.#host = host;
    this.#log = log;
    this.#disposables.add(host.onDidChangeState(() => this.refresh()));
    this.#disposables.add(host.onDidChangeOperations(() => this.refresh()));
    this.#disposables.add({ dispose: () => clearTimeout(this.#timer) });
  }

  get snapshot(): Snapshot {
    return this.#snapshot;
  }

  refresh(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.#read();
    }, quietMs);
  }

  async #read(): Promise<void> {
    if (this.#reading) {
      this.#again = true;
      return;
    }
    this.#reading = true;
    try {
      this.#snapshot = await this.#look();
      this.#changed.fire();
    } catch (error) {
      this.#log.error(error instanceof Error ? error : String(error));
    } finally {
      this.#reading = false;
      if (this.#again) {
        this.#again = false;
        this.refresh();
      }
    }
  }

  async #look(): Promise<Snapshot> {
    const journal = this.#host.running?.core.journal;
    if (journal === undefined) return empty;
    const [open, settled, repeated] = await Promise.all([
      journal.operations({ states: ["unresolved"] }),
      journal.operations({ states: ["effect-confirmed", "no-effect", "dismissed"], limit: settledLooked }),
      journal.operations({ states: ["completed"], limit: completedLooked }),
    ]);
    const bySettling = [...settled].sort((a, b) => (b.settlement?.at ?? 0) - (a.settlement?.at ?? 0));
    return {
      unresolved: open.filter((operation) => !operation.intention.declaredRead),
      reads: open.filter((operation) => operation.intention.declaredRead),
      // A call that was repeated on a person's word and then answered twice is completed, and a conflict all the same.
      conflicts: [...bySettling, ...repeated].filter((operation) => operation.conflict),
      // What the gateway closes by itself (a proven read without an answer) concerns nobody.
      settled: bySettling.filter((one) => !one.conflict && one.settlement?.actor !== "gateway").slice(0, settledShown),
    };
  }

  dispose(): void {
    this.#disposables.dispose();
  }
}
