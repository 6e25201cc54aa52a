#!/usr/bin/env node
// Owns: a program that takes VS Code's command line for extension tests (`--extensionDevelopmentPath`,
// `--extensionTestsPath`, a folder, profile folders) and runs them in the VS Code from npm, seen by a Chromium. Exit code
// and console are the tests'. For `runTests({vscodeExecutablePath})`, in place of a desktop VS Code.
// Leaves to others: building and choosing the tests (host-runner.ts), running them in the extension host (test/host/index.ts).

import { appendFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import type { Page } from "playwright-core";
import { launchChromium, openWorkbench } from "./chromium.ts";
import { newRunFolder, removeFolder } from "./paths.ts";
import { profileFolders, startVsCode, type ProfileFolders } from "./vscode-server.ts";

/** Begins the lines of the tests; VS Code's own log, which comes the same way, goes to a file only. */
const TEST_LINE = "[test] ";
const LIMIT_MS = Number(process.env.MSR_HOST_TIMEOUT_MS ?? 600_000);

const { values, positionals } = parseArgs({
  args: process.argv.slice(2),
  strict: false,
  allowPositionals: true,
  options: {
    extensionDevelopmentPath: { type: "string", multiple: true },
    extensionTestsPath: { type: "string" },
    "user-data-dir": { type: "string" },
    "extensions-dir": { type: "string" },
    "disable-workspace-trust": { type: "boolean" },
  },
});

function text(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

async function main(): Promise<number> {
  const development = (values.extensionDevelopmentPath ?? []) as string[];
  const tests = text(values.extensionTestsPath);
  if (development.length === 0 || tests === undefined) {
    throw new Error(
      "browser-host needs --extensionDevelopmentPath and --extensionTestsPath. Run the tests with `npm run test:host`.",
    );
  }
  const ownFolder = newRunFolder("browser-host");
  const own = profileFolders(ownFolder);
  const profile: ProfileFolders = {
    ...own,
    userDataDir: text(values["user-data-dir"]) ?? own.userDataDir,
    extensionsDir: text(values["extensions-dir"]) ?? own.extensionsDir,
  };
  const vscode = await startVsCode({
    ...profile,
    smokeTest: true,
    workspaceTrust: values["disable-workspace-trust"] !== true,
    ...(positionals[0] === undefined ? {} : { folder: positionals[0] }),
  });
  const remote = (path: string): string => `vscode-remote://127.0.0.1:${vscode.port}${resolve(path)}`;
  const payload = [
    ...development.map((path) => ["extensionDevelopmentPath", remote(path)]),
    ["extensionTestsPath", remote(tests)],
  ];
  const url = new URL(vscode.url);
  url.searchParams.set("payload", JSON.stringify(payload));
  const windowLog = join(dirname(vscode.logFile), "window.log");
  const log = (args: readonly unknown[]): void => {
    const line = `${args.map(String).join(" ")}\n`;
    if (line.startsWith(TEST_LINE)) process.stdout.write(line.slice(TEST_LINE.length));
    appendFileSync(windowLog, line);
  };
  const browser = await launchChromium();
  try {
    let limit: NodeJS.Timeout | undefined;
    const code = await new Promise<number>((done, failed) => {
      limit = setTimeout(
        () => failed(new Error(`The tests did not end within ${LIMIT_MS / 1000} s (MSR_HOST_TIMEOUT_MS).`)),
        LIMIT_MS,
      );
      void vscode.ended.then(() => failed(new Error(`The VS Code server ended before the tests; see ${vscode.logFile}.`)));
      browser.once("disconnected", () => failed(new Error("Chromium ended before the tests.")));
      const prepare = async (page: Page): Promise<void> => {
        page.once("crash", () => failed(new Error("The page that shows VS Code crashed.")));
        await page.exposeFunction("codeAutomationLog", (_type: string, args: unknown[]) => log(args));
        await page.exposeFunction("codeAutomationExit", (exit: number) => done(exit));
      };
      openWorkbench(browser, url.href, { prepare }).catch(failed);
    }).finally(() => clearTimeout(limit));
    if (code === 0) removeFolder(ownFolder);
    else console.error(`The logs of this run: ${windowLog} and ${vscode.logFile}`);
    return code;
  } finally {
    await browser.close();
    await vscode.stop();
  }
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
