/**
 * Owns: what every part of the heart works with: the journal, the hosted servers, trust, settings, contracts, time and chance; and
 * the one way in which events are made and noted.
 * Leaves to others: every decision.
 */
import type { Clock } from "../clock.ts";
import type { ListedTool } from "../hosting/connection.ts";
import type { JsonRpcAnswer } from "../hosting/evidence.ts";
import type { HostedServer } from "../hosting/hosted-server.ts";
import { JournalError, type Journal } from "../operations/journal.ts";
import {
  contradicts,
  IllegalTransition,
  type Actor,
  type EventData,
  type EventType,
  type OperationEvent,
} from "../operations/model.ts";
import { trustNow, type TrustNow, type TrustSource } from "../trust/trust.ts";
import type { Contract, Contracts } from "./contracts.ts";
import type { ReplaySettings } from "./settings.ts";

export interface DeskOptions {
  readonly journal: Journal;
  readonly servers: () => ReadonlyMap<string, HostedServer>;
  /** Read at the moment of use; no verdict is kept. */
  readonly trust: TrustSource;
  readonly settings: () => ReplaySettings;
  readonly contracts: () => Contracts;
  readonly clock: Clock;
  readonly random: () => number;
  /** Never gets arguments or transport text. */
  readonly log: (server: string, text: string) => void;
}

/** How long after a failed write it is tried again, in milliseconds. */
const payAgainMs = 5_000;

export class Desk {
  readonly journal: Journal;
  readonly clock: Clock;
  readonly random: () => number;
  readonly #options: DeskOptions;
  /** Operations under way here that are on record. */
  readonly #onRecord = new Set<string>();
  /** What became of them and could not be written yet, oldest first. */
  #owed: (readonly OperationEvent[])[] = [];
  #paying: Promise<void> | undefined;
  #stopPaying: (() => void) | undefined;
  /** Why the last write failed; safe to show. */
  #failure = "";
  /** No further attempt is made once this is set. */
  closing = false;

  constructor(options: DeskOptions) {
    this.#options = options;
    this.journal = options.journal;
    this.clock = options.clock;
    this.random = options.random;
  }

  get settings(): ReplaySettings {
    return this.#options.settings();
  }

  server(name: string): HostedServer | undefined {
    return this.#options.servers().get(name);
  }

  contract(server: string, tool: string): Contract | undefined {
    return this.#options.contracts().get(server)?.get(tool);
  }

