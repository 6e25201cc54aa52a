/**
 * Owns: rows 30 to 33, 35 and 45 of the fault matrix: time limits, cancellation, late answers, agents that leave, calls side by side.
 */
import { expect } from "vitest";
import type { Step } from "../../../servers/fault/steps.ts";
import { completed, expectOutcome, notExecuted, readLost, unresolved } from "../checks.ts";
import { requestTimeoutMs, type Calling, type Class, type Lab, type Subject } from "../lab.ts";
import { isStdio } from "../peers.ts";
import type { Run } from "../run.ts";

const hang: Step = { do: "hang" };

/** Makes a call that the server does not answer, and waits until it hangs there. */
export async function hanging(run: Run, lab: Lab, subject: Subject, step: Step = hang): Promise<Calling> {
  const before = lab.peer.hanging;
  lab.peer.script(step);
  const calling = lab.call(run.path, subject);
  await lab.peer.untilHanging(before + 1);
  return calling;
}

/** A call whose time is over. */
async function timedOut(run: Run, lab: Lab, cls: Class, step?: Step): Promise<Subject> {
  const subject = lab.subject(cls);
  const calling = await hanging(run, lab, subject, step);
  const over = performance.now();
  expect(lab.clock.fire(requestTimeoutMs)).toBe(1);
  const answer = await calling.answer;
  if (cls === "C") run.timed(over, answer.at);
  await expectOutcome(lab, subject, answer, cls === "R" ? readLost("timeout") : unresolved("timeout"));
  return subject;
}

export async function timeout(run: Run): Promise<void> {
  const lab = await run.open();
  for (const cls of ["C", "R", "S"] as const) {
    const subject = await timedOut(run, lab, cls);
    // Never replayed: the next call comes after whatever could have been sent.
    await run.lose(lab, "C", [], completed());
    expect(lab.requests(subject)).toHaveLength(1);
  }
}

export async function lateAnswer(run: Run): Promise<void> {
  const lab = await run.open();
  for (const cls of ["C", "S"] as const) {
    const subject = await timedOut(run, lab, cls);
    lab.peer.release();
    const operation = await lab.untilOperation(subject, ({ state }) => state === "completed");
    expect(operation).toMatchObject({ reason: "late-answer", delivered: false, answer: { isError: false } });
    expect([lab.requests(subject).length, lab.effects(subject)]).toEqual([1, 1]);
    // Nobody got that answer: the identical call does, and nothing is sent.
    const again = await lab.call(run.path, subject).answer;
    expect([again.isError, again.mark?.via, lab.requests(subject).length]).toEqual([false, "recorded", 1]);
  }
}

export async function cancelled(run: Run): Promise<void> {
  const lab = await run.open();
  for (const cls of ["C", "R", "S"] as const) {
    const subject = lab.subject(cls);
    const calling = await hanging(run, lab, subject);
    await calling.cancel();
    const answer = await calling.answer;
    await expectOutcome(lab, subject, answer, cls === "R" ? readLost("cancelled") : unresolved("cancelled"));
    const [request] = lab.requests(subject);
    // The era's own signal.
    if (lab.peer.http !== undefined && lab.peer.era === "2026-07-28") {
      const call = lab.peer.http.calls(subject.tool).find(({ rpcId }) => rpcId === request?.rpcId);
      await lab.peer.http.until(() => call?.closedByClient === true);
      lab.peer.release();
    } else {
      const told = cls === "C" ? 1 : cls === "R" ? 2 : 3;
      await lab.peer.untilRequests("notifications/cancelled", told);
      expect(lab.peer.requests("notifications/cancelled").at(-1)?.params?.["requestId"]).toBe(request?.rpcId);
      lab.peer.release();
      // It proves nothing: the answer still comes.
      if (cls !== "R")
        await lab.untilOperation(subject, ({ state, reason }) => state === "completed" && reason === "late-answer");
    }
    // Cancelling a request is not losing a server (field case 4), and nothing is sent again.
    await run.lose(lab, "C", [], completed());
    expect(lab.requests(subject)).toHaveLength(1);
  }
}

