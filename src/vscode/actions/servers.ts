/**
 * Owns: what a person does with a hosted server: add it, start, stop and restart it, trust it, read its log.
 * Leaves to others: the server (src/hosting), what trust means (trust-source.ts).
 */
import { ProgressLocation, commands, env, window, workspace } from "vscode";
import type { Core } from "../../gateway/core.ts";
import type { HostedServer } from "../../hosting/hosted-server.ts";
import type { Authorisations } from "../authorisations.ts";
import { scriptOf } from "../commands.ts";
import type { CommandMap } from "../commands.ts";
import type { CoreHost, Engine } from "../core-host.ts";
import type { Logs } from "../logs.ts";
import type { OtherClients } from "../other-clients.ts";
import type { ServerDocuments } from "../server-document.ts";
import { isRecord, personsValue, section } from "../settings.ts";
import type { Settings } from "../settings.ts";
import type { Inputs } from "../sources/inputs.ts";
import type { WaitingServer } from "../sources/server-sources.ts";
import { workspaceFileOf, workspaceFilePath } from "../sources/workspace-files.ts";
import type { Trust } from "../trust-source.ts";
import { UserError } from "../user-error.ts";
import { ServerNode, WaitingNode } from "../views/servers-view.ts";
import { serverStateWords } from "../words.ts";
import { splitCommandLine } from "./command-line.ts";

type ServerCommand =
  | "mcpSafeReplay.openWorkspaceServers"
  | "mcpSafeReplay.forgetSecrets"
  | "mcpSafeReplay.addServer"
  | "mcpSafeReplay.startServer"
  | "mcpSafeReplay.stopServer"
  | "mcpSafeReplay.restartServer"
  | "mcpSafeReplay.reconnectServer"
  | "mcpSafeReplay.showServer"
  | "mcpSafeReplay.copyServerUrl"
  | "mcpSafeReplay.trustServer"
  | "mcpSafeReplay.untrustServer"
  | "mcpSafeReplay.showLog";

type Target = ServerNode | WaitingNode | string | { readonly server: string } | undefined;

