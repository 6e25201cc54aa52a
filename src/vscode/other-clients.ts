/**
 * Owns: the clients outside of VS Code that the person let in: one secret for each, when it was last seen, the port that they may use, and
 * the place where the stdio bridge finds this window.
 * Leaves to others: letting in (src/gateway), asking the person (actions/other-clients.ts), showing them (views).
 */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { EventEmitter, window } from "vscode";
import type { Disposable, Event, ExtensionContext, LogOutputChannel } from "vscode";
import type { GatewayToken, TcpDoor } from "../gateway/gateway.ts";
import type { CoreHost, Running } from "./core-host.ts";
import { usesToKeep, type Uses } from "./client-uses.ts";
import { DisposableList } from "./disposables.ts";
import { writeLauncher } from "./launcher.ts";
import { isRecord, personsValue } from "./settings.ts";
import type { Settings } from "./settings.ts";
import { messageFor } from "./user-error.ts";

/** A client that was let in. */
export interface OtherClient {
  /** Unique; shown. */
  readonly name: string;
  /** Milliseconds since the epoch. */
  readonly since: number;
  /** The latest that any window has seen of it, in milliseconds since the epoch. */
  readonly lastUse: number | undefined;
}

interface Stored {
  readonly name: string;
  readonly token: string;
  readonly since: number;
}

const secretKey = "gatewayClients";
const useKey = "gatewayClientUse";
/** How often it is looked whether a client's last use is to be kept, and how much later than the kept one it must be. Milliseconds. */
const useSavedEveryMs = 10_000;
const useStepMs = 60_000;

export class OtherClients implements Disposable {
  readonly #context: ExtensionContext;
  readonly #log: LogOutputChannel;
  readonly #disposables = new DisposableList();
  readonly #changed = this.#disposables.add(new EventEmitter<void>());
  readonly onDidChange: Event<void> = this.#changed.event;
  #stored: readonly Stored[] = [];
  readonly #loaded: Promise<void>;
  #host: CoreHost | undefined;
  #settled: { readonly running: Running; readonly unannounce: () => Promise<void> } | undefined;
  #door: { readonly wanted: string; readonly door: TcpDoor } | undefined;
  /** One change of the port after the other. */
  #following: Promise<void> = Promise.resolve();

