/**
 * Owns: rows 42 to 44 and 48 of the fault matrix: what a provider's documented promise allows, and clocks that jump.
 */
import { expect } from "vitest";
import type { Step } from "../../../servers/fault/steps.ts";
import type { Json } from "../../../servers/fault/world.ts";
import { completed, expectOutcome, replayed, unresolved, type Expected } from "../checks.ts";
import type { Lab, LabOptions, Subject } from "../lab.ts";
import { isStdio } from "../peers.ts";
import type { Run } from "../run.ts";
import { reasonOfLoss } from "./gate.ts";
import { hanging } from "./waiting.ts";

const documentation = "https://provider.example/docs/idempotency";
const promises = {
  scopedToAccountAndOperation: true,
  boundToPayload: true,
  atomicUnderConcurrency: true,
  retainedForWholeWindow: true,
  reachesProvider: true,
};
/** The provider keeps a key for ten minutes; the margin is one. */
const retentionSeconds = 600;
const windowMs = (retentionSeconds - 60) * 1000;

function prevention(more: Json = {}): LabOptions {
  const duplicatePrevention = {
    keyArgument: "/idempotencyKey",
    suppliedBy: "gateway",
    retentionSeconds,
    promises,
    running: "status == 'running'",
    otherPayload: "status == `422`",
    ...more,
  };
  // Not trusted for replay: what follows rests on the contract alone.
  return { trusted: false, contracts: { charge: { documentation, duplicatePrevention } } };
}

function lookup(more: Json = {}, options: LabOptions = {}): LabOptions {
  const contract = {
    tool: "find_charge",
    arguments: { account: "{{arguments/account}}" },
    effect: "found",
    noEffect: "status == 'none'",
    sameAs: { "/account": "charge.account", "/amount": "charge.amount" },
    consistentAfterSeconds: 0,
    recordsKeptSeconds: 3_000,
    ...more,
  };
  return { contracts: { charge: { documentation, lookup: contract } }, ...options };
}

function keysOf(lab: Lab, subject: Subject): unknown[] {
  return lab.requests(subject).map((request) => (request.params?.["arguments"] as Json)["idempotencyKey"]);
}

/** One key for all requests, the operation's own, and the provider has one effect under it. */
async function expectOneKey(lab: Lab, subject: Subject, requests: number): Promise<void> {
  const operation = await lab.operation(subject);
  expect(keysOf(lab, subject)).toEqual(Array.from({ length: requests }, () => operation.intention.key));
  expect(operation.intention.key).toMatch(/^[0-9a-f-]{36}$/);
  expect(new Set(lab.requests(subject).map(({ rpcId }) => rpcId)).size).toBe(requests);
}

export async function sameKey(run: Run): Promise<void> {
  const lab = await run.open(prevention());
  const subject = await run.lose(lab, "C", [run.loss], replayed());
  await expectOneKey(lab, subject, 2);
  // Lost before the effect: the repeat makes it.
  const before = await run.lose(lab, "C", [{ ...run.loss, effect: false }], replayed());
  await expectOneKey(lab, before, 2);
  const four = await run.open(prevention());
  four.peer.byDefault(run.loss);
  const used = await run.lose(four, "C", [], unresolved(reasonOfLoss(run), { requests: 4 }));
  await expectOneKey(four, used, 4);
}

export async function retentionWindow(run: Run): Promise<void> {
  const within = await run.open(prevention());
  await lostAfter(run, within, windowMs - 1, replayed());
  const over = await run.open(prevention());
  const held = await lostAfter(run, over, windowMs, unresolved(reasonOfLoss(run)));
  expect(await over.verdict(held)).toContain("window-over");
  // Four promises of five are none.
  const short = await run.open(prevention({ promises: { ...promises, reachesProvider: false } }));
  const kept = await run.lose(short, "C", [run.loss], unresolved(reasonOfLoss(run)));
  expect(await short.verdict(kept)).toContain("promises-missing");
}

/** A call that hangs while the clock moves, and is lost then. */
async function lostAfter(run: Run, lab: Lab, ms: number, expected: Expected): Promise<Subject> {
  const subject = lab.subject("C");
  const calling = await hanging(run, lab, subject, { do: "hang", then: run.loss });
  lab.clock.jump(ms);
  lab.peer.release();
  await expectOutcome(lab, subject, await calling.answer, expected);
  return subject;
}

export async function providerSaysRunning(run: Run): Promise<void> {
  const lab = await run.open(prevention());
  const said: Step[] = [{ do: "tool-error", structuredContent: { status: "running" } }];
  if (!isStdio(run.transport)) said.push({ do: "status", status: 409, retryAfter: 1 });
  for (const running of said) {
    const subject = await run.lose(lab, "C", [run.loss, running], replayed({ requests: 3 }));
    await expectOneKey(lab, subject, 3);
    if (running.do !== "status") continue;
    const [, second, third] = lab.requests(subject);
    expect((third?.at ?? 0) - (second?.at ?? 0)).toBeGreaterThanOrEqual(998);
  }
}

export async function providerSaysOtherPayload(run: Run): Promise<void> {
  const said: Step[] = [{ do: "tool-error", structuredContent: { status: 422 } }];
  if (!isStdio(run.transport)) said.push({ do: "status", status: 422 });
  for (const conflict of said) {
    const lab = await run.open(prevention());
    const subject = await run.lose(lab, "C", [run.loss, conflict], unresolved("key-conflict", { requests: 2 }));
    await expectOneKey(lab, subject, 2);
    const { id } = await lab.operation(subject);
    expect(lab.log.some((line) => line.includes("ALARM") && line.includes(id))).toBe(true);
  }
}

