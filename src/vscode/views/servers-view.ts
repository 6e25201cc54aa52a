/**
 * Owns: the Servers view: each hosted server with its state and a checkbox for its trust, its tools with what they declare, and what
 * would happen to each if its answer were lost now.
 * Leaves to others: the state of a server (src/hosting), the verdict (src/replay/gate.ts), writing the trust (trust-source.ts).
 */
import { EventEmitter, MarkdownString, TreeItemCheckboxState, TreeItemCollapsibleState, commands, window } from "vscode";
import type { Disposable, Event, TreeDataProvider, TreeItem, TreeView } from "vscode";
import type { ListedTool } from "../../hosting/connection.ts";
import type { HostedServer, ServerState } from "../../hosting/hosted-server.ts";
import { annotationsOf, isContradictory } from "../../replay/gate.ts";
import type { WhatIfLost } from "../../replay/what-if-lost.ts";
import type { CoreHost } from "../core-host.ts";
import { DisposableList } from "../disposables.ts";
import { replaySettings } from "../settings.ts";
import type { Rehearsals } from "../rehearsals.ts";
import type { OtherClients } from "../other-clients.ts";
import type { Settings } from "../settings.ts";
import type { Origin, WaitingServer } from "../sources/server-sources.ts";
import type { Trust } from "../trust-source.ts";
import { messageFor } from "../user-error.ts";
import { latencyText, reconnectsText, stateMeanings, stateText } from "../health-text.ts";
import { agoText, countText, definitionWords, serverStateWords, toolTitle, waitingWords, whatIfLostWords } from "../words.ts";
import { ClientNode, ClientsNode } from "./clients.ts";
import { ViewNode, addText, icon } from "./node.ts";

export const serversViewId = "mcpSafeReplay.servers";

/** Context keys: how many servers there are, and whether any is trusted for replay. */
const countContext = "mcpSafeReplay.serverCount";
const trustContext = "mcpSafeReplay.anyTrusted";

const stateIcons: Readonly<Record<ServerState, ReturnType<typeof icon>>> = {
  stopped: icon("circle-outline", "disabledForeground"),
  "waiting-for-trust": icon("workspace-untrusted", "list.warningForeground"),
  connecting: icon("loading~spin"),
  connected: icon("pass-filled", "testing.iconPassed"),
  degraded: icon("question", "list.warningForeground"),
  reconnecting: icon("sync~spin", "list.warningForeground"),
  "needs-authorisation": icon("account", "list.warningForeground"),
  failed: icon("error", "list.errorForeground"),
};

const lossIcons: Readonly<Record<WhatIfLost, ReturnType<typeof icon>>> = {
  replayed: icon("sync", "testing.iconPassed"),
  "read-again": icon("book", "testing.iconPassed"),
  "replayed-with-key": icon("key", "testing.iconPassed"),
  "looked-up": icon("search", "testing.iconPassed"),
  "kept-unresolved": icon("tools"),
  "kept-unresolved-contradictory": icon("warning", "list.warningForeground"),
  "kept-unresolved-untrusted": icon("lock"),
};

/** One hosted server. */
export class ServerNode extends ViewNode {
  readonly server: HostedServer;

  readonly #trust: Trust;
  readonly #origin: Origin | undefined;

