/**
 * Owns: the interface of one hosted server: its definition, its state, its one live connection.
 * Leaves to others: what a lost call means (src/replay), who may use it (src/trust, src/gateway).
 */
import type { ServerAuthorisation } from "./auth/server-authorisation.ts";
import type { ServerDefinition, StartPolicy } from "./definitions.ts";
import type { Era } from "./evidence.ts";
import type { ServerHealth } from "./health/record.ts";
import type { ServerState } from "./health/transitions.ts";
import type { HostedConnection, ListedTool, ServerFacts } from "./connection.ts";

export type { ServerState, StartPolicy };

/** What a server said of itself and its tools when it was last connected. */
export interface RememberedServer {
  readonly facts: ServerFacts;
  readonly tools: readonly ListedTool[];
}

/** Keeps what servers said, by the fingerprint of their definition, across starts. */
export interface RememberedServers {
  get(fingerprint: string): RememberedServer | undefined;
  set(fingerprint: string, server: RememberedServer): void;
}

export interface ServerStatus {
  readonly state: ServerState;
  /** One plain sentence for a person: why it is in this state. Free of arguments, secrets and transport text. */
  readonly reason?: string | undefined;
  /** Milliseconds since the epoch. */
  readonly since: number;
  /** While it reconnects or connects again: which attempt since the connection was lost; 1 is the first. */
  readonly attempt?: number;
  /** While it reconnects: when the next attempt is made, in milliseconds since the epoch. */
  readonly nextTryAt?: number;
  readonly era?: Era;
  readonly facts?: ServerFacts;
  /** When it failed: the last lines its program wrote to stderr. They are the program's own words. */
  readonly lastOutput?: readonly string[];
}

/** One line of a server's log (its stderr, its logging notifications, our own notes). Never tool arguments. */
export interface ServerLogLine {
  readonly level: "debug" | "info" | "warning" | "error";
  readonly text: string;
}

export interface HostedServer {
  readonly name: string;
  readonly definition: ServerDefinition;
  /** SHA-256 over the canonical definition: what a trust grant is bound to. */
  readonly fingerprint: string;
  readonly status: ServerStatus;
  /** The tools of the last tools/list; before the first, those of an earlier run, if they are remembered. */
  readonly tools: readonly ListedTool[];
  /** While it is stopped and need not be started to be described: what it said last. */
  readonly remembered: RememberedServer | undefined;
  /** What is on record of its health; read anew at each use. */
  readonly health: ServerHealth;
  /** Of a remote server whose definition has no `Authorization` header of its own. */
  readonly authorisation?: ServerAuthorisation | undefined;

  /**
   * The live connection; makes one when there is none. Single flight: concurrent callers share one attempt.
   * `connected` means that tools/list was answered on this connection. Rejects with `HostingError`; a server that is started by hand only
   * is not started by this.
   */
  connect(): Promise<HostedConnection>;
  /** The live connection, if there is one now. */
  readonly connection: HostedConnection | undefined;
  /**
   * A connection on which tools/list was answered after this moment: `old` is given up when it is over, otherwise it is asked again
   * on `old` itself (a lost HTTP response does not end a session). For the replay gate. Rejects with `HostingError`.
   */
  rediscover(old: HostedConnection): Promise<HostedConnection>;
  /** A person wants it: waits and the crash-loop breaker do not count any more. Rejects with `HostingError`. */
  start(): Promise<void>;
  /** A person wants a new connection now: ends a wait, or replaces the connection that there is; requests under way on it are left to end. */
  reconnect(): Promise<void>;
  stop(): Promise<void>;
  restart(): Promise<void>;
  dispose(): Promise<void>;

  onDidChange(listener: () => void): () => void;
  onDidChangeTools(listener: () => void): () => void;
  onLog(listener: (line: ServerLogLine) => void): () => void;
  /** Messages of the server's that belong to no call (any connection of this server's). */
  onMessage(listener: (message: Record<string, unknown>, connection: HostedConnection) => void): () => void;
}
