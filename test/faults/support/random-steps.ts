/**
 * Owns: chance with a seed, and random steps for a fault server: which ones exist on which transport, and how often they come.
 */
import type { BodyKind, ResumeStep, Step } from "../../servers/fault/steps.ts";
import { eraOf, isStdio, type Transport } from "./peers.ts";

/** Chance that can be repeated. */
export class Chance {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** Uniform in [0, 1): mulberry32. */
  readonly next = (): number => {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };

  /** A whole number from 0 to `below` - 1. */
  below(below: number): number {
    return Math.floor(this.next() * below);
  }

  yes(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(items: readonly [T, ...T[]]): T {
    return items[this.below(items.length)] ?? items[0];
  }
}

type Maker = (chance: Chance) => Step;

const bodies: readonly [BodyKind, ...BodyKind[]] = ["json", "html", "empty", "text", "half-json", "other-id"];
const ways = ["end", "reset"] as const;

function resume(chance: Chance): ResumeStep[] {
  const one = (): ResumeStep =>
    chance.pick<ResumeStep>([
      { do: "answer" },
      { do: "answer" },
      { do: "end", events: chance.below(3), how: chance.pick(ways) },
      { do: "reset" },
      { do: "status", status: chance.pick([400, 404, 405, 500, 503]) },
      { do: "expired" },
    ]);
  return Array.from({ length: 1 + chance.below(4) }, one);
}

const answers: readonly [Maker, ...Maker[]] = [
  () => ({ do: "answer" }),
  (chance) => ({ do: "answer", progress: chance.below(3) }),
  () => ({ do: "answer-then-break" }),
  () => ({ do: "tool-error" }),
  () => ({ do: "error", code: -32603 }),
  () => ({ do: "bad-output" }),
  () => ({ do: "two-answers" }),
  () => ({ do: "unknown-id" }),
];

/** Losses take their effect with them or not: nobody on this side can tell. */
const effect = (chance: Chance): { readonly effect: boolean } => ({ effect: chance.yes(0.8) });

const overHttp: readonly [Maker, ...Maker[]] = [
  (chance) => ({ do: "reset", ...effect(chance) }),
  (chance) => ({ do: "fin", ...effect(chance) }),
  (chance) => ({ do: "headers-then-reset", how: chance.pick(["reset", "fin"]), ...effect(chance) }),
  (chance) => ({ do: "truncated", ...effect(chance) }),
  (chance) => ({ do: "stream-end", after: "headers", how: chance.pick(ways), ...effect(chance) }),
  (chance) => ({ do: "stream-end", events: chance.below(3), how: chance.pick(ways), ...effect(chance) }),
  (chance) => ({
    do: "status",
    status: chance.pick([400, 405, 406, 413, 415, 422, 429, 431]),
    body: chance.pick(["json", "empty"]),
  }),
  (chance) => ({
    do: "status",
    status: chance.pick([408, 421, 500, 502, 503, 504]),
    body: chance.pick(bodies),
    ...effect(chance),
  }),
  (chance) => ({
    do: "redirect",
    status: chance.pick([307, 308]),
    to: chance.pick(["same-origin", "other-origin"]),
    ...effect(chance),
  }),
  () => ({ do: "unauthorised" }),
  () => ({ do: "stale-socket" }),
  () => ({ do: "reset-while-reading" }),
];

/** Streamable HTTP, both eras: what is no loss on HTTP+SSE. */
const overStreamable: readonly Maker[] = [
  (chance) => ({ do: "accepted", ...effect(chance) }),
  (chance) => ({
    do: "status",
    status: 200,
    body: chance.pick(["html", "empty", "text", "half-json", "other-id"]),
    ...effect(chance),
  }),
  (chance) => ({ do: "stream-end", ids: true, retryMs: chance.below(30), resume: resume(chance), ...effect(chance) }),
  (chance) => ({ do: "task", deliver: { do: chance.pick(["reset", "fin"]) }, ...effect(chance) }),
];

const overLegacyHttp: readonly Maker[] = [
  () => ({ do: "session-gone", body: "empty" }),
  () => ({ do: "session-gone", body: "json-without-id" }),
  (chance) => ({ do: "stream-end", ids: true, events: chance.below(3), resume: resume(chance), ...effect(chance) }),
  () => ({ do: "elicit" }),
];

const inModernEra: readonly Maker[] = [
  () => ({ do: "header-mismatch" }),
  () => ({ do: "unsupported-version" }),
  () => ({ do: "input-required" }),
];

const overStdio: readonly [Maker, ...Maker[]] = [
  (chance) => ({ do: "exit", code: chance.below(2), ...effect(chance) }),
  (chance) => ({ do: "kill", ...effect(chance) }),
  (chance) => ({ do: "partial-line", ...effect(chance) }),
  (chance) => ({ do: "close-stdout", ...effect(chance) }),
  () => ({ do: "garbage" }),
];

/** What a fault server does with one call. @param lossy how often the answer does not simply come */
export function randomStep(transport: Transport, chance: Chance, lossy: number): Step {
  if (!chance.yes(lossy)) return chance.pick(answers)(chance);
  if (chance.yes(0.1)) return { do: "hang" };
  const makers: Maker[] = isStdio(transport) ? [...overStdio] : [...overHttp];
  if (!isStdio(transport) && transport !== "sse-2024") makers.push(...overStreamable);
  if (!isStdio(transport) && transport !== "sse-2024" && eraOf(transport) === "2025-11-25") makers.push(...overLegacyHttp);
  if (eraOf(transport) === "2026-07-28") makers.push(...inModernEra);
  return (makers[chance.below(makers.length)] ?? overHttp[0])(chance);
}
