/**
 * Owns: the life of the core in this window: loading it after activation, building it, feeding it the definitions in the settings, and
 * the one clear message when it cannot run.
 * Leaves to others: what the core does (src/gateway/core.ts), showing states (views), reading settings (settings.ts).
 */
import { randomBytes } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { EventEmitter, commands, version, window, workspace } from "vscode";
import type { Disposable, Event, ExtensionContext } from "vscode";
import type { Core } from "../gateway/core.ts";
import type { GatewayToken } from "../gateway/gateway.ts";
import type { GrantStore } from "../hosting/auth/grant-store.ts";
import type { Contract, Contracts } from "../replay/contracts.ts";
import { DisposableList } from "./disposables.ts";
import { makeEndpoint } from "./endpoint.ts";
import type { Endpoint } from "./endpoint.ts";
import type { Logs } from "./logs.ts";
import type { Problems } from "./problems.ts";
import { journalSettings, personsValue, replaySettingProblems, replaySettings, section, trustProblems } from "./settings.ts";
import type { Settings } from "./settings.ts";
import type { GatheredServers, Origin, ServerSources, WaitingServer } from "./sources/server-sources.ts";
import type { DefinedServer, Trust } from "./trust-source.ts";
import { UserError, messageFor } from "./user-error.ts";

export type Engine = typeof import("./engine.ts");

/** The core while it runs, and what belongs to it. */
export interface Running {
  readonly core: Core;
  readonly engine: Engine;
  readonly endpoint: Endpoint;
  readonly journalDir: string;
  /** The bearer token that the gateway asks for. Lives in this process only. */
  readonly token: string;
}

export type CoreState =
  | { readonly kind: "starting" }
  | ({ readonly kind: "running" } & Running)
  | { readonly kind: "failed"; readonly message: string };

/** Context key: "starting", "running" or "failed". */
const stateContext = `${section}.state`;

export interface CoreHostParts {
  readonly context: ExtensionContext;
  readonly settings: Settings;
  readonly sources: ServerSources;
  readonly trust: Trust;
  readonly problems: Problems;
  readonly logs: Logs;
  /** The secrets of clients outside of VS Code; read at each request. */
  readonly clientTokens: () => readonly GatewayToken[];
  /** Where authorisations at remote servers are kept. */
  readonly grants: GrantStore;
}

export class CoreHost implements Disposable {
  readonly #parts: CoreHostParts;
  readonly #disposables = new DisposableList();
  readonly #stateChanged = this.#disposables.add(new EventEmitter<void>());
  readonly #serversChanged = this.#disposables.add(new EventEmitter<void>());
  readonly #operationsChanged = this.#disposables.add(new EventEmitter<void>());
  readonly onDidChangeState: Event<void> = this.#stateChanged.event;
  /** The set of servers, or the state or tools of one. */
  readonly onDidChangeServers: Event<void> = this.#serversChanged.event;
  /** The journal changed, by this window or another. */
  readonly onDidChangeOperations: Event<void> = this.#operationsChanged.event;
  #state: CoreState = { kind: "starting" };
  /** The person's contracts, as of the last change of the settings. */
  #contracts: Contracts = new Map();
  /** The same as they are written. */
  #contractsText = "{}";
  #gathered: GatheredServers | undefined;
  #start: Promise<void> | undefined;
  readonly #announced = new Map<string, boolean>();
  /** What the journal keeps, as of the last change of the settings. */
  #journalText = "";
  /** What the journal had to say was told. */
  readonly #toldNotices = new Set<string>();
  #toldProblem: string | undefined;
  /** The settings changed while the core was starting. */
  #changedMeanwhile = false;
  /** One change of the definitions after the other. */
  #applying: Promise<void> = Promise.resolve();
  #ended: Promise<void> | undefined;

  constructor(parts: CoreHostParts) {
    this.#parts = parts;
    void commands.executeCommand("setContext", stateContext, "starting");
    this.#disposables.add(parts.settings.onDidChange(() => this.#applySettings()));
    this.#disposables.add(parts.trust.onDidChange(() => this.#announceTrust()));
    this.#disposables.add(parts.sources.onDidChange(() => this.#applySettings()));
  }

  get state(): CoreState {
    return this.#state;
  }

  /** The core, if it runs now. */
  get running(): Running | undefined {
    return this.#state.kind === "running" ? this.#state : undefined;
  }

  /** The person's contracts that count now. */
  get contracts(): Contracts {
    return this.#contractsNow();
  }

  /** The person's contract for a tool, if there is one that counts now. */
  contract(server: string, tool: string): Contract | undefined {
    return this.#contractsNow().get(server)?.get(tool);
  }

