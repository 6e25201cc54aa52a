/**
 * Owns: telling VS Code's own MCP client about the hosted servers: one HTTP server at the gateway for each, under its own name.
 * Leaves to others: answering there (src/gateway). The bearer token is put in only when VS Code connects, because VS Code keeps
 * definitions on disk.
 */
import { createHash } from "node:crypto";
import { EventEmitter, McpHttpServerDefinition } from "vscode";
import type { Disposable, Event, McpServerDefinitionProvider, Memento } from "vscode";
import type { HostedServer } from "../hosting/hosted-server.ts";
import type { CoreHost } from "./core-host.ts";
import { DisposableList } from "./disposables.ts";
import type { Trust } from "./trust-source.ts";

/** As in `contributes.mcpServerDefinitionProviders`. */
export const providerId = "mcpSafeReplay";

const toolsKey = (server: string): string => `tools:${server}`;

interface KnownTools {
  readonly fingerprint: string;
  readonly digest: string;
}

/** What VS Code's connection to a server was begun with. */
interface Begun {
  readonly fingerprint: string;
  readonly version: string;
  /** Whether VS Code may have seen the hints of a trusted server on it. */
  trusted: boolean;
}

export class McpProvider implements McpServerDefinitionProvider<McpHttpServerDefinition>, Disposable {
  readonly #host: CoreHost;
  readonly #trust: Trust;
  readonly #state: Memento;
  readonly #disposables = new DisposableList();
  readonly #changed = this.#disposables.add(new EventEmitter<void>());
  readonly onDidChangeMcpServerDefinitions: Event<void> = this.#changed.event;
  /** What VS Code was told last: it is told again only when something differs. */
  #told = "";
  readonly #begun = new Map<string, Begun>();

  /** @param state remembers the tools of each server from one start to the next, so that VS Code need not ask again */
  constructor(host: CoreHost, trust: Trust, state: Memento) {
    this.#host = host;
    this.#trust = trust;
    this.#state = state;
    for (const event of [host.onDidChangeState, host.onDidChangeServers, trust.onDidChange]) {
      this.#disposables.add(event(() => this.refresh()));
    }
  }

  refresh(): void {
    const now = this.#summary();
    if (now === this.#told) return;
    this.#told = now;
    this.#changed.fire();
  }

  async provideMcpServerDefinitions(): Promise<McpHttpServerDefinition[]> {
    const running = await this.#host.ready().catch(() => undefined);
    if (running === undefined) return []; // the failure has its message already
    this.#told = this.#summary();
    return [...running.core.servers.values()].map(
      (server) =>
        new McpHttpServerDefinition(
          server.name,
          running.endpoint.uriOf(running.core.gateway.urlOf(server.name)),
          {},
          this.#versionOf(server),
        ),
    );
  }

  async resolveMcpServerDefinition(definition: McpHttpServerDefinition): Promise<McpHttpServerDefinition> {
    const { core, endpoint, token } = await this.#host.ready();
    definition.uri = endpoint.uriOf(core.gateway.urlOf(definition.label));
    definition.headers = { Authorization: `Bearer ${token}` };
    const server = core.servers.get(definition.label);
    if (server !== undefined && definition.version !== undefined) {
      const begun = { fingerprint: server.fingerprint, trusted: this.#isTrusted(server), version: definition.version };
      this.#begun.set(server.name, begun);
    }
    return definition;
  }

  #summary(): string {
    const servers = this.#host.running?.core.servers.values() ?? [];
    return JSON.stringify([...servers].map((server) => [server.name, this.#versionOf(server)]));
  }

  /**
   * VS Code keeps the tools of a version for its next start. The trust belongs to it: the gateway leaves out `readOnlyHint`, on which
   * VS Code skips its confirmation, while the server is not trusted.
   *
   * Another version also makes VS Code cut its connection, with every call that is out on it. So a connection keeps the version it was
   * begun with, and hears of other tools by `notifications/tools/list_changed`. Only when trust is withdrawn is that not enough: VS Code
   * may hold the hint for a server that it has stopped meanwhile.
   */
  #versionOf(server: HostedServer): string {
    const trusted = this.#isTrusted(server);
    const begun = this.#begun.get(server.name);
    if (begun?.fingerprint === server.fingerprint && (trusted || !begun.trusted)) {
      begun.trusted = trusted;
      return begun.version;
    }
    return `${server.fingerprint.slice(0, 12)}-${this.#toolsOf(server)}-${trusted ? "trusted" : "plain"}`;
  }

  #isTrusted(server: HostedServer): boolean {
    const { workspace, server: trusted } = this.#trust.now(server.name);
    return workspace && trusted;
  }

  #toolsOf(server: HostedServer): string {
    const known = this.#state.get<Partial<KnownTools>>(toolsKey(server.name));
    const remembered = known?.fingerprint === server.fingerprint ? known.digest : undefined;
    if (server.tools.length === 0) return remembered ?? "unknown";
    const engine = this.#host.running?.engine;
    const shown = server.tools.map(
      (tool) => engine?.withoutKeyArgument(tool, this.#host.contract(server.name, tool.name)) ?? tool,
    );
    const digest = createHash("sha256").update(JSON.stringify(shown)).digest("hex").slice(0, 12);
    if (digest !== remembered)
      void this.#state.update(toolsKey(server.name), { fingerprint: server.fingerprint, digest } satisfies KnownTools);
    return digest;
  }

  dispose(): void {
    this.#disposables.dispose();
  }
}
