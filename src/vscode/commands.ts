/**
 * Owns: the names of our commands and what each takes and gives, and how a failing command speaks.
 * Leaves to others: what they do (actions).
 *
 * A row of a view or a plain text asks the person for whatever is missing. A plain object is a script: it must hold everything, no
 * question is asked, and a failure is thrown instead of shown.
 */
import { commands, window } from "vscode";
import type { LogOutputChannel } from "vscode";
import type { ClientKind } from "./sources/import-formats.ts";
import type { Exported } from "../operations/export.ts";
import type { Settlement } from "../operations/model.ts";
import type { Verdict } from "../operations/verify.ts";
import type { RehearsalReport } from "../replay/rehearsal-plan.ts";
import { DisposableList } from "./disposables.ts";
import { messageFor } from "./user-error.ts";
import type { OtherClientKind } from "./client-snippets.ts";
import type { OperationNode } from "./views/unresolved-view.ts";
import type { ClientNode, ClientsNode } from "./views/clients.ts";
import type { ServerNode, ToolNode, WaitingNode } from "./views/servers-view.ts";
import { ViewNode } from "./views/node.ts";

export interface CallToolScript {
  readonly server: string;
  readonly tool: string;
  readonly arguments?: Record<string, unknown>;
}
export interface ReconcileScript {
  readonly id: string;
  readonly as: Settlement;
  readonly evidence?: string;
}
/** Several at once, with one line of evidence. */
export interface ReconcileManyScript {
  readonly ids: readonly string[];
  readonly as: Settlement;
  readonly evidence?: string;
}
export interface RehearseScript {
  readonly server: string;
  readonly tool: string;
  readonly arguments: Record<string, unknown>;
  /** What a person would type: it says what is created. */
  readonly confirm: string;
}
export interface OperationScript {
  readonly id: string;
}
export interface ServerScript {
  readonly server: string;
}
export interface AddServerScript {
  readonly name: string;
  readonly definition: Record<string, unknown>;
}
export interface ImportScript {
  readonly client: ClientKind;
  readonly path: string;
  /** By their names in that file; without it, all that are not switched off there. */
  readonly servers?: readonly string[];
  readonly switchOff?: boolean;
}
export interface ImportOutcome {
  /** The names under which they are hosted. */
  readonly names: readonly string[];
  /** The person's servers before and after, as text, without secrets. */
  readonly before: string;
  readonly after: string;
  /** The file as it was before the servers were switched off in it. */
  readonly backup?: string;
}
export interface GatewayConfigurationScript {
  readonly client: OtherClientKind;
  /** Hosted servers, by name. */
  readonly servers: readonly string[];
  /** Over the port, or by the stdio bridge. */
  readonly way: "http" | "stdio";
}
export interface ClientScript {
  /** The name under which it was let in. */
  readonly client: string;
}
export interface ExportScript {
  readonly path: string;
  readonly format: "jsonl" | "csv";
  /** Default: events. */
  readonly what?: Exported;
}
export interface CloseConflictScript {
  readonly id: string;
  readonly note: string;
}

/** A tools/call result, or the server's own JSON-RPC error. Undefined when the person gave up before anything was sent. */
export type CallOutcome =
  | Record<string, unknown>
  | { readonly error: { readonly code: number; readonly message: string; readonly data?: unknown } }
  | undefined;

type OperationTarget = OperationNode | string | OperationScript;
type ServerTarget = ServerNode | WaitingNode | string | ServerScript;