  /** Servers that are defined but not hosted now. */
  get waiting(): readonly WaitingServer[] {
    return this.#gathered?.waiting ?? [];
  }

  /** Where a hosted server is defined. */
  originOf(server: string): Origin | undefined {
    return this.#gathered?.origins.get(server);
  }

  /** Reads the definitions again, and with them what they refer to (an env file, a value that was entered). Rejects when that fails. */
  async reload(): Promise<void> {
    const running = await this.ready();
    const done = this.#applying.then(() => this.#apply(running));
    this.#applying = done.catch(() => undefined);
    await done;
  }

  /** Contracts are the person's, written for the person's servers: one of a workspace's that took such a name has to be trusted first. */
  #contractsNow(): Contracts {
    const { trust } = this.#parts;
    return new Map([...this.#contracts].filter(([server]) => this.originOf(server) === "user" || trust.of(server).trusted));
  }

  /** The core, once it runs. Starts it when nobody has yet. Rejects with `UserError` when it cannot run. */
  async ready(): Promise<Running> {
    await this.start();
    if (this.#state.kind === "running") return this.#state;
    throw new UserError(this.#state.kind === "failed" ? this.#state.message : "MCP Safe Replay has ended.");
  }

  /** Starts the core, once. Never rejects: a failure becomes the state. */
  start(): Promise<void> {
    this.#start ??= this.#run();
    return this.#start;
  }

  /** What stands in the way, in words: the core did not start, or its journal cannot be written and calls are refused. */
  get problem(): string | undefined {
    return this.#state.kind === "failed" ? this.#state.message : this.running?.core.journal.problem?.message;
  }

  /** Tries again after a failure. Does nothing while all is well. */
  async retry(): Promise<void> {
    await this.start();
    if (this.problem === undefined) return;
    const old = this.running;
    this.#toldProblem = undefined;
    this.#setState({ kind: "starting" });
    this.#start = (async () => {
      await old?.core.dispose();
      await old?.endpoint.remove();
      await this.#run();
    })();
    await this.#start;
  }

  async #run(): Promise<void> {
    if (this.#ended !== undefined) return;
    const { context, logs } = this.#parts;
    let endpoint: Endpoint | undefined;
    let core: Core | undefined;
    try {
      const engine = await import("./engine.ts");
      const journalDir = join(context.globalStorageUri.fsPath, "journal");
      await makePrivateFolder(journalDir);
      endpoint = await makeEndpoint();
      const token = randomBytes(32).toString("base64url");
      const journal = journalSettings();
      this.#journalText = JSON.stringify(journal);
      core = await engine.createCore({
        journalDir,
        journal,
        listen: { kind: "unix", path: endpoint.path },
        // VS Code's MCP client speaks 2025-11-25, and the servers are started before it asks.
        legacyAgents: true,
        token,
        clientTokens: this.#parts.clientTokens,
        grants: this.#parts.grants,
        trust: this.#parts.trust,
        settings: () => replaySettings(engine.defaultReplaySettings),
        contracts: () => this.#contractsNow(),
        startPolicy: (name) => this.#gathered?.starts.get(name) ?? "onUse",
        discoverNew: true,
        // What is gathered in Restricted Mode has none of the workspace's in it; this holds at the moment of use as well.
        mayStart: (name) => workspace.isTrusted || this.originOf(name) === "user",
        log: (server, line) => logs.write(server, line),
        clientInfo: {
          name: "mcp-safe-replay",
          version: (context.extension.packageJSON as { version: string }).version,
        },
      });
      if (this.#ended !== undefined) throw new UserError("MCP Safe Replay has ended.");
      const running: Running = { core, engine, endpoint, journalDir, token };
      this.#disposables.addCallback(core.onDidChangeServers(() => this.#serversChanged.fire()));
      this.#disposables.addCallback(
        core.journal.onDidChange(() => {
          this.#tellOfJournal(running);
          this.#operationsChanged.fire();
        }),
      );
      await this.#apply(running);
      this.#setState({ kind: "running", ...running });
      if (this.#changedMeanwhile) this.#applySettings();
      logs.extension.info(`Ready, in VS Code ${version}, listening on ${core.gateway.listening}.`);
      this.#tellOfJournal(running);
    } catch (error) {
      await core?.dispose().catch(() => undefined);
      await endpoint?.remove().catch(() => undefined);
      if (this.#ended === undefined) this.#fail(error);
    }
  }

  /** Says once what the journal has to say, and what came to stand in its way; both can change while it runs. */
  #tellOfJournal({ core }: Running): void {
    if (this.running?.core !== core) return;
    const { notice } = core.journal;
    const problem = core.journal.problem?.message;
    if (notice !== undefined && !this.#toldNotices.has(notice)) {
      this.#toldNotices.add(notice);
      this.#parts.logs.extension.warn(notice);
      void window.showWarningMessage(notice);
    }
    if (problem === this.#toldProblem) return;
    this.#toldProblem = problem;
    if (problem === undefined) this.#parts.logs.extension.info("The operation journal can be written again.");
    else {
      this.#parts.logs.extension.error(problem);
      this.#report(problem);
    }
    this.#stateChanged.fire();
  }

  #fail(error: unknown): void {
    const message = messageFor(error) ?? "MCP Safe Replay could not start. Its log says why.";
    this.#parts.logs.extension.error(error instanceof Error ? error : String(error));
    this.#setState({ kind: "failed", message });
    this.#report(message);
  }

  #report(message: string): void {
    void window.showErrorMessage(message, "Try Again", "Show Log").then((choice) => {
      if (choice === "Try Again") void this.retry();
      else if (choice === "Show Log") this.#parts.logs.show();
    });
  }

  #setState(state: CoreState): void {
    this.#state = state;
    void commands.executeCommand("setContext", stateContext, state.kind);
    this.#stateChanged.fire();
  }

