/**
 * Owns: what a lookup asks and what its answer proves. Pure: the call itself is made by the call manager.
 * Only two answers decide: a record that matches the exact target and arguments, and a definitive "none" within the contract's time.
 * Anything else (missing, delayed, inaccessible, ambiguous) decides nothing.
 * Sources: DESIGN.md section 4, step 4; the second source document, steps 5 and 6.
 */
import canonicalize from "canonicalize";
import { dataOf, evaluate, marginMs, valueAt, type Lookup } from "./contracts.ts";

/** What is known of the operation that is looked up. */
export interface LookupSubject {
  readonly id: string;
  readonly key: string | undefined;
  /** JSON Pointer to the argument that took the key; `sameAs` may name it. */
  readonly keyArgument: string | undefined;
  /** Without the key. */
  readonly arguments: Record<string, unknown>;
}

/** Whether the lookup asks for something that only this operation has, its key or its id. Otherwise an identical one's record looks alike. */
export function isTied(lookup: Lookup, { keyArgument }: Pick<LookupSubject, "keyArgument">): boolean {
  const asks = /\{\{\s*(key|operation)\s*\}\}/.test(JSON.stringify(lookup.arguments));
  return asks || (keyArgument !== undefined && Object.hasOwn(lookup.sameAs, keyArgument));
}

/**
 * The lookup tool's arguments: `{{key}}`, `{{operation}}` and `{{arguments/…}}` are put in; a text that is only one placeholder takes
 * the value as it is (numbers stay numbers).
 * @returns undefined when a placeholder has no value: then there is nothing to ask for
 */
export function lookupArguments(lookup: Lookup, subject: LookupSubject): Record<string, unknown> | undefined {
  let complete = true;
  const valueOf = (name: string): unknown => {
    const value: unknown =
      name === "key"
        ? subject.key
        : name === "operation"
          ? subject.id
          : name.startsWith("arguments/")
            ? valueAt(subject.arguments, name.slice("arguments".length))
            : undefined;
    if (value === undefined) complete = false;
    return value;
  };
  const fill = (template: unknown): unknown => {
    if (typeof template === "string") {
      const whole = /^\{\{([^{}]+)\}\}$/.exec(template);
      if (whole?.[1] !== undefined) return valueOf(whole[1].trim());
      return template.replace(/\{\{([^{}]+)\}\}/g, (_, name: string) => textOf(valueOf(name.trim())));
    }
    if (Array.isArray(template)) return template.map(fill);
    if (typeof template === "object" && template !== null)
      return Object.fromEntries(Object.entries(template).map(([key, item]) => [key, fill(item)]));
    return template;
  };
  const filled = fill(lookup.arguments) as Record<string, unknown>;
  return complete ? filled : undefined;
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : (canonicalize(value) ?? "");
}

export type LookupFinding =
  | { readonly found: "effect"; readonly evidence: string }
  | { readonly found: "no-effect"; readonly evidence: string }
  /** `again`: not before this many milliseconds from now can the answer mean more. */
  | { readonly found: "undecided"; readonly evidence: string; readonly againMs?: number };

/** All in milliseconds since the epoch. */
export interface LookupTimes {
  /** When the first attempt was sent: since then there may be a record, and since then it may have been dropped. */
  readonly firstSentAt: number;
  /** The last attempt's end: until then there may have come a record. */
  readonly lostAt: number;
  /** When the question was put. */
  readonly now: number;
}

/** What the lookup's result proves about the operation. */
export function judgeLookup(
  lookup: Lookup,
  subject: LookupSubject,
  result: Record<string, unknown>,
  times: LookupTimes,
): LookupFinding {
  if (result["isError"] === true) return { found: "undecided", evidence: "the lookup tool reported an error" };
  const data = dataOf(result);
  const effect = isThere(evaluate(lookup.effect, data));
  // Only a plain yes: a "none" allows a repeat.
  const none = evaluate(lookup.noEffect, data) === true;
  if (effect && none)
    return { found: "undecided", evidence: "the lookup's answer says both that it happened and that it did not" };
  if (effect) {
    const differing = Object.entries(lookup.sameAs).filter(([argument, path]) => {
      const wanted = argument === subject.keyArgument ? subject.key : valueAt(subject.arguments, argument);
      const found = evaluate(path, data);
      return wanted === undefined || found === undefined || found === null || canonicalize(wanted) !== canonicalize(found);
    });
    // Names of arguments, never their values.
    if (differing.length > 0)
      return {
        found: "undecided",
        evidence: `a record was found, but it differs in ${differing.map(([argument]) => argument).join(", ")}`,
      };
    return {
      found: "effect",
      evidence: `the lookup tool '${lookup.tool}' found the record with the same ${Object.keys(lookup.sameAs).join(", ")}`,
    };
  }
  if (!none) return { found: "undecided", evidence: "the lookup's answer is neither of the two that the contract names" };
  const age = times.now - times.lostAt;
  if (age < 0) return { found: "undecided", evidence: "the lookup found nothing, but the clock went back since the loss" };
  if (age < lookup.consistentAfterSeconds * 1000) {
    return {
      found: "undecided",
      evidence: "the lookup found nothing, but it is too early for that to mean anything",
      againMs: lookup.consistentAfterSeconds * 1000 - age,
    };
  }
  if (times.now - times.firstSentAt >= lookup.recordsKeptSeconds * 1000 - marginMs(lookup.recordsKeptSeconds))
    return { found: "undecided", evidence: "the lookup found nothing, but the provider may have dropped the record by now" };
  return { found: "no-effect", evidence: `the lookup tool '${lookup.tool}' says definitively that there is none` };
}

/** A literal `true` is a yes, a literal `false` a no; an expression that names something found is a yes when it is there. */
function isThere(value: unknown): boolean {
  if (typeof value === "boolean") return value;
  return value !== undefined && value !== null && !(Array.isArray(value) && value.length === 0) && value !== "" && value !== 0;
}
