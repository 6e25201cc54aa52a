/**
 * Owns: what a person does with an operation: reconcile it, look at it, copy its id, take the journal out.
 * Leaves to others: what a settlement means (src/replay), repeating (call-tool.ts).
 */
import { writeFile } from "node:fs/promises";
import { ProgressLocation, Uri, commands, env, window, workspace } from "vscode";
import type { QuickPickItem } from "vscode";
import type { Core } from "../../gateway/core.ts";
import type { Operation, OperationState, Settlement } from "../../operations/model.ts";
import type { ReconcileOptions } from "../../replay/calls.ts";
import { scriptOf } from "../commands.ts";
import type { CommandMap } from "../commands.ts";
import type { CoreHost } from "../core-host.ts";
import type { OperationDocuments } from "../operation-document.ts";
import { UserError, journalCode } from "../user-error.ts";
import { OperationNode } from "../views/unresolved-view.ts";
import { agoText, reasonText, stateWords } from "../words.ts";

export function operationActions(
  host: CoreHost,
  documents: OperationDocuments,
): Pick<
  CommandMap,
  "mcpSafeReplay.reconcile" | "mcpSafeReplay.showOperation" | "mcpSafeReplay.copyOperationId" | "mcpSafeReplay.exportJournal"
> {
  return {
    "mcpSafeReplay.reconcile": async (target) => {
      const { core } = await host.ready();
      const script = scriptOf(target);
      if (script !== undefined) {
        const evidence = script.evidence?.trim() ?? "";
        if (needsEvidence(script.as) && evidence === "") throw new UserError("A line of evidence is needed.");
        await core.calls.settle(script.id, script.as, evidence === "" ? withoutEvidence : evidence, "person");
        return;
      }
      const operation = await operationFor(
        core,
        target,
        ["unresolved"],
        "Which call do you want to reconcile?",
        "Nothing is unresolved.",
      );
      if (operation === undefined) return;
      const chosen = await askWhat(operation, await core.calls.reconcileOptions(operation.id));
      if (chosen !== undefined) await unlessSettled(core, operation, () => carryOut(core, operation, chosen));
    },

    "mcpSafeReplay.showOperation": async (target) => {
      const { core } = await host.ready();
      const operation = await operationFor(
        core,
        target,
        undefined,
        "Which operation?",
        "The journal is empty: no call was made yet.",
      );
      if (operation !== undefined) await documents.open(operation.id);
    },

    "mcpSafeReplay.copyOperationId": async (target) => {
      const { core } = await host.ready();
      const operation = await operationFor(
        core,
        target,
        undefined,
        "Which operation?",
        "The journal is empty: no call was made yet.",
      );
      if (operation !== undefined) await env.clipboard.writeText(operation.id);
    },

    "mcpSafeReplay.exportJournal": async (target) => {
      const { core, engine } = await host.ready();
      const script = scriptOf(target);
      const chosen = script === undefined ? await askFile() : Uri.file(script.path);
      if (chosen === undefined) return;
      const format = script?.format ?? (chosen.path.endsWith(".csv") ? "csv" : "jsonl");
      const lines: string[] = [];
      for await (const line of format === "csv" ? engine.exportCsv(core.journal) : engine.exportJsonl(core.journal))
        lines.push(line);
      const text = Buffer.from(lines.join(""));
      // The journal holds arguments and results: for a file of this machine, only the person may read it.
      if (chosen.scheme === "file") await writeFile(chosen.fsPath, text, { mode: 0o600 });
      else await workspace.fs.writeFile(chosen, text);
      if (script === undefined)
        void window.showInformationMessage(
          `The journal was exported. It holds the arguments and results of your calls: keep it private.`,
        );
    },
  };
}

const withoutEvidence = "no evidence given";

/** The operation that a command is about: the row, the id, or the person's choice among those in these states. */
export async function operationFor(
  core: Core,
  target: OperationNode | string | { readonly id: string } | undefined,
  states: readonly OperationState[] | undefined,
  question: string,
  none: string,
): Promise<Operation | undefined> {
  const id = typeof target === "string" ? target : target instanceof OperationNode ? target.operation.id : scriptOf(target)?.id;
  if (id !== undefined) {
    const operation = await core.journal.operation(id);
    if (operation === undefined) throw new UserError(`The journal has no operation ${id}.`);
    return operation;
  }
  const operations = await core.journal.operations({ ...(states === undefined ? {} : { states }), limit: 200 });
  if (operations.length === 0) {
    if (core.journal.problem !== undefined) throw core.journal.problem;
    void window.showInformationMessage(none);
    return undefined;
  }
  const now = Date.now();
  const items = operations.map((operation) => ({
    operation,
    label: `${operation.intention.tool} · ${operation.intention.server}`,
    description: `${stateWords[operation.state]}, ${agoText(operation.updatedAt, now)}`,
    detail: operation.id,
  }));
  return (await window.showQuickPick(items, { title: question, matchOnDetail: true, matchOnDescription: true }))?.operation;
}

type Choice = Settlement | "keep" | "recover" | "look-up" | "let-through";

interface ChoiceItem extends QuickPickItem {
  readonly choice: Choice;
}

