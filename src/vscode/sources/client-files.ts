/**
 * Owns: where other MCP clients keep their configuration on this machine.
 * Leaves to others: what stands in the files (import-formats.ts).
 */
import { stat } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import type { ClientKind } from "./import-formats.ts";

export interface ClientPlace {
  readonly kind: ClientKind;
  /** For a list: the client, and whose configuration it is. */
  readonly title: string;
  readonly path: string;
}

export interface Places {
  /** The `User` folder of this VS Code's profile on this machine. */
  readonly userFolder: string;
  readonly folders: readonly string[];
  readonly platform?: NodeJS.Platform;
  readonly home?: string;
  readonly env?: Readonly<Record<string, string | undefined>>;
}

export const clientTitles: Readonly<Record<ClientKind, string>> = {
  vscode: "VS Code",
  "claude-desktop": "Claude Desktop",
  "claude-code": "Claude Code",
  cursor: "Cursor",
  windsurf: "Windsurf",
  zed: "Zed",
  codex: "Codex",
};

/** Every place where a client of this machine, or one of the open folders, may have its configuration. */
export function clientPlaces({
  userFolder,
  folders,
  platform = process.platform,
  home = homedir(),
  env = process.env,
}: Places): ClientPlace[] {
  const config = env["XDG_CONFIG_HOME"] ?? join(home, ".config");
  const appData = env["APPDATA"] ?? join(home, "AppData", "Roaming");
  const claudeDesktop =
    platform === "darwin" ? join(home, "Library", "Application Support") : platform === "win32" ? appData : config;
  const place = (kind: ClientKind, whose: string, path: string): ClientPlace => ({
    kind,
    title: `${clientTitles[kind]}, ${whose}`,
    path,
  });
  return [
    place("vscode", "your mcp.json", join(userFolder, "mcp.json")),
    ...folders.map((folder) => place("vscode", "this workspace's mcp.json", join(folder, ".vscode", "mcp.json"))),
    place("claude-desktop", "this machine", join(claudeDesktop, "Claude", "claude_desktop_config.json")),
    place("claude-code", "this machine", join(home, ".claude.json")),
    ...folders.map((folder) => place("claude-code", "this workspace", join(folder, ".mcp.json"))),
    place("cursor", "this machine", join(home, ".cursor", "mcp.json")),
    ...folders.map((folder) => place("cursor", "this workspace", join(folder, ".cursor", "mcp.json"))),
    place("windsurf", "this machine", join(home, ".codeium", "windsurf", "mcp_config.json")),
    place(
      "zed",
      "this machine",
      platform === "win32" ? join(appData, "Zed", "settings.json") : join(config, "zed", "settings.json"),
    ),
    ...folders.map((folder) => place("zed", "this workspace", join(folder, ".zed", "settings.json"))),
    place("codex", "this machine", join(env["CODEX_HOME"] ?? join(home, ".codex"), "config.toml")),
    ...folders.map((folder) => place("codex", "this workspace", join(folder, ".codex", "config.toml"))),
  ];
}

/** Those that are there. */
export async function foundPlaces(places: Places): Promise<ClientPlace[]> {
  const all = clientPlaces(places);
  const there = await Promise.all(
    all.map(({ path }) =>
      stat(path).then(
        (facts) => facts.isFile(),
        () => false,
      ),
    ),
  );
  return all.filter((_place, index) => there[index]);
}
