/**
 * Owns: the dialogue in which a person establishes what happened to unresolved calls, one or several: what is known, what can still be
 * found out, and the person's word.
 * Leaves to others: what a settlement means (src/replay), which calls it is about (operations.ts).
 */
import { ProgressLocation, QuickPickItemKind, commands, window } from "vscode";
import type { QuickPickItem } from "vscode";
import type { ListedTool } from "../../hosting/connection.ts";
import { keepsArguments, type Operation, type OperationEvent, type Settlement } from "../../operations/model.ts";
import type { ReconcileOptions } from "../../replay/calls.ts";
import { declaresRead } from "../../replay/gate.ts";
import type { CoreHost, Running } from "../core-host.ts";
import type { OperationDocuments } from "../operation-document.ts";
import { repeatHindrance } from "../repeat-text.ts";
import { readPrefill } from "../read-prefill.ts";
import { UserError, journalCode, messageFor } from "../user-error.ts";
import { agoText, attemptText, countText, evidenceLines, reasonText, stateWords } from "../words.ts";
import { askJson } from "./ask-json.ts";

export const withoutEvidence = "no evidence given";

/** The name under which a person's reading stands in the journal. */
const reader = "Reconcile command";

export function needsEvidence(as: Settlement): boolean {
  return as !== "dismissed";
}

type Choice = Settlement | "keep" | "recover" | "look-up" | "read" | "show" | "let-through";

interface ChoiceItem extends QuickPickItem {
  readonly choice?: Choice;
}

const heading = (label: string): ChoiceItem => ({ label, kind: QuickPickItemKind.Separator });

const recoverItem: ChoiceItem = {
  choice: "recover",
  label: "$(cloud-download) Recover the answer",
  detail: "The server may still have it. Asks for the answer only: nothing is called again.",
};
const lookUpItem: ChoiceItem = {
  choice: "look-up",
  label: "$(search) Run lookup",
  detail: "Asks the lookup tool that your contract names. Only a definitive answer settles it.",
};
const readItem: ChoiceItem = {
  choice: "read",
  label: "$(book) Read with a tool…",
  detail: "Asks a tool of this server that declares itself a read. What its answer means is for you to say.",
};
const settleItems: readonly ChoiceItem[] = [
  {
    choice: "effect-confirmed",
    label: "$(pass) It happened",
    detail: "You have seen that it took effect. The same call will not be sent again.",
  },
  {
    choice: "no-effect",
    label: "$(circle-slash) It did not happen",
    detail: "You have seen that it had no effect. After this, the call can be repeated.",
  },
  {
    choice: "dismissed",
    label: "$(dash) Dismiss",
    detail: "It no longer matters. Identical calls are no longer held: one more could do it twice.",
  },
];
/** Stands where the lookup would be offered. */
const withheldItem: ChoiceItem = {
  choice: "show",
  label: "$(circle-slash) No lookup, and no repeat later",
  detail: "Not all arguments were kept (setting journal.arguments): nothing to compare or to send.",
};
const keepItems: readonly ChoiceItem[] = [
  {
    choice: "keep",
    label: "$(question) Keep",
    detail: "You do not know yet. It stays unresolved, and identical calls stay held.",
  },
  {
    choice: "let-through",
    label: "$(debug-step-over) Let one through",
    detail: "Stays unresolved, but the next identical call is sent, once: it could do it twice.",
  },
];

const prompts: Readonly<Record<Settlement, string>> = {
  "effect-confirmed": "How do you know that it happened? One line, kept with the operation.",
  "no-effect": "How do you know that it did not happen? One line, kept with the operation.",
  dismissed: "Why does it no longer matter? One line, if you like.",
};

export class Reconciling {
  readonly #host: CoreHost;
  readonly #documents: OperationDocuments;

  constructor(host: CoreHost, documents: OperationDocuments) {
    this.#host = host;
    this.#documents = documents;
  }

  // ---- one ----------------------------------------------------------------------------------------------------------------------

