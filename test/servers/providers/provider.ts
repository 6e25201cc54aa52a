/**
 * Owns: a booking provider with real idempotency semantics, and faulty ones: what a key protects is decided here, and every booking that
 * was really made is in the ledger.
 *
 * A key is bound to its payload (another one: 422), atomic (the same key while the first call is still at work: 409), and remembered for as
 * long as the documentation says, by a clock that the test rules. Each of these can be broken, one at a time.
 * Leaves to others: the wire (http-provider.ts, stdio-provider.ts).
 */
import { canonicalArguments, type EffectEntry, type Ledger } from "../ledger.ts";

/** What the provider does otherwise than its documentation promises. */
export interface ProviderFaults {
  /** It looks whether the key is known, then does the work, then remembers the key: two calls at once are both done. */
  readonly notAtomic?: boolean;
  /** It forgets a key after so many seconds, whatever it promised. */
  readonly forgetsAfterSeconds?: number;
  /** The same key with other arguments gets the first answer, as if nothing were wrong. */
  readonly ignoresPayload?: boolean;
  /** The MCP server does not hand the key on: it keeps answers in its own memory, and the provider books whatever it is asked. */
  readonly keyStopsAtServer?: boolean;
  /** It knows no keys at all. */
  readonly noKeys?: boolean;
}

export interface ProviderOptions {
  readonly ledger: Ledger;
  /** Milliseconds since the epoch. Default: the machine's clock. */
  readonly now?: () => number;
  /** What the documentation promises. Default: a day. */
  readonly retentionSeconds?: number;
  readonly faults?: ProviderFaults;
  /**
   * While this holds, a create that has begun waits for a second one with the same key (or for so many milliseconds), so that two at once
   * really meet. Default 0: it is done at once.
   */
  readonly meetMs?: number;
  /** A lookup sees a booking only so long after it was made. Default 0. */
  readonly visibleAfterSeconds?: number;
}

export interface Booking {
  readonly reference: string;
  readonly hotel: string;
  readonly night: string;
  readonly guest: string;
  readonly requestKey: string | null;
}

export type Created =
  | { readonly status: 200; readonly booking: Booking }
  /** A call with this key is at work. */
  | { readonly status: 409 }
  /** The key was used with another payload. */
  | { readonly status: 422 };

interface Known {
  readonly payload: string;
  readonly booking: Booking;
  readonly at: number;
}

export class Provider {
  readonly ledger: Ledger;
  faults: ProviderFaults;
  /** A create that has begun waits until this is released, when it is set. */
  #gate: { readonly begun: PromiseWithResolvers<void>; readonly go: Promise<void> } | undefined;
  readonly #now: () => number;
  readonly #retentionMs: number;
  readonly #meetMs: number;
  readonly #visibleMs: number;
  readonly #keys = new Map<string, Known>();
  readonly #atWork = new Map<string, string>();
  readonly #met = new Map<string, () => void>();
  /** Of the MCP server in front of a provider that never sees a key. */
  readonly #serverMemory = new Map<string, Booking>();

  constructor(options: ProviderOptions) {
    this.ledger = options.ledger;
    this.faults = options.faults ?? {};
    this.#now = options.now ?? Date.now;
    this.#retentionMs = (options.retentionSeconds ?? 86_400) * 1000;
    this.#meetMs = options.meetMs ?? 0;
    this.#visibleMs = (options.visibleAfterSeconds ?? 0) * 1000;
    // A provider outlives the process of the MCP server in front of it.
    if (this.faults.keyStopsAtServer !== true)
      for (const [index, effect] of this.ledger.effects({ tool: "create_booking" }).entries()) this.#remember(effect, index);
  }

  /** What was really booked, in order. */
  get bookings(): readonly Booking[] {
    return this.ledger.effects({ tool: "create_booking" }).map(bookingOf);
  }

  /** Holds the next creates where they have begun, until `release` is called. */
  hold(): { readonly begun: Promise<void>; release(): void } {
    const begun = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    this.#gate = { begun, go: go.promise };
    return {
      begun: begun.promise,
      release: () => {
        this.#gate = undefined;
        go.resolve();
      },
    };
  }

