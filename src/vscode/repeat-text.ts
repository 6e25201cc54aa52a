/**
 * Owns: what a person reads before a call is repeated: on what evidence, how old it is, with which arguments and key. Pure.
 * Leaves to others: repeating (call-tool.ts).
 */
import { contradicts, keepsArguments, type Operation } from "../operations/model.ts";
import { agoText, settledByText } from "./words.ts";

/** Evidence that is older than this is to be looked at again. Milliseconds. */
const oldMs = 60 * 60 * 1000;

/** Why an operation that was settled "it did not happen" cannot be repeated all the same, in a sentence; undefined when it can. */
export function repeatHindrance(operation: Operation): string | undefined {
  if (operation.answer !== undefined && contradicts("no-effect", operation.answer))
    return "an answer that came later says that it took effect. Once more could do it twice.";
  if (!keepsArguments(operation))
    return "the journal did not keep all of its arguments (mcpSafeReplay.journal.arguments). If it is still needed, have it called anew.";
  return undefined;
}

export interface RepeatFacts {
  readonly now: number;
  /** A contract covers the tool, and by its retention the provider may have forgotten the key. */
  readonly keyMayBeForgotten: boolean;
  /** The server is defined differently than when the call was made. */
  readonly serverChanged: boolean;
}

export function repeatText(operation: Operation, facts: RepeatFacts): string {
  const { intention, settlement } = operation;
  const age = settlement === undefined ? Infinity : facts.now - settlement.at;
  const evidence = settlement === undefined || settlement.evidence === "" ? "none" : settlement.evidence;
  const warnings = [
    ...(age > oldMs ? ["The evidence is old: look again before you repeat it. What was not there then may be there now."] : []),
    ...(age < 0 ? ["The clock went back since then: the age of the evidence is not known."] : []),
    ...(facts.keyMayBeForgotten ? ["The provider may have forgotten the key by now: it may not recognise the repeat."] : []),
    ...(facts.serverChanged ? ["The server is defined differently than when the call was made: it may be another account."] : []),
  ];
  return [
    `It will be sent once more, as a further attempt of the same operation${intention.key === undefined ? "" : ", with the same key"}.`,
    settlement === undefined
      ? "Evidence: none"
      : `Evidence, ${agoText(settlement.at, facts.now)}, by ${settledByText(settlement.actor)}: ${evidence}`,
    ...warnings,
    ...(intention.key === undefined ? [] : [`Key: ${intention.key}`]),
    `Arguments: ${JSON.stringify(intention.arguments, null, 2)}`,
  ].join("\n\n");
}
