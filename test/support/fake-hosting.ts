/**
 * Owns: a hosted server whose wire is a script, for tests of the heart. What reached "the server" is its `requests`.
 */
import type { CallObserver, HostedConnection, ListedTool, PreparedCall } from "../../src/hosting/connection.ts";
import type { Ending, JsonRpcAnswer, Loss } from "../../src/hosting/evidence.ts";
import type { HostedServer } from "../../src/hosting/hosted-server.ts";

export type Step = (call: { rpcId: string; params: Record<string, unknown>; observer: CallObserver }) => Ending | Promise<Ending>;

export const answer = (text = "ok", rpcId = "x", fields: Record<string, unknown> = {}): Ending => ({
  kind: "answer",
  answer: { jsonrpc: "2.0", id: rpcId, result: { content: [{ type: "text", text }], ...fields } },
});
export const rpcError = (code = -32000, message = "no"): Ending => ({
  kind: "answer",
  answer: { jsonrpc: "2.0", id: "x", error: { code, message } },
});
export const loss = (kind: Loss["kind"], fields: Partial<Loss> = {}): Ending => ({
  kind: "loss",
  loss: { kind, stage: "sent", ...fields },
});

export class FakeServer implements HostedServer {
  readonly name: string;
  readonly definition = { type: "stdio", command: "x", args: [], env: {} } as const;
  fingerprint = "fingerprint";
  readonly status = { state: "connected", since: 0 } as const;
  tools: ListedTool[];
  /** What the server lists when it is asked again. */
  toolsLater: ListedTool[] | undefined;
  readonly requests: { rpcId: string; params: Record<string, unknown> }[] = [];
  readonly cancelled: string[] = [];
  /** Calls that are listened to although nobody waits for them. */
  readonly unattended: string[] = [];
  rediscoveries = 0;
  /** One step for each call; then `byDefault`. */
  script: Step[] = [];
  byDefault: Step = ({ rpcId }) => answer("ok", rpcId);
  /** Begins every RPC id, where those of several servers must differ. */
  idPrefix = "";
  connectError: Error | undefined;
  serverName = "fake";
  onRediscover: () => void = () => undefined;
  resume: HostedConnection["resume"] = () => Promise.resolve(loss("http-status", { httpStatus: 404 }));
  pollTask: HostedConnection["pollTask"] = () => Promise.resolve(loss("not-connected"));
  #connection: HostedConnection | undefined;
  #ids = 0;

  constructor(name: string, tools: ListedTool[]) {
    this.name = name;
    this.tools = tools;
  }

  get connection(): HostedConnection | undefined {
    return this.#connection;
  }

  connect(): Promise<HostedConnection> {
    if (this.connectError) return Promise.reject(this.connectError);
    this.#connection ??= this.#make();
    return Promise.resolve(this.#connection);
  }

  rediscover(): Promise<HostedConnection> {
    this.rediscoveries += 1;
    this.onRediscover();
    if (this.connectError) return Promise.reject(this.connectError);
    if (this.toolsLater) this.tools = this.toolsLater;
    this.#connection = this.#make();
    return Promise.resolve(this.#connection);
  }

  #make(): HostedConnection {
    return {
      connectionId: `c${++this.#ids}`,
      facts: {
        era: "2025-11-25",
        protocolVersion: "2025-11-25",
        transport: "http",
        sessionId: "session",
        serverInfo: { name: this.serverName, version: "1" },
        capabilities: {},
      },
      open: true,
      closed: new Promise(() => undefined),
      prepareCall: (params, observer, rpcId = `${this.idPrefix}rpc-${++this.#ids}`): PreparedCall => ({
        rpcId,
        send: async () => {
          this.requests.push({ rpcId, params });
          const step = this.script.shift() ?? this.byDefault;
          return step({ rpcId, params, observer });
        },
        cancel: () => this.cancelled.push(rpcId),
        stopWaiting: () => this.unattended.push(rpcId),
      }),
      request: () => Promise.resolve(answer()),
      notify: () => undefined,
      listTools: () => Promise.resolve(this.tools),
      resume: (...args) => this.resume(...args),
      pollTask: (...args) => this.pollTask(...args),
      onMessage: () => () => undefined,
      respond: () => undefined,
      close: () => Promise.resolve(),
    };
  }

  readonly remembered = undefined;
  readonly health = { reconnects: { total: 0, lastHour: 0 }, probes: 0, history: [] };
  start = () => Promise.resolve();
  reconnect = () => Promise.resolve();
  stop = () => Promise.resolve();
  restart = () => Promise.resolve();
  dispose = () => Promise.resolve();
  onDidChange = () => () => undefined;
  onDidChangeTools = () => () => undefined;
  onLog = () => () => undefined;
  onMessage = () => () => undefined;
}

export function resultText(answerOf: { kind: string; result?: Record<string, unknown> } | JsonRpcAnswer): string {
  const result = (answerOf as { result?: { content?: { text?: string }[] } }).result;
  return result?.content?.[0]?.text ?? "";
}
