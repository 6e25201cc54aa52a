/**
 * Owns: the interface of one transport to one server: the SDK's `Transport`, and beside it exchanges that carry evidence.
 * Leaves to others: routing (router.ts), and each way to move bytes (stdio-, http-, sse-transport.ts).
 */
import type { Transport } from "@modelcontextprotocol/client";
import type { CallObserver } from "./connection.ts";
import type { Ending, EventCursor, JsonRpcAnswer, Loss, TransportKind } from "./evidence.ts";
import type { JsonObject, RpcNotification, RpcRequest } from "./json-rpc.ts";
import type { Exchange } from "./router.ts";

export interface ExchangeOptions {
  /** What progress notifications must carry instead of our own token. */
  readonly callerToken?: string | number;
  /** Further request headers (HTTP only). */
  readonly headers?: Readonly<Record<string, string>>;
}

/**
 * One transport. `send` is for the SDK's client (it rejects with `LossError`); everything else uses `exchange` and `post`.
 * It is never revived: once `open` is false nothing more is sent, while exchanges under way may still end well.
 */
export interface Wire extends Transport {
  readonly kind: TransportKind;
  readonly open: boolean;
  /** Settles once, when the transport knows that it is over. */
  readonly closed: Promise<Loss>;
  /** Which stream requests and capability rules apply. Set by the SDK's client as soon as the version is agreed. */
  setProtocolVersion(version: string): void;
  /** Idempotent. Rejects with `LossError` when there is nothing to talk to. */
  start(): Promise<void>;
  /** Sends a request and follows it to its end. */
  exchange(request: RpcRequest, observer: CallObserver, options?: ExchangeOptions): Exchange;
  /** Sends a notification or an answer of ours. Never rejects: the transport's end says the rest. */
  post(message: RpcNotification | JsonRpcAnswer): Promise<void>;
  /** Ends it from our side: everything under way is lost as `closed-here`. Settles when process, sockets and timers are gone. */
  close(): Promise<void>;
  /** Gives the transport up on evidence gathered elsewhere (an unanswered probe): over, but exchanges under way go on. */
  giveUp(loss: Loss): void;
  /** Called for each message of the server's that belongs to no exchange. @returns whether somebody took it */
  onstray: ((message: JsonObject) => boolean) | undefined;
  /** Called when something other than a request's own loss says that the server may be gone. */
  onsuspect: (() => void) | undefined;
  /** 2025-11-25 Streamable HTTP only: see `HostedConnection.resume`. */
  resume?(rpcId: string, cursor: EventCursor, observer: CallObserver, signal?: AbortSignal): Promise<Ending>;
  /** Opens the stream for messages that belong to no request, where the era has one of its own. */
  listen?(): void;
}
