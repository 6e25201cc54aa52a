/**
 * Owns: `subscriptions/listen` for agents of protocol version 2026-07-28: what of a filter can be served, and what it lets through.
 * Leaves to others: what is announced (server-hub.ts), every other request (modern-face.ts).
 */
import { capabilitiesForModern, metaKeys } from "./envelope.ts";
import type { Exchange } from "./exchange.ts";
import { reach, type FaceServices } from "./forward.ts";
import type { AgentRequest } from "./legacy-face.ts";
import { isObject, type RpcRequest } from "./messages.ts";
import { fail } from "./modern-says.ts";
import { faults } from "./texts.ts";

type Fields = Record<string, unknown>;

/** Which part of a listen filter lets a notification through. */
const listenKinds: Readonly<Record<string, "toolsListChanged" | "promptsListChanged" | "resourcesListChanged">> = {
  "notifications/tools/list_changed": "toolsListChanged",
  "notifications/prompts/list_changed": "promptsListChanged",
  "notifications/resources/list_changed": "resourcesListChanged",
};

const maxListenUris = 1000;

export class ModernListeners {
  readonly #services: FaceServices;
  readonly #standing = new Set<() => void>();
  #listeners = 0;

  constructor(services: FaceServices) {
    this.#services = services;
  }

  /** Ends standing subscriptions with their result. */
  close(): void {
    for (const end of [...this.#standing]) end();
  }

  /** Serves one subscription until one side ends it. */
  async serve(agent: AgentRequest, exchange: Exchange, { id, params }: RpcRequest): Promise<unknown> {
    const filter = readFilter(params?.["notifications"]);
    if (filter === undefined) return await fail(exchange, id, faults.params("'notifications' must be a subscription filter"));
    const { hub } = agent;
    const reached = await reach(hub, this.#services);
    if ("fault" in reached) return await fail(exchange, id, reached.fault);
    const { connection } = reached;
    const honoured = honour(filter, capabilitiesForModern(connection.facts));
    const stamp = { [metaKeys.subscriptionId]: id };
    const over = deferred();
    const end = () => {
      this.#standing.delete(end);
      void exchange.answer({
        id,
        result: { resultType: "complete", _meta: { ...stamp, [metaKeys.serverInfo]: connection.facts.serverInfo } },
      });
      over.resolve();
    };
    exchange.send({
      jsonrpc: "2.0",
      method: "notifications/subscriptions/acknowledged",
      params: { notifications: honoured, _meta: stamp },
    });
    if (Object.keys(honoured).length === 0) {
      end();
      return;
    }

    const subscriber = `listen-${(this.#listeners += 1)}`;
    const uris = new Set(honoured.resourceSubscriptions ?? []);
    for (const uri of uris) {
      if (hub.subscribe(subscriber, uri) && connection.facts.era === "2025-11-25")
        void connection.request("resources/subscribe", { uri });
    }
    const stop = hub.listen((message) => {
      const { method } = message;
      if (typeof method !== "string") return;
      const kind = Object.hasOwn(listenKinds, method) ? listenKinds[method] : undefined;
      const fields = isObject(message["params"]) ? message["params"] : {};
      const wanted =
        kind === undefined
          ? method === "notifications/resources/updated" && typeof fields["uri"] === "string" && uris.has(fields["uri"])
          : honoured[kind] === true;
      if (!wanted) return;
      exchange.send({
        ...message,
        params: { ...fields, _meta: { ...(isObject(fields["_meta"]) ? fields["_meta"] : {}), ...stamp } },
      });
    });
    this.#standing.add(end);
    exchange.onGone(over.resolve);
    await over.promise;
    stop();
    this.#standing.delete(end);
    for (const uri of uris) {
      const now = hub.server.connection;
      if (hub.unsubscribe(subscriber, uri) && now?.open === true && now.facts.era === "2025-11-25")
        void now.request("resources/unsubscribe", { uri });
    }
  }
}

interface ListenFilter {
  toolsListChanged?: true;
  promptsListChanged?: true;
  resourcesListChanged?: true;
  resourceSubscriptions?: readonly string[];
}

function readFilter(value: unknown): ListenFilter | undefined {
  if (!isObject(value)) return undefined;
  const filter: ListenFilter = {};
  for (const kind of ["toolsListChanged", "promptsListChanged", "resourcesListChanged"] as const) {
    const wanted = Object.hasOwn(value, kind) ? value[kind] : undefined;
    if (wanted !== undefined && typeof wanted !== "boolean") return undefined;
    if (wanted === true) filter[kind] = true;
  }
  const uris = Object.hasOwn(value, "resourceSubscriptions") ? value["resourceSubscriptions"] : undefined;
  if (uris === undefined) return filter;
  if (!Array.isArray(uris) || uris.length > maxListenUris || !uris.every((uri) => typeof uri === "string")) return undefined;
  if (uris.length > 0) filter.resourceSubscriptions = uris;
  return filter;
}

/** The part of a filter that the server's capabilities can serve. */
function honour(filter: ListenFilter, capabilities: Fields): ListenFilter {
  const has = (group: string, field: string) => isObject(capabilities[group]) && capabilities[group][field] === true;
  const honoured: ListenFilter = {};
  if (filter.toolsListChanged && has("tools", "listChanged")) honoured.toolsListChanged = true;
  if (filter.promptsListChanged && has("prompts", "listChanged")) honoured.promptsListChanged = true;
  if (filter.resourcesListChanged && has("resources", "listChanged")) honoured.resourcesListChanged = true;
  if (filter.resourceSubscriptions && has("resources", "subscribe"))
    honoured.resourceSubscriptions = filter.resourceSubscriptions;
  return honoured;
}

function deferred(): { promise: Promise<void>; resolve: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { promise, resolve };
}
