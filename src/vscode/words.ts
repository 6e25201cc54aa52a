/**
 * Owns: the words for states, stages, causes, events and times in the views and documents of the extension.
 * Leaves to others: the reasons in words and the texts that agents get (src/replay/answers.ts). Pure.
 */
import { reasonWords } from "../replay/answers.ts";
import { preventionReasons } from "../replay/prevention-reasons.ts";
import { gateReasons } from "../replay/gate.ts";
import type { WhatIfLost } from "../replay/what-if-lost.ts";
import type { ListedTool } from "../hosting/connection.ts";
import type { ServerDefinition } from "../hosting/definitions.ts";
import type { ServerState } from "../hosting/hosted-server.ts";
import type { WaitingServer } from "./sources/server-sources.ts";
import type { Actor, Attempt, Operation, OperationEvent, OperationState, Settlement } from "../operations/model.ts";

export const stateWords: Readonly<Record<OperationState, string>> = {
  prepared: "prepared",
  "in-flight": "in flight",
  completed: "completed",
  "not-executed": "not executed",
  unresolved: "unresolved",
  "effect-confirmed": "it happened",
  "no-effect": "it did not happen",
  dismissed: "dismissed",
};

export const settlementWords: Readonly<Record<Settlement, string>> = {
  "effect-confirmed": "It happened",
  "no-effect": "It did not happen",
  dismissed: "Dismissed",
};

export const stageWords: Readonly<Record<Attempt["stage"], string>> = {
  "not-sent": "nothing was sent",
  sending: "sending had begun",
  sent: "the whole request was sent",
  answering: "an answer had begun to arrive",
  answered: "answered",
};

export const causeWords: Readonly<Record<Attempt["cause"], string>> = {
  call: "first call",
  replay: "replay",
  repeat: "repeat",
  resend: "sent again after nothing had been sent",
  authorised: "sent again after the authorisation was renewed",
};

export const serverStateWords: Readonly<Record<ServerState, string>> = {
  stopped: "stopped",
  "waiting-for-trust": "waiting for workspace trust",
  connecting: "connecting",
  connected: "connected",
  degraded: "in doubt",
  reconnecting: "reconnecting",
  "needs-authorisation": "needs authorisation",
  failed: "failed",
};

export const waitingWords: Readonly<Record<WaitingServer["why"], string>> = {
  "workspace-trust": "waiting for workspace trust",
  input: "needs a value",
  "name-taken": "not used: its name is taken",
};

export const whatIfLostWords: Readonly<Record<WhatIfLost, string>> = {
  replayed: "It would be replayed: the tool declares that a repeat has no further effect.",
  "read-again": "It would be read again: the tool declares that it only reads. The answer would describe that later moment.",
  "replayed-with-key": "It would be sent again with the same key: a contract says that the provider recognises the repeat.",
  "looked-up":
    "It would be looked up: a contract names the tool that tells whether it took effect. It would not be repeated on a guess.",
  "kept-unresolved": "It would not be repeated. It would be kept as unresolved until somebody establishes what happened.",
  "kept-unresolved-contradictory":
    "It would not be repeated, because the tool's annotations contradict each other. It would be kept as unresolved.",
  "kept-unresolved-untrusted":
    "It would not be repeated: the tool declares that it may be, but that counts only for a trusted server in a trusted workspace. It would be kept as unresolved.",
};

const actorWords: Readonly<Record<Actor, string>> = { agent: "caller", person: "person", gateway: "gateway", server: "server" };

/** Where a definition leads, short and without secrets: the program's name or the URL's origin and path. */
export function definitionWords(definition: ServerDefinition): string {
  if (definition.type === "stdio") return definition.command.split(/[\\/]/).at(-1) ?? definition.command;
  const url = new URL(definition.url);
  return `${url.origin}${url.pathname}`;
}

/** Why an operation is where it is. */
export function reasonText(operation: Operation): string {
  return operation.reason === undefined ? stateWords[operation.state] : reasonWords[operation.reason];
}

/** One attempt in a line. */
export function attemptText(attempt: Attempt): string {
  const outcome =
    attempt.outcome === "observed"
      ? "answered"
      : attempt.outcome === "not-executed"
        ? "proved not executed"
        : attempt.outcome === "unknown"
          ? "no answer"
          : "under way";
  const stage = attempt.stage === "answered" ? [] : [stageWords[attempt.stage]];
  return [causeWords[attempt.cause], ...stage, outcome].join(", ");
}

