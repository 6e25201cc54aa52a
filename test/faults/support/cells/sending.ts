/**
 * Owns: rows 1 and 4 to 9 of the fault matrix: what goes wrong before and while a request is sent, and answers that are no answers.
 */
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect } from "vitest";
import type { ServerDefinition } from "../../../../src/hosting/definitions.ts";
import { journalFileName } from "../../../../src/operations/journal-file.ts";
import type { Step } from "../../../servers/fault/steps.ts";
import { completed, expectNoLeak, expectOutcome, notExecuted, replayed, unresolved } from "../checks.ts";
import type { Class, Lab } from "../lab.ts";
import { isStdio } from "../peers.ts";
import type { Run } from "../run.ts";
import { until } from "../until.ts";

// ---- row 1 ------------------------------------------------------------------------------------------------------------------------

/** The journal cannot be written: another program has brought it to a newer format, or (`locked`) holds its lock. */
export async function journalUnwritable(run: Run, how: "newer" | "locked" = "newer"): Promise<void> {
  const lab = await run.open();
  const other = new DatabaseSync(join(lab.journalDir, journalFileName));
  other.exec(how === "newer" ? "PRAGMA user_version = 999" : "BEGIN EXCLUSIVE");
  for (const cls of ["C", "S"] as const) {
    const subject = lab.subject(cls);
    const answer = await lab.call(run.path, subject).answer;
    expect(answer.text).toContain("NOT EXECUTED: the server did not run this call (it could not be journaled first");
    expect(answer.mark).toMatchObject({ state: "not-executed", reason: "journal-failed", attempts: 0 });
    expectNoLeak(lab, subject, answer);
    expect([lab.requests(subject).length, lab.effects(subject)]).toEqual([0, 0]);
  }
  if (how === "newer") {
    // A proven read changes nothing: it runs without a record.
    const read = lab.subject("R");
    expect((await lab.call(run.path, read).answer).isError).toBe(false);
    expect(lab.requests(read)).toHaveLength(1);
  } else {
    other.exec("ROLLBACK");
    await run.lose(lab, "C", [], completed());
  }
  other.close();
}

// ---- row 4 ------------------------------------------------------------------------------------------------------------------------

/** Nothing left this machine: the caller is told so, and calling again is safe. */
export async function neverSent(run: Run): Promise<void> {
  if (isStdio(run.transport)) {
    await unreachable(run, () => ({ type: "stdio", command: "/nonexistent/program", args: [], env: {} }));
    const lab = await run.open({ connect: false });
    lab.peer.stdio?.set({ start: "crash" });
    await expectNothingSent(run, lab, ["C"]);
    lab.peer.stdio?.set({ start: "serve" });
    // A person starts it again: a program that ends too often stays down by itself.
    await lab.server.start();
    await run.lose(lab, "C", [], completed());
    return;
  }
  await refused(run);
  // These fail before any binding matters.
  const type = run.transport === "sse-2024" ? "sse" : "http";
  const at = (url: string): ServerDefinition => ({ type, url, headers: {} });
  await unreachable(run, (lab) => at(lab.url.replace("127.0.0.1", "peer.invalid")));
  await unreachable(run, (lab) => at(lab.url.replace("http:", "https:")));
  const silent = createServer().listen(0, "127.0.0.1");
  await once(silent, "listening");
  silent.on("connection", (socket) => socket.on("error", () => undefined));
  await unreachable(run, () => at(`https://127.0.0.1:${(silent.address() as AddressInfo).port}/mcp`), connectTimeoutMs);
  silent.close();
}

/** How long a TCP and TLS connection may take (src/hosting/negotiate.ts). */
const connectTimeoutMs = 10_000;

async function unreachable(run: Run, definition: (peer: { url: string }) => ServerDefinition, timeoutMs?: number): Promise<void> {
  const lab = await run.open({ connect: false, definition: (peer) => definition({ url: peer.http?.url ?? "" }) });
  await expectNothingSent(run, lab, ["C"], timeoutMs);
}

async function refused(run: Run): Promise<void> {
  const lab = await run.open();
  await lab.peer.http?.goDown();
  await expectNothingSent(run, lab, ["C", "R", "S"]);
  await lab.peer.http?.comeUp();
  // "Calling again is safe", and it works at once.
  await run.lose(lab, "C", [], completed());
  const fresh = await run.open({ connect: false });
  await fresh.peer.http?.goDown();
  await expectNothingSent(run, fresh, ["C"]);
}

