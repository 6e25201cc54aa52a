/**
 * Owns: what a rehearsal of a contract will do, in numbers and in the words that a person types to agree to it; the calls it makes; and
 * what their outcome says about each promise. Pure.
 * Leaves to others: making the calls (rehearsal.ts), asking the person (src/vscode/actions/rehearse.ts, src/headless.ts).
 * Source: the second source document, "What would change the repeat-write recommendation": "separately authorized loss/concurrency/restart
 * tests could test these claims".
 */
import canonicalize from "canonicalize";
import jsonPointer from "jsonpointer";
import { evaluate, dataOf, promiseNames, valueAt, withKey, type Contract, type Lookup } from "./contracts.ts";
import { isTied, lookupArguments, type LookupFinding } from "./lookup.ts";

/** What is put to the test: the five promises, and the two answers of the lookup. */
export const rehearsed = [...promiseNames, "lookupFinds", "lookupKnowsNone"] as const;
export type Rehearsed = (typeof rehearsed)[number];

export type Verdict = "held" | "broken" | "not-testable";

export interface Finding {
  readonly promise: Rehearsed;
  readonly verdict: Verdict;
  /** What was seen, a sentence each; never arguments or answers. */
  readonly evidence: readonly string[];
}

export interface RehearsalReport {
  readonly server: string;
  readonly tool: string;
  /** Milliseconds since the epoch. */
  readonly at: number;
  /** `contractFingerprint`: what the findings are about. */
  readonly contract: string;
  readonly findings: readonly Finding[];
  /** The operations that were made, for a person who looks for what they left. */
  readonly operations: readonly string[];
}

export interface RehearsalRequest {
  readonly server: string;
  readonly tool: string;
  /** For a sandbox account. In texts, `{{n}}` becomes the number of the scenario. */
  readonly arguments: Record<string, unknown>;
  /** Arguments for the same key with another payload; made from `arguments` when they are not given. */
  readonly otherArguments?: Record<string, unknown>;
  /** How long to wait before a key is used for the last time, in milliseconds; 0: not at all. */
  readonly waitMs?: number;
}

/** Each with a key of its own. */
export const scenarios = ["twice in a row", "twice at once", "after a lost answer", "after a restart"] as const;
export type Scenario = (typeof scenarios)[number];

export interface RehearsalPlan {
  readonly scenarios: readonly { readonly name: Scenario; readonly arguments: Record<string, unknown> }[];
  readonly otherArguments: Record<string, unknown> | undefined;
  /** Calls of the tool, and effects when every promise is kept. */
  readonly calls: number;
  readonly effects: number;
  /** What a person types to agree: it says what is created at worst. */
  readonly phrase: string;
}

/** A contract that cannot be rehearsed, and why: nothing is called. */
export interface NoRehearsal {
  readonly why: string;
}

/**
 * What a rehearsal would do.
 * @param inputSchema of the tool as the server lists it
 */
export function planRehearsal(
  contract: Contract | undefined,
  request: RehearsalRequest,
  inputSchema: Record<string, unknown> | undefined,
): RehearsalPlan | NoRehearsal {
  if (contract === undefined) return { why: "there is no contract for this tool" };
  const { duplicatePrevention: prevention, lookup } = contract;
  if (lookup === undefined) {
    const why =
      prevention === undefined
        ? "the contract says only that the tool changes nothing: there is no effect to count"
        : "the contract names no lookup, and nothing else counts the effects";
    return { why };
  }
  const names = prevention === undefined ? (["twice in a row"] as const) : scenarios;
  const made = names.map((name, index) => ({
    name,
    arguments: numbered(request.arguments, index + 1) as Record<string, unknown>,
  }));
  if (prevention !== undefined && made.some((one) => withKey(one.arguments, prevention.keyArgument, "key") === undefined))
    return { why: `the key has no place in these arguments at ${prevention.keyArgument}` };
  const asked = made.map((one, index) => lookupArguments(lookup, subjectOf(one.arguments, contract, `key ${index}`)));
  if (asked.includes(undefined)) return { why: "the lookup needs something that these arguments do not have" };
  if (new Set(asked.map((args) => canonicalize(args))).size < asked.length) {
    const why =
      "the lookup cannot tell the calls of a rehearsal apart: use {{key}} in its arguments, or {{n}} in those of the rehearsal";
    return { why };
  }
  const [first] = made;
  const other =
    prevention === undefined || first === undefined
      ? undefined
      : (request.otherArguments ?? otherPayload(first.arguments, lookup, inputSchema));
  const calls =
    prevention === undefined ? 1 : scenarios.length * 2 + (other === undefined ? 0 : 1) + ((request.waitMs ?? 0) > 0 ? 1 : 0);
  return {
    scenarios: made,
    otherArguments: other,
    calls,
    effects: names.length,
    phrase: `create up to ${calls} ${calls === 1 ? "effect" : "effects"} with ${request.tool} on ${request.server}`,
  };
}