// ---- lookups ----------------------------------------------------------------------------------------------------------------------

const confirmed: Expected = { effects: 1, requests: 1, state: "effect-confirmed", reason: "lookup" };

export async function lookupFinds(run: Run): Promise<void> {
  const lab = await run.open(lookup());
  const subject = await run.lose(lab, "C", [run.loss], confirmed);
  expect(lab.peer.ledger.countCalls("find_charge")).toBe(1);
  expect((await lab.operation(subject)).settlement).toMatchObject({ as: "effect-confirmed", actor: "server" });
  // Established when nobody waited any more: the identical call is told, once, and not sent.
  const later = await run.lose(lab, "C", [run.loss, { do: "tool-error" }], unresolved(reasonOfLoss(run)));
  expect(await lab.core.calls.lookUp((await lab.operation(later)).id)).toMatchObject({ found: "effect" });
  const again = await lab.call(run.path, later).answer;
  expect(again.text).toContain("ALREADY DONE: ");
  expect([lab.requests(later).length, lab.effects(later)]).toEqual([1, 1]);
}

export async function lookupFindsNone(run: Run): Promise<void> {
  const lab = await run.open(lookup());
  const subject = await run.lose(lab, "C", [{ ...run.loss, effect: false }], replayed());
  const events = await lab.core.journal.events((await lab.operation(subject)).id);
  expect(events.map(({ type }) => type)).toContain("repeated");
  // Too early for "none" to mean anything: held, looked up again when it is time, and then nobody is there to repeat it for.
  const later = await run.open(lookup({ consistentAfterSeconds: 60 }));
  const held = await run.lose(later, "C", [{ ...run.loss, effect: false }], unresolved(reasonOfLoss(run), { effects: 0 }));
  later.clock.jump(60_000);
  const operation = await later.untilOperation(held, ({ state }) => state !== "unresolved");
  expect([operation.state, operation.reason, later.requests(held).length]).toEqual(["no-effect", "lookup", 1]);
}

/** What decides nothing: ambiguous, another record, forbidden, lost, or a lookup tool that is no proven read. */
export async function lookupUndecided(run: Run): Promise<void> {
  const reason = reasonOfLoss(run);
  const ambiguous = await run.open(lookup());
  const earlier = await run.lose(ambiguous, "C", [], completed());
  const account = earlier.arguments["account"];
  await run.lose(ambiguous, "C", [run.loss], unresolved(reason), { account, amount: 20 });
  const differing = await run.open(lookup());
  const other = (await run.lose(differing, "C", [], completed())).arguments["account"];
  await run.lose(differing, "C", [{ ...run.loss, effect: false }], unresolved(reason, { effects: 0 }), {
    account: other,
    amount: 20,
  });
  for (const refusal of [{ do: "tool-error" }, { do: "error", code: -32001 }] as const) {
    const forbidden = await run.open(lookup());
    await run.lose(forbidden, "C", [run.loss, refusal], unresolved(reason));
  }
  const lost = await run.open(lookup());
  const subject = lost.subject("C");
  lost.peer.script(run.loss, run.loss);
  const answer = await lost.call(run.path, subject).answer;
  expect(answer.mark).toMatchObject({ state: "unresolved", reason });
  if (isStdio(run.transport) || run.transport === "sse-2024") {
    // That loss was the connection's end: when the server is back, it is asked again.
    await lost.untilOperation(subject, ({ state }) => state === "effect-confirmed");
  } else await expectOutcome(lost, subject, answer, unresolved(reason));
  expect([lost.requests(subject).length, lost.effects(subject)]).toEqual([1, 1]);
  const untrusted = await run.open(lookup({}, { trusted: false }));
  await run.lose(untrusted, "C", [run.loss], unresolved(reason));
  expect(untrusted.peer.ledger.countCalls("find_charge")).toBe(0);
}

// ---- row 48 -----------------------------------------------------------------------------------------------------------------------

export async function clockJumps(run: Run): Promise<void> {
  const reason = reasonOfLoss(run);
  const back = await run.open(prevention());
  const held = await lostAfter(run, back, -86_400_000, unresolved(reason));
  expect(await back.verdict(held)).toContain("clock-moved");
  const events = await back.core.journal.events((await back.operation(held)).id);
  expect(events.map(({ type }) => type)).toEqual(["prepared", "sent", "lost", "held"]);
  expect(events.at(-1)?.at).toBeLessThan(events[0]?.at ?? 0);

  const lab = await run.open(lookup({ consistentAfterSeconds: 60 }));
  const subject = await run.lose(lab, "C", [{ ...run.loss, effect: false }], unresolved(reason, { effects: 0 }));
  const { id } = await lab.operation(subject);
  const found = async (): Promise<string> => (await lab.core.calls.lookUp(id)).found;
  lab.clock.jump(-120_000);
  expect(await found()).toBe("undecided");
  // Past the time for which the provider keeps its records: "none" proves nothing any more.
  lab.clock.jump(120_000 + 3_000_000 + 1);
  await lab.untilOperation(subject, () => true);
  expect(await found()).toBe("undecided");
  expect((await lab.operation(subject)).state).toBe("unresolved");
}
