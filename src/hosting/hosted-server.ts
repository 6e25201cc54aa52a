/**
 * Owns: the interface of one hosted server: its definition, its state, its one live connection.
 * Leaves to others: what a lost call means (src/replay), who may use it (src/trust, src/gateway).
 */
import type { ServerDefinition } from "./definitions.ts";
import type { Era } from "./evidence.ts";
import type { HostedConnection, ListedTool, ServerFacts } from "./connection.ts";

export type ServerState = "stopped" | "waiting-for-trust" | "connecting" | "connected" | "reconnecting" | "failed";

export interface ServerStatus {
  readonly state: ServerState;
  /** One plain sentence for a person: why it is in this state. Free of arguments, secrets and transport text. */
  readonly reason?: string;
  /** Milliseconds since the epoch. */
  readonly since: number;
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
  /** The tools of the last tools/list (empty before the first). */
  readonly tools: readonly ListedTool[];

  /**
   * The live connection; makes one when there is none. Single flight: concurrent callers share one attempt.
   * `connected` means that tools/list was answered on this connection. Rejects with `HostingError`.
   */
  connect(): Promise<HostedConnection>;
  /** The live connection, if there is one now. */
  readonly connection: HostedConnection | undefined;
  /**
   * A connection on which tools/list was answered after this moment: `old` is given up when it is over, otherwise it is asked again
   * on `old` itself (a lost HTTP response does not end a session). For the replay gate. Rejects with `HostingError`.
   */
  rediscover(old: HostedConnection): Promise<HostedConnection>;
  start(): Promise<void>;
  stop(): Promise<void>;
  restart(): Promise<void>;
  dispose(): Promise<void>;

  onDidChange(listener: () => void): () => void;
  onDidChangeTools(listener: () => void): () => void;
  onLog(listener: (line: ServerLogLine) => void): () => void;
  /** Messages of the server's that belong to no call (any connection of this server's). */
  onMessage(listener: (message: Record<string, unknown>, connection: HostedConnection) => void): () => void;
}
