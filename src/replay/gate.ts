/**
 * Owns: the replay gate (one pure function beside its table of reasons), and what counts as a proven read.
 * Leaves to others: reading trust and re-discovering the tool (call-manager.ts).
 * Sources: DESIGN.md sections 1, 4 and 6; the first source document (docs/design/mcp-safe-replay.md).
 */
import canonicalize from "canonicalize";
import type { TrustNow } from "../trust/trust.ts";
import type { Contract } from "./contracts.ts";

/** Only literal booleans count; anything else is as if it were not there. */
export interface Annotations {
  readonly readOnlyHint?: boolean;
  readonly destructiveHint?: boolean;
  readonly idempotentHint?: boolean;
}

/** What the gate needs of a listed tool. */
export interface GateTool {
  readonly name: string;
  readonly annotations?: Record<string, unknown>;
  readonly inputSchema?: Record<string, unknown>;
}

/** The hints that are literally `true` or `false`. */
export function annotationsOf(tool: Pick<GateTool, "annotations"> | undefined): Annotations {
  const raw = tool?.annotations;
  const hints: Record<string, boolean> = {};
  if (typeof raw !== "object" || raw === null) return hints;
  for (const name of ["readOnlyHint", "destructiveHint", "idempotentHint"]) {
    if (Object.hasOwn(raw, name) && typeof raw[name] === "boolean") hints[name] = raw[name];
  }
  return hints;
}

/** `readOnlyHint: true` together with `destructiveHint: true` or `idempotentHint: false`. */
export function isContradictory(annotations: Annotations): boolean {
  return annotations.readOnlyHint === true && (annotations.destructiveHint === true || annotations.idempotentHint === false);
}

/** Declares itself a read, without contradiction. Trust is another matter. */
export function declaresRead(tool: Pick<GateTool, "annotations"> | undefined): boolean {
  const annotations = annotationsOf(tool);
  return annotations.readOnlyHint === true && !isContradictory(annotations);
}

/** Declares that a repeat has no further effect, without contradiction: `idempotentHint: true` or a consistent read. */
export function declaresRepeatable(tool: Pick<GateTool, "annotations"> | undefined): boolean {
  const annotations = annotationsOf(tool);
  return !isContradictory(annotations) && (annotations.idempotentHint === true || annotations.readOnlyHint === true);
}

/** A non-mutating contract for a tool that the server itself declares destructive: one of the two is wrong, so neither counts. */
export function contradictsContract(tool: Pick<GateTool, "annotations"> | undefined, contract: Contract | undefined): boolean {
  return contract?.nonMutating !== undefined && annotationsOf(tool).destructiveHint === true;
}

/**
 * Proven read: both trusts, and a consistent `readOnlyHint: true` or a non-mutating contract that the server does not contradict.
 * Everything else is consequential.
 */
export function isProvenRead(tool: Pick<GateTool, "annotations"> | undefined, trust: TrustNow, contract?: Contract): boolean {
  if (!trust.workspace || !trust.server || isContradictory(annotationsOf(tool)) || contradictsContract(tool, contract))
    return false;
  return declaresRead(tool) || contract?.nonMutating !== undefined;
}

/** Every reason for which the gate says no, in the order in which they are checked. */
export const gateReasons = {
  "not-a-connection-loss": "the loss was a timeout, a cancellation, a stop or a redirect, not a lost connection",
  "workspace-not-trusted": "the workspace is not trusted",
  "server-not-trusted": "the server is not trusted for replay",
  "tool-gone": "the server no longer lists the tool",
  "server-changed": "another server answers there now",
  "schema-changed": "the tool's input schema changed",
  "contradictory-annotations": "the tool's annotations contradict each other",
  "not-declared-repeatable": "the tool declares neither idempotentHint: true nor readOnlyHint: true",
  "contradicts-contract": "a contract says that the tool only reads, and the server declares it destructive",
  "reads-not-replayed":
    "reading again is switched off (mcpSafeReplay.replay.reads), or the contract says that fresh data is not acceptable",
  "attempts-used-up": "all attempts are used up",
  "budget-used-up": "this server's replay budget is used up",
  "took-too-long": "another attempt would have kept the caller waiting for too long",
} as const;
export type GateReason = keyof typeof gateReasons;

export interface GateInput {
  readonly connectionLoss: boolean;
  readonly trust: TrustNow;
  /** The tool as listed when the call was first made. */
  readonly before: GateTool | undefined;
  /** The tool as listed after reconnecting, asked for this very decision. */
  readonly now: GateTool | undefined;
  readonly sameServer: boolean;
  /** Its non-mutating part stands in for a hint. */
  readonly contract?: Contract | undefined;
  readonly attempts: number;
  readonly maxReplays: number;
  readonly replayReads: boolean;
  readonly budgetLeft: boolean;
}

/** The gate's word: every reason against, or none. */
export interface GateVerdict {
  readonly allowed: boolean;
  readonly reasons: readonly GateReason[];
}

/** Attempts in all that any setting may allow: 1 + 3. */
export const hardAttemptLimit = 4;

/**
 * Whether one more attempt may be made without asking anybody. Pure; collects every reason against, not only the first.
 */
export function replayGate(input: GateInput): GateVerdict {
  const reasons: GateReason[] = [];
  const { before, now } = input;
  if (!input.connectionLoss) reasons.push("not-a-connection-loss");
  if (!input.trust.workspace) reasons.push("workspace-not-trusted");
  if (!input.trust.server) reasons.push("server-not-trusted");
  if (now === undefined) reasons.push("tool-gone");
  if (!input.sameServer) reasons.push("server-changed");
  if (now !== undefined && !sameSchema(before, now)) reasons.push("schema-changed");
  const annotations = annotationsOf(now);
  const nonMutating = input.contract?.nonMutating;
  if (isContradictory(annotations)) reasons.push("contradictory-annotations");
  else if (contradictsContract(now, input.contract)) reasons.push("contradicts-contract");
  else if (now !== undefined && !declaresRepeatable(now) && nonMutating === undefined) reasons.push("not-declared-repeatable");
  const onlyReads = annotations.idempotentHint !== true && (declaresRead(now) || nonMutating !== undefined);
  if (onlyReads && (!input.replayReads || nonMutating?.freshDataAcceptable === false)) reasons.push("reads-not-replayed");
  if (input.attempts >= Math.min(1 + input.maxReplays, hardAttemptLimit)) reasons.push("attempts-used-up");
  if (!input.budgetLeft) reasons.push("budget-used-up");
  return { allowed: reasons.length === 0, reasons };
}

/** A tool that was never listed before the call has no schema to compare with: that is a change. */
export function sameSchema(before: GateTool | undefined, now: GateTool): boolean {
  if (before === undefined) return false;
  return canonicalize(before.inputSchema ?? null) === canonicalize(now.inputSchema ?? null);
}
