/**
 * Owns: time as the program sees it, in one small interface, so that a test can rule it.
 */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Runs something once after `ms` milliseconds. @returns a function that cancels it */
  after(ms: number, run: () => void): () => void;
}

/** setTimeout's limit: a longer wait would fire at once (Node.js, "Timers"). */
const longest = 2 ** 31 - 1;

/** The machine's own clock. Waiting for it does not keep the process alive. */
export const systemClock: Clock = {
  now: Date.now,
  after(ms, run) {
    const timer = setTimeout(run, Math.min(Math.max(0, ms), longest));
    timer.unref();
    return () => clearTimeout(timer);
  },
};
