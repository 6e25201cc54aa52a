/**
 * Owns: which message belongs to which request on one connection: answers, late answers, progress, a server's own requests.
 * Leaves to others: moving bytes (the transports), meaning (src/replay).
 * Source: 2025-11-25 "Base Protocol", "Progress"; 2026-07-28 "Streamable HTTP" (a server sends no requests in that era).
 */
import type { CallObserver } from "./connection.ts";
import type { DeliveryStage, Ending, JsonRpcAnswer, Loss, LossKind } from "./evidence.ts";
import { asAnswer, idKey, isObject, isRpcId, objectIn, rpcErrors, type JsonObject, type RpcId } from "./json-rpc.ts";
import type { Log } from "./log.ts";

const order: readonly DeliveryStage[] = ["not-sent", "sending", "sent", "answering", "answered"];

/** How many lost requests are remembered for a late answer. */
const lateLimit = 1_000;

export type LossFacts = Omit<Loss, "kind" | "stage">;

/** One request under way. The transport raises its stage and ends it; nobody else does. */
export class Exchange {
  readonly id: RpcId;
  readonly observer: CallObserver;
  readonly ending: Promise<Ending>;
  /** Set by the transport: stops waiting for this exchange's own stream. */
  onabort: (() => void) | undefined;
  readonly #settle: (ending: Ending) => void;
  readonly #left: (exchange: Exchange, ending: Ending) => void;
  #stage: DeliveryStage = "not-sent";
  #settled = false;

  constructor(id: RpcId, observer: CallObserver, left: (exchange: Exchange, ending: Ending) => void) {
    this.id = id;
    this.observer = observer;
    this.#left = left;
    const { promise, resolve } = Promise.withResolvers<Ending>();
    this.ending = promise;
    this.#settle = resolve;
  }

  get stage(): DeliveryStage {
    return this.#stage;
  }

  get settled(): boolean {
    return this.#settled;
  }