const recoverItem: ChoiceItem = {
  choice: "recover",
  label: "$(cloud-download) Fetch the lost answer",
  detail: "The server may still have it. Asks for the answer only: nothing is called again.",
};
const lookUpItem: ChoiceItem = {
  choice: "look-up",
  label: "$(search) Look it up",
  detail: "Calls the lookup tool that your contract names. Only a definitive answer settles it.",
};
const choices: readonly ChoiceItem[] = [
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
    choice: "keep",
    label: "$(question) Keep",
    detail: "You do not know yet. It stays unresolved, and identical calls stay held.",
  },
  {
    choice: "let-through",
    label: "$(debug-step-over) Let one through",
    detail: "Stays unresolved, but the next identical call is sent, once: it could do it twice.",
  },
  {
    choice: "dismissed",
    label: "$(dash) Dismiss",
    detail: "It no longer matters. Identical calls are no longer held: one more could do it twice.",
  },
];

async function askWhat(operation: Operation, options: ReconcileOptions): Promise<Choice | undefined> {
  const { tool, server } = operation.intention;
  const items = [...(options.recover ? [recoverItem] : []), ...(options.lookUp ? [lookUpItem] : []), ...choices];
  const chosen = await window.showQuickPick(items, {
    title: `Reconcile "${tool}" on "${server}"`,
    placeHolder: `${agoText(operation.createdAt, Date.now())}: ${reasonText(operation)}. What do you know?`,
    ignoreFocusOut: true,
  });
  return chosen?.choice;
}

async function carryOut(core: Core, operation: Operation, choice: Choice): Promise<void> {
  switch (choice) {
    case "keep":
      return;
    case "recover": {
      const found = await working("Fetching the lost answer", () => core.calls.recoverAnswer(operation.id));
      say(
        found
          ? "The answer was found: the call is completed."
          : "The server does not have the answer any more. The call stays unresolved.",
      );
      return;
    }
    case "look-up": {
      const finding = await working("Looking it up", () => core.calls.lookUp(operation.id));
      if (finding.found === "effect") {
        say(`It happened: ${finding.evidence}.`);
        return;
      }
      if (finding.found === "no-effect") {
        offerRepeat(operation);
        return;
      }
      say(`The lookup decides nothing: ${finding.evidence}. The call stays unresolved.`);
      return;
    }
    case "let-through": {
      const note = await askLine(
        operation,
        "let one through",
        "Why may the next identical call go through? One line, kept with the operation.",
        true,
      );
      if (note !== undefined) await core.calls.letThrough(operation.id, note);
      return;
    }
    default: {
      const evidence = await askLine(operation, stateWords[choice], prompts[choice], needsEvidence(choice));
      if (evidence === undefined) return;
      await core.calls.settle(operation.id, choice, evidence === "" ? withoutEvidence : evidence, "person");
      if (choice === "no-effect") offerRepeat(operation);
    }
  }
}

const prompts: Readonly<Record<Settlement, string>> = {
  "effect-confirmed": "How do you know that it happened? One line, kept with the operation.",
  "no-effect": "How do you know that it did not happen? One line, kept with the operation.",
  dismissed: "Why does it no longer matter? One line, if you like.",
};

function needsEvidence(as: Settlement): boolean {
  return as !== "dismissed";
}

/** One line; empty only where none is needed. Undefined when the person gave up. */
async function askLine(operation: Operation, what: string, prompt: string, needed: boolean): Promise<string | undefined> {
  const { tool, server } = operation.intention;
  const entered = await window.showInputBox({
    title: `Reconcile "${tool}" on "${server}": ${what}`,
    prompt,
    ignoreFocusOut: true,
    validateInput: (text) => (needed && text.trim() === "" ? "A line of evidence is needed." : undefined),
  });
  return entered?.trim();
}

/** Somebody else, or a late answer, may have been quicker: that is no failure. */
async function unlessSettled(core: Core, operation: Operation, act: () => Promise<void>): Promise<void> {
  try {
    await act();
  } catch (error) {
    if (journalCode(error) !== "not-unresolved") throw error;
    const now = await core.journal.operation(operation.id);
    const state = now === undefined ? "gone" : stateWords[now.state];
    say(`Nothing was changed: in the meantime "${operation.intention.tool}" became "${state}".`);
  }
}

function offerRepeat(operation: Operation): void {
  void window
    .showInformationMessage(`Recorded: "${operation.intention.tool}" did not happen. Nothing was sent.`, "Repeat Call…")
    .then((choice) => {
      if (choice !== undefined) void commands.executeCommand("mcpSafeReplay.repeatCall", operation.id);
    });
}

function say(text: string): void {
  void window.showInformationMessage(text);
}

function working<T>(title: string, act: () => Promise<T>): Thenable<T> {
  return window.withProgress({ location: ProgressLocation.Notification, title }, act);
}

async function askFile(): Promise<Uri | undefined> {
  const folder = workspace.workspaceFolders?.[0]?.uri;
  return window.showSaveDialog({
    title: "Export Journal",
    saveLabel: "Export",
    filters: { "JSON Lines, every event": ["jsonl"], "Table (CSV)": ["csv"] },
    ...(folder === undefined ? {} : { defaultUri: Uri.joinPath(folder, "mcp-safe-replay.jsonl") }),
  });
}
