/**
 * Owns: `Call Tool…` (server, tool, arguments) and `Repeat Call…`, and how their answers are shown.
 * Leaves to others: the call itself, which goes the same way as an agent's (src/replay/calls.ts).
 */
import { ProgressLocation, commands, window } from "vscode";
import type { QuickPickItem } from "vscode";
import type { ListedTool } from "../../hosting/connection.ts";
import type { HostedServer } from "../../hosting/hosted-server.ts";
import type { CallAnswer, CallHooks, OperationMark } from "../../replay/calls.ts";
import { operationMetaKey } from "../../replay/answers.ts";
import { scriptOf } from "../commands.ts";
import type { CallOutcome, CommandMap } from "../commands.ts";
import type { CoreHost, Running } from "../core-host.ts";
import type { OperationDocuments } from "../operation-document.ts";
import { prefill } from "../prefill.ts";
import { isRecord } from "../settings.ts";
import { UserError } from "../user-error.ts";
import { ServerNode, ToolNode, badgesOf } from "../views/servers-view.ts";
import { agoText, serverStateWords, toolTitle } from "../words.ts";
import { operationFor } from "./operations.ts";
import { serverNamed } from "./servers.ts";

const title = "Call Tool";

export function callActions(
  host: CoreHost,
  documents: OperationDocuments,
): Pick<CommandMap, "mcpSafeReplay.callTool" | "mcpSafeReplay.repeatCall"> {
  return {
    "mcpSafeReplay.callTool": async (target) => {
      const running = await host.ready();
      if (running.core.journal.problem !== undefined) throw running.core.journal.problem;
      const script = scriptOf(target);
      if (script !== undefined) {
        const server = serverNamed(running.core, script.server);
        const tool = await toolNamed(server, script.tool);
        const args: unknown = script.arguments ?? {};
        const mistake = isRecord(args) ? running.engine.argumentsMistake(tool.inputSchema, args) : "arguments must be an object";
        if (mistake !== undefined || !isRecord(args)) throw new UserError(`Nothing was sent: ${mistake}.`);
        return outcomeOf(await send(running, server, tool, args, {}));
      }
      const server = target instanceof ServerNode || target instanceof ToolNode ? target.server : await pickServer(running);
      if (server === undefined) return undefined;
      const tool = await (target instanceof ToolNode ? toolNamed(server, target.tool.name) : pickTool(server));
      if (tool === undefined) return undefined;
      const args = await askArguments(running, server, tool);
      if (args === undefined) return undefined;
      const answer = await withProgress(`Calling "${tool.name}" on "${server.name}"`, (hooks) =>
        send(running, server, tool, args, hooks),
      );
      return show(documents, answer, tool.name);
    },

    "mcpSafeReplay.repeatCall": async (target) => {
      const { core } = await host.ready();
      const operation = await operationFor(
        core,
        target,
        ["no-effect"],
        "Which call is to be repeated?",
        'There is no call to repeat: only one that was settled as "it did not happen" can be.',
      );
      if (operation === undefined) return undefined;
      const { server, tool } = operation.intention;
      if (operation.state !== "no-effect" || operation.settlement === undefined) {
        throw new UserError(
          `"${tool}" on "${server}" cannot be repeated: that takes an operation that was settled as "it did not happen".`,
        );
      }
      const { evidence, at } = operation.settlement;
      if (scriptOf(target) !== undefined) return outcomeOf(await core.calls.repeat(operation.id, evidence, {}));
      const detail =
        `It will be sent once more, as a further attempt of the same operation.\n\n` +
        `It was settled ${agoText(at, Date.now())} that it did not happen: ${evidence}\n\n` +
        `Arguments: ${JSON.stringify(operation.intention.arguments, null, 2)}`;
      const confirmed = await window.showWarningMessage(
        `Repeat "${tool}" on "${server}"?`,
        { modal: true, detail },
        "Repeat Call",
      );
      if (confirmed === undefined) return undefined;
      const answer = await withProgress(`Repeating "${tool}" on "${server}"`, (hooks) =>
        core.calls.repeat(operation.id, evidence, hooks),
      );
      return show(documents, answer, tool);
    },
  };
}

interface ServerItem extends QuickPickItem {
  readonly server: HostedServer;
}

async function pickServer({ core }: Running): Promise<HostedServer | undefined> {
  const items: ServerItem[] = [...core.servers.values()].map((server) => ({
    server,
    label: server.name,
    description: serverStateWords[server.status.state],
    ...(server.status.reason === undefined ? {} : { detail: server.status.reason }),
  }));
  if (items.length === 0)
    throw new UserError('There are no servers yet. Add one with the command "MCP Safe Replay: Add Server…".');
  return (await window.showQuickPick(items, { title: `${title} (1/3)`, placeHolder: "On which server?", matchOnDetail: true }))
    ?.server;
}

interface ToolItem extends QuickPickItem {
  readonly tool: ListedTool;
}

async function pickTool(server: HostedServer): Promise<ListedTool | undefined> {
  await connect(server);
  const items: ToolItem[] = server.tools.map((tool) => ({
    tool,
    label: tool.name,
    description: badgesOf(tool).join(" · "),
    ...(tool.description === undefined ? {} : { detail: tool.description.split("\n", 1)[0] ?? "" }),
  }));
  if (items.length === 0) throw new UserError(`The server "${server.name}" offers no tools.`);
  return (
    await window.showQuickPick(items, {
      title: `${title} (2/3)`,
      placeHolder: `Which tool of "${server.name}"?`,
      matchOnDetail: true,
    })
  )?.tool;
}

