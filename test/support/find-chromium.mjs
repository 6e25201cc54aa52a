// Owns: where a Chromium may be on this computer. Plain JavaScript without dependencies, because `prepare.mjs` runs before
// `npm ci`. Leaves to others: installing one (prepare.mjs), starting it (chromium.ts).

import { accessSync, constants, statSync } from "node:fs";
import { delimiter, join } from "node:path";

const NAMES = ["chromium", "google-chrome", "google-chrome-stable", "chromium-browser", "microsoft-edge"];

/** What a person can do when no Chromium is found. */
export const CHROMIUM_MEND =
  "Install Chromium or Google Chrome (Debian/Ubuntu: `sudo apt-get install chromium`), or set CHROMIUM_PATH to the executable of one.";

/** @param {string} path */
function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/**
 * Path of a Chromium-like browser: `CHROMIUM_PATH`, then the PATH, then the usual places of the platform.
 * `undefined` when there is none; throws when `CHROMIUM_PATH` is set but is not an executable file.
 *
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {string | undefined}
 */
export function findChromium(env = process.env) {
  const named = env.CHROMIUM_PATH;
  if (named) {
    if (isExecutable(named)) return named;
    throw new Error(`CHROMIUM_PATH is "${named}", which is not an executable file. Correct or unset it.`);
  }
  const candidates = [];
  if (process.platform === "win32") {
    for (const root of [env.PROGRAMFILES, env["PROGRAMFILES(X86)"], env.LOCALAPPDATA]) {
      if (!root) continue;
      candidates.push(join(root, "Google", "Chrome", "Application", "chrome.exe"));
      candidates.push(join(root, "Chromium", "Application", "chrome.exe"));
      candidates.push(join(root, "Microsoft", "Edge", "Application", "msedge.exe"));
    }
  } else {
    const folders = ["/usr/bin", ...(env.PATH ?? "").split(delimiter).filter(Boolean), "/usr/local/bin", "/snap/bin"];
    for (const name of NAMES) for (const folder of folders) candidates.push(join(folder, name));
    if (process.platform === "darwin") {
      for (const root of ["/Applications", join(env.HOME ?? "/", "Applications")]) {
        candidates.push(join(root, "Chromium.app", "Contents", "MacOS", "Chromium"));
        candidates.push(join(root, "Google Chrome.app", "Contents", "MacOS", "Google Chrome"));
        candidates.push(join(root, "Microsoft Edge.app", "Contents", "MacOS", "Microsoft Edge"));
      }
    }
  }
  return candidates.find(isExecutable);
}
