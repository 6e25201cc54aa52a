/**
 * Owns: one live connection as its users see it (`HostedConnection`), on top of a wire on which the handshake is done.
 * Leaves to others: making it (negotiate.ts), judging its health and replacing it (server-host.ts).
 */
import { randomUUID } from "node:crypto";
import { ProtocolError, type Client } from "@modelcontextprotocol/client";
import type { Clock } from "../clock.ts";
import type { ServerAuthorisation } from "./auth/server-authorisation.ts";
import {
  HostingError,
  type CallObserver,
  type HostedConnection,
  type ListedTool,
  type PreparedCall,
  type RequestOptions,
  type ServerFacts,
} from "./connection.ts";
import type { Ending, EventCursor, JsonRpcAnswer, Loss } from "./evidence.ts";
import { describeLoss, errorOf } from "./hosting-errors.ts";
import { isObject, isRpcId, objectIn, rpcErrors, type JsonObject, type RpcId, type RpcRequest } from "./json-rpc.ts";
import type { Log } from "./log.ts";
import { paramHeaders, paramHeadersOf, withEnvelope, type ClientInfo, type Envelope } from "./modern.ts";
import type { Negotiated } from "./negotiate.ts";
import type { Exchange } from "./router.ts";
import type { Wire } from "./wire.ts";

export interface LiveConnectionParts extends Negotiated {
  readonly clientInfo: ClientInfo;
  readonly capabilities: JsonObject;
  readonly clock: Clock;
  readonly random: () => number;
  readonly log: Log;
  readonly authorisation?: ServerAuthorisation | undefined;
}

/** What the health monitor hears of a connection. */
export interface ConnectionEvents {
  /** Something happened that the server may be the reason for. `why` is a sentence, free of arguments and transport text. */
  suspect(why: string): void;
  /** The server gave a sign of life: an answer to whatever, or a message of its own. */
  alive(): void;
  /** It answered a request of this method after so many milliseconds. */
  answered(method: string, ms: number): void;
  /** The server says that its tools changed. */
  toolsChanged(): void;
  /** The params of a logging notification. */
  serverLog(params: JsonObject): void;
}

/** How long one page of tools/list may take, in milliseconds. */
const listLimitMs = 30_000;
/** A server that never stops paging is cut off here. */
const pageLimit = 100;
/** How long after its cancellation a request is still listened to, in milliseconds. */
const cancelledMs = 300_000;
/** Between polls of a task when the server names no interval, in milliseconds; and never faster than the second. */
const pollMs = { usual: 1_000, least: 100 } as const;
/** Waits before a dropped subscription is asked for again (full jitter), in milliseconds. */
const resubscribeMs = { first: 1_000, longest: 60_000 } as const;

export class LiveConnection implements HostedConnection {
  readonly connectionId = randomUUID();
  readonly facts: ServerFacts;
  readonly closed: Promise<Loss>;

  readonly #wire: Wire;
  readonly #client: Client;
  readonly #parts: LiveConnectionParts;
  readonly #envelope: Envelope;
  readonly #events: ConnectionEvents;
  readonly #listeners = new Set<(message: JsonObject) => void>();
  readonly #schemas = new Map<string, unknown>();
  readonly #timers = new Set<() => void>();
  readonly #idle = new Set<() => void>();
  readonly #quiet = new Set<() => void>();
  #underWay = 0;
  /** Of those under way, the ones that somebody waits for. */
  #awaited = 0;
  #abandoned = 0;
  #ended = false;

