/**
 * Owns: a snapshot of the journal that follows it, for the views.
 * Leaves to others: what is in it (snapshot.ts), the journal itself, and how it looks (views).
 */
import { EventEmitter } from "vscode";
import type { Disposable, Event, LogOutputChannel } from "vscode";
import type { CoreHost } from "./core-host.ts";
import { DisposableList } from "./disposables.ts";
import { emptySnapshot, lookAt, type Snapshot } from "./snapshot.ts";

/** Changes come in bursts: one look at the journal for all of them. */
const quietMs = 40;

export class Operations implements Disposable {
  readonly #host: CoreHost;
  readonly #log: LogOutputChannel;
  readonly #disposables = new DisposableList();
  readonly #changed = this.#disposables.add(new EventEmitter<void>());
  readonly onDidChange: Event<void> = this.#changed.event;
  #snapshot = emptySnapshot;
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
    return journal === undefined ? emptySnapshot : lookAt(journal);
  }

  dispose(): void {
    this.#disposables.dispose();
  }
}