/** What the lookup is asked about, before there is an operation. */
export function subjectOf(args: Record<string, unknown>, contract: Contract, key: string, id = key) {
  const keyArgument = contract.duplicatePrevention?.keyArgument;
  return { id, key: keyArgument === undefined ? undefined : key, keyArgument, arguments: args };
}

function numbered(value: unknown, n: number): unknown {
  if (typeof value === "string") return value.replaceAll("{{n}}", String(n));
  if (Array.isArray(value)) return value.map((item) => numbered(item, n));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, numbered(item, n)]));
}

/** The same arguments with one of those changed that tell a record from another. */
function otherPayload(
  args: Record<string, unknown>,
  lookup: Lookup,
  inputSchema: Record<string, unknown> | undefined,
): Record<string, unknown> | undefined {
  const pointers = [...Object.keys(lookup.sameAs), ...Object.keys(args).map((name) => `/${escaped(name)}`)];
  for (const pointer of pointers) {
    const changed = changedValue(valueAt(args, pointer), schemaAt(inputSchema, pointer));
    if (changed === undefined) continue;
    const copy = structuredClone(args);
    jsonPointer.set(copy, pointer, changed);
    return copy;
  }
  return undefined;
}

function changedValue(value: unknown, schema: Record<string, unknown> | undefined): unknown {
  const choices: unknown = schema?.["enum"];
  if (Array.isArray(choices)) return (choices as unknown[]).find((choice) => choice !== value);
  if (typeof value === "boolean") return !value;
  if (typeof value === "number") return value + 1;
  if (typeof value !== "string") return undefined;
  if (/^\d{4}-\d{2}-\d{2}$/.test(value)) return dayAfter(value);
  return `${value} 2`;
}

function dayAfter(date: string): string | undefined {
  const at = Date.parse(`${date}T00:00:00Z`);
  return Number.isNaN(at) ? undefined : new Date(at + 86_400_000).toISOString().slice(0, 10);
}

function schemaAt(inputSchema: Record<string, unknown> | undefined, pointer: string): Record<string, unknown> | undefined {
  const found: unknown = jsonPointer.get(inputSchema ?? {}, pointer.replaceAll("/", "/properties/"));
  return typeof found === "object" && found !== null ? (found as Record<string, unknown>) : undefined;
}

function escaped(name: string): string {
  return name.replaceAll("~", "~0").replaceAll("/", "~1");
}

// ---- what was seen ----------------------------------------------------------------------------------------------------------------

/** What the lookup says of the effects under one key or for one set of arguments. */
export type Seen =
  /** The contract's `count`. */
  | { readonly kind: "count"; readonly count: number }
  /** One record at least, with exactly these arguments. */
  | { readonly kind: "found" }
  | { readonly kind: "none" }
  | { readonly kind: "unclear"; readonly why: string };

/** @param finding what the lookup's answer proves by itself */
export function seenIn(lookup: Lookup, result: Record<string, unknown> | undefined, finding: LookupFinding): Seen {
  const count = lookup.count === undefined || result === undefined ? undefined : evaluate(lookup.count, dataOf(result));
  if (typeof count === "number" && Number.isInteger(count) && count >= 0) return { kind: "count", count };
  if (finding.found === "effect") return { kind: "found" };
  return finding.found === "no-effect" ? { kind: "none" } : { kind: "unclear", why: finding.evidence };
}

