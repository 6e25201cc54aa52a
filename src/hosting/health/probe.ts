/**
 * Owns: the evidence for and against one live connection: what its traffic says, and when the server is asked whether it is there.
 * Leaves to others: what follows (server-host.ts), the connection itself (live-connection.ts).
 *
 * The rules in one place:
 *  - Real traffic comes first: any answer, an error too, and any message of the server's proves life and ends a suspicion.
 *  - A question is asked only while nobody waits for a request, and one at a time: `ping`, or `server/discover` in the 2026-07-28 era. An
 *    answer that says "no such method" is as good as any.
 *  - A question without an answer is confirmed by tools/list before the connection is declared dead.
 *  - Without traffic the server is asked after a minute, then less and less often, up to every quarter of an hour.
 *  - After a sleep of the computer each server is asked once, not all at the same moment.
 *  - A server that may only be busy (a call that nobody waits for any more is still open at it) is declared dead only after five minutes
 *    of silence: ending it would end that call.
 */
import type { Clock } from "../../clock.ts";
import type { Ending, Era, Loss } from "../evidence.ts";
import { onWake } from "./wake.ts";

/** How long a question may take. Milliseconds. */
export const probeMs = 10_000;
/** Without traffic the server is asked after the first, then twice as late each time, at most after the longest. Milliseconds. */
export const idleWaits = { first: 60_000, longest: 900_000 } as const;
/** How long a server with an abandoned call must have been silent before it is declared dead; and between the questions meanwhile. */
export const busyMs = { silence: 300_000, again: 60_000 } as const;
/** After a sleep the questions to several servers are spread over this long, in milliseconds. */
export const wakeSpreadMs = 2_000;

/** The part of a live connection that this needs. */
export interface Probed {
  readonly open: boolean;
  readonly facts: { readonly era: Era };
  /** A call is open at the server that nobody waits for any more. */
  readonly abandoned: boolean;
  /** Settles when nobody waits for a request. */
  quiet(): Promise<void>;
  request(method: string, params: undefined, options: { readonly timeoutMs: number }): Promise<Ending>;
}

export interface ProbeParts {
  readonly clock: Clock;
  /** Uniform in [0, 1). */
  readonly random: () => number;
  /** Something speaks against the connection. Called once, until it is disproved. */
  suspected(why: string): void;
  /** The server answered after all. */
  proved(): void;
  /** Two questions remained without an answer. */
  dead(loss: Loss): void;
  /** A question is about to be asked. */
  asking(): void;
}

export class Probe {
  readonly #live: Probed;
  readonly #parts: ProbeParts;
  readonly #stopWatching: () => void;
  #stopIdle: (() => void) | undefined;
  #stopOther: (() => void) | undefined;
  #suspicion: string | undefined;
  #settling = false;
  #idleWait: number = idleWaits.first;
  #lastLife: number;
  /** Signs of life so far. */
  #lives = 0;
  #over = false;

  constructor(live: Probed, parts: ProbeParts) {
    this.#live = live;
    this.#parts = parts;
    this.#lastLife = parts.clock.now();
    this.#stopWatching = onWake(parts.clock, () => {
      this.#stopOther?.();
      this.#stopOther = parts.clock.after(parts.random() * wakeSpreadMs, () => this.suspect("The computer was asleep."));
    });
    this.#waitIdle();
  }

  /** Something speaks against the connection: it is asked, once nobody waits for a request. */
  suspect(why: string): void {
    if (this.#gone) return;
    if (this.#suspicion === undefined) {
      this.#suspicion = why;
      this.#parts.suspected(why);
    }
    void this.#settle();
  }

  /** The server gave a sign of life. */
  alive(): void {
    if (this.#over) return;
    this.#lastLife = this.#parts.clock.now();
    this.#lives++;
    if (!this.#settling) this.#idleWait = idleWaits.first;
    if (this.#suspicion === undefined) return;
    this.#suspicion = undefined;
    this.#parts.proved();
  }

  /** Ends every timer. Nothing is told any more. */
  dispose(): void {
    this.#over = true;
    this.#stopWatching();
    this.#stopIdle?.();
    this.#stopOther?.();
  }

  #waitIdle(wait = this.#idleWait): void {
    this.#stopIdle?.();
    this.#stopIdle = this.#parts.clock.after(wait, () => {
      const left = this.#lastLife + this.#idleWait - this.#parts.clock.now();
      if (left > 0) {
        this.#waitIdle(left);
        return;
      }
      void this.#settle().then(() => {
        this.#idleWait = Math.min(idleWaits.longest, this.#idleWait * 2);
        if (!this.#over) this.#waitIdle();
      });
    });
  }

  /** Asks, and asks again to be sure. One at a time. */
  async #settle(): Promise<void> {
    if (this.#settling) return;
    this.#settling = true;
    try {
      const lives = this.#lives;
      await this.#live.quiet();
      // A request that was answered meanwhile is proof enough.
      if (this.#gone || this.#lives > lives) return;
      const first = await this.#ask(this.#live.facts.era === "2026-07-28" ? "server/discover" : "ping");
      if (this.#gone || first.kind === "answer") return;
      if (this.#suspicion === undefined) this.suspect("The server did not answer a question in time.");
      // Not while somebody waits for a call that began meanwhile: its answer says it better.
      await this.#live.quiet();
      if (this.#gone || this.#suspicion === undefined) return;
      const second = await this.#ask("tools/list");
      if (this.#gone || second.kind === "answer" || this.#suspicion === undefined) return;
      this.#dead(second.loss);
    } finally {
      this.#settling = false;
    }
  }

  #ask(method: string): Promise<Ending> {
    this.#parts.asking();
    return this.#live.request(method, undefined, { timeoutMs: probeMs });
  }

  #dead(loss: Loss): void {
    const { clock } = this.#parts;
    if (this.#live.abandoned && clock.now() - this.#lastLife < busyMs.silence) {
      this.#stopOther?.();
      this.#stopOther = clock.after(busyMs.again, () => void this.#settle());
      return;
    }
    this.#parts.dead(loss.kind === "cancelled-here" ? { ...loss, kind: "no-answer" } : loss);
  }

  get #gone(): boolean {
    return this.#over || !this.#live.open;
  }
}
