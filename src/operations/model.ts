/**
 * Owns: what an operation is, its events, and the one table of legal transitions. Pure.
 * Leaves to others: keeping it (journal.ts), deciding what happens next (src/replay).
 * Source: DESIGN.md sections 1 and 2.
 */

export const operationStates = [
  "prepared",
  "in-flight",
  "completed",
  "not-executed",
  "unresolved",
  "effect-confirmed",
  "no-effect",
  "dismissed",
] as const;
export type OperationState = (typeof operationStates)[number];

/** The three ways to settle an unresolved operation. */
export const settlements = ["effect-confirmed", "no-effect", "dismissed"] as const;
export type Settlement = (typeof settlements)[number];

/** Why an operation is where it is. Stable words, used in answers, the journal and the UI. */
export type Reason =
  | "answered"
  | "recovered"
  | "late-answer"
  | "replayed"
  | "connection-lost"
  | "answer-unreadable"
  | "no-answer"
  | "http-status"
  | "redirected"
  | "process-exit"
  | "process-ended" // our own process ended while the call was out
  | "timeout"
  | "cancelled"
  | "server-stopped"
  | "not-sent"
  | "refused"
  | "session-gone"
  | "journal-failed"
  | "key-conflict" // the provider says that this operation's key was used with another payload: an alarm
  | "person"
  | "lookup";

export type Outcome = "observed" | "not-executed" | "unknown";

/** One submission on the wire. */
export interface Attempt {
  readonly number: number;
  readonly rpcId: string;
  readonly era: "2025-11-25" | "2026-07-28";
  readonly transport: "stdio" | "http" | "sse";
  readonly connectionId: string;
  readonly sessionId?: string;
  readonly protocolVersion: string;
  readonly stage: "not-sent" | "sending" | "sent" | "answering" | "answered";
  /** Undefined while it is under way. */
  readonly outcome?: Outcome;
  readonly cursor?: { readonly eventId: string; readonly retryMs?: number };
  readonly taskId?: string;
  /** How this attempt came to be: the first call, a replay by the gate or a contract, a repeat by a person, a send after a proved not-sent, or one after the server had refused for want of an authorisation that there is now. */
  readonly cause: "call" | "replay" | "repeat" | "resend" | "authorised";
}

/** Who caused an event. */
export type Actor = "agent" | "person" | "gateway" | "server";

export type EventType =
  | "prepared"
  | "sent"
  | "cursor"
  | "task"
  | "answered"
  | "refused"
  | "lost"
  | "recovered"
  | "replayed"
  | "held"
  | "looked-up"
  | "settled"
  | "repeated"
  | "late-answer"
  | "conflict"
  | "acknowledged"
  | "delivered"
  | "let-through";

/** How much of a call's contents the journal left out at the person's wish (`mcpSafeReplay.journal.arguments`). */
export type Withheld = "some" | "all";

/** An answer as observed: a result or a JSON-RPC error. */
export interface Observation {
  readonly result?: unknown;
  readonly error?: unknown;
  readonly isError: boolean;
  readonly withheld?: Withheld;
}

/** Who asked. Recorded because it tells one intention from another (PLATFORM.md, "VS Code as a client"). */
export interface Caller {
  readonly client: string;
  readonly conversationId?: string;
  readonly requestId?: string;
  readonly traceparent?: string;
}

/** What is fixed when an operation is prepared. */
export interface Intention {
  readonly server: string;
  readonly tool: string;
  readonly arguments: Record<string, unknown>;
  /** What the journal left out of `arguments` (withhold.ts); absent: nothing. */
  readonly withheld?: Withheld;
  /** SHA-256 over server, tool and RFC 8785 arguments (all of them, whatever is kept): the same digest means the same intention. */
  readonly digest: string;
  readonly caller: Caller;
  readonly fingerprint: string;
  /** A proven read when it was prepared (DESIGN.md section 1); false for everything consequential. */
  readonly provenRead: boolean;
  /** The tool consistently declared readOnlyHint: true, trusted or not: the quiet group of the Unresolved view. */
  readonly declaredRead: boolean;
  /** The provider's duplicate-prevention key of this operation, made before the first send and never used for another one. */
  readonly key?: string;
  /** JSON Pointer (RFC 6901) to the argument that takes the key; `arguments` is without it. */
  readonly keyArgument?: string;
  /** An identical operation was in flight when this one was prepared (its id). */
  readonly possibleDuplicateOf?: string;
}

export interface AttemptStart {
  readonly number: number;
  readonly rpcId: string;
  readonly era: Attempt["era"];
  readonly transport: Attempt["transport"];
  readonly connectionId: string;
  readonly sessionId?: string;
  readonly protocolVersion: string;
  readonly cause: Attempt["cause"];
}