  /** Asks what the person knows, again and again while they find out more. */
  async one(running: Running, operation: Operation): Promise<void> {
    let news: string | undefined;
    for (;;) {
      const now = (await running.core.journal.operation(operation.id)) ?? operation;
      if (now.state !== "unresolved") {
        say(`"${now.intention.tool}" is ${stateWords[now.state]} now.`);
        return;
      }
      const choice = await this.#ask(running, now, news);
      if (choice === undefined || choice === "keep") return;
      try {
        const outcome = await this.#carryOut(running, now, choice);
        if (outcome === "over") return;
        ({ news } = outcome);
      } catch (error) {
        if (journalCode(error) !== "not-unresolved") throw error;
        // Somebody else, a late answer or a further attempt was quicker: that is no failure.
        say(`Nothing was changed: ${messageFor(error) ?? "in the meantime it went another way."}`);
        return;
      }
    }
  }

  /** @param news what the last step found out */
  async #ask({ core }: Running, operation: Operation, news: string | undefined): Promise<Choice | undefined> {
    const { tool, server } = operation.intention;
    const [options, events] = await Promise.all([core.calls.reconcileOptions(operation.id), core.journal.events(operation.id)]);
    const items = [
      heading("What is known"),
      knownItem(operation, events),
      heading("Find out more"),
      ...findOut(operation, options, this.#readers(operation)),
      heading("You know"),
      ...settleItems.map((item) => (keepsArguments(operation) ? item : withoutRepeat(item))),
      heading("You do not know"),
      ...keepItems,
    ];
    const chosen = await window.showQuickPick(items, {
      title: `Reconcile "${tool}" on "${server}"`,
      placeHolder: news ?? `${agoText(operation.createdAt, Date.now())}: ${reasonText(operation)}. What do you know?`,
      ignoreFocusOut: true,
      matchOnDetail: true,
    });
    return chosen?.choice;
  }

