/**
 * Owns: `Rehearse Contract…`: which contract, with which arguments, and the person's typed agreement to what it will create.
 * Leaves to others: the rehearsal (src/replay/rehearsal.ts), remembering and showing its report (rehearsals.ts).
 */
import { ProgressLocation, window } from "vscode";
import type { QuickPickItem } from "vscode";
import type { RehearsalPlan, RehearsalReport, RehearsalRequest } from "../../replay/rehearsal-plan.ts";
import { tally } from "../../replay/rehearsal-words.ts";
import { scriptOf } from "../commands.ts";
import type { CommandMap } from "../commands.ts";
import type { CoreHost, Running } from "../core-host.ts";
import { prefill } from "../prefill.ts";
import { openSetting } from "../problems.ts";
import { rehearsalWords } from "../rehearsal-document.ts";
import type { Rehearsals } from "../rehearsals.ts";
import { UserError } from "../user-error.ts";
import { ToolNode } from "../views/servers-view.ts";
import { askJson } from "./ask-json.ts";

const title = "Rehearse Contract";

export function rehearsalActions(host: CoreHost, rehearsals: Rehearsals): Pick<CommandMap, "mcpSafeReplay.rehearseContract"> {
  return {
    "mcpSafeReplay.rehearseContract": async (target) => {
      const running = await host.ready();
      if (running.core.journal.problem !== undefined) throw running.core.journal.problem;
      const script = scriptOf(target);
      if (script !== undefined) {
        const { confirm, ...request } = script;
        const report = await running.core.rehearse(request, confirm, {});
        await rehearsals.remember(report);
        return report;
      }
      const chosen =
        target instanceof ToolNode
          ? { server: target.server.name, tool: target.tool.name }
          : await pickContract(host, rehearsals);
      if (chosen === undefined) return undefined;
      const request = await askRequest(host, running, chosen.server, chosen.tool);
      if (request === undefined) return undefined;
      const { plan } = await running.core.planRehearsal(request);
      if ("why" in plan) throw new UserError(`This contract cannot be rehearsed: ${plan.why}. Nothing was called.`);
      const agreed = await askAgreement(request, plan);
      if (agreed === undefined) return undefined;
      const report = await rehearse(running, request, agreed);
      await rehearsals.remember(report);
      await rehearsals.open(report.server, report.tool);
      tell(report);
      return report;
    },
  };
}

interface ContractItem extends QuickPickItem {
  readonly server: string;
  readonly tool: string;
}

async function pickContract(host: CoreHost, rehearsals: Rehearsals): Promise<ContractItem | undefined> {
  const items: ContractItem[] = [...host.contracts].flatMap(([server, tools]) =>
    [...tools.keys()].map((tool) => ({
      server,
      tool,
      label: `${tool} · ${server}`,
      description: rehearsalWords(rehearsals.of(server, tool)),
    })),
  );
  if (items.length === 0)
    throw new UserError("There are no contracts yet. They are written in the setting mcpSafeReplay.contracts.");
  return window.showQuickPick(items, {
    title: `${title} (1/3)`,
    placeHolder: "Whose promises are to be put to the test?",
    ignoreFocusOut: true,
  });
}

async function askRequest(
  host: CoreHost,
  running: Running,
  serverName: string,
  toolName: string,
): Promise<RehearsalRequest | undefined> {
  const server = running.core.servers.get(serverName);
  if (server === undefined) throw new UserError(`There is no server "${serverName}" to rehearse on.`);
  await server.connect();
  const listed = server.tools.find((tool) => tool.name === toolName);
  if (listed === undefined) throw new UserError(`The server "${serverName}" has no tool "${toolName}".`);
  const tool = running.engine.withoutKeyArgument(listed, host.contract(serverName, toolName));
  const args = await askJson(running, tool, prefill(tool.inputSchema), {
    title: `${title} (2/3): ${toolName} on ${serverName}`,
    prompt: "Arguments for a sandbox account, as JSON. {{n}} in a text becomes the number of the scenario.",
  });
  return args === undefined ? undefined : { server: serverName, tool: toolName, arguments: args };
}

/** The words that say what is created, typed. Undefined when the person gave up. */
async function askAgreement(request: RehearsalRequest, plan: RehearsalPlan): Promise<string | undefined> {
  const { tool, server } = request;
  const what =
    `Calls "${tool}" on "${server}" ${plan.calls} times, in the account that the server uses: ${plan.effects} real effects when every promise is kept, ` +
    `up to ${plan.calls} when not. They are not taken back. Use a sandbox account. To agree, type: ${plan.phrase}`;
  const typed = await window.showInputBox({
    title: `${title} (3/3): what it creates`,
    prompt: what,
    placeHolder: plan.phrase,
    ignoreFocusOut: true,
    validateInput: (text) => (text === "" || text.trim() === plan.phrase ? undefined : what),
  });
  return typed?.trim() === plan.phrase ? plan.phrase : undefined;
}

function rehearse({ core }: Running, request: RehearsalRequest, agreed: string): Thenable<RehearsalReport> {
  const what = `Rehearsing "${request.tool}" on "${request.server}"`;
  return window.withProgress(
    { location: ProgressLocation.Notification, title: what, cancellable: true },
    async (progress, token) => {
      const ended = new AbortController();
      const subscription = token.onCancellationRequested(() => ended.abort());
      try {
        return await core.rehearse(request, agreed, {
          signal: ended.signal,
          progress: (message) => progress.report({ message }),
        });
      } finally {
        subscription.dispose();
      }
    },
  );
}

function tell(report: RehearsalReport): void {
  const text = `Rehearsed "${report.tool}" on "${report.server}": ${tally(report.findings)}.`;
  if (!report.findings.some((finding) => finding.verdict === "broken")) {
    void window.showInformationMessage(text);
    return;
  }
  void window
    .showErrorMessage(
      `${text} A promise that is not kept can let one call have its effect twice: take it out of the contract.`,
      "Open Contract",
    )
    .then((choice) => {
      if (choice !== undefined) void openSetting("contracts");
    });
}