async function expectNothingSent(run: Run, lab: Lab, classes: readonly Class[], timeoutMs?: number): Promise<void> {
  for (const cls of classes) {
    const subject = lab.subject(cls);
    const started = performance.now();
    const calling = lab.call(run.path, subject);
    if (timeoutMs !== undefined) await until(() => lab.clock.fire(timeoutMs) > 0);
    const answer = await calling.answer;
    await expectOutcome(lab, subject, answer, notExecuted("not-sent", { requests: 0 }));
    if (cls === "C") run.timed(timeoutMs === undefined ? started : undefined, answer.at);
    // The same small bound as for replays.
    expect((await lab.operation(subject)).attempts.length).toBeLessThanOrEqual(4);
  }
}

/** The server comes up while the call, which never left, is sent again: no gate, one effect, one request. */
export async function resentWhenUp(run: Run): Promise<void> {
  const lab = await run.open({ random: () => 0.99 });
  const subject = lab.subject("C");
  await lab.peer.http?.goDown();
  const calling = lab.call(run.path, subject);
  // The first try was refused, and the connection found dead.
  await lab.untilServer("reconnecting");
  await lab.peer.http?.comeUp();
  await expectOutcome(lab, subject, await calling.answer, completed({ via: "resent" }));
}

// ---- rows 5 to 9 ------------------------------------------------------------------------------------------------------------------

export async function resetWhileWriting(run: Run): Promise<void> {
  const lab = await run.open();
  const step: Step = { do: "reset-while-reading" };
  await run.lose(lab, "C", [step], unresolved("connection-lost", { effects: 0 }));
  await run.lose(lab, "R", [step], replayed());
  await run.lose(lab, "S", [step], replayed());
  // A body that cannot have been written in one go.
  const big = lab.subject("C", { note: "x".repeat(12_000_000) });
  lab.peer.script(step);
  const before = lab.peer.http?.calls().length ?? 0;
  const answer = await lab.call(run.path, big).answer;
  expect(answer.mark).toMatchObject({ state: "unresolved", reason: "connection-lost", attempts: 1 });
  expect([(lab.peer.http?.calls().length ?? 0) - before, lab.effects(big)]).toEqual([1, 0]);
}

export async function lostBeforeHeaders(run: Run): Promise<void> {
  const lab = await run.open();
  for (const how of ["reset", "fin"] as const) {
    await run.lose(lab, "C", [{ do: how }], unresolved("connection-lost"));
    await run.lose(lab, "R", [{ do: how }], replayed());
    await run.lose(lab, "S", [{ do: how }], replayed());
  }
}

export async function staleSocket(run: Run): Promise<void> {
  const lab = await run.open();
  // An idle socket that is known to be closed is never written to.
  await lab.peer.http?.dropIdleSockets("fin");
  await run.lose(lab, "C", [], completed());
  // One that dies under the request: unknown. Sockets that were idle for long are not used at all, so on a slow day it is a new one.
  for (const cls of ["C", "R", "S"] as const) {
    const subject = lab.subject(cls);
    await lab.server.connection?.listTools();
    lab.peer.script({ do: "stale-socket" });
    const answer = await lab.call(run.path, subject).answer;
    const reused =
      (lab.peer.http?.calls(subject.tool).find((call) => call.step?.do === "stale-socket")?.requestOnSocket ?? 0) > 1;
    const died = cls === "C" ? unresolved("connection-lost", { effects: 0 }) : replayed();
    await expectOutcome(lab, subject, answer, reused ? died : completed());
  }
}

export async function brokenBody(run: Run): Promise<void> {
  const lab = await run.open();
  const reset: Step = { do: "headers-then-reset" };
  await run.lose(lab, "C", [reset], unresolved("connection-lost"));
  await run.lose(lab, "C", [{ do: "headers-then-reset", how: "fin" }], unresolved("answer-unreadable"));
  await run.lose(lab, "C", [{ do: "truncated" }], unresolved("answer-unreadable"));
  for (const step of [reset, { do: "truncated" }] as const) {
    await run.lose(lab, "R", [step], replayed());
    await run.lose(lab, "S", [step], replayed());
  }
}

export async function notAnAnswer(run: Run): Promise<void> {
  const lab = await run.open();
  // On HTTP+SSE any other 2xx is how the server takes a message; a web page is nobody's way.
  const bodies =
    run.transport === "sse-2024" ? (["html"] as const) : (["html", "empty", "text", "half-json", "other-id"] as const);
  for (const body of bodies) await run.lose(lab, "C", [{ do: "status", status: 200, body }], unresolved("answer-unreadable"));
  await run.lose(lab, "R", [{ do: "status", status: 200, body: "html" }], replayed());
  await run.lose(lab, "S", [{ do: "status", status: 200, body: "html" }], replayed());
}