  constructor(parts: LiveConnectionParts, events: ConnectionEvents) {
    this.#parts = parts;
    this.#events = events;
    this.#wire = parts.wire;
    this.#client = parts.client;
    this.facts = parts.facts;
    this.#envelope = {
      protocolVersion: parts.facts.protocolVersion,
      clientInfo: parts.clientInfo,
      capabilities: parts.capabilities,
    };
    this.#wire.onstray = (message) => this.#stray(message);
    const client = this.#wire.onmessage;
    this.#wire.onmessage = (message, extra) => {
      this.#notice(message);
      client?.(message, extra);
    };
    this.#wire.onsuspect = () => this.#events.suspect("A message could not be delivered to the server.");
    this.closed = this.#wire.closed.then((loss) => {
      this.#end();
      return loss;
    });
    this.#wire.listen?.();
    if (parts.facts.era === "2026-07-28") void this.#subscribe(0);
  }

  get open(): boolean {
    return this.#wire.open;
  }

  /** Settles when no request is under way whose answer is of use to anybody. */
  idle(): Promise<void> {
    if (this.#underWay === 0) return Promise.resolve();
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#idle.add(resolve);
    return promise;
  }

  /** Settles when nobody waits for a request, though one may still be under way. */
  quiet(): Promise<void> {
    if (this.#awaited === 0) return Promise.resolve();
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#quiet.add(resolve);
    return promise;
  }

  /** A call is still under way that nobody waits for any more. */
  get abandoned(): boolean {
    return this.#abandoned > 0;
  }

  prepareCall(params: JsonObject, observer: CallObserver, rpcId: string = randomUUID()): PreparedCall {
    return this.#prepare("tools/call", params, observer, rpcId, {});
  }

  /** A challenge that is settled without a person leads to one more request; a tools/call has its own course (src/replay). */
  async request(method: string, params: JsonObject | undefined, options: RequestOptions = {}): Promise<Ending> {
    const ending = await this.#request(method, params, options);
    if (ending.kind === "answer" || method === "tools/call" || options.signal?.aborted === true) return ending;
    const settled = await this.#parts.authorisation?.settle(ending.loss.challenge);
    return settled === "retry" && this.open ? this.#request(method, params, options) : ending;
  }

  async #request(method: string, params: JsonObject | undefined, options: RequestOptions): Promise<Ending> {
    const { signal, timeoutMs } = options;
    const call = this.#prepare(method, params, options.observer ?? {}, randomUUID(), options.headers ?? {});
    const giveUp = (): void => call.giveUp();
    if (signal?.aborted === true) giveUp();
    signal?.addEventListener("abort", giveUp, { once: true });
    const stop = timeoutMs === undefined ? undefined : this.#after(timeoutMs, giveUp);
    const ending = await call.send();
    stop?.();
    signal?.removeEventListener("abort", giveUp);
    return ending;
  }

  notify(method: string, params?: JsonObject): void {
    const full = withEnvelope(params, this.#envelope);
    void this.#wire.post({ jsonrpc: "2.0", method, ...(full === undefined ? {} : { params: full }) });
  }

  async listTools(): Promise<readonly ListedTool[]> {
    const tools: ListedTool[] = [];
    let cursor: unknown;
    for (let page = 0; page < pageLimit; page++) {
      const ending = await this.request("tools/list", cursor === undefined ? undefined : { cursor }, { timeoutMs: listLimitMs });
      if (ending.kind === "loss")
        throw ending.loss.kind === "cancelled-here"
          ? new HostingError("no-answer", "The server did not answer in time.")
          : errorOf(ending.loss);
      if ("error" in ending.answer) {
        // A server without tools is a server all the same.
        if (ending.answer.error.code === rpcErrors.methodNotFound) break;
        throw new HostingError("protocol", "The server refused to list its tools.", {
          detail: `error ${ending.answer.error.code}`,
        });
      }
      const result: unknown = ending.answer.result;
      const listed = isObject(result) && Array.isArray(result["tools"]) ? result["tools"] : [];
      for (const tool of listed) if (isObject(tool) && typeof tool["name"] === "string") tools.push(tool as ListedTool);
      const next = isObject(result) ? result["nextCursor"] : undefined;
      if (typeof next !== "string" || next === cursor) break;
      cursor = next;
    }
    const kept = this.#mirrors ? tools.filter((tool) => this.#mirrorable(tool)) : tools;
    this.#schemas.clear();
    for (const tool of kept) this.#schemas.set(tool.name, tool.inputSchema);
    return kept;
  }

  resume(rpcId: string, cursor: EventCursor, observer: CallObserver, signal?: AbortSignal): Promise<Ending> {
    const resumed = this.facts.era === "2025-11-25" ? this.#wire.resume?.(rpcId, cursor, observer, signal) : undefined;
    return this.#counted(resumed ?? Promise.resolve({ kind: "loss", loss: { kind: "stream-ended", stage: "answering" } }));
  }

  pollTask(taskId: string, signal?: AbortSignal): Promise<Ending> {
    return this.#counted(this.#pollTask(taskId, signal));
  }

  onMessage(listener: (message: JsonObject) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  respond(answer: JsonRpcAnswer): void {
    void this.#wire.post(answer);
  }

  /** Declares the connection over on evidence gathered elsewhere. Requests under way are left to finish or fail. */
  giveUp(loss: Loss): void {
    this.#wire.giveUp(loss);
  }

  async close(): Promise<void> {
    await this.#wire.close();
    this.#end();
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    for (const stop of [...this.#timers]) stop();
  }

  /** The one way in which a request leaves. */
  #prepare(
    method: string,
    params: JsonObject | undefined,
    observer: CallObserver,
    rpcId: string,
    headers: Readonly<Record<string, string>>,
  ): PreparedCall & { giveUp(): void } {
    const callerToken = progressTokenIn(params);
    const own = callerToken === undefined ? params : { ...params, _meta: { ...objectIn(params, "_meta"), progressToken: rpcId } };
    let exchange: Exchange | undefined;
    let abandoned = false;
    let sent: Promise<Ending> | undefined;
    let release = (): void => undefined;
    let leave = (): void => undefined;
    const streamed = this.facts.era === "2026-07-28" && this.#wire.kind === "http";

    const start = (): Promise<Ending> => {
      if (abandoned) return Promise.resolve({ kind: "loss", loss: { kind: "cancelled-here", stage: "not-sent" } });
      const full = withEnvelope(own, this.#envelope);
      const request: RpcRequest = { jsonrpc: "2.0", id: rpcId, method, ...(full === undefined ? {} : { params: full }) };
      exchange = this.#wire.exchange(request, watched(observer, this.#events), {
        ...(callerToken === undefined ? {} : { callerToken }),
        headers: { ...headers, ...this.#paramHeaders(method, params) },
      });
      // A subscription waits by its nature, and for nobody.
      const standing = method === "subscriptions/listen";
      [release, leave] = this.#count(!standing);
      const sentAt = this.#parts.clock.now();
      return exchange.ending.then((ending) => {
        release();
        if (ending.kind === "answer" && !standing) this.#events.answered(method, this.#parts.clock.now() - sentAt);
        return this.#judge(ending);
      });
    };
    const signal = (reason: string | undefined): void => {
      if (!exchange) abandoned = true;
      else if (exchange.settled) return;
      else if (streamed) exchange.abort("cancelled-here");
      else this.notify("notifications/cancelled", { requestId: rpcId, ...(reason === undefined ? {} : { reason }) });
    };
    return {
      rpcId,
      send: () => (sent ??= start()),
      cancel: (reason) => {
        signal(reason);
        const cancelled = exchange;
        if (!cancelled || cancelled.settled) return;
        // Nobody waits for it any more.
        release();
        if (reason === "timeout") this.#events.suspect("A call was not answered in time.");
        // It may still answer; but a server that does not must not hold a socket for ever.
        const stop = this.#after(cancelledMs, () => cancelled.abort("cancelled-here"));
        void cancelled.ending.then(stop);
      },
      stopWaiting: () => {
        if (!exchange || exchange.settled) return;
        leave();
        this.#abandoned++;
        void exchange.ending.then(() => this.#abandoned--);
        this.#events.suspect("A call was not answered in time.");
      },
      giveUp: () => {
        signal(undefined);
        exchange?.abort("cancelled-here");
      },
    };
  }

  #judge(ending: Ending): Ending {
    if (ending.kind === "answer") this.#events.alive();
    else if (!harmless.has(ending.loss.kind)) this.#events.suspect(`A request was lost: ${describeLoss(ending.loss)}.`);
    return ending;
  }

  /** Counts something as under way. @returns functions that say, once, that it no longer is, and that nobody waits for it any more */
  #count(awaited = true): [release: () => void, leave: () => void] {
    let counted = true;
    let waited = awaited;
    this.#underWay++;
    if (awaited) this.#awaited++;
    const leave = (): void => {
      if (!waited) return;
      waited = false;
      this.#awaited--;
      if (this.#awaited > 0) return;
      for (const resolve of this.#quiet) resolve();
      this.#quiet.clear();
    };
    const release = (): void => {
      leave();
      if (!counted) return;
      counted = false;
      this.#underWay--;
      if (this.#underWay > 0) return;
      for (const resolve of this.#idle) resolve();
      this.#idle.clear();
    };
    return [release, leave];
  }

  #counted(ending: Promise<Ending>): Promise<Ending> {
    const [release] = this.#count();
    return ending.finally(release);
  }

  #after(ms: number, run: () => void): () => void {
    const cancel = this.#parts.clock.after(ms, () => {
      this.#timers.delete(stop);
      run();
    });
    const stop = (): void => {
      this.#timers.delete(stop);
      cancel();
    };
    this.#timers.add(stop);
    return stop;
  }

  /** Whether arguments are mirrored into headers here. */
  get #mirrors(): boolean {
    return this.facts.era === "2026-07-28" && this.#wire.kind === "http";
  }

  #paramHeaders(method: string, params: JsonObject | undefined): Record<string, string> {
    return this.#mirrors && method === "tools/call"
      ? paramHeaders(this.#schemas.get(String(params?.["name"])), params?.["arguments"])
      : {};
  }

  #mirrorable(tool: ListedTool): boolean {
    const declared = paramHeadersOf(tool.inputSchema);
    if (!declared.valid) this.#parts.log("warning", `The tool ${tool.name} was left out: ${declared.reason}.`);
    return declared.valid;
  }

  /** What the health monitor and the log hear of every notification, on whatever stream it came. */
  #notice(message: JsonObject): void {
    this.#events.alive();
    if (message["method"] === "notifications/tools/list_changed") this.#events.toolsChanged();
    if (message["method"] === "notifications/message") this.#events.serverLog(objectIn(message, "params") ?? {});
  }

  #stray(message: JsonObject): boolean {
    for (const listener of [...this.#listeners]) {
      try {
        listener(message);
      } catch {
        this.#parts.log("error", "A listener for the server's messages failed.");
      }
    }
    return this.#listeners.size > 0;
  }

  /**
   * Keeps the one subscription that a modern server needs to tell of changed lists; it is asked for again when it drops.
   * Source: MCP 2026-07-28, "Subscriptions".
   */
  async #subscribe(failures: number): Promise<void> {
    const offers = (list: string): boolean => objectIn(this.facts.capabilities, list)?.["listChanged"] === true;
    const filter = {
      ...(offers("tools") ? { toolsListChanged: true } : {}),
      ...(offers("prompts") ? { promptsListChanged: true } : {}),
      ...(offers("resources") ? { resourcesListChanged: true } : {}),
    };
    if (Object.keys(filter).length === 0 || !this.open) return;
    let next = failures + 1;
    try {
      const subscription = await this.#client.listen(filter);
      // Something may have changed while nobody listened.
      if (failures > 0) this.#events.toolsChanged();
      next = 1;
      await subscription.closed;
    } catch (error) {
      this.#parts.log("debug", "The server did not take the subscription to its lists.");
      // An answer that says no is final; anything else may pass.
      if (error instanceof ProtocolError) return;
    }
    if (!this.open) return;
    const ceiling = Math.min(resubscribeMs.longest, resubscribeMs.first * 2 ** next);
    this.#after(Math.max(resubscribeMs.first, this.#parts.random() * ceiling), () => void this.#subscribe(next));
  }

  async #pollTask(taskId: string, signal: AbortSignal | undefined): Promise<Ending> {
    const modern = this.facts.era === "2026-07-28";
    const options: RequestOptions = signal === undefined ? {} : { signal };
    for (;;) {
      const ending = await this.request("tasks/get", { taskId }, options);
      if (ending.kind === "loss" || "error" in ending.answer) return ending;
      const result: unknown = ending.answer.result;
      const task: JsonObject = objectIn(result, "task") ?? (isObject(result) ? result : {});
      const status = task["status"];
      if (status === "completed" || status === "failed" || status === "cancelled") {
        if (!modern) return this.request("tasks/result", { taskId }, options);
        return { ...ending, answer: inlineResult(ending.answer.id, task) };
      }
      if (status !== "working" && status !== "input_required") return ending;
      const interval = task[modern ? "pollIntervalMs" : "pollInterval"];
      await this.#wait(Math.max(pollMs.least, typeof interval === "number" ? interval : pollMs.usual), signal);
    }
  }

  /** Waits, but not past the connection's end or the signal. */
  #wait(ms: number, signal: AbortSignal | undefined): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const done = (): void => resolve();
    const stop = this.#after(ms, done);
    signal?.addEventListener("abort", done, { once: true });
    void this.closed.then(done);
    return promise.finally(() => {
      stop();
      signal?.removeEventListener("abort", done);
    });
  }
}

