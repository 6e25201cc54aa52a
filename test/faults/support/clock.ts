/**
 * Owns: time in the fault tests: it stands still for every decision and passes when a test says so. Short waits (backoff, `retry`) are
 * real, long ones (time limits) are held until the test lets them fall due, so that a busy machine never decides an outcome.
 */
import type { Clock } from "../../../src/clock.ts";

/** Timers of at least so many milliseconds are held. The bound of a further attempt (5 s) is the shortest of them. */
const heldFromMs = 4_000;

export class TestClock implements Clock {
  #now = Date.now();
  readonly #held = new Set<{ readonly ms: number; readonly at: number; readonly run: () => void }>();

  now(): number {
    return this.#now;
  }

  after(ms: number, run: () => void): () => void {
    if (ms < heldFromMs) {
      const timer = setTimeout(run, Math.max(0, ms));
      return () => clearTimeout(timer);
    }
    const held = { ms, at: this.#now + ms, run };
    this.#held.add(held);
    return () => this.#held.delete(held);
  }

  /** Lets every timer that was set for exactly so many milliseconds fall due. @returns how many there were */
  fire(ms: number): number {
    const due = [...this.#held].filter((timer) => timer.ms === ms);
    for (const timer of due) if (this.#held.delete(timer)) timer.run();
    return due.length;
  }

  /** How many timers of so many milliseconds are running. */
  running(ms: number): number {
    return [...this.#held].filter((timer) => timer.ms === ms).length;
  }

  /** Moves time on, or back; held timers that are due then run. */
  jump(ms: number): void {
    this.#now += ms;
    const due = [...this.#held].filter((timer) => timer.at <= this.#now).sort((a, b) => a.at - b.at);
    for (const timer of due) if (this.#held.delete(timer)) timer.run();
  }
}
