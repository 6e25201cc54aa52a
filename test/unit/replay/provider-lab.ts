/**
 * Owns: a whole core (journal file, hosted server, call manager) at a provider simulator over real HTTP or stdio, with time, trust and
 * contracts in the test's hand.
 * Leaves to others: the provider (test/servers/providers), what is expected of it.
 */
import { join } from "node:path";
import { createCore, type Core } from "../../../src/gateway/core.ts";
import type { ServerDefinition, StdioDefinition } from "../../../src/hosting/definitions.ts";
import type { Operation } from "../../../src/operations/model.ts";
import { operationMetaKey } from "../../../src/replay/answers.ts";
import type { CallAnswer, OperationMark } from "../../../src/replay/calls.ts";
import { promiseNames, readContracts, type Contracts } from "../../../src/replay/contracts.ts";
import { defaultReplaySettings } from "../../../src/replay/settings.ts";
import { TestClock } from "../../faults/support/clock.ts";
import { repositoryRoot } from "../../support/paths.ts";
import { temporaryFolder } from "../../support/temp.ts";
import { startHttpProvider, type HttpProvider } from "../../servers/providers/http-provider.ts";
import { Provider, type ProviderFaults, type ProviderOptions } from "../../servers/providers/provider.ts";
import type { Said } from "../../servers/providers/tools.ts";
import { Ledger } from "../../servers/ledger.ts";

type Fields = Record<string, unknown>;

const promises = Object.fromEntries(promiseNames.map((name) => [name, true]));

/** What the provider's documentation promises, as a person writes it down. */
export const prevention = {
  keyArgument: "/requestKey",
  suppliedBy: "gateway",
  retentionSeconds: 86_400,
  promises,
  running: "status == 'running'",
  otherPayload: "status == 'other-payload'",
} as const;

/** The same without one of the promises. */
export const preventionWithout = (name: string) => ({ ...prevention, promises: { ...promises, [name]: false } });

export const lookup = {
  tool: "find_booking",
  arguments: { requestKey: "{{key}}" },
  effect: "status == 'found'",
  noEffect: "status == 'none'",
  sameAs: { "/hotel": "booking.hotel", "/night": "booking.night", "/guest": "booking.guest" },
  consistentAfterSeconds: 0,
  recordsKeptSeconds: 30 * 86_400,
  count: "length(bookings)",
} as const;

export const booking = { hotel: "Grand", night: "2026-12-24", guest: "Ada" };

export interface LabOptions {
  readonly faults?: ProviderFaults;
  readonly said?: Said;
  readonly meetMs?: number;
  readonly provider?: Partial<ProviderOptions>;
  readonly trusted?: boolean;
}

export class ProviderLab {
  readonly clock = new TestClock();
  readonly core: Core;
  readonly provider: Provider;
  readonly http: HttpProvider | undefined;
  readonly ledger: Ledger;
  readonly log: string[];
  readonly folder: string;
  trusted: boolean;
  #contracts: Contracts = new Map();
  readonly #remove: () => void;

  private constructor(
    parts: Pick<ProviderLab, "core" | "provider" | "http" | "ledger" | "log" | "folder" | "trusted" | "clock">,
    remove: () => void,
  ) {
    this.core = parts.core;
    this.provider = parts.provider;
    this.http = parts.http;
    this.ledger = parts.ledger;
    this.log = parts.log;
    this.folder = parts.folder;
    this.trusted = parts.trusted;
    this.clock = parts.clock;
    this.#remove = remove;
  }

