/**
 * Owns: one hosted server over time: its one connection, its state, its tools, and the gentle return after an unexpected end.
 * Leaves to others: how a connection is made (negotiate.ts), which state follows which (health/transitions.ts), when a server is asked
 * whether it is there (health/probe.ts) and how long is waited (health/reconnects.ts); what a lost call means (src/replay), who may use
 * the server (src/trust).
 *
 * The rules in one place:
 *  - `connected` means that tools/list was answered on this connection.
 *  - Concurrent wishes to connect share one attempt. A caller's wish ends a wait between attempts.
 *  - An unexpected end leads to new attempts after full-jitter waits; a failure that waiting cannot mend leads to `failed`, one for want
 *    of authorisation to `needs-authorisation`: both stay until somebody asks again.
 *  - A process that ended five times within a minute stays down until a person (or `start`) asks for it.
 *  - Requests under way on a connection that is given up are left to end by themselves, for a bounded time.
 */
import { SERVER_INFO_META_KEY } from "@modelcontextprotocol/client";
import { systemClock, type Clock } from "../clock.ts";
import type { ServerAuthorisation } from "./auth/server-authorisation.ts";
import { Emitter } from "./emitter.ts";
import { Probe, probeMs } from "./health/probe.ts";
import { HealthRecord, type ServerHealth } from "./health/record.ts";
import { crashLoop, mayPass, Reconnects } from "./health/reconnects.ts";
import { nextState, type HealthEvent } from "./health/transitions.ts";
import { HostingError, type HostedConnection, type ListedTool } from "./connection.ts";
import { fingerprintOf, type ServerDefinition } from "./definitions.ts";
import type { Era, Loss } from "./evidence.ts";
import type {
  HostedServer,
  RememberedServer,
  RememberedServers,
  ServerLogLine,
  ServerStatus,
  StartPolicy,
} from "./hosted-server.ts";
import { describeLoss, errorOf } from "./hosting-errors.ts";
import { objectIn, type JsonObject } from "./json-rpc.ts";
import { LiveConnection } from "./live-connection.ts";
import type { ClientInfo } from "./modern.ts";
import { RetiredConnections } from "./retired.ts";
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
  /** Read at use. Default: `onUse`. */
  readonly startPolicy?: () => StartPolicy;
  /** Whether it may be started now: the workspace that defines it is trusted. Read at use. Default: it may. */
  readonly mayStart?: () => boolean;
  /** The end of the server that had this name before: one process per server, so that of a program is waited for. */
  readonly predecessor?: Promise<unknown>;
  /** Where what it says of itself is kept for the next run. Default: nowhere. */
  readonly remembered?: RememberedServers;
  readonly authorisation?: ServerAuthorisation | undefined;
}

/** Lines of a process's stderr that are kept for a person who asks why it failed. */
const outputLines = 50;
export function createHostedServer(options: HostedServerOptions): HostedServer {
  return new ServerHost(options);
}

/** How loud the log says a change of state. The rest is for whoever looks for a fault. */
const levels: Partial<Record<HealthEvent, ServerLogLine["level"]>> = {
  lost: "warning",
  "crash-loop": "error",
  refused: "error",
  unauthorised: "warning",
  "not-trusted": "warning",
};

class ServerHost implements HostedServer {
  readonly name: string;
  readonly definition: ServerDefinition;
  readonly fingerprint: string;
  readonly authorisation: ServerAuthorisation | undefined;

  readonly #options: HostedServerOptions;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #eraStore: EraStore;
  readonly #changed = new Emitter<[]>();
  readonly #toolsChanged = new Emitter<[]>();
  readonly #logged = new Emitter<[ServerLogLine]>();
  readonly #messages = new Emitter<[JsonObject, HostedConnection]>();
  readonly #retired: RetiredConnections;

  #status: ServerStatus;
  #tools: readonly ListedTool[] = [];
  #live: LiveConnection | undefined;
  #attempt: Promise<LiveConnection> | undefined;
  #giveUpAttempt: AbortController | undefined;
  #stopWaiting: (() => void) | undefined;
  readonly #reconnects: Reconnects;
  readonly #record = new HealthRecord();
  #probe: Probe | undefined;
  #output: readonly string[] = [];
  #down: HostingError | undefined;
  /** A person (or the start of the window) wanted it, and nobody stopped it since. */
  #startedByHand = false;
  /** Why the connection is being replaced, when it is not its own end. */
  #replacing: string | undefined;
  #listing: "no" | "yes" | "again" = "no";
  #stopForwarding: (() => void) | undefined;
  #disposed = false;

