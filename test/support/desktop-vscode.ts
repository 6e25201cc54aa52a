// Owns: finding a desktop VS Code through its `code` command on the PATH. Leaves to others: what is done with it.

import { existsSync, realpathSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";

export interface DesktopVsCode {
  /** The `code` command: installs extensions, opens folders. */
  readonly cli: string;
  /** The program itself, which runs tests. */
  readonly executable: string;
}

function executableOf(cli: string): string | undefined {
  const bin = dirname(realpathSync(cli));
  const candidates =
    process.platform === "win32"
      ? [join(bin, "..", "Code.exe"), join(bin, "..", "Code - Insiders.exe")]
      : process.platform === "darwin"
        ? [join(bin, "..", "..", "..", "MacOS", "Electron"), join(bin, "..", "..", "..", "MacOS", "Code")]
        : [join(bin, "..", "code"), join(bin, "..", "code-insiders")];
  return candidates.find((path) => existsSync(path));
}

/** The desktop VS Code whose command is on the PATH; `undefined` when there is none. */
export function findDesktopVsCode(env: NodeJS.ProcessEnv = process.env): DesktopVsCode | undefined {
  const path = Object.entries(env).find(([name]) => name.toUpperCase() === "PATH")?.[1] ?? "";
  const names = process.platform === "win32" ? ["code.cmd", "code-insiders.cmd"] : ["code", "code-insiders"];
  for (const folder of path.split(delimiter).filter(Boolean)) {
    for (const name of names) {
      const cli = join(folder, name);
      if (!existsSync(cli)) continue;
      const executable = executableOf(cli);
      if (executable !== undefined) return { cli, executable };
    }
  }
  return undefined;
}
