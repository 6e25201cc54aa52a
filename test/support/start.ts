// Owns: `npm start`: packages the extension, installs it into a VS Code with a profile of its own, opens the sample
// workspace and says where. `--desktop` (and Windows) uses the desktop VS Code; `--check` proves it in a browser and ends.
// Leaves to others: node_modules (prepare.mjs), the VS Code from npm (vscode-server.ts), what is shown (demo-profile.ts).

import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { launchChromium, openWorkbench } from "./chromium.ts";
import { demoProfile, type DemoProfile } from "./demo-profile.ts";
import { findDesktopVsCode } from "./desktop-vscode.ts";
import { runNpm } from "./npm.ts";
import { newRunFolder, repositoryRoot } from "./paths.ts";
import { endGroup, spawnGroup } from "./process-group.ts";
import { ensureVsCode, installVsix, profileFolders, startVsCode, writeUserSettings } from "./vscode-server.ts";

const vsix = join(repositoryRoot, "dist", "mcp-safe-replay.vsix");

/** Settles at the first Ctrl-C (or SIGTERM, SIGHUP). A second one ends the process at once. */
function interrupted(): Promise<void> {
  return new Promise((done) => {
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, () => done());
  });
}

function openInBrowser(url: string): void {
  const hasDesktop =
    process.platform === "darwin" || process.platform === "win32" || Boolean(process.env.DISPLAY ?? process.env.WAYLAND_DISPLAY);
  if (process.env.CI || !hasDesktop) return;
  const opener = process.platform === "darwin" ? "open" : "xdg-open";
  const child = spawn(opener, [url], { stdio: "ignore", detached: true });
  // The URL is on the screen; opening it is a courtesy.
  child.once("error", () => undefined);
  child.unref();
}

function writeWorkspace(folder: string, profile: DemoProfile): void {
  for (const [name, content] of Object.entries(profile.workspaceFiles)) {
    const file = join(folder, name);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, content);
  }
}

async function startInBrowser(options: { readonly check: boolean; readonly port: number }): Promise<void> {
  const runFolder = newRunFolder("start");
  const workspaceFolder = join(runFolder, "workspace");
  mkdirSync(workspaceFolder);
  const folders = profileFolders(runFolder);
  const profile = await demoProfile({ workspaceFolder, runFolder });
  try {
    writeWorkspace(workspaceFolder, profile);
    writeUserSettings(folders, profile.settings);
    await installVsix({ ...folders, vsix });
    const vscode = await startVsCode({
      ...folders,
      folder: workspaceFolder,
      port: options.port,
      smokeTest: false,
      ...(profile.env ? { env: profile.env } : {}),
    });
    try {
      console.log(`\nOpen ${vscode.url}\n`);
      if (options.check) {
        await check(vscode.url);
        return;
      }
      openInBrowser(vscode.url);
      console.log("Ctrl-C ends it.");
      const ended = await Promise.race([interrupted().then(() => false), vscode.ended.then(() => true)]);
      if (ended) throw new Error(`The VS Code server ended; its log is ${vscode.logFile}.`);
    } finally {
      await vscode.stop();
    }
  } finally {
    await profile.stop?.();
  }
}

async function check(url: string): Promise<void> {
  const browser = await launchChromium();
  try {
    const workbench = await openWorkbench(browser, url);
    await workbench.screenshot("start");
    console.log("OK: the workbench is open.");
  } finally {
    await browser.close();
  }
}

async function startOnDesktop(): Promise<void> {
  const desktop = findDesktopVsCode();
  if (desktop === undefined) {
    throw new Error(
      "There is no `code` command on the PATH. Install VS Code 1.138 or newer (macOS: run its command \"Shell Command: Install 'code' command in PATH\").",
    );
  }
  // Not below the repository: macOS allows a socket in the profile 103 bytes of path.
  const runFolder = mkdtempSync(join(tmpdir(), "msr-"));
  const workspaceFolder = join(runFolder, "workspace");
  const { userDataDir, extensionsDir } = profileFolders(runFolder);
  mkdirSync(workspaceFolder);
  const profile = await demoProfile({ workspaceFolder, runFolder });
  try {
    writeWorkspace(workspaceFolder, profile);
    writeUserSettings(profileFolders(runFolder), profile.settings);
    const folders = ["--user-data-dir", userDataDir, "--extensions-dir", extensionsDir];
    const shell = process.platform === "win32";
    const quoted = (text: string): string => (shell ? `"${text}"` : text);
    const installed = spawnSync(quoted(desktop.cli), [...folders, "--install-extension", vsix].map(quoted), {
      shell,
      stdio: "inherit",
    });
    if (installed.status !== 0) throw new Error(`${desktop.cli} did not install ${vsix}; its output is above.`);
    const child = spawnGroup(desktop.executable, [...folders, "--new-window", workspaceFolder], {
      stdio: "ignore",
      env: { ...process.env, ...profile.env, ELECTRON_RUN_AS_NODE: undefined },
    });
    const ended = new Promise<void>((done, failed) => {
      child.once("exit", () => done());
      child.once("error", failed);
    });
    console.log(`VS Code opens with the profile in ${runFolder}. Close it or press Ctrl-C to end.`);
    await Promise.race([interrupted(), ended]);
    await endGroup(child);
  } finally {
    await profile.stop?.();
  }
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      desktop: { type: "boolean", default: false },
      check: { type: "boolean", default: false },
      port: { type: "string", default: "0" },
    },
  });
  const port = Number(values.port);
  if (!Number.isInteger(port) || port < 0 || port > 65_535)
    throw new Error(`--port ${values.port} is not a port: give a number from 0 (any free one) to 65535.`);
  const onDesktop = values.desktop || process.platform === "win32";
  if (onDesktop && values.check) throw new Error("--check opens the VS Code from npm and does not go with --desktop.");
  console.log("Packaging the extension…");
  await Promise.all([runNpm(["run", "package"], repositoryRoot, "Mend what it says."), onDesktop ? undefined : ensureVsCode()]);
  if (onDesktop) await startOnDesktop();
  else await startInBrowser({ check: values.check, port });
}

try {
  await main();
  process.exit(0);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exit(1);
}