  constructor(server: HostedServer, trust: Trust, origin: Origin | undefined, now: number) {
    super(
      `server/${server.name}`,
      server.name,
      server.tools.length > 0 ? TreeItemCollapsibleState.Collapsed : TreeItemCollapsibleState.None,
    );
    this.server = server;
    const verdict = trust.of(server.name);
    const { status } = server;
    const runs = running.has(status.state);
    const { authorisation } = server;
    const authority =
      authorisation?.need !== undefined || (status.state === "needs-authorisation" && authorisation !== undefined)
        ? "authorise;"
        : authorisation?.authorised === true
          ? "authorised;"
          : "";
    this.contextValue = `server;${runs ? "running" : "stopped"};${authority}${verdict.trusted ? "trusted" : "untrusted"}`;
    this.iconPath = stateIcons[status.state];
    const suspended = !verdict.trusted && verdict.why !== "not-granted";
    // Those of a server that does not run are what it listed last.
    const count = countText(server.tools.length, "tool");
    const tools = server.tools.length === 0 || status.state === "failed" ? [] : [runs ? count : `${count} remembered`];
    this.description = [
      stateText(status, now),
      ...tools,
      ...originText(origin),
      ...(authorisation?.need === "more-scopes" ? ["wants more rights"] : []),
      ...(suspended ? ["trust suspended"] : []),
    ].join(", ");
    this.#trust = trust;
    this.#origin = origin;
    // What its program wrote last, and everything else on record, is one click away.
    if (!runs && status.state !== "stopped")
      this.command = { title: "Show Details", command: "mcpSafeReplay.showServer", arguments: [server.name] };
    this.checkboxState = {
      state: verdict.trusted ? TreeItemCheckboxState.Checked : TreeItemCheckboxState.Unchecked,
      tooltip: verdict.trusted
        ? "Trusted for replay. Clear to stop trusting what this server says about its tools."
        : "Not trusted for replay. Check to let this server's word decide whether a lost call may be repeated.",
      accessibilityInformation: { label: `Trust ${server.name} for replay`, role: "checkbox" },
    };
  }

  /** As of now: it is asked for when the mouse rests on the row. */
  resolve(): void {
    this.tooltip = serverTooltip(this.server, this.#trust, this.#origin, Date.now());
  }
}

/** States in which there is something to stop. */
const running: ReadonlySet<ServerState> = new Set(["connecting", "connected", "degraded", "reconnecting"]);

/** One tool of a hosted server. */
export class ToolNode extends ViewNode {
  readonly server: HostedServer;
  readonly tool: ListedTool;

  /** @param contract what is known of the rehearsal of its contract, if it has one */
  constructor(server: HostedServer, tool: ListedTool, loss: WhatIfLost, contract: string | undefined) {
    super(`server/${server.name}/tool/${tool.name}`, tool.name);
    this.server = server;
    this.tool = tool;
    this.contextValue = contract === undefined ? "tool" : "tool;contract";
    this.description = [...badgesOf(tool), ...(contract === undefined ? [] : [`contract, ${contract}`])].join(" · ");
    this.iconPath = lossIcons[loss];
    this.tooltip = toolTooltip(tool, loss, contract);
    this.accessibilityInformation = {
      label: `Tool ${tool.name}, ${this.description}. If its answer were lost: ${whatIfLostWords[loss]}`,
    };
  }
}

/** A server that is defined but not hosted now. */
export class WaitingNode extends ViewNode {
  readonly waiting: WaitingServer;

  constructor(waiting: WaitingServer) {
    super(`waiting/${waiting.name}/${waiting.source}`, waiting.name);
    this.waiting = waiting;
    this.contextValue = `waiting;${waiting.why}`;
    this.description = [waitingWords[waiting.why], ...originText(waiting.origin)].join(", ");
    this.iconPath = waitingIcons[waiting.why];
    this.tooltip = waiting.reason;
    if (waiting.why === "workspace-trust") this.command = { title: "Manage Workspace Trust", command: "workbench.trust.manage" };
    else if (waiting.why === "input")
      this.command = { title: "Enter Value and Start", command: "mcpSafeReplay.startServer", arguments: [waiting.name] };
    this.accessibilityInformation = { label: `Server ${waiting.name}, ${this.description}. ${waiting.reason}` };
  }
}

const waitingIcons: Readonly<Record<WaitingServer["why"], ReturnType<typeof icon>>> = {
  "workspace-trust": icon("workspace-untrusted", "list.warningForeground"),
  input: icon("key", "list.warningForeground"),
  "name-taken": icon("warning", "list.warningForeground"),
};

/** "workspace" for a server of the workspace's, nothing for the person's own. */
function originText(origin: Origin | undefined): string[] {
  return origin === undefined || origin === "user" ? [] : ["workspace"];
}

type ServersNode = ServerNode | ToolNode | WaitingNode | ClientsNode | ClientNode;

export class ServersView implements TreeDataProvider<ServersNode>, Disposable {
  readonly #host: CoreHost;
  readonly #trust: Trust;
  readonly #clients: OtherClients;
  readonly #rehearsals: Rehearsals;
  readonly #disposables = new DisposableList();
  readonly #changed = this.#disposables.add(new EventEmitter<undefined>());
  readonly onDidChangeTreeData: Event<undefined> = this.#changed.event;
  readonly #view: TreeView<ServersNode>;

