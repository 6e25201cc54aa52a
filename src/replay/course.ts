/**
 * Owns: the course of one operation from its first attempt to the caller's answer: what follows from each ending.
 * In this order; the first that applies ends it: answered · not executed · recover · gate · contract · lookup · hold.
 * Leaves to others: each step's own rule.
 * Sources: DESIGN.md sections 3 and 4; the second source document, "A proposed decision procedure".
 */
import type { HostedConnection } from "../hosting/connection.ts";
import type { Settled } from "../hosting/auth/server-authorisation.ts";
import type { JsonRpcAnswer, Loss } from "../hosting/evidence.ts";
import type { Attempt, EventData, Operation, OperationEvent, Reason } from "../operations/model.ts";
import {
  authorisationNeeded,
  lookedUpAnswer,
  marked,
  notExecutedAnswer,
  notJournaledAnswer,
  readLostAnswer,
  unresolvedAnswer,
} from "./answers.ts";
import { submit, type Course, type Waited } from "./attempt.ts";
import { patience, type ReplayBudget } from "./backoff.ts";
import { ourAnswer, type CallAnswer, type Via } from "./calls.ts";
import { classify } from "./classify.ts";
import { dataOf, evaluate } from "./contracts.ts";
import { observationOf, type Desk } from "./desk.ts";
import { furtherAttempt, furtherAttemptBoundMs, resendConnection } from "./further-attempt.ts";
import { declaresRead } from "./gate.ts";
import type { LookupFinding } from "./lookup.ts";
import type { Reconciliation } from "./reconciliation.ts";
import { recover, type Recovered } from "./recovery.ts";

/** How the next attempt comes to be. */
interface Next {
  readonly connection: HostedConnection;
  readonly cause: Attempt["cause"];
  readonly via: Via;
  /** Events that belong into the same write as the attempt. */
  readonly lead: readonly OperationEvent[];
}

export class CourseRunner {
  readonly #desk: Desk;
  readonly #budget: ReplayBudget;
  readonly #reconciliation: Reconciliation;

  constructor(desk: Desk, budget: ReplayBudget, reconciliation: Reconciliation) {
    this.#desk = desk;
    this.#budget = budget;
    this.#reconciliation = reconciliation;
  }

  /** Never rejects. */
  async run(course: Course, first: Next): Promise<CallAnswer> {
    let next = first;
    for (;;) {
      const submitted = await submit(this.#desk, course, next.connection, next.cause, next.lead);
      if (submitted.kind === "cancelled") return this.#cancelledBeforeSend(course, next.lead);
      if (submitted.kind === "journal-failed") return this.#journalFailed(course, submitted.text);
      const { waited, number } = submitted;
      if (waited.kind !== "ended") return this.#stoppedWaiting(course, waited, number);
      const step =
        waited.ending.kind === "answer"
          ? await this.#answered(course, waited.ending.answer, number, next)
          : await this.#lost(course, waited.ending.loss, number, next);
      if ("cause" in step) next = step;
      else return step;
    }
  }

  // ---- an answer ----------------------------------------------------------------------------------------------------------------

  async #answered(course: Course, answer: JsonRpcAnswer, number: number, { connection, via }: Next): Promise<CallAnswer | Next> {
    const prevention = course.contract?.duplicatePrevention;
    if (prevention !== undefined && number > 1) {
      // The provider's word about the key, not about the booking: its error proves nothing of the attempt whose answer was lost.
      const { isError, result, error } = observationOf(answer);
      const data = dataOf(result ?? error);
      if (isSaid(prevention.otherPayload, data)) return this.#alarm(course, number);
      if (isSaid(prevention.running, data)) return this.#askAgain(course, number, connection, undefined);
      if (isError && course.doubt !== undefined)
        return this.#stillInDoubt(course, { kind: "answered", httpStatus: undefined }, number, "answered");
    }
    return this.#observed(course, answer, number, via);
  }

