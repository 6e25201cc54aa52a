/**
 * Owns: finding and watching the `.vscode/mcp-safe-replay.json` of each workspace folder.
 * Leaves to others: reading what stands in it (servers-file.ts), whether it counts (server-sources.ts).
 */
import { EventEmitter, FileSystemError, Uri, workspace } from "vscode";
import type { Disposable, Event, WorkspaceFolder } from "vscode";
import { DisposableList } from "../disposables.ts";

/** The file's path within its folder. */
export const workspaceFilePath = ".vscode/mcp-safe-replay.json";

export interface WorkspaceFile {
  readonly folder: WorkspaceFolder;
  readonly uri: Uri;
  /** Undefined: it is there, but cannot be read. */
  readonly text: string | undefined;
}

export function workspaceFileOf(folder: WorkspaceFolder): Uri {
  return Uri.joinPath(folder.uri, workspaceFilePath);
}

export class WorkspaceFiles implements Disposable {
  readonly #disposables = new DisposableList();
  readonly #changed = this.#disposables.add(new EventEmitter<void>());
  /** A file came, went or changed on disk. */
  readonly onDidChange: Event<void> = this.#changed.event;

  constructor() {
    const watcher = this.#disposables.add(workspace.createFileSystemWatcher(`**/${workspaceFilePath}`));
    for (const event of [watcher.onDidCreate, watcher.onDidChange, watcher.onDidDelete])
      this.#disposables.add(event(() => this.#changed.fire()));
  }

  /** Those that are there, in the order of their folders. */
  async read(): Promise<readonly WorkspaceFile[]> {
    const found = await Promise.all((workspace.workspaceFolders ?? []).map(readFile));
    return found.filter((file) => file !== undefined);
  }

  dispose(): void {
    this.#disposables.dispose();
  }
}

async function readFile(folder: WorkspaceFolder): Promise<WorkspaceFile | undefined> {
  const uri = workspaceFileOf(folder);
  try {
    return { folder, uri, text: new TextDecoder().decode(await workspace.fs.readFile(uri)) };
  } catch (error) {
    return error instanceof FileSystemError && error.code === "FileNotFound" ? undefined : { folder, uri, text: undefined };
  }
}
