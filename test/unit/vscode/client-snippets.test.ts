import { describe, expect, it } from "vitest";
import { clientSnippet, otherClientKinds, type OtherClientKind, type WayIn } from "../../../src/vscode/client-snippets.ts";
import { readClientFile, type ClientKind } from "../../../src/vscode/sources/import-formats.ts";

/** The reader of each client's own file, by its documentation. */
const readers: Readonly<Record<OtherClientKind, ClientKind>> = {
  "claude-code": "claude-code",
  cursor: "cursor",
  codex: "codex",
  zed: "zed",
  "mcp.json": "cursor",
};
const http: WayIn = { kind: "http", url: "http://127.0.0.1:4711/servers/a%20b/mcp", token: "s3cret-token" };
const stdio: WayIn = {
  kind: "stdio",
  command: "node",
  args: ["C:\\folder with blanks\\headless.js", "connect", 'odd "name"', "--client", "Zed 2"],
  env: { MCP_SAFE_REPLAY_TOKEN: "s3cret-token" },
};

describe("the configuration for another client", () => {
  it.each(otherClientKinds)("of %s reads back as what was meant", (kind) => {
    const text = clientSnippet(
      kind,
      new Map<string, WayIn>([
        ["one", http],
        ["two.words", stdio],
      ]),
    );
    const { servers, problems } = readClientFile(readers[kind], text, { env: {} });
    expect(problems).toEqual([]);
    expect(servers.map(({ originalName, definition }) => [originalName, definition])).toEqual([
      ["one", { type: "http", url: http.url, headers: { Authorization: "Bearer s3cret-token" } }],
      ["two.words", { type: "stdio", command: "node", args: stdio.args, env: stdio.env }],
    ]);
  });
});
