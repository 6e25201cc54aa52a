/**
 * Owns: the two tools that agent mode gets: `list_unresolved_operations` (changes nothing) and `propose_reconciliation`, which records
 * only what a person confirmed in VS Code's own dialogue.
 * Leaves to others: what they say (model-tool-texts.ts), what a settlement means (src/replay). Their names and schemas are in package.json.
 */
import {
  LanguageModelTextPart,
  LanguageModelToolResult,
  MarkdownString,
  lm,
  window,
  type LanguageModelTool,
  type LanguageModelToolInvocationOptions,
  type LanguageModelToolInvocationPrepareOptions,
  type PreparedToolInvocation,
} from "vscode";
import type { Operation } from "../operations/model.ts";
import type { CoreHost, Running } from "./core-host.ts";
import { DisposableList } from "./disposables.ts";
import {
  declinedText,
  listText,
  oneLine,
  proposalFacts,
  proposalMeanings,
  proposalMistake,
  proposalTitles,
  proposedEvidence,
  recordedText,
  type ListInput,
  type ProposalInput,
} from "./model-tool-texts.ts";
import { UserError } from "./user-error.ts";
import { countText } from "./words.ts";

const listedAtMost = 50;
/**
 * Nobody reads and confirms within this time. A tool that is let through sooner was let through without a person (a session that approves
 * everything): then the person is asked here. Milliseconds.
 */
const unreadMs = 250;

export function registerModelTools(host: CoreHost): DisposableList {
  const tools = new DisposableList();
  tools.add(lm.registerTool("list_unresolved_operations", new ListUnresolved(host)));
  tools.add(lm.registerTool("propose_reconciliation", new ProposeReconciliation(host)));
  return tools;
}

function result(text: string): LanguageModelToolResult {
  return new LanguageModelToolResult([new LanguageModelTextPart(text)]);
}

class ListUnresolved implements LanguageModelTool<ListInput> {
  readonly #host: CoreHost;

  constructor(host: CoreHost) {
    this.#host = host;
  }

  /** The list itself asks for no leave; the arguments of a call may be somebody else's. */
  async prepareInvocation({ input }: LanguageModelToolInvocationPrepareOptions<ListInput>): Promise<PreparedToolInvocation> {
    const invocationMessage = "Looking for unresolved calls";
    const asked = (await this.#unresolved()).filter((operation) => idsOf(input).includes(operation.id));
    if (asked.length === 0) return { invocationMessage };
    const message = new MarkdownString("The agent asks for the arguments of:\n");
    for (const { intention, id } of asked)
      message.appendMarkdown("\n- ").appendText(`${intention.tool} · ${intention.server} (${id})`);
    return {
      invocationMessage,
      confirmationMessages: {
        title: `Show the arguments of ${countText(asked.length, "unresolved call")} to the agent?`,
        message,
      },
    };
  }

  async invoke({ input }: LanguageModelToolInvocationOptions<ListInput>): Promise<LanguageModelToolResult> {
    const { core } = await this.#host.ready();
    const operations = await this.#unresolved();
    const listed = await Promise.all(
      operations.map(async (operation) => ({
        operation,
        events: await core.journal.events(operation.id),
        lookupTool: this.#host.contract(operation.intention.server, operation.intention.tool)?.lookup?.tool,
      })),
    );
    return result(listText(listed, idsOf(input), Date.now()));
  }

  async #unresolved(): Promise<readonly Operation[]> {
    const { core } = await this.#host.ready();
    const open = await core.journal.operations({ states: ["unresolved"], limit: listedAtMost });
    // A lost read has no effect to establish.
    return open.filter((operation) => !operation.intention.declaredRead);
  }
}

function idsOf(input: ListInput): readonly string[] {
  return Array.isArray(input.ids) ? input.ids.map(String) : [];
}

/** A proposal that was shown to a person, or was to be. */
interface Shown {
  readonly at: number;
  /** What the agent's evidence can be about. */
  readonly attempts: number;
}

class ProposeReconciliation implements LanguageModelTool<ProposalInput> {
  readonly #host: CoreHost;
  readonly #shown = new Map<string, Shown>();

  constructor(host: CoreHost) {
    this.#host = host;
  }

  async prepareInvocation({ input }: LanguageModelToolInvocationPrepareOptions<ProposalInput>): Promise<PreparedToolInvocation> {
    const running = await this.#host.ready();
    const operation = await unresolved(running, input);
    const events = await running.core.journal.events(operation.id);
    const message = new MarkdownString("The agent proposes this. If you confirm it, it is recorded as **your** word.\n");
    for (const fact of proposalFacts(operation, events, Date.now())) message.appendMarkdown("\n- ").appendText(fact);
    message.appendMarkdown("\n\nThe agent's evidence:\n").appendCodeblock(oneLine(input.evidence), "text");
    message.appendMarkdown("\nArguments of the call:\n").appendCodeblock(argumentsText(operation), "json");
    message.appendMarkdown("\n").appendText(proposalMeanings[input.as]);
    this.#shown.set(JSON.stringify(input), { at: Date.now(), attempts: operation.attempts.length });
    return {
      invocationMessage: "Proposing what happened to an unresolved call",
      confirmationMessages: { title: proposalTitles[input.as], message },
    };
  }

  async invoke({ input }: LanguageModelToolInvocationOptions<ProposalInput>): Promise<LanguageModelToolResult> {
    const running = await this.#host.ready();
    const operation = await unresolved(running, input);
    const key = JSON.stringify(input);
    const shown = this.#shown.get(key);
    this.#shown.delete(key);
    const asked = shown !== undefined && Date.now() - shown.at >= unreadMs;
    if (!asked && !(await confirmHere(operation, input))) return result(declinedText);
    await running.core.calls.settle(
      operation.id,
      input.as,
      proposedEvidence(input.evidence),
      "person",
      shown?.attempts ?? operation.attempts.length,
    );
    return result(recordedText(operation, input.as));
  }
}

/** @throws Error for the model, when the proposal is wrong or too late */
async function unresolved({ core }: Running, input: ProposalInput): Promise<Operation> {
  const mistake = proposalMistake(input);
  if (mistake !== undefined) throw new UserError(mistake);
  const operation = await core.journal.operation(input.operation);
  if (operation === undefined) throw new UserError(`There is no operation ${oneLine(input.operation)}.`);
  if (operation.state !== "unresolved")
    throw new UserError(`Operation ${operation.id} is not unresolved (it is '${operation.state}'): there is nothing to propose.`);
  return operation;
}

function argumentsText({ intention }: Operation): string {
  return intention.withheld === "all" ? "(not kept)" : JSON.stringify(intention.arguments, null, 2);
}

async function confirmHere(operation: Operation, input: ProposalInput): Promise<boolean> {
  const detail = [
    `${operation.intention.tool} · ${operation.intention.server}`,
    "An agent proposes this, and it was let through before anybody can have read it. If you confirm it, it is recorded as your word.",
    `The agent's evidence: ${oneLine(input.evidence)}`,
    `Arguments of the call: ${argumentsText(operation)}`,
    proposalMeanings[input.as],
  ].join("\n\n");
  const answer = await window.showWarningMessage(proposalTitles[input.as], { modal: true, detail }, "Record");
  return answer !== undefined;
}
