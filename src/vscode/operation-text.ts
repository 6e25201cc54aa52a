/**
 * Owns: the text of an operation's document: its answer, arguments, attempts, what was observed and what somebody said, its contract, and
 * the whole event log. Pure.
 * Leaves to others: the words (words.ts), showing it (operation-document.ts). This is the one place where arguments and results are shown;
 * whatever a server, an agent or a person supplied stands in a code block, so that it cannot pass for our own text.
 */
import type { Operation, OperationEvent } from "../operations/model.ts";
import type { Contract } from "../replay/contracts.ts";
import { repeatHindrance } from "./repeat-text.ts";
import {
  actorText,
  agoText,
  attemptText,
  countText,
  eventText,
  evidenceLines,
  reasonText,
  settledByText,
  settlementWords,
  stateWords,
  timeText,
} from "./words.ts";

/** @param contract the tool's contract as it is now, in lines; empty without one */
export function documentOf(
  operation: Operation,
  events: readonly OperationEvent[],
  contract: readonly string[],
  now: number,
): string {
  const { intention, settlement, answer } = operation;
  const facts: [string, string | undefined][] = [
    ["Why", reasonText(operation)],
    ["Called", `${timeText(operation.createdAt)} (${agoText(operation.createdAt, now)})`],
    ["Asked by", intention.caller.client],
    ["Conversation", intention.caller.conversationId],
    ["Request", intention.caller.requestId],
    [
      "Counted as",
      intention.provenRead
        ? "a proven read"
        : intention.declaredRead
          ? "a declared read"
          : "consequential (it may change something)",
    ],
    ["Key", intention.key === undefined ? undefined : `${intention.key}, in ${intention.keyArgument ?? "its place"}`],
    ["Possible duplicate of", intention.possibleDuplicateOf],
    [
      operation.state === settlement?.as ? "Settled" : "Before that",
      settlement &&
        `${settlementWords[settlement.as].toLowerCase()}, ${timeText(settlement.at)}, by ${settledByText(settlement.actor)}`,
    ],
    [
      "Conflict",
      operation.conflict ? "an answer that came later contradicts what was settled; Close Conflict… keeps a note" : undefined,
    ],
    ["Operation", operation.id],
  ];
  const evidence = evidenceLines(events, now);
  const parts = [
    `# ${intention.tool} · ${intention.server}: ${stateWords[operation.state]}`,
    headline(operation),
    facts
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => `- ${name}: ${value}`)
      .join("\n"),
    ...(answer === undefined ? [] : ["## Answer", answerText(answer)]),
    "## Arguments",
    ...(intention.withheld === undefined
      ? []
      : [
          `${intention.withheld === "all" ? "They were" : "A part of them was"} not kept, as mcpSafeReplay.journal.arguments says: the call can be neither repeated nor looked up. What became of it has to be found out elsewhere.`,
        ]),
    ...(intention.withheld === "all" ? [] : [block(json(intention.arguments), "json")]),
    "## Attempts",
    operation.attempts.length === 0
      ? "None: nothing was sent."
      : operation.attempts
          .map(
            (attempt) =>
              `${attempt.number}. ${attemptText(attempt)}\n   - ${attempt.transport}, protocol ${attempt.protocolVersion}, RPC id ${attempt.rpcId}, connection ${attempt.connectionId}`,
          )
          .join("\n"),
    ...(evidence.length === 0 ? [] : ["## Evidence", block(evidence.join("\n"), "text")]),
    ...(contract.length === 0 ? [] : ["## Contract", contract.map((line) => `- ${line}`).join("\n")]),
    "## What happened",
    block(
      events
        .map(
          (event) => `${timeText(event.at)}  ${event.type.padEnd(11)}  ${actorText(event.actor).padEnd(7)}  ${eventText(event)}`,
        )
        .join("\n"),
      "text",
    ),
  ];
  return `${parts.join("\n\n")}\n`;
}