  #applySettings(): void {
    const running = this.running;
    this.#changedMeanwhile = running === undefined;
    if (running === undefined) return;
    this.#applying = this.#applying
      .then(() => this.#apply(running))
      .catch((error: unknown) => {
        this.#parts.logs.extension.error(error instanceof Error ? error : String(error));
        void window.showErrorMessage(messageFor(error) ?? "The changed settings could not be applied. The log says why.");
      });
  }

  /** Agents see other tools when a server's trust changed: the gateway leaves out what may not be believed. */
  #announceTrust(): void {
    const running = this.running;
    if (running === undefined) return;
    for (const name of running.core.servers.keys()) {
      const now = this.#parts.trust.now(name);
      const trusted = now.workspace && now.server;
      if (this.#announced.get(name) === trusted) continue;
      this.#announced.set(name, trusted);
      running.core.gateway.announceTools(name);
    }
  }

  /** Reads the definitions, tells trust about them first, then the core; shows every mistake. */
  async #apply({ core, engine }: Running): Promise<void> {
    const { settings, sources, trust, problems, logs } = this.#parts;
    const gathered = await sources.gather(engine);
    this.#gathered = gathered;
    const { definitions, names } = gathered;
    const defined = new Map<string, DefinedServer>();
    for (const [name, definition] of definitions)
      defined.set(name, { definition, fingerprint: engine.fingerprintOf(definition) });
    // First, because VS Code shows three messages at a time: a question of trust matters most.
    await trust.update(defined);
    const read = engine.readContracts(personsValue("contracts"), `${section}.contracts`, names);
    const changed = JSON.stringify(personsValue("contracts") ?? {}) !== this.#contractsText;
    this.#contractsText = JSON.stringify(personsValue("contracts") ?? {});
    this.#contracts = read.contracts;
    // Agents do not see an argument that a contract has the gateway fill in.
    if (changed) core.gateway.announceTools();
    problems.show([
      ...gathered.problems,
      ...trustProblems({ has: (name) => names.has(name) || trust.hasRecord(name) }),
      ...read.problems.map((mistake) => ({ ...mistake, open: "contracts" as const })),
      ...replaySettingProblems(),
    ]);
    problems.warnOfForeignValues();
    problems.warnOfWaiting(gathered.waiting);
    const journal = journalSettings();
    if (JSON.stringify(journal) !== this.#journalText) {
      this.#journalText = JSON.stringify(journal);
      core.journal.configure(journal);
    }
    await core.setDefinitions(definitions);
    logs.keepOnly(names);
    this.#serversChanged.fire();
    // Not awaited: it only makes rows in the Settings UI, and fails when settings.json has a mistake that VS Code itself reports.
    void settings.listForTrust([...definitions.keys()], (name) => trust.hasRecord(name)).catch(() => undefined);
  }

  /** Ends the core: stops the servers and closes the journal. */
  end(): Promise<void> {
    this.#ended ??= this.#end();
    return this.#ended;
  }

  async #end(): Promise<void> {
    this.#disposables.dispose();
    await this.#start;
    await this.#applying;
    const running = this.running;
    await running?.core.dispose();
    await running?.endpoint.remove();
  }

  dispose(): void {
    void this.end();
  }
}

async function makePrivateFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
  } catch {
    throw new UserError(
      `MCP Safe Replay cannot write to ${folder}, where it keeps its operation journal. Make that folder writable, then try again.`,
    );
  }
}
