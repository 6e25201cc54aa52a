/**
 * Owns: what a person does with the authorisation of a remote server: give it in the browser, and take it back here.
 * Leaves to others: the authorisation itself (src/hosting/auth), browser and storage (authorisations.ts).
 */
import { ProgressLocation, window } from "vscode";
import type { HostedServer } from "../../hosting/hosted-server.ts";
import type { Authorisations } from "../authorisations.ts";
import { scriptOf } from "../commands.ts";
import type { CommandMap } from "../commands.ts";
import type { CoreHost } from "../core-host.ts";
import { UserError } from "../user-error.ts";
import { ServerNode, WaitingNode } from "../views/servers-view.ts";
import { serverStateWords } from "../words.ts";
import { serverNamed } from "./servers.ts";

type AuthoriseCommand = "mcpSafeReplay.authorise" | "mcpSafeReplay.signOut";
type Target = Parameters<CommandMap[AuthoriseCommand]>[0];

export function authorisationActions(host: CoreHost, authorisations: Authorisations): Pick<CommandMap, AuthoriseCommand> {
  return {
    "mcpSafeReplay.authorise": async (target) => {
      const { core } = await host.ready();
      // With one that asks for it there is no question which; VS Code also drops the row of a click while it draws the rows anew.
      const asking = [...core.servers.values()].filter(({ authorisation }) => authorisation?.need !== undefined);
      const only = target === undefined && asking.length === 1 ? asking[0]?.name : undefined;
      const server = await remoteServer(host, only ?? target, "Which server is to be authorised?");
      if (server === undefined) return;
      const title = `Authorising "${server.name}": go on in your browser`;
      await window.withProgress(
        { location: ProgressLocation.Notification, title, cancellable: true },
        async (_progress, token) => {
          const givenUp = new AbortController();
          const subscription = token.onCancellationRequested(() => givenUp.abort());
          try {
            // Its challenge says where and for what; one that was never asked has made none yet.
            if (server.authorisation?.need === undefined) await server.connect().catch(() => undefined);
            await server.authorisation?.authorise(authorisations.interaction, givenUp.signal);
          } catch (error) {
            if (isCancelled(error)) return;
            throw error;
          } finally {
            subscription.dispose();
          }
          await server.start();
        },
      );
    },
    "mcpSafeReplay.signOut": async (target) => {
      const server = await remoteServer(host, target, "Which server's authorisation is to be forgotten?");
      if (server === undefined) return;
      if (scriptOf(target) === undefined) {
        const text = `Forget the authorisation of "${server.name}"?`;
        const detail = "Its tokens are removed from VS Code's secret storage. You will be asked again when the server needs you.";
        if ((await window.showWarningMessage(text, { modal: true, detail }, "Sign Out")) !== "Sign Out") return;
      }
      await server.authorisation?.signOut();
      await server.restart().catch(() => undefined);
    },
  };
}

/** Its class is bundled apart: known by its name. */
function isCancelled(error: unknown): boolean {
  return error instanceof Error && error.name === "AuthorisationError" && "failure" in error && error.failure === "cancelled";
}

async function remoteServer(host: CoreHost, target: Target, question: string): Promise<HostedServer | undefined> {
  const { core } = await host.ready();
  const name =
    target instanceof WaitingNode
      ? target.waiting.name
      : typeof target === "string"
        ? target
        : target instanceof ServerNode
          ? target.server.name
          : scriptOf(target)?.server;
  if (name !== undefined) {
    const server = serverNamed(core, name);
    if (server.authorisation !== undefined) return server;
    throw new UserError(
      `There is nothing to authorise: "${name}" is a program, or its definition has an Authorization header of its own.`,
    );
  }
  const items = [...core.servers.values()]
    .filter((server) => server.authorisation !== undefined)
    .map((server) => ({ server, label: server.name, description: serverStateWords[server.status.state] }));
  if (items.length === 0) throw new UserError("There is no server that could be authorised.");
  return (await window.showQuickPick(items, { title: question }))?.server;
}