function headline(operation: Operation): string {
  switch (operation.state) {
    case "unresolved":
      return operation.intention.declaredRead
        ? "The answer was lost. The tool declares that it only reads: if that is true, calling again is safe."
        : "The call may have taken effect before its answer was lost. It was not repeated. Find out whether it happened, then use **Reconcile…**.";
    case "completed":
      if (operation.reason === "replayed" && (operation.intention.provenRead || operation.intention.declaredRead))
        return "It was read again after its answer was lost: the answer is a new observation, of that later moment.";
      return operation.answer?.isError === true || operation.answer?.error !== undefined
        ? "The server answered with an error."
        : "The server answered.";
    case "not-executed":
      return "The server did not run this call. Calling again is safe.";
    case "effect-confirmed":
      return "Its answer was lost. It has been established that it happened.";
    case "no-effect":
      return repeatHindrance(operation) === undefined
        ? "Its answer was lost. It has been established that it did not happen: it can be repeated."
        : `Its answer was lost. It was established that it did not happen. It cannot be repeated: ${repeatHindrance(operation) ?? ""}`;
    case "dismissed":
      return "Its answer was lost. Nobody needs to know any more whether it happened.";
    case "prepared":
    case "in-flight":
      return "The call is under way.";
  }
}

function answerText(answer: NonNullable<Operation["answer"]>): string {
  if (answer.withheld === "all")
    return `${answer.isError ? "An error came" : "A result came"}. It was not kept, as mcpSafeReplay.journal.arguments says.`;
  if (answer.withheld === "some")
    return `A part of it was not kept, as mcpSafeReplay.journal.arguments says.\n\n${contentsOf(answer)}`;
  return contentsOf(answer);
}

function contentsOf(answer: NonNullable<Operation["answer"]>): string {
  if (answer.error !== undefined) return block(json(answer.error), "json");
  const result = answer.result;
  if (typeof result !== "object" || result === null) return block(json(result ?? null), "json");
  const { content, structuredContent, ...rest } = result as Record<string, unknown>;
  const blocks = Array.isArray(content) ? content.map(contentText) : [];
  if (structuredContent !== undefined) blocks.push(block(json(structuredContent), "json"));
  if (blocks.length === 0) blocks.push(block(json({ ...rest, ...(content === undefined ? {} : { content }) }), "json"));
  return blocks.join("\n\n");
}

function contentText(item: unknown): string {
  if (
    typeof item === "object" &&
    item !== null &&
    "type" in item &&
    item.type === "text" &&
    "text" in item &&
    typeof item.text === "string"
  ) {
    return block(item.text, "text");
  }
  return block(json(item), "json");
}

const longText = 4000;

/** Pretty JSON; long strings (images, files) are cut. */
function json(value: unknown): string {
  const cut = (_: string, one: unknown): unknown =>
    typeof one === "string" && one.length > longText ? `${one.slice(0, 200)}… (${one.length} characters)` : one;
  return JSON.stringify(value, cut, 2) ?? "";
}

/** A code block whose fence is longer than any in the text. */
function block(text: string, language: string): string {
  const longest = Math.max(0, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(Math.max(3, longest + 1));
  return `${fence}${language}\n${text}\n${fence}`;
}

/**
 * A contract in lines.
 * @param missing the promises that it does not declare
 * @param rehearsal what is known of its rehearsal
 */
export function contractLines(contract: Contract, missing: readonly string[], rehearsal: string): readonly string[] {
  const { duplicatePrevention: prevention, lookup, nonMutating } = contract;
  return [
    `Documentation: ${contract.documentation}`,
    ...(prevention === undefined
      ? []
      : [
          `Duplicate prevention: the key is in ${prevention.keyArgument}, supplied by the ${prevention.suppliedBy}, remembered for ${countText(prevention.retentionSeconds, "second")}`,
          missing.length === 0
            ? "Promises: all five"
            : `Promises: not declared ${missing.length === 1 ? "is" : "are"} ${missing.join(", ")}; nothing is replayed on it`,
        ]),
    ...(lookup === undefined
      ? []
      : [
          `Lookup: ${lookup.tool}; "none" counts from ${countText(lookup.consistentAfterSeconds, "second")} to ${countText(lookup.recordsKeptSeconds, "second")} after the call`,
        ]),
    ...(nonMutating === undefined
      ? []
      : [`It changes nothing; fresh data ${nonMutating.freshDataAcceptable ? "will do" : "will not do"}`]),
    `Rehearsal: ${rehearsal}`,
  ];
}
