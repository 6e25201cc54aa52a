/**
 * Owns: what a person does with operations: reconcile them, close a conflict, look at one, copy its id; and which ones are meant.
 * Leaves to others: the dialogue of reconciling (reconcile.ts), repeating (call-tool.ts), the journal as a whole (journal.ts).
 */
import { env, window } from "vscode";
import type { Core } from "../../gateway/core.ts";
import type { OperationQuery } from "../../operations/journal.ts";
import type { Operation } from "../../operations/model.ts";
import { scriptOf } from "../commands.ts";
import type { CommandMap, ReconcileManyScript } from "../commands.ts";
import type { CoreHost } from "../core-host.ts";
import type { OperationDocuments } from "../operation-document.ts";
import { UserError } from "../user-error.ts";
import { OperationNode } from "../views/unresolved-view.ts";
import { agoText, settlementWords, stateWords } from "../words.ts";
import { Reconciling, needsEvidence, withoutEvidence } from "./reconcile.ts";

export function operationActions(
  host: CoreHost,
  documents: OperationDocuments,
): Pick<
  CommandMap,
  "mcpSafeReplay.reconcile" | "mcpSafeReplay.closeConflict" | "mcpSafeReplay.showOperation" | "mcpSafeReplay.copyOperationId"
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
        { states: ["unresolved"] },
        "Which call do you want to reconcile?",
        "Nothing is unresolved.",
      );
      if (operation !== undefined) await reconciling.one(running, operation);
    },

    "mcpSafeReplay.closeConflict": async (target) => {
      const { core } = await host.ready();
      const script = scriptOf(target);
      if (script !== undefined) {
        if (script.note.trim() === "") throw new UserError("A note is needed: what did you find?");
        await core.calls.acknowledge(script.id, script.note.trim());
        return;
      }
      const operation = await operationFor(
        core,
        target,
        { conflict: true },
        "Which conflict do you want to close?",
        "No settlement is contradicted by an answer.",
      );
      if (operation === undefined) return;
      const { tool, server } = operation.intention;
      if (!operation.conflict) throw new UserError(`"${tool}" on "${server}" is in no conflict: there is nothing to close.`);
      const as = operation.settlement === undefined ? "" : ` "${settlementWords[operation.settlement.as]}"`;
      const note = await window.showInputBox({
        title: `Close the conflict of "${tool}" on "${server}"`,
        prompt: `An answer contradicts${as}. What did you find, and what was done about it? One line, kept with both.`,
        ignoreFocusOut: true,
        validateInput: (text) => (text.trim() === "" ? "A line is needed." : undefined),
      });
      if (note === undefined) return;
      await core.calls.acknowledge(operation.id, note.trim());
    },

    "mcpSafeReplay.showOperation": async (target) => {
      const { core } = await host.ready();
      const operation = await operationFor(core, target, {}, "Which operation?", "The journal is empty: no call was made yet.");
      if (operation !== undefined) await documents.open(operation.id);
    },

    "mcpSafeReplay.copyOperationId": async (target) => {
      const { core } = await host.ready();
      const operation = await operationFor(core, target, {}, "Which operation?", "The journal is empty: no call was made yet.");
      if (operation !== undefined) await env.clipboard.writeText(operation.id);
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

/** The operation that a command is about: the row, the id, or the person's choice among those that fit. */
export async function operationFor(
  core: Core,
  target: OperationNode | string | { readonly id: string } | undefined,
  which: OperationQuery,
  question: string,
  none: string,
): Promise<Operation | undefined> {
  const id = typeof target === "string" ? target : target instanceof OperationNode ? target.operation.id : scriptOf(target)?.id;
  if (id !== undefined) {
    const operation = await core.journal.operation(id);
    if (operation === undefined) throw new UserError(`The journal has no operation ${id}.`);
    return operation;
  }
  const operations = await core.journal.operations({ ...which, limit: 200 });
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
