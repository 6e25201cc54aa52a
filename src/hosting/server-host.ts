/**
 * Owns: one hosted server over time: its one connection, its state, its tools, and the gentle return after an unexpected end.
 * Leaves to others: how a connection is made (negotiate.ts), what a lost call means (src/replay), who may use it (src/trust).
 *
 * The rules in one place:
 *  - `connected` means that tools/list was answered on this connection.
 *  - Concurrent wishes to connect share one attempt. A caller's wish ends a wait between attempts.
 *  - An unexpected end leads to new attempts after full-jitter waits; a failure that waiting cannot mend leads to `failed`.
 *  - A process that ended five times within a minute stays down until a person (or `start`) asks for it.
 *  - A suspicion is settled by asking the server, never while a request is under way: any answer to it proves life.
 */
import { SERVER_INFO_META_KEY } from "@modelcontextprotocol/client";
import { systemClock, type Clock } from "../clock.ts";
import { HostingError, type HostedConnection, type ListedTool } from "./connection.ts";
import { fingerprintOf, type ServerDefinition } from "./definitions.ts";
import type { Era, Loss } from "./evidence.ts";
import type { HostedServer, ServerLogLine, ServerState, ServerStatus } from "./hosted-server.ts";
import { describeLoss, errorOf } from "./hosting-errors.ts";
import { objectIn, type JsonObject } from "./json-rpc.ts";
import { LiveConnection } from "./live-connection.ts";
import type { ClientInfo } from "./modern.ts";
import { defaultLimits, negotiate, type ConnectLimits, type EraStore } from "./negotiate.ts";

export interface HostedServerOptions {
  readonly name: string;
  readonly definition: ServerDefinition;
  readonly clientInfo: ClientInfo;
  /** Client capabilities to declare to the server. Default: none, because none is answered here. */
  readonly capabilities?: JsonObject;
  readonly clock?: Clock;
  /** Uniform in [0, 1). */
  readonly random?: () => number;
  /** Default: remembered for this server only, until it is disposed. */
  readonly eraStore?: EraStore;
  readonly limits?: Partial<ConnectLimits>;
}

/** Waits before attempt n (full jitter): uniformly up to first * 2^n, at most the longest. Milliseconds. */
export const reconnectWaits = { first: 1_000, longest: 60_000 } as const;
/** A connection that lived this long starts the waits anew. Milliseconds. */
const settledMs = 30_000;
/** So many exits within the window, and the process stays down. */
export const crashLoop = { exits: 5, windowMs: 60_000 } as const;
/** Lines of a process's stderr that are kept for a person who asks why it failed. */
const outputLines = 50;
/** How long a probe may take. Milliseconds. */
const probeMs = 10_000;

/** Failures that another attempt may mend by itself. */
const passing = new Set<HostingError["kind"]>([
  "connect-refused",
  "dns",
  "connect-timeout",
  "reset",
  "truncated",
  "no-answer",
  "stream-ended",
  "session-gone",
  "process-exit",
  "stdin-closed",
  "stdout-closed",
]);

export function createHostedServer(options: HostedServerOptions): HostedServer {
  return new ServerHost(options);
}

/** The uniform part of a full-jitter wait before attempt `n` (0 is the first), in milliseconds. */
function fullJitter(n: number, random: () => number): number {
  return random() * Math.min(reconnectWaits.longest, reconnectWaits.first * 2 ** n);
}

class ServerHost implements HostedServer {
  readonly name: string;
  readonly definition: ServerDefinition;
  readonly fingerprint: string;

  readonly #options: HostedServerOptions;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #eraStore: EraStore;
  readonly #changed = new Emitter<[]>();
  readonly #toolsChanged = new Emitter<[]>();
  readonly #logged = new Emitter<[ServerLogLine]>();
  readonly #messages = new Emitter<[JsonObject, HostedConnection]>();
  /** Connections that are over or given up, until nothing of them is left. */
  readonly #retired = new Map<LiveConnection, Promise<void>>();

  #status: ServerStatus;
  #tools: readonly ListedTool[] = [];
  #live: LiveConnection | undefined;
  #attempt: Promise<LiveConnection> | undefined;
  #giveUpAttempt: AbortController | undefined;
  #stopWaiting: (() => void) | undefined;
  #failures = 0;
  #exits: number[] = [];
  #output: readonly string[] = [];
  #down: HostingError | undefined;
  #notBefore = 0;
  #probing = false;
  #listing: "no" | "yes" | "again" = "no";
  #stopForwarding: (() => void) | undefined;
  #disposed = false;

