/**
 * Owns: building every part of the extension, in an order that can be read. Nothing here starts anything: the core comes to life when
 * somebody needs it, or right after activation.
 */
import { lm } from "vscode";
import type { ExtensionContext } from "vscode";
import { authorisationActions } from "./actions/authorise.ts";
import { callActions } from "./actions/call-tool.ts";
import { ImportPreview } from "./actions/import-preview.ts";
import { importActions } from "./actions/import-servers.ts";
import { journalActions } from "./actions/journal.ts";
import { operationActions } from "./actions/operations.ts";
import { rehearsalActions } from "./actions/rehearse.ts";
import { otherClientActions } from "./actions/other-clients.ts";
import { serverActions } from "./actions/servers.ts";
import { showAlarms } from "./alarms.ts";
import { Attention } from "./attention.ts";
import { Authorisations } from "./authorisations.ts";
import { registerCommands } from "./commands.ts";
import { CoreHost } from "./core-host.ts";
import { DisposableList } from "./disposables.ts";
import { Logs } from "./logs.ts";
import { McpProvider, providerId } from "./mcp-provider.ts";
import { registerModelTools } from "./model-tools.ts";
import { OperationDocuments } from "./operation-document.ts";
import { Operations } from "./operations.ts";
import { OtherClients } from "./other-clients.ts";
import { Problems, openSetting } from "./problems.ts";
import { Rehearsals } from "./rehearsals.ts";
import { ServerDocuments } from "./server-document.ts";
import { Settings } from "./settings.ts";
import { Inputs } from "./sources/inputs.ts";
import { ServerSources } from "./sources/server-sources.ts";
import { WorkspaceFileLenses } from "./sources/workspace-file-lenses.ts";
import { Trust } from "./trust-source.ts";
import { ServersView } from "./views/servers-view.ts";
import { UnresolvedView } from "./views/unresolved-view.ts";

export interface Extension {
  /** Starts the core without making anybody wait for it. */
  start(): void;
  /** Ends it: servers stopped, journal closed. */
  end(): Promise<void>;
  dispose(): void;
}

export function buildExtension(context: ExtensionContext): Extension {
  const parts = new DisposableList();
  const logs = parts.add(new Logs());
  const log = logs.extension;

  // What the person decided
  const settings = parts.add(new Settings());
  const inputs = parts.add(new Inputs(context.secrets));
  const sources = parts.add(new ServerSources(inputs));
  const problems = new Problems(log);
  const trust = parts.add(new Trust(settings, context.globalState, log));

  // The core, and what of it is shown
  const clients = parts.add(new OtherClients(context, log));
  const authorisations = parts.add(new Authorisations(context, log));
  const { grants } = authorisations;
  const host = parts.add(
    new CoreHost({ context, settings, sources, trust, problems, logs, clientTokens: clients.tokens, grants }),
  );
  clients.follow(host, settings);
  authorisations.follow(host);
  const operations = parts.add(new Operations(host, log));
  const rehearsals = parts.add(new Rehearsals(host, context.globalState));
  const documents = parts.add(new OperationDocuments(host, rehearsals));
  const serverDocuments = parts.add(new ServerDocuments(host));
  parts.add(new UnresolvedView(host, operations));
  parts.add(showAlarms(operations));
  parts.add(new Attention(host));
  parts.add(new WorkspaceFileLenses(host, trust));
  const preview = parts.add(new ImportPreview());
  const servers = parts.add(new ServersView(host, trust, settings, rehearsals, clients));

  // What others reach
  const provider = parts.add(new McpProvider(host, trust, context.globalState));
  parts.add(lm.registerMcpServerDefinitionProvider(providerId, provider));
  parts.add(registerModelTools(host));
  parts.add(
    registerCommands(
      {
        ...callActions(host, documents),
        ...operationActions(host, documents),
        ...journalActions(host),
        ...rehearsalActions(host, rehearsals),
        ...otherClientActions(host, clients, settings),
        ...serverActions(host, settings, inputs, authorisations, trust, logs, serverDocuments, clients),
        ...authorisationActions(host, authorisations),
        ...importActions({ context, host, settings, inputs, preview }),
        "mcpSafeReplay.openSettings": async (key) => {
          await openSetting(key === "servers" ? key : undefined);
        },
        "mcpSafeReplay.refresh": () => {
          operations.refresh();
          servers.refresh();
          return Promise.resolve();
        },
        "mcpSafeReplay.retry": () => host.retry(),
      },
      log,
    ),
  );

  return {
    start: () => void host.start(),
    end: async () => {
      await clients.end();
      await host.end();
    },
    dispose: () => parts.dispose(),
  };
}
