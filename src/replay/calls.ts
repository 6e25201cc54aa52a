/**
 * Owns: the interface through which every caller (an agent at the gateway, the Call Tool command, a model tool) makes a call,
 * settles an unresolved operation or repeats one. One decision for all of them: call-manager.ts.
 */
import type { HostedServer } from "../hosting/hosted-server.ts";
import type { LookupFinding } from "./lookup.ts";
import type { Actor, Caller, Operation, OperationState, Settlement } from "../operations/model.ts";

export interface CallRequest {
  readonly server: string;
  readonly tool: string;
  readonly arguments: Record<string, unknown>;
  /** The whole `params` of the agent's tools/call, passed on unchanged but for the era's envelope. */
  readonly params: Record<string, unknown>;
  readonly caller: Caller;
  /** The hosted server to use where there are two of that name, one for each era. Default: the one of that name. */
  readonly hosted?: HostedServer;
}

export interface CallHooks {
  /** Progress of the call, with the caller's own progress token. */
  progress?(params: Record<string, unknown>): void;
  /**
   * Any other message from the server that belongs to this call. For a request of the server's (elicitation, sampling) the promise
   * settles when it has been answered: until then the call's clock stands still.
   */
  related?(message: Record<string, unknown>): void | Promise<void>;
  /** Aborted when the caller cancels. A caller that merely went away does not cancel. */
  readonly signal?: AbortSignal;
}

/** How the answer came. */
export type Via = "direct" | "recovered" | "replayed" | "recorded" | "resent";

/** `_meta["mcp-safe-replay/operation"]` (DESIGN.md section 5). */
export interface OperationMark {
  readonly id?: string;
  readonly state: OperationState | "held";
  readonly reason?: string;
  readonly attempts: number;
  readonly via?: Via;
  readonly possibleDuplicateOf?: string;
}

/** What the caller gets: a tools/call result (ours or the server's own), or the server's own JSON-RPC error. */
export type CallAnswer = {
  readonly operationId: string | undefined;
  /** To be called when the answer has reached the caller (bytes handed to its connection). */
  delivered(): void;
} & (
  | { readonly kind: "result"; readonly result: Record<string, unknown> }
  | { readonly kind: "error"; readonly error: { readonly code: number; readonly message: string; readonly data?: unknown } }
);

/** An answer of ours, of which there is nothing to note when it arrives. */
export function ourAnswer(operationId: string | undefined, result: Record<string, unknown>): CallAnswer {
  return { kind: "result", result, operationId, delivered: () => undefined };
}

/** What can be done about an unresolved operation besides a person's word. */
export interface ReconcileOptions {
  /** Its cursor or task may still live. */
  readonly recover: boolean;
  /** A contract names a lookup. */
  readonly lookUp: boolean;
}

export interface Calls {
  /** Never rejects: every failure is an answer. */
  call(request: CallRequest, hooks: CallHooks): Promise<CallAnswer>;
  /**
   * Closes an unresolved operation on evidence.
   * @param attempts how many attempts it had when the evidence was gathered; when there is one more by now, nothing is settled
   * @throws JournalError `unknown-operation` or `not-unresolved` (settled by somebody else or attempted again in the meantime)
   */
  settle(id: string, as: Settlement, evidence: string, actor: Actor, attempts?: number): Promise<Operation>;
  /**
   * Sends an operation that was settled `no-effect` once more, as a new attempt of the same operation.
   * @throws JournalError when the operation is unknown or not settled `no-effect`
   */
  repeat(id: string, evidence: string, hooks: CallHooks): Promise<CallAnswer>;

  /** @throws JournalError `unknown-operation` */
  reconcileOptions(id: string): Promise<ReconcileOptions>;
  /**
   * Fetches the lost answer by its cursor or task; it completes the operation. Creates no request for work.
   * @returns whether there was one
   * @throws JournalError when the operation is unknown or not unresolved
   */
  recoverAnswer(id: string): Promise<boolean>;
  /**
   * Runs the contract's lookup; a definitive answer settles the operation.
   * @throws JournalError when the operation is unknown or not unresolved
   */
  lookUp(id: string): Promise<LookupFinding>;
  /**
   * Keeps with an unresolved operation that a person asked another tool about it. What that call brought is an operation of its own; what
   * it means is the person's to say.
   * @param read the operation of the reading call
   * @throws JournalError when the operation is unknown or not unresolved
   */
  noteRead(id: string, tool: string, read: string | undefined, answered: boolean): Promise<Operation>;
  /**
   * A person has seen that an answer contradicts the settlement, and what to do about it. Closes the conflict; the settlement stays.
   * @throws JournalError when the operation is unknown or in no conflict
   */
  acknowledge(id: string, note: string): Promise<Operation>;
  /**
   * Lets the next identical call through while this operation is unresolved, once, with a person's note.
   * @throws JournalError when the operation is unknown or not unresolved
   */
  letThrough(id: string, note: string): Promise<Operation>;
}
