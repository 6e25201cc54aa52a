// Owns: where the tests keep their files: repository root, run folders, the folder for screenshots.
// Leaves to others: what goes into them, and the user cache (vscode-server.ts).

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** Absolute path of the repository. */
export const repositoryRoot: string = join(dirname(fileURLToPath(import.meta.url)), "..", "..");

/** Ignored by git; screenshots of a run. */
export const screenshotsFolder: string = join(repositoryRoot, "test", "e2e", "screenshots");

/**
 * A new empty folder `.vscode-test/<area>/<random>` for one run's profile, logs and workspace (ignored by git).
 * The caller removes it with `removeFolder` when nothing in it is worth a look.
 */
export function newRunFolder(area: string): string {
  const parent = join(repositoryRoot, ".vscode-test", area);
  mkdirSync(parent, { recursive: true });
  return mkdtempSync(join(parent, "r"));
}

/** Removes a folder and all in it; a folder that is not there is fine. */
export function removeFolder(path: string): void {
  rmSync(path, { recursive: true, force: true, maxRetries: 5 });
}

/** The environment with the pinned tools of `node_modules/.bin` (Node 24 among them) first on the path. */
export function environmentWithPinnedNode(env: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  const pathKey = Object.keys(env).find((key) => key.toUpperCase() === "PATH") ?? "PATH";
  return { ...env, [pathKey]: [join(repositoryRoot, "node_modules", ".bin"), env[pathKey] ?? ""].join(delimiter) };
}