async function connect(server: HostedServer): Promise<void> {
  if (server.connection?.open === true) return;
  await window.withProgress({ location: ProgressLocation.Window, title: `Connecting to "${server.name}"` }, async () => {
    await server.connect();
  });
}

/** @throws UserError when the server does not offer it (any more) */
async function toolNamed(server: HostedServer, name: string): Promise<ListedTool> {
  await connect(server);
  const tool = server.tools.find((one) => one.name === name);
  if (tool === undefined) throw new UserError(`Nothing was sent: the server "${server.name}" has no tool "${name}".`);
  return tool;
}

async function askArguments(
  { engine }: Running,
  server: HostedServer,
  tool: ListedTool,
): Promise<Record<string, unknown> | undefined> {
  const value = JSON.stringify(prefill(tool.inputSchema));
  const blank = value.indexOf('""');
  const entered = await window.showInputBox({
    title: `${title} (3/3): ${toolTitle(tool) ?? tool.name} on ${server.name}`,
    prompt: "Arguments as JSON. Enter sends the call.",
    value,
    valueSelection: blank >= 0 ? [blank + 1, blank + 1] : [value.length - 1, value.length - 1],
    ignoreFocusOut: true,
    validateInput: (text) => {
      const read = parse(text);
      return typeof read === "string" ? read : engine.argumentsMistake(tool.inputSchema, read);
    },
  });
  if (entered === undefined) return undefined;
  const args = parse(entered);
  return typeof args === "string" ? undefined : args;
}

/** The object, or what is wrong with the text. */
function parse(text: string): Record<string, unknown> | string {
  try {
    const value: unknown = JSON.parse(text);
    return isRecord(value) ? value : "Arguments must be a JSON object: {…}";
  } catch (error) {
    return `Not JSON: ${error instanceof Error ? error.message : "unreadable"}`;
  }
}

function send(
  { core }: Running,
  server: HostedServer,
  tool: ListedTool,
  args: Record<string, unknown>,
  hooks: CallHooks,
): Promise<CallAnswer> {
  return core.calls.call(
    {
      server: server.name,
      tool: tool.name,
      arguments: args,
      params: { name: tool.name, arguments: args },
      caller: { client: "Call Tool command" },
    },
    hooks,
  );
}

function withProgress(text: string, run: (hooks: CallHooks) => Promise<CallAnswer>): Thenable<CallAnswer> {
  return window.withProgress(
    { location: ProgressLocation.Notification, title: text, cancellable: true },
    async (progress, token) => {
      const cancelled = new AbortController();
      const subscription = token.onCancellationRequested(() => cancelled.abort());
      try {
        return await run({
          signal: cancelled.signal,
          progress: ({ message, progress: done, total }) => {
            const share =
              typeof done === "number" && typeof total === "number" && total > 0
                ? `${Math.round((done / total) * 100)} %`
                : undefined;
            progress.report({
              message: [share, typeof message === "string" ? message : undefined].filter((part) => part !== undefined).join(" "),
            });
          },
        });
      } finally {
        subscription.dispose();
      }
    },
  );
}

function outcomeOf(answer: CallAnswer): CallOutcome {
  answer.delivered();
  return answer.kind === "result" ? answer.result : { error: answer.error };
}

function markOf(answer: CallAnswer): OperationMark | undefined {
  const meta = answer.kind === "result" ? answer.result["_meta"] : undefined;
  const mark = isRecord(meta) ? meta[operationMetaKey] : undefined;
  return isRecord(mark) ? (mark as unknown as OperationMark) : undefined;
}

/** Shows an answer: as the operation's document, or as a message with what to do next. */
async function show(documents: OperationDocuments, answer: CallAnswer, tool: string): Promise<CallOutcome> {
  const mark = markOf(answer);
  const id = mark?.id ?? answer.operationId;
  if (mark?.state === "unresolved" && id !== undefined) {
    offer(`"${tool}" lost its answer: it may have taken effect, and it was not repeated.`, id, documents);
  } else if (mark?.state === "held" && id !== undefined) {
    offer(`"${tool}" was not sent: an identical earlier call is still unresolved.`, id, documents);
  } else if (mark?.state === "not-executed" || id === undefined) {
    void window.showErrorMessage(firstText(answer) ?? `"${tool}" was not run.`);
  } else {
    await documents.open(id);
  }
  return outcomeOf(answer);
}

function offer(text: string, id: string, documents: OperationDocuments): void {
  void window.showWarningMessage(text, "Reconcile…", "Show Operation").then((choice) => {
    if (choice === "Reconcile…") void commands.executeCommand("mcpSafeReplay.reconcile", id);
    else if (choice === "Show Operation") void documents.open(id);
  });
}

function firstText(answer: CallAnswer): string | undefined {
  if (answer.kind === "error") return answer.error.message;
  const content: unknown = answer.result["content"];
  const first: unknown = Array.isArray(content) ? content[0] : undefined;
  return isRecord(first) && typeof first["text"] === "string" ? first["text"] : undefined;
}
