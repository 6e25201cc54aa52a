/**
 * Owns: what the command line shows of an operation that is to be reconciled, and finding out more about it with a server of its own: the
 * contract's lookup, or the lost answer.
 * Leaves to others: what a lookup proves and what can be recovered (src/replay), a person's word (settle.ts), arguments and output
 * (journal-commands.ts).
 */
import { systemClock } from "../clock.ts";
import type { ServerDefinition } from "../hosting/definitions.ts";
import { createHostedServer, type HostedServerOptions } from "../hosting/server-host.ts";
import type { Journal } from "../operations/journal.ts";
import type { Operation, OperationEvent } from "../operations/model.ts";
import { reasonWords } from "../replay/answers.ts";
import { CallManager } from "../replay/call-manager.ts";
import type { DeskOptions } from "../replay/desk.ts";
import { recoverable } from "../replay/recovery.ts";

/** What is known, a line each: attempts, and what was observed and what somebody said, told apart. Free of arguments and results. */
export function reconcileLines(operation: Operation, events: readonly OperationEvent[]): readonly string[] {
  const { id, state, reason, intention, attempts, createdAt } = operation;
  const why = reason === undefined ? "" : `: ${reasonWords[reason]}`;
  return [
    `${id}  ${state}${why}`,
    `${intention.tool} on ${intention.server}, called ${timeOf(createdAt)} by ${intention.caller.client}`,
    "",
    ...attempts.map(
      ({ number, transport, era, rpcId, stage, outcome }) =>
        `attempt ${number}: over ${transport} (${era}), RPC id ${rpcId}; got as far as '${stage}'; outcome ${outcome ?? "open"}`,
    ),
    ...events.flatMap((event) => evidenceOf(event).map((text) => `${timeOf(event.at)}  ${text}`)),
    ...(state === "unresolved"
      ? [
          "",
          "To find out more:   --look-up --config FILE   runs the lookup that a contract names",
          ...(recoverable(operation).length > 0 ? ["                    --recover --config FILE   fetches the lost answer"] : []),
          "To settle it:       --as effect-confirmed|no-effect|dismissed --evidence TEXT",
        ]
      : []),
  ];
}

function evidenceOf(event: OperationEvent): readonly string[] {
  const who = event.actor === "person" ? "said by a person" : "observed";
  switch (event.type) {
    case "looked-up":
      return [
        event.actor === "person"
          ? `read by a person: ${event.data.evidence}`
          : `observed by the lookup: ${event.data.found}; ${event.data.evidence}`,
      ];
    case "settled":
      return [`${who}: ${event.data.as}${event.data.evidence === "" ? "" : `; ${event.data.evidence}`}`];
    case "repeated":
      return [`${event.actor === "person" ? "ordered by a person" : "allowed by the lookup"}: attempt ${event.data.attempt}`];
    case "recovered":
    case "late-answer":
      return [
        `observed: the answer to attempt ${event.data.attempt}${event.type === "recovered" ? ", fetched again" : ", late"}`,
      ];
    case "conflict":
      return [`observed: an answer that contradicts '${event.data.settledAs}'`];
    case "let-through":
      return "note" in event.data ? [`said by a person: one identical call may go through; ${event.data.note}`] : [];
    default:
      return [];
  }
}

function timeOf(at: number): string {
  return new Date(at).toISOString();
}

export interface FindOutParts {
  readonly journal: Journal;
  readonly definition: ServerDefinition;
  readonly desk: Pick<DeskOptions, "trust" | "settings" | "contracts" | "log">;
  readonly clientInfo: HostedServerOptions["clientInfo"];
}

/**
 * Asks the operation's server, on a connection of its own that ends with this. Sends nothing for work.
 * @returns what was found, in a line
 * @throws JournalError when the operation is not unresolved
 */
export async function findOut(how: "look-up" | "recover", operation: Operation, parts: FindOutParts): Promise<string> {
  const { journal, definition, desk, clientInfo } = parts;
  const name = operation.intention.server;
  const server = createHostedServer({ name, definition, clientInfo });
  const stopLog = server.onLog((line) => desk.log(name, line.text));
  const calls = new CallManager({
    ...desk,
    journal,
    servers: () => new Map([[name, server]]),
    clock: systemClock,
    random: Math.random,
  });
  try {
    if (how === "recover")
      return (await calls.recoverAnswer(operation.id))
        ? "The answer was found: the operation is completed."
        : "The server does not have the answer any more.";
    const { found, evidence } = await calls.lookUp(operation.id);
    return `${found}: ${evidence}`;
  } finally {
    stopLog();
    await calls.dispose();
    await server.dispose();
  }
}
