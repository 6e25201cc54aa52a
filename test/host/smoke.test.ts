// Owns: proof that tests run inside the extension host of a VS Code that is new enough.

import assert from "node:assert/strict";
import * as vscode from "vscode";

describe("the host of these tests", () => {
  it("is VS Code 1.139 or later", () => {
    const [major = 0, minor = 0] = vscode.version.split(".").map(Number);
    assert.ok(major > 1 || (major === 1 && minor >= 139), `VS Code ${vscode.version} is too old`);
  });

  it("knows whether the workspace is trusted", () => {
    assert.equal(typeof vscode.workspace.isTrusted, "boolean");
  });
});
