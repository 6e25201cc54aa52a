/**
 * Owns: whether and on which connection a further attempt is made without asking anybody: the gate, a duplicate-prevention contract,
 * or because the last try provably never left.
 * Leaves to others: the rules themselves (gate.ts, contracts.ts).
 */
import type { HostedConnection, ListedTool } from "../hosting/connection.ts";
import type { Course } from "./attempt.ts";
import { fullJitter, type ReplayBudget } from "./backoff.ts";
import { preventionVerdict } from "./contracts.ts";
import { kindOf, toolNamed, type Desk } from "./desk.ts";
import { hardAttemptLimit, isProvenRead, replayGate, sameSchema, type GateReason } from "./gate.ts";
import type { PreventionReason } from "./prevention-reasons.ts";

/** Reconnecting and waiting for a further attempt may not take the caller's answer past this after a loss, in milliseconds. */
export const furtherAttemptBoundMs = 5_000;

export type FurtherAttempt =
  | { readonly allowed: true; readonly connection: HostedConnection; readonly by: "gate" | "contract" }
  | { readonly allowed: false; readonly reasons: readonly (GateReason | PreventionReason)[] };

/**
 * Asks gate and contract, twice: before anything is done (an invocation that may not be replayed does not reconnect), and again on
 * the re-discovered tool with trust as it is at that moment.
 */
export async function furtherAttempt(
  desk: Desk,
  budget: ReplayBudget,
  course: Course,
  connection: HostedConnection,
  loss: { readonly connectionLoss: boolean; readonly retryAfterMs: number | undefined },
): Promise<FurtherAttempt> {
  const { clock } = desk;
  const before = connection.facts;
  const since = clock.now();
  let verdict = ask(desk, budget, course, loss.connectionLoss, course.tool, true);
  while (verdict.by !== undefined) {
    const wait = fullJitter(course.attempts + course.unsent, desk.random, loss.retryAfterMs);
    if (clock.now() - since + wait > furtherAttemptBoundMs || desk.closing || course.hooks.signal?.aborted === true) {
      return { allowed: false, reasons: ["took-too-long"] };
    }
    await desk.pause(wait);
    try {
      const fresh = await desk.within(furtherAttemptBoundMs - (clock.now() - since), course.server.rediscover(connection));
      const tool = toolNamed(course.server.tools, course.tool.name);
      const sameServer = fresh.facts.serverInfo.name === before.serverInfo.name && fresh.facts.era === before.era;
      verdict = ask(desk, budget, course, loss.connectionLoss, tool, sameServer);
      if (verdict.by !== undefined && budget.take(course.server.name, clock.now())) {
        course.provenRead = course.provenRead && isProvenRead(tool, desk.trustNow(course.server), course.contract);
        return { allowed: true, connection: fresh, by: verdict.by };
      }
    } catch (error) {
      desk.log(course.server.name, `re-discovery for a further attempt failed (${kindOf(error)})`);
      course.unsent += 1;
      verdict = ask(desk, budget, course, loss.connectionLoss, course.tool, true);
    }
  }
  return { allowed: false, reasons: verdict.reasons };
}

function ask(
  desk: Desk,
  budget: ReplayBudget,
  course: Course,
  connectionLoss: boolean,
  now: ListedTool | undefined,
  sameServer: boolean,
): { readonly by: "gate" | "contract" | undefined; readonly reasons: readonly (GateReason | PreventionReason)[] } {
  const { settings, clock } = desk;
  const trust = desk.trustNow(course.server);
  // As it stands now: a contract that was withdrawn covers nothing.
  const contract = desk.contract(course.server.name, course.tool.name);
  const attempts = course.attempts + course.unsent;
  const budgetLeft = budget.has(course.server.name, clock.now());
  const gate = replayGate({
    connectionLoss,
    trust,
    before: course.tool,
    now,
    sameServer,
    contract,
    attempts,
    maxReplays: settings.maxReplays,
    replayReads: settings.reads,
    budgetLeft,
  });
  if (gate.allowed) return { by: "gate", reasons: [] };
  if (contract?.duplicatePrevention === undefined) return { by: undefined, reasons: gate.reasons };
  const prevention = preventionVerdict({
    contract,
    connectionLoss,
    trust,
    key: course.intention.key,
    keyArgument: course.intention.keyArgument,
    firstSentAt: course.firstSentAt ?? clock.now(),
    now: clock.now(),
    attempts,
    maxAttempts: Math.min(1 + settings.maxReplays, hardAttemptLimit),
    toolIsThere: now !== undefined,
    sameSchema: now !== undefined && sameSchema(course.tool, now),
    sameServer,
  });
  if (prevention.allowed && budgetLeft) return { by: "contract", reasons: [] };
  return { by: undefined, reasons: [...new Set([...gate.reasons, ...prevention.reasons])] };
}

/** A connection to send on again after a provably unsent try, or undefined when the bound is reached. No gate: it is no replay. */
export async function resendConnection(
  desk: Desk,
  course: Course,
  retryAfterMs: number | undefined,
): Promise<HostedConnection | undefined> {
  const { clock } = desk;
  const since = clock.now();
  for (;;) {
    course.unsent += 1;
    if (course.unsent > Math.min(desk.settings.maxReplays, hardAttemptLimit - 1)) return undefined;
    if (desk.closing || course.hooks.signal?.aborted === true) return undefined;
    const wait = fullJitter(course.unsent, desk.random, retryAfterMs);
    if (clock.now() - since + wait > furtherAttemptBoundMs) return undefined;
    await desk.pause(wait);
    try {
      return await desk.within(furtherAttemptBoundMs - (clock.now() - since), course.server.connect());
    } catch (error) {
      desk.log(course.server.name, `still unreachable (${kindOf(error)})`);
    }
  }
}
