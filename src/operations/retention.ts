/**
 * Owns: which closed operations may leave the journal, and when. Never one that is under way or unresolved, and never one whose settlement
 * an answer contradicted: those wait for a person.
 * Leaves to others: taking them out without breaking the chain (tables.ts).
 */
export interface Retention {
  /** Closed operations that nothing happened to for longer than this leave; days of 24 hours. */
  readonly days: number;
  /** Of the closed operations, this many of the newest stay at most. */
  readonly count: number;
}

export const defaultRetention: Retention = { days: 90, count: 100_000 };

/** What a person may set. A day at least: for so long the duplicate guard hands out an answer that never reached its caller. */
export const retentionLimits = { days: { min: 1, max: 36_500 }, count: { min: 100, max: 10_000_000 } } as const;

const dayMs = 24 * 60 * 60 * 1000;

/** How often retention is looked after while the journal is open, in milliseconds. */
export const retentionEveryMs = 60 * 60 * 1000;

/**
 * What time it is for retention: it moves on by a day at most from one look to the next and never ahead of the clock, so that a clock that
 * jumps ahead for a while does not empty the journal. After a long pause it catches up within hours.
 * @param before what it was at the last look; at the first one, the time of the newest event
 */
export function retentionTime(now: number, before: number | undefined): number {
  return before === undefined ? now : Math.min(now, before + dayMs);
}

/** Operations last changed before this moment leave; milliseconds since the epoch. */
export function retentionCutoff(time: number, retention: Retention): number {
  return time - retention.days * dayMs;
}
