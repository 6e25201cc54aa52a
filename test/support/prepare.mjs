// Owns: what must be there before any other script can run: node_modules, and with `--chromium` a browser for the tests.
// Plain JavaScript for Node >= 20 without dependencies. Leaves to others: VS Code itself (vscode-server.ts).

import { spawnSync } from "node:child_process";
import { existsSync, lstatSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { CHROMIUM_MEND, findChromium } from "./find-chromium.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");

/**
 * @param {string} message
 * @returns {never}
 */
function fail(message) {
  console.error(`prepare: ${message}`);
  process.exit(1);
}

/**
 * Runs a program with its output on ours; true when it ended with 0.
 * @param {string} command
 * @param {string[]} args
 * @param {NodeJS.ProcessEnv} [env]
 */
function run(command, args, env = process.env) {
  const done = spawnSync(command, args, { cwd: root, stdio: "inherit", env });
  if (done.error) console.error(`prepare: ${command}: ${done.error.message}`);
  return done.status === 0;
}

/** @param {string[]} args */
function npm(args) {
  const cli = process.env.npm_execpath;
  if (cli && /\.c?js$/.test(cli)) return run(process.execPath, [cli, ...args]);
  // npm is a .cmd file on Windows, which only a shell runs; the arguments are constants.
  return process.platform === "win32" ? run("cmd.exe", ["/d", "/s", "/c", `npm ${args.join(" ")}`]) : run("npm", args);
}

/**
 * True when node_modules holds what package-lock.json names. By content, not by time: a checkout that touches the file
 * must not cost an installation, nor take node_modules away under a program that runs.
 * @param {string} lockFile
 * @param {string} installedFile
 */
function isInstalled(lockFile, installedFile) {
  if (!existsSync(installedFile)) return false;
  const wanted = JSON.parse(readFileSync(lockFile, "utf8")).packages ?? {};
  const installed = JSON.parse(readFileSync(installedFile, "utf8")).packages ?? {};
  return Object.entries(wanted).every(([path, entry]) => {
    if (path === "") return true;
    // Optional ones are installed on some platforms only.
    if (!(path in installed)) return entry.optional === true;
    return installed[path].version === entry.version && installed[path].integrity === entry.integrity;
  });
}

function dependencies() {
  const lock = join(root, "package-lock.json");
  const modules = join(root, "node_modules");
  if (!existsSync(lock)) fail("package-lock.json is missing: this is not a complete clone. Clone the repository again.");
  if (isInstalled(lock, join(modules, ".package-lock.json"))) return;
  if (lstatSync(modules, { throwIfNoEntry: false })?.isSymbolicLink()) {
    // `npm ci` would empty the folder that it points to, which belongs to another checkout.
    fail(
      "node_modules is a symbolic link to dependencies that are not those of package-lock.json. Remove the link and run the command again.",
    );
  }
  console.log("prepare: installing the dependencies (npm ci)…");
  const started = Date.now();
  if (!npm(["ci"])) {
    fail(
      "`npm ci` failed; its output is above. It needs the network (or a full npm cache) and write access to this folder. Then run the command again.",
    );
  }
  console.log(`prepare: dependencies installed in ${((Date.now() - started) / 1000).toFixed(1)} s`);
}

function chromium() {
  let found;
  try {
    found = findChromium();
  } catch (error) {
    fail(error instanceof Error ? error.message : String(error));
  }
  if (found) return;
  const canInstall = process.platform === "linux" && process.getuid?.() === 0 && existsSync("/etc/debian_version");
  if (!canInstall) fail(`the tests need a Chromium and there is none. ${CHROMIUM_MEND}`);
  console.log("prepare: installing Chromium (apt-get)…");
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const done = run("apt-get", ["update"], env) && run("apt-get", ["install", "-y", "--no-install-recommends", "chromium"], env);
  if (!done || !findChromium()) fail(`apt-get could not install Chromium; its output is above. ${CHROMIUM_MEND}`);
}

const [major = 0] = process.versions.node.split(".").map(Number);
if (major < 20) fail(`Node ${process.versions.node} is too old: install Node 20 or newer.`);
const unknown = process.argv.slice(2).filter((argument) => argument !== "--chromium");
if (unknown.length > 0) fail(`unknown argument ${unknown.join(" ")}; the only one is --chromium.`);
dependencies();
if (process.argv.includes("--chromium")) chromium();