  /** @returns "over", or the news with which the person is asked again */
  async #carryOut(
    running: Running,
    operation: Operation,
    choice: Choice,
  ): Promise<"over" | { readonly news: string | undefined }> {
    const { calls } = running.core;
    switch (choice) {
      case "keep":
        return "over";
      case "show":
        await this.#documents.open(operation.id);
        return { news: undefined };
      case "recover": {
        const found = await working("Fetching the lost answer", () => calls.recoverAnswer(operation.id));
        if (!found) return { news: "The server does not have the answer any more. What do you know?" };
        await this.#documents.open(operation.id);
        say("The answer was found: the call is completed.");
        return "over";
      }
      case "look-up": {
        const finding = await working("Looking it up", () => calls.lookUp(operation.id));
        if (finding.found === "undecided") return { news: `The lookup decides nothing: ${finding.evidence}.` };
        if (finding.found === "effect") say(`It happened: ${finding.evidence}.`);
        else offerRepeat(operation);
        return "over";
      }
      case "read":
        return { news: await this.#read(running, operation) };
      case "let-through": {
        const prompt = "Why may the next identical call go through? One line, kept with the operation.";
        const note = await askLine(titleOf(operation, "let one through"), prompt, true);
        if (note === undefined) return { news: undefined };
        await calls.letThrough(operation.id, note);
        return "over";
      }
      default: {
        const evidence = await askLine(titleOf(operation, stateWords[choice]), prompts[choice], needsEvidence(choice));
        if (evidence === undefined) return { news: undefined };
        const text = evidence === "" ? withoutEvidence : evidence;
        await calls.settle(operation.id, choice, text, "person", operation.attempts.length);
        if (choice === "no-effect") offerRepeat(operation);
        return "over";
      }
    }
  }

  // ---- reading ------------------------------------------------------------------------------------------------------------------

  #readers(operation: Operation): readonly ListedTool[] {
    const tools = this.#host.running?.core.servers.get(operation.intention.server)?.tools ?? [];
    return tools.filter((tool) => declaresRead(tool));
  }

  /** Asks a reading tool, as an operation of its own, and shows what it answered; that it was asked is kept with the unresolved one. */
  async #read(running: Running, operation: Operation): Promise<string | undefined> {
    const { core, engine } = running;
    const { intention } = operation;
    const tool = await pickTool(this.#readers(operation), intention.server);
    if (tool === undefined) return undefined;
    const lookup = this.#host.contract(intention.server, intention.tool)?.lookup;
    const subject = { id: operation.id, key: intention.key, keyArgument: intention.keyArgument, arguments: intention.arguments };
    const asked = lookup?.tool === tool.name ? engine.lookupArguments(lookup, subject) : undefined;
    const args = await askJson(running, tool, readPrefill(tool.inputSchema, intention, asked), {
      title: `Read with "${tool.name}" about "${intention.tool}"`,
      prompt: "Arguments as JSON, begun with those of the call. Enter asks.",
    });
    if (args === undefined) return undefined;
    const answer = await working(`Asking "${tool.name}"`, () =>
      core.calls.call(
        {
          server: intention.server,
          tool: tool.name,
          arguments: args,
          params: { name: tool.name, arguments: args },
          caller: { client: reader },
        },
        {},
      ),
    );
    answer.delivered();
    const read = answer.operationId === undefined ? undefined : await core.journal.operation(answer.operationId);
    await core.calls.noteRead(operation.id, tool.name, answer.operationId, read?.state === "completed");
    if (answer.operationId !== undefined) await this.#documents.open(answer.operationId);
    return read?.state === "completed"
      ? `"${tool.name}" answered, below. What do you know?`
      : `"${tool.name}" gave no answer. What do you know?`;
  }

  // ---- several ------------------------------------------------------------------------------------------------------------------

  /** One word and one line of evidence for all of them. */
  async several(running: Running, operations: readonly Operation[]): Promise<void> {
    const options = await Promise.all(operations.map((one) => running.core.calls.reconcileOptions(one.id)));
    const count = countText(operations.length, "call");
    const title = `Reconcile ${count}`;
    const items = [
      ...(options.some((one) => one.lookUp) ? [heading("Find out more"), { ...lookUpItem, label: "$(search) Run lookups" }] : []),
      heading("You know"),
      ...settleItems,
      heading("You do not know"),
      ...keepItems.filter((item) => item.choice === "keep"),
    ];
    const placeHolder = operations.map((one) => `${one.intention.tool} · ${one.intention.server}`).join(", ");
    const choice = (await window.showQuickPick(items, { title, placeHolder, ignoreFocusOut: true }))?.choice;
    if (choice === "look-up") {
      const looked = operations.filter((_, index) => options[index]?.lookUp === true);
      const settled = await working("Looking them up", () => this.#lookUpAll(running, looked));
      say(`Looked up ${countText(looked.length, "call")}: ${settled} settled, ${looked.length - settled} still unresolved.`);
      return;
    }
    if (choice !== "effect-confirmed" && choice !== "no-effect" && choice !== "dismissed") return;
    const evidence = await askLine(`${title}: ${stateWords[choice]}`, manyPrompts[choice], needsEvidence(choice));
    if (evidence === undefined) return;
    const settled = await this.settleAll(running, operations, choice, evidence === "" ? withoutEvidence : evidence);
    const left = operations.length - settled;
    say(
      `${countText(settled, "call")} settled: ${stateWords[choice]}.${left === 0 ? "" : ` ${countText(left, "call")} changed in the meantime and ${left === 1 ? "was" : "were"} left alone.`}`,
    );
  }

  /** @returns how many were settled; what changed since it was shown is left alone */
  async settleAll(running: Running, operations: readonly Operation[], as: Settlement, evidence: string): Promise<number> {
    let settled = 0;
    for (const operation of operations) {
      try {
        await running.core.calls.settle(operation.id, as, evidence, "person", operation.attempts.length);
        settled += 1;
      } catch (error) {
        if (journalCode(error) !== "not-unresolved") throw error;
      }
    }
    return settled;
  }

  async #lookUpAll({ core }: Running, operations: readonly Operation[]): Promise<number> {
    let settled = 0;
    for (const operation of operations) {
      try {
        if ((await core.calls.lookUp(operation.id)).found !== "undecided") settled += 1;
      } catch (error) {
        if (journalCode(error) !== "not-unresolved") throw error;
      }
    }
    return settled;
  }
}

