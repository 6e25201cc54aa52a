/**
 * Owns: one fault server behind one gateway, in this process: a real journal file, a real private socket, an agent that speaks to it,
 * the Call Tool command's way in beside it, and time, chance and trust in the test's hand.
 * Leaves to others: what is expected (checks.ts), the rows (rows.ts). Free of vitest, so that a command can use it.
 */
import { join } from "node:path";
import { createCore, type Core, type CoreOptions } from "../../../src/gateway/core.ts";
import type { ServerDefinition } from "../../../src/hosting/definitions.ts";
import type { HostedServer } from "../../../src/hosting/hosted-server.ts";
import type { Operation } from "../../../src/operations/model.ts";
import type { CallAnswer, OperationMark } from "../../../src/replay/calls.ts";
import { readContracts, type Contracts } from "../../../src/replay/contracts.ts";
import { digestOf } from "../../../src/replay/intention.ts";
import { defaultReplaySettings, type ReplaySettings } from "../../../src/replay/settings.ts";
import type { FaultTool, Json } from "../../servers/fault/world.ts";
import type { RequestEntry } from "../../servers/ledger.ts";
import { temporaryFolder } from "../../support/temp.ts";
import { Agent, type AgentOptions, type RpcAnswer } from "./agent.ts";
import { TestClock } from "./clock.ts";
import { Peer, type Transport } from "./peers.ts";

/** The two ways in: an agent through the gateway, and the Call Tool command (and model tools), which call without it. */
export const paths = ["agent", "call-tool"] as const;
export type Path = (typeof paths)[number];

/** C: consequential (`charge`); R: proven read (`lookup`); S: trusted and consistently idempotent (`put`). */
export type Class = "C" | "R" | "S";

/** The agent's patience in these tests: never over by itself (TestClock holds it), so whoever waits for it hangs and fails. */
export const requestTimeoutMs = 3_600_000;

/** The name under which the fault server is hosted. */
export const serverName = "peer";

/** An answer as the caller got it. */
export interface Answer {
  readonly kind: RpcAnswer["kind"];
  readonly result: Json | undefined;
  readonly error: { readonly code: number; readonly message: string } | undefined;
  readonly text: string;
  readonly isError: boolean;
  readonly mark: OperationMark | undefined;
  /** `performance.now()` when it was complete. */
  readonly at: number;
}

export interface Calling {
  readonly answer: Promise<Answer>;
  cancel(): Promise<void>;
  /** Only an agent can: it goes away without a word. */
  disconnect(): void;
  readonly heard: readonly Json[];
}

/** One intention: a tool and arguments that no other intention of this lab has. */
export interface Subject {
  readonly class: Class;
  readonly tool: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

export interface LabOptions {
  readonly tools?: readonly FaultTool[];
  readonly settings?: Partial<ReplaySettings>;
  /** Contracts of the peer's tools, as a person writes them. */
  readonly contracts?: Readonly<Record<string, unknown>>;
  /** Default true. */
  readonly trusted?: boolean;
  readonly withoutGetStream?: boolean;
  readonly agent?: Partial<AgentOptions>;
  readonly core?: Partial<CoreOptions>;
  /** Default true: the server is connected before the first call. */
  readonly connect?: boolean;
  /** The server's definition in place of the peer's own. */
  readonly definition?: (peer: Peer) => ServerDefinition;
  /** Uniform in [0, 1); default always 0.01: backoff waits of some milliseconds. */
  readonly random?: () => number;
}

export class Lab {
  readonly transport: Transport;
  readonly peer: Peer;
  readonly core: Core;
  readonly clock: TestClock;
  readonly trust: { workspace: boolean; server: boolean };
  /** Every line of the gateway's log. */
  readonly log: readonly string[];
  readonly agent: Agent;
  readonly #folder: { readonly path: string; remove(): void };
  #subjects = 0;

