/**
 * Owns: the situations of CASES.md (public bug reports), each as a test of its whole kind: every transport on which it can happen,
 * asserted on the server's ledger. Where a row of the fault matrix shows it whole, that row's cell is what runs.
 */
import { describe, it } from "vitest";
import * as cases from "./support/cells/cases.ts";
import * as gate from "./support/cells/gate.ts";
import * as gateway from "./support/cells/gateway.ts";
import * as processes from "./support/cells/process.ts";
import * as refusals from "./support/cells/refusals.ts";
import * as sending from "./support/cells/sending.ts";
import * as streams from "./support/cells/streams.ts";
import * as waiting from "./support/cells/waiting.ts";
import { isStdio, transports, type Transport } from "./support/peers.ts";
import { Run, type Cell } from "./support/run.ts";

const any = transports;
const stdio = transports.filter(isStdio);
const http = transports.filter((transport) => !isStdio(transport));
const sessions: readonly Transport[] = ["http-json", "http-sse-ids", "http-sse"];
const sse: readonly Transport[] = ["http-sse-ids", "http-sse", "modern-sse", "sse-2024"];

type Kind = readonly [where: readonly Transport[], ...cells: Cell[]];

/** Number, right behaviour, and the whole kind. */
const table: readonly (readonly [number: number, behaviour: string, ...kinds: Kind[]])[] = [
  [1, "a charge whose connection drops is made once and kept unresolved", [any, gate.identicalHeld]],
  [2, "a call that never left is not-executed: calling again is safe", [any, sending.neverSent]],
  [3, "the agent sees the stable text with the operation id, no transport text", [any, cases.stableText]],
  [4, "cancelling a request is not losing a server", [any, waiting.cancelled]],
  [5, "no repeat without the gate", [any, cases.gated]],
  [6, "not sent and lost are two outcomes", [any, sending.neverSent, cases.healedForLaterCalls]],
  [
    7,
    "a malformed answer is unknown, and not retried",
    [http, sending.notAnAnswer],
    [["http-json", "modern-json"], sending.brokenBody],
    [stdio, processes.garbage, processes.processEnds],
  ],
  [
    8,
    "healed for later calls; the one after dispatch stays unresolved",
    [any, cases.healedForLaterCalls],
    [stdio, processes.pipesClose],
  ],
  [9, "an answer stands, whatever breaks after it", [any, cases.answerStands]],
  [
    10,
    "refused, unknown and not sent are three outcomes",
    [http, refusals.refusedStatuses, refusals.unauthorised, sending.neverSent],
  ],
  [11, "the gate decides, and concurrent reconnects are one", [any, cases.oneReconnect]],
  [
    12,
    "identical calls at once run and are marked; while one is unresolved further ones are held",
    [any, cases.identicalInFlight],
  ],
  [13, "one process (or handshake) for each hosted server", [any, cases.startedOnce]],
  [14, "a dead session id is not kept", [sessions, refusals.sessionGone, cases.serverRestarts]],
  [
    15,
    "an event stream's 404 leads to a new session, with a truthful state",
    [[...sessions, "sse-2024"], cases.renewedByMonitor],
  ],
  [16, "nothing matches on wording", [any, cases.wordingDoesNotMatter]],
  [17, "calls in flight on a dead connection are unknown; later ones get a live one", [any, cases.serverRestarts]],
  [
    18,
    "without event ids unresolved at once; with ids recovered",
    [sse, streams.streamEndsWithoutId],
    [["http-json", "http-sse-ids"], streams.recoveredByCursor],
  ],
  [19, "a stale session is renewed by the monitor", [[...sessions, "sse-2024"], cases.renewedByMonitor]],
  [
    20,
    "after the program's death the identical call is held",
    [any.filter((transport) => transport !== "http-sse-ids"), gateway.killedAfterSend],
    [["http-sse-ids"], gateway.recoveredAfterRestart],
  ],
  [21, "a recorded answer is handed out, not run again", [any, waiting.agentLeaves]],
  [22, "the caller's own ids say nothing of the intention", [any, cases.sameIntention]],
  [23, "an edited definition restarts that server and suspends its trust", [any, cases.editedDefinition]],
  [24, "an answer after ten minutes of silence is delivered", [any, cases.tenMinutesOfSilence]],
];

/** Only an end to a test that hangs. */
const limitMs = 120_000;

for (const [number, behaviour, ...kinds] of table) {
  describe.concurrent(`case ${number}: ${behaviour}`, () => {
    for (const transport of transports) {
      const cells = kinds.flatMap(([where, ...listed]) => (where.includes(transport) ? listed : []));
      if (cells.length === 0) continue;
      it(
        transport,
        async () => {
          const run = new Run(transport, "agent");
          try {
            for (const cell of cells) await cell(run);
          } finally {
            await run.close();
          }
        },
        limitMs,
      );
    }
  });
}

it("case 16: the source compares no error's message", cases.noMatchingOnMessages);