  /** As another process of the MCP server would come up: what it only kept in its own memory is gone. */
  restartServer(): void {
    this.#serverMemory.clear();
  }

  async create(args: Readonly<Record<string, string>>, rpcId: string | number): Promise<Created> {
    const { requestKey, ...payload } = args;
    if (this.faults.keyStopsAtServer === true && requestKey !== undefined) {
      const earlier = this.#serverMemory.get(requestKey);
      if (earlier !== undefined) return { status: 200, booking: earlier };
      const created = await this.#book(payload, undefined, rpcId);
      if (created.status === 200) this.#serverMemory.set(requestKey, created.booking);
      return created;
    }
    return this.#book(payload, this.faults.noKeys === true ? undefined : requestKey, rpcId);
  }

  async #book(payload: Readonly<Record<string, string>>, key: string | undefined, rpcId: string | number): Promise<Created> {
    const text = canonicalArguments(payload);
    let alone = true;
    if (key !== undefined) {
      const known = this.#known(key);
      if (known !== undefined && known.payload !== text && this.faults.ignoresPayload !== true) return { status: 422 };
      if (known !== undefined) return { status: 200, booking: known.booking };
      const waiting = this.#met.get(key);
      waiting?.();
      alone = waiting === undefined;
      if (this.faults.notAtomic !== true) {
        const atWork = this.#atWork.get(key);
        if (atWork !== undefined) return atWork === text ? { status: 409 } : { status: 422 };
        this.#atWork.set(key, text);
      }
    }
    try {
      this.#gate?.begun.resolve();
      await this.#gate?.go;
      if (key !== undefined && alone && this.#meetMs > 0) await this.#meet(key);
      const effect = this.ledger.recordEffect({
        tool: "create_booking",
        arguments: { ...payload, ...(key === undefined ? {} : { requestKey: key }), madeAt: this.#now() },
        rpcId,
        ...(key === undefined ? {} : { key }),
      });
      this.#remember(effect, this.bookings.length - 1);
      return { status: 200, booking: bookingOf(effect, this.bookings.length - 1) };
    } finally {
      if (key !== undefined) this.#atWork.delete(key);
    }
  }

  /** The bookings that a lookup sees now. */
  find(wanted: Readonly<Record<string, string>>): readonly Booking[] {
    const visible = this.#now() - this.#visibleMs;
    return this.ledger
      .effects({ tool: "create_booking" })
      .map((effect, index) => ({ booking: bookingOf(effect, index), madeAt: Number(effect.arguments["madeAt"]) }))
      .filter(({ booking, madeAt }) => {
        const fields = booking as unknown as Record<string, unknown>;
        return madeAt <= visible && Object.entries(wanted).every(([name, value]) => fields[name] === value);
      })
      .map(({ booking }) => booking);
  }

  #known(key: string): Known | undefined {
    const known = this.#keys.get(key);
    if (known === undefined) return undefined;
    const keptMs = this.faults.forgetsAfterSeconds === undefined ? this.#retentionMs : this.faults.forgetsAfterSeconds * 1000;
    if (this.#now() - known.at < keptMs) return known;
    this.#keys.delete(key);
    return undefined;
  }

  #remember(effect: EffectEntry, index: number): void {
    const { requestKey, madeAt, ...payload } = effect.arguments;
    if (typeof requestKey !== "string") return;
    this.#keys.set(requestKey, {
      payload: canonicalArguments(payload),
      booking: bookingOf(effect, index),
      at: Number(madeAt),
    });
  }

  /** Waits for a second create with this key. */
  async #meet(key: string): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const limit = setTimeout(resolve, this.#meetMs);
    this.#met.set(key, resolve);
    await promise;
    clearTimeout(limit);
    this.#met.delete(key);
  }
}

function bookingOf(effect: EffectEntry, index: number): Booking {
  const { hotel, night, guest, requestKey } = effect.arguments as Record<string, string>;
  return {
    reference: `R-${index + 1}`,
    hotel: hotel ?? "",
    night: night ?? "",
    guest: guest ?? "",
    requestKey: requestKey ?? null,
  };
}