  private constructor(
    parts: Pick<Lab, "transport" | "peer" | "core" | "clock" | "trust" | "log" | "agent">,
    folder: { readonly path: string; remove(): void },
  ) {
    this.transport = parts.transport;
    this.peer = parts.peer;
    this.core = parts.core;
    this.clock = parts.clock;
    this.trust = parts.trust;
    this.log = parts.log;
    this.agent = parts.agent;
    this.#folder = folder;
  }

  static async open(transport: Transport, options: LabOptions = {}): Promise<Lab> {
    const folder = temporaryFolder();
    const { tools, withoutGetStream } = options;
    const peer = await Peer.start(transport, join(folder.path, "ledger"), {
      ...(tools === undefined ? {} : { tools }),
      ...(withoutGetStream === undefined ? {} : { withoutGetStream }),
    });
    const clock = new TestClock();
    const trust = { workspace: true, server: options.trusted ?? true };
    const log: string[] = [];
    const settings: ReplaySettings = { ...defaultReplaySettings, requestTimeoutMs, ...options.settings };
    const contracts = contractsFrom(options.contracts);
    const socket = join(folder.path, "s", "gateway");
    const servers = (): ReadonlyMap<string, HostedServer> => core.servers;
    const core = await createCore({
      journalDir: join(folder.path, "journal"),
      listen: { kind: "unix", path: socket },
      trust: {
        workspaceTrusted: () => trust.workspace,
        serverTrustSetting: () => trust.server,
        consentFingerprint: (name) => servers().get(name)?.fingerprint,
      },
      settings: () => settings,
      contracts: () => contracts,
      log: (server, line) => log.push(`${line.level} ${server ?? "-"} ${line.text}`),
      clientInfo: { name: "fault-tests", version: "1" },
      clock,
      random: options.random ?? (() => 0.01),
      ...options.core,
    });
    await core.setDefinitions(new Map([[serverName, options.definition?.(peer) ?? peer.definition]]));
    if (options.connect ?? true) await core.servers.get(serverName)?.connect();
    const agent = new Agent({ socket, path: core.gateway.urlOf(serverName), ...options.agent });
    return new Lab({ transport, peer, core, clock, trust, log, agent }, folder);
  }

