/**
 * Owns: the two trust gates as VS Code knows them: workspace trust, the person's `serverTrust` setting, and consent records in the
 * extension's state that bind a grant to the fingerprint of a server's definition. Records consent, asks for it, takes it back.
 * Leaves to others: the rules (src/trust/trust.ts). Nothing here keeps a verdict: every question is answered from what is true now.
 */
import { EventEmitter, window, workspace } from "vscode";
import type { Disposable, Event, LogOutputChannel, Memento } from "vscode";
import type { ServerDefinition } from "../hosting/definitions.ts";
import { serverTrust, trustNow } from "../trust/trust.ts";
import type { ServerTrust, TrustNow, TrustSource } from "../trust/trust.ts";
import { changesSince, consentTo, readRecords } from "./consent.ts";
import type { ConsentRecord } from "./consent.ts";
import { DisposableList } from "./disposables.ts";
import { personsEntry, personsValue, isRecord } from "./settings.ts";
import type { Settings } from "./settings.ts";
import { UserError } from "./user-error.ts";
import { definitionWords } from "./words.ts";

/** A server as it is defined now. */
export interface DefinedServer {
  readonly definition: ServerDefinition;
  readonly fingerprint: string;
}

const stateKey = (server: string): string => `consent:${server}`;
/** One definition has another fingerprint in each folder when it uses `${workspaceFolder}`: several grants stand side by side. */
const recordsKept = 32;

export class Trust implements TrustSource, Disposable {
  readonly #settings: Settings;
  readonly #state: Memento;
  readonly #log: LogOutputChannel;
  readonly #disposables = new DisposableList();
  readonly #changed = this.#disposables.add(new EventEmitter<void>());
  /** A gate may have opened or closed for some server. */
  readonly onDidChange: Event<void> = this.#changed.event;
  #servers: ReadonlyMap<string, DefinedServer> = new Map();
  /** Who was switched on in the setting when we last looked: only a change while we watch is a person's act. */
  #switchedOn: ReadonlySet<string>;
  /** Questions asked in this session. */
  readonly #asked = new Set<string>();

  constructor(settings: Settings, state: Memento, log: LogOutputChannel) {
    this.#settings = settings;
    this.#state = state;
    this.#log = log;
    this.#switchedOn = switchedOn();
    this.#disposables.add(
      workspace.onDidGrantWorkspaceTrust(() => {
        this.#changed.fire();
        this.#askWhereNeeded();
      }),
    );
  }

  workspaceTrusted(): boolean {
    return workspace.isTrusted;
  }

  serverTrustSetting(server: string): boolean {
    return personsEntry("serverTrust", server) === true;
  }

  consentFingerprint(server: string): string | undefined {
    const records = this.#records(server);
    const current = this.#servers.get(server)?.fingerprint;
    return (records.find((record) => record.fingerprint === current) ?? records.at(-1))?.fingerprint;
  }

  /** Whether this server is trusted for replay now, and if not, why. */
  of(server: string): ServerTrust {
    const defined = this.#servers.get(server);
    return defined === undefined ? { trusted: false, why: "not-granted" } : serverTrust(this, server, defined.fingerprint);
  }

  /** Both gates for this server, read now. */
  now(server: string): TrustNow {
    return trustNow(this, server, this.#servers.get(server)?.fingerprint ?? "");
  }

  /**
   * To be called with the definitions at the start and after every change of the settings, before the servers run: records the consent
   * of a switch that was just turned on, forgets that of one turned off, and asks where a grant is not bound to this definition.
   */
  async update(servers: ReadonlyMap<string, DefinedServer>): Promise<void> {
    this.#servers = servers;
    const before = this.#switchedOn;
    const now = switchedOn();
    this.#switchedOn = now;
    const on = [...now].filter((name) => !before.has(name));
    const off = [...before].filter((name) => !now.has(name));
    // A person turns one switch. Where several change at once, somebody wrote the setting: they are asked.
    if (on.length === 1 && off.length === 0) await this.#record(on[0] as string);
    for (const name of off) await this.#forget(name);
    this.#changed.fire();
    this.#askWhereNeeded();
  }

  /** A person trusts this server, as it is defined now. */
  async grant(server: string): Promise<void> {
    if (!this.#servers.has(server)) throw new UserError(`There is no server "${server}" to trust.`);
    await this.#settings.setEntry("serverTrust", server, true);
    await this.#record(server);
    this.#changed.fire();
  }

  async revoke(server: string): Promise<void> {
    // The record first: whatever becomes of the setting, the trust is gone.
    await this.#forget(server);
    this.#changed.fire();
    await this.#settings.setEntry("serverTrust", server, false);
    this.#changed.fire();
  }

  /** Whether a person trusted a server of this name, however it was defined: in another workspace, perhaps. */
  hasRecord(server: string): boolean {
    return this.#records(server).length > 0;
  }

  #records(server: string): ConsentRecord[] {
    return readRecords(this.#state.get(stateKey(server)));
  }

  async #record(server: string): Promise<void> {
    const defined = this.#servers.get(server);
    if (defined === undefined) return; // trust for an unknown server binds to nothing; it is asked for once the server exists
    const others = this.#records(server).filter((record) => record.fingerprint !== defined.fingerprint);
    const record = consentTo(defined.definition, defined.fingerprint, Date.now());
    await this.#state.update(stateKey(server), [...others, record].slice(-recordsKept));
    this.#log.info(`"${server}" is trusted for replay as it is defined now.`);
  }

  async #forget(server: string): Promise<void> {
    if (this.#records(server).length === 0) return;
    await this.#state.update(stateKey(server), undefined);
    this.#log.info(`"${server}" is no longer trusted for replay.`);
  }

  #askWhereNeeded(): void {
    if (!workspace.isTrusted) return; // trust has no effect here: no question either
    for (const [name, defined] of this.#servers) {
      const trust = serverTrust(this, name, defined.fingerprint);
      if (trust.trusted || trust.why === "not-granted") continue;
      const question = `${name} ${defined.fingerprint}`;
      if (this.#asked.has(question)) continue;
      this.#asked.add(question);
      void this.#ask(name, defined).catch((error: unknown) => this.#log.error(error instanceof Error ? error : String(error)));
    }
  }

  async #ask(server: string, asked: DefinedServer): Promise<void> {
    const last = this.#records(server).at(-1);
    const what = definitionWords(asked.definition);
    const changes = last === undefined ? [] : changesSince(last, asked.definition);
    const why =
      last === undefined
        ? `Trust for the MCP server "${server}" (${what}) is switched on in your settings but was never confirmed here.`
        : `The definition of the MCP server "${server}" (${what}) is not the one you trusted. Changed: ${changes.join(", ") || "its values"}.`;
    const answer = await window.showWarningMessage(
      `${why} Until you decide, its lost calls are not replayed.`,
      "Trust for Replay",
      "Don't Trust",
    );
    // The question was about this definition: an answer to it is no answer for a later one.
    const stillThat = this.#servers.get(server)?.fingerprint === asked.fingerprint;
    if (answer === "Trust for Replay" && stillThat) await this.grant(server);
    else if (answer === "Don't Trust") await this.revoke(server);
  }

  dispose(): void {
    this.#disposables.dispose();
  }
}

function switchedOn(): ReadonlySet<string> {
  const value = personsValue("serverTrust");
  return new Set(isRecord(value) ? Object.keys(value).filter((name) => value[name] === true) : []);
}
