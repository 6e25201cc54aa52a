/**
 * Owns: the one place that puts the parts together (journal, hosted servers, call manager, gateway), for the extension and the
 * command line program alike.
 * Leaves to others: where settings, trust and log lines come from and go to.
 */
import { join } from "node:path";
import { systemClock, type Clock } from "../clock.ts";
import { memoryGrantStore, type GrantStore } from "../hosting/auth/grant-store.ts";
import { authorisationFor } from "../hosting/auth/server-authorisation.ts";
import { sameDefinition, type ServerDefinition } from "../hosting/definitions.ts";
import { eraFile } from "../hosting/era-file.ts";
import type { HostedServer, ServerLogLine, StartPolicy } from "../hosting/hosted-server.ts";
import type { EraStore } from "../hosting/negotiate.ts";
import { rememberedFile } from "../hosting/remembered-file.ts";
import { createHostedServer } from "../hosting/server-host.ts";
import type { Journal, JournalSettings } from "../operations/journal.ts";
import { openJournal } from "../operations/worker-journal.ts";
import { CallManager } from "../replay/call-manager.ts";
import type { Calls } from "../replay/calls.ts";
import type { DeskOptions } from "../replay/desk.ts";
import { RehearsalError, type Prepared, type RehearsalHooks } from "../replay/rehearsal.ts";
import type { RehearsalReport, RehearsalRequest } from "../replay/rehearsal-plan.ts";
import { withoutKeyArgument, type Contracts } from "../replay/contracts.ts";
import type { ReplaySettings } from "../replay/settings.ts";
import type { TrustSource } from "../trust/trust.ts";
import { agentCapabilities, createGateway, type Gateway, type GatewayToken, type Listen } from "./gateway.ts";
import { LegacyTwins } from "./legacy-twins.ts";
import { planRehearsalOf, rehearseContract, type RehearsalParts } from "./rehearse.ts";

export interface CoreOptions {
  readonly journalDir: string;
  /** What the journal keeps, from the start; later changes: `journal.configure`. Default: everything, for ever. */
  readonly journal?: JournalSettings;
  readonly listen: Listen;
  /** Bearer token for TCP; undefined on a private socket, or when the person asked for none. */
  readonly token?: string;
  /** Further tokens, one for each client that was configured by the person; read at each request. They count only where `token` is given. */
  readonly clientTokens?: () => readonly GatewayToken[];
  readonly trust: TrustSource;
  /** Read at use. */
  readonly settings: () => ReplaySettings;
  /** The user's own; read at use. */
  readonly contracts: () => Contracts;
  /** `server` undefined: the program's own line. Lines hold no tool arguments, secrets or transport text of calls. */
  readonly log: (server: string | undefined, line: ServerLogLine) => void;
  /**
   * When a server is started, where that is said; read at use. Undefined: by whoever asks it something, and nothing of it is remembered.
   * With a policy, agents see what the server listed last without starting it.
   */
  readonly startPolicy?: (server: string) => StartPolicy | undefined;
  /** A server of which nothing is remembered is connected once right away, so that its tools are known. Default: no. */
  readonly discoverNew?: boolean;
  /** Whether a server may be started now: false while the workspace that defines it is not trusted. Read at use. Default: it may. */
  readonly mayStart?: (server: string) => boolean;
  readonly clientInfo: { readonly name: string; readonly version: string };
  /** The agents to come are known to be of the older era and can be asked (VS Code): programs that speak both eras are opened in that one. */
  readonly legacyAgents?: boolean;
  /** Where authorisations at remote servers are kept. Default: in memory. */
  readonly grants?: GrantStore;
  readonly clock?: Clock;
  readonly random?: () => number;
}