/** What each event carries. `attempt` numbers start at 1. */
export interface EventData {
  prepared: Intention;
  sent: AttemptStart;
  cursor: { attempt: number; eventId: string; retryMs?: number };
  task: { attempt: number; taskId: string };
  answered: { attempt: number; reason: Reason } & Observation;
  refused: { attempt?: number; reason: Reason; httpStatus?: number };
  /** `outcome: "not-executed"`: this further attempt was refused, but what an earlier one did is still unknown. */
  lost: {
    attempt?: number;
    stage: Attempt["stage"];
    reason: Reason;
    kind: string;
    httpStatus?: number;
    outcome?: "not-executed";
  };
  recovered: { attempt: number; how: "cursor" | "task" } & Observation;
  replayed: { attempt: number; verdict: readonly string[] };
  held: { verdict: readonly string[] };
  "looked-up": { found: "effect" | "no-effect" | "undecided"; evidence: string };
  /** `attempts`: how many there were when it was established; a settlement that overlooks a later attempt is illegal. */
  settled: { as: Settlement; evidence: string; attempts?: number };
  repeated: { attempt: number; evidence: string };
  "late-answer": { attempt: number } & Observation;
  conflict: { settledAs: Settlement; isError: boolean };
  /** A person has seen to a conflict. The settlement stays what it was. */
  acknowledged: { note: string };
  delivered: { to: string };
  /** A person lets one identical call through while this one is unresolved; `used`: the operation that did. */
  "let-through": { note: string } | { used: string };
}

export type OperationEvent = {
  [T in EventType]: {
    readonly operationId: string;
    readonly type: T;
    readonly actor: Actor;
    /** Milliseconds since the epoch. Order is the journal's, never the clock's. */
    readonly at: number;
    readonly data: EventData[T];
  };
}[EventType];

/** An operation as its events say it is now. */
export interface Operation {
  readonly id: string;
  readonly intention: Intention;
  readonly state: OperationState;
  readonly reason: Reason | undefined;
  readonly attempts: readonly Attempt[];
  readonly createdAt: number;
  readonly updatedAt: number;
  /** When the last answer was given up as lost: the last moment at which we know the call may still have been under way. */
  readonly lostAt?: number;
  /** An answer contradicts a person's settlement, and nobody has seen to it yet. */
  readonly conflict: boolean;
  /** The answer reached the agent. */
  readonly delivered: boolean;
  /** A person lets the next identical call through, once. */
  readonly letThrough: boolean;
  /** The last observed answer. */
  readonly answer?: Observation;
  readonly settlement?: {
    readonly as: Settlement;
    readonly evidence: string;
    readonly at: number;
    readonly actor: Actor;
    /** How many attempts there were: it says nothing about later ones. */
    readonly attempts: number;
  };
}

/** Where each event may take an operation. The only place that says so. An absent entry is illegal. */
export const transitions: Readonly<Record<EventType, Readonly<Partial<Record<OperationState | "none", OperationState>>>>> = {
  prepared: { none: "prepared" },
  // A further attempt starts from unresolved (replay by the gate), from no-effect (repeat by a person) or from in-flight (resend of what was proved not sent or refused for want of an authorisation).
  sent: { prepared: "in-flight", "in-flight": "in-flight", unresolved: "in-flight", "no-effect": "in-flight" },
  cursor: { "in-flight": "in-flight", unresolved: "unresolved" },
  task: { "in-flight": "in-flight", unresolved: "unresolved" },
  answered: { "in-flight": "completed" },
  refused: { prepared: "not-executed", "in-flight": "not-executed" },
  lost: { prepared: "unresolved", "in-flight": "unresolved", unresolved: "unresolved" },
  recovered: { "in-flight": "completed", unresolved: "completed" },
  replayed: { unresolved: "unresolved" },
  held: { unresolved: "unresolved" },
  "looked-up": { unresolved: "unresolved" },
  settled: { unresolved: "effect-confirmed" }, // the data's `as` decides which of the three; see apply()
  repeated: { "no-effect": "no-effect" },
  // After a settlement the answer is appended and the settlement kept; apply() flags the conflict when they disagree.
  "late-answer": {
    unresolved: "completed",
    "in-flight": "completed",
    completed: "completed",
    "effect-confirmed": "effect-confirmed",
    "no-effect": "no-effect",
    dismissed: "dismissed",
  },
  // An attempt from before the settlement may be answered after the call was repeated on its word.
  conflict: {
    "effect-confirmed": "effect-confirmed",
    "no-effect": "no-effect",
    dismissed: "dismissed",
    "in-flight": "in-flight",
    unresolved: "unresolved",
    completed: "completed",
  },
  acknowledged: {
    "effect-confirmed": "effect-confirmed",
    "no-effect": "no-effect",
    dismissed: "dismissed",
    "in-flight": "in-flight",
    unresolved: "unresolved",
    completed: "completed",
  },
  delivered: { completed: "completed", "effect-confirmed": "effect-confirmed" },
  "let-through": { unresolved: "unresolved" },
};

/** An illegal transition: a programming error, never written. */
export class IllegalTransition extends Error {
  readonly type: EventType;
  readonly from: OperationState | "none";
  constructor(type: EventType, from: OperationState | "none") {
    super(`illegal transition: '${type}' from '${from}'`);
    this.name = "IllegalTransition";
    this.type = type;
    this.from = from;
  }
}

