/**
 * Owns: showing what an import will change, as a comparison of the person's servers before and after.
 * Leaves to others: the two texts (sources/import-formats.ts).
 */
import { TabInputTextDiff, Uri, commands, window, workspace } from "vscode";
import type { Disposable, TextDocumentContentProvider } from "vscode";
import type { ImportPlan } from "../sources/import-formats.ts";

const scheme = "mcp-safe-replay-import";

export class ImportPreview implements TextDocumentContentProvider, Disposable {
  readonly #registration: Disposable;
  readonly #texts = new Map<string, string>();
  #count = 0;

  constructor() {
    this.#registration = workspace.registerTextDocumentContentProvider(scheme, this);
  }

  provideTextDocumentContent(uri: Uri): string {
    return this.#texts.get(uri.toString()) ?? "";
  }

  /** @returns what closes it again */
  async show({ before, after }: ImportPlan): Promise<() => Promise<void>> {
    this.#count += 1;
    const [left, right] = ["before", "after"].map((side) => Uri.from({ scheme, path: `/${this.#count}/${side}.json` }));
    if (left === undefined || right === undefined) return () => Promise.resolve();
    this.#texts.set(left.toString(), before).set(right.toString(), after);
    await commands.executeCommand("vscode.diff", left, right, "Import Servers: your servers before and after", { preview: true });
    return async () => {
      this.#texts.clear();
      const tabs = window.tabGroups.all.flatMap((group) => group.tabs);
      await window.tabGroups.close(
        tabs.filter(({ input }) => input instanceof TabInputTextDiff && input.modified.toString() === right.toString()),
      );
    };
  }

  dispose(): void {
    this.#registration.dispose();
  }
}
