/**
 * Owns: what a person does with operations: reconcile them, look at one, copy its id, take the journal out; and which ones are meant.
 * Leaves to others: the dialogue of reconciling (reconcile.ts), repeating (call-tool.ts).
 */
import { writeFile } from "node:fs/promises";
import { Uri, env, window, workspace } from "vscode";
import type { Core } from "../../gateway/core.ts";
import type { Operation, OperationState } from "../../operations/model.ts";
import { scriptOf } from "../commands.ts";
import type { CommandMap, ReconcileManyScript } from "../commands.ts";
import type { CoreHost } from "../core-host.ts";
import type { OperationDocuments } from "../operation-document.ts";
import { UserError } from "../user-error.ts";
import { OperationNode } from "../views/unresolved-view.ts";
import { agoText, stateWords } from "../words.ts";
import { Reconciling, needsEvidence, withoutEvidence } from "./reconcile.ts";

export function operationActions(
  host: CoreHost,
  documents: OperationDocuments,
): Pick<
  CommandMap,
  "mcpSafeReplay.reconcile" | "mcpSafeReplay.showOperation" | "mcpSafeReplay.copyOperationId" | "mcpSafeReplay.exportJournal"
> {
  const reconciling = new Reconciling(host, documents);
  return {
    "mcpSafeReplay.reconcile": async (target, selected) => {
      const running = await host.ready();
      const { core } = running;
      const script = scriptOf(target);
      if (script !== undefined) {
        const evidence = script.evidence?.trim() ?? "";
        if (needsEvidence(script.as) && evidence === "") throw new UserError("A line of evidence is needed.");
        for (const id of "ids" in script ? script.ids : [script.id])
          await core.calls.settle(id, script.as, evidence === "" ? withoutEvidence : evidence, "person");
        return;
      }
      const several = await unresolvedAmong(core, selected);
      if (several.length > 1) {
        await reconciling.several(running, several);
        return;
      }
      const operation = await operationFor(
        core,
        target as Exclude<typeof target, ReconcileManyScript>,
        ["unresolved"],
        "Which call do you want to reconcile?",
        "Nothing is unresolved.",
      );
      if (operation !== undefined) await reconciling.one(running, operation);
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

/** The unresolved calls among the selected rows, as they are now. */
async function unresolvedAmong(core: Core, selected: unknown): Promise<readonly Operation[]> {
  const rows: readonly unknown[] = Array.isArray(selected) ? selected : [];
  const nodes = rows.filter((row) => row instanceof OperationNode);
  const operations = await Promise.all(nodes.map((node) => core.journal.operation(node.operation.id)));
  return operations.filter((operation): operation is Operation => operation?.state === "unresolved");
}

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
  return (
    await window.showQuickPick(items, { title: question, matchOnDetail: true, matchOnDescription: true, ignoreFocusOut: true })
  )?.operation;
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
