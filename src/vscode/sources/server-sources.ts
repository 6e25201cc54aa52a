/**
 * Owns: which servers there are: the person's own setting, and the workspace's file in a trusted workspace; and which of them wait, for
 * what. The person's own server always comes before one of the workspace's with the same name.
 * Leaves to others: what a definition may be (src/hosting/definitions.ts), hosting them (core-host.ts), showing them (views).
 */
import { EventEmitter, workspace } from "vscode";
import type { Disposable, Event, Uri, WorkspaceFolder } from "vscode";
import type { ReadDefinitions, ServerDefinition } from "../../hosting/definitions.ts";
import type { StartPolicy } from "../../hosting/hosted-server.ts";
import { DisposableList } from "../disposables.ts";
import { isRecord, personsValue, section } from "../settings.ts";
import type { PlacedProblem } from "../settings.ts";
import type { InputDefinition } from "./input-definitions.ts";
import type { Inputs } from "./inputs.ts";
import { WorkspaceFiles, workspaceFilePath } from "./workspace-files.ts";

type Engine = Pick<typeof import("../engine.ts"), "readDefinitions" | "readInputs" | "readServersFile">;

/** Where a server is defined: "user" is the person's own setting. */
export type Origin = "user" | { readonly folder: string; readonly file: Uri };

/** A server that is defined but not hosted now, and why. */
export interface WaitingServer {
  readonly name: string;
  readonly origin: Origin;
  readonly why: "workspace-trust" | "input" | "name-taken";
  /** One sentence for a person: why, and what to do. */
  readonly reason: string;
  /** The inputs to be asked for, and under which source they are kept. */
  readonly inputs: readonly InputDefinition[];
  readonly source: string;
}

export interface GatheredServers {
  readonly definitions: ReadonlyMap<string, ServerDefinition>;
  /** When a server is started, where its definition says so. */
  readonly starts: ReadonlyMap<string, StartPolicy>;
  readonly origins: ReadonlyMap<string, Origin>;
  readonly waiting: readonly WaitingServer[];
  readonly problems: readonly PlacedProblem[];
  /** Every name that is in use, those with a mistake included. */
  readonly names: ReadonlySet<string>;
}

interface Source {
  readonly origin: Origin;
  /** What to call it in messages. */
  readonly place: string;
  readonly servers: unknown;
  readonly inputs: unknown;
  readonly folder: WorkspaceFolder | undefined;
  readonly open: PlacedProblem["open"];
}

export class ServerSources implements Disposable {
  readonly #inputs: Inputs;
  readonly #disposables = new DisposableList();
  readonly #files = this.#disposables.add(new WorkspaceFiles());
  readonly #changed = this.#disposables.add(new EventEmitter<void>());
  /** To be gathered again: a workspace's file changed, a value was entered or forgotten, trust in the workspace was granted. */
  readonly onDidChange: Event<void> = this.#changed.event;

  constructor(inputs: Inputs) {
    this.#inputs = inputs;
    for (const event of [
      this.#files.onDidChange,
      inputs.onDidChange,
      workspace.onDidGrantWorkspaceTrust,
      workspace.onDidChangeWorkspaceFolders,
    ] as Event<unknown>[])
      this.#disposables.add(event(() => this.#changed.fire()));
  }

  async gather(engine: Engine): Promise<GatheredServers> {
    const gathered = new Gathering(engine, this.#inputs);
    await gathered.add({
      origin: "user",
      place: `${section}.servers`,
      servers: personsValue("servers"),
      inputs: personsValue("inputs"),
      folder: workspace.workspaceFolders?.[0],
      open: "servers",
    });
    for (const { folder, uri, text } of await this.#files.read()) {
      const several = (workspace.workspaceFolders?.length ?? 0) > 1;
      const place = several ? `${folder.name}/${workspaceFilePath}` : workspaceFilePath;
      if (text === undefined) {
        gathered.problems.push({ place, message: "cannot be read", open: uri });
        continue;
      }
      const file = engine.readServersFile(text, place);
      gathered.problems.push(...file.problems.map((problem) => ({ ...problem, open: uri })));
      await gathered.add({
        origin: { folder: folder.name, file: uri },
        place,
        servers: inFolder(file.servers, folder),
        inputs: file.inputs,
        folder,
        open: uri,
      });
    }
    return gathered;
  }

  dispose(): void {
    this.#disposables.dispose();
  }
}

class Gathering implements GatheredServers {
  readonly definitions = new Map<string, ServerDefinition>();
  readonly starts = new Map<string, StartPolicy>();
  readonly origins = new Map<string, Origin>();
  readonly waiting: WaitingServer[] = [];
  readonly problems: PlacedProblem[] = [];
  readonly names = new Set<string>();
  readonly #engine: Engine;
  readonly #inputs: Inputs;

