/**
 * Owns: the row above each server in a workspace's `.vscode/mcp-safe-replay.json`: its state, and what a person can do with it.
 * Leaves to others: doing it (actions/servers.ts), where the servers stand in the text (servers-file.ts).
 */
import { CodeLens, EventEmitter, Range, languages } from "vscode";
import type { CodeLensProvider, Command, Disposable, Event, TextDocument } from "vscode";
import type { CoreHost } from "../core-host.ts";
import { DisposableList } from "../disposables.ts";
import type { Trust } from "../trust-source.ts";
import { serverStateWords, waitingWords } from "../words.ts";
import { workspaceFilePath } from "./workspace-files.ts";

export class WorkspaceFileLenses implements CodeLensProvider, Disposable {
  readonly #host: CoreHost;
  readonly #trust: Trust;
  readonly #disposables = new DisposableList();
  readonly #changed = this.#disposables.add(new EventEmitter<void>());
  readonly onDidChangeCodeLenses: Event<void> = this.#changed.event;

  constructor(host: CoreHost, trust: Trust) {
    this.#host = host;
    this.#trust = trust;
    for (const event of [host.onDidChangeState, host.onDidChangeServers, trust.onDidChange])
      this.#disposables.add(event(() => this.#changed.fire()));
    this.#disposables.add(languages.registerCodeLensProvider({ pattern: `**/${workspaceFilePath}` }, this));
  }

  provideCodeLenses(document: TextDocument): CodeLens[] {
    const running = this.#host.running;
    if (running === undefined) return [];
    return running.engine.serverPlaces(document.getText()).flatMap(({ name, offset, length }) => {
      const range = new Range(document.positionAt(offset), document.positionAt(offset + length));
      return this.#commands(name, document).map((command) => new CodeLens(range, command));
    });
  }

  #commands(name: string, document: TextDocument): Command[] {
    const act = (title: string, id: string): Command => ({ title, command: `mcpSafeReplay.${id}`, arguments: [name] });
    const told = (title: string, tooltip?: string): Command => ({ title, tooltip: tooltip ?? "", command: "" });
    const here = (file: { toString(): string } | undefined): boolean => file?.toString() === document.uri.toString();
    const waiting = this.#host.waiting.find(({ name: one, origin }) => one === name && origin !== "user" && here(origin.file));
    if (waiting !== undefined) {
      if (waiting.why === "input") return [act("$(key) Enter Value and Start", "startServer")];
      if (waiting.why === "name-taken") return [told(`$(warning) ${waitingWords[waiting.why]}`, waiting.reason)];
      return [
        {
          title: `$(workspace-untrusted) ${waitingWords[waiting.why]}`,
          command: "workbench.trust.manage",
          tooltip: waiting.reason,
        },
      ];
    }
    const origin = this.#host.originOf(name);
    const server = this.#host.running?.core.servers.get(name);
    if (server === undefined || origin === undefined || origin === "user" || !here(origin.file)) return [];
    const { state } = server.status;
    const runs = state !== "stopped" && state !== "failed";
    return [
      told(serverStateWords[state], server.status.reason),
      ...(runs
        ? [act("$(debug-stop) Stop", "stopServer"), act("$(debug-restart) Restart", "restartServer")]
        : [act("$(debug-start) Start", "startServer")]),
      this.#trust.of(name).trusted
        ? act("$(workspace-trusted) Stop Trusting", "untrustServer")
        : act("$(workspace-untrusted) Trust for Replay", "trustServer"),
      act("$(output) Log", "showLog"),
    ];
  }

  dispose(): void {
    this.#disposables.dispose();
  }
}
