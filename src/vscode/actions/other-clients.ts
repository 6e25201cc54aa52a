/**
 * Owns: asking the person which hosted servers another MCP client is to reach, and how; and taking a client's way in back.
 * Leaves to others: secrets and the port (other-clients.ts), the text (client-snippets.ts).
 */
import { env, window } from "vscode";
import type { QuickPickItem } from "vscode";
import { clientSnippet, otherClientKinds, otherClientWords } from "../client-snippets.ts";
import type { OtherClientKind, WayIn } from "../client-snippets.ts";
import { scriptOf } from "../commands.ts";
import type { CommandMap } from "../commands.ts";
import type { CoreHost } from "../core-host.ts";
import type { OtherClients } from "../other-clients.ts";
import { section } from "../settings.ts";
import type { Settings } from "../settings.ts";
import { UserError } from "../user-error.ts";
import { ClientNode } from "../views/clients.ts";
import { agoText } from "../words.ts";

export function otherClientActions(
  host: CoreHost,
  clients: OtherClients,
  settings: Settings,
): Pick<CommandMap, "mcpSafeReplay.copyGatewayConfiguration" | "mcpSafeReplay.revokeClient"> {
  return {
    "mcpSafeReplay.copyGatewayConfiguration": async (target) => {
      const { core } = await host.ready();
      const names = [...core.servers.keys()];
      if (names.length === 0) throw new UserError("There is no server yet that another client could reach. Add one first.");
      const script = scriptOf(target);
      const asked = script ?? (await ask(names, (await clients.port()) !== undefined));
      if (asked === undefined) return undefined;
      const unknown = asked.servers.find((name) => !names.includes(name));
      if (unknown !== undefined) throw new UserError(`There is no hosted server named "${unknown}".`);
      const port = await clients.port();
      if (asked.way === "http" && port === undefined)
        throw new UserError(`The port for other clients is closed. Switch on ${section}.gateway.tcp first.`);

      const kept = asked.way === "http" ? await clients.keepPort(settings) : undefined;
      const launcher = asked.way === "stdio" ? await clients.launcher() : "";
      const { label, file } = otherClientWords[asked.client];
      const { name, token } = await clients.admit(asked.client === "mcp.json" ? "Another client" : label);
      const ways = new Map<string, WayIn>(
        asked.servers.map((server) => [
          server,
          asked.way === "http" && port !== undefined
            ? { kind: "http", url: port.urlOf(server), token }
            : {
                kind: "stdio",
                command: "node",
                args: [launcher, "connect", server, "--gateways", clients.meetingPlace, "--client", name],
                env: { MCP_SAFE_REPLAY_TOKEN: token },
              },
        ]),
      );
      const snippet = clientSnippet(asked.client, ways);
      await env.clipboard.writeText(snippet);
      if (script === undefined)
        void window.showInformationMessage(
          `The configuration for ${label} is on the clipboard. Put it into ${file}. It holds a secret that lets "${name}" in; you can take it back with Revoke Client.` +
            (kept === undefined ? "" : ` It names port ${kept}, which is kept from now on (${section}.gateway.port).`),
        );
      return { name, snippet };
    },
    "mcpSafeReplay.revokeClient": async (target) => {
      const script = scriptOf(target);
      const name = script?.client ?? (target instanceof ClientNode ? target.client.name : await askClient(clients));
      if (name === undefined) return;
      if (script === undefined) {
        const revoke = "Revoke";
        const detail = "Its configuration stops working at once, in every window. Calls that are under way are not cut off.";
        if ((await window.showWarningMessage(`Revoke "${name}"?`, { modal: true, detail }, revoke)) !== revoke) return;
      }
      if (!(await clients.revoke(name))) throw new UserError(`There is no client named "${name}".`);
    },
  };
}

interface Wish {
  readonly client: OtherClientKind;
  readonly servers: readonly string[];
  readonly way: "http" | "stdio";
}

async function ask(names: readonly string[], portIsOpen: boolean): Promise<Wish | undefined> {
  const servers =
    names.length === 1
      ? names
      : await window.showQuickPick(names, { canPickMany: true, title: "Which servers is the client to reach?" });
  if (servers === undefined || servers.length === 0) return undefined;
  const kinds = otherClientKinds.map((kind) => ({
    label: otherClientWords[kind].label,
    description: otherClientWords[kind].file,
    client: kind,
  }));
  const picked = await window.showQuickPick(kinds, { title: "For which client?" });
  if (picked === undefined) return undefined;
  const { client } = picked;
  if (!portIsOpen) return { client, servers, way: "stdio" };
  const ways: (QuickPickItem & { readonly way: Wish["way"] })[] = [
    { label: "By a program (stdio)", description: "finds the window that runs; needs Node.js 22 or later", way: "stdio" },
    { label: "Over the port (HTTP)", description: "with this window's port, which is kept", way: "http" },
  ];
  const way = await window.showQuickPick(ways, { title: "How is it to connect?" });
  return way === undefined ? undefined : { client, servers, way: way.way };
}

async function askClient(clients: OtherClients): Promise<string | undefined> {
  const list = clients.list();
  if (list.length === 0) throw new UserError("No other client has been let in.");
  const now = Date.now();
  const picked = await window.showQuickPick(
    list.map(({ name, lastUse }) => ({
      label: name,
      description: lastUse === undefined ? "never used" : `last used ${agoText(lastUse, now)}`,
    })),
    { title: "Which client is to be revoked?" },
  );
  return picked?.label;
}
