/**
 * Owns: telling the person about mistakes in the settings and about settings that somebody else tries to supply: one clear message each,
 * once, with a button that leads to the place.
 * Leaves to others: finding them (settings.ts, src/hosting/definitions.ts).
 */
import { commands, window } from "vscode";
import type { LogOutputChannel, Uri } from "vscode";
import { foreignKeys, section } from "./settings.ts";
import type { WaitingServer } from "./sources/server-sources.ts";
import type { PlacedProblem, SettingKey } from "./settings.ts";

export class Problems {
  readonly #log: LogOutputChannel;
  #shown: ReadonlySet<string> = new Set();
  readonly #warned = new Set<string>();

  constructor(log: LogOutputChannel) {
    this.#log = log;
  }

  /** Shows those that were not there the last time; a mistake that was mended and made again is shown again. */
  show(problems: readonly PlacedProblem[]): void {
    const before = this.#shown;
    this.#shown = new Set(problems.map(textOf));
    for (const problem of problems) {
      const text = textOf(problem);
      if (before.has(text)) continue;
      this.#log.error(text);
      const { open } = problem;
      void window.showErrorMessage(text, typeof open === "string" ? "Open Setting" : "Open File").then((choice) => {
        if (choice !== undefined) void (typeof open === "string" ? openSetting(open) : openFile(open));
      });
    }
  }

  /** Points out values that are ignored because they are not the person's own. */
  warnOfForeignValues(): void {
    const { workspace: fromWorkspace, machine, profile } = foreignKeys();
    this.#warn("This workspace", fromWorkspace, "workbench.action.openWorkspaceSettingsFile");
    this.#warn("The settings of the remote machine", machine, "workbench.action.openRemoteSettingsFile");
    this.#warn("This profile", profile, "workbench.action.openSettingsJson");
  }

  /** Tells of servers that wait for a value or for another name; those that wait for workspace trust are told by their rows. */
  warnOfWaiting(waiting: readonly WaitingServer[]): void {
    const news = waiting.filter(({ name, why, source, reason }) => {
      const known = `${source} ${name} ${reason}`;
      if (why === "workspace-trust" || this.#warned.has(known)) return false;
      this.#warned.add(known);
      this.#log.warn(`The MCP server "${name}" is not running. ${reason}`);
      return true;
    });
    for (const { name, reason } of news.filter(({ why }) => why === "input")) {
      void window.showWarningMessage(`The MCP server "${name}" is not running. ${reason}`, "Enter Value").then((choice) => {
        if (choice !== undefined) void commands.executeCommand("mcpSafeReplay.startServer", name);
      });
    }
    const taken = [...new Set(news.filter(({ why }) => why === "name-taken").map(({ name }) => `"${name}"`))];
    if (taken.length === 0) return;
    const text =
      `Not every MCP server of this workspace is used: ${taken.join(", ")} ${taken.length === 1 ? "is a name" : "are names"} in use already. ` +
      "Your own servers come first, then those of the first folder.";
    void window.showWarningMessage(text, "Show Servers").then((choice) => {
      if (choice !== undefined) void commands.executeCommand("mcpSafeReplay.servers.focus");
    });
  }

  #warn(who: string, keys: readonly SettingKey[], open: string): void {
    const news = keys.filter((key) => !this.#warned.has(`${who} ${key}`));
    if (news.length === 0) return;
    for (const key of news) this.#warned.add(`${who} ${key}`);
    const text = `${who} tried to set ${news.map((key) => `${section}.${key}`).join(", ")}. This was ignored: only your own user settings count.`;
    this.#log.warn(text);
    void window.showWarningMessage(text, "Show Settings").then((choice) => {
      if (choice !== undefined) void commands.executeCommand(open);
    });
  }
}

export function openFile(file: Uri): Thenable<unknown> {
  return window.showTextDocument(file);
}

function textOf(problem: PlacedProblem): string {
  return `${problem.place} ${problem.message}.`;
}

/** Opens a setting where it is best edited: maps of objects in settings.json, everything else in the Settings UI. */
export function openSetting(key?: SettingKey): Thenable<unknown> {
  return key === "servers" || key === "contracts" || key === "inputs"
    ? commands.executeCommand("workbench.action.openSettingsJson", { revealSetting: { key: `${section}.${key}`, edit: true } })
    : commands.executeCommand(
        "workbench.action.openSettings",
        key === undefined ? "@ext:mcp-safe-replay.mcp-safe-replay" : `${section}.${key}`,
      );
}
