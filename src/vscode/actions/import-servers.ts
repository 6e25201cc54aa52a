/**
 * Owns: importing servers from the files of other MCP clients: choosing file and servers, showing what will change, writing it, and
 * switching the originals off where their client has a documented way, with a backup beside the file.
 * Leaves to others: the formats (sources/import-formats.ts), where files lie (sources/client-files.ts), writing settings (settings.ts).
 */
import { constants } from "node:fs";
import { copyFile, readFile, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { window, workspace } from "vscode";
import type { ExtensionContext } from "vscode";
import { scriptOf } from "../commands.ts";
import type { CommandMap, ImportOutcome, ImportScript } from "../commands.ts";
import type { CoreHost, Engine } from "../core-host.ts";
import { isRecord, personsValue } from "../settings.ts";
import type { Settings } from "../settings.ts";
import { clientTitles, foundPlaces } from "../sources/client-files.ts";
import type { ClientKind, ImportedServer, ImportPlan } from "../sources/import-formats.ts";
import type { Inputs } from "../sources/inputs.ts";
import { UserError } from "../user-error.ts";
import { countText } from "../words.ts";
import type { ImportPreview } from "./import-preview.ts";

export interface ImportParts {
  readonly context: ExtensionContext;
  readonly host: CoreHost;
  readonly settings: Settings;
  readonly inputs: Inputs;
  readonly preview: ImportPreview;
}

interface Chosen {
  readonly kind: ClientKind;
  readonly path: string;
}

export function importActions(parts: ImportParts): Pick<CommandMap, "mcpSafeReplay.importServers"> {
  return {
    "mcpSafeReplay.importServers": async (target) => {
      const { engine } = await parts.host.ready();
      const script = scriptOf(target);
      return script === undefined ? byHand(parts, engine) : byScript(parts, engine, script);
    },
  };
}

async function byScript(parts: ImportParts, engine: Engine, script: ImportScript): Promise<ImportOutcome> {
  const text = await textOf(script.path);
  const file = engine.readClientFile(script.client, text, { folders: folders(), env: process.env });
  const missing = (script.servers ?? []).filter((name) => !file.servers.some(({ originalName }) => originalName === name));
  if (missing.length > 0) throw new UserError(`There is no server "${missing[0] ?? ""}" in ${script.path}.`);
  const chosen = file.servers.filter(({ originalName, off }) => script.servers?.includes(originalName) ?? !off);
  const plan = planFor(engine, chosen, file.inputs);
  const switchOff = script.switchOff === true ? offTextFor(engine, script.client, text, plan) : undefined;
  if (script.switchOff === true && switchOff === undefined)
    throw new UserError(
      `${clientTitles[script.client]} has no documented way to switch these servers off. Nothing was imported.`,
    );
  return write(parts, plan, { kind: script.client, path: script.path }, text, switchOff);
}

async function byHand(parts: ImportParts, engine: Engine): Promise<ImportOutcome | undefined> {
  const from = await chooseFile(parts.context);
  if (from === undefined) return undefined;
  const text = await textOf(from.path);
  const file = engine.readClientFile(from.kind, text, { folders: folders(), env: process.env });
  for (const problem of file.problems) void window.showWarningMessage(`${from.path}: ${problem}`);
  if (file.servers.length === 0) {
    if (file.problems.length === 0) throw new UserError(`There are no MCP servers in ${from.path}.`);
    return undefined;
  }
  const chosen = await chooseServers(from, file.servers);
  if (chosen === undefined || chosen.length === 0) return undefined;
  const plan = planFor(engine, chosen, file.inputs);
  const offText = offTextFor(engine, from.kind, text, plan);
  const close = await parts.preview.show(plan);
  const answer = await confirm(engine, from, plan, offText !== undefined);
  await close();
  if (answer === undefined) return undefined;
  const outcome = await write(parts, plan, from, text, answer === "switch-off" ? offText : undefined);
  const also =
    outcome.backup === undefined
      ? ""
      : ` The ${plan.servers.length === 1 ? "original is" : "originals are"} switched off; the file as it was is in ${outcome.backup}.`;
  void window.showInformationMessage(
    `Imported ${countText(plan.servers.length, "MCP server")}: ${outcome.names.join(", ")}.${also}`,
  );
  return outcome;
}

async function chooseFile(context: ExtensionContext): Promise<Chosen | undefined> {
  const title = "Import Servers (1/3)";
  // <user data>/User/globalStorage/<this extension>; a named profile has its own folder below User.
  const userFolder = dirname(dirname(context.globalStorageUri.fsPath));
  const found = await foundPlaces({ userFolder, folders: folders() });
  const items = [
    ...found.map((place) => ({ label: place.title, description: place.path, place })),
    { label: "$(folder-opened) Choose a File…", description: "any other file of these clients", place: undefined },
  ];
  const placeHolder =
    found.length === 0 ? "No configuration of another client was found here." : "Whose servers are to be imported?";
  const item = await window.showQuickPick(items, { title, placeHolder, ignoreFocusOut: true });
  if (item === undefined) return undefined;
  if (item.place !== undefined) return item.place;
  const [uri] = (await window.showOpenDialog({ title: "A client's configuration file" })) ?? [];
  if (uri === undefined) return undefined;
  const kinds = (Object.keys(clientTitles) as ClientKind[]).map((kind) => ({ label: clientTitles[kind], client: kind }));
  const kind = await window.showQuickPick(kinds, { title, placeHolder: "Which client is it of?", ignoreFocusOut: true });
  return kind === undefined ? undefined : { kind: kind.client, path: uri.fsPath };
}

async function chooseServers(from: Chosen, servers: readonly ImportedServer[]): Promise<ImportedServer[] | undefined> {
  const items = servers.map((server) => ({
    label: server.originalName,
    description: whereTo(server),
    detail: [...(server.off ? [`Switched off in ${clientTitles[from.kind]}.`] : []), ...server.notes].join(" "),
    picked: !server.off,
    server,
  }));
  const chosen = await window.showQuickPick(items, {
    title: "Import Servers (2/3)",
    placeHolder: "Which servers are to be reached through MCP Safe Replay?",
    canPickMany: true,
    ignoreFocusOut: true,
  });
  return chosen?.map(({ server }) => server);
}

/** The program's name or the URL's origin: never arguments, which may hold secrets. */
function whereTo({ definition }: ImportedServer): string {
  const { command, url } = definition;
  if (typeof command === "string") return command;
  const text = String(url);
  return URL.canParse(text) ? new URL(text).origin : "a URL";
}

async function confirm(
  engine: Engine,
  from: Chosen,
  plan: ImportPlan,
  canSwitchOff: boolean,
): Promise<"import" | "switch-off" | undefined> {
  const notes = plan.servers.flatMap(({ notes }) => notes).join(" ");
  const count = countText(plan.servers.length, "server");
  const items = [
    ...(canSwitchOff
      ? [
          {
            label: `Import ${count} and switch off in ${clientTitles[from.kind]}`,
            detail: `Each is ${engine.switchOffWords[from.kind] ?? ""}, so that no server runs twice. A backup is written beside the file.`,
            answer: "switch-off" as const,
          },
        ]
      : []),
    {
      label: `Import ${count}`,
      detail:
        from.kind === "vscode"
          ? "They also stay in mcp.json: agents can then call them there too, without protection."
          : `${clientTitles[from.kind]} goes on using its own.`,
      answer: "import" as const,
    },
  ];
  const item = await window.showQuickPick(items, {
    title: "Import Servers (3/3)",
    placeHolder: notes === "" ? "The editor shows what will change in your settings." : notes,
    ignoreFocusOut: true,
  });
  return item?.answer;
}

function planFor(engine: Engine, chosen: readonly ImportedServer[], inputs: readonly Record<string, unknown>[]): ImportPlan {
  const servers = personsValue("servers");
  const existing = personsValue("inputs");
  return engine.importPlan(chosen, inputs, isRecord(servers) ? servers : {}, Array.isArray(existing) ? existing : []);
}

function offTextFor(engine: Engine, kind: ClientKind, text: string, plan: ImportPlan): string | undefined {
  return engine.switchedOff(
    kind,
    text,
    plan.servers.map(({ originalName }) => originalName),
  );
}

async function write(
  { settings, inputs }: ImportParts,
  plan: ImportPlan,
  from: Chosen,
  before: string,
  offText: string | undefined,
): Promise<ImportOutcome> {
  // The secrets first, so that no server starts without its own.
  for (const [id, value] of Object.entries(plan.secrets)) await inputs.set("user", id, value);
  await settings.addServers(Object.fromEntries(plan.servers.map(({ name, definition }) => [name, definition])), plan.inputs);
  const backup = offText === undefined ? undefined : await replaceFile(from.path, before, offText);
  return {
    names: plan.servers.map(({ name }) => name),
    before: plan.before,
    after: plan.after,
    ...(backup === undefined ? {} : { backup }),
  };
}

/** Writes the file anew, unless it changed since it was read. @returns where it lies as it was */
async function replaceFile(path: string, before: string, after: string): Promise<string> {
  if ((await textOf(path)) !== before)
    throw new UserError(
      `The servers were imported, but ${path} changed meanwhile and was left as it is. Switch them off there yourself.`,
    );
  for (let number = 1; ; number += 1) {
    const backup = `${path}.backup${number === 1 ? "" : `-${number}`}`;
    try {
      await copyFile(path, backup, constants.COPYFILE_EXCL); // with the permissions of the original
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EEXIST" && number < 100) continue;
      throw new UserError(`The servers were imported, but no backup could be written beside ${path}, which was left as it is.`);
    }
    await writeFile(path, after).catch(() => {
      throw new UserError(`The servers were imported, but ${path} could not be written. Switch them off there yourself.`);
    });
    return backup;
  }
}

async function textOf(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch {
    throw new UserError(`${path} cannot be read.`);
  }
}

function folders(): string[] {
  return (workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === "file").map(({ uri }) => uri.fsPath);
}