/** Cancelled between two tries of which none has left: it did not run, and nothing is left open. */
export async function cancelledBetweenTries(run: Run): Promise<void> {
  const lab = await run.open({ random: () => 0.99 });
  const subject = lab.subject("C");
  await lab.peer.http?.goDown();
  const calling = lab.call(run.path, subject);
  // The first try was refused; the next connection hangs in its handshake.
  await lab.untilServer("reconnecting");
  lab.peer.scriptFor(lab.peer.era === "2026-07-28" ? "server/discover" : "initialize", { do: "hang" });
  await lab.peer.http?.comeUp();
  await lab.peer.untilHanging(1);
  await calling.cancel();
  lab.peer.release();
  await expectOutcome(lab, subject, await calling.answer, notExecuted("cancelled", { requests: 0 }));
  await run.lose(lab, "C", [], completed());
}

export async function settledOtherwise(run: Run): Promise<void> {
  const lab = await run.open();
  const cases = [
    { as: "no-effect", then: { do: "answer" }, conflict: true },
    { as: "effect-confirmed", then: { do: "tool-error" }, conflict: true },
    { as: "effect-confirmed", then: { do: "answer" }, conflict: false },
    { as: "dismissed", then: { do: "answer" }, conflict: false },
  ] as const;
  for (const { as, then, conflict } of cases) {
    const subject = await timedOut(run, lab, "C", { do: "hang", then });
    await lab.core.calls.settle((await lab.operation(subject)).id, as, "the provider's console says so", "person");
    lab.peer.release();
    const operation = await lab.untilOperation(subject, ({ answer }) => answer !== undefined);
    expect(operation).toMatchObject({ state: as, reason: "person", conflict, settlement: { as } });
    expect([lab.requests(subject).length, lab.effects(subject)]).toEqual([1, 1]);
  }
}

/** An agent that goes away cancels nothing; what it did not get is handed to its next identical call, once. */
export async function agentLeaves(run: Run): Promise<void> {
  const lab = await run.open();
  for (const cls of ["C", "S"] as const) {
    const subject = lab.subject(cls);
    const calling = await hanging(run, lab, subject);
    calling.disconnect();
    await calling.answer;
    expect((await lab.operation(subject)).state).toBe("in-flight");
    lab.peer.release();
    const operation = await lab.untilOperation(subject, ({ state }) => state === "completed");
    expect(operation).toMatchObject({ reason: "answered", delivered: false });
    const again = await lab.call(run.path, subject).answer;
    expect([again.isError, again.mark?.via, again.mark?.id]).toEqual([false, "recorded", operation.id]);
    expect([lab.requests(subject).length, lab.effects(subject)]).toEqual([1, 1]);
    await lab.untilOperation(subject, ({ delivered }) => delivered);
    await lab.call(run.path, subject).answer;
    expect(lab.requests(subject)).toHaveLength(2);
  }
  expect(lab.peer.requests("notifications/cancelled")).toEqual([]);
}

/** One of three calls loses its answer: the others are not harmed, and nothing is repaired under them. */
export async function siblings(run: Run): Promise<void> {
  const lab = await run.open();
  const probes = (): number =>
    ["ping", "server/discover", "initialize", "tools/list"].reduce((sum, method) => sum + lab.peer.requests(method).length, 0);
  const before = probes();
  const lost = lab.subject("C");
  // HTTP+SSE has one stream for all answers (row 10); one call alone is lost with its POST.
  const loss: Step = run.transport === "sse-2024" ? { do: "reset" } : run.loss;
  const losing = await hanging(run, lab, lost, { do: "hang", then: loss });
  const others = [lab.subject("C"), lab.subject("S")];
  const waiting: Calling[] = [];
  for (const subject of others) waiting.push(await hanging(run, lab, subject));
  lab.peer.release(1);
  await expectOutcome(lab, lost, await losing.answer, unresolved("connection-lost"));
  expect(probes()).toBe(before);
  lab.peer.release(2);
  for (const [index, subject] of others.entries()) {
    await expectOutcome(lab, subject, await (waiting[index] as Calling).answer, completed());
  }
  // Their answers prove that the server is there: it is not asked.
  await lab.untilServer("connected");
  expect(probes()).toBe(before);
  expect(isStdio(run.transport)).toBe(false);
}
