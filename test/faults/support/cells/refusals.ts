/**
 * Owns: rows 17 to 24 of the fault matrix: HTTP statuses, sessions, redirects, and the refusals and questions of the 2026-07-28 era.
 */
import { expect } from "vitest";
import type { Step } from "../../../servers/fault/steps.ts";
import type { Json } from "../../../servers/fault/world.ts";
import { completed, expectOutcome, notExecuted, readLost, replayed, unresolved, type Expected } from "../checks.ts";
import type { Answer, Class, Lab, Subject } from "../lab.ts";
import type { Run } from "../run.ts";

// ---- row 17 -----------------------------------------------------------------------------------------------------------------------

export async function sessionGone(run: Run): Promise<void> {
  const lab = await run.open();
  const sessions = (): (string | undefined)[] => (lab.peer.http?.calls() ?? []).map((call) => call.sessionId);
  for (const body of ["json-without-id", "empty"] as const) {
    await run.lose(lab, "C", [{ do: "session-gone", body }], notExecuted("session-gone"));
    // Calling again is safe, and it goes into a new session.
    await run.lose(lab, "C", [], completed());
    const [old, fresh] = sessions().slice(-2);
    expect(fresh).toBeDefined();
    expect(fresh).not.toBe(old);
  }
  // A proven read is sent again in the new session; an idempotent write is not a read.
  await run.lose(lab, "R", [{ do: "session-gone", body: "empty" }], completed({ requests: 2, via: "resent" }));
  await run.lose(lab, "S", [{ do: "session-gone", body: "empty" }], notExecuted("session-gone"));
  // With an error that names this very request the 404 is an answer, and passed on; the session is renewed all the same.
  const named = lab.subject("C");
  lab.peer.script({ do: "session-gone", body: "json" });
  const answer = await lab.call(run.path, named).answer;
  expect([answer.error?.code, (await lab.operation(named)).state]).toEqual([-32001, "completed"]);
  expect([lab.requests(named).length, lab.effects(named)]).toEqual([1, 0]);
  await run.lose(lab, "C", [], completed());
  expect(sessions().at(-1)).not.toBe(sessions().at(-2));
  // A web page is not the endpoint's word.
  await run.lose(lab, "C", [{ do: "status", status: 404, body: "html" }], unresolved("session-gone", { effects: 0 }));
}

// ---- rows 18 and 23 ---------------------------------------------------------------------------------------------------------------

/** A JSON-RPC error is an answer: passed on, one request, the connection as good as before. */
async function expectObservedError(run: Run, lab: Lab, step: Step, code: number): Promise<void> {
  for (const cls of ["C", "R", "S"] as const) {
    const subject = lab.subject(cls);
    lab.peer.script(step);
    const answer = await lab.call(run.path, subject).answer;
    expect(answer.error?.code).toBe(code);
    const operation = await lab.operation(subject);
    expect([operation.state, operation.reason]).toEqual(["completed", "answered"]);
    expect([lab.requests(subject).length, lab.effects(subject)]).toEqual([1, 0]);
  }
  const next = await run.lose(lab, "C", [], completed());
  const operations = await lab.core.journal.operations({});
  const connections = new Set(operations.flatMap((operation) => operation.attempts.map((attempt) => attempt.connectionId)));
  expect([...connections]).toEqual([(await lab.operation(next)).attempts[0]?.connectionId]);
}

export async function unknownMethod404(run: Run): Promise<void> {
  const lab = await run.open();
  await expectObservedError(run, lab, { do: "error", code: -32601, status: 404 }, -32601);
}

export async function modernRefusals(run: Run): Promise<void> {
  const lab = await run.open();
  await expectObservedError(run, lab, { do: "header-mismatch" }, -32020);
  await expectObservedError(run, lab, { do: "unsupported-version" }, -32022);
}

// ---- rows 19 to 22 ----------------------------------------------------------------------------------------------------------------

