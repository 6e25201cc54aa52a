/**
 * Owns: what of a call's contents the journal keeps (`mcpSafeReplay.journal.arguments`): everything, everything but secrets, or nothing.
 * Applied to every event before it is written, so that no way into the journal goes around it. What is there already is not rewritten.
 *
 * - `full`: as they came.
 * - `redacted`: a mark stands in place of the values at secret-looking names (list below) and at the configured paths of the arguments.
 *   The same names are redacted in answers. Text in an answer is kept as it came: a server that repeats a secret there puts it on disk.
 * - `digest`: no arguments and no answers at all, only that there was one and whether it was an error.
 *
 * An operation with anything withheld from its arguments can be neither repeated nor looked up (`keepsArguments`). The digest that finds
 * duplicates is over the full arguments in every mode; whoever reads the journal can test a guess against it. Evidence that a person or a
 * lookup gives is kept: it is the reason of a settlement.
 */
import type { Observation, OperationEvent, Withheld } from "./model.ts";

export const keptArgumentsModes = ["full", "redacted", "digest"] as const;

export interface KeptArguments {
  readonly mode: (typeof keptArgumentsModes)[number];
  /** For `redacted`: JSON Pointers (RFC 6901) into the arguments; `*` stands for any one name or index. */
  readonly paths?: readonly string[];
}

/** What a configured path looks like: a JSON Pointer to something in the arguments. */
export const argumentPath = /^(\/([^~/]|~[01])*)+$/;

export const redactedMark = "(redacted)";

/** Names that hold secrets, by their words: `apiKey`, `API-KEY` and `api_key` are all "api key". After OWASP's Logging Cheat Sheet. */
const secretNames = new RegExp(
  `(^| )(${[
    "pass",
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "pin",
    "otp",
    "secret",
    "secrets",
    "token",
    "credential",
    "credentials",
    "authorization",
    "bearer",
    "cookie",
    "cvv",
    "cvc",
    "ssn",
    "iban",
    "apikey",
    "(api|private|access|secret|signing|encryption) key",
    "(card|account|social security) (number|no)",
    "session id",
  ].join("|")})( |$)`,
);

/** The event as it goes to disk. */
export function withhold(event: OperationEvent, kept: KeptArguments | undefined): OperationEvent {
  if (kept === undefined || kept.mode === "full") return event;
  switch (event.type) {
    case "prepared": {
      const { value, withheld } = reduce(event.data.arguments, kept, kept.paths ?? []);
      if (withheld === undefined) return event;
      return { ...event, data: { ...event.data, arguments: (value ?? {}) as Record<string, unknown>, withheld } };
    }
    case "answered":
      return { ...event, data: { ...event.data, ...reduceAnswer(event.data, kept) } };
    case "recovered":
      return { ...event, data: { ...event.data, ...reduceAnswer(event.data, kept) } };
    case "late-answer":
      return { ...event, data: { ...event.data, ...reduceAnswer(event.data, kept) } };
    default:
      return event;
  }
}

function reduceAnswer(answer: Observation, kept: KeptArguments): Partial<Observation> {
  const result = reduce(answer.result, kept, []);
  const error = reduce(answer.error, kept, []);
  const withheld = result.withheld ?? error.withheld;
  return withheld === undefined ? {} : { result: result.value, error: error.value, withheld };
}

function reduce(whole: unknown, kept: KeptArguments, paths: readonly string[]): { value: unknown; withheld?: Withheld } {
  if (whole === undefined) return { value: undefined };
  if (kept.mode === "digest") {
    const empty = typeof whole === "object" && whole !== null && Object.keys(whole).length === 0;
    return empty ? { value: whole } : { value: undefined, withheld: "all" };
  }
  const pointers = paths.map(segmentsOf);
  let hidden = false;
  const copy = (value: unknown, path: readonly string[]): unknown => {
    const name = path.at(-1);
    if (name !== undefined && (secretNames.test(wordsOf(name)) || pointers.some((pointer) => matches(pointer, path)))) {
      hidden = true;
      return redactedMark;
    }
    if (Array.isArray(value)) return value.map((item, index) => copy(item, [...path, String(index)]));
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, copy(item, [...path, key])]));
  };
  const value = copy(whole, []);
  return hidden ? { value, withheld: "some" } : { value: whole };
}

function wordsOf(name: string): string {
  return name
    .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
    .replace(/([A-Z])([A-Z][a-z])/g, "$1 $2")
    .replace(/[^A-Za-z0-9]+/g, " ")
    .trim()
    .toLowerCase();
}

/** RFC 6901 section 3: `~1` is `/`, `~0` is `~`. */
function segmentsOf(pointer: string): readonly string[] {
  return pointer
    .split("/")
    .slice(1)
    .map((segment) => segment.replaceAll("~1", "/").replaceAll("~0", "~"));
}

function matches(pointer: readonly string[], path: readonly string[]): boolean {
  return pointer.length === path.length && pointer.every((segment, index) => segment === "*" || segment === path[index]);
}
