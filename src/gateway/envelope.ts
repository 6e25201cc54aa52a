/**
 * Owns: what must change between the eras on the way through the gateway, and nothing else: the 2026-07-28 request envelope, the result
 * fields that exist in one era only, and which capabilities can be offered.
 * Leaves to others: the wire itself (src/hosting adds what its connection's envelope needs), what a call means (src/replay). Pure.
 * Source: 2026-07-28 "Base protocol" (per-request `_meta`, `resultType`, cacheable results); 2025-11-25 "Lifecycle".
 */
import type { Era } from "../hosting/evidence.ts";
import type { ServerFacts } from "../hosting/connection.ts";
import { isObject } from "./messages.ts";

export const metaKeys = {
  protocolVersion: "io.modelcontextprotocol/protocolVersion",
  clientInfo: "io.modelcontextprotocol/clientInfo",
  clientCapabilities: "io.modelcontextprotocol/clientCapabilities",
  logLevel: "io.modelcontextprotocol/logLevel",
  serverInfo: "io.modelcontextprotocol/serverInfo",
  subscriptionId: "io.modelcontextprotocol/subscriptionId",
} as const;

export const modernVersion = "2026-07-28";
/** Newest first. */
export const legacyVersions = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] as const;
export type LegacyVersion = (typeof legacyVersions)[number];
/** What a request without the version header is taken for: 2025-06-18 "Protocol Version Header". */
export const assumedVersion: LegacyVersion = "2025-03-26";
/** Versions that had JSON-RPC batches. */
export const batchVersions: readonly LegacyVersion[] = ["2025-03-26", "2024-11-05"];

export function isLegacyVersion(version: unknown): version is LegacyVersion {
  return (legacyVersions as readonly unknown[]).includes(version);
}

type Fields = Record<string, unknown>;

const cacheable: ReadonlySet<string> = new Set([
  "tools/list",
  "prompts/list",
  "resources/list",
  "resources/templates/list",
  "resources/read",
  "server/discover",
]);

/**
 * A modern agent's params for the server: the version is the connection's own affair; the rest of the envelope goes on to a 2026-07-28
 * server (it decides by the agent's capabilities) and is taken out for an older one.
 */
export function paramsFromModern(params: Fields | undefined, upstream: Era | undefined): Fields | undefined {
  const meta = params?.["_meta"];
  if (params === undefined || !isObject(meta)) return params;
  const { [metaKeys.protocolVersion]: _version, ...rest } = meta;
  const kept =
    upstream === "2025-11-25" ? without(rest, [metaKeys.clientInfo, metaKeys.clientCapabilities, metaKeys.logLevel]) : rest;
  return withMeta(params, kept);
}

/** A legacy agent's params for the server: a 2026-07-28 server is told the agent's capabilities and log level with each request. */
export function paramsFromLegacy(
  params: Fields | undefined,
  upstream: Era | undefined,
  client: { readonly capabilities?: Readonly<Fields>; readonly logLevel?: unknown },
): Fields | undefined {
  if (upstream !== "2026-07-28" || (client.capabilities === undefined && client.logLevel === undefined)) return params;
  const meta = isObject(params?.["_meta"]) ? params["_meta"] : {};
  return {
    ...params,
    _meta: {
      ...(client.capabilities === undefined ? {} : { [metaKeys.clientCapabilities]: modernCapabilities(client.capabilities) }),
      ...(client.logLevel === undefined ? {} : { [metaKeys.logLevel]: client.logLevel }),
      ...meta,
    },
  };
}

/** A legacy client's capabilities in the modern vocabulary: tasks were redefined as an extension there. */
function modernCapabilities(capabilities: Readonly<Fields>): Fields {
  return without(capabilities, ["tasks"]);
}

/** A result for a modern agent: what its era requires is filled in where an older server (or the gateway itself) did not say it. */
export function resultForModern(method: string, result: Readonly<Fields>, facts: ServerFacts | undefined): Fields {
  const out: Fields = { ...result };
  if (typeof out["resultType"] !== "string") out["resultType"] = "complete";
  if (out["resultType"] === "complete" && cacheable.has(method)) {
    if (!Number.isSafeInteger(out["ttlMs"]) || (out["ttlMs"] as number) < 0) out["ttlMs"] = 0;
    if (out["cacheScope"] !== "public" && out["cacheScope"] !== "private") out["cacheScope"] = "private";
  }
  if (facts?.era !== "2025-11-25") return out;
  const meta = out["_meta"];
  if (meta === undefined || (isObject(meta) && meta[metaKeys.serverInfo] === undefined)) {
    out["_meta"] = { ...(isObject(meta) ? meta : {}), [metaKeys.serverInfo]: facts.serverInfo };
  }
  if (method === "tools/list" && Array.isArray(out["tools"])) {
    // `execution` speaks of 2025-11-25 tasks, which a modern agent cannot ask for.
    out["tools"] = out["tools"].map((tool: unknown) => (isObject(tool) ? without(tool, ["execution"]) : tool));
  }
  return out;
}

/** A result for a legacy agent: the marks of the other era are taken out of a 2026-07-28 server's result. */
export function resultForLegacy(method: string, result: Readonly<Fields>, upstream: Era | undefined): Fields {
  if (upstream !== "2026-07-28") return { ...result };
  const marks = cacheable.has(method) ? ["ttlMs", "cacheScope"] : [];
  const out = without(result, result["resultType"] === "complete" ? ["resultType", ...marks] : marks);
  const meta = out["_meta"];
  if (!isObject(meta) || !Object.hasOwn(meta, metaKeys.serverInfo)) return out;
  return withMeta(out, without(meta, [metaKeys.serverInfo])) ?? out;
}

/** What `initialize` offers of a server's capabilities: everything the gateway can carry to a legacy agent. */
export function capabilitiesForLegacy(facts: ServerFacts): Fields {
  // Extensions of 2026-07-28 (tasks among them) have methods and results that a legacy agent does not know.
  return facts.era === "2026-07-28" ? without(facts.capabilities, ["extensions"]) : { ...facts.capabilities };
}

/** What `server/discover` offers of a server's capabilities to a modern agent. */
export function capabilitiesForModern(facts: ServerFacts): Fields {
  return facts.era === "2025-11-25" ? without(facts.capabilities, ["tasks"]) : { ...facts.capabilities };
}

/** `-32002` (resource not found) was renumbered in 2026-07-28. */
export function errorForModern<E extends { readonly code: number }>(error: E, upstream: Era | undefined): E {
  return upstream === "2025-11-25" && error.code === -32002 ? { ...error, code: -32602 } : error;
}

export function without(fields: Readonly<Fields>, keys: readonly string[]): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([key]) => !keys.includes(key)));
}

function withMeta(params: Fields, meta: Fields): Fields {
  const { _meta: _, ...rest } = params;
  return Object.keys(meta).length === 0 ? rest : { ...rest, _meta: meta };
}
