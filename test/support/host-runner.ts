// Owns: running Mocha tests inside VS Code's extension host: bundles test/host, chooses the VS Code (VSCODE_EXECUTABLE, on
// Windows the desktop one, otherwise the VS Code from npm in a browser), starts it by `runTests` and reads the outcome.
// Leaves to others: the tests and their Mocha (test/host), the browser host (browser-host.ts).

import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { runTests } from "@vscode/test-electron";
import { build, type Plugin } from "esbuild";
import type { HostResult } from "../host/index.ts";
import { findDesktopVsCode } from "./desktop-vscode.ts";
import { environmentWithPinnedNode, newRunFolder, removeFolder, repositoryRoot } from "./paths.ts";
import { writeTotals } from "./totals.ts";
import { ensureVsCode, quietSettings } from "./vscode-server.ts";

/** In a bundle of CommonJS a module of ours still knows where its source is: test servers find their programs by that. */
const sourceUrls: Plugin = {
  name: "source-urls",
  setup(bundle) {
    bundle.onLoad({ filter: /[\\/]test[\\/].*\.ts$/ }, ({ path }) => ({
      contents: readFileSync(path, "utf8").replaceAll("import.meta.url", JSON.stringify(pathToFileURL(path).href)),
      loader: "ts",
    }));
  },
};

/** Bundles `test/host/*.ts` to CommonJS in `folder`; `vscode` and Mocha stay outside. Returns the path for `extensionTestsPath`. */
export async function bundleHostTests(
  sources: string = join(repositoryRoot, "test", "host"),
  folder: string = join(repositoryRoot, "out", "host"),
): Promise<string> {
  const tests = readdirSync(sources).filter((name) => name.endsWith(".test.ts"));
  // A test that is gone must not run on.
  removeFolder(folder);
  await build({
    entryPoints: ["index.ts", ...tests].map((name) => join(sources, name)),
    outdir: folder,
    bundle: true,
    platform: "node",
    format: "cjs",
    target: "node24",
    sourcemap: "inline",
    external: ["vscode", "mocha"],
    plugins: [sourceUrls],
    logLevel: "warning",
  });
  // Whatever the package's own "type" is, these files are CommonJS.
  writeFileSync(join(folder, "package.json"), '{"type":"commonjs"}\n');
  return join(folder, "index.js");
}

export interface HostRunOptions {
  /** Folder of the extension under test; the repository without it. */
  readonly extensionDevelopmentPath?: string;
  /** Folder of the tests' sources; test/host without it. */
  readonly tests?: string;
  /** Where to bundle them to; out/host without it. */
  readonly bundleTo?: string;
  /** Folder to open as the workspace; a new empty one without it. */
  readonly workspace?: string;
  /** User settings over `quietSettings`. */
  readonly settings?: Readonly<Record<string, unknown>>;
  /** Added to the environment of the extension host. */
  readonly env?: Readonly<Record<string, string>>;
}

async function executable(): Promise<string> {
  const named = process.env.VSCODE_EXECUTABLE;
  if (named !== undefined && named !== "") {
    if (existsSync(named)) return named;
    throw new Error(`VSCODE_EXECUTABLE is "${named}", which is not there. Correct or unset it.`);
  }
  if (process.platform === "win32") {
    const desktop = findDesktopVsCode();
    if (desktop !== undefined) return desktop.executable;
    throw new Error("The tests need a VS Code. Install it, or set VSCODE_EXECUTABLE to the path of its Code.exe.");
  }
  await ensureVsCode();
  return join(repositoryRoot, "test", "support", "browser-host.ts");
}

/**
 * Runs the tests in the extension host, workspace trusted (`runTests` switches workspace trust off). Resolves with the
 * outcome when VS Code has ended, failed tests included; rejects when there is no outcome, naming the run's folder.
 */
export async function runHostTests(options: HostRunOptions = {}): Promise<HostResult> {
  const extensionTestsPath = await bundleHostTests(options.tests, options.bundleTo);
  const vscodeExecutablePath = await executable();
  const run = newRunFolder("host");
  const workspace = options.workspace ?? join(run, "workspace");
  const user = join(run, "user");
  mkdirSync(workspace, { recursive: true });
  mkdirSync(join(user, "User"), { recursive: true });
  writeFileSync(join(user, "User", "settings.json"), JSON.stringify({ ...quietSettings, ...options.settings }, null, 2));
  const resultFile = join(run, "result.json");
  // Under `npm run` Electron-based programs may inherit ELECTRON_RUN_AS_NODE from a terminal of VS Code.
  const env = {
    ...environmentWithPinnedNode(),
    ...options.env,
    MSR_HOST_RESULT: resultFile,
    // For programs that the tests start: the extension host may run on another one, and VS Code takes its PATH from the login shell.
    MSR_HOST_NODE: process.execPath,
    ELECTRON_RUN_AS_NODE: undefined,
  };
  let failure: unknown;
  try {
    await runTests({
      vscodeExecutablePath,
      extensionDevelopmentPath: options.extensionDevelopmentPath ?? repositoryRoot,
      extensionTestsPath,
      extensionTestsEnv: env,
      launchArgs: [
        workspace,
        "--user-data-dir",
        user,
        "--extensions-dir",
        join(run, "extensions"),
        "--disable-telemetry",
        "--disable-experiments",
      ],
    });
  } catch (error) {
    failure = error;
  }
  if (!existsSync(resultFile)) {
    throw new Error(`VS Code ended without running the tests; its files are in ${run}.`, { cause: failure });
  }
  const result = JSON.parse(readFileSync(resultFile, "utf8")) as HostResult;
  if (failure !== undefined && result.failed.length === 0) {
    throw new Error(`VS Code failed after ${result.passed.length} passed tests; its files are in ${run}.`, { cause: failure });
  }
  if (result.failed.length === 0) removeFolder(run);
  return result;
}

if (import.meta.main) {
  try {
    const result = await runHostTests();
    writeTotals("host", { passed: result.passed.length, failed: result.failed.length });
    for (const failed of result.failed) console.error(`failed: ${failed.title}: ${failed.message}`);
    process.exitCode = result.failed.length > 0 ? 1 : 0;
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  }
}
