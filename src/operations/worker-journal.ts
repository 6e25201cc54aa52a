/**
 * Owns: the journal in a thread of its own, so that a slow disk never holds up the thread that serves agents and the editor.
 * A commit waits for the disk: mostly under a millisecond, at times hundreds (test/bench/journal.ts measures it).
 * Reads go the same way: they never block the event loop, and one that comes during a commit waits for that one at most.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { JournalError, type Journal, type JournalEntry, type JournalSettings, type OperationQuery } from "./journal.ts";
import type { Operation, OperationEvent, OperationState } from "./model.ts";
import { everyEntry, everyEvent } from "./paging.ts";
import { openSqliteJournal } from "./sqlite-journal.ts";
import { verifyJournal, type Verdict } from "./verify.ts";
import {
  unpack,
  type Answer,
  type Arguments,
  type Asked,
  type FromWorker,
  type ToWorker,
  type VerifyAnswer,
  type VerifyOptions,
  type WorkerOptions,
} from "./worker-protocol.ts";

/**
 * Opens the journal in a thread of its own; where no thread can be had, in the calling one.
 * Never rejects: what stands in the way is the journal's `problem`, and every append tries again and rejects with it.
 * @param noThread told why there is no thread: a slow disk then holds up whatever else the calling one does
 */
export async function openJournal(options: WorkerOptions, noThread: (why: string) => void = () => undefined): Promise<Journal> {
  const file = workerFile();
  if (file === undefined) {
    noThread("its file is missing");
    return openSqliteJournal(options);
  }
  const journal = new WorkerJournal(file, options);
  try {
    await journal.opened;
    return journal;
  } catch (error) {
    noThread(error instanceof Error ? error.message : "it could not be started");
    return openSqliteJournal(options);
  }
}

/**
 * Verifies the journal in a folder (verify.ts) in a thread of its own: it takes seconds for a large one.
 * Rejects with JournalError when there is none that can be read.
 */
export async function verifyInThread(directory: string): Promise<Verdict> {
  const file = workerFile();
  if (file === undefined) return verifyJournal(directory);
  const worker = new Worker(file, { workerData: { verify: directory } satisfies VerifyOptions, execArgv: [], name: "verify" });
  const answer = await new Promise<VerifyAnswer>((resolve, reject) => {
    worker.once("message", resolve);
    worker.once("error", reject);
    worker.once("exit", () => reject(new Error("the thread ended without a verdict")));
  });
  if ("error" in answer) throw unpack(answer.error);
  return answer.verdict;
}

/** Bundled: journal-worker.js beside the bundle. From source: Node runs the TypeScript file. */
function workerFile(): string | undefined {
  return ["journal-worker.js", "journal-worker.ts"]
    .map((name) => join(import.meta.dirname, name))
    .find((path) => existsSync(path));
}

interface Waiting {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

class WorkerJournal implements Journal {
  readonly #file: string;
  readonly #options: WorkerOptions;
  readonly #listeners = new Set<() => void>();
  readonly #waiting = new Map<number, Waiting>();
  /** Settles when the thread has opened the journal, or could not be started. */
  readonly opened: Promise<void>;
  readonly #opened = Promise.withResolvers<void>();
  #settings: JournalSettings;
  #worker: Worker | undefined;
  #asked = 0;
  #closing: Promise<void> | undefined;
  #problem: JournalError | undefined;
  #notice: string | undefined;

  constructor(file: string, options: WorkerOptions) {
    this.#file = file;
    this.#options = options;
    this.#settings = options;
    this.opened = this.#opened.promise;
    this.#worker = this.#start();
  }

  get problem(): JournalError | undefined {
    return this.#problem;
  }

  get notice(): string | undefined {
    return this.#notice;
  }

  // ---- the thread ---------------------------------------------------------------------------------------------------------------

  #start(): Worker {
    const { arguments: _arguments, retention: _retention, ...options } = this.#options;
    const workerData: WorkerOptions = { ...options, ...this.#settings };
    const worker = new Worker(this.#file, { workerData, execArgv: [], name: "journal" });
    worker.on("message", (message: FromWorker) => this.#hear(message));
    // An error is followed by the exit.
    worker.on("error", () => undefined);
    worker.on("exit", () => {
      if (this.#worker === worker) this.#worker = undefined;
      this.#opened.reject(new Error("the thread ended before it began"));
      const error = new JournalError(
        this.#closing === undefined ? "unwritable" : "closed",
        this.#closing === undefined
          ? "The operation journal's thread ended unexpectedly. It is started again with the next call; if this goes on, reload the window."
          : "The operation journal is closed.",
      );
      for (const waiting of this.#waiting.values()) waiting.reject(error);
      this.#waiting.clear();
    });
    return worker;
  }

  #hear(message: FromWorker): void {
    if ("changed" in message) {
      for (const listener of this.#listeners) listener();
    } else if ("state" in message) {
      const problem = message.state.problem && unpack(message.state.problem);
      this.#problem = problem instanceof JournalError ? problem : undefined;
      this.#notice = message.state.notice;
      this.#opened.resolve();
      this.#rest();
    } else {
      const waiting = this.#waiting.get(message.id);
      this.#waiting.delete(message.id);
      this.#rest();
      if ("error" in message) waiting?.reject(unpack(message.error));
      else waiting?.resolve(message.value);
    }
  }

  /** A thread that nobody waits for does not keep the program alive. */
  #rest(): void {
    if (this.#waiting.size === 0 && this.#closing === undefined) this.#worker?.unref();
  }

  #ask<M extends Asked>(ask: M, ...args: Arguments<M>): Promise<Answer<M>> {
    if (this.#closing !== undefined && ask !== "close") {
      return Promise.reject(new JournalError("closed", "The operation journal is closed."));
    }
    return new Promise((resolve, reject) => {
      const worker = (this.#worker ??= this.#start());
      const id = ++this.#asked;
      worker.postMessage({ ask, id, args });
      worker.ref();
      this.#waiting.set(id, { resolve: resolve, reject });
    });
  }

  // ---- the journal --------------------------------------------------------------------------------------------------------------

  append(events: readonly OperationEvent[], options: { readonly durable: boolean }): Promise<readonly Operation[]> {
    return this.#ask("append", events, options);
  }

  operation(id: string): Promise<Operation | undefined> {
    return this.#ask("operation", id);
  }

  operations(query: OperationQuery): Promise<readonly Operation[]> {
    return this.#ask("operations", query);
  }

  count(states: readonly OperationState[]): Promise<number> {
    return this.#ask("count", states);
  }

  events(operationId: string): Promise<readonly OperationEvent[]> {
    return this.#ask("events", operationId);
  }

  entries(): AsyncIterable<JournalEntry> {
    return everyEntry((after) => this.#ask("entriesAfter", after));
  }

  allEvents(): AsyncIterable<OperationEvent> {
    return everyEvent(this.entries());
  }

  configure(settings: JournalSettings): void {
    this.#settings = settings;
    this.#worker?.postMessage({ configure: settings } satisfies ToWorker);
  }

  prune(): Promise<number> {
    return this.#ask("prune");
  }

  onDidChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): Promise<void> {
    this.#closing ??= this.#end();
    return this.#closing;
  }

  async #end(): Promise<void> {
    const worker = this.#worker;
    this.#listeners.clear();
    if (worker === undefined) return;
    const exited = new Promise<void>((done) => worker.once("exit", () => done()));
    await this.#ask("close").catch(() => undefined);
    await exited;
  }
}