/**
 * The operation after one more event.
 * @throws IllegalTransition when the table has no entry for it
 */
export function apply(operation: Operation | undefined, event: OperationEvent): Operation {
  const from = operation?.state ?? "none";
  const to = transitions[event.type][from];
  if (to === undefined) throw new IllegalTransition(event.type, from);
  if (event.type === "prepared") {
    return {
      id: event.operationId,
      intention: event.data,
      state: to,
      reason: undefined,
      attempts: [],
      createdAt: event.at,
      updatedAt: event.at,
      conflict: false,
      delivered: false,
      letThrough: false,
    };
  }
  if (operation === undefined) throw new IllegalTransition(event.type, from);
  const next: Operation = { ...operation, state: to, updatedAt: event.at };
  switch (event.type) {
    case "sent":
      return { ...next, reason: undefined, attempts: [...operation.attempts, { ...event.data, stage: "sending" }] };
    case "cursor": {
      const { attempt, eventId, retryMs } = event.data;
      return {
        ...next,
        attempts: change(operation, attempt, { cursor: { eventId, ...(retryMs === undefined ? {} : { retryMs }) } }),
      };
    }
    case "task":
      return { ...next, attempts: change(operation, event.data.attempt, { taskId: event.data.taskId }) };
    case "answered":
      return {
        ...next,
        reason: event.data.reason,
        delivered: false,
        answer: answerOf(event.data),
        attempts: change(operation, event.data.attempt, { stage: "answered", outcome: "observed" }),
      };
    case "recovered":
      return {
        ...next,
        reason: "recovered",
        delivered: false,
        answer: answerOf(event.data),
        attempts: change(operation, event.data.attempt, { stage: "answered", outcome: "observed" }),
      };
    case "late-answer": {
      const answered = change(operation, event.data.attempt, { stage: "answered", outcome: "observed" });
      if (to !== "completed") return { ...next, attempts: answered, answer: answerOf(event.data) };
      if (operation.state === "completed") return { ...next, attempts: answered };
      return { ...next, reason: "late-answer", delivered: false, answer: answerOf(event.data), attempts: answered };
    }
    case "refused":
      return {
        ...next,
        reason: event.data.reason,
        lostAt: event.at,
        attempts:
          event.data.attempt === undefined
            ? operation.attempts
            : change(operation, event.data.attempt, { outcome: "not-executed" }),
      };
    case "lost":
      return {
        ...next,
        reason: event.data.reason,
        lostAt: event.at,
        attempts:
          event.data.attempt === undefined
            ? operation.attempts
            : change(operation, event.data.attempt, { outcome: event.data.outcome ?? "unknown", stage: event.data.stage }),
      };
    case "settled":
      if (event.data.attempts !== undefined && event.data.attempts !== operation.attempts.length)
        throw new IllegalTransition(event.type, from);
      return {
        ...next,
        state: event.data.as,
        // A proven read that the gateway dismisses by itself keeps the reason of its loss.
        reason: event.actor === "person" ? "person" : event.actor === "server" ? "lookup" : operation.reason,
        settlement: {
          as: event.data.as,
          evidence: event.data.evidence,
          at: event.at,
          actor: event.actor,
          attempts: operation.attempts.length,
        },
      };
    case "conflict":
      if (operation.settlement === undefined) throw new IllegalTransition(event.type, from);
      return { ...next, conflict: true };
    case "acknowledged":
      if (!operation.conflict) throw new IllegalTransition(event.type, from);
      return { ...next, conflict: false };
    case "delivered":
      return { ...next, delivered: true };
    case "let-through":
      // Once: of two calls that would use the same permission, one is refused.
      if ("used" in event.data && !operation.letThrough) throw new IllegalTransition(event.type, from);
      return { ...next, letThrough: "note" in event.data };
    case "replayed":
    case "held":
    case "looked-up":
    case "repeated":
      return next;
  }
}

function answerOf(data: Observation): Observation {
  return {
    ...(data.result === undefined ? {} : { result: data.result }),
    ...(data.error === undefined ? {} : { error: data.error }),
    isError: data.isError,
    ...(data.withheld === undefined ? {} : { withheld: data.withheld }),
  };
}

function change(operation: Operation, number: number, fields: Partial<Attempt>): readonly Attempt[] {
  return operation.attempts.map((attempt) => (attempt.number === number ? { ...attempt, ...fields } : attempt));
}

/** Whether the journal kept everything that a repeat or a lookup needs: without the exact arguments neither is possible. */
export function keepsArguments(operation: Operation): boolean {
  return operation.intention.withheld === undefined;
}

/** What is over: it can leave the journal in time (retention.ts). Everything else is somebody's open question. */
export const closedStates = ["completed", "not-executed", ...settlements] as const satisfies readonly OperationState[];

/** True when a settled operation's word and an observed answer cannot both be right. */
export function contradicts(as: Settlement, answer: { readonly isError: boolean; readonly error?: unknown }): boolean {
  const succeeded = !answer.isError && answer.error === undefined;
  return as === "no-effect" ? succeeded : as === "effect-confirmed" ? !succeeded : false;
}
