/**
 * Owns: the extension's entry: build, register, nothing else. The core starts after activation has returned, so that no window waits.
 */
import type { ExtensionContext } from "vscode";
import { buildExtension } from "./vscode/extension-parts.ts";
import type { Extension } from "./vscode/extension-parts.ts";

let extension: Extension | undefined;

export function activate(context: ExtensionContext): void {
  const built = buildExtension(context);
  extension = built;
  context.subscriptions.push(built);
  setImmediate(() => built.start());
}

export function deactivate(): Promise<void> | undefined {
  return extension?.end();
}
