/**
 * Owns: how other MCP clients are told of a hosted server: the text to put into each one's own configuration. Pure.
 * Leaves to others: addresses and tokens (other-clients.ts), reading such files (sources/import-formats.ts).
 * Sources: Claude Code "Connect Claude Code to tools via MCP", Cursor "Model Context Protocol", Codex "Model Context Protocol",
 * Zed "Model Context Protocol", VS Code "MCP configuration reference".
 */

export const otherClientKinds = ["claude-code", "cursor", "codex", "zed", "mcp.json"] as const;
export type OtherClientKind = (typeof otherClientKinds)[number];

export const otherClientWords: Readonly<Record<OtherClientKind, { readonly label: string; readonly file: string }>> = {
  "claude-code": { label: "Claude Code", file: ".mcp.json of a project, or ~/.claude.json" },
  cursor: { label: "Cursor", file: "~/.cursor/mcp.json" },
  codex: { label: "Codex", file: "~/.codex/config.toml" },
  zed: { label: "Zed", file: "settings.json of Zed" },
  "mcp.json": { label: "Another client (plain mcp.json)", file: "mcp.json" },
};

/** How a client gets in: over the port, or by a program that speaks stdio. */
export type WayIn =
  | { readonly kind: "http"; readonly url: string; readonly token: string }
  | {
      readonly kind: "stdio";
      readonly command: string;
      readonly args: readonly string[];
      readonly env: Readonly<Record<string, string>>;
    };

/** @param servers the way in to each hosted server, by its name */
export function clientSnippet(kind: OtherClientKind, servers: ReadonlyMap<string, WayIn>): string {
  if (kind === "codex") return [...servers].map(([name, way]) => codexTable(name, way)).join("\n");
  const entries = Object.fromEntries([...servers].map(([name, way]) => [name, entryOf(kind, way)]));
  return `${JSON.stringify({ [kind === "zed" ? "context_servers" : "mcpServers"]: entries }, null, 2)}\n`;
}

function entryOf(kind: OtherClientKind, way: WayIn): Record<string, unknown> {
  const typed = kind === "claude-code" || kind === "mcp.json";
  if (way.kind === "stdio") {
    const { command, args, env } = way;
    return { ...(typed ? { type: "stdio" } : {}), command, args, env };
  }
  return { ...(typed ? { type: "http" } : {}), url: way.url, headers: { Authorization: `Bearer ${way.token}` } };
}

/** TOML: strings as in JSON, except that JSON may leave U+007F as it is. */
function toml(text: string): string {
  return JSON.stringify(text).replace(/\u007f/g, "\\u007f");
}

function codexTable(name: string, way: WayIn): string {
  const key = /^[A-Za-z0-9_-]+$/.test(name) ? name : toml(name);
  const lines = [`[mcp_servers.${key}]`];
  const table = (values: Readonly<Record<string, string>>) =>
    `{ ${Object.entries(values)
      .map(([field, value]) => `${toml(field)} = ${toml(value)}`)
      .join(", ")} }`;
  if (way.kind === "http")
    lines.push(`url = ${toml(way.url)}`, `http_headers = ${table({ Authorization: `Bearer ${way.token}` })}`);
  else lines.push(`command = ${toml(way.command)}`, `args = [${way.args.map(toml).join(", ")}]`, `env = ${table(way.env)}`);
  return `${lines.join("\n")}\n`;
}
