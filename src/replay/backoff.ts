/**
 * Owns: how long to wait before a further attempt, and the small replay budget of a server. Pure but for what is passed in.
 */

/** Full jitter: uniformly between 0 and the capped exponential, in milliseconds; never before what the server asked for. */
export function fullJitter(attempt: number, random: () => number, retryAfterMs = 0, baseMs = 100, capMs = 2_000): number {
  const ceiling = Math.min(capMs, baseMs * 2 ** Math.max(0, attempt - 1));
  return Math.max(retryAfterMs, Math.floor(random() * ceiling));
}

/** How long to wait before asking again about a call that is still running, in milliseconds: longer each time, never at once. */
export function patience(attempt: number, random: () => number, baseMs = 250, capMs = 2_000): number {
  return Math.floor((0.5 + random() / 2) * Math.min(capMs, baseMs * 2 ** attempt));
}

/**
 * A token bucket per server, so that an outage does not multiply load: each replay costs one token, tokens come back over time.
 */
export class ReplayBudget {
  readonly #capacity: number;
  readonly #perSecond: number;
  readonly #tokens = new Map<string, { left: number; at: number }>();

  constructor(capacity = 20, perSecond = 1) {
    this.#capacity = capacity;
    this.#perSecond = perSecond;
  }

  /** Whether `take` would succeed. `now` in milliseconds. */
  has(server: string, now: number): boolean {
    return this.#left(server, now) >= 1;
  }

  take(server: string, now: number): boolean {
    const left = this.#left(server, now);
    if (left < 1) return false;
    this.#tokens.set(server, { left: left - 1, at: now });
    return true;
  }

  #left(server: string, now: number): number {
    const entry = this.#tokens.get(server);
    if (entry === undefined) return this.#capacity;
    // A clock that jumped back must not mint tokens.
    const seconds = Math.max(0, now - entry.at) / 1000;
    return Math.min(this.#capacity, entry.left + seconds * this.#perSecond);
  }
}
