/**
 * Owns: everything about one operation as a read-only document: its answer, arguments, attempts and the whole event log. It follows the
 * journal while it is open.
 * Leaves to others: the words (words.ts). This is the one place where arguments and results are shown; whatever a server supplied stands
 * in a code block, so that it cannot pass for our own text.
 */
import { EventEmitter, Uri, window, workspace } from "vscode";
import type { Disposable, Event, TextDocumentContentProvider } from "vscode";
import type { Operation, OperationEvent } from "../operations/model.ts";
import type { CoreHost } from "./core-host.ts";
import { DisposableList } from "./disposables.ts";
import { UserError } from "./user-error.ts";
import {
  actorText,
  agoText,
  attemptText,
  eventText,
  reasonText,
  settledByText,
  settlementWords,
  stateWords,
  timeText,
} from "./words.ts";

const scheme = "mcp-safe-replay";

export class OperationDocuments implements TextDocumentContentProvider, Disposable {
  readonly #host: CoreHost;
  readonly #disposables = new DisposableList();
  readonly #changed = this.#disposables.add(new EventEmitter<Uri>());
  readonly onDidChange: Event<Uri> = this.#changed.event;

  constructor(host: CoreHost) {
    this.#host = host;
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
    return operation === undefined ? `The journal has no operation ${uri.query}.` : documentOf(operation, events, Date.now());
  }

  #refresh(): void {
    for (const document of workspace.textDocuments) if (document.uri.scheme === scheme) this.#changed.fire(document.uri);
  }

  dispose(): void {
    this.#disposables.dispose();
  }
}

/** The document's text. Pure. */
export function documentOf(operation: Operation, events: readonly OperationEvent[], now: number): string {
  const { intention, settlement, answer } = operation;
  const facts: [string, string | undefined][] = [
    ["Why", reasonText(operation)],
    ["Called", `${timeText(operation.createdAt)} (${agoText(operation.createdAt, now)})`],
    ["Asked by", intention.caller.client],
    ["Conversation", intention.caller.conversationId],
    ["Request", intention.caller.requestId],
    [
      "Counted as",
      intention.provenRead
        ? "a proven read"
        : intention.declaredRead
          ? "a declared read"
          : "consequential (it may change something)",
    ],
    ["Possible duplicate of", intention.possibleDuplicateOf],
    [
      operation.state === settlement?.as ? "Settled" : "Before that",
      settlement &&
        `${settlementWords[settlement.as].toLowerCase()}, ${timeText(settlement.at)}, by ${settledByText(settlement.actor)}`,
    ],
    ["Evidence", settlement && (settlement.evidence === "" ? "none" : settlement.evidence)],
    ["Conflict", operation.conflict ? "an answer that came later contradicts what was settled" : undefined],
    ["Operation", operation.id],
  ];
  const parts = [
    `# ${intention.tool} · ${intention.server}: ${stateWords[operation.state]}`,
    headline(operation),
    facts
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => `- ${name}: ${value}`)
      .join("\n"),
    ...(answer === undefined ? [] : ["## Answer", answerText(answer)]),
    "## Arguments",
    block(json(intention.arguments), "json"),
    "## Attempts",
    operation.attempts.length === 0
      ? "None: nothing was sent."
      : operation.attempts
          .map(
            (attempt) =>
              `${attempt.number}. ${attemptText(attempt)}\n   - ${attempt.transport}, protocol ${attempt.protocolVersion}, RPC id ${attempt.rpcId}, connection ${attempt.connectionId}`,
          )
          .join("\n"),
    "## What happened",
    block(
      events
        .map(
          (event) => `${timeText(event.at)}  ${event.type.padEnd(11)}  ${actorText(event.actor).padEnd(7)}  ${eventText(event)}`,
        )
        .join("\n"),
      "text",
    ),
  ];
  return `${parts.join("\n\n")}\n`;
}

function headline(operation: Operation): string {
  switch (operation.state) {
    case "unresolved":
      return operation.intention.declaredRead
        ? "The answer was lost. The tool declares that it only reads: if that is true, calling again is safe."
        : "The call may have taken effect before its answer was lost. It was not repeated. Find out whether it happened, then use **Reconcile…**.";
    case "completed":
      return operation.answer?.isError === true || operation.answer?.error !== undefined
        ? "The server answered with an error."
        : "The server answered.";
    case "not-executed":
      return "The server did not run this call. Calling again is safe.";
    case "effect-confirmed":
      return "Its answer was lost. It has been established that it happened.";
    case "no-effect":
      return "Its answer was lost. It has been established that it did not happen: it can be repeated.";
    case "dismissed":
      return "Its answer was lost. Nobody needs to know any more whether it happened.";
    case "prepared":
    case "in-flight":
      return "The call is under way.";
  }
}

function answerText(answer: NonNullable<Operation["answer"]>): string {
  if (answer.error !== undefined) return block(json(answer.error), "json");
  const result = answer.result;
  if (typeof result !== "object" || result === null) return block(json(result ?? null), "json");
  const { content, structuredContent, ...rest } = result as Record<string, unknown>;
  const blocks = Array.isArray(content) ? content.map(contentText) : [];
  if (structuredContent !== undefined) blocks.push(block(json(structuredContent), "json"));
  if (blocks.length === 0) blocks.push(block(json({ ...rest, ...(content === undefined ? {} : { content }) }), "json"));
  return blocks.join("\n\n");
}

function contentText(item: unknown): string {
  if (
    typeof item === "object" &&
    item !== null &&
    "type" in item &&
    item.type === "text" &&
    "text" in item &&
    typeof item.text === "string"
  ) {
    return block(item.text, "text");
  }
  return block(json(item), "json");
}

const longText = 4000;

/** Pretty JSON; long strings (images, files) are cut. */
function json(value: unknown): string {
  const cut = (_: string, one: unknown): unknown =>
    typeof one === "string" && one.length > longText ? `${one.slice(0, 200)}… (${one.length} characters)` : one;
  return JSON.stringify(value, cut, 2) ?? "";
}

/** A code block whose fence is longer than any in the text. */
function block(text: string, language: string): string {
  const longest = Math.max(0, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(Math.max(3, longest + 1));
  return `${fence}${language}\n${text}\n${fence}`;
}
