/**
 * Owns: the fault matrix as a table: each row of FAULT-MATRIX.md by its number, what is done for it on which transport, and why a cell
 * does not apply. Leaves to others: doing it (cells/).
 */
import * as contracts from "./cells/contracts.ts";
import * as gate from "./cells/gate.ts";
import * as gateway from "./cells/gateway.ts";
import * as processes from "./cells/process.ts";
import * as refusals from "./cells/refusals.ts";
import * as sending from "./cells/sending.ts";
import * as streams from "./cells/streams.ts";
import * as tasks from "./cells/tasks.ts";
import * as waiting from "./cells/waiting.ts";
import { isStdio, transports, type Transport } from "./peers.ts";
import type { Cell } from "./run.ts";

/** One thing to do for a row. */
interface Check {
  readonly cell: Cell;
  readonly on: readonly Transport[];
}

export interface Row {
  readonly number: number;
  readonly title: string;
  readonly checks: readonly Check[];
  /** For every transport without a check: why. */
  readonly notOn: Readonly<Partial<Record<Transport, string>>>;
  /** Done on both call paths (an agent through the gateway; the Call Tool command), which share one decision. */
  readonly bothPaths: boolean;
}

const any = transports;
const stdio = transports.filter(isStdio);
const http = transports.filter((transport) => !isStdio(transport));
const legacyHttp: readonly Transport[] = ["http-json", "http-sse-ids", "http-sse"];
const modernHttp: readonly Transport[] = ["modern-json", "modern-sse"];
const streamableHttp: readonly Transport[] = [...legacyHttp, ...modernHttp];
const json: readonly Transport[] = ["http-json", "modern-json"];
const sse: readonly Transport[] = ["http-sse-ids", "http-sse", "modern-sse", "sse-2024"];
/** 2025-11-25 servers that give event ids; one that answers in JSON may open a stream for a call. */
const withIds: readonly Transport[] = ["http-json", "http-sse-ids"];

const on = (where: readonly Transport[], ...cells: readonly Cell[]): Check[] => cells.map((cell) => ({ cell, on: where }));
const not = (where: readonly Transport[], why: string): Partial<Record<Transport, string>> =>
  Object.fromEntries(where.map((transport) => [transport, why]));

const httpOnly = not(stdio, "HTTP only");
const streamable2025 = {
  ...not([...stdio, "sse-2024"], "2025-11-25 Streamable HTTP only"),
  ...not(modernHttp, "2025-11-25 only; for 2026-07-28 see row 15"),
  "http-sse": "no event ids on this transport: row 10",
};

function row(
  number: number,
  title: string,
  checks: readonly Check[],
  notOn: Row["notOn"] = {},
  options: { readonly bothPaths?: boolean } = {},
): Row {
  for (const transport of transports) {
    const checked = checks.some((check) => check.on.includes(transport));
    if (checked === (notOn[transport] !== undefined)) throw new Error(`row ${number} must say what it is on ${transport}`);
  }
  return { number, title, checks, notOn, bothPaths: options.bothPaths ?? true };
}

/** Only an agent can do what the row is about. */
const agentOnly = { bothPaths: false } as const;

