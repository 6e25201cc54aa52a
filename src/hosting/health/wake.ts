/**
 * Owns: noticing that the computer slept: the clock jumped further than a short timer should have taken. One timer for all who want to
 * know, and none while nobody does.
 * Leaves to others: what is done then (probe.ts).
 */
import type { Clock } from "../../clock.ts";

/** How often the clock is looked at, and how late a look must be to count as a sleep. Milliseconds. */
export const wakeWatch = { every: 15_000, late: 30_000 } as const;

class WakeWatch {
  readonly #clock: Clock;
  readonly #listeners = new Set<() => void>();
  #stop: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  on(listener: () => void): () => void {
    this.#listeners.add(listener);
    if (this.#stop === undefined) this.#look();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size > 0) return;
      this.#stop?.();
      this.#stop = undefined;
    };
  }

  #look(): void {
    const before = this.#clock.now();
    this.#stop = this.#clock.after(wakeWatch.every, () => {
      const late = this.#clock.now() - before - wakeWatch.every;
      this.#look();
      if (late >= wakeWatch.late) for (const listener of [...this.#listeners]) listener();
    });
  }
}

const watches = new WeakMap<Clock, WakeWatch>();

/** Calls `listener` after each sleep of the computer. @returns a function that ends that */
export function onWake(clock: Clock, listener: () => void): () => void {
  let watch = watches.get(clock);
  if (watch === undefined) watches.set(clock, (watch = new WakeWatch(clock)));
  return watch.on(listener);
}
