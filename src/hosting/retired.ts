/**
 * Owns: connections that are over or given up, until nothing of them is left: requests under way on them are left to end by themselves,
 * for a bounded time, then the session is deleted or the process ended.
 * Leaves to others: giving up a connection (server-host.ts), how its end is brought about (the transports).
 */
import type { Clock } from "../clock.ts";
import type { LiveConnection } from "./live-connection.ts";

/**
 * How long requests under way are waited for, in milliseconds. A process is in the way of the new one, an HTTP connection is in nobody's.
 */
export const siblingsMs = { stdio: 30_000, remote: 900_000 } as const;

export class RetiredConnections {
  readonly #clock: Clock;
  readonly #retired = new Map<LiveConnection, Promise<void>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Ends a connection once the requests under way on it have ended. */
  add(live: LiveConnection): void {
    if (this.#retired.has(live)) return;
    const patience = Promise.withResolvers<void>();
    const stop = this.#clock.after(live.facts.transport === "stdio" ? siblingsMs.stdio : siblingsMs.remote, patience.resolve);
    const gone = Promise.race([live.idle(), patience.promise])
      .then(() => live.close())
      .finally(() => {
        stop();
        this.#retired.delete(live);
      });
    this.#retired.set(live, gone);
  }

  /** Settles when nothing is left of those that are here now. */
  async gone(): Promise<void> {
    await Promise.all(this.#retired.values());
  }

  /** Ends all of them at once; what is under way on them is lost. Settles when nothing is left. */
  async close(): Promise<void> {
    await Promise.all([...this.#retired.keys()].map((live) => live.close()));
    await this.gone();
  }
}