  constructor(context: ExtensionContext, log: LogOutputChannel) {
    this.#context = context;
    this.#log = log;
    this.#loaded = this.#load();
    this.#disposables.add(
      context.secrets.onDidChange(({ key }) => {
        if (key === secretKey) void this.#load();
      }),
    );
  }

  /** Read by the gateway at each request: a revoked client is out at once, in every window. */
  readonly tokens = (): readonly GatewayToken[] => this.#stored.map(({ name, token }) => ({ name, token }));

  /** Follows the core: its port, its place. */
  follow(host: CoreHost, settings: Settings): void {
    this.#host = host;
    const follow = (): void => {
      this.#following = this.#following
        .then(() => this.#follow())
        .catch((error: unknown) => {
          this.#log.error(error instanceof Error ? error : String(error));
        });
    };
    // A window that dies has no last word.
    const saving = setInterval(() => {
      this.#saveUses(useStepMs).catch((error: unknown) => this.#log.error(error instanceof Error ? error : String(error)));
    }, useSavedEveryMs);
    this.#disposables.add({ dispose: () => clearInterval(saving) });
    this.#disposables.add(host.onDidChangeState(follow));
    this.#disposables.add(settings.onDidChange(follow));
  }

  list(): OtherClient[] {
    const now = this.#host?.running?.core.gateway.clients() ?? [];
    const before = this.#uses();
    return this.#stored.map(({ name, since }) => {
      const uses = [before[name], ...now.filter(({ token }) => token === name).map(({ lastUse }) => lastUse)];
      const known = uses.filter((use) => use !== undefined);
      return { name, since, lastUse: known.length === 0 ? undefined : Math.max(...known) };
    });
  }

  /** Where the stdio bridge looks for windows. */
  get meetingPlace(): string {
    return join(this.#context.globalStorageUri.fsPath, "gateways");
  }

  /**
   * The program that a client's configuration starts. It stays where it is when the extension is updated.
   * @throws the file system's error
   */
  launcher(): Promise<string> {
    const { globalStorageUri, extensionUri } = this.#context;
    return writeLauncher(globalStorageUri.fsPath, join(extensionUri.fsPath, "dist", "headless.js"));
  }

  /** The port, if it is open now. */
  async port(): Promise<TcpDoor | undefined> {
    await this.#following;
    return this.#door?.door;
  }

  /**
   * Makes the port that is open now the one that is opened at every start, so that a configuration which names it stays right.
   * @returns the port, when it was not the person's choice already
   * @throws UserError
   */
  async keepPort(settings: Settings): Promise<number | undefined> {
    const door = await this.port();
    const chosen = personsValue("gateway.port");
    if (door === undefined || (typeof chosen === "number" && chosen !== 0)) return undefined;
    const port = Number(new URL(door.listening).port);
    await settings.setPort(port);
    return port;
  }

  /** Lets a client in under this name, or a free one like it. @returns its name and its secret */
  async admit(wanted: string): Promise<{ readonly name: string; readonly token: string }> {
    await this.#loaded;
    const taken = new Set(this.#stored.map(({ name }) => name));
    let name = wanted;
    for (let count = 2; taken.has(name); count += 1) name = `${wanted} ${count}`;
    const token = randomBytes(32).toString("base64url");
    await this.#store([...this.#stored, { name, token, since: Date.now() }]);
    return { name, token };
  }

  /** From now on its secret lets nobody in. */
  async revoke(name: string): Promise<boolean> {
    await this.#loaded;
    const kept = this.#stored.filter((one) => one.name !== name);
    if (kept.length === this.#stored.length) return false;
    await this.#store(kept);
    return true;
  }

  /** Remembers when each was last seen, before this window ends. */
  async end(): Promise<void> {
    await this.#following;
    await this.#leave();
  }

  dispose(): void {
    this.#disposables.dispose();
  }

  async #load(): Promise<void> {
    try {
      const value: unknown = JSON.parse((await this.#context.secrets.get(secretKey)) ?? "[]");
      this.#stored = (Array.isArray(value) ? value : []).filter(isStored);
    } catch {
      this.#stored = []; // nobody is let in by what cannot be read
    }
    this.#changed.fire();
  }

  async #store(clients: readonly Stored[]): Promise<void> {
    await this.#context.secrets.store(secretKey, JSON.stringify(clients));
    this.#stored = clients;
    this.#changed.fire();
  }

  #uses(): Uses {
    return this.#context.globalState.get<Uses>(useKey, {});
  }

  async #follow(): Promise<void> {
    await this.#loaded;
    const running = this.#host?.running;
    if (this.#settled !== undefined && this.#settled.running.core !== running?.core) await this.#leave();
    if (running === undefined) return;
    if (this.#settled === undefined) {
      this.#settled = { running, unannounce: await running.engine.announceGateway(this.meetingPlace, running.endpoint.path) };
      await this.launcher();
    }
    const port = personsValue("gateway.port");
    const wanted = personsValue("gateway.tcp") === true ? String(typeof port === "number" ? port : 0) : "";
    if (this.#door?.wanted === wanted || (wanted === "" && this.#door === undefined)) return;
    if (this.#door !== undefined && wanted === new URL(this.#door.door.listening).port) {
      this.#door = { wanted, door: this.#door.door }; // the one that is open is to be kept
      return;
    }
    const old = this.#door?.door;
    this.#door = undefined;
    await old?.close();
    if (wanted === "") return;
    try {
      const door = await running.core.gateway.listenTcp({ kind: "tcp", host: "127.0.0.1", port: Number(wanted) });
      this.#door = { wanted, door };
      this.#log.info(`Other clients may connect to ${door.listening}.`);
    } catch (error) {
      void window.showWarningMessage(
        `${messageFor(error) ?? "The port for other clients cannot be opened."} Another window may have it. Clients that use the stdio bridge are not concerned.`,
      );
    }
  }

  async #leave(): Promise<void> {
    const settled = this.#settled;
    this.#settled = undefined;
    this.#door = undefined; // closed by the gateway
    if (settled === undefined) return;
    await settled.unannounce();
    await this.#saveUses(0);
  }

  /** Keeps when each client was last seen, once that is this much later than what is kept (milliseconds). */
  async #saveUses(stepMs: number): Promise<void> {
    const seen = this.list().flatMap(({ name, lastUse }) => (lastUse === undefined ? [] : [[name, lastUse] as const]));
    const uses = usesToKeep(this.#uses(), Object.fromEntries(seen), stepMs);
    if (uses !== undefined) await this.#context.globalState.update(useKey, uses);
  }
}

function isStored(value: unknown): value is Stored {
  return (
    isRecord(value) &&
    typeof value["name"] === "string" &&
    typeof value["token"] === "string" &&
    typeof value["since"] === "number"
  );
}
