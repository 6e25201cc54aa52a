/**
 * Owns: folders for journals that a test leaves behind, a look into their file from outside, and other programs on them as real processes.
 */
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterEach, vi } from "vitest";
import type { Journal } from "../../../src/operations/journal.ts";
import type { SqliteJournalOptions } from "../../../src/operations/sqlite-journal.ts";
import { temporaryFolder } from "../../support/temp.ts";

// Real files, threads and programs: on a busy machine they take their time, and that is no failure.
vi.setConfig({ testTimeout: 120_000 });

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const clean of cleanups.splice(0).reverse()) await clean();
});

/** The path of a journal folder that does not exist yet; removed when the test ends. */
export function journalFolder(): string {
  const made = temporaryFolder();
  cleanups.push(() => made.remove());
  return join(made.path, "journal");
}

/** Closed when the test ends, before its folder goes. */
export function closing<T extends { close(): unknown }>(opened: T): T {
  cleanups.push(() => opened.close());
  return opened;
}

export const fileOf = (directory: string): string => join(directory, "journal.sqlite");

/** Does something to the journal's tables that the journal itself never would. */
export function tamper(directory: string, sql: string): void {
  const db = new DatabaseSync(fileOf(directory));
  try {
    db.exec(sql);
  } finally {
    db.close();
  }
}

export type ProgramOptions = Omit<SqliteJournalOptions, "now" | "openDatabase"> & {
  /** In the program's own thread instead of the journal's. */
  readonly inProcess?: boolean;
  /** Give up the rights of root before the journal is opened. */
  readonly asNobody?: boolean;
};

/** Another program with the journal open: asked by name for what the journal does. */
export class Program {
  readonly child: ChildProcess;
  #asked = 0;
  readonly #changes: (() => void)[] = [];

  private constructor(child: ChildProcess) {
    this.child = child;
    child.setMaxListeners(0);
    child.on("message", (message: { changed?: true }) => {
      if (message.changed === true) for (const told of this.#changes.splice(0)) told();
    });
    cleanups.push(() => this.kill());
  }

  static async start(options: ProgramOptions): Promise<Program> {
    const file = join(import.meta.dirname, "journal-program.ts");
    const program = new Program(fork(file, [JSON.stringify(options)], { execArgv: [] }));
    await program.#answer(0);
    return program;
  }

  /** The journal's own method, there. */
  ask<M extends "append" | "operation" | "operations" | "events" | "close">(
    method: M,
    ...args: Parameters<Journal[M]>
  ): ReturnType<Journal[M]> {
    const id = ++this.#asked;
    this.child.send({ id, method, args });
    return this.#answer(id) as ReturnType<Journal[M]>;
  }

  problem(): Promise<{ code: string; message: string } | undefined> {
    const id = ++this.#asked;
    this.child.send({ id, method: "problem", args: [] });
    return this.#answer(id) as Promise<{ code: string; message: string } | undefined>;
  }

  /** The next change that this program is told of. */
  changed(): Promise<void> {
    return new Promise((done) => this.#changes.push(done));
  }

  async kill(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const gone = once(this.child, "exit");
    this.child.kill("SIGKILL");
    await gone;
  }

  #answer(id: number): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const hear = (message: {
        id?: number;
        value?: unknown;
        error?: { name: string; code?: string; message: string };
      }): void => {
        if (message.id !== id) return;
        this.child.off("message", hear);
        this.child.off("exit", ended);
        if (message.error === undefined) resolve(message.value);
        else reject(Object.assign(new Error(message.error.message), message.error));
      };
      const ended = (): void => reject(new Error("the program ended"));
      this.child.on("message", hear);
      this.child.once("exit", ended);
    });
  }
}