const manyPrompts: Readonly<Record<Settlement, string>> = {
  "effect-confirmed": "How do you know that all of them happened? One line, kept with each.",
  "no-effect": "How do you know that none of them happened? One line, kept with each.",
  dismissed: "Why do they no longer matter? One line, if you like.",
};

/** Its attempts and its evidence, in two lines; taking it opens everything. */
function knownItem(operation: Operation, events: readonly OperationEvent[]): ChoiceItem {
  const last = operation.attempts.at(-1);
  const evidence = evidenceLines(events, Date.now()).at(-1);
  return {
    choice: "show",
    label: `$(history) ${countText(operation.attempts.length, "attempt")}${last === undefined ? "" : `, the last: ${attemptText(last)}`}`,
    detail: `${evidence ?? "Nothing was looked up or said about it yet."} Opens its attempts and evidence.`,
  };
}

function findOut(operation: Operation, options: ReconcileOptions, readers: readonly ListedTool[]): ChoiceItem[] {
  return [
    ...(options.recover ? [recoverItem] : []),
    ...(keepsArguments(operation) ? (options.lookUp ? [lookUpItem] : []) : [withheldItem]),
    ...(readers.length > 0 ? [readItem] : []),
  ];
}

/** What is said of "it did not happen" where nothing can be repeated. */
function withoutRepeat(item: ChoiceItem): ChoiceItem {
  return item.choice === "no-effect"
    ? { ...item, detail: "You have seen that it had no effect. It cannot be repeated from here." }
    : item;
}

interface ToolItem extends QuickPickItem {
  readonly tool: ListedTool;
}

async function pickTool(tools: readonly ListedTool[], server: string): Promise<ListedTool | undefined> {
  if (tools.length === 0) throw new UserError(`The server "${server}" has no tool that declares itself a read.`);
  const items: ToolItem[] = tools.map((tool) => ({
    tool,
    label: tool.name,
    ...(tool.description === undefined ? {} : { detail: tool.description.split("\n", 1)[0] ?? "" }),
  }));
  const placeHolder = `Which tool of "${server}" is to be asked? They declare that they only read.`;
  return (await window.showQuickPick(items, { title: "Read with a tool", placeHolder, ignoreFocusOut: true }))?.tool;
}

function titleOf({ intention }: Operation, what: string): string {
  return `Reconcile "${intention.tool}" on "${intention.server}": ${what}`;
}

/** One line; empty only where none is needed. Undefined when the person gave up. */
async function askLine(title: string, prompt: string, needed: boolean): Promise<string | undefined> {
  const entered = await window.showInputBox({
    title,
    prompt,
    ignoreFocusOut: true,
    validateInput: (text) => (needed && text.trim() === "" ? "A line of evidence is needed." : undefined),
  });
  return entered?.trim();
}

function offerRepeat(operation: Operation): void {
  const recorded = `Recorded: "${operation.intention.tool}" did not happen. Nothing was sent.`;
  const hindrance = repeatHindrance(operation);
  if (hindrance !== undefined) {
    say(`${recorded} It cannot be repeated from here: ${hindrance}`);
    return;
  }
  void window.showInformationMessage(recorded, "Repeat Call…").then((choice) => {
    if (choice !== undefined) void commands.executeCommand("mcpSafeReplay.repeatCall", operation.id);
  });
}

function say(text: string): void {
  void window.showInformationMessage(text);
}

function working<T>(title: string, act: () => Promise<T>): Thenable<T> {
  return window.withProgress({ location: ProgressLocation.Notification, title }, act);
}
