/**
 * Owns: two figures of the packaged extension: the size of the VSIX, and the activation time that VS Code itself reports in its list of
 * running extensions. Prints them and fails when one is beyond its limit.
 */
import { mkdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { launchChromium, openWorkbench } from "./chromium.ts";
import { newRunFolder, removeFolder, repositoryRoot } from "./paths.ts";
import { ensureVsCode, installVsix, profileFolders, quietSettings, startVsCode, writeUserSettings } from "./vscode-server.ts";

const limits = { vsixBytes: 1.5 * 1024 * 1024, activationMs: 100 };
const windows = 5;

const vsix = join(repositoryRoot, "dist", "mcp-safe-replay.vsix");
const { size } = statSync(vsix);

await ensureVsCode();
const runFolder = newRunFolder("measure");
const folder = join(runFolder, "workspace");
mkdirSync(folder);
const folders = profileFolders(runFolder);
writeUserSettings(folders, quietSettings);
await installVsix({ ...folders, vsix });
const vscode = await startVsCode({ ...folders, folder, smokeTest: false });
const times: number[] = [];
try {
  const browser = await launchChromium();
  try {
    for (let i = 0; i < windows; i++) {
      const workbench = await openWorkbench(browser, vscode.url);
      await workbench.runCommand("Developer: Show Running Extensions");
      const row = workbench.page.locator(".runtime-extensions-editor .extension", { hasText: "MCP Safe Replay" });
      const time = row.locator(".activation-time");
      await time.waitFor();
      times.push(Number(/(\d+)ms/.exec(await time.innerText())?.[1]));
      await workbench.close();
    }
  } finally {
    await browser.close();
  }
} finally {
  await vscode.stop();
  removeFolder(runFolder);
}
const sorted = times.toSorted((a, b) => a - b);
const median = sorted[Math.floor(windows / 2)] ?? NaN;
console.log(`VSIX: ${(size / 1024).toFixed(0)} KiB (limit ${limits.vsixBytes / 1024} KiB)`);
console.log(
  `Activation as VS Code reports it, ${windows} windows: ${sorted.join(", ")} ms; median ${median} ms (limit ${limits.activationMs} ms)`,
);
process.exitCode = size <= limits.vsixBytes && median < limits.activationMs ? 0 : 1;
