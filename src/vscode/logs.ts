/**
 * Owns: the log of the extension and one log per hosted server, both with levels.
 * Leaves to others: what is written (never tool arguments, results or secrets).
 */
import { window } from "vscode";
import type { Disposable, LogOutputChannel } from "vscode";
import type { ServerLogLine } from "../hosting/hosted-server.ts";

export class Logs implements Disposable {
  readonly extension: LogOutputChannel = window.createOutputChannel("MCP Safe Replay", { log: true });
  readonly #servers = new Map<string, LogOutputChannel>();

  /** A line of the heart's: of one server, or of none in particular. */
  write(server: string | undefined, line: ServerLogLine): void {
    const channel = server === undefined ? this.extension : this.#of(server);
    const text = line.text.trimEnd();
    switch (line.level) {
      case "debug":
        channel.debug(text);
        break;
      case "info":
        channel.info(text);
        break;
      case "warning":
        channel.warn(text);
        break;
      case "error":
        channel.error(text);
        break;
    }
  }

  /** Shows a server's log, or the extension's. */
  show(server?: string): void {
    (server === undefined ? this.extension : this.#of(server)).show(true);
  }

  /** Ends the logs of servers that are gone. */
  keepOnly(servers: Iterable<string>): void {
    const kept = new Set(servers);
    for (const [name, channel] of this.#servers) {
      if (kept.has(name)) continue;
      channel.dispose();
      this.#servers.delete(name);
    }
  }

  #of(server: string): LogOutputChannel {
    let channel = this.#servers.get(server);
    if (channel === undefined) {
      channel = window.createOutputChannel(`MCP Safe Replay: ${server}`, { log: true });
      this.#servers.set(server, channel);
    }
    return channel;
  }

  dispose(): void {
    for (const channel of this.#servers.values()) channel.dispose();
    this.#servers.clear();
    this.extension.dispose();
  }
}
