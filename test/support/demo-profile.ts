/**
 * Owns: what the VS Code of `npm start` shows: its user settings, the files of the sample workspace, the demo servers.
 * Leaves to others: fetching and starting that VS Code (start.ts), the demo servers themselves (test/servers/demo).
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { notesDemo } from "../servers/demo/notes.ts";
import { startHttpDemo } from "../servers/demo/demo-server.ts";
import { Ledger } from "../servers/ledger.ts";
import { repositoryRoot } from "./paths.ts";

export interface DemoContext {
  /** Absolute path of the sample workspace. */
  readonly workspaceFolder: string;
  /** Absolute path of a folder for this run's other files. */
  readonly runFolder: string;
}

export interface DemoProfile {
  /** User settings. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** Content by path within the workspace. */
  readonly workspaceFiles: Readonly<Record<string, string>>;
  /** Added to the environment of the extension host. */
  readonly env?: Readonly<Record<string, string>>;
  /** Ends what the profile started. */
  stop?(): Promise<void>;
}

/**
 * The profile of one run: three servers that VS Code's extension starts (stdio) and one that runs here (Streamable HTTP).
 * Every ledger lies in the workspace, so that a person can see what really happened.
 */
export async function demoProfile({ workspaceFolder }: DemoContext): Promise<DemoProfile> {
  const ledgerOf = (name: string): string => {
    const folder = join(workspaceFolder, "ledger", name);
    mkdirSync(folder, { recursive: true });
    return folder;
  };
  const demo = (name: string): Record<string, unknown> => ({
    type: "stdio",
    command: process.execPath,
    args: [join(repositoryRoot, "test", "servers", "demo", `${name}.ts`), "--ledger", ledgerOf(name)],
    start: "onStartup",
  });
  const http = await startHttpDemo(notesDemo, { ledger: new Ledger(ledgerOf("notes"), { server: "notes" }), port: 0 });
  return {
    settings: {
      "mcpSafeReplay.servers": {
        booking: demo("booking"),
        notes: { type: "http", url: http.url, start: "onStartup" },
        inventory: demo("inventory"),
        everything: {
          type: "stdio",
          command: process.execPath,
          args: [join(repositoryRoot, "node_modules", "@modelcontextprotocol", "server-everything", "dist", "index.js"), "stdio"],
          start: "onStartup",
        },
      },
    },
    workspaceFiles: { "README.md": workspaceReadme },
    stop: () => http.close(),
  };
}

const workspaceReadme = `# MCP Safe Replay: a sample workspace

Four demo servers are hosted here. Open the **MCP Safe Replay** container in the activity bar and try this:

1. **Lose an answer.** Run *MCP Safe Replay: Call Tool…*, choose \`booking\` → \`create_booking\` and book a room. The server writes the
   booking to \`ledger/booking/effects.jsonl\`, then its answer is lost. The call is now *unresolved*: see the view and its badge.
2. **Call it again** with the same arguments: it is *held*. The ledger still has one booking.
3. **Reconcile it**: look into the ledger (or call \`find_booking\`), then use *Reconcile…* on the operation and say what happened.
4. **Replay with trust.** Call \`notes\` → \`save_note\`: its first answer is lost too, and the tool says that repeating it is safe. Without
   trust the call stays unresolved. Tick the checkbox of \`notes\` in the **Servers** view and call it with another title: the call is
   replayed and you just get the answer.
5. **Use it from the chat.** The hosted servers are in *MCP: List Servers*, their tools in agent mode's tool picker.

What the servers really did is in \`ledger/<server>/effects.jsonl\` and \`requests.jsonl\`.
`;
