/**
 * Owns: what a person does with the journal as a whole: take it out, and verify it.
 * Leaves to others: what is written (src/operations/export.ts), what a verdict means (src/operations/verify.ts).
 */
import { open } from "node:fs/promises";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { ProgressLocation, Uri, env, window, workspace } from "vscode";
import type { QuickPickItem } from "vscode";
import type { Exported } from "../../operations/export.ts";
import { scriptOf } from "../commands.ts";
import type { CommandMap, ExportScript } from "../commands.ts";
import type { CoreHost } from "../core-host.ts";
import { UserError } from "../user-error.ts";

export function journalActions(host: CoreHost): Pick<CommandMap, "mcpSafeReplay.exportJournal" | "mcpSafeReplay.verifyJournal"> {
  return {
    "mcpSafeReplay.exportJournal": async (target) => {
      const { core, engine } = await host.ready();
      const script = scriptOf(target);
      const chosen = script === undefined ? await askExport() : { ...script, file: Uri.file(script.path) };
      if (chosen === undefined) return;
      const { file, format, what = "events" } = chosen;
      const lines = format === "csv" ? engine.exportCsv(core.journal, what) : engine.exportJsonl(core.journal, what);
      await window.withProgress({ location: ProgressLocation.Window, title: "Exporting the journal" }, () => write(file, lines));
      if (script === undefined)
        void window.showInformationMessage(
          `The journal was exported. It holds the arguments and results of your calls, as far as they are kept: keep it private.`,
        );
    },

    "mcpSafeReplay.verifyJournal": async (target) => {
      const { engine, journalDir } = await host.ready();
      const verdict = await window.withProgress({ location: ProgressLocation.Notification, title: "Verifying the journal" }, () =>
        engine.verifyInThread(journalDir),
      );
      if (scriptOf(target) !== undefined) return verdict;
      const text = engine.verdictText(verdict);
      if (!verdict.ok) {
        void window.showErrorMessage(text);
        return verdict;
      }
      // Noted elsewhere, it proves later that everything up to here is still there.
      void window.showInformationMessage(text, "Copy Head").then((choice) => {
        if (choice !== undefined) void env.clipboard.writeText(verdict.head);
      });
      return verdict;
    },
  };
}

/** The journal holds arguments and results: a file of this machine is the person's alone. One page is in memory at a time. */
async function write(file: Uri, lines: AsyncIterable<string>): Promise<void> {
  if (file.scheme !== "file") {
    const all: string[] = [];
    for await (const line of lines) all.push(line);
    await workspace.fs.writeFile(file, Buffer.from(all.join("")));
    return;
  }
  try {
    const handle = await open(file.fsPath, "w", 0o600);
    if (process.platform !== "win32") await handle.chmod(0o600);
    await pipeline(Readable.from(lines), handle.createWriteStream());
  } catch (error) {
    if ((error as NodeJS.ErrnoException).syscall === undefined) throw error;
    throw new UserError(`The journal could not be written to ${file.fsPath}. Choose another place, or make room there.`);
  }
}

interface WhatItem extends QuickPickItem {
  readonly what: Exported;
}

const whats: readonly WhatItem[] = [
  {
    what: "operations",
    label: "Operations",
    detail: "How each call stands now, newest first: for a look over everything, in a spreadsheet for example.",
  },
  {
    what: "events",
    label: "Events",
    detail: "Everything that happened, in order, with the hash chain: for an audit.",
  },
];

async function askExport(): Promise<(Omit<ExportScript, "path"> & { readonly file: Uri }) | undefined> {
  const picked = await window.showQuickPick(whats, {
    title: "Export Journal",
    placeHolder: "What is to be exported?",
    ignoreFocusOut: true,
  });
  if (picked === undefined) return undefined;
  const { what } = picked;
  const folder = workspace.workspaceFolders?.[0]?.uri;
  const file = await window.showSaveDialog({
    title: `Export Journal: ${picked.label}`,
    saveLabel: "Export",
    filters: { "JSON Lines": ["jsonl"], "Table (CSV)": ["csv"] },
    ...(folder === undefined ? {} : { defaultUri: Uri.joinPath(folder, `mcp-safe-replay-${what}.jsonl`) }),
  });
  return file && { file, what, format: file.path.endsWith(".csv") ? "csv" : "jsonl" };
}