/** One scenario as it went. */
export interface Ran {
  readonly name: Scenario;
  readonly before: Seen;
  readonly after: Seen;
  /** Calls that were made with the key and are to have one effect together. */
  readonly calls: number;
  /** Of those, the ones that the server answered without an error. */
  readonly answered: number;
  /** Whether all those answers are the same. */
  readonly sameAnswers: boolean;
  /** Why the scenario is no test, whatever the lookup says. */
  readonly spoilt?: string;
}

/** Whether the calls of a scenario had one effect together. */
export function judgeScenario(ran: Ran): { readonly verdict: Verdict; readonly evidence: string } {
  const { name, before, after, calls } = ran;
  const open = (why: string) => ({ verdict: "not-testable", evidence: `${name}: ${why}` }) as const;
  if (after.kind === "count" && (before.kind === "count" || before.kind === "none")) {
    const effects = after.count - (before.kind === "count" ? before.count : 0);
    const seen = `${name}: ${calls} calls with one key left ${effects === 1 ? "one effect" : `${effects} effects`}`;
    if (effects > 1) return { verdict: "broken", evidence: seen };
    if (ran.spoilt !== undefined) return open(ran.spoilt);
    return effects === 1 ? { verdict: "held", evidence: seen } : open("the lookup counts no effect of calls that were answered");
  }
  if (ran.spoilt !== undefined) return open(ran.spoilt);
  if (after.kind === "unclear") return open(`${after.why}; look into the account: there may be several`);
  if (after.kind === "none") return open("the lookup finds nothing after calls that were answered");
  if (before.kind !== "none") return open("the lookup found something before anything was called");
  if (ran.answered === calls && ran.sameAnswers)
    return {
      verdict: "held",
      evidence: `${name}: ${calls} calls with one key got the same answer, and the lookup finds the record`,
    };
  return open(
    "the lookup finds the record but does not count: with `count` in the contract, one effect can be told from several",
  );
}

/** How the call with another payload ended. */
export type OtherPayload = "not-called" | "refused-as-said" | "refused-otherwise" | "answered" | "no-answer";

export interface Seens {
  readonly scenarios: readonly Ran[];
  readonly other: OtherPayload;
  /** Whether the restart was one of the server's own process. */
  readonly processRestarted: boolean;
  /** When the first key was used for the last time, milliseconds after its first use; and the window that the contract names. */
  readonly lastUseMs: number;
  readonly windowMs: number;
  /** The scenario whose key was used a last time after a wait. */
  readonly waited: Ran | undefined;
}

/** What a rehearsal says, promise by promise. */
export function judgeRehearsal(contract: Contract, seens: Seens): readonly Finding[] {
  const finding = (promise: Rehearsed, verdict: Verdict, ...evidence: string[]): Finding => ({ promise, verdict, evidence });
  const ran = (name: Scenario) => seens.scenarios.find((one) => one.name === name);
  const judged = (name: Scenario) => {
    const found = ran(name);
    return found === undefined ? ({ verdict: "not-testable", evidence: `${name}: not done` } as const) : judgeScenario(found);
  };
  const tied =
    contract.lookup !== undefined && isTied(contract.lookup, { keyArgument: contract.duplicatePrevention?.keyArgument });
  const lookup = lookupFindings(seens.scenarios, tied, finding);
  if (contract.duplicatePrevention === undefined) return lookup;

  const row = judged("twice in a row");
  const atOnce = judged("twice at once");
  const lost = judged("after a lost answer");
  const restart = judged("after a restart");
  const ignored = row.verdict === "broken";
  return [
    finding(
      "scopedToAccountAndOperation",
      "not-testable",
      "It takes a second account or another operation: read the documentation.",
    ),
    boundToPayload(seens.other, ran("twice in a row"), finding),
    finding("atomicUnderConcurrency", atOnce.verdict, atOnce.evidence),
    retained(seens, ignored, restart, finding),
    reachesProvider(seens, [row, lost, restart], finding),
    ...lookup,
  ];
}

type Make = (promise: Rehearsed, verdict: Verdict, ...evidence: string[]) => Finding;
type Judged = ReturnType<typeof judgeScenario>;