export function serverActions(
  host: CoreHost,
  settings: Settings,
  inputs: Inputs,
  authorisations: Authorisations,
  trust: Trust,
  logs: Logs,
  documents: ServerDocuments,
  clients: Pick<OtherClients, "port">,
): Pick<CommandMap, ServerCommand> {
  const on =
    (question: string, doing: string, act: (server: HostedServer) => Promise<void>) =>
    async (target: Target): Promise<void> => {
      const { core } = await host.ready();
      const waiting = waitingFor(host, target);
      if (waiting !== undefined && !(await endWaiting(host, inputs, waiting, target))) return;
      const server = await serverFor(core, target, question);
      if (server === undefined) return;
      await window.withProgress({ location: ProgressLocation.Window, title: `${doing} "${server.name}"` }, () => act(server));
    };
  return {
    "mcpSafeReplay.addServer": async (target) => {
      const { engine } = await host.ready();
      const added = scriptOf(target) ?? (await askServer());
      if (added === undefined) return;
      const place = `${section}.servers`;
      const { problems } = engine.readDefinitions({ [added.name]: withoutVariables(added.definition) }, place, {
        env: {},
        readFile: () => "",
      });
      const problem = problems[0];
      if (problem !== undefined) throw new UserError(`${problem.place} ${problem.message}.`);
      if (isNameTaken(added.name)) throw new UserError(`There is a server "${added.name}" already.`);
      await settings.setEntry("servers", added.name, added.definition);
    },
    "mcpSafeReplay.startServer": on("Which server is to be started?", "Starting", (server) => server.start()),
    "mcpSafeReplay.stopServer": on("Which server is to be stopped?", "Stopping", (server) => server.stop()),
    "mcpSafeReplay.restartServer": on("Which server is to be restarted?", "Restarting", async (server) => {
      // What the definition refers to may have changed meanwhile: an env file, for example.
      await host.reload();
      await serverNamed((await host.ready()).core, server.name).restart();
    }),
    "mcpSafeReplay.reconnectServer": on("Which server is to be reached anew?", "Reconnecting", (server) => server.reconnect()),
    "mcpSafeReplay.showServer": on("Which server do you want to see?", "Showing", (server) => documents.open(server.name)),
    "mcpSafeReplay.copyServerUrl": on("Whose URL do you want?", "Copying the URL of", async (server) => {
      const port = await clients.port();
      if (port === undefined) {
        const text = `Other clients reach "${server.name}" at a port of this machine, and that port is closed.`;
        const choice = await window.showInformationMessage(text, "Open Setting", "Copy Configuration…");
        if (choice === "Open Setting") await commands.executeCommand("workbench.action.openSettings", `${section}.gateway.tcp`);
        else if (choice !== undefined) await commands.executeCommand("mcpSafeReplay.copyGatewayConfiguration");
        return;
      }
      await env.clipboard.writeText(port.urlOf(server.name));
      const text = `The URL of "${server.name}" was copied. A client needs a secret beside it, which "Copy Configuration for Other Clients…" makes.`;
      void window.showInformationMessage(text);
    }),
    "mcpSafeReplay.trustServer": on("Which server do you trust for replay?", "Trusting", (server) => trust.grant(server.name)),
    "mcpSafeReplay.untrustServer": on("Which server do you no longer trust?", "Taking back the trust of", (server) =>
      trust.revoke(server.name),
    ),
    "mcpSafeReplay.openWorkspaceServers": () => openWorkspaceServers(),
    "mcpSafeReplay.forgetSecrets": async (target) => {
      if (scriptOf(target) === undefined) {
        const text = "Forget all values that you entered for MCP servers in MCP Safe Replay, and all authorisations?";
        const detail =
          "Servers that need one wait until you enter it or authorise them again. Servers that run are restarted without it.";
        if ((await window.showWarningMessage(text, { modal: true, detail }, "Forget")) !== "Forget") return;
      }
      const { core } = await host.ready();
      const authorised = [...core.servers.values()].filter((server) => server.authorisation?.authorised === true);
      const count = await inputs.forget();
      for (const server of authorised) await server.authorisation?.signOut();
      // And those of servers that are not hosted now.
      await authorisations.forget();
      await host.reload();
      await Promise.all(authorised.map((server) => server.restart().catch(() => undefined)));
      logs.extension.info(`Forgot ${count} entered values and ${authorised.length} authorisations.`);
    },
    "mcpSafeReplay.showLog": (target) => {
      const name = nameOf(target);
      logs.show(name !== undefined && host.running?.core.servers.has(name) === true ? name : undefined);
      return Promise.resolve();
    },
  };
}

/** @throws UserError when there is none */
export function serverNamed(core: Core, name: string): HostedServer {
  const server = core.servers.get(name);
  if (server === undefined) throw new UserError(`There is no server "${name}" in ${section}.servers.`);
  return server;
}

function nameOf(target: Target): string | undefined {
  if (target instanceof WaitingNode) return target.waiting.name;
  return typeof target === "string" ? target : target instanceof ServerNode ? target.server.name : scriptOf(target)?.server;
}

/** The server, if it is one that waits and is not hosted. */
function waitingFor(host: CoreHost, target: Target): WaitingServer | undefined {
  const name = nameOf(target);
  const hosted = name !== undefined && host.running?.core.servers.has(name) === true;
  return hosted ? undefined : host.waiting.find((one) => one.name === name);
}

/** Gives the person the way to end the wait. True when the server is hosted now. */
async function endWaiting(host: CoreHost, inputs: Inputs, waiting: WaitingServer, target: Target): Promise<boolean> {
  const { name, why, reason } = waiting;
  if (scriptOf(target) !== undefined || why === "name-taken")
    throw new UserError(`The server "${name}" is not running. ${reason}`);
  if (why === "workspace-trust") {
    await commands.executeCommand("workbench.trust.manage");
    return false;
  }
  if (!(await inputs.ask(waiting.source, name, waiting.inputs))) return false;
  await host.reload();
  return host.running?.core.servers.has(name) === true;
}