  get journalDir(): string {
    return join(this.#folder.path, "journal");
  }

  get server(): HostedServer {
    const server = this.core.servers.get(serverName);
    if (server === undefined) throw new Error("the peer is not hosted");
    return server;
  }

  newAgent(options: Partial<AgentOptions>): Agent {
    const socket = this.core.gateway.listening.replace(/^unix:/, "");
    return new Agent({ socket, path: this.core.gateway.urlOf(serverName), ...options });
  }

  /** A new intention of this class. @param more further arguments */
  subject(cls: Class, more: Json = {}): Subject {
    this.#subjects += 1;
    const name = `${cls}-subject-${this.#subjects}`;
    if (cls === "C") return { class: cls, tool: "charge", arguments: { account: name, amount: 10, ...more } };
    if (cls === "R") return { class: cls, tool: "lookup", arguments: { item: name, ...more } };
    return { class: cls, tool: "put", arguments: { key: name, value: "v", ...more } };
  }

  call(path: Path, subject: Subject): Calling {
    if (path === "agent") {
      const call = this.agent.call(subject.tool, subject.arguments);
      return {
        answer: call.answer.then(ofAgent),
        cancel: () => call.cancel(),
        disconnect: () => call.disconnect(),
        heard: call.heard,
      };
    }
    const controller = new AbortController();
    const answer = this.core.calls
      .call(
        {
          server: serverName,
          tool: subject.tool,
          arguments: subject.arguments,
          params: { name: subject.tool, arguments: subject.arguments },
          caller: { client: "the Call Tool command" },
        },
        { signal: controller.signal },
      )
      .then((made) => {
        const at = performance.now();
        made.delivered();
        return ofCallTool(made, at);
      });
    return {
      answer,
      cancel: () => {
        controller.abort();
        return Promise.resolve();
      },
      disconnect: () => undefined,
      heard: [],
    };
  }

  /** The tools/call requests of this intention that reached the server. */
  requests(subject: Subject): RequestEntry[] {
    return this.peer.ledger.calls(subject.tool).filter((entry) => isOf(subject, entry.params?.["arguments"]));
  }

  /** The effects of this intention: executions that differ (an idempotent tool's repeated execution is one). */
  effects(subject: Subject): number {
    const own = this.peer.ledger.effects({ tool: subject.tool }).filter((effect) => isOf(subject, effect.arguments));
    return subject.class === "S" ? new Set(own.map((effect) => effect.key)).size : own.length;
  }

  /** The operations of this intention, the newest first. */
  async operations(subject: Subject): Promise<readonly Operation[]> {
    return this.core.journal.operations({ digest: digestOf(serverName, subject.tool, subject.arguments) });
  }

  /** Why the gateway kept the newest operation of this intention, in the words of gate and contract. */
  async verdict(subject: Subject): Promise<readonly string[]> {
    const events = await this.core.journal.events((await this.operation(subject)).id);
    return events.flatMap((event) => (event.type === "held" ? event.data.verdict : []));
  }

  async operation(subject: Subject): Promise<Operation> {
    const [operation] = await this.operations(subject);
    if (operation === undefined) throw new Error("the journal has no operation for this call");
    return operation;
  }

  /** Settles when the newest operation of this intention is as wished; looked at after every change of the journal. */
  async untilOperation(subject: Subject, wish: (operation: Operation) => boolean): Promise<Operation> {
    const { promise, resolve, reject } = Promise.withResolvers<Operation>();
    const check = (): void => {
      this.operations(subject).then(([operation]) => {
        if (operation !== undefined && wish(operation)) resolve(operation);
      }, reject);
    };
    const stop = this.core.journal.onDidChange(check);
    check();
    try {
      return await promise;
    } finally {
      stop();
    }
  }

  /** Settles when the hosted server is in this state. */
  async untilServer(state: string): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const check = (): void => {
      if (this.server.status.state === state) resolve();
    };
    const stop = this.server.onDidChange(check);
    check();
    await promise;
    stop();
  }

  async close(): Promise<void> {
    // A server that never answers must not hold the end up; nothing that was to be seen comes after this.
    await this.core.gateway.close(0);
    if (this.peer.http !== undefined) {
      await Promise.all([this.core.dispose(), this.peer.close()]);
    } else await this.core.dispose();
    this.#folder.remove();
  }
}

function contractsFrom(contracts: LabOptions["contracts"]): Contracts {
  if (contracts === undefined) return new Map();
  const read = readContracts({ [serverName]: contracts }, "contracts");
  if (read.problems.length > 0) throw new Error(JSON.stringify(read.problems));
  return read.contracts;
}

/** Whether a request's or effect's arguments belong to the subject (a gateway's key may have been added). */
function isOf(subject: Subject, given: unknown): boolean {
  const args = (given ?? {}) as Json;
  return Object.entries(subject.arguments).every(([name, value]) => args[name] === value);
}

function ofAgent(answer: RpcAnswer): Answer {
  if (answer.kind === "result") return ofResult(answer.result, answer.at);
  return {
    kind: answer.kind,
    result: undefined,
    error: answer.kind === "error" ? answer.error : undefined,
    text: "",
    isError: true,
    mark: undefined,
    at: answer.at,
  };
}

function ofCallTool(answer: CallAnswer, at: number): Answer {
  if (answer.kind === "result") return ofResult(answer.result, at);
  return { kind: "error", result: undefined, error: answer.error, text: "", isError: true, mark: undefined, at };
}

function ofResult(result: Json, at: number): Answer {
  const content = Array.isArray(result["content"]) ? (result["content"] as Json[]) : [];
  const meta = (result["_meta"] ?? {}) as Json;
  return {
    kind: "result",
    result,
    error: undefined,
    text: content.map((part) => (typeof part["text"] === "string" ? part["text"] : "")).join("\n"),
    isError: result["isError"] === true,
    mark: meta["mcp-safe-replay/operation"] as OperationMark | undefined,
    at,
  };
}
