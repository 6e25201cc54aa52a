/**
 * Owns: everything on record of one server as a read-only document, which follows it while it is open.
 * Leaves to others: its text (health-text.ts).
 */
import { EventEmitter, Uri, window, workspace } from "vscode";
import type { Disposable, Event, TextDocumentContentProvider } from "vscode";
import type { CoreHost } from "./core-host.ts";
import { DisposableList } from "./disposables.ts";
import { serverDocument } from "./health-text.ts";

const scheme = "mcp-safe-replay-server";

export class ServerDocuments implements TextDocumentContentProvider, Disposable {
  readonly #host: CoreHost;
  readonly #disposables = new DisposableList();
  readonly #changed = this.#disposables.add(new EventEmitter<Uri>());
  readonly onDidChange: Event<Uri> = this.#changed.event;

  constructor(host: CoreHost) {
    this.#host = host;
    this.#disposables.add(workspace.registerTextDocumentContentProvider(scheme, this));
    for (const event of [host.onDidChangeServers, host.onDidChangeState]) this.#disposables.add(event(() => this.#refresh()));
  }

  async open(server: string): Promise<void> {
    const uri = Uri.from({ scheme, path: `/${server}.md` });
    const document = await workspace.openTextDocument(uri);
    this.#changed.fire(uri);
    await window.showTextDocument(document, { preview: true });
  }

  provideTextDocumentContent(uri: Uri): string {
    const name = uri.path.slice(1, -".md".length);
    const server = this.#host.running?.core.servers.get(name);
    return server === undefined ? `There is no hosted server named ${name}.\n` : serverDocument(server, Date.now());
  }

  #refresh(): void {
    for (const document of workspace.textDocuments) if (document.uri.scheme === scheme) this.#changed.fire(document.uri);
  }

  dispose(): void {
    this.#disposables.dispose();
  }
}
