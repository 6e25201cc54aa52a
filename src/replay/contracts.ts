/**
 * Owns: what a contract is (a provider's documented promise, written down by the user), how it is read and checked, and when a
 * duplicate-prevention contract covers a further attempt. Pure.
 * Leaves to others: where contracts are kept (user settings, config file), calling lookup tools (lookup.ts, reconciliation.ts), putting
 * the promises to the test (rehearsal.ts).
 * Sources: DESIGN.md section 7; the second source document, "What would change the repeat-write recommendation".
 */
import { createHash } from "node:crypto";
import * as jmespath from "@jmespath-community/jmespath";
import canonicalize from "canonicalize";
import jsonPointer from "jsonpointer";
import * as z from "zod";
import type { ListedTool } from "../hosting/connection.ts";
import { problemsOf, type Problem } from "../hosting/definitions.ts";
import type { TrustNow } from "../trust/trust.ts";
import type { PreventionReason } from "./prevention-reasons.ts";

const pointer = z
  .string()
  .regex(/^(\/([^~/]|~[01])*)+$/, "must be a JSON Pointer such as /idempotencyKey")
  .refine((text) => !/(^|\/)(__proto__|constructor|prototype)(\/|$)/.test(text), "names a property that no argument may have");
const expression = z.string().refine(isExpression, "is not a JMESPath expression");
const seconds = z
  .number()
  .positive()
  .max(10 * 365 * 86_400);

/** The five promises of which not one may be missing. */
export const promiseNames = [
  "scopedToAccountAndOperation",
  "boundToPayload",
  "atomicUnderConcurrency",
  "retainedForWholeWindow",
  "reachesProvider",
] as const;

const contractSchema = z.strictObject({
  documentation: z
    .string()
    .refine(
      (text) => URL.canParse(text) && /^https?:$/.test(new URL(text).protocol),
      "must be the http(s) address at which the provider promises this",
    ),
  duplicatePrevention: z
    .strictObject({
      keyArgument: pointer,
      suppliedBy: z.enum(["gateway", "caller"]),
      retentionSeconds: seconds,
      promises: z.strictObject(Object.fromEntries(promiseNames.map((name) => [name, z.boolean().optional()]))),
      running: expression.optional(),
      otherPayload: expression.optional(),
    })
    .optional(),
  lookup: z
    .strictObject({
      tool: z.string().min(1),
      arguments: z.record(z.string(), z.unknown()),
      effect: expression,
      noEffect: expression,
      sameAs: z
        .record(pointer, expression)
        .refine((map) => Object.keys(map).length > 0, "must tie the record to at least one argument"),
      consistentAfterSeconds: z.number().nonnegative().max(86_400),
      recordsKeptSeconds: seconds,
      count: expression.optional(),
    })
    .optional(),
  nonMutating: z.strictObject({ freshDataAcceptable: z.boolean() }).optional(),
});

export type Contract = z.infer<typeof contractSchema>;
export type DuplicatePrevention = NonNullable<Contract["duplicatePrevention"]>;
export type Lookup = NonNullable<Contract["lookup"]>;

/** Contracts by server and tool. */
export type Contracts = ReadonlyMap<string, ReadonlyMap<string, Contract>>;

/**
 * Reads contracts as a person writes them. A mistake in one contract never touches the others, and never makes one hold.
 * @param place what to call the map in messages, for example `mcpSafeReplay.contracts`
 * @param servers the names that there are; a contract for another one covers nothing, which is a mistake to be told
 */