export async function unauthorised(run: Run): Promise<void> {
  for (const status of [401, 403] as const) {
    const lab = await run.open();
    await run.lose(lab, "C", [{ do: "unauthorised", status }], notExecuted("refused"));
    await run.lose(lab, "R", [{ do: "unauthorised", status }], notExecuted("refused"));
    await run.lose(lab, "S", [{ do: "unauthorised", status }], notExecuted("refused"));
  }
}

/** The statuses of row 20, and of row 21. */
export const refusingStatuses = [400, 405, 406, 413, 415, 422, 429, 431] as const;
export const failingStatuses = [408, 421, 500, 502, 503, 504] as const;

export async function refusedStatuses(run: Run): Promise<void> {
  const lab = await run.open();
  for (const status of refusingStatuses) {
    await run.lose(lab, "C", [{ do: "status", status }], notExecuted("refused"));
    await run.lose(lab, "C", [{ do: "status", status, body: "empty" }], notExecuted("refused"));
  }
  await run.lose(lab, "R", [{ do: "status", status: 429, retryAfter: 1 }], notExecuted("refused"));
  await run.lose(lab, "S", [{ do: "status", status: 429, retryAfter: 1 }], notExecuted("refused"));
  // Something in front of the endpoint said so: that proves nothing.
  await run.lose(lab, "C", [{ do: "status", status: 400, body: "html" }], unresolved("http-status", { effects: 0 }));
}

export async function failedStatuses(run: Run): Promise<void> {
  const lab = await run.open();
  for (const status of failingStatuses) {
    await run.lose(lab, "C", [{ do: "status", status }], unresolved("http-status"));
    await run.lose(lab, "R", [{ do: "status", status, body: "html" }], replayed());
    await run.lose(lab, "S", [{ do: "status", status }], replayed());
  }
}

/** `Retry-After` delays a further attempt; when it asks for more than the caller may be kept waiting, there is none. */
export async function retryAfter(run: Run): Promise<void> {
  const lab = await run.open();
  const patient = await run.lose(lab, "R", [{ do: "status", status: 503, retryAfter: 1 }], replayed());
  const [first, second] = lab.requests(patient);
  expect((second?.at ?? 0) - (first?.at ?? 0)).toBeGreaterThanOrEqual(998);
  await run.lose(lab, "R", [{ do: "status", status: 503, retryAfter: 60 }], readLost("http-status"));
  await run.lose(lab, "S", [{ do: "status", status: 503, retryAfter: 60 }], unresolved("http-status"));
}

export async function redirected(run: Run): Promise<void> {
  const lab = await run.open();
  for (const status of [301, 302, 303, 307, 308] as const) {
    for (const to of ["same-origin", "other-origin"] as const) {
      await run.lose(lab, "C", [{ do: "redirect", status, to }], unresolved("redirected", { effects: 0 }));
    }
  }
  const redirect: Step = { do: "redirect", to: "same-origin", effect: true };
  await run.lose(lab, "C", [redirect], unresolved("redirected"));
  await run.lose(lab, "R", [redirect], readLost("redirected"));
  await run.lose(lab, "S", [redirect], unresolved("redirected"));
  expect(lab.peer.http?.requests().filter((request) => request.origin === "other")).toEqual([]);
}

// ---- row 24 -----------------------------------------------------------------------------------------------------------------------

/** Both rounds of a call that needs the person: two requests, two RPC ids, the state echoed exactly. */
export async function inputRequired(run: Run): Promise<void> {
  const state = 'state "1" \u00e4\n{"x":[1]}';
  const ask: Step = { do: "input-required", requestState: state };
  await legacyAgentIsAsked(run, ask, state);
  await modernAgentIsAsked(run, ask, state);
  // No loop on its own: an agent that cannot be asked ends it after the first round.
  const lab = await run.open();
  const subject = lab.subject("C");
  lab.peer.script(ask);
  await lab.agent.initialize();
  const answer = await lab.call("agent", subject).answer;
  expect(answer.isError).toBe(true);
  expect([lab.requests(subject).length, lab.effects(subject)]).toEqual([1, 0]);
}

