/**
 * Owns: the rows of other clients in the Servers view: each with its name and its last use.
 */
import { TreeItemCollapsibleState } from "vscode";
import type { OtherClient } from "../other-clients.ts";
import { agoText, countText } from "../words.ts";
import { ViewNode, icon } from "./node.ts";

/** All clients outside of VS Code that were let in. */
export class ClientsNode extends ViewNode {
  readonly clients: readonly OtherClient[];

  constructor(clients: readonly OtherClient[]) {
    super("clients", "Other Clients", TreeItemCollapsibleState.Collapsed);
    this.clients = clients;
    this.contextValue = "clients";
    this.description = countText(clients.length, "client");
    this.iconPath = icon("plug");
  }
}

export class ClientNode extends ViewNode {
  readonly client: OtherClient;

  constructor(client: OtherClient, now: number) {
    super(`client/${client.name}`, client.name);
    this.client = client;
    this.contextValue = "client";
    this.description = client.lastUse === undefined ? "never used" : `last used ${agoText(client.lastUse, now)}`;
    this.iconPath = icon("account");
    this.tooltip = `Let in ${agoText(client.since, now)}, by a secret of its own.`;
    this.accessibilityInformation = { label: `Client ${client.name}, ${this.description}` };
  }
}
