/**
 * Owns: the Unresolved view: the calls whose effect somebody must establish, a quiet group of reads without an answer, and what was
 * settled lately. Its badge counts the first kind only.
 * Leaves to others: sorting them (operations.ts), the words (words.ts), acting on them (actions). Arguments never show here: they are
 * in the operation's document.
 */
import { EventEmitter, MarkdownString, TreeItemCollapsibleState, window } from "vscode";
import type { Disposable, Event, TreeDataProvider, TreeView } from "vscode";
import { keepsArguments, type Operation, type OperationEvent } from "../../operations/model.ts";
import { isAlarm } from "../alarm-text.ts";
import type { CoreHost } from "../core-host.ts";
import { DisposableList } from "../disposables.ts";
import type { Operations } from "../operations.ts";
import {
  shortAgoText,
  agoText,
  attemptText,
  countText,
  eventText,
  reasonText,
  settlementWords,
  stateWords,
  timeText,
} from "../words.ts";
import { ViewNode, addText, icon } from "./node.ts";

export const unresolvedViewId = "mcpSafeReplay.unresolved";

/** Ages are told in minutes. */
const agesEveryMs = 30_000;

type Kind = "unresolved" | "read" | "conflict" | "settled";

/** One operation. */
export class OperationNode extends ViewNode {
  readonly operation: Operation;

  constructor(operation: Operation, kind: Kind, now: number) {
    const { server, tool } = operation.intention;
    super(operation.id, `${tool} · ${server}`, TreeItemCollapsibleState.Collapsed);
    this.operation = operation;
    this.contextValue = contextOf(operation);
    this.description = descriptionOf(operation, kind, now);
    this.iconPath = iconOf(operation, kind);
    this.tooltip = tooltipOf(operation, now);
    this.accessibilityInformation = { label: `${tool} on ${server}, ${stateWords[operation.state]}, ${this.description}` };
  }
}

/** One fact about an operation; a click opens its document. */
class FactNode extends ViewNode {
  constructor(operation: Operation, key: string, text: string, iconName: string) {
    super(`${operation.id}/${key}`, text);
    this.iconPath = icon(iconName);
    this.tooltip = text;
    this.contextValue = "fact";
    this.command = { command: "mcpSafeReplay.showOperation", title: "Show Operation", arguments: [operation.id] };
  }
}

class GroupNode extends ViewNode {
  readonly kind: "read" | "settled";

  constructor(kind: "read" | "settled", count: number) {
    super(`group/${kind}`, kind === "read" ? "Reads without an answer" : "Recently settled", TreeItemCollapsibleState.Collapsed);
    this.kind = kind;
    this.description = String(count);
    this.contextValue = "group";
    this.iconPath = icon(kind === "read" ? "book" : "history");
    this.tooltip =
      kind === "read"
        ? "These tools declare that they only read. Calling again is safe if that is true."
        : "What was established lately. A call that did not happen can be repeated from here.";
  }
}

type UnresolvedNode = OperationNode | FactNode | GroupNode;

export class UnresolvedView implements TreeDataProvider<UnresolvedNode>, Disposable {
  readonly #host: CoreHost;
  readonly #operations: Operations;
  readonly #disposables = new DisposableList();
  readonly #changed = this.#disposables.add(new EventEmitter<undefined>());
  readonly onDidChangeTreeData: Event<undefined> = this.#changed.event;
  readonly #view: TreeView<UnresolvedNode>;

  constructor(host: CoreHost, operations: Operations) {
    this.#host = host;
    this.#operations = operations;
    this.#view = this.#disposables.add(
      window.createTreeView<UnresolvedNode>(unresolvedViewId, {
        treeDataProvider: this,
        showCollapseAll: true,
        canSelectMany: true,
      }),
    );
    this.#disposables.add(operations.onDidChange(() => this.#show()));
    this.#disposables.add(host.onDidChangeState(() => this.#show()));
    const ages = setInterval(() => {
      if (this.#view.visible && !isEmpty(operations)) this.#changed.fire(undefined);
    }, agesEveryMs);
    this.#disposables.add({ dispose: () => clearInterval(ages) });
  }

