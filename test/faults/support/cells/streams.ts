/**
 * Owns: rows 10 to 16 of the fault matrix: event streams that end without the answer, and fetching it by the event id.
 */
import { expect } from "vitest";
import type { HttpRequest } from "../../../servers/fault/http-fault-server.ts";
import type { ResumeStep, Step } from "../../../servers/fault/steps.ts";
import { expectOutcome, recovered, replayed, unresolved } from "../checks.ts";
import type { Lab, Subject } from "../lab.ts";
import type { Run } from "../run.ts";

/** The GETs that asked for the rest of a stream. */
function resumes(lab: Lab): readonly HttpRequest[] {
  return (lab.peer.http?.requests() ?? []).filter((request) => request.lastEventId !== undefined);
}

function postOf(lab: Lab, subject: Subject): HttpRequest | undefined {
  const rpcId = lab.requests(subject).at(-1)?.rpcId;
  return lab.peer.http?.calls().find((call) => call.rpcId === rpcId);
}

export async function streamEndsWithoutId(run: Run): Promise<void> {
  const lab = await run.open();
  const bare: Partial<Step> = run.transport === "http-sse-ids" ? { ids: false } : {};
  const steps = [
    { do: "stream-end", after: "headers" },
    { do: "stream-end", after: "headers", how: "reset" },
    { do: "stream-end", events: 2, ...bare },
    { do: "stream-end", events: 2, how: "reset", ...bare },
    { do: "truncated", ...bare },
  ] as Step[];
  for (const step of steps) {
    // Half an event after an event id: that is row 11.
    if (step.do === "truncated" && run.transport === "http-sse-ids") continue;
    await run.lose(lab, "C", [step], unresolved("connection-lost"));
  }
  for (const step of steps.slice(0, 2)) {
    await run.lose(lab, "R", [step], replayed());
    await run.lose(lab, "S", [step], replayed());
  }
  expect(resumes(lab)).toEqual([]);
}

export async function recoveredByCursor(run: Run): Promise<void> {
  const lab = await run.open();
  const ways: readonly Partial<Step>[] = [{}, { events: 2 }, { how: "reset" }];
  for (const way of ways) {
    for (const cls of ["C", "R", "S"] as const) {
      const before = resumes(lab).length;
      await run.lose(lab, cls, [{ do: "stream-end", ids: true, ...way } as Step], recovered());
      expect(resumes(lab)).toHaveLength(before + 1);
    }
  }
}

export async function resumedStreamEndsAgain(run: Run): Promise<void> {
  const lab = await run.open();
  const end = (resume: readonly ResumeStep[]): Step => ({ do: "stream-end", ids: true, resume });
  await run.lose(lab, "C", [end([{ do: "end" }, { do: "end", events: 1 }, { do: "reset" }, { do: "answer" }])], recovered());
  // Always from the latest id: the stream's third event came with the second GET.
  const ids = resumes(lab).map((request) => request.lastEventId?.split(":")[1]);
  expect(ids).toEqual(["1", "1", "2", "2"]);

  // Bounded; then nobody knows.
  await run.lose(lab, "C", [end([{ do: "end" }])], unresolved("connection-lost"));
  expect(resumes(lab).length - ids.length).toBeLessThanOrEqual(8);
  await run.lose(lab, "S", [end([{ do: "end" }])], replayed());
}

export async function resumeRefused(run: Run): Promise<void> {
  const lab = await run.open();
  const refusals: readonly ResumeStep[] = [
    { do: "status", status: 404 },
    { do: "status", status: 405, body: "empty" },
    { do: "status", status: 400 },
    { do: "expired" },
  ];
  for (const [index, refusal] of refusals.entries()) {
    // Never a POST in its place: one tools/call.
    await run.lose(lab, "C", [{ do: "stream-end", ids: true, resume: [refusal] }], unresolved("connection-lost"));
    expect(resumes(lab)).toHaveLength(index + 1);
  }
  await run.lose(lab, "R", [{ do: "stream-end", ids: true, resume: [{ do: "expired" }] }], replayed());
  await run.lose(lab, "S", [{ do: "stream-end", ids: true, resume: [{ do: "expired" }] }], replayed());
}

export async function retryHonoured(run: Run): Promise<void> {
  const lab = await run.open();
  const retryMs = 400;
  const subject = await run.lose(lab, "C", [{ do: "stream-end", ids: true, retryMs }], recovered());
  const waited = (resumes(lab)[0]?.at ?? 0) - (postOf(lab, subject)?.at ?? 0);
  // Timers may be a millisecond early.
  expect(waited).toBeGreaterThanOrEqual(retryMs - 2);
  // Announced again on the resumed stream: honoured again.
  const again = lab.subject("C");
  lab.peer.script({ do: "stream-end", ids: true, resume: [{ do: "end", retryMs: 300 }, { do: "answer" }] });
  await expectOutcome(lab, again, await lab.call(run.path, again).answer, recovered());
  const [first, second] = resumes(lab).slice(1);
  expect((second?.at ?? 0) - (first?.at ?? 0)).toBeGreaterThanOrEqual(298);
}

export async function noCursorInModernEra(run: Run): Promise<void> {
  const lab = await run.open();
  for (const events of [0, 2]) {
    const step: Step = { do: "stream-end", ids: true, events };
    await run.lose(lab, "C", [step], unresolved("connection-lost"));
    await run.lose(lab, "R", [step], replayed());
    await run.lose(lab, "S", [step], replayed());
  }
  expect(lab.peer.http?.requests("HTTP GET")).toEqual([]);
}

export async function acceptedWithoutAnswer(run: Run): Promise<void> {
  const lab = await run.open();
  await run.lose(lab, "C", [{ do: "accepted" }], unresolved("no-answer"));
  await run.lose(lab, "R", [{ do: "accepted" }], replayed());
  await run.lose(lab, "S", [{ do: "accepted" }], replayed());
  if (lab.peer.era === "2026-07-28") return;
  // What comes later on the session's own stream is the answer all the same.
  await lab.peer.http?.until(() => lab.peer.requests("HTTP GET").length > 0);
  const late = await run.lose(lab, "C", [{ do: "hang", late: "get-stream" }], unresolved("no-answer"));
  lab.peer.release();
  const operation = await lab.untilOperation(late, ({ state }) => state === "completed");
  expect(operation.reason).toBe("late-answer");
}
