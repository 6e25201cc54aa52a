/**
 * Owns: what would happen to a tool's call if its answer were lost now, as the Servers view says it. Pure.
 * Leaves to others: the rules, which are asked and not written again (gate.ts, contracts.ts), and the words (src/vscode/words.ts).
 */
import type { TrustNow } from "../trust/trust.ts";
import { missingPromises, type Contract } from "./contracts.ts";
import { annotationsOf, contradictsContract, isContradictory, replayGate, type GateTool, type GateVerdict } from "./gate.ts";

export type WhatIfLost =
  | "replayed"
  | "read-again"
  | "replayed-with-key"
  | "looked-up"
  | "kept-unresolved"
  | "kept-unresolved-contradictory"
  | "kept-unresolved-untrusted";

/** The same order as in a real course: gate, contract, lookup, hold. */
export function whatIfLost(
  tool: GateTool,
  trust: TrustNow,
  settings: { readonly reads: boolean; readonly maxReplays: number },
  contract: Contract | undefined,
): WhatIfLost {
  const gate = (trustIfGranted: TrustNow): GateVerdict =>
    replayGate({
      connectionLoss: true,
      trust: trustIfGranted,
      before: tool,
      now: tool,
      sameServer: true,
      contract,
      attempts: 1,
      maxReplays: settings.maxReplays,
      replayReads: settings.reads,
      budgetLeft: true,
    });
  if (gate(trust).allowed) return annotationsOf(tool).idempotentHint === true ? "replayed" : "read-again";
  const prevention = contract?.duplicatePrevention;
  if (prevention !== undefined && missingPromises(prevention).length === 0 && trust.workspace && settings.maxReplays > 0)
    return "replayed-with-key";
  if (contract?.lookup !== undefined && trust.workspace && trust.server) return "looked-up";
  if (isContradictory(annotationsOf(tool)) || contradictsContract(tool, contract)) return "kept-unresolved-contradictory";
  return gate({ workspace: true, server: true }).allowed ? "kept-unresolved-untrusted" : "kept-unresolved";
}