export const rows: readonly Row[] = [
  row(1, "journal cannot be written", [
    ...on(any, (run) => sending.journalUnwritable(run, "newer")),
    ...on(["http-json"], (run) => sending.journalUnwritable(run, "locked")),
  ]),
  row(2, "gateway killed after the journal write, before the send", on(any, gateway.killedBeforeSend), {}, agentOnly),
  row(
    3,
    "gateway killed after the send",
    [
      ...on(
        any.filter((transport) => transport !== "http-sse-ids"),
        gateway.killedAfterSend,
      ),
      ...on(["http-sse-ids"], gateway.recoveredAfterRestart),
    ],
    {},
    agentOnly,
  ),
  row(4, "connection refused, DNS, TLS failure, connect timeout, spawn failure", [
    ...on(any, sending.neverSent),
    ...on(streamableHttp, sending.resentWhenUp),
  ]),
  row(5, "reset while the request body is being written", on(http, sending.resetWhileWriting), httpOnly),
  row(6, "reset or FIN before response headers", on(http, sending.lostBeforeHeaders), httpOnly),
  row(7, "idle keep-alive socket closed under the request", on(http, sending.staleSocket), httpOnly),
  row(8, "headers, then reset, or body shorter than announced", on(json, sending.brokenBody), {
    ...httpOnly,
    ...not(sse, "answers are no JSON bodies; a broken stream is row 10"),
  }),
  row(9, "200 with HTML, empty body or non-JSON", on(http, sending.notAnAnswer), httpOnly),
  row(10, "SSE ends or resets, no event id seen", on(sse, streams.streamEndsWithoutId), {
    ...httpOnly,
    ...not(json, "answers are JSON bodies: row 8"),
  }),
  row(11, "SSE ends after an event id", on(withIds, streams.recoveredByCursor), streamable2025),
  row(12, "the resumed stream ends again", on(withIds, streams.resumedStreamEndsAgain), streamable2025),
  row(13, "GET answers 404, 405, 400 or expired", on(withIds, streams.resumeRefused), streamable2025),
  row(14, "the server announces `retry: N` and closes", on(withIds, streams.retryHonoured), streamable2025),
  row(15, "SSE ends after an event id (2026-07-28)", on(modernHttp, streams.noCursorInModernEra), {
    ...httpOnly,
    ...not([...legacyHttp, "sse-2024"], "2026-07-28 only; for 2025-11-25 see row 11"),
  }),
  row(16, "202 to a request and no answer", on(streamableHttp, streams.acceptedWithoutAnswer), {
    ...httpOnly,
    "sse-2024": "202 is how this transport takes every message; losing the answer is row 10",
  }),
  row(17, "session 404 to this POST", on(legacyHttp, refusals.sessionGone), {
    ...httpOnly,
    ...not(modernHttp, "no sessions: row 18"),
    "sse-2024": "no session ids; the event stream is the session: row 10",
  }),
  row(18, "bare 404 with -32601", on(modernHttp, refusals.unknownMethod404), {
    ...httpOnly,
    ...not([...legacyHttp, "sse-2024"], "2026-07-28 only; a session 404 is row 17"),
  }),
  row(19, "401/403 with a challenge", on(http, refusals.unauthorised), httpOnly),
  row(20, "400, 405, 406, 413, 415, 422, 429, 431", on(http, refusals.refusedStatuses), httpOnly),
  row(21, "408, 421, 500, 502, 503, 504 (effect already made)", on(http, refusals.failedStatuses, refusals.retryAfter), httpOnly),
  row(22, "307/308 to the same or another origin", on(http, refusals.redirected), httpOnly),
  row(23, "header mismatch -32020, unsupported version -32022", on(["stdio-modern", ...modernHttp], refusals.modernRefusals), {
    ...not(["stdio", ...legacyHttp, "sse-2024"], "2026-07-28 only"),
  }),
  row(
    24,
    "`input_required` result",
    on(["stdio-modern", ...modernHttp], refusals.inputRequired),
    not(["stdio", ...legacyHttp, "sse-2024"], "2026-07-28 only"),
    agentOnly,
  ),
  row(
    25,
    "result of type task, then loss",
    on(streamableHttp, gateway.taskPolledAfterRestart),
    {
      ...not(stdio, "the task lives in the server's process, which ends with the gateway: row 3"),
      "sse-2024": "the session that owns the task ends with its event stream",
    },
    agentOnly,
  ),
  row(26, "task-creating request lost before the task id", on([...stdio, ...streamableHttp], tasks.lostBeforeTaskId), {
    "sse-2024": "2024-11-05 has no tasks; the loss is row 10",
  }),
  row(27, "process exit, SIGKILL, partial line", on(stdio, processes.processEnds), not(http, "stdio only")),
  row(28, "EPIPE on stdin; stdout closed while the process lives", on(stdio, processes.pipesClose), not(http, "stdio only")),
  row(29, "garbage lines on stdout before the answer", on(stdio, processes.garbage), not(http, "stdio only")),
  row(30, "timeout", on(any, waiting.timeout)),
  row(31, "answer arrives after the timeout", on(any, waiting.lateAnswer)),
  row(32, "agent cancels", [...on(any, waiting.cancelled), ...on(streamableHttp, waiting.cancelledBetweenTries)]),
  row(33, "answer arrives after a person settled it otherwise", on(any, waiting.settledOtherwise)),
  row(34, "two answers, or an answer with an unknown id", on(any, refusals.extraAnswers)),
  row(35, "agent disconnects during the call", on(any, waiting.agentLeaves), {}, agentOnly),
  row(36, "agent sends the identical call again while unresolved", on(any, gate.identicalHeld)),
  row(37, "answer that fails the output schema, unknown content types", on(any, refusals.strangeAnswer)),
  row(38, "-32601 from ping or an unsupported method", on(any, gate.unsupportedMethodProvesLife)),
  row(39, "other tools, schema or annotations after the reconnect", on(any, gate.changedTools, gate.changedServer)),
  row(40, "trust withdrawn during the reconnect", on(any, gate.trustWithdrawn)),
  row(41, "S replayed, lost 4 times", on(any, gate.lostFourTimes)),
  row(42, "duplicate-prevention contract, loss", on(any, contracts.sameKey, contracts.retentionWindow)),
  row(
    43,
    "provider answers 409 running / 422 other payload",
    on(any, contracts.providerSaysRunning, contracts.providerSaysOtherPayload),
  ),
  row(
    44,
    "lookup finds the record / a definitive none / something else",
    on(any, contracts.lookupFinds, contracts.lookupFindsNone, contracts.lookupUndecided),
  ),
  row(
    45,
    "one of several calls in flight loses its stream",
    on(http, waiting.siblings),
    not(stdio, "one pipe for all calls: its end takes them all (rows 27, 28)"),
  ),
  row(46, "second window or program on the same journal", [], not(any, "two programs: see test:crash"), agentOnly),
  row(47, "gateway killed while it writes, at every write", [], not(any, "see test:crash"), agentOnly),
  row(48, "clock jumps back or forward", on(any, contracts.clockJumps)),
];