/** Losses that say nothing against the server, or come with the end of the connection, which says it better. */
const harmless = new Set<Loss["kind"]>([
  "cancelled-here",
  "closed-here",
  "not-connected",
  "session-gone",
  "process-exit",
  "stdin-closed",
  "stdout-closed",
]);

/** The observer, and beside it the health monitor, which takes whatever comes for a sign of life. */
function watched(observer: CallObserver, events: ConnectionEvents): CallObserver {
  return {
    ...observer,
    cursor: (seen) => {
      events.alive();
      observer.cursor?.(seen);
    },
    progress: (params) => {
      events.alive();
      observer.progress?.(params);
    },
    late: (answer) => {
      events.alive();
      observer.late?.(answer);
    },
    // Only offered where the caller offers it: its absence decides who gets the message.
    ...(observer.related === undefined
      ? {}
      : {
          related: (message) => {
            events.alive();
            observer.related?.(message);
          },
        }),
  };
}

function progressTokenIn(params: JsonObject | undefined): RpcId | undefined {
  const token = objectIn(params, "_meta")?.["progressToken"];
  return isRpcId(token) ? token : undefined;
}

/** The end of a task as the answer of the call that made it (Tasks extension of 2026-07-28: results travel in tasks/get). */
function inlineResult(id: RpcId, task: JsonObject): JsonRpcAnswer {
  if (task["status"] === "completed" && isObject(task["result"])) return { jsonrpc: "2.0", id, result: task["result"] };
  const error = objectIn(task, "error");
  const code = typeof error?.["code"] === "number" ? error["code"] : rpcErrors.internal;
  const otherwise = task["status"] === "cancelled" ? "The task was cancelled." : "The task failed.";
  const message = typeof error?.["message"] === "string" ? error["message"] : otherwise;
  return { jsonrpc: "2.0", id, error: { ...error, code, message } };
}
