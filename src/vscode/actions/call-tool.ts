/**
 * Owns: `Call Tool…` (server, tool, arguments) and `Repeat Call…`, and how their answers are shown.
 * Leaves to others: the call itself, which goes the same way as an agent's (src/replay/calls.ts).
 */
import { setTimeout as delay } from "node:timers/promises";
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
import { repeatHindrance, repeatText } from "../repeat-text.ts";
import { isRecord } from "../settings.ts";
import { UserError, messageFor } from "../user-error.ts";
import { ServerNode, ToolNode, badgesOf } from "../views/servers-view.ts";
import { serverStateWords, toolTitle } from "../words.ts";
import { askJson } from "./ask-json.ts";
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
        const tool = shownTool(host, running, server, await toolNamed(server, script.tool));
        const args: unknown = script.arguments ?? {};
        const mistake = isRecord(args) ? running.engine.argumentsMistake(tool.inputSchema, args) : "arguments must be an object";
        if (mistake !== undefined || !isRecord(args)) throw new UserError(`Nothing was sent: ${mistake}.`);
        return outcomeOf(await send(running, server, tool, args, {}));
      }
      const server = target instanceof ServerNode || target instanceof ToolNode ? target.server : await pickServer(running);
      if (server === undefined) return undefined;
      const listed = await (target instanceof ToolNode ? toolNamed(server, target.tool.name) : pickTool(server));
      if (listed === undefined) return undefined;
      const tool = shownTool(host, running, server, listed);
      const args = await askArguments(running, server, tool);
      if (args === undefined) return undefined;
      const call = async (): Promise<CallOutcome> => {
        const answer = await withProgress(`Calling "${tool.name}" on "${server.name}"`, (hooks) =>
          send(running, server, tool, args, hooks),
        );
        return show(documents, answer, tool.name, (id) => sendAnyway(running, id, tool.name, call));
      };
      return call();
    },

    "mcpSafeReplay.repeatCall": async (target) => {
      const { core, engine } = await host.ready();
      const operation = await operationFor(
        core,
        target,
        { states: ["no-effect"] },
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
      // Before anything is asked: what cannot be repeated is not offered.
      const hindrance = repeatHindrance(operation);
      if (hindrance !== undefined) throw new UserError(`"${tool}" on "${server}" cannot be repeated: ${hindrance}`);
      const { evidence } = operation.settlement;
      if (scriptOf(target) !== undefined) return outcomeOf(await core.calls.repeat(operation.id, evidence, {}));
      const retention = host.contract(server, tool)?.duplicatePrevention?.retentionSeconds;
      const now = Date.now();
      const detail = repeatText(operation, {
        now,
        keyMayBeForgotten:
          operation.intention.key !== undefined &&
          retention !== undefined &&
          now >= operation.createdAt + retention * 1000 - engine.marginMs(retention),
        serverChanged: core.servers.get(server)?.fingerprint !== operation.intention.fingerprint,
      });
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
  return (
    await window.showQuickPick(items, {
      title: `${title} (1/3)`,
      placeHolder: "On which server?",
      matchOnDetail: true,
      ignoreFocusOut: true,
    })
  )?.server;
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
      // VS Code gives the focus back to a tree of ours that is drawn anew, as happens when a server connects.
      ignoreFocusOut: true,
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

function askArguments(running: Running, server: HostedServer, tool: ListedTool): Promise<Record<string, unknown> | undefined> {
  return askJson(running, tool, prefill(tool.inputSchema), {
    title: `${title} (3/3): ${toolTitle(tool) ?? tool.name} on ${server.name}`,
    prompt: "Arguments as JSON. Enter sends the call.",
  });
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

/**
 * A call that is answered sooner shows no progress, milliseconds: it would only flicker, and VS Code drops a notification that
 * comes as the fourth within 800 ms, which may be the one that says that an answer was lost.
 */
const quietMs = 500;

/** Runs a call. One that takes longer than a moment shows its progress, with a way to cancel it. */
async function withProgress(text: string, run: (hooks: CallHooks) => Promise<CallAnswer>): Promise<CallAnswer> {
  const cancelled = new AbortController();
  let message = "";
  let report = (): void => {};
  const answer = run({
    signal: cancelled.signal,
    progress: (told) => {
      const { progress: done, total } = told;
      const share =
        typeof done === "number" && typeof total === "number" && total > 0 ? `${Math.round((done / total) * 100)} %` : undefined;
      const words = typeof told.message === "string" ? told.message : undefined;
      message = [share, words].filter((part) => part !== undefined).join(" ");
      report();
    },
  });
  const ended = answer.then(
    () => true,
    () => true,
  );
  const stopWaiting = new AbortController();
  const isQuick = await Promise.race([ended, delay(quietMs, false, { signal: stopWaiting.signal }).catch(() => true)]);
  stopWaiting.abort();
  if (!isQuick) {
    await window.withProgress(
      { location: ProgressLocation.Notification, title: text, cancellable: true },
      async (progress, token) => {
        const subscription = token.onCancellationRequested(() => cancelled.abort());
        report = () => progress.report({ message });
        if (message !== "") report();
        await ended;
        subscription.dispose();
      },
    );
  }
  return answer;
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
async function show(
  documents: OperationDocuments,
  answer: CallAnswer,
  tool: string,
  anyway?: (id: string) => void,
): Promise<CallOutcome> {
  const mark = markOf(answer);
  const id = mark?.id ?? answer.operationId;
  if (mark?.state === "unresolved" && id !== undefined) {
    // An alarm is told by itself, whoever called (alarms.ts).
    if (mark.reason === "key-conflict") return outcomeOf(answer);
    offer(`"${tool}" lost its answer: it may have taken effect, and it was not repeated.`, id, documents);
  } else if (mark?.state === "held" && id !== undefined) {
    const text =
      mark.reason === "identical-in-flight"
        ? `"${tool}" was not sent: an identical call is under way.`
        : `"${tool}" was not sent: an identical earlier call is still unresolved.`;
    offer(text, id, documents, mark.reason === "identical-in-flight" ? undefined : anyway);
  } else if (mark?.state === "not-executed" || id === undefined) {
    void window.showErrorMessage(firstText(answer) ?? `"${tool}" was not run.`);
  } else {
    await documents.open(id);
  }
  return outcomeOf(answer);
}

function offer(text: string, id: string, documents: OperationDocuments, anyway?: (id: string) => void): void {
  const buttons = ["Reconcile…", "Show Operation", ...(anyway === undefined ? [] : ["Send Anyway…"])];
  void window.showWarningMessage(text, ...buttons).then((choice) => {
    if (choice === "Reconcile…") void commands.executeCommand("mcpSafeReplay.reconcile", id);
    else if (choice === "Show Operation") void documents.open(id);
    else if (choice === "Send Anyway…") anyway?.(id);
  });
}

/** The way out of the guard: once, with a note, and another operation than the one that stays unresolved. */
function sendAnyway({ core }: Running, id: string, tool: string, call: () => Promise<CallOutcome>): void {
  const act = async (): Promise<void> => {
    const note = await window.showInputBox({
      title: `Send "${tool}" anyway`,
      prompt:
        "The earlier call may have taken effect: this could do it twice. Why is it right all the same? One line, kept with it.",
      ignoreFocusOut: true,
      validateInput: (text) => (text.trim() === "" ? "A reason is needed." : undefined),
    });
    if (note === undefined) return;
    await core.calls.letThrough(id, note.trim());
    await call();
  };
  act().catch((error: unknown) => void window.showErrorMessage(messageFor(error) ?? `"${tool}" was not sent.`));
}

/** The tool as everybody sees it: the key that a contract has the gateway make is not asked for. */
function shownTool(host: CoreHost, { engine }: Running, server: HostedServer, tool: ListedTool): ListedTool {
  return engine.withoutKeyArgument(tool, host.contract(server.name, tool.name));
}

function firstText(answer: CallAnswer): string | undefined {
  if (answer.kind === "error") return answer.error.message;
  const content: unknown = answer.result["content"];
  const first: unknown = Array.isArray(content) ? content[0] : undefined;
  return isRecord(first) && typeof first["text"] === "string" ? first["text"] : undefined;
}