  constructor(options: HostedServerOptions) {
    this.#options = options;
    this.name = options.name;
    this.definition = options.definition;
    this.fingerprint = fingerprintOf(options.definition);
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? Math.random;
    const eras = new Map<string, Era>();
    this.#eraStore = options.eraStore ?? { get: (key) => eras.get(key), set: (key, era) => void eras.set(key, era) };
    this.#status = { state: "stopped", since: this.#clock.now() };
  }

  get status(): ServerStatus {
    return this.#status;
  }

  get tools(): readonly ListedTool[] {
    return this.#tools;
  }

  get connection(): HostedConnection | undefined {
    return this.#live?.open === true ? this.#live : undefined;
  }

  connect(): Promise<HostedConnection> {
    if (this.#disposed) return Promise.reject(new HostingError("closed-here", "The server was removed."));
    if (this.#live?.open === true) return Promise.resolve(this.#live);
    if (this.#down) return Promise.reject(this.#down);
    const left = this.#notBefore - this.#clock.now();
    if (left > 0)
      return Promise.reject(
        new HostingError("http-status", "The server asked to be left alone for a while.", { retryAfterMs: left }),
      );
    return this.#connect();
  }

  async rediscover(_old: HostedConnection): Promise<HostedConnection> {
    // The old one is the live one, or over and perhaps replaced already. An attempt under way lists the tools when it is done, which is
    // after this moment.
    const attempt = this.#attempt;
    if (attempt) return attempt;
    const live = this.#live;
    if (live?.open !== true) return this.connect();
    try {
      await this.#list(live);
      if (await this.#isSameServer(live)) return live;
      live.giveUp({ kind: "not-connected", stage: "not-sent" });
      return await this.connect();
    } catch (error) {
      if (live.open) throw error;
      return this.connect();
    }
  }

  /**
   * Whether the server that answers is still the one that was found. A process or a session ends with its server; over HTTP in the
   * 2026-07-28 era there is neither, so it is asked who it is.
   */
  async #isSameServer(live: LiveConnection): Promise<boolean> {
    if (live.facts.era !== "2026-07-28" || live.facts.transport !== "http") return true;
    const ending = await live.request("server/discover", undefined, { timeoutMs: probeMs });
    if (ending.kind === "loss") throw errorOf(ending.loss);
    if ("error" in ending.answer) return false;
    const serverInfo = objectIn(objectIn(ending.answer.result, "_meta"), SERVER_INFO_META_KEY);
    return (serverInfo?.["name"] ?? "unknown") === live.facts.serverInfo.name;
  }

  async start(): Promise<void> {
    this.#down = undefined;
    this.#exits = [];
    this.#failures = 0;
    this.#notBefore = 0;
    await this.connect();
  }

  async stop(): Promise<void> {
    this.#stopWaiting?.();
    this.#giveUpAttempt?.abort();
    const live = this.#live;
    this.#live = undefined;
    this.#down = undefined;
    this.#setStatus("stopped");
    if (live) this.#retire(live);
    await this.#attempt?.catch(() => undefined);
    await Promise.all([...this.#retired.keys()].map((retired) => retired.close()));
    await Promise.all(this.#retired.values());
  }

  async restart(): Promise<void> {
    await this.stop();
    await this.start();
  }

  async dispose(): Promise<void> {
    this.#disposed = true;
    await this.stop();
    for (const emitter of [this.#changed, this.#toolsChanged, this.#logged, this.#messages]) emitter.clear();
  }

  onDidChange(listener: () => void): () => void {
    return this.#changed.on(listener);
  }

  onDidChangeTools(listener: () => void): () => void {
    return this.#toolsChanged.on(listener);
  }

  onLog(listener: (line: ServerLogLine) => void): () => void {
    return this.#logged.on(listener);
  }

  onMessage(listener: (message: JsonObject, connection: HostedConnection) => void): () => void {
    const off = this.#messages.on(listener);
    this.#forward();
    return () => {
      off();
      this.#forward();
    };
  }

  // Connecting.

  #connect(): Promise<LiveConnection> {
    if (this.#attempt) return this.#attempt;
    this.#stopWaiting?.();
    const giveUp = new AbortController();
    this.#giveUpAttempt = giveUp;
    this.#setStatus("connecting");
    const attempt = this.#connectOnce(giveUp.signal).finally(() => {
      if (this.#attempt === attempt) this.#attempt = undefined;
    });
    this.#attempt = attempt;
    // Its failure has been dealt with by the time it rejects; whoever waits for it hears of it too.
    attempt.catch(() => undefined);
    return attempt;
  }

  async #connectOnce(signal: AbortSignal): Promise<LiveConnection> {
    // One process per server: the old one is gone before a new one starts.
    if (this.definition.type === "stdio") await Promise.all(this.#retired.values());
    let connection: LiveConnection | undefined;
    try {
      const parts = {
        definition: this.definition,
        fingerprint: this.fingerprint,
        clientInfo: this.#options.clientInfo,
        capabilities: this.#options.capabilities ?? {},
        eraStore: this.#eraStore,
        clock: this.#clock,
        random: this.#random,
        log: (level: ServerLogLine["level"], text: string) => this.#log(level, text),
        limits: { ...defaultLimits, ...this.#options.limits },
        stderr: (line: string) => {
          this.#output = [...this.#output, line].slice(-outputLines);
          this.#log("info", line);
        },
        processEnded: () => void this.#exits.push(this.#clock.now()),
      };
      const negotiated = await negotiate(parts, signal);
      let changedMeanwhile = false;
      const live = new LiveConnection(
        { ...negotiated, ...parts },
        {
          suspect: () => void this.#probe(live),
          toolsChanged: () => {
            changedMeanwhile = true;
            if (this.#live === live) void this.#listAgain(live);
          },
          serverLog: (params) => this.#serverLog(params),
        },
      );
      connection = live;
      signal.addEventListener("abort", () => this.#retire(live), { once: true });
      const tools = await live.listTools();
      if (signal.aborted || !live.open) throw new HostingError("closed-here", "The connection was given up on this side.");
      this.#adopt(live, tools);
      if (changedMeanwhile) void this.#listAgain(live);
      return live;
    } catch (reason) {
      if (connection) this.#retire(connection);
      const error = reason instanceof HostingError ? reason : new HostingError("protocol", "The connection could not be made.");
      this.#log("warning", `Connecting failed: ${error.message}${error.detail === undefined ? "" : ` (${error.detail})`}`);
      if (!signal.aborted) {
        // It is over before anybody hears of it, so that what they do next makes a new one.
        this.#attempt = undefined;
        this.#failed(error);
      }
      throw error;
    }
  }

  #adopt(live: LiveConnection, tools: readonly ListedTool[]): void {
    this.#live = live;
    const since = this.#clock.now();
    void live.closed.then((loss) => this.#lost(live, loss, since));
    this.#forward();
    this.#setStatus("connected");
    this.#log("info", `Connected (${live.facts.transport}, protocol ${live.facts.protocolVersion}, ${tools.length} tools).`);
    this.#setTools(tools);
  }

  /** An attempt failed. */
  #failed(error: HostingError): void {
    if (this.#crashes()) {
      this.#stayDown();
      return;
    }
    if (!passing.has(error.kind) && !(error.kind === "http-status" && error.retryAfterMs !== undefined)) {
      this.#setStatus("failed", error.message);
      return;
    }
    this.#reconnectLater(error.message, error.retryAfterMs);
  }

  /** The live connection is over. */
  #lost(live: LiveConnection, loss: Loss, since: number): void {
    if (this.#live !== live) return;
    this.#live = undefined;
    this.#retire(live);
    if (this.#disposed) return;
    if (loss.kind === "closed-here") {
      // By a user of the connection: nobody asked for another one.
      this.#setStatus("stopped");
      return;
    }
    if (this.#clock.now() - since >= settledMs) this.#failures = 0;
    const sentence = describeLoss(loss);
    this.#log("warning", `The connection is over: ${sentence}.`);
    if (this.#crashes()) {
      this.#stayDown();
      return;
    }
    // Somebody was quicker to ask for a new one.
    if (this.#attempt) return;
    this.#reconnectLater(`The connection was lost: ${sentence}.`, loss.retryAfterMs);
  }

  #reconnectLater(reason: string, retryAfterMs = 0): void {
    const wait = Math.max(retryAfterMs, fullJitter(this.#failures, this.#random));
    this.#failures++;
    this.#notBefore = this.#clock.now() + retryAfterMs;
    const stop = this.#clock.after(wait, () => {
      this.#stopWaiting = undefined;
      if (!this.connection) void this.#connect();
    });
    this.#stopWaiting = () => {
      this.#stopWaiting = undefined;
      stop();
    };
    this.#setStatus("reconnecting", reason);
  }

  /** Whether the process ended too often lately. */
  #crashes(): boolean {
    const now = this.#clock.now();
    this.#exits = this.#exits.filter((at) => now - at < crashLoop.windowMs);
    return this.#exits.length >= crashLoop.exits;
  }

  #stayDown(): void {
    const message = `The server's program ended ${crashLoop.exits} times within a minute; it stays stopped until it is started again.`;
    this.#down = new HostingError("process-exit", message);
    this.#setStatus("failed", message);
  }

  /** Ends a connection once the requests under way on it have ended by themselves. */
  #retire(live: LiveConnection): void {
    if (this.#retired.has(live)) return;
    const gone = live
      .idle()
      .then(() => live.close())
      .finally(() => this.#retired.delete(live));
    this.#retired.set(live, gone);
  }

  // Health.

  /** Something went wrong that the server may be the reason for: ask it, once nothing is under way. */
  async #probe(live: LiveConnection): Promise<void> {
    // Before it is adopted, listing its tools is the proof.
    if (this.#probing || this.#live !== live || !live.open) return;
    this.#probing = true;
    try {
      await live.idle();
      const method = live.facts.era === "2026-07-28" ? "server/discover" : "ping";
      const probe = await live.request(method, undefined, { timeoutMs: probeMs });
      if (probe.kind === "answer" || !live.open) return;
      const list = await live.request("tools/list", undefined, { timeoutMs: probeMs });
      if (list.kind === "loss")
        live.giveUp(list.loss.kind === "cancelled-here" ? { ...list.loss, kind: "no-answer" } : list.loss);
    } finally {
      this.#probing = false;
    }
  }

  /** Lists the tools again on a live connection. */
  async #list(live: LiveConnection): Promise<void> {
    const tools = await live.listTools();
    if (this.#live === live) this.#setTools(tools);
  }

  /** Lists again because the server said so; what it says meanwhile leads to one further time. */
  async #listAgain(live: LiveConnection): Promise<void> {
    if (this.#listing !== "no") {
      this.#listing = "again";
      return;
    }
    do {
      this.#listing = "yes";
      await this.#list(live).catch(() => undefined);
    } while ((this.#listing as string) === "again" && live.open);
    this.#listing = "no";
  }

  #setTools(tools: readonly ListedTool[]): void {
    const same = JSON.stringify(tools) === JSON.stringify(this.#tools);
    this.#tools = tools;
    if (!same) this.#toolsChanged.emit();
  }

  // Telling.

  #setStatus(state: ServerState, reason?: string): void {
    const facts = state === "connected" ? this.#live?.facts : undefined;
    this.#status = {
      state,
      since: this.#clock.now(),
      ...(reason === undefined ? {} : { reason }),
      ...(facts === undefined ? {} : { facts, era: facts.era }),
      ...(state === "failed" && this.#output.length > 0 ? { lastOutput: this.#output } : {}),
    };
    this.#changed.emit();
  }

  #log(level: ServerLogLine["level"], text: string): void {
    this.#logged.emit({ level, text });
  }

  #serverLog(params: JsonObject): void {
    const { level, data } = params;
    const text = typeof data === "string" ? data : JSON.stringify(data);
    const known = level === "debug" || level === "info" || level === "warning" || level === "error";
    this.#log(known ? level : "info", text);
  }

  /** Takes the connection's messages only while somebody listens here: the connection declines requests that nobody hears. */
  #forward(): void {
    this.#stopForwarding?.();
    this.#stopForwarding = undefined;
    const live = this.#live;
    if (live && this.#messages.size > 0) this.#stopForwarding = live.onMessage((message) => this.#messages.emit(message, live));
  }
}

/** Listeners that cannot harm each other. */
class Emitter<A extends unknown[]> {
  readonly #listeners = new Set<(...args: A) => void>();

  get size(): number {
    return this.#listeners.size;
  }

  on(listener: (...args: A) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  emit(...args: A): void {
    for (const listener of [...this.#listeners]) {
      try {
        listener(...args);
      } catch {
        // The next listener is not to blame.
      }
    }
  }

  clear(): void {
    this.#listeners.clear();
  }
}
