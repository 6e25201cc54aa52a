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

export class Desk {
  readonly journal: Journal;
  readonly clock: Clock;
  readonly random: () => number;
  readonly #options: DeskOptions;
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

  /** Results and losses: written at once, but a failure only ever errs toward `unresolved`. @returns whether it was written */
  async note(...events: readonly OperationEvent[]): Promise<boolean> {
    if (events.length === 0) return true;
    try {
      await this.journal.append(events, { durable: false });
      return true;
    } catch (error) {
      const what = error instanceof JournalError ? error.code : error instanceof IllegalTransition ? error.message : "error";
      this.log("", `journal: could not note '${events.map((event) => event.type).join(", ")}' (${what})`);
      return false;
    }
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