  constructor(options: HostedServerOptions) {
    this.#options = options;
    this.name = options.name;
    this.definition = options.definition;
    this.fingerprint = fingerprintOf(options.definition);
    this.authorisation = options.authorisation;
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? Math.random;
    this.#reconnects = new Reconnects(this.#random);
    this.#retired = new RetiredConnections(this.#clock);
    const eras = new Map<string, Era>();
    this.#eraStore = options.eraStore ?? { get: (key) => eras.get(key), set: (key, era) => void eras.set(key, era) };
    this.#status = { state: "stopped", since: this.#clock.now() };
    this.#tools = options.remembered?.get(this.fingerprint)?.tools ?? [];
  }

  get status(): ServerStatus {
    return this.#status;
  }

  get tools(): readonly ListedTool[] {
    return this.#tools;
  }

  get remembered(): RememberedServer | undefined {
    const { state } = this.#status;
    return state === "stopped" || state === "waiting-for-trust" ? this.#options.remembered?.get(this.fingerprint) : undefined;
  }

  get health(): ServerHealth {
    return this.#record.read(this.#clock.now());
  }

  get connection(): HostedConnection | undefined {
    return this.#live?.open === true ? this.#live : undefined;
  }

  connect(): Promise<HostedConnection> {
    if (this.#disposed) return Promise.reject(new HostingError("closed-here", "The server was removed."));
    const live = this.#live;
    if (live?.open === true) return Promise.resolve(live);
    // Its end is about to be told.
    if (live) return live.closed.then(() => this.connect());
    if (this.#down) return Promise.reject(this.#down);
    if (this.#attempt) return this.#attempt;
    if (this.#options.startPolicy?.() === "manual" && !this.#startedByHand)
      return Promise.reject(new HostingError("not-connected", "The server is started by hand only, and nobody has started it."));
    const left = this.#reconnects.left(this.#clock.now());
    if (left > 0)
      return Promise.reject(
        new HostingError("http-status", "The server asked to be left alone for a while.", { retryAfterMs: left }),
      );
    if (this.#options.mayStart?.() === false) {
      this.#stopWaiting?.();
      if (this.#status.state !== "waiting-for-trust")
        this.#move("not-trusted", "The workspace that defines this server is not trusted.");
      return Promise.reject(new HostingError("not-connected", "The workspace that defines this server is not trusted."));
    }
    return this.#connect("wanted");
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
      this.#replace(live, "Another server answers at this address than before.");
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
    this.#startedByHand = true;
    this.#down = undefined;
    this.#reconnects.forget();
    await this.connect();
  }

  async reconnect(): Promise<void> {
    const live = this.#live;
    if (live?.open === true) this.#replace(live, "A new connection was asked for.");
    await live?.closed;
    await this.start();
  }

  async stop(): Promise<void> {
    this.#startedByHand = false;
    this.#stopWaiting?.();
    this.#giveUpAttempt?.abort();
    const live = this.#live;
    this.#down = undefined;
    this.#leave();
    if (this.#status.state !== "stopped") this.#move("stop");
    if (live) this.#retired.add(live);
    await this.#attempt?.catch(() => undefined);
    await this.#retired.close();
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

  #connect(on: "wanted" | "due"): Promise<LiveConnection> {
    if (this.#attempt) return this.#attempt;
    this.#stopWaiting?.();
    const giveUp = new AbortController();
    this.#giveUpAttempt = giveUp;
    this.#move(on);
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
    if (this.definition.type === "stdio") await Promise.all([this.#options.predecessor, this.#retired.gone()]);
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
        authorisation: this.authorisation,
        stderr: (line: string) => {
          this.#output = [...this.#output, line].slice(-outputLines);
          this.#log("info", line);
        },
        processEnded: () => this.#reconnects.exited(this.#clock.now()),
      };
      const negotiated = await negotiate(parts, signal);
      let changedMeanwhile = false;
      const live = new LiveConnection(
        { ...negotiated, ...parts },
        {
          // Before it is adopted, listing its tools is the proof.
          suspect: (why) => {
            if (this.#live === live) this.#probe?.suspect(why);
          },
          alive: () => {
            if (this.#live === live) this.#probe?.alive();
          },
          answered: (method, ms) => this.#record.answered({ ms, method, at: this.#clock.now() }),
          toolsChanged: () => {
            changedMeanwhile = true;
            if (this.#live === live) void this.#listAgain(live);
          },
          serverLog: (params) => this.#serverLog(params),
        },
      );
      connection = live;
      signal.addEventListener("abort", () => this.#retired.add(live), { once: true });
      const tools = await live.listTools();
      if (signal.aborted || !live.open) throw new HostingError("closed-here", "The connection was given up on this side.");
      this.#adopt(live, tools);
      if (changedMeanwhile) void this.#listAgain(live);
      return live;
    } catch (reason) {
      if (connection) this.#retired.add(connection);
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
    this.#probe = new Probe(live, {
      clock: this.#clock,
      random: this.#random,
      suspected: (why) => this.#move("suspected", why),
      proved: () => this.#move("proved"),
      asking: () => this.#record.probed(),
      dead: (loss) => live.giveUp(loss),
    });
    this.#forward();
    this.#move("listed");
    this.#log("info", `Connected (${live.facts.transport}, protocol ${live.facts.protocolVersion}, ${tools.length} tools).`);
    this.#setTools(tools);
    this.#options.remembered?.set(this.fingerprint, { facts: live.facts, tools });
  }

  /** From now on there is no connection. */
  #leave(): void {
    this.#probe?.dispose();
    this.#probe = undefined;
    this.#live = undefined;
  }

  /** An attempt failed. */
  #failed(error: HostingError): void {
    if (this.#reconnects.crashes(this.#clock.now())) this.#stayDown();
    else if (error.kind === "unauthorised") this.#move("unauthorised", error.message);
    else if (mayPass(error)) this.#reconnectLater("attempt-failed", error.message, error.retryAfterMs);
    else this.#move("refused", error.message);
  }

  /** The live connection is over. */
  #lost(live: LiveConnection, loss: Loss, since: number): void {
    if (this.#live !== live) return;
    this.#leave();
    this.#retired.add(live);
    if (this.#disposed) return;
    if (loss.kind === "closed-here") {
      // By a user of the connection: nobody asked for another one.
      this.#move("stop");
      return;
    }
    this.#reconnects.ended(since, this.#clock.now());
    const error = errorOf(loss);
    if (this.#reconnects.crashes(this.#clock.now())) this.#stayDown();
    else if (error.kind === "unauthorised" && this.#status.state === "degraded") this.#move("unauthorised", error.message);
    else this.#reconnectLater("lost", this.#replacing ?? `The connection was lost: ${describeLoss(loss)}.`, loss.retryAfterMs);
    this.#replacing = undefined;
  }

  #replace(live: LiveConnection, why: string): void {
    this.#replacing = why;
    live.giveUp({ kind: "not-connected", stage: "not-sent" });
  }

  #reconnectLater(on: "lost" | "attempt-failed", reason: string, retryAfterMs = 0): void {
    const now = this.#clock.now();
    const wait = this.#reconnects.next(now, retryAfterMs);
    const stop = this.#clock.after(wait, () => {
      this.#stopWaiting = undefined;
      if (this.connection) return;
      if (this.#options.mayStart?.() === false)
        this.#move("not-trusted", "The workspace that defines this server is not trusted.");
      else void this.#connect("due");
    });
    this.#stopWaiting = () => {
      this.#stopWaiting = undefined;
      stop();
    };
    this.#move(on, reason, now + wait);
  }

  #stayDown(): void {
    const message = `The server's program ended ${crashLoop.exits} times within a minute; it stays stopped until it is started again.`;
    this.#down = new HostingError("process-exit", message);
    this.#move("crash-loop", message);
  }

  // Tools.

  /** Lists the tools again on a live connection. */
  async #list(live: LiveConnection): Promise<void> {
    const tools = await live.listTools();
    if (this.#live !== live) return;
    this.#setTools(tools);
    this.#options.remembered?.set(this.fingerprint, { facts: live.facts, tools });
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

  /** The one way from state to state. */
  #move(on: HealthEvent, reason?: string, nextTryAt?: number): void {
    const from = this.#status.state;
    const state = nextState(from, on);
    const at = this.#clock.now();
    const facts = this.#live?.facts;
    const attempt = this.#reconnects.attempt;
    this.#record.changed({ at, from, on, to: state, ...(reason === undefined ? {} : { why: reason }) });
    this.#status = {
      state,
      since: at,
      ...(reason === undefined ? {} : { reason }),
      ...(facts === undefined ? {} : { facts, era: facts.era }),
      ...(attempt > 0 && (state === "reconnecting" || state === "connecting") ? { attempt } : {}),
      ...(nextTryAt === undefined ? {} : { nextTryAt }),
      ...(state === "failed" && this.#output.length > 0 ? { lastOutput: this.#output } : {}),
    };
    this.#log(levels[on] ?? "debug", `${state}${reason === undefined ? "" : `: ${reason}`}`);
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
