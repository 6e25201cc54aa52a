/**
 * Owns: what is on record of one server's health, in memory and bounded: its changes of state, its reconnects, its questions, how fast it
 * answers.
 * Leaves to others: the log (server-host.ts writes each change there too), how it is shown (src/vscode).
 */
import type { HealthEvent, ServerState } from "./transitions.ts";

/** One change of state. */
export interface HealthEntry {
  /** Milliseconds since the epoch. */
  readonly at: number;
  readonly from: ServerState;
  readonly on: HealthEvent;
  readonly to: ServerState;
  /** One plain sentence, free of arguments, secrets and transport text. */
  readonly why?: string;
}

/** How long the server took for its latest answer. */
export interface Latency {
  /** Milliseconds. */
  readonly ms: number;
  /** What was asked: a JSON-RPC method. */
  readonly method: string;
  readonly at: number;
}

/** What a person may want to know of a server's health beside its state. */
export interface ServerHealth {
  readonly latency?: Latency;
  /** Lost connections that were made anew: all of them since this server is hosted, and within the last hour. */
  readonly reconnects: { readonly total: number; readonly lastHour: number };
  readonly lastReconnect?: { readonly at: number; readonly why: string };
  /** Questions that were asked only to see whether the server is there. */
  readonly probes: number;
  /** The latest changes of state, oldest first. */
  readonly history: readonly HealthEntry[];
}

/** Changes of state that are kept. */
export const historyLimit = 200;
/** Times of reconnects that are kept: more in an hour are counted as this many. */
const reconnectLimit = 4_000;
const hourMs = 3_600_000;

export class HealthRecord {
  #history: HealthEntry[] = [];
  #reconnects: number[] = [];
  #total = 0;
  #last: { at: number; why: string } | undefined;
  /** Why the connection that there was is none any more; undefined while nothing was lost. */
  #lost: string | undefined;
  #latency: Latency | undefined;
  #probes = 0;

  changed(entry: HealthEntry): void {
    this.#history = [...this.#history, entry].slice(-historyLimit);
    if (entry.on === "lost" || entry.on === "crash-loop") this.#lost ??= entry.why ?? "The connection was lost.";
    if (entry.on === "stop") this.#lost = undefined;
    if (entry.on !== "listed" || this.#lost === undefined) return;
    this.#total++;
    this.#reconnects = [...this.#reconnects, entry.at].filter((at) => entry.at - at < hourMs).slice(-reconnectLimit);
    this.#last = { at: entry.at, why: this.#lost };
    this.#lost = undefined;
  }

  answered(latency: Latency): void {
    this.#latency = latency;
  }

  probed(): void {
    this.#probes++;
  }

  read(now: number): ServerHealth {
    return {
      ...(this.#latency === undefined ? {} : { latency: this.#latency }),
      reconnects: { total: this.#total, lastHour: this.#reconnects.filter((at) => now - at < hourMs).length },
      ...(this.#last === undefined ? {} : { lastReconnect: this.#last }),
      probes: this.#probes,
      history: this.#history,
    };
  }
}