  trustNow(server: HostedServer): TrustNow {
    return trustNow(this.#options.trust, server.name, server.fingerprint);
  }

  log(server: string, text: string): void {
    this.#options.log(server, text);
  }

  pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.clock.after(ms, resolve);
    });
  }

  /** A promise, for `ms` milliseconds at most; it rejects after that. What it brings later is let go. */
  within<T>(ms: number, promise: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const stopClock = this.clock.after(ms, () => reject(new Error("took too long")));
      void promise.then(resolve, reject).finally(stopClock);
    });
  }

  event<T extends EventType>(operationId: string, type: T, actor: Actor, data: EventData[T]): OperationEvent {
    return { operationId, type, actor, at: this.clock.now(), data } as OperationEvent;
  }

  /** An attempt is about to go out. Rejects when it could not be written; then nothing may leave. */
  async append(events: readonly OperationEvent[], options: { readonly durable: boolean }): Promise<void> {
    // In the same turn, so that they are written before it, or it fails with them.
    if (this.owes) void this.pay();
    await this.journal.append(events, options);
    for (const { operationId } of events) this.#onRecord.add(operationId);
  }

  /** Nobody waits for this operation here any more. */
  over(operationId: string): void {
    this.#onRecord.delete(operationId);
  }

  /**
   * Results and losses: written at once, but a failure only ever errs toward `unresolved`.
   * What could not be written about an operation under way here is owed: written before the next attempt goes out, or within seconds of
   * the journal's working again. Until then its operation would stand in the journal as in flight, where the guard does not look.
   * @returns whether it was written, or will be
   */
  async note(...events: readonly OperationEvent[]): Promise<boolean> {
    if (this.owes) await this.pay();
    const mayBeOwed = events.every((event) => isOwed(event) && this.#onRecord.has(event.operationId));
    // What is still owed comes first.
    if (!this.owes || !mayBeOwed) {
      const failure = await this.#write(events);
      if (!(failure instanceof JournalError) || !mayBeOwed) return failure === undefined;
      this.#failure = failure.message;
    }
    this.#owed.push(events);
    this.#payLater();
    return true;
  }

  /** The same for what only counts if it is written now. @returns whether it was */
  async noteNow(...events: readonly OperationEvent[]): Promise<boolean> {
    if (this.owes) await this.pay();
    return (await this.#write(events)) === undefined;
  }

  /** Whether something that became of an operation is not in the journal yet. */
  get owes(): boolean {
    return this.#owed.length > 0;
  }

  /** Why it is not; safe to show. */
  get failure(): string {
    return this.#failure;
  }

  /** Writes what is owed, in order, as far as that is possible by now. Never rejects. */
  pay(): Promise<void> {
    this.#paying ??= this.#pay().finally(() => (this.#paying = undefined));
    return this.#paying;
  }

  async #pay(): Promise<void> {
    const owed = [...this.#owed];
    // Together: they share one write. What the table of transitions refuses by now (settled meanwhile by another window) is done with.
    const failures = await Promise.all(owed.map((events) => this.#write(events)));
    this.#owed = this.#owed.filter((_, index) => index >= owed.length || failures[index] instanceof JournalError);
  }

  #payLater(): void {
    this.#stopPaying ??= this.clock.after(payAgainMs, () => {
      this.#stopPaying = undefined;
      void this.pay().then(() => {
        if (this.owes && !this.closing) this.#payLater();
      });
    });
  }

  /** @returns the failure, or undefined when it was written */
  async #write(events: readonly OperationEvent[]): Promise<unknown> {
    if (events.length === 0) return undefined;
    try {
      await this.journal.append(events, { durable: false });
      return undefined;
    } catch (error) {
      const what = error instanceof JournalError ? error.code : error instanceof IllegalTransition ? error.message : "error";
      this.log("", `journal: could not note '${events.map((event) => event.type).join(", ")}' (${what})`);
      return error;
    }
  }

  /** The program is about to end: what is still owed is tried once more. */
  async end(): Promise<void> {
    this.closing = true;
    await this.pay();
    this.#stopPaying?.();
  }

  /** An observation made while nobody waits any more: the answer to an attempt that was given up or lost. */
  async noteLate(id: string, attempt: number, answer: JsonRpcAnswer): Promise<void> {
    const data = observationOf(answer);
    const operation = await this.journal.operation(id).catch(() => undefined);
    if (operation === undefined) return;
    const events = [this.event(id, "late-answer", "server", { attempt, ...data })];
    const { settlement } = operation;
    // What was settled before this attempt was made says nothing about it.
    if (settlement !== undefined && attempt <= settlement.attempts && contradicts(settlement.as, data)) {
      events.push(this.event(id, "conflict", "gateway", { settledAs: settlement.as, isError: data.isError }));
    }
    await this.note(...events);
  }

  noteDelivered(id: string, to: string): void {
    void this.note(this.event(id, "delivered", "gateway", { to }));
  }
}

/** A cursor or a task only helps while its call is out, and there may be many of them. */
function isOwed({ type }: OperationEvent): boolean {
  return type !== "cursor" && type !== "task";
}

/** What the journal keeps of an answer. */
export function observationOf(answer: JsonRpcAnswer): { result?: unknown; error?: unknown; isError: boolean } {
  return "error" in answer
    ? { error: answer.error, isError: true }
    : { result: answer.result, isError: answer.result["isError"] === true };
}

export function toolNamed(tools: readonly ListedTool[], name: string): ListedTool | undefined {
  return tools.find((tool) => tool.name === name);
}

/** The class of a failure, for the log: never its text. */
export function kindOf(error: unknown): string {
  const kind = (error as { kind?: unknown } | null)?.kind;
  return typeof kind === "string" ? kind : "error";
}
