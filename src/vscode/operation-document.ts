/**
 * Owns: everything about one operation as a read-only document, which follows the journal while it is open.
 * Leaves to others: its text (operation-text.ts).
 */
import { EventEmitter, Uri, window, workspace } from "vscode";
import type { Disposable, Event, TextDocumentContentProvider } from "vscode";
import type { Operation } from "../operations/model.ts";
import type { CoreHost } from "./core-host.ts";
import { DisposableList } from "./disposables.ts";
import { contractLines, documentOf } from "./operation-text.ts";
import type { Rehearsals } from "./rehearsals.ts";
import { UserError } from "./user-error.ts";

const scheme = "mcp-safe-replay";

export class OperationDocuments implements TextDocumentContentProvider, Disposable {
  readonly #host: CoreHost;
  readonly #rehearsals: Rehearsals;
  readonly #disposables = new DisposableList();
  readonly #changed = this.#disposables.add(new EventEmitter<Uri>());
  readonly onDidChange: Event<Uri> = this.#changed.event;

  constructor(host: CoreHost, rehearsals: Rehearsals) {
    this.#host = host;
    this.#rehearsals = rehearsals;
    this.#disposables.add(workspace.registerTextDocumentContentProvider(scheme, this));
    this.#disposables.add(host.onDidChangeOperations(() => this.#refresh()));
    this.#disposables.add(host.onDidChangeState(() => this.#refresh()));
  }

  /** @throws UserError when there is no such operation */
  async open(id: string): Promise<void> {
    const { core } = await this.#host.ready();
    const operation = await core.journal.operation(id);
    if (operation === undefined) throw new UserError(`The journal has no operation ${id}.`);
    const name = operation.intention.tool.replace(/[^\w.-]/g, "-");
    const uri = Uri.from({ scheme, path: `/${name} ${id.slice(-6)}.md`, query: id });
    const document = await workspace.openTextDocument(uri);
    await window.showTextDocument(document, { preview: true });
  }

  async provideTextDocumentContent(uri: Uri): Promise<string> {
    const running = await this.#host.ready().catch((error: unknown) => String(error instanceof Error ? error.message : error));
    if (typeof running === "string") return running;
    const { journal } = running.core;
    const [operation, events] = await Promise.all([journal.operation(uri.query), journal.events(uri.query)]);
    if (operation === undefined) return `The journal has no operation ${uri.query}.`;
    return documentOf(operation, events, this.#contractOf(operation), Date.now());
  }

  /** The contract as it is now, in lines. */
  #contractOf({ intention }: Operation): readonly string[] {
    const contract = this.#host.contract(intention.server, intention.tool);
    const engine = this.#host.running?.engine;
    if (contract === undefined || engine === undefined) return [];
    const prevention = contract.duplicatePrevention;
    const missing = prevention === undefined ? [] : engine.missingPromises(prevention);
    return contractLines(contract, missing, this.#rehearsals.words(intention.server, intention.tool) ?? "");
  }

  #refresh(): void {
    for (const document of workspace.textDocuments) if (document.uri.scheme === scheme) this.#changed.fire(document.uri);
  }

  dispose(): void {
    this.#disposables.dispose();
  }
}
