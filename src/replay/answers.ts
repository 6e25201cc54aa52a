/**
 * Owns: every text that a caller gets instead of the server's own answer, and the mark in `_meta`.
 * Texts are stable: they hold the operation id and a class, never tool arguments, never transport text. VS Code gives the model an
 * isError result as bare text without a marker, so each text says everything by itself.
 * Source: DESIGN.md section 5.
 */
import type { Operation, Reason, Settlement } from "../operations/model.ts";
import type { OperationMark } from "./calls.ts";

export const operationMetaKey = "mcp-safe-replay/operation";
/** Marks an answer that was read afresh by a replay: it describes now, not the moment of the lost answer. */
export const observationMetaKey = "mcp-safe-replay/observation";

type Result = Record<string, unknown>;

/** Reasons in words, for people and models. */
export const reasonWords: Readonly<Record<Reason, string>> = {
  answered: "the server answered",
  recovered: "the lost answer was fetched again",
  "late-answer": "the answer came late",
  replayed: "the call was replayed",
  "connection-lost": "the connection was lost before the answer arrived",
  "answer-unreadable": "what came back could not be read as an answer",
  "no-answer": "the exchange ended without an answer",
  "http-status": "the server or something in front of it reported a failure",
  redirected: "the server redirected the call, and calls do not follow redirects",
  "process-exit": "the server's process ended before the answer arrived",
  "process-ended": "this program ended while the call was under way",
  timeout: "no answer came in time",
  cancelled: "the call was cancelled",
  "server-stopped": "the server was stopped while the call was under way",
  "not-sent": "the server could not be reached",
  refused: "the server refused the call before running it",
  "session-gone": "the server had ended the session",
  "journal-failed": "the operation journal could not be written",
  "key-conflict": "the provider says that this operation's key was used with other arguments",
  person: "a person settled it",
  lookup: "a lookup settled it",
};

/** Why a call did not run, when a person has to do something about it. */
export const authorisationNeeded =
  "it asks for an authorisation that a person has to give, with the command Authorise of MCP Safe Replay";

/** The one text of an unresolved operation. */
export function unresolvedAnswer(id: string, reason: Reason, attempts: number): Result {
  return toolError(
    `UNRESOLVED: this tool call may have completed before its answer was lost (${reasonWords[reason]}). ` +
      `It was not repeated${attempts > 1 ? " any further" : ""}. Do not repeat it automatically: calling again could do it twice. ` +
      `First verify whether it took effect, for example with a tool that only reads, or ask the person to reconcile it in MCP Safe Replay. Operation ${id}.`,
    { id, state: "unresolved", reason, attempts },
  );
}

/** The server did not run this call: calling again is safe. */
export function notExecutedAnswer(id: string | undefined, reason: Reason, attempts: number, more?: string): Result {
  return toolError(
    `NOT EXECUTED: the server did not run this call (${more ?? reasonWords[reason]}). Nothing was changed; calling again is safe.` +
      (id === undefined ? "" : ` Operation ${id}.`),
    { ...(id === undefined ? {} : { id }), state: "not-executed", reason, attempts },
  );
}

/** Nothing may leave without a record. @param why the journal's own words, safe to show */
export function notJournaledAnswer(id: string | undefined, why: string, attempts: number): Result {
  return notExecutedAnswer(id, "journal-failed", attempts, `it could not be journaled first: ${why.replace(/\.$/, "")}`);
}

/** Refused before anything was sent, because the call itself is wrong. */
export function invalidCallAnswer(text: string): Result {
  return toolError(`NOT EXECUTED: ${text} Nothing was sent.`, { state: "not-executed", reason: "refused", attempts: 0 });
}

/** An identical earlier call is still unresolved: this one was not sent. */
export function heldAnswer(id: string): Result {
  return toolError(
    `HELD: an identical earlier call is still unresolved (operation ${id}): it may already have taken effect. This call was not sent. ` +
      `Do not call again: verify whether the earlier call took effect, or ask the person to reconcile operation ${id} in MCP Safe Replay.`,
    { id, state: "held", reason: "identical-unresolved", attempts: 0 },
  );
}

/** The same call is under way at this moment, and the person asked for such calls to be held. */
export function heldInFlightAnswer(id: string): Result {
  return toolError(
    `HELD: an identical call is under way at this moment (operation ${id}). This call was not sent. Wait for that call's answer.`,
    {
      id,
      state: "held",
      reason: "identical-in-flight",
      attempts: 0,
    },
  );
}

/** It has been established that an earlier identical call took effect, though its answer was never seen. This call was not sent. */
export function settledAnswer(id: string, as: Settlement, settlement: Operation["settlement"]): Result {
  const evidence = settlement?.evidence ?? "";
  return confirmed(
    `ALREADY DONE: an identical earlier call took effect, and its answer was lost (operation ${id}). It has been established that it happened` +
      `${evidence === "" ? "" : `: ${evidence}`}. This call was not sent again.`,
    { id, state: as, reason: settlement?.actor === "person" ? "person" : "lookup", attempts: 0, via: "recorded" },
  );
}

/** An earlier identical call was answered, its caller never heard, and the journal keeps no answers (`mcpSafeReplay.journal.arguments`). */
export function answerNotKept(id: string, isError: boolean, mark: OperationMark): Result {
  const text = isError
    ? `ALREADY ANSWERED: an identical earlier call was answered with an error (operation ${id}), which the journal did not keep. This call was not sent; calling once more sends it.`
    : `ALREADY DONE: an identical earlier call was answered (operation ${id}), but the journal did not keep its answer. This call was not sent again. Read what you need with a tool that only reads.`;
  return isError ? toolError(text, mark) : confirmed(text, mark);
}

/** The answer of this very call was lost, and a lookup found its effect. */
export function lookedUpAnswer(id: string, evidence: string, attempts: number): Result {
  return confirmed(
    `DONE: this call took effect. Its answer was lost, but ${evidence}. It was not repeated; do not call it again. Its full answer was not seen: read what you need with a tool that only reads. Operation ${id}.`,
    { id, state: "effect-confirmed", reason: "lookup", attempts },
  );
}

/** A proven read without an answer: nothing was changed. */
export function readLostAnswer(id: string, reason: Reason, attempts: number): Result {
  return toolError(`NO ANSWER: ${reasonWords[reason]}. This tool only reads; reading again is safe. Operation ${id}.`, {
    id,
    state: "unresolved",
    reason,
    attempts,
  });
}

function confirmed(text: string, mark: OperationMark): Result {
  return { content: [{ type: "text", text }], isError: false, _meta: { [operationMetaKey]: mark } };
}

function toolError(text: string, mark: OperationMark): Result {
  return { content: [{ type: "text", text }], isError: true, _meta: { [operationMetaKey]: mark } };
}

/** The server's own result with our mark beside whatever `_meta` it has. */
export function marked(result: Result, mark: OperationMark, observation = false): Result {
  const meta = typeof result["_meta"] === "object" && result["_meta"] !== null ? (result["_meta"] as Result) : {};
  return {
    ...result,
    _meta: { ...meta, [operationMetaKey]: mark, ...(observation ? { [observationMetaKey]: "new" } : {}) },
  };
}