  #show(): void {
    const { unresolved, conflicts, settled, reads } = this.#operations.snapshot;
    this.#view.badge =
      unresolved.length === 0
        ? undefined
        : { value: unresolved.length, tooltip: countText(unresolved.length, "unresolved call") };
    const calm = unresolved.length + conflicts.length === 0 && (settled.length > 0 || reads.length > 0);
    // `message` takes no undefined under exactOptionalPropertyTypes; an empty text hides it.
    this.#view.message = this.#host.problem ?? (calm ? "Nothing is unresolved." : "");
    this.#changed.fire(undefined);
  }

  getTreeItem(node: UnresolvedNode): UnresolvedNode {
    return node;
  }

  async getChildren(node?: UnresolvedNode): Promise<UnresolvedNode[]> {
    const { unresolved, reads, conflicts, settled } = this.#operations.snapshot;
    const now = Date.now();
    const nodes = (operations: readonly Operation[], kind: Kind): OperationNode[] =>
      operations.map((one) => new OperationNode(one, kind, now));
    if (node instanceof GroupNode) return node.kind === "read" ? nodes(reads, "read") : nodes(settled, "settled");
    if (node instanceof OperationNode) return this.#facts(node.operation);
    if (node !== undefined) return [];
    return [
      ...nodes(conflicts, "conflict"),
      ...nodes(unresolved, "unresolved"),
      ...(reads.length === 0 ? [] : [new GroupNode("read", reads.length)]),
      ...(settled.length === 0 ? [] : [new GroupNode("settled", settled.length)]),
    ];
  }

  async #facts(operation: Operation): Promise<FactNode[]> {
    const events = (await this.#host.running?.core.journal.events(operation.id)) ?? [];
    const attempts = operation.attempts.map(
      (attempt) =>
        new FactNode(operation, `attempt/${attempt.number}`, `Attempt ${attempt.number}: ${attemptText(attempt)}`, "arrow-right"),
    );
    const counted = new Map<string, { readonly type: OperationEvent["type"]; readonly count: number }>();
    for (const event of events.filter(isEvidence)) {
      const text = sentence(eventText(event));
      counted.set(text, { type: event.type, count: (counted.get(text)?.count ?? 0) + 1 });
    }
    const evidence = [...counted].map(
      ([text, { type, count }], index) =>
        new FactNode(
          operation,
          `event/${index}`,
          count === 1 ? text : `${text} (${count} times)`,
          evidenceIcons[type] ?? "circle-small",
        ),
    );
    return [...attempts, ...evidence];
  }

  dispose(): void {
    this.#disposables.dispose();
  }
}

const evidenceIcons: Readonly<Partial<Record<OperationEvent["type"], string>>> = {
  held: "shield",
  "looked-up": "search",
  settled: "check",
  "late-answer": "mail",
  conflict: "warning",
  acknowledged: "pass",
};

function isEvidence(event: OperationEvent): boolean {
  return event.type in evidenceIcons;
}

function isEmpty(operations: Operations): boolean {
  return Object.values(operations.snapshot).every((list: readonly Operation[]) => list.length === 0);
}

/** What the menus go by. */
function contextOf(operation: Operation): string {
  return [
    "operation",
    operation.state,
    ...(keepsArguments(operation) ? [] : ["withheld"]),
    ...(operation.conflict ? ["conflict"] : []),
  ].join(";");
}

function descriptionOf(operation: Operation, kind: Kind, now: number): string {
  const { settlement } = operation;
  if (kind === "conflict" && settlement !== undefined) {
    return `an answer contradicts "${settlementWords[settlement.as]}"`;
  }
  // A repeated call keeps the record of its earlier settlement: only where it stands now counts here.
  if (kind === "settled" && settlement !== undefined)
    return `${settlementWords[settlement.as].toLowerCase()}, ${shortAgoText(settlement.at, now)}`;
  return `${shortAgoText(operation.updatedAt, now)}: ${reasonText(operation)}`;
}

function iconOf(operation: Operation, kind: Kind): ReturnType<typeof icon> {
  if (kind === "conflict") return icon("warning", "list.errorForeground");
  if (isAlarm(operation)) return icon("error", "list.errorForeground");
  if (kind === "unresolved") return icon("question", "list.warningForeground");
  if (kind === "read") return icon("book");
  return icon(operation.state === "effect-confirmed" ? "pass" : operation.state === "no-effect" ? "circle-slash" : "dash");
}

function tooltipOf(operation: Operation, now: number): MarkdownString {
  const { intention, settlement } = operation;
  const text = new MarkdownString(undefined, true);
  const line = (name: string, value: string): void => {
    addText(text.appendMarkdown(`\n- ${name}: `), value);
  };
  addText(text.appendMarkdown("**"), `${intention.tool} · ${intention.server}`).appendMarkdown("**\n\n");
  addText(
    text,
    operation.state === "unresolved"
      ? intention.declaredRead
        ? "The answer was lost. The tool declares that it only reads."
        : "The call may have taken effect before its answer was lost. It was not repeated."
      : sentence(stateWords[operation.state]),
  );
  text.appendMarkdown("\n");
  line("Why", reasonText(operation));
  line("Called", `${timeText(operation.createdAt)} (${agoText(operation.createdAt, now)})`);
  const last = operation.attempts.at(-1);
  line("Attempts", last === undefined ? "0" : `${operation.attempts.length}, the last: ${attemptText(last)}`);
  line("Asked by", intention.caller.client);
  if (settlement !== undefined)
    line(
      operation.state === settlement.as ? "Evidence" : `Before that: ${stateWords[settlement.as]}`,
      settlement.evidence === "" ? "none" : settlement.evidence,
    );
  if (operation.conflict) line("Conflict", "an answer contradicts the settlement. Close Conflict… keeps what you found");
  if (!keepsArguments(operation)) line("Arguments", "not all of them were kept: the call can be neither repeated nor looked up");
  if (intention.possibleDuplicateOf !== undefined) line("Possible duplicate of", intention.possibleDuplicateOf);
  line("Operation", operation.id);
  return text;
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
