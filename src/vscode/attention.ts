/**
 * Owns: the one item in the status bar, which is there only while a hosted server needs a person.
 * Leaves to others: the state of a server (src/hosting), what is done about it (actions).
 */
import { StatusBarAlignment, ThemeColor, window } from "vscode";
import type { Disposable } from "vscode";
import type { CoreHost } from "./core-host.ts";
import { DisposableList } from "./disposables.ts";
import { needy } from "./health-text.ts";
import { countText } from "./words.ts";

export class Attention implements Disposable {
  readonly #host: CoreHost;
  readonly #disposables = new DisposableList();
  readonly #item = this.#disposables.add(window.createStatusBarItem("mcpSafeReplay.attention", StatusBarAlignment.Left, 0));

  constructor(host: CoreHost) {
    this.#host = host;
    this.#item.name = "MCP Safe Replay: servers that need you";
    this.#item.command = "mcpSafeReplay.servers.focus";
    this.#item.backgroundColor = new ThemeColor("statusBarItem.warningBackground");
    for (const event of [host.onDidChangeServers, host.onDidChangeState]) this.#disposables.add(event(() => this.#refresh()));
  }

  #refresh(): void {
    const found = needy(this.#host.running?.core.servers.values() ?? [], this.#host.waiting);
    const [first] = found;
    if (first === undefined) {
      this.#item.hide();
      return;
    }
    const text = found.length === 1 ? `${first.name}: ${first.why}` : `${countText(found.length, "MCP server")} need you`;
    this.#item.text = `$(warning) ${text}`;
    this.#item.tooltip = found.map(({ name, why }) => `${name}: ${why}`).join("\n");
    this.#item.accessibilityInformation = { label: `MCP Safe Replay: ${text}. Show the servers.` };
    this.#item.show();
  }

  dispose(): void {
    this.#disposables.dispose();
  }
}