  /** A provider in this process, over HTTP. */
  static async http(options: LabOptions = {}): Promise<ProviderLab & { readonly http: HttpProvider }> {
    const clock = new TestClock();
    const folder = temporaryFolder();
    const { path } = folder;
    const ledger = new Ledger(join(path, "ledger"), { server: "provider", sync: false });
    const provider = new Provider({
      ledger,
      now: () => clock.now(),
      faults: options.faults ?? {},
      meetMs: options.meetMs ?? 0,
      ...options.provider,
    });
    const http = await startHttpProvider(provider, options.said);
    const lab = await ProviderLab.#open(
      { clock, folder, ledger, provider, http, options },
      { type: "http", url: http.url, headers: {} },
    );
    return lab as ProviderLab & { readonly http: HttpProvider };
  }

  /** A provider behind a process that can be restarted. */
  static async stdio(options: LabOptions = {}): Promise<ProviderLab> {
    const clock = new TestClock();
    const folder = temporaryFolder();
    const { path } = folder;
    const ledger = new Ledger(join(path, "ledger"), { server: "provider", sync: false });
    const provider = new Provider({ ledger });
    return ProviderLab.#open({ clock, folder, ledger, provider, http: undefined, options }, stdioDefinition(ledger, options));
  }

  static async #open(
    made: {
      readonly clock: TestClock;
      readonly folder: ReturnType<typeof temporaryFolder>;
      readonly ledger: Ledger;
      readonly provider: Provider;
      readonly http: HttpProvider | undefined;
      readonly options: LabOptions;
    },
    definition: ServerDefinition,
  ): Promise<ProviderLab> {
    const { clock, options } = made;
    const { path } = made.folder;
    const log: string[] = [];
    const holder: { lab?: ProviderLab } = {};
    const core = await createCore({
      journalDir: join(path, "journal"),
      listen: { kind: "unix", path: join(path, "s", "gateway") },
      trust: {
        workspaceTrusted: () => true,
        serverTrustSetting: () => holder.lab?.trusted ?? true,
        consentFingerprint: (name) => holder.lab?.core.servers.get(name)?.fingerprint,
      },
      settings: () => defaultReplaySettings,
      contracts: () => holder.lab?.contracts ?? new Map(),
      log: (server, line) => log.push(`${server ?? "-"} ${line.text}`),
      clientInfo: { name: "provider-tests", version: "1" },
      clock,
      random: () => 0.01,
    });
    const { provider, http, ledger } = made;
    const lab = new ProviderLab(
      { core, provider, http, ledger, log, folder: path, trusted: options.trusted ?? true, clock },
      () => made.folder.remove(),
    );
    holder.lab = lab;
    await core.setDefinitions(new Map([["hotel", definition]]));
    await core.servers.get("hotel")?.connect();
    return lab;
  }

  get contracts(): Contracts {
    return this.#contracts;
  }

  /** The contract for create_booking from now on. */
  contractIs(contract: Fields): void {
    const read = readContracts(
      { hotel: { create_booking: { documentation: "https://provider.example/docs", ...contract } } },
      "contracts",
    );
    if (read.problems.length > 0) throw new Error(JSON.stringify(read.problems));
    this.#contracts = read.contracts;
  }

  async call(args: Fields = booking): Promise<CallAnswer> {
    const answer = await this.core.calls.call(
      {
        server: "hotel",
        tool: "create_booking",
        arguments: args,
        params: { name: "create_booking", arguments: args },
        caller: { client: "agent", conversationId: "one" },
      },
      {},
    );
    answer.delivered();
    return answer;
  }

  async operations(): Promise<readonly Operation[]> {
    return this.core.journal.operations({});
  }

  async only(): Promise<Operation> {
    const [operation, ...more] = await this.operations();
    if (operation === undefined || more.length > 0) throw new Error(`${more.length + (operation ? 1 : 0)} operations`);
    return operation;
  }

  async close(): Promise<void> {
    await this.core.dispose();
    await this.http?.close();
    this.#remove();
  }
}

/** How to start the provider over stdio. */
export function stdioDefinition(ledger: { readonly directory: string }, options: LabOptions = {}): StdioDefinition {
  return {
    type: "stdio",
    command: process.execPath,
    args: [
      join(repositoryRoot, "test", "servers", "providers", "stdio-provider.ts"),
      ...["--ledger", ledger.directory],
      ...["--faults", JSON.stringify(options.faults ?? {}), "--meet", String(options.meetMs ?? 0)],
    ],
    env: {},
  };
}

export function markOf(answer: CallAnswer): OperationMark | undefined {
  const meta = answer.kind === "result" ? (answer.result["_meta"] as Fields | undefined) : undefined;
  return meta?.[operationMetaKey] as OperationMark | undefined;
}