/** Opens the workspace's file, and makes it when there is none. */
async function openWorkspaceServers(): Promise<void> {
  const folders = workspace.workspaceFolders ?? [];
  if (folders.length === 0) throw new UserError("Open a folder first: servers of a workspace are kept in it.");
  const folder = folders.length === 1 ? folders[0] : await window.showWorkspaceFolderPick();
  if (folder === undefined) return;
  const file = workspaceFileOf(folder);
  const there = await workspace.fs.stat(file).then(
    () => true,
    () => false,
  );
  if (!there) {
    if (!workspace.isTrusted) throw new UserError(`There is no ${workspaceFilePath} here.`);
    await workspace.fs.writeFile(file, new TextEncoder().encode('{\n  "servers": {}\n}\n'));
  }
  await window.showTextDocument(file);
}

async function serverFor(core: Core, target: Target, question: string): Promise<HostedServer | undefined> {
  const name = nameOf(target);
  // By name: a row may be older than the server that has this name now.
  if (name !== undefined) return serverNamed(core, name);
  const items = [...core.servers.values()].map((server) => ({
    server,
    label: server.name,
    description: serverStateWords[server.status.state],
  }));
  if (items.length === 0)
    throw new UserError('There are no servers yet. Add one with the command "MCP Safe Replay: Add Server…".');
  return (await window.showQuickPick(items, { title: question }))?.server;
}

function isNameTaken(name: string): boolean {
  const servers = personsValue("servers");
  return isRecord(servers) && Object.hasOwn(servers, name);
}

/** A variable may have no value yet: that is told when the server is read from the settings, and is no mistake here. */
function withoutVariables(definition: Record<string, unknown>): unknown {
  return JSON.parse(
    JSON.stringify(definition).replace(/\$\{(?:workspaceFolder|userHome|(?:env|input):[^}"]*)\}/g, "x"),
  ) as ReturnType<Engine["readDefinitions"]>;
}

async function askServer(): Promise<{ name: string; definition: Record<string, unknown> } | undefined> {
  const title = "Add Server";
  const kind = await window.showQuickPick(
    [
      {
        remote: false,
        label: "$(terminal) A program",
        detail: "Started on this machine and reached over its standard input and output (stdio).",
      },
      { remote: true, label: "$(globe) A URL", detail: "A server that runs already, reached over Streamable HTTP." },
    ],
    { title: `${title} (1/3)`, placeHolder: "How is the server reached?" },
  );
  if (kind === undefined) return undefined;
  const where = await window.showInputBox(
    kind.remote
      ? {
          title: `${title} (2/3)`,
          prompt: "The server's URL.",
          placeHolder: "https://mcp.example.com/mcp",
          validateInput: urlMistake,
          ignoreFocusOut: true,
        }
      : {
          title: `${title} (2/3)`,
          prompt: "The command line that starts the server.",
          placeHolder: "npx -y @modelcontextprotocol/server-memory",
          validateInput: (text) => (splitCommandLine(text).length === 0 ? "The command is missing." : undefined),
          ignoreFocusOut: true,
        },
  );
  if (where === undefined) return undefined;
  const name = await window.showInputBox({
    title: `${title} (3/3)`,
    prompt: "A short name, under which agents see it.",
    placeHolder: "memory",
    ignoreFocusOut: true,
    validateInput: (text) =>
      !/^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$/.test(text)
        ? "Letters, digits, '-', '_' and '.', 64 at most, no '.' first."
        : isNameTaken(text)
          ? `There is a server "${text}" already.`
          : undefined,
  });
  if (name === undefined) return undefined;
  if (kind.remote) return { name, definition: { type: "http", url: where.trim() } };
  const [command, ...args] = splitCommandLine(where);
  return { name, definition: { type: "stdio", command, args } };
}

function urlMistake(text: string): string | undefined {
  return URL.canParse(text.trim()) && /^https?:$/.test(new URL(text.trim()).protocol)
    ? undefined
    : "Must be an http:// or https:// URL.";
}
