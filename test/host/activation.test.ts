// Owns: proof that VS Code activates the extension after its start, and that every command of the manifest is there.

import assert from "node:assert/strict";
import * as vscode from "vscode";
import { eventually, extension } from "./support.ts";

describe("the extension", () => {
  it("is activated after the start of VS Code, without anybody asking for it", async () => {
    await eventually("the activation", () => extension().isActive || undefined);
  });

  it("registers every command of its manifest", async () => {
    const manifest = extension().packageJSON as { contributes: { commands: { command: string }[] } };
    const declared = manifest.contributes.commands.map(({ command }) => command);
    const registered = new Set(await vscode.commands.getCommands(true));
    assert.ok(declared.length > 0);
    assert.deepEqual(
      declared.filter((command) => !registered.has(command)),
      [],
    );
  });
});
