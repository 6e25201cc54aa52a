/**
 * Owns: a clock that moves when a test says so.
 */
import type { Clock } from "../../src/clock.ts";

export class FakeClock implements Clock {
  #now = 1_700_000_000_000;
  #timers = new Set<{ at: number; run: () => void }>();
  /** Timers shorter than this run by themselves, at once: waits that the test is not about. Milliseconds. */
  instantBelow = 0;

  now(): number {
    return this.#now;
  }

  after(ms: number, run: () => void): () => void {
    if (ms < this.instantBelow) {
      let live = true;
      queueMicrotask(() => {
        if (live) run();
      });
      return () => {
        live = false;
      };
    }
    const timer = { at: this.#now + ms, run };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  /** Moves on, running what falls due, in order. */
  advance(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      const due = [...this.#timers].filter((timer) => timer.at <= end).sort((a, b) => a.at - b.at)[0];
      if (due === undefined) break;
      this.#timers.delete(due);
      this.#now = Math.max(this.#now, due.at);
      due.run();
    }
    this.#now = end;
  }

  get pending(): number {
    return this.#timers.size;
  }
}