async function legacyAgentIsAsked(run: Run, ask: Step, state: string): Promise<void> {
  const questions: string[] = [];
  const lab = await run.open({
    agent: {
      asked: (method) => {
        questions.push(method);
        return { action: "accept", content: { yes: true } };
      },
    },
  });
  await lab.agent.initialize();
  const subject = lab.subject("C");
  lab.peer.script(ask);
  const answer = await lab.call("agent", subject).answer;
  expect(answer.isError).toBe(false);
  expect(questions).toEqual(["elicitation/create"]);
  await expectTwoRounds(lab, subject, state, answer);
}

async function modernAgentIsAsked(run: Run, ask: Step, state: string): Promise<void> {
  const lab = await run.open({ agent: { era: "2026-07-28", asked: () => ({}) } });
  const subject = lab.subject("C");
  lab.peer.script(ask);
  const first = await lab.agent.call(subject.tool, subject.arguments).answer;
  expect(first).toMatchObject({ kind: "result", result: { resultType: "input_required", requestState: state } });
  await lab.untilOperation(subject, ({ delivered }) => delivered);
  const second = await lab.agent.call(subject.tool, subject.arguments, {
    inputResponses: { confirm: { action: "accept", content: { yes: true } } },
    requestState: state,
  }).answer;
  expect(second).toMatchObject({ kind: "result", result: { resultType: "complete" } });
  await expectTwoRounds(lab, subject, state);
}

async function expectTwoRounds(lab: Lab, subject: Subject, state: string, answer?: Answer): Promise<void> {
  const [first, second] = lab.requests(subject);
  expect(lab.requests(subject)).toHaveLength(2);
  expect(lab.effects(subject)).toBe(1);
  expect(second?.rpcId).not.toBe(first?.rpcId);
  expect(first?.params?.["requestState"]).toBeUndefined();
  expect(second?.params?.["requestState"]).toBe(state);
  expect(second?.params?.["inputResponses"]).toEqual({ confirm: { action: "accept", content: { yes: true } } });
  const operations = await lab.operations(subject);
  expect(operations.map((operation) => operation.state)).toEqual(["completed", "completed"]);
  if (answer !== undefined) expect(answer.result?.["isError"]).not.toBe(true);
}

// ---- rows 34 and 37 ---------------------------------------------------------------------------------------------------------------

/** Whatever an answer holds, it is one. */
export async function strangeAnswer(run: Run): Promise<void> {
  const lab = await run.open();
  for (const cls of ["C", "R", "S"] as const) {
    const subject = await run.lose(lab, cls, [{ do: "bad-output" }], completed());
    const { answer } = await lab.operation(subject);
    expect((answer?.result as Json)["content"]).toEqual([{ type: "hologram", data: "?" }]);
  }
}

export async function extraAnswers(run: Run): Promise<void> {
  const lab = await run.open();
  const expected: Partial<Record<Class, Expected>> = { C: completed(), R: completed(), S: completed() };
  for (const cls of ["C", "R", "S"] as const) {
    for (const step of [{ do: "two-answers" }, { do: "unknown-id" }] as const) {
      const subject = lab.subject(cls);
      lab.peer.script(step);
      const answer = await lab.call(run.path, subject).answer;
      await expectOutcome(lab, subject, answer, expected[cls] ?? completed());
      expect(answer.text).not.toContain("A second answer.");
    }
  }
  if (lab.peer.http === undefined || run.transport === "sse-2024") return;
  // An exchange that brings only a stranger's answer has brought none.
  const reason = run.transport.endsWith("json") ? "answer-unreadable" : "connection-lost";
  const step: Step = { do: "unknown-id", then: "end" };
  if (run.transport !== "http-sse-ids") await run.lose(lab, "C", [step], unresolved(reason));
}
