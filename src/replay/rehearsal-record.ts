/**
 * Owns: what a rehearsal leaves in the journal: how the calls of each scenario ended, and what the lookup saw of those without an answer.
 * Leaves to others: the rehearsal itself (rehearsal.ts).
 */
import type { Ending } from "../hosting/evidence.ts";
import type { OperationEvent } from "../operations/model.ts";
import type { Course } from "./attempt.ts";
import { classify } from "./classify.ts";
import type { Lookup } from "./contracts.ts";
import { observationOf, type Desk } from "./desk.ts";
import type { Seen } from "./rehearsal-plan.ts";

/** The name under which rehearsals stand in the journal. */
export const rehearsalClient = "Rehearsal";

/** The calls of one scenario: attempts of one operation. */
interface Acted {
  readonly course: Course;
  readonly endings: ReadonlyMap<number, Ending>;
}

/** How the calls of a scenario ended, in the journal; what is left without an answer is settled by what the lookup saw. */
export async function recordActing(desk: Desk, lookup: Lookup, act: Acted, after: Seen | undefined): Promise<void> {
  const { id } = act.course;
  if (act.endings.size === 0) return;
  const events: OperationEvent[] = [];
  let state: "in-flight" | "unresolved" | "completed" = "in-flight";
  const lost = [...act.endings].filter(([, ending]) => ending.kind === "loss");
  const answered = [...act.endings].filter(([, ending]) => ending.kind === "answer");
  for (const [attempt, ending] of lost) {
    if (ending.kind !== "loss") continue;
    const verdict = classify(ending.loss);
    if (verdict.outcome === "not-executed" && act.endings.size === 1) {
      const status = ending.loss.httpStatus === undefined ? {} : { httpStatus: ending.loss.httpStatus };
      await desk.note(desk.event(id, "refused", "server", { attempt, reason: verdict.reason, ...status }));
      return;
    }
    events.push(
      desk.event(id, "lost", "gateway", {
        attempt,
        stage: ending.loss.stage,
        reason: verdict.reason,
        kind: ending.loss.kind,
        ...(ending.loss.httpStatus === undefined ? {} : { httpStatus: ending.loss.httpStatus }),
        ...(verdict.outcome === "not-executed" ? { outcome: "not-executed" as const } : {}),
      }),
    );
    state = "unresolved";
  }
  for (const [attempt, ending] of answered) {
    if (ending.kind !== "answer") continue;
    const data = { attempt, ...observationOf(ending.answer) };
    events.push(
      state === "in-flight"
        ? desk.event(id, "answered", "server", { ...data, reason: "answered" })
        : desk.event(id, "late-answer", "server", data),
    );
    state = "completed";
  }
  if (state === "completed") events.push(desk.event(id, "delivered", "gateway", { to: rehearsalClient }));
  else if (after?.kind === "found" || (after?.kind === "count" && after.count > 0)) {
    const evidence = `the lookup tool '${lookup.tool}' found what a rehearsal made`;
    events.push(desk.event(id, "settled", "server", { as: "effect-confirmed", evidence, attempts: act.course.attempts }));
  }
  await desk.note(...events);
}