/** Every command: its argument and its result. */
export interface CommandMap {
  "mcpSafeReplay.callTool": (target?: ServerNode | ToolNode | CallToolScript) => Promise<CallOutcome>;
  /** `selected`: the rows that are selected together with the target. */
  "mcpSafeReplay.reconcile": (
    target?: OperationNode | string | ReconcileScript | ReconcileManyScript,
    selected?: unknown,
  ) => Promise<void>;
  "mcpSafeReplay.repeatCall": (target?: OperationTarget) => Promise<CallOutcome>;
  "mcpSafeReplay.closeConflict": (target?: OperationNode | string | CloseConflictScript) => Promise<void>;
  "mcpSafeReplay.showOperation": (target?: OperationTarget) => Promise<void>;
  "mcpSafeReplay.copyOperationId": (target?: OperationTarget) => Promise<void>;
  "mcpSafeReplay.rehearseContract": (target?: ToolNode | RehearseScript) => Promise<RehearsalReport | undefined>;
  "mcpSafeReplay.addServer": (target?: AddServerScript) => Promise<void>;
  "mcpSafeReplay.importServers": (target?: ImportScript) => Promise<ImportOutcome | undefined>;
  "mcpSafeReplay.openWorkspaceServers": (target?: unknown) => Promise<void>;
  "mcpSafeReplay.forgetSecrets": (target?: Record<string, never>) => Promise<void>;
  "mcpSafeReplay.startServer": (target?: ServerTarget) => Promise<void>;
  "mcpSafeReplay.stopServer": (target?: ServerTarget) => Promise<void>;
  "mcpSafeReplay.restartServer": (target?: ServerTarget) => Promise<void>;
  "mcpSafeReplay.reconnectServer": (target?: ServerTarget) => Promise<void>;
  /** Everything on record of its health, as a document. */
  "mcpSafeReplay.showServer": (target?: ServerTarget) => Promise<void>;
  "mcpSafeReplay.copyServerUrl": (target?: ServerTarget) => Promise<void>;
  "mcpSafeReplay.trustServer": (target?: ServerTarget) => Promise<void>;
  "mcpSafeReplay.untrustServer": (target?: ServerTarget) => Promise<void>;
  "mcpSafeReplay.authorise": (target?: ServerTarget) => Promise<void>;
  "mcpSafeReplay.signOut": (target?: ServerTarget) => Promise<void>;
  "mcpSafeReplay.showLog": (target?: ServerTarget) => Promise<void>;
  "mcpSafeReplay.openSettings": (target?: unknown) => Promise<void>;
  "mcpSafeReplay.exportJournal": (target?: ExportScript) => Promise<void>;
  "mcpSafeReplay.verifyJournal": (target?: Record<string, never>) => Promise<Verdict | undefined>;
  "mcpSafeReplay.copyGatewayConfiguration": (
    target?: ServerNode | ClientsNode | GatewayConfigurationScript,
  ) => Promise<{ readonly name: string; readonly snippet: string } | undefined>;
  "mcpSafeReplay.revokeClient": (target?: ClientNode | ClientScript) => Promise<void>;
  "mcpSafeReplay.refresh": (target?: unknown) => Promise<void>;
  "mcpSafeReplay.retry": (target?: unknown) => Promise<void>;
}

/** The argument, if it is a script's. */
export function scriptOf<T>(target: T): Exclude<T, ViewNode | string | undefined> | undefined {
  if (typeof target !== "object" || target === null || target instanceof ViewNode) return undefined;
  const prototype: unknown = Object.getPrototypeOf(target);
  return prototype === Object.prototype || prototype === null ? (target as Exclude<T, ViewNode | string | undefined>) : undefined;
}

type Handler = (target?: unknown, selected?: unknown) => Promise<unknown>;

export function registerCommands(handlers: CommandMap, log: LogOutputChannel): DisposableList {
  const registered = new DisposableList();
  for (const [name, handler] of Object.entries(handlers) as [keyof CommandMap, Handler][]) {
    registered.add(
      commands.registerCommand(name, async (target?: unknown, selected?: unknown) => {
        try {
          return await handler(target, selected);
        } catch (error) {
          if (scriptOf(target) !== undefined) throw error;
          log.error(`${name} failed.`, error);
          void window.showErrorMessage(messageFor(error) ?? "That did not work. The log of MCP Safe Replay says why.");
          return undefined;
        }
      }),
    );
  }
  return registered;
}