export function readContracts(
  input: unknown,
  place: string,
  servers?: Pick<ReadonlySet<string>, "has">,
): { contracts: Contracts; problems: Problem[] } {
  const contracts = new Map<string, Map<string, Contract>>();
  const problems: Problem[] = [];
  if (input === undefined) return { contracts, problems };
  if (!isRecord(input)) return { contracts, problems: [{ place, message: "must be an object: server → tool → contract" }] };
  for (const [server, tools] of Object.entries(input)) {
    if (!isRecord(tools)) {
      problems.push({ place: `${place}.${server}`, message: "must be an object: tool → contract" });
      continue;
    }
    if (servers?.has(server) === false)
      problems.push({ place: `${place}.${server}`, message: "is about a server that does not exist: it covers nothing" });
    for (const [tool, value] of Object.entries(tools)) {
      const here = `${place}.${server}.${tool}`;
      const parsed = contractSchema.safeParse(value);
      if (!parsed.success) {
        problems.push(...problemsOf(parsed.error, here));
        continue;
      }
      const contract = parsed.data;
      if (!contract.duplicatePrevention && !contract.lookup && !contract.nonMutating) {
        problems.push({ place: here, message: "needs 'duplicatePrevention', 'lookup' or 'nonMutating'" });
        continue;
      }
      if (contract.nonMutating && contract.duplicatePrevention) {
        problems.push({
          place: here,
          message: "says that the tool changes nothing and how it prevents duplicates: only one can be right",
        });
        continue;
      }
      contracts.set(server, (contracts.get(server) ?? new Map<string, Contract>()).set(tool, contract));
    }
  }
  return { contracts, problems };
}

/**
 * What a rehearsal's findings are bound to: SHA-256 (hex) over the contract, its tool and the server's definition. Any change of one of
 * them makes another one.
 */
export function contractFingerprint(contract: Contract, tool: string, serverFingerprint: string): string {
  return createHash("sha256")
    .update(canonicalize([serverFingerprint, tool, contract]) ?? "")
    .digest("hex");
}

/** Which promises are missing; a contract with any missing never replays. */
export function missingPromises(prevention: DuplicatePrevention): readonly string[] {
  return promiseNames.filter((name) => prevention.promises[name] !== true);
}

// ---- operation keys ---------------------------------------------------------------------------------------------------------------

/** What a JSON Pointer (RFC 6901) leads to. */
export function valueAt(args: Record<string, unknown>, pointerText: string): unknown {
  return jsonPointer.get(args, pointerText);
}

/**
 * The arguments as they go out, with the operation's key in its place. The caller's own object is left alone.
 * @returns undefined when the place cannot be had, because something on the way there is no object: no promise covers a call that goes
 * out without its key
 */
export function withKey(args: Record<string, unknown>, keyArgument: string, key: string): Record<string, unknown> | undefined {
  const copy = structuredClone(args);
  try {
    jsonPointer.set(copy, keyArgument, key);
  } catch {
    return undefined;
  }
  // As the server will read it: what was set on a text or a list is not in the JSON.
  return keyIn(JSON.parse(JSON.stringify(copy)) as Record<string, unknown>, keyArgument) === key ? copy : undefined;
}

/** The key that the caller put there, if it is a usable one. */
export function keyIn(args: Record<string, unknown>, keyArgument: string): string | undefined {
  const found = valueAt(args, keyArgument);
  return typeof found === "string" && found !== "" ? found : undefined;
}

/**
 * The arguments without the key: what makes two calls the same intention is everything but the key. An object that held nothing else is
 * left out too, so that it makes no difference whether a caller wrote it.
 */
export function withoutKey(args: Record<string, unknown>, keyArgument: string): Record<string, unknown> {
  const copy = structuredClone(args);
  const parts = keyArgument.split("/");
  for (let depth = parts.length; depth > 1; depth--) {
    const here = parts.slice(0, depth).join("/");
    const value = valueAt(copy, here);
    if (value === undefined) continue;
    const isKey = depth === parts.length;
    if (!isKey && !(isRecord(value) && Object.keys(value).length === 0)) break;
    jsonPointer.set(copy, here, undefined);
  }
  return copy;
}

/**
 * The tool as the agent sees it: an argument that the gateway supplies is not there. A model that mints a fresh key for each try is
 * how double charges happen.
 */
