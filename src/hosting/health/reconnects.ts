/**
 * Owns: when a lost connection is tried again: full-jitter waits, what a server asked for, and the crash-loop breaker.
 * Leaves to others: making the attempt and its timer (server-host.ts).
 */
import type { HostingError } from "../connection.ts";

/** Waits before attempt n (full jitter): uniformly up to first * 2^n, at most the longest. Milliseconds. */
export const reconnectWaits = { first: 1_000, longest: 60_000 } as const;
/** A connection that lived this long starts the waits anew. Milliseconds. */
export const settledMs = 30_000;
/** So many exits within the window, and the process stays down. */
export const crashLoop = { exits: 5, windowMs: 60_000 } as const;

/** Failures that another attempt may mend by itself. */
const passing = new Set<HostingError["kind"]>([
  "connect-refused",
  "dns",
  "connect-timeout",
  "reset",
  "truncated",
  "no-answer",
  "stream-ended",
  "session-gone",
  "process-exit",
  "stdin-closed",
  "stdout-closed",
]);
/** Beside all of 5xx: RFC 9110, 15.5.9; RFC 8470, 5.2; RFC 6585, 4. */
const passingStatuses = new Set([408, 425, 429]);

/** Whether another attempt may succeed although nobody changed anything. A server that names a time says so itself. */
export function mayPass({ kind, httpStatus, retryAfterMs }: HostingError): boolean {
  if (kind !== "http-status") return passing.has(kind);
  return retryAfterMs !== undefined || (httpStatus !== undefined && (httpStatus >= 500 || passingStatuses.has(httpStatus)));
}

/** The memory that decides the next attempt of one server. */
export class Reconnects {
  readonly #random: () => number;
  #failures = 0;
  #exits: number[] = [];
  #notBefore = 0;

  /** @param random uniform in [0, 1) */
  constructor(random: () => number) {
    this.#random = random;
  }

  /** Which attempt the next one is since the connection was last good; 1 is the first. */
  get attempt(): number {
    return this.#failures;
  }

  /** Milliseconds that the server asked to be left alone for, from `now`; 0 when it did not. */
  left(now: number): number {
    return Math.max(0, this.#notBefore - now);
  }

  /**
   * Sets the next attempt.
   * @param retryAfterMs what the server asked for: no attempt is made earlier
   * @returns when, in milliseconds from `now`
   */
  next(now: number, retryAfterMs = 0): number {
    const jitter = this.#random() * Math.min(reconnectWaits.longest, reconnectWaits.first * 2 ** this.#failures);
    this.#failures++;
    this.#notBefore = now + retryAfterMs;
    return Math.max(retryAfterMs, jitter);
  }

  /** A connection that stood from `since` to `now` is over. One that stood long enough starts the waits anew. */
  ended(since: number, now: number): void {
    if (now - since >= settledMs) this.#failures = 0;
  }

  /** The program ended without having been asked to. */
  exited(now: number): void {
    this.#exits.push(now);
  }

  /** Whether the program ended too often lately. */
  crashes(now: number): boolean {
    this.#exits = this.#exits.filter((at) => now - at < crashLoop.windowMs);
    return this.#exits.length >= crashLoop.exits;
  }

  /** A person wants it now: nothing that went before counts. */
  forget(): void {
    this.#failures = 0;
    this.#exits = [];
    this.#notBefore = 0;
  }
}