/** One event in a line, free of arguments and results. */
export function eventText(event: OperationEvent): string {
  switch (event.type) {
    case "prepared":
      return "written to the journal before anything was sent";
    case "sent":
      return `attempt ${event.data.number} (${causeWords[event.data.cause]}) over ${event.data.transport}, RPC id ${event.data.rpcId}`;
    case "cursor":
      return `attempt ${event.data.attempt}: event id ${event.data.eventId} to resume from`;
    case "task":
      return `attempt ${event.data.attempt}: the server made it task ${event.data.taskId}`;
    case "answered":
      return `attempt ${event.data.attempt}: the server answered${event.data.isError ? " with an error" : ""}`;
    case "refused":
      return `${reasonWords[event.data.reason]}${status(event.data.httpStatus)}`;
    case "lost":
      return `${reasonWords[event.data.reason]} (${event.data.kind}${status(event.data.httpStatus)}); ${stageWords[event.data.stage]}`;
    case "recovered":
      return `attempt ${event.data.attempt}: the answer was fetched again by ${event.data.how === "cursor" ? "event id" : "task id"}${event.data.isError ? "; it is an error" : ""}`;
    case "replayed":
      return `the gate allowed attempt ${event.data.attempt}${verdict(event.data.verdict)}`;
    case "held":
      return event.data.verdict.includes("identical-unresolved")
        ? "a later, identical call was held back"
        : `not repeated${verdict(event.data.verdict)}`;
    case "looked-up":
      return event.actor === "person"
        ? event.data.evidence
        : `looked up: ${foundWords[event.data.found]}. ${event.data.evidence}`;
    case "settled":
      return `${settlementWords[event.data.as]}${event.data.evidence === "" ? "" : `: ${event.data.evidence}`}`;
    case "repeated":
      return event.actor === "person"
        ? `a person ordered attempt ${event.data.attempt}: ${event.data.evidence}`
        : `the lookup's answer allowed attempt ${event.data.attempt}: ${event.data.evidence}`;
    case "late-answer":
      return `attempt ${event.data.attempt}: an answer came late${event.data.isError ? "; it is an error" : ""}`;
    case "conflict":
      return `the late answer contradicts "${settlementWords[event.data.settledAs]}"`;
    case "acknowledged":
      return `a person closed the conflict: ${event.data.note}`;
    case "delivered":
      return `the answer reached ${event.data.to}`;
    case "let-through":
      return "used" in event.data
        ? `one identical call was let through: operation ${event.data.used}`
        : `a person lets the next identical call through: ${event.data.note}`;
  }
}

/** Whose word a settlement is. */
export function settledByText(actor: Actor): string {
  return actor === "person" ? "a person" : actor === "server" ? "a lookup" : "the gateway";
}

export function actorText(actor: Actor): string {
  return actorWords[actor];
}

const foundWords = { effect: "it happened", "no-effect": "it did not happen", undecided: "undecided" } as const;

/**
 * What is known of an operation beyond its attempts, oldest first, a line each: what was observed and what somebody said, told apart by
 * who it was. Free of arguments and results.
 */
export function evidenceLines(events: readonly OperationEvent[], now: number): readonly string[] {
  return events.flatMap((event): string[] => {
    const line = (who: string, what: string): string[] => [`${who}, ${agoText(event.at, now)}: ${what}`];
    switch (event.type) {
      case "looked-up":
        return event.actor === "person"
          ? line("Read by a person", event.data.evidence)
          : line("Observed by the lookup", `${foundWords[event.data.found]}. ${event.data.evidence}`);
      case "settled": {
        const word = `${settlementWords[event.data.as].toLowerCase()}${event.data.evidence === "" ? "" : `: ${event.data.evidence}`}`;
        if (event.actor === "person") return line("Said by a person", word);
        return event.actor === "server" ? line("Settled by the lookup", word) : line("Closed by the gateway", word);
      }
      case "answered":
      case "recovered":
      case "late-answer":
        return line("Observed", eventText(event));
      case "conflict":
        return line("Conflict", eventText(event));
      case "acknowledged":
        return line("Said by a person", `the conflict is closed: ${event.data.note}`);
      case "repeated":
        return line(event.actor === "person" ? "Ordered by a person" : "Allowed by the lookup", eventText(event));
      case "let-through":
        return line(event.actor === "person" ? "Said by a person" : "Observed", eventText(event));
      default:
        return [];
    }
  });
}

function status(httpStatus: number | undefined): string {
  return httpStatus === undefined ? "" : `, HTTP ${httpStatus}`;
}

const otherVerdicts: Readonly<Record<string, string>> = {
  gate: "the server declares it repeatable and is trusted",
  contract: "a contract's key prevents duplicates",
  "took-too-long": "it would have taken too long",
  "key-conflict": reasonWords["key-conflict"],
  "still-running": "the provider said that it is still running",
  "further-attempt-refused": "the further attempt was refused, which says nothing of the first",
  "further-attempt-answered": "the further attempt was answered with an error, which says nothing of the first",
};

function verdict(reasons: readonly string[]): string {
  if (reasons.length === 0 || reasons.includes("allowed")) return "";
  const known: Readonly<Record<string, string>> = { ...preventionReasons, ...gateReasons, ...otherVerdicts };
  return `: ${reasons.map((reason) => (Object.hasOwn(known, reason) ? known[reason] : reason)).join("; ")}`;
}

/** "just now", "3 minutes ago", "2 days ago". Both in milliseconds since the epoch. */
export function agoText(at: number, now: number): string {
  const minutes = Math.max(0, (now - at) / 60_000);
  if (minutes < 1) return "just now";
  if (minutes < 60) return `${countText(Math.floor(minutes), "minute")} ago`;
  return minutes < 1440
    ? `${countText(Math.floor(minutes / 60), "hour")} ago`
    : `${countText(Math.floor(minutes / 1440), "day")} ago`;
}

/** The same for narrow rows: "now", "3 min", "2 h", "2 d". */
export function shortAgoText(at: number, now: number): string {
  const minutes = Math.max(0, (now - at) / 60_000);
  if (minutes < 1) return "now";
  if (minutes < 60) return `${Math.floor(minutes)} min`;
  return minutes < 1440 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 1440)} d`;
}

/** Local date and time to the second. */
export function timeText(at: number): string {
  const date = new Date(at);
  const two = (value: number): string => String(value).padStart(2, "0");
  return (
    `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`
  );
}

/** "1 call", "2 calls". */
export function countText(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

/** A tool's title for people, if it has one. */
export function toolTitle(tool: ListedTool): string | undefined {
  const annotated = tool.annotations?.["title"];
  return tool.title ?? (typeof annotated === "string" ? annotated : undefined);
}
