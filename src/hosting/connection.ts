/**
 * Owns: the interface of one live connection to a hosted server, and of one call on it.
 * Leaves to others: when to call, replay or recover (src/replay), and when to reconnect (hosted-server.ts).
 */
import type { DeliveryStage, Ending, Era, EventCursor, JsonRpcAnswer, Loss, TransportKind } from "./evidence.ts";

/** A tool exactly as the server listed it. Only the fields that decide something are named. */
export interface ListedTool {
  readonly name: string;
  readonly title?: string;
  readonly description?: string;
  readonly inputSchema?: Record<string, unknown>;
  readonly outputSchema?: Record<string, unknown>;
  readonly annotations?: Record<string, unknown>;
  readonly [field: string]: unknown;
}

/** What the server said of itself when the connection was made. */
export interface ServerFacts {
  readonly era: Era;
  readonly protocolVersion: string;
  readonly transport: TransportKind;
  readonly sessionId?: string;
  readonly serverInfo: { readonly name: string; readonly version: string; readonly [field: string]: unknown };
  readonly capabilities: Record<string, unknown>;
  readonly instructions?: string;
}

/** What happens to a call while it is under way. All of them may be called any number of times, in order. */
export interface CallObserver {
  /** The stage rose. Never falls. */
  stage?(stage: DeliveryStage): void;
  /** An event id was seen on the call's stream: the latest place to resume from. 2025-11-25 only. */
  cursor?(cursor: EventCursor): void;
  /** The server created a task for this call (both eras' forms). */
  task?(taskId: string): void;
  /** `notifications/progress` of this call, with the caller's own token put back. */
  progress?(params: Record<string, unknown>): void;
  /** Any other message that arrived on this call's own stream, or named it as its cause (a server's request or notification). */
  related?(message: Record<string, unknown>): void;
  /** An answer to this call that came after `send()` had already ended. */
  late?(answer: JsonRpcAnswer): void;
}

/** A request that is ready to go: its RPC id exists, not one byte has left. */
export interface PreparedCall {
  readonly rpcId: string;
  /**
   * Sends it, once. Never rejects: a failure of any kind is an `Ending` of kind "loss" with typed evidence.
   * There is no time limit here; the caller runs its own clock.
   */
  send(): Promise<Ending>;
  /** Sends the era's cancellation signal: `notifications/cancelled`, or (2026-07-28 HTTP) closing the stream. Proves nothing. */
  cancel(reason?: string): void;
  /** Nobody waits for the answer any more; it is still listened for. Sends nothing. */
  stopWaiting(): void;
}

export interface RequestOptions {
  readonly observer?: CallObserver;
  readonly signal?: AbortSignal;
  /** Milliseconds; undefined: no limit. */
  readonly timeoutMs?: number;
  /** Further request headers (HTTP only). */
  readonly headers?: Readonly<Record<string, string>>;
}

/** One live, initialised connection. It is never revived: when it is over, a new one is made. */
export interface HostedConnection {
  /** Unique in this process. */
  readonly connectionId: string;
  readonly facts: ServerFacts;
  /** False as soon as the transport knows that it is over. */
  readonly open: boolean;
  /** Settles once when the connection is over, with why. */
  readonly closed: Promise<Loss>;

  /**
   * Makes a tools/call ready. `params` go out as given, plus what the era's envelope needs in `_meta`; a `_meta.progressToken`
   * is replaced by one of our own and put back in progress notifications.
   * @param rpcId the RPC id to use; must be a string never used on this connection (default: a new one)
   */
  prepareCall(params: Record<string, unknown>, observer: CallObserver, rpcId?: string): PreparedCall;

  /** Any other request, passed through unchanged. Never rejects. */
  request(method: string, params: Record<string, unknown> | undefined, options?: RequestOptions): Promise<Ending>;
  /** A notification, passed through. Errors are ignored: the connection's end says the rest. */
  notify(method: string, params?: Record<string, unknown>): void;
  /** tools/list, all pages, asked now. Rejects with `HostingError`. */
  listTools(): Promise<readonly ListedTool[]>;

  /**
   * 2025-11-25 Streamable HTTP only: fetches the answer to an earlier request by GET with `Last-Event-ID`, waiting `retryMs` first,
   * resuming again from the latest id while the streams end without it (bounded). Never POSTs. Never rejects.
   */
  resume(rpcId: string, cursor: EventCursor, observer: CallObserver, signal?: AbortSignal): Promise<Ending>;
  /** Polls a task until its result is there: tasks/get, tasks/result (2025-11-25) or tasks/get (2026-07-28 extension). Never rejects. */
  pollTask(taskId: string, signal?: AbortSignal): Promise<Ending>;

  /** Messages from the server that belong to no call of ours (list changed, logging, its own requests). */
  onMessage(listener: (message: Record<string, unknown>) => void): () => void;
  /** Answers a request of the server's. */
  respond(answer: JsonRpcAnswer): void;

  /** Ends it: HTTP DELETE of the session where allowed; stdin closed, SIGTERM, SIGKILL of the group for a process. */
  close(): Promise<void>;
}

/** A failure to make or use a connection. `kind` is a class; `message` is ours and safe to show; `detail` is for the log only. */
export class HostingError extends Error {
  readonly kind: Loss["kind"] | "protocol" | "unauthorised";
  readonly retryAfterMs: number | undefined;
  readonly httpStatus: number | undefined;
  readonly detail: string | undefined;
  /** See `Loss.challenge`. */
  readonly challenge: number | undefined;
  constructor(
    kind: HostingError["kind"],
    message: string,
    options: {
      retryAfterMs?: number | undefined;
      httpStatus?: number | undefined;
      detail?: string | undefined;
      challenge?: number | undefined;
    } = {},
  ) {
    super(message);
    this.name = "HostingError";
    this.kind = kind;
    this.retryAfterMs = options.retryAfterMs;
    this.httpStatus = options.httpStatus;
    this.detail = options.detail;
    this.challenge = options.challenge;
  }
}