function boundToPayload(other: OtherPayload, row: Ran | undefined, finding: Make): Finding {
  const name = "boundToPayload";
  if (row !== undefined && judgeScenario(row).verdict === "broken")
    return finding(name, "broken", "The key is not recognised at all.");
  switch (other) {
    case "refused-as-said":
      return finding(name, "held", "The same key with other arguments was refused, in the way that the contract names.");
    case "answered":
      return finding(name, "broken", "The same key with other arguments was answered as if nothing were wrong.");
    case "refused-otherwise":
      return finding(
        name,
        "not-testable",
        "The same key with other arguments was refused, but not in a way that says why (HTTP 422, or `otherPayload` in the contract).",
      );
    case "no-answer":
      return finding(name, "not-testable", "The call with other arguments got no answer.");
    case "not-called":
      return finding(name, "not-testable", "No call with other arguments was made.");
  }
}

function retained(seens: Seens, ignored: boolean, restart: Judged, finding: Make): Finding {
  const name = "retainedForWholeWindow";
  if (ignored) return finding(name, "broken", "The key is not recognised even at once.");
  const seconds = (ms: number): string => `${Math.round(ms / 100) / 10} s`;
  if (seens.waited !== undefined) {
    const { verdict } = judgeScenario(seens.waited);
    const after = `after ${seconds(seens.lastUseMs)}`;
    if (verdict === "broken") return finding(name, "broken", `The key was not recognised ${after}.`);
    if (verdict === "held" && seens.lastUseMs >= seens.windowMs)
      return finding(name, "held", `The key was recognised ${after}, at the end of its window.`);
    if (verdict === "held")
      return finding(
        name,
        "not-testable",
        `The key was recognised ${after}; its window is ${seconds(seens.windowMs)}, and that was not waited for.`,
      );
  }
  if (restart.verdict === "broken") return finding(name, "broken", restart.evidence);
  return finding(name, "not-testable", `The window of ${seconds(seens.windowMs)} was not waited for.`);
}

function reachesProvider(seens: Seens, judged: readonly Judged[], finding: Make): Finding {
  const name = "reachesProvider";
  const evidence = judged.map((one) => one.evidence);
  if (judged.some((one) => one.verdict === "broken")) return finding(name, "broken", ...evidence);
  if (judged.some((one) => one.verdict === "not-testable")) return finding(name, "not-testable", ...evidence);
  if (seens.processRestarted) return finding(name, "held", ...evidence);
  return finding(
    name,
    "not-testable",
    ...evidence,
    "Only the connection could be made anew, not the server: it may keep the keys in its own memory.",
  );
}

function lookupFindings(scenariosRun: readonly Ran[], tied: boolean, finding: Make): readonly Finding[] {
  const there = (seen: Seen): boolean => seen.kind === "found" || (seen.kind === "count" && seen.count > 0);
  const isNone = (seen: Seen): boolean => seen.kind === "none" || (seen.kind === "count" && seen.count === 0);
  const answered = scenariosRun.filter((ran) => ran.answered > 0);
  const found = answered.filter((ran) => there(ran.after)).length;
  const nothing = answered.filter((ran) => isNone(ran.after)).length;
  const none = scenariosRun.filter((ran) => isNone(ran.before)).length;
  const wrong = scenariosRun.filter((ran) => there(ran.before)).length;
  return [
    finding(
      "lookupFinds",
      nothing > 0 ? "broken" : found > 0 ? "held" : "not-testable",
      `${found} of ${answered.length} answered calls were found${nothing > 0 ? `; of ${nothing} it said that there is none` : ""}.`,
    ),
    finding(
      "lookupKnowsNone",
      // A record for a key that was never used is wrong; one for arguments alone may be older than the rehearsal.
      wrong > 0 && tied ? "broken" : none === scenariosRun.length && none > 0 ? "held" : "not-testable",
      `Before anything was called, it said ${none} of ${scenariosRun.length} times that there is none${wrong > 0 ? `, and ${wrong} times that there is` : ""}.`,
    ),
  ];
}

/** The report of a contract that cannot be rehearsed. */
export function nothingTestable(contract: Contract, why: string): readonly Finding[] {
  const names: readonly Rehearsed[] =
    contract.duplicatePrevention === undefined ? ["lookupFinds", "lookupKnowsNone"] : promiseNames;
  return names.map((promise) => ({
    promise,
    verdict: "not-testable",
    evidence: [`${why.charAt(0).toUpperCase()}${why.slice(1)}.`],
  }));
}
