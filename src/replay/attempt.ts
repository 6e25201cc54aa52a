/**
 * Owns: one attempt: journal it, send it, and wait for its end, the time limit or a cancellation.
 * Leaves to others: what its end means (course.ts). Sent implies journaled; a journal failure means no send.
 */
import type { CallObserver, HostedConnection, ListedTool, PreparedCall } from "../hosting/connection.ts";
import type { Ending } from "../hosting/evidence.ts";
import type { HostedServer } from "../hosting/hosted-server.ts";
import { JournalError } from "../operations/journal.ts";
import { IllegalTransition, type Attempt, type Intention, type OperationEvent, type Reason } from "../operations/model.ts";
import type { CallHooks } from "./calls.ts";
import type { Contract } from "./contracts.ts";
import type { Desk } from "./desk.ts";

/** What is known of one operation while its attempts go on. */
export interface Course {
  readonly id: string;
  readonly server: HostedServer;
  /** As listed when the first attempt of this course was made. */
  readonly tool: ListedTool;
  readonly intention: Intention;
  readonly contract: Contract | undefined;
  /** The `params` that go out, the operation's key included. */
  readonly params: Record<string, unknown>;
  readonly hooks: CallHooks;
  provenRead: boolean;
  /** Attempts so far, the one under way included. */
  attempts: number;
  /** Tries that never left this machine: they count against the same bound but are no attempts at the server. */
  unsent: number;
  /** A challenge of the server's was settled and led to one more attempt: there is no second one. */
  reauthorised?: boolean;
  /** When the first attempt of this operation was sent, in milliseconds since the epoch. */
  firstSentAt: number | undefined;
  /** Why an earlier attempt's effect is unknown: whatever a later one brings, "not executed" is never the whole truth again. */
  doubt: Reason | undefined;
}

/** How the wait for an attempt ended. */
export type Waited =
  | { readonly kind: "ended"; readonly ending: Ending }
  | { readonly kind: "timeout" | "cancelled"; readonly stage: Attempt["stage"] };

export type Journaled =
  /** It is on disk; `send` sends it, once. */
  | { readonly kind: "journaled"; readonly number: number; send(): Promise<Waited> }
  /** Cancelled before anything left. */
  | { readonly kind: "cancelled" }
  /** The journal could not be written: nothing left. */
  | { readonly kind: "journal-failed"; readonly text: string };

export type Submitted =
  { readonly kind: "sent"; readonly number: number; readonly waited: Waited } | Exclude<Journaled, { kind: "journaled" }>;

type AttemptConnection = Pick<HostedConnection, "connectionId" | "facts" | "prepareCall">;

/** @param lead events that belong into the same write, before the attempt's own */
export async function submit(
  desk: Desk,
  course: Course,
  connection: AttemptConnection,
  cause: Attempt["cause"],
  lead: readonly OperationEvent[],
): Promise<Submitted> {
  const journaled = await journal(desk, course, connection, cause, lead);
  return journaled.kind === "journaled" ? { kind: "sent", number: journaled.number, waited: await journaled.send() } : journaled;
}

/** The first half: makes an attempt ready and puts it on record. One at a time for each course. */
export async function journal(
  desk: Desk,
  course: Course,
  connection: AttemptConnection,
  cause: Attempt["cause"],
  lead: readonly OperationEvent[],
): Promise<Journaled> {
  if (course.hooks.signal?.aborted === true) return { kind: "cancelled" };
  const number = course.attempts + 1;
  const watch = new Watch(desk, course, number);
  const prepared = connection.prepareCall(course.params, watch.observer);
  const { facts } = connection;
  const sent = desk.event(course.id, "sent", "gateway", {
    number,
    rpcId: prepared.rpcId,
    era: facts.era,
    transport: facts.transport,
    connectionId: connection.connectionId,
    ...(facts.sessionId === undefined ? {} : { sessionId: facts.sessionId }),
    protocolVersion: facts.protocolVersion,
    cause,
  });
  try {
    await desk.append([...lead, sent], { durable: !course.provenRead });
  } catch (error) {
    desk.log(course.server.name, `journal refused: ${error instanceof JournalError ? error.code : "error"}`);
    // A proven read changes nothing: it runs without a record.
    if (!course.provenRead) return { kind: "journal-failed", text: textOf(error) };
  }
  course.attempts = number;
  course.firstSentAt ??= desk.clock.now();
  return { kind: "journaled", number, send: () => wait(desk, course, prepared, watch) };
}

function textOf(error: unknown): string {
  if (error instanceof JournalError) return error.message;
  // Somebody settled or repeated it, or used up its permission, at this very moment.
  if (error instanceof IllegalTransition) return "In the meantime its operation went another way.";
  return "It could not be written.";
}

function wait(desk: Desk, course: Course, prepared: PreparedCall, watch: Watch): Promise<Waited> {
  return new Promise((resolve) => {
    let over = false;
    let stopClock = (): void => undefined;
    const finish = (waited: Waited): void => {
      if (over) return;
      over = true;
      stopClock();
      course.hooks.signal?.removeEventListener("abort", cancelled);
      resolve(waited);
    };
    const cancelled = (): void => {
      prepared.cancel();
      finish({ kind: "cancelled", stage: watch.stage });
    };
    const startClock = (): void => {
      stopClock();
      if (over || watch.pausedBy > 0) return;
      stopClock = desk.clock.after(desk.settings.requestTimeoutMs, () => {
        // A read is given up; for a consequential call we stop waiting and keep listening.
        if (course.provenRead) prepared.cancel("timeout");
        else prepared.stopWaiting();
        finish({ kind: "timeout", stage: watch.stage });
      });
    };
    watch.onLife = startClock;
    course.hooks.signal?.addEventListener("abort", cancelled, { once: true });
    // Cancelled while it was being journaled: it does not leave.
    if (course.hooks.signal?.aborted === true) prepared.cancel();
    startClock();
    void prepared.send().then((ending) => {
      if (over && ending.kind === "answer") watch.observer.late(ending.answer);
      finish({ kind: "ended", ending });
    });
  });
}

/** Listens to one attempt: notes what recovery may need, passes progress on, hears late answers, and knows when the clock stands still. */
export class Watch {
  /** Requests of the server's to the person or the model that are still open: the clock stands still. */
  pausedBy = 0;
  stage: Attempt["stage"] = "not-sent";
  onLife: () => void = () => undefined;
  readonly observer: CallObserver & Required<Pick<CallObserver, "late">>;

  constructor(desk: Desk, course: Pick<Course, "id" | "hooks">, attempt: number) {
    this.observer = {
      stage: (stage) => {
        this.stage = stage;
      },
      cursor: ({ eventId, retryMs }) => {
        void desk.note(
          desk.event(course.id, "cursor", "server", { attempt, eventId, ...(retryMs === undefined ? {} : { retryMs }) }),
        );
      },
      task: (taskId) => {
        void desk.note(desk.event(course.id, "task", "server", { attempt, taskId }));
      },
      progress: (params) => {
        this.onLife();
        course.hooks.progress?.(params);
      },
      related: (message) => {
        const answered = course.hooks.related?.(message);
        if (answered !== undefined && "id" in message) {
          this.pausedBy += 1;
          const resume = (): void => {
            this.pausedBy -= 1;
            this.onLife();
          };
          void answered.then(resume, resume);
        }
        this.onLife();
      },
      late: (answer) => {
        void desk.noteLate(course.id, attempt, answer);
      },
    };
  }
}
