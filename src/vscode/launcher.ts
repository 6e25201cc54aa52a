/**
 * Owns: the small program that other clients' configurations start: it stays where it is when the extension is updated, and runs the command
 * line program of the version that started last. Without VS Code, so that it can be tested by running it.
 * Leaves to others: where it lies (other-clients.ts), what it starts (src/headless.ts).
 */
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";

export const launcherName = "mcp-safe-replay.cjs";

export function launcherText(program: string): string {
  return `// Written by MCP Safe Replay whenever VS Code starts it; changes are lost. Other MCP clients start it with Node.js.
const program = ${JSON.stringify(program)};
if (!require("node:fs").existsSync(program)) {
  process.stderr.write("mcp-safe-replay: the extension was updated or removed since VS Code ran last. Start VS Code once, then try again.\\n");
  process.exit(1);
}
require(program);
`;
}

/**
 * Writes the launcher, unless it is there as it should be: whole or not at all, since a client may start it at this moment.
 * @returns its path
 * @throws the file system's error
 */
export async function writeLauncher(folder: string, program: string): Promise<string> {
  const path = join(folder, launcherName);
  const text = launcherText(program);
  if ((await readFile(path, "utf8").catch(() => undefined)) === text) return path;
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const fresh = `${path}.${process.pid}.new`;
  await writeFile(fresh, text, { mode: 0o600 });
  await rename(fresh, path);
  return path;
}
