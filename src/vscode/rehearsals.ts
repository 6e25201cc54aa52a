/**
 * Owns: the last rehearsal of each contract, kept in the extension's state and bound to the contract's fingerprint, and its report as a
 * read-only document.
 * Leaves to others: rehearsing (actions/rehearse.ts), the words (rehearsal-document.ts).
 */
import { EventEmitter, Uri, window, workspace } from "vscode";
import type { Disposable, Event, Memento, TextDocumentContentProvider } from "vscode";
import type { RehearsalReport } from "../replay/rehearsal-plan.ts";
import type { CoreHost } from "./core-host.ts";
import { DisposableList } from "./disposables.ts";
import { readReport, rehearsalText, rehearsalWords, type KnownRehearsal } from "./rehearsal-document.ts";
import { isRecord } from "./settings.ts";

const scheme = "mcp-safe-replay-rehearsal";
const stateKey = (server: string): string => `rehearsals:${server}`;

export class Rehearsals implements TextDocumentContentProvider, Disposable {
  readonly #host: CoreHost;
  readonly #state: Memento;
  readonly #disposables = new DisposableList();
  readonly #changed = this.#disposables.add(new EventEmitter<void>());
  readonly #documentChanged = this.#disposables.add(new EventEmitter<Uri>());
  /** A contract was rehearsed. */
  readonly onDidRehearse: Event<void> = this.#changed.event;
  readonly onDidChange: Event<Uri> = this.#documentChanged.event;

  constructor(host: CoreHost, state: Memento) {
    this.#host = host;
    this.#state = state;
    this.#disposables.add(workspace.registerTextDocumentContentProvider(scheme, this));
  }

  /** The last rehearsal of a tool's contract. */
  of(server: string, tool: string): KnownRehearsal | undefined {
    const stored = this.#state.get<unknown>(stateKey(server));
    const report = readReport(isRecord(stored) && Object.hasOwn(stored, tool) ? stored[tool] : undefined);
    if (report === undefined) return undefined;
    const running = this.#host.running;
    const hosted = running?.core.servers.get(server);
    const contract = this.#host.contract(server, tool);
    const now =
      running === undefined || hosted === undefined || contract === undefined
        ? undefined
        : running.engine.contractFingerprint(contract, tool, hosted.fingerprint);
    return { report, current: report.contract === now };
  }

  /** "rehearsed on DATE: …" or "not rehearsed"; undefined without a contract. */
  words(server: string, tool: string): string | undefined {
    return this.#host.contract(server, tool) === undefined ? undefined : rehearsalWords(this.of(server, tool));
  }

  async remember(report: RehearsalReport): Promise<void> {
    const stored = this.#state.get<unknown>(stateKey(report.server));
    await this.#state.update(stateKey(report.server), { ...(isRecord(stored) ? stored : {}), [report.tool]: report });
    this.#changed.fire();
    this.#documentChanged.fire(uriOf(report.server, report.tool));
  }

  async open(server: string, tool: string): Promise<void> {
    await window.showTextDocument(await workspace.openTextDocument(uriOf(server, tool)), { preview: true });
  }

  provideTextDocumentContent(uri: Uri): string {
    const [server = "", tool = ""] = JSON.parse(uri.query) as [string?, string?];
    const known = this.of(server, tool);
    return known === undefined ? `The contract of ${tool} on ${server} was not rehearsed.` : rehearsalText(known.report);
  }

  dispose(): void {
    this.#disposables.dispose();
  }
}

function uriOf(server: string, tool: string): Uri {
  const name = `Rehearsal of ${tool}`.replace(/[^\w. -]/g, "-");
  return Uri.from({ scheme, path: `/${name}.md`, query: JSON.stringify([server, tool]) });
}