  async #observed(course: Course, answer: JsonRpcAnswer, number: number, via: Via, recovered?: Recovered): Promise<CallAnswer> {
    const desk = this.#desk;
    const data = observationOf(answer);
    const noted = await desk.note(
      recovered !== undefined
        ? desk.event(course.id, "recovered", "server", { attempt: number, how: recovered.how, ...data })
        : desk.event(course.id, "answered", "server", {
            attempt: number,
            reason: via === "replayed" ? "replayed" : "answered",
            ...data,
          }),
    );
    // Settled meanwhile, or a late answer to an earlier attempt was quicker: this one is kept beside it.
    if (!noted) await desk.noteLate(course.id, number, answer);
    const delivered = (): void => desk.noteDelivered(course.id, course.intention.caller.client);
    if ("error" in answer) return { kind: "error", error: answer.error, operationId: course.id, delivered };
    const twin = course.intention.possibleDuplicateOf;
    const asItIs = via === "direct" && twin === undefined;
    const mark = {
      id: course.id,
      state: "completed" as const,
      attempts: course.attempts,
      via,
      ...(twin === undefined ? {} : { possibleDuplicateOf: twin }),
    };
    const observation = via === "replayed" && (declaresRead(course.tool) || course.contract?.nonMutating !== undefined);
    return {
      kind: "result",
      result: asItIs ? answer.result : marked(answer.result, mark, observation),
      operationId: course.id,
      delivered,
    };
  }

  // ---- a loss -------------------------------------------------------------------------------------------------------------------

  async #lost(course: Course, loss: Loss, number: number, { connection }: Next): Promise<CallAnswer | Next> {
    const desk = this.#desk;
    // Of a repeat that a person ordered, too: whatever they saw, the provider knows the key.
    if (course.contract?.duplicatePrevention !== undefined && number > 1) {
      if (loss.httpStatus === 422) return this.#alarm(course, number);
      if (loss.httpStatus === 409) return this.#askAgain(course, number, connection, loss.retryAfterMs);
    }
    const verdict = classify(loss);
    if (verdict.outcome === "not-executed") {
      const settled = loss.challenge === undefined ? "no" : await this.#settleChallenge(course, loss.challenge);
      if (settled === "retry") {
        if (course.doubt !== undefined)
          return this.#tryAgain(course, number, connection, { stage: "answering", kind: "unauthorised" }, undefined);
        const authorised = await this.#authorised(course, loss, number, connection);
        if (authorised !== undefined) return authorised;
      }
      // What never left is sent again without the gate; what was refused with its session, only if it is a proven read.
      // In doubt of an earlier attempt it is a replay all the same.
      if (verdict.sendable && course.doubt !== undefined) {
        const lost = { stage: "not-sent", kind: loss.kind } as const;
        return this.#tryAgain(course, number, connection, lost, loss.retryAfterMs);
      }
      const again = verdict.sendable || (verdict.reason === "session-gone" && course.provenRead);
      const fresh = again ? await resendConnection(desk, course, loss.retryAfterMs) : undefined;
      if (fresh !== undefined)
        return { connection: fresh, cause: "resend", via: course.doubt === undefined ? "resent" : "replayed", lead: [] };
      if (course.doubt !== undefined) return this.#stillInDoubt(course, loss, number, "refused");
      await desk.note(desk.event(course.id, "refused", "server", refusal(number, verdict.reason, loss)));
      const more = settled === "person" ? authorisationNeeded : undefined;
      return ourAnswer(course.id, notExecutedAnswer(course.id, verdict.reason, course.attempts, more));
    }

    course.doubt = verdict.reason;
    await desk.note(
      desk.event(course.id, "lost", "gateway", {
        attempt: number,
        stage: loss.stage,
        reason: verdict.reason,
        kind: loss.kind,
        ...statusOf(loss),
      }),
    );
    const recovered = await this.#recoverInTime(course, connection);
    if (recovered !== undefined) return this.#observed(course, recovered.answer, recovered.attempt, "recovered", recovered);

    const further = await furtherAttempt(desk, this.#budget, course, connection, {
      connectionLoss: verdict.connectionLoss,
      retryAfterMs: loss.retryAfterMs,
    });
    if (further.allowed) {
      const replayed = desk.event(course.id, "replayed", "gateway", { attempt: course.attempts + 1, verdict: [further.by] });
      return { connection: further.connection, cause: "replay", via: "replayed", lead: [replayed] };
    }
    return this.#lookUpOrHold(course, verdict.reason, further.reasons);
  }

  /** What the server's challenge led to, within the caller's patience and once in a course. */
  async #settleChallenge(course: Course, challenge: number): Promise<Settled> {
    const settling = course.server.authorisation?.settle(challenge);
    if (settling === undefined) return "no";
    const settled = await this.#desk.within(furtherAttemptBoundMs, settling).catch((): Settled => "no");
    if (settled !== "retry") return settled;
    if (course.reauthorised === true) return "no";
    course.reauthorised = true;
    return "retry";
  }

  /** The one further attempt after a refusal that the authorisation could mend: the refused one did not run, so it is no replay. */
  async #authorised(course: Course, loss: Loss, number: number, connection: HostedConnection): Promise<Next | undefined> {
    const desk = this.#desk;
    if (desk.closing) return undefined;
    const open = connection.open
      ? connection
      : await desk.within(furtherAttemptBoundMs, course.server.connect()).catch(() => undefined);
    if (open === undefined) return undefined;
    const { stage, kind } = loss;
    // In one write with the attempt that follows: the refused one never stands in doubt.
    const refused = desk.event(course.id, "lost", "server", {
      attempt: number,
      stage,
      reason: "refused",
      kind,
      outcome: "not-executed",
      ...statusOf(loss),
    });
    return { connection: open, cause: "authorised", via: "resent", lead: [refused] };
  }

  /** Recovery for as long as the caller may wait; after that it goes on, and what it finds is a late answer. */
  async #recoverInTime(course: Course, connection: HostedConnection): Promise<Recovered | undefined> {
    const desk = this.#desk;
    const operation = await desk.journal.operation(course.id).catch(() => undefined);
    if (operation === undefined || !connection.open) return undefined;
    return new Promise((resolve) => {
      let over = false;
      const stopClock = desk.clock.after(desk.settings.requestTimeoutMs, () => {
        over = true;
        resolve(undefined);
      });
      void recover(desk, operation, connection, course.hooks).then((found) => {
        stopClock();
        if (over && found !== undefined) void desk.noteLate(course.id, found.attempt, found.answer);
        resolve(found);
      });
    });
  }

  // ---- a provider's word about a repeated key -----------------------------------------------------------------------------------

  /** The first attempt is still running at the provider: the same question again, with the same key, within the caller's patience. */
  #askAgain(
    course: Course,
    number: number,
    connection: HostedConnection,
    retryAfterMs: number | undefined,
  ): Promise<CallAnswer | Next> {
    course.doubt ??= "connection-lost";
    const lost = { stage: "answering", kind: "still-running" } as const;
    return this.#tryAgain(course, number, connection, lost, Math.max(retryAfterMs ?? 0, patience(number, this.#desk.random)));
  }

  /** This further attempt had no effect of its own, and whether there may be another one is asked anew, trust and tools included. */
  async #tryAgain(
    course: Course,
    number: number,
    connection: HostedConnection,
    lost: { readonly stage: Loss["stage"]; readonly kind: string },
    retryAfterMs: number | undefined,
  ): Promise<CallAnswer | Next> {
    const desk = this.#desk;
    await desk.note(
      desk.event(course.id, "lost", "server", {
        attempt: number,
        ...lost,
        reason: doubtOf(course),
        outcome: "not-executed",
      }),
    );
    const further = await furtherAttempt(desk, this.#budget, course, connection, { connectionLoss: true, retryAfterMs });
    if (!further.allowed) return this.#lookUpOrHold(course, doubtOf(course), further.reasons);
    const replayed = desk.event(course.id, "replayed", "gateway", {
      attempt: course.attempts + 1,
      verdict: [further.by, lost.kind],
    });
    return { connection: further.connection, cause: "replay", via: "replayed", lead: [replayed] };
  }

  /** The key belongs to another payload: something is badly wrong. Stop, keep the key, tell a person. */
  async #alarm(course: Course, number: number): Promise<CallAnswer> {
    const desk = this.#desk;
    desk.log(course.server.name, `ALARM: the provider says that the key of operation ${course.id} was used with another payload`);
    await desk.note(
      desk.event(course.id, "lost", "server", {
        attempt: number,
        stage: "answering",
        reason: "key-conflict",
        kind: "key-conflict",
        outcome: "not-executed",
      }),
    );
    return this.#hold(course, "key-conflict", ["key-conflict"]);
  }

  /** This attempt ran for nothing, but an earlier one may have run: the operation stays what it was. */
  async #stillInDoubt(
    course: Course,
    loss: { readonly kind: string; readonly httpStatus?: number | undefined },
    number: number,
    kind: string,
  ): Promise<CallAnswer | Next> {
    const desk = this.#desk;
    await desk.note(
      desk.event(course.id, "lost", "server", {
        attempt: number,
        stage: "answering",
        reason: doubtOf(course),
        kind: `${kind}:${loss.kind}`,
        outcome: "not-executed",
        ...statusOf(loss),
      }),
    );
    return this.#lookUpOrHold(course, doubtOf(course), [`further-attempt-${kind}`]);
  }

  // ---- the end of what can be done ----------------------------------------------------------------------------------------------

  async #lookUpOrHold(course: Course, reason: Reason, verdict: readonly string[]): Promise<CallAnswer | Next> {
    const desk = this.#desk;
    if (course.provenRead || course.contract?.lookup === undefined) return this.#hold(course, reason, verdict);
    const since = desk.clock.now();
    for (;;) {
      const operation = await desk.journal.operation(course.id).catch(() => undefined);
      // Settled by a person or answered late in the meantime.
      if (operation?.state !== "unresolved") return ourAnswer(course.id, unresolvedAnswer(course.id, reason, course.attempts));
      // With the arguments as they were sent: the journal may keep only a part of them.
      const finding = await this.#lookUpInTime(course, operation, furtherAttemptBoundMs - (desk.clock.now() - since));
      if (finding === "too-slow") return this.#hold(course, reason, [...verdict, "took-too-long"]);
      if (finding.found === "effect") {
        return {
          ...ourAnswer(course.id, lookedUpAnswer(course.id, finding.evidence, course.attempts)),
          delivered: () => desk.noteDelivered(course.id, course.intention.caller.client),
        };
      }
      if (finding.found === "no-effect") return this.#repeatAfterNoEffect(course, reason, finding.evidence);
      if (finding.againMs === undefined) return this.#hold(course, reason, verdict);
      if (desk.clock.now() - since + finding.againMs > furtherAttemptBoundMs) {
        this.#reconciliation.lookUpLater(course.id, course.server, finding.againMs);
        return this.#hold(course, reason, verdict);
      }
      await desk.pause(finding.againMs);
    }
  }

  /** A lookup for as long as the caller may wait. After that it goes on by itself: what it establishes settles the operation all the same. */
  #lookUpInTime(course: Course, operation: Operation, ms: number): Promise<LookupFinding | "too-slow"> {
    return new Promise((resolve) => {
      let over = false;
      const stopClock = this.#desk.clock.after(ms, () => {
        over = true;
        resolve("too-slow");
      });
      void this.#reconciliation.lookUp({ ...operation, intention: course.intention }, course.server).then((finding) => {
        stopClock();
        if (over && finding.found === "undecided" && finding.againMs !== undefined)
          this.#reconciliation.lookUpLater(course.id, course.server, finding.againMs);
        resolve(finding);
      });
    });
  }

  /** A definitive "none" under the contract, while the caller still waits: the one automatic repeat that a lookup allows. */
  async #repeatAfterNoEffect(course: Course, reason: Reason, evidence: string): Promise<CallAnswer | Next> {
    const desk = this.#desk;
    const notRun = (): CallAnswer =>
      ourAnswer(course.id, notExecutedAnswer(course.id, reason, course.attempts, "a lookup established that it had no effect"));
    const connection =
      course.attempts < 2 && desk.trustNow(course.server).workspace ? await resendConnection(desk, course, undefined) : undefined;
    if (connection === undefined || desk.closing || course.hooks.signal?.aborted === true) return notRun();
    course.doubt = undefined;
    const repeated = desk.event(course.id, "repeated", "gateway", { attempt: course.attempts + 1, evidence });
    return { connection, cause: "repeat", via: "replayed", lead: [repeated] };
  }

  async #stoppedWaiting(
    course: Course,
    waited: Extract<Waited, { kind: "timeout" | "cancelled" }>,
    number: number,
  ): Promise<CallAnswer> {
    const actor = waited.kind === "timeout" ? "gateway" : "agent";
    await this.#desk.note(
      this.#desk.event(course.id, "lost", actor, {
        attempt: number,
        stage: waited.stage,
        reason: waited.kind,
        kind: waited.kind,
      }),
    );
    const lookup = course.contract?.lookup;
    if (lookup !== undefined && !course.provenRead)
      this.#reconciliation.lookUpLater(course.id, course.server, lookup.consistentAfterSeconds * 1000);
    return this.#hold(course, waited.kind, ["not-a-connection-loss"]);
  }

  async #hold(course: Course, reason: Reason, verdict: readonly string[]): Promise<CallAnswer> {
    const desk = this.#desk;
    const held = desk.event(course.id, "held", "gateway", { verdict });
    if (!course.provenRead) {
      await desk.note(held);
      return ourAnswer(course.id, unresolvedAnswer(course.id, reason, course.attempts));
    }
    await desk.note(
      held,
      desk.event(course.id, "settled", "gateway", { as: "dismissed", evidence: "a proven read has no effect to establish" }),
    );
    return ourAnswer(course.id, readLostAnswer(course.id, reason, course.attempts));
  }

  async #cancelledBeforeSend(course: Course, lead: readonly OperationEvent[]): Promise<CallAnswer> {
    const desk = this.#desk;
    if (course.doubt !== undefined) return this.#hold(course, course.doubt, ["cancelled"]);
    const { attempts } = course;
    // A repeat that did not leave changes nothing: the operation stays settled.
    if (!lead.some((event) => event.type === "repeated")) {
      await desk.note(
        ...lead.filter((event) => event.type === "prepared"),
        desk.event(course.id, "refused", "agent", { ...(attempts === 0 ? {} : { attempt: attempts }), reason: "cancelled" }),
      );
    }
    return ourAnswer(course.id, notExecutedAnswer(course.id, "cancelled", attempts));
  }

  /** Nothing was sent. When an earlier attempt's effect is unknown, that is still the whole truth. */
  #journalFailed(course: Course, text: string): CallAnswer {
    if (course.doubt !== undefined) return ourAnswer(course.id, unresolvedAnswer(course.id, course.doubt, course.attempts));
    const id = course.attempts > 0 ? course.id : undefined;
    return ourAnswer(id, notJournaledAnswer(id, text, course.attempts));
  }
}

function doubtOf(course: Course): Reason {
  return course.doubt ?? "connection-lost";
}

function refusal(attempt: number, reason: Reason, loss: Loss): EventData["refused"] {
  return { attempt, reason, ...statusOf(loss) };
}

function statusOf(loss: { readonly httpStatus?: number | undefined }): { httpStatus?: number } {
  return loss.httpStatus === undefined ? {} : { httpStatus: loss.httpStatus };
}

/** Whether a contract's optional expression says yes. */
function isSaid(expression: string | undefined, data: unknown): boolean {
  return expression !== undefined && evaluate(expression, data) === true;
}