export function withoutKeyArgument(tool: ListedTool, contract: Contract | undefined): ListedTool {
  const prevention = contract?.duplicatePrevention;
  if (prevention?.suppliedBy !== "gateway" || tool.inputSchema === undefined) return tool;
  const names = prevention.keyArgument
    .slice(1)
    .split("/")
    .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
  const inputSchema = structuredClone(tool.inputSchema);
  let at: unknown = inputSchema;
  for (const name of names.slice(0, -1)) at = isRecord(at) && isRecord(at["properties"]) ? at["properties"][name] : undefined;
  const last = names.at(-1) ?? "";
  if (!isRecord(at)) return tool;
  if (isRecord(at["properties"])) Reflect.deleteProperty(at["properties"], last);
  if (Array.isArray(at["required"])) at["required"] = at["required"].filter((name) => name !== last);
  return { ...tool, inputSchema };
}

// ---- duplicate prevention ---------------------------------------------------------------------------------------------------------

/** Room for clocks that disagree, in milliseconds: a minute, or a hundredth of the retention where that is more. */
export function marginMs(retentionSeconds: number): number {
  return Math.max(60_000, retentionSeconds * 10);
}

export interface PreventionInput {
  readonly contract: Contract | undefined;
  readonly connectionLoss: boolean;
  readonly trust: TrustNow;
  /** The key that went out with the first attempt, and the argument that took it. */
  readonly key: string | undefined;
  readonly keyArgument: string | undefined;
  /** When the first attempt was sent, and now, in milliseconds since the epoch. */
  readonly firstSentAt: number;
  readonly now: number;
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly toolIsThere: boolean;
  /** The tool has the input schema that it had when the call was made: another one may have no use for the key. */
  readonly sameSchema: boolean;
  readonly sameServer: boolean;
}

/** Whether the contract makes a further attempt with the same key safe. All of it, or nothing. */
export function preventionVerdict(input: PreventionInput): {
  readonly allowed: boolean;
  readonly reasons: readonly PreventionReason[];
} {
  const reasons: PreventionReason[] = [];
  const prevention = input.contract?.duplicatePrevention;
  if (prevention === undefined) return { allowed: false, reasons: ["no-contract"] };
  if (missingPromises(prevention).length > 0) reasons.push("promises-missing");
  if (input.key === undefined || input.keyArgument !== prevention.keyArgument) reasons.push("no-key");
  if (input.now < input.firstSentAt) reasons.push("clock-moved");
  if (input.now >= input.firstSentAt + prevention.retentionSeconds * 1000 - marginMs(prevention.retentionSeconds))
    reasons.push("window-over");
  if (!input.connectionLoss) reasons.push("not-a-connection-loss");
  if (!input.trust.workspace) reasons.push("workspace-not-trusted");
  if (input.attempts >= input.maxAttempts) reasons.push("attempts-used-up");
  if (!input.toolIsThere) reasons.push("tool-gone");
  else if (!input.sameSchema) reasons.push("schema-changed");
  if (!input.sameServer) reasons.push("server-changed");
  return { allowed: reasons.length === 0, reasons };
}

// ---- expressions ------------------------------------------------------------------------------------------------------------------

/**
 * What an expression looks at: the result's structured content, else its first text read as JSON, else that text as `text`.
 */
export function dataOf(result: unknown): unknown {
  if (!isRecord(result)) return result;
  if (isRecord(result["structuredContent"])) return result["structuredContent"];
  const first: unknown = Array.isArray(result["content"])
    ? result["content"].find((part) => isRecord(part) && part["type"] === "text")
    : undefined;
  const text = isRecord(first) && typeof first["text"] === "string" ? first["text"] : "";
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return { text };
  }
}

/** The value of an expression that was checked when the contract was read; one that fails at run time is `undefined`. */
export function evaluate(expressionText: string, data: unknown): unknown {
  try {
    return jmespath.search(data as Parameters<typeof jmespath.search>[0], expressionText);
  } catch {
    return undefined;
  }
}

function isExpression(text: string): boolean {
  try {
    jmespath.compile(text);
    return text.trim() !== "";
  } catch {
    return false;
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