  constructor(host: CoreHost, trust: Trust, settings: Settings, rehearsals: Rehearsals, clients: OtherClients) {
    this.#host = host;
    this.#trust = trust;
    this.#clients = clients;
    this.#disposables.add(clients.onDidChange(() => this.refresh()));
    this.#rehearsals = rehearsals;
    this.#view = this.#disposables.add(
      window.createTreeView<ServersNode>(serversViewId, {
        treeDataProvider: this,
        showCollapseAll: true,
        manageCheckboxStateManually: true,
      }),
    );
    for (const event of [host.onDidChangeState, host.onDidChangeServers, trust.onDidChange, rehearsals.onDidRehearse]) {
      this.#disposables.add(event(() => this.refresh()));
    }
    this.#disposables.add(settings.onDidChange(() => this.refresh()));
    this.#disposables.add(
      this.#view.onDidChangeCheckboxState(({ items }) => {
        for (const [node, state] of items) {
          if (node instanceof ServerNode) void this.#switchTrust(node.server.name, state === TreeItemCheckboxState.Checked);
        }
      }),
    );
  }

  refresh(): void {
    const names = [...(this.#host.running?.core.servers.keys() ?? [])];
    const { waiting } = this.#host;
    const count = names.length + waiting.length;
    void commands.executeCommand("setContext", countContext, count);
    void commands.executeCommand(
      "setContext",
      trustContext,
      names.some((name) => this.#trust.of(name).trusted),
    );
    this.#view.message =
      this.#host.problem ??
      (count > 0 && !this.#trust.workspaceTrusted()
        ? "Restricted Mode: nothing is replayed, and every call counts as one that may change something." +
          (waiting.some(({ why }) => why === "workspace-trust") ? " Servers of the workspace do not start." : "") +
          " Trust the workspace to change that."
        : "");
    this.#changed.fire(undefined);
  }

  async #switchTrust(server: string, trusted: boolean): Promise<void> {
    try {
      await (trusted ? this.#trust.grant(server) : this.#trust.revoke(server));
    } catch (error) {
      void window.showErrorMessage(
        messageFor(error) ?? "The trust could not be written to your user settings. Is there a mistake in settings.json?",
      );
    }
    this.refresh(); // the checkbox shows what is so, not what was clicked
  }

  getTreeItem(node: ServersNode): ServersNode {
    return node;
  }

  resolveTreeItem(_item: TreeItem, node: ServersNode): ServersNode {
    if (node instanceof ServerNode) node.resolve();
    return node;
  }

  getChildren(node?: ServersNode): ServersNode[] {
    const running = this.#host.running;
    if (running === undefined) return [];
    if (node instanceof ToolNode || node instanceof WaitingNode || node instanceof ClientNode) return [];
    if (node instanceof ClientsNode) return node.clients.map((client) => new ClientNode(client, Date.now()));
    if (node instanceof ServerNode) {
      const { server } = node;
      const trust = this.#trust.now(server.name);
      const settings = replaySettings(running.engine.defaultReplaySettings);
      return server.tools.map((tool) => {
        const contract = this.#host.contract(server.name, tool.name);
        const loss = running.engine.whatIfLost(tool, trust, settings, contract);
        return new ToolNode(server, tool, loss, this.#rehearsals.words(server.name, tool.name));
      });
    }
    const now = Date.now();
    const clients = this.#clients.list();
    return [
      ...[...running.core.servers.values()].map(
        (server) => new ServerNode(server, this.#trust, this.#host.originOf(server.name), now),
      ),
      ...this.#host.waiting.map((waiting) => new WaitingNode(waiting)),
      ...(clients.length === 0 ? [] : [new ClientsNode(clients)]),
    ];
  }

  dispose(): void {
    this.#disposables.dispose();
  }
}

/** What the tool declares, in a word or two. */
export function badgesOf(tool: ListedTool): string[] {
  const hints = annotationsOf(tool);
  if (isContradictory(hints)) return ["contradictory"];
  const badges = [hints.readOnlyHint === true ? "read" : "write"];
  if (hints.idempotentHint === true) badges.push("idempotent");
  return badges;
}

function serverTooltip(server: HostedServer, trust: Trust, origin: Origin | undefined, now: number): MarkdownString {
  const { status, name } = server;
  const text = new MarkdownString(undefined, true);
  const line = (title: string, value: string): void => {
    addText(text.appendMarkdown(`\n- ${title}: `), value);
  };
  text.appendMarkdown("**").appendText(name).appendMarkdown("**\n");
  const { health } = server;
  const since = now - status.since < 60_000 ? "just now" : `since ${agoText(status.since, now)}`;
  line("State", `${status.state === "failed" ? serverStateWords.failed : stateText(status, now)} (${since})`);
  if (status.reason !== undefined) line("Why", status.reason);
  line("That means", stateMeanings[status.state]);
  const facts = status.facts ?? server.remembered?.facts;
  if (facts !== undefined) {
    const { serverInfo, transport, protocolVersion } = facts;
    line("Server", `${serverInfo.name} ${serverInfo.version}`);
    line("Protocol", `${protocolVersion} over ${transport}`);
  }
  const latency = latencyText(health, now);
  if (latency !== undefined) line("Latest answer after", latency);
  line("Reconnects", reconnectsText(health, now));
  if (server.authorisation?.need !== undefined) line("Authorisation", "needed: choose Authorise… in this row");
  else if (server.authorisation?.authorised === true)
    line("Authorisation", "given in the browser, kept in VS Code's secret storage");
  line("Defined in", origin === undefined || origin === "user" ? "your settings" : `the workspace (${origin.folder})`);
  line("Definition", definitionWords(server.definition));
  const verdict = trust.of(name);
  line(
    "Trust for replay",
    verdict.trusted
      ? trust.workspaceTrusted()
        ? "trusted"
        : "trusted, but the workspace is not: nothing is replayed"
      : verdict.why === "definition-changed"
        ? "suspended: the definition changed since you trusted it. Check the box to trust it as it is now"
        : verdict.why === "no-consent"
          ? "switched on in the settings, but never confirmed here. Check the box to confirm it"
          : "not trusted",
  );
  return text;
}

function toolTooltip(tool: ListedTool, loss: WhatIfLost, contract: string | undefined): MarkdownString {
  const text = new MarkdownString(undefined, true);
  const title = toolTitle(tool);
  addText(text.appendMarkdown("**"), title === undefined ? tool.name : `${title} (${tool.name})`).appendMarkdown("**\n\n");
  if (tool.description !== undefined) addText(text, shortened(tool.description)).appendMarkdown("\n\n");
  const declared = Object.entries(annotationsOf(tool)).map(([name, value]) => `${name}: ${String(value)}`);
  addText(text.appendMarkdown("Declares: "), declared.length === 0 ? "nothing" : declared.join(", "));
  if (contract !== undefined) addText(text.appendMarkdown("\n\nContract: "), contract);
  addText(text.appendMarkdown("\n\n**If its answer were lost now:** "), whatIfLostWords[loss]);
  return text;
}

function shortened(text: string): string {
  return text.length <= 400 ? text : `${text.slice(0, 399)}…`;
}