  constructor(engine: Engine, inputs: Inputs) {
    this.#engine = engine;
    this.#inputs = inputs;
  }

  async add(source: Source): Promise<void> {
    const { origin, place } = source;
    const kept = source.origin === "user" ? "user" : (source.folder?.uri.toString() ?? "");
    const wait = (name: string, why: WaitingServer["why"], reason: string, inputs: readonly InputDefinition[] = []): void => {
      this.waiting.push({ name, origin, why, reason, inputs, source: kept });
    };
    const servers = isRecord(source.servers) ? source.servers : undefined;
    // Whoever was read before has the name, even with a mistake in its definition: no other server steps into its place.
    const mine = Object.entries(servers ?? {}).filter(([name]) => {
      if (!this.names.has(name)) return true;
      const owner = this.origins.get(name);
      const whose = owner === "user" ? "a server of your own has this name" : "another folder's server has this name";
      wait(name, "name-taken", `Not used: ${whose}. Give it another name in ${place}.`);
      return false;
    });
    for (const [name] of mine) {
      this.names.add(name);
      this.origins.set(name, origin);
    }
    // In Restricted Mode nothing of the workspace's is read further than its names, and nothing in it is run.
    const free = mine.filter(([name, definition]) => {
      if (workspace.isTrusted) return true;
      if (origin !== "user")
        wait(name, "workspace-trust", `It is defined by this workspace (${place}) and starts only in a trusted workspace.`);
      else if (runsFromWorkspace(definition))
        wait(name, "workspace-trust", "It uses ${workspaceFolder} and starts only in a trusted workspace.");
      else return true;
      return false;
    });
    const mistakes = (problems: ReadDefinitions["problems"], open = source.open): void =>
      void this.problems.push(...problems.map((problem) => ({ ...problem, open })));
    if (free.length === 0 && origin !== "user" && !workspace.isTrusted) return;
    const { inputs, problems } = this.#engine.readInputs(
      source.inputs,
      origin === "user" ? `${section}.inputs` : `${place}.inputs`,
    );
    mistakes(problems, origin === "user" ? "inputs" : source.open);
    const read = this.#engine.readDefinitions(
      servers === undefined ? source.servers : Object.fromEntries(free),
      origin === "user" ? place : `${place}: servers`,
      {
        workspaceFolder: source.folder?.uri.scheme === "file" ? source.folder.uri.fsPath : undefined,
        env: process.env,
        input: await this.#inputs.valuesOf(kept, inputs),
      },
    );
    mistakes(read.problems);
    for (const [name, definition] of read.definitions) this.definitions.set(name, definition);
    for (const [name, start] of read.starts) this.starts.set(name, start);
    for (const [name, ids] of read.waiting) {
      const asked = ids.map((id) => inputs.get(id)).filter((input) => input !== undefined);
      const what = asked.map(({ description }) => description).join(", ");
      wait(name, "input", `It needs a value from you: ${what}. Start it to enter the value.`, asked);
    }
  }
}

/** A program of a workspace's runs in its folder unless it says otherwise. */
function inFolder(servers: unknown, folder: WorkspaceFolder): unknown {
  if (!isRecord(servers) || folder.uri.scheme !== "file") return servers;
  return Object.fromEntries(
    Object.entries(servers).map(([name, definition]) => [
      name,
      isRecord(definition) && "command" in definition && !("cwd" in definition)
        ? { ...definition, cwd: folder.uri.fsPath }
        : definition,
    ]),
  );
}

/** A program that is started with something of the workspace's: its code, its arguments or its environment may come from there. */
function runsFromWorkspace(definition: unknown): boolean {
  return isRecord(definition) && !("url" in definition) && JSON.stringify(definition).includes("${workspaceFolder}");
}
