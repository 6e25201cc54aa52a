/**
 * Owns: what agents are told of unresolved calls, and what a person reads before an agent's proposal is recorded. Pure.
 * Leaves to others: the tools themselves (model-tools.ts).
 *
 * What an agent gets without asking: which call it is (id, server, tool), where it stands and why, how old it is, how often it was attempted,
 * a digest of its arguments (so that an agent can recognise a call of its own), and what was established so far. The arguments, which may
 * be another agent's, only for the ids that it names and with the person's leave; answers never.
 */
import type { Operation, OperationEvent, Settlement } from "../operations/model.ts";
import { keepsArguments } from "../operations/model.ts";
import { agoText, evidenceLines, reasonText, settlementWords, timeText } from "./words.ts";

export interface ListInput {
  readonly ids?: readonly string[];
}

export interface ProposalInput {
  readonly operation: string;
  readonly as: Settlement;
  readonly evidence: string;
}

export interface Listed {
  readonly operation: Operation;
  readonly events: readonly OperationEvent[];
  /** The read-only tool that a contract names for it. */
  readonly lookupTool: string | undefined;
}

/** Evidence is one line of at most so many characters. */
const evidenceLimit = 500;

/** The list as the model gets it. */
export function listText(listed: readonly Listed[], asked: readonly string[], now: number): string {
  const known = new Set(listed.map(({ operation }) => operation.id));
  const unknown = asked.filter((id) => !known.has(id));
  const operations = listed.map(({ operation, events, lookupTool }) => {
    const { intention, attempts } = operation;
    const evidence = evidenceLines(events, now);
    return {
      id: operation.id,
      server: intention.server,
      tool: intention.tool,
      state: operation.state,
      reason: reasonText(operation),
      called: `${new Date(operation.createdAt).toISOString()} (${agoText(operation.createdAt, now)})`,
      attempts: attempts.length,
      argumentsDigest: intention.digest.slice(0, 16),
      ...(evidence.length === 0 ? {} : { evidence }),
      ...(lookupTool === undefined ? {} : { verifyWith: lookupTool }),
      ...(asked.includes(operation.id) ? argumentsOf(operation) : {}),
    };
  });
  const note =
    operations.length === 0
      ? "No call is unresolved."
      : "Each of these calls may have taken effect. Do not call again. Verify with a tool that only reads, then propose what you found with propose_reconciliation; a person decides.";
  return JSON.stringify({ note, operations, ...(unknown.length === 0 ? {} : { notUnresolved: unknown }) }, null, 2);
}

function argumentsOf(operation: Operation): Record<string, unknown> {
  return keepsArguments(operation)
    ? { arguments: operation.intention.arguments }
    : { argumentsNotKept: "The journal kept only a part of them, or nothing." };
}

/** What is wrong with a proposal, for the model; undefined when nothing is. */
export function proposalMistake(input: Partial<ProposalInput>): string | undefined {
  if (typeof input.operation !== "string" || input.operation === "")
    return "'operation' must be the id of an unresolved operation.";
  if (input.as === undefined || !Object.hasOwn(settlementWords, input.as))
    return "'as' must be 'effect-confirmed', 'no-effect' or 'dismissed'.";
  if (typeof input.evidence !== "string" || oneLine(input.evidence) === "") return "'evidence' must say in a line how you know.";
  return undefined;
}

/** An agent's words in one line, so that they cannot look like somebody else's. */
export function oneLine(text: string): string {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length <= evidenceLimit ? line : `${line.slice(0, evidenceLimit - 1)}…`;
}

/** VS Code reads a title as Markdown: no name that a server chose stands in it. */
export const proposalTitles: Readonly<Record<Settlement, string>> = {
  "effect-confirmed": "Record that this unresolved call happened?",
  "no-effect": "Record that this unresolved call did not happen?",
  dismissed: "Dismiss this unresolved call?",
};

export const proposalMeanings: Readonly<Record<Settlement, string>> = {
  "effect-confirmed": "The next identical call will be answered with this, once, and not be sent.",
  "no-effect": "Identical calls are no longer held. If it did happen after all, one more does it twice.",
  dismissed: "Identical calls are no longer held, and nobody will know whether it happened. One more could do it twice.",
};

/** The facts that a person needs to decide, in lines; the arguments and the agent's words are shown apart. */
export function proposalFacts(operation: Operation, events: readonly OperationEvent[], now: number): readonly string[] {
  return [
    `${operation.intention.tool} · ${operation.intention.server}`,
    `Called ${timeText(operation.createdAt)} (${agoText(operation.createdAt, now)}): ${reasonText(operation)}`,
    ...evidenceLines(events, now),
    `Operation ${operation.id}`,
  ];
}

/** How it stands in the journal: the person said so, on what an agent proposed. */
export function proposedEvidence(evidence: string): string {
  return `proposed by an agent: "${oneLine(evidence)}"; a person confirmed it`;
}

export function recordedText(operation: Operation, as: Settlement): string {
  const id = operation.id;
  switch (as) {
    case "effect-confirmed":
      return `Recorded: operation ${id} took effect. Do not call again for it.`;
    case "no-effect":
      return `Recorded: operation ${id} had no effect. It can be called again, once.`;
    case "dismissed":
      return `Recorded: operation ${id} was dismissed. Whether it took effect is not known.`;
  }
}

export const declinedText =
  "The person did not agree. Nothing was recorded; the operation is still unresolved. Do not propose it again unless you learn something new.";