  /** Raises the stage; a lower one is ignored. */
  raise(stage: DeliveryStage): void {
    if (this.#settled || order.indexOf(stage) <= order.indexOf(this.#stage)) return;
    this.#stage = stage;
    this.observer.stage?.(stage);
  }

  /** The first answer ends it; a further one is ignored. */
  answer(answer: JsonRpcAnswer, facts: { httpStatus?: number; retryAfterMs?: number } = {}): void {
    if (this.#settled) return;
    this.raise("answered");
    const taskId = taskIdIn(answer);
    if (taskId !== undefined) this.observer.task?.(taskId);
    this.#end({ kind: "answer", answer, ...facts });
  }

  /** Ends it without an answer, at the stage that was reached. */
  lose(kind: LossKind, facts: LossFacts = {}): void {
    const stage = this.#stage;
    if (this.#settled || stage === "answered") return;
    this.#end({ kind: "loss", loss: { kind, stage, ...facts } });
  }

  /** Gives it up on this side, with its stream where it has one of its own. */
  abort(kind: "cancelled-here" | "closed-here"): void {
    this.lose(kind);
    this.onabort?.();
  }

  #end(ending: Ending): void {
    this.#settled = true;
    this.#left(this, ending);
    this.#settle(ending);
  }
}

/** The task that an answer announces: 2025-11-25 `result.task.taskId`, or the 2026-07-28 extension's `resultType: "task"`. */
export function taskIdIn(answer: JsonRpcAnswer): string | undefined {
  const result = "result" in answer && isObject(answer.result) ? answer.result : undefined;
  const taskId = result?.["resultType"] === "task" ? result["taskId"] : objectIn(result, "task")?.["taskId"];
  return typeof taskId === "string" ? taskId : undefined;
}

/** The client capability that lets a server send this request; undefined: none does. */
function capabilityFor(method: string): string | undefined {
  if (method === "sampling/createMessage") return "sampling";
  if (method === "elicitation/create") return "elicitation";
  if (method === "roots/list") return "roots";
  return method.startsWith("tasks/") ? "tasks" : undefined;
}

export interface RouterParts {
  /** The client capabilities that were declared on this connection. */
  readonly capabilities: JsonObject;
  readonly log: Log;
  /** Sends an answer of ours to a request of the server's. */
  respond(answer: JsonRpcAnswer): void;
  /** A message that belongs to no exchange. @returns whether somebody took it */
  stray(message: JsonObject): boolean;
  /** Every notification, for the SDK's client. */
  notification(message: JsonObject): void;
}

export class Router {
  /** 2026-07-28: a server sends no requests, and the client writes no answers. */
  modern = false;
  readonly #parts: RouterParts;
  readonly #open = new Map<string, { exchange: Exchange; callerToken: RpcId | undefined }>();
  readonly #late = new Map<string, CallObserver>();

  constructor(parts: RouterParts) {
    this.#parts = parts;
  }

  /** @throws Error when an exchange with this id is under way: ids are never reused on a connection */
  begin(id: RpcId, observer: CallObserver, callerToken?: RpcId): Exchange {
    const key = idKey(id);
    if (this.#open.has(key)) throw new Error("A request with this id is under way on this connection.");
    const exchange = new Exchange(id, guarded(observer, this.#parts.log), (ended, ending) => {
      this.#open.delete(key);
      if (ending.kind === "loss") this.#remember(key, ended.observer);
    });
    this.#late.delete(key);
    this.#open.set(key, { exchange, callerToken });
    return exchange;
  }

  /**
   * Takes one message from the wire.
   * @param origin the exchange on whose own stream or body it arrived, if it did
   */
  receive(message: unknown, origin?: Exchange, facts: { httpStatus?: number; retryAfterMs?: number } = {}): void {
    const answer = asAnswer(message);
    if (answer) {
      this.#answer(answer, facts);
      return;
    }
    if (!isObject(message) || typeof message["method"] !== "string") {
      this.#parts.log("debug", "A message that is neither a request, a notification nor an answer was ignored.");
      return;
    }
    if (isRpcId(message["id"])) {
      this.#request(message, message["id"], message["method"], origin);
      return;
    }
    if (message["method"] === "notifications/progress" && this.#progress(message)) return;
    this.#parts.notification(message);
    if (origin?.observer.related) {
      origin.observer.related(message);
      return;
    }
    this.#parts.stray(message);
  }

  /** Ends every exchange under way with the same loss. */
  loseAll(kind: LossKind, facts: LossFacts = {}): void {
    for (const { exchange } of [...this.#open.values()]) exchange.lose(kind, facts);
  }

  /** The exchange under way with this id. */
  find(id: RpcId): Exchange | undefined {
    return this.#open.get(idKey(id))?.exchange;
  }

  /** The exchanges under way. */
  get exchanges(): readonly Exchange[] {
    return [...this.#open.values()].map((entry) => entry.exchange);
  }

  #answer(answer: JsonRpcAnswer, facts: { httpStatus?: number; retryAfterMs?: number }): void {
    const key = idKey(answer.id);
    const entry = this.#open.get(key);
    if (entry) {
      entry.exchange.answer(answer, facts);
      return;
    }
    const late = this.#late.get(key);
    if (late) {
      this.#late.delete(key);
      const taskId = taskIdIn(answer);
      if (taskId !== undefined) late.task?.(taskId);
      return late.late?.(answer);
    }
    this.#parts.log("debug", "An answer to no open request was ignored.");
  }

  #progress(message: JsonObject): boolean {
    const params = objectIn(message, "params");
    const token = params?.["progressToken"];
    const entry = isRpcId(token) ? this.#open.get(idKey(token)) : undefined;
    if (!params || !entry || entry.callerToken === undefined) return false;
    entry.exchange.observer.progress?.({ ...params, progressToken: entry.callerToken });
    return true;
  }

  #request(message: JsonObject, id: RpcId, method: string, origin: Exchange | undefined): void {
    if (this.modern) {
      this.#parts.log(
        "warning",
        `The server sent a request (${method}), which its protocol version does not allow; it was ignored.`,
      );
      return;
    }
    if (method === "ping") {
      this.#parts.respond({ jsonrpc: "2.0", id, result: {} });
      return;
    }
    const capability = capabilityFor(method);
    if (capability !== undefined && capability in this.#parts.capabilities) {
      const cause = origin ?? (method === "roots/list" ? undefined : this.#onlyCall());
      if (cause?.observer.related) {
        cause.observer.related(message);
        return;
      }
      if (this.#parts.stray(message)) return;
    }
    this.#parts.respond({ jsonrpc: "2.0", id, error: { code: rpcErrors.methodNotFound, message: "Method not found" } });
  }

  /** On stdio a server's request names no call: with exactly one under way whose caller can be asked, it is that one's. */
  #onlyCall(): Exchange | undefined {
    const [only, ...more] = this.exchanges.filter((exchange) => exchange.observer.related !== undefined);
    return more.length === 0 ? only : undefined;
  }

  #remember(key: string, observer: CallObserver): void {
    this.#late.set(key, observer);
    if (this.#late.size > lateLimit) {
      const oldest = this.#late.keys().next();
      if (!oldest.done) this.#late.delete(oldest.value);
    }
  }
}

/** An observer whose mistakes cannot break the connection it observes. */
function guarded(observer: CallObserver, log: Log): CallObserver {
  const guard = (tell: () => void): void => {
    try {
      tell();
    } catch {
      log("error", "An observer of a request failed.");
    }
  };
  return {
    stage: (stage) => guard(() => observer.stage?.(stage)),
    cursor: (cursor) => guard(() => observer.cursor?.(cursor)),
    task: (taskId) => guard(() => observer.task?.(taskId)),
    progress: (params) => guard(() => observer.progress?.(params)),
    late: (answer) => guard(() => observer.late?.(answer)),
    // Only offered where the caller offers it: its absence decides who gets the message.
    ...("related" in observer ? { related: (message) => guard(() => observer.related?.(message)) } : {}),
  };
}