export interface Core {
  readonly journal: Journal;
  readonly calls: Calls;
  readonly servers: ReadonlyMap<string, HostedServer>;
  readonly gateway: Gateway;
  /** Hosts exactly these servers: new ones are added, missing ones end, changed ones are restarted, the rest is left alone. */
  setDefinitions(definitions: ReadonlyMap<string, ServerDefinition>): Promise<void>;
  /**
   * What a rehearsal of a tool's contract would do; calls nothing.
   * @throws RehearsalError
   */
  planRehearsal(request: RehearsalRequest): Promise<Prepared>;
  /**
   * Puts a contract's promises to the test, on a server of its own. `agreed` is what the person typed: the plan's phrase.
   * @throws RehearsalError before anything was called
   */
  rehearse(request: RehearsalRequest, agreed: string, hooks: RehearsalHooks): Promise<RehearsalReport>;
  /** Any server's status or tools, or the set of servers, changed. */
  onDidChangeServers(listener: () => void): () => void;
  dispose(): Promise<void>;
}

/**
 * Starts the gateway. A journal that cannot be opened does not stop it: its `problem` says why calls are refused.
 * @throws GatewayError when the socket or port cannot be had
 */
export async function createCore(options: CoreOptions): Promise<Core> {
  const clock = options.clock ?? systemClock;
  const random = options.random ?? Math.random;
  const journal = await openJournal({ ...options.journal, directory: options.journalDir }, (why) =>
    options.log(undefined, {
      level: "warning",
      text: `the journal works without a thread of its own (${why}): a slow disk holds up everything else. Install MCP Safe Replay again.`,
    }),
  );
  const servers = new Map<string, HostedServer>();
  const listeners = new Set<() => void>();
  const changed = (): void => {
    for (const listener of listeners) listener();
  };
  const desk: DeskOptions = {
    journal,
    servers: () => servers,
    trust: options.trust,
    settings: options.settings,
    contracts: options.contracts,
    clock,
    random,
    log: (server, text) => options.log(server === "" ? undefined : server, { level: "info", text }),
  };
  const calls = new CallManager(desk);

  const hosting = { clock, random, clientInfo: options.clientInfo, capabilities: agentCapabilities };
  const grants = options.grants ?? memoryGrantStore();
  const twins = new LegacyTwins(
    ({ name, definition, authorisation }) => {
      const eraStore: EraStore = { get: () => "2025-11-25", set: () => undefined };
      const twin = createHostedServer({ ...hosting, name, definition, eraStore, authorisation });
      onNewConnection(twin, () => void calls.revisit(twin));
      twin.onLog((line) => options.log(name, line));
      return twin;
    },
    (name, text) => options.log(name, { level: "info", text }),
  );

  const { token } = options;
  let gateway: Gateway;
  try {
    gateway = await createGateway({
      listen: options.listen,
      ...(token === undefined ? { noToken: true } : { tokens: () => [token, ...(options.clientTokens?.() ?? [])] }),
      servers: () => servers,
      forLegacy: (server) => twins.of(server),
      calls,
      trust: options.trust,
      shownTool: (server, tool) => withoutKeyArgument(tool, options.contracts().get(server)?.get(tool.name)),
      log: (line) => options.log(undefined, line),
    });
  } catch (error) {
    await journal.close();
    throw error;
  }

  const eras = eraFile(join(options.journalDir, "eras.json"));
  const legacyFirst = (fingerprint: string): boolean =>
    twins.programs.wished(fingerprint) || (options.legacyAgents === true && eras.get(fingerprint) === undefined);
  const eraStore: EraStore = {
    get: (fingerprint) => eras.get(fingerprint),
    set: (fingerprint, era) => eras.set(fingerprint, era),
    preferred: (fingerprint) => (legacyFirst(fingerprint) ? "2025-11-25" : undefined),
  };
  /** Servers that are to be started or asked once they are all there. */
  let begin: (() => void)[] = [];
  const remembered = rememberedFile(join(options.journalDir, "tools.json"));
  const add = (name: string, definition: ServerDefinition, predecessor: Promise<unknown> | undefined): void => {
    const policy = (): StartPolicy | undefined => options.startPolicy?.(name);
    const authorisation = authorisationFor(definition, grants, clock, (level, text) => options.log(name, { level, text }));
    const server = createHostedServer({
      ...hosting,
      name,
      definition,
      eraStore,
      authorisation,
      ...(predecessor === undefined ? {} : { predecessor }),
      startPolicy: () => policy() ?? "onUse",
      mayStart: () => options.mayStart?.(name) ?? true,
      remembered: {
        get: (fingerprint) => (policy() === undefined ? undefined : remembered.get(fingerprint)),
        set: (fingerprint, kept) => {
          if (policy() !== undefined) remembered.set(fingerprint, kept);
        },
      },
    });
    authorisation?.onDidChange(() => {
      // Authorised, here or in another window: what waited for it goes on.
      if (authorisation.authorised && authorisation.need === undefined && server.status.state === "needs-authorisation")
        void server.start().catch(() => undefined);
      changed();
    });
    // What was lost before may be found now: by its cursor, its task, or the contract's lookup.
    onNewConnection(server, () => void calls.revisit(server));
    server.onDidChange(changed);
    server.onDidChangeTools(changed);
    server.onLog((line) => options.log(name, line));
    servers.set(name, server);
    const discover = options.discoverNew === true && policy() === "onUse" && server.remembered === undefined;
    // How it went is its own status, and in its log.
    if (policy() === "onStartup") begin.push(() => void server.start().catch(() => undefined));
    else if (discover) begin.push(() => void server.connect().catch(() => undefined));
  };

  const rehearsalParts = (name: string): RehearsalParts => {
    const server = servers.get(name);
    if (server === undefined) throw new RehearsalError("unknown-server", `There is no hosted server named '${name}'.`);
    const { definition, authorisation } = server;
    return { desk, server: { definition, authorisation, clientInfo: options.clientInfo } };
  };

  return {
    journal,
    calls,
    servers,
    gateway,
    planRehearsal: async (request) => planRehearsalOf(rehearsalParts(request.server), request, servers.get(request.server)),
    rehearse: async (request, agreed, hooks) => rehearseContract(rehearsalParts(request.server), request, agreed, hooks),
    async setDefinitions(definitions) {
      const ending = new Map<string, Promise<unknown>>();
      for (const [name, server] of servers) {
        const wanted = definitions.get(name);
        if (wanted !== undefined && sameDefinition(wanted, server.definition)) continue;
        servers.delete(name);
        server.authorisation?.dispose();
        ending.set(name, Promise.all([twins.drop(server), server.dispose()]));
      }
      for (const [name, definition] of definitions) {
        const kept = servers.get(name);
        if (kept === undefined) add(name, definition, ending.get(name));
        // In the order of the definitions, whenever each of them came.
        else if (servers.delete(name)) servers.set(name, kept);
      }
      gateway.serversChanged();
      changed();
      const starting = begin;
      begin = [];
      for (const start of starting) start();
      await Promise.all(ending.values());
      // An answer that can still be fetched is worth a connection; a failure to make one shows in the server's status.
      for (const name of await calls.serversToRevisit())
        void servers
          .get(name)
          ?.connect()
          .catch(() => undefined);
    },
    onDidChangeServers(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    async dispose() {
      listeners.clear();
      // The servers end first, so that every call still under way is answered before its caller's connection is closed.
      calls.stopFurtherAttempts();
      for (const server of servers.values()) server.authorisation?.dispose();
      await Promise.all([twins.dispose(), ...[...servers.values()].map((server) => server.dispose())]);
      await gateway.close();
      await calls.dispose();
      servers.clear();
      await journal.close();
    },
  };
}

/** Calls back for each connection that is made; not when a doubt about one is over. */
function onNewConnection(server: HostedServer, made: () => void): void {
  let last: string | undefined;
  server.onDidChange(() => {
    const id = server.connection?.connectionId;
    if (id === undefined || id === last) return;
    last = id;
    made();
  });
}
