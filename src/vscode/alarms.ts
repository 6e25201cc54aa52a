/**
 * Owns: telling the person of an alarm, once in each window, whoever made the call.
 * Leaves to others: what is an alarm (alarm-text.ts), reconciling it (actions/reconcile.ts).
 */
import { commands, window } from "vscode";
import type { Disposable } from "vscode";
import { alarmText, isAlarm } from "./alarm-text.ts";
import type { Operations } from "./operations.ts";

/** Shows each alarm as an error message that leads to the call. @returns what ends it */
export function showAlarms(operations: Operations): Disposable {
  const told = new Set<string>();
  return operations.onDidChange(() => {
    for (const operation of operations.snapshot.unresolved) {
      const { id } = operation;
      if (!isAlarm(operation) || told.has(id)) continue;
      told.add(id);
      void window.showErrorMessage(alarmText(operation), "Reconcile…", "Show Operation").then((choice) => {
        if (choice === "Reconcile…") void commands.executeCommand("mcpSafeReplay.reconcile", id);
        else if (choice === "Show Operation") void commands.executeCommand("mcpSafeReplay.showOperation", id);
      });
    }
  });
}
