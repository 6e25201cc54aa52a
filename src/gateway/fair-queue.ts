/**
 * Owns: how many requests are under way towards the hosted servers at once, and whose turn is next.
 * Leaves to others: what is said to an agent whose request finds the queue full (texts.ts).
 * Waiting requests are served in turn by client, so that one busy client does not hold up the others.
 */

export type Entry = { readonly entered: true; leave(): void } | { readonly entered: false; readonly why: "full" | "cancelled" };

interface Waiting {
  enter(): void;
}

export class FairQueue {
  readonly #running: number;
  readonly #waiting: number;
  readonly #lines = new Map<string, Waiting[]>();
  #active = 0;
  #length = 0;

  /** @param running how many may be under way at once @param waiting how many may wait beyond those */
  constructor(running: number, waiting: number) {
    this.#running = running;
    this.#waiting = waiting;
  }

  get active(): number {
    return this.#active;
  }

  get waiting(): number {
    return this.#length;
  }

  /** Waits for a place. Never rejects. An aborted signal gives the place up while it waits. */
  enter(client: string, signal?: AbortSignal): Promise<Entry> {
    if (signal?.aborted === true) return Promise.resolve({ entered: false, why: "cancelled" });
    if (this.#active < this.#running) return Promise.resolve(this.#entry());
    if (this.#length >= this.#waiting) return Promise.resolve({ entered: false, why: "full" });
    return new Promise((resolve) => {
      const giveUp = () => {
        const line = this.#lines.get(client);
        const index = line?.indexOf(waiting) ?? -1;
        if (line === undefined || index < 0) return;
        line.splice(index, 1);
        this.#length -= 1;
        if (line.length === 0) this.#lines.delete(client);
        resolve({ entered: false, why: "cancelled" });
      };
      const waiting: Waiting = {
        enter: () => {
          signal?.removeEventListener("abort", giveUp);
          resolve(this.#entry());
        },
      };
      signal?.addEventListener("abort", giveUp, { once: true });
      const line = this.#lines.get(client);
      if (line === undefined) this.#lines.set(client, [waiting]);
      else line.push(waiting);
      this.#length += 1;
    });
  }

  #entry(): Entry {
    this.#active += 1;
    let left = false;
    return {
      entered: true,
      leave: () => {
        if (left) return;
        left = true;
        this.#active -= 1;
        this.#next();
      },
    };
  }

  #next(): void {
    const [first] = this.#lines;
    if (first === undefined) return;
    const [client, line] = first;
    const waiting = line.shift();
    this.#length -= 1;
    // The client's line goes to the end: the next place is another client's.
    this.#lines.delete(client);
    if (line.length > 0) this.#lines.set(client, line);
    waiting?.enter();
  }
}
