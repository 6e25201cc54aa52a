/**
 * Owns: what the 2026-07-28 era adds to a request: the `_meta` envelope, and the HTTP headers that mirror its body.
 * Leaves to others: when a request is modern (negotiate.ts), sending it.
 * Source: MCP 2026-07-28, "Base Protocol: _meta" and "Streamable HTTP: Request Metadata".
 */
import { CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY } from "@modelcontextprotocol/client";
import { isObject, objectIn, type JsonObject, type RpcRequest } from "./json-rpc.ts";

export const modernVersion = "2026-07-28";

/** Revisions are dates, so their text orders them. */
export function isModern(protocolVersion: string): boolean {
  return protocolVersion >= modernVersion;
}

/** Who we say we are. */
export interface ClientInfo {
  readonly name: string;
  readonly version: string;
  readonly [field: string]: unknown;
}

export interface Envelope {
  readonly protocolVersion: string;
  readonly clientInfo: ClientInfo;
  readonly capabilities: JsonObject;
}

/**
 * Params with the era's envelope. In the modern era the version is this connection's; who asks and what it can do are said per request, so
 * a caller that brought them (an agent behind the gateway) speaks for itself. In the legacy era a caller's envelope is taken out, because a
 * server that speaks both eras would read it as a modern request.
 */
export function withEnvelope(params: JsonObject | undefined, envelope: Envelope): JsonObject | undefined {
  const meta = objectIn(params, "_meta");
  if (isModern(envelope.protocolVersion)) {
    return {
      ...params,
      _meta: {
        ...meta,
        [PROTOCOL_VERSION_META_KEY]: envelope.protocolVersion,
        [CLIENT_INFO_META_KEY]: objectIn(meta, CLIENT_INFO_META_KEY) ?? envelope.clientInfo,
        [CLIENT_CAPABILITIES_META_KEY]: objectIn(meta, CLIENT_CAPABILITIES_META_KEY) ?? envelope.capabilities,
      },
    };
  }
  const reserved = [
    PROTOCOL_VERSION_META_KEY,
    CLIENT_INFO_META_KEY,
    CLIENT_CAPABILITIES_META_KEY,
    "io.modelcontextprotocol/logLevel",
  ];
  if (params === undefined || meta === undefined || !reserved.some((key) => key in meta)) return params;
  return { ...params, _meta: Object.fromEntries(Object.entries(meta).filter(([key]) => !reserved.includes(key))) };
}

/** Which field of the params `Mcp-Name` mirrors, by method (the tasks rows: Tasks extension, "Streamable HTTP"). */
const nameSources: Readonly<Record<string, string>> = {
  "tools/call": "name",
  "prompts/get": "name",
  "resources/read": "uri",
  "tasks/get": "taskId",
  "tasks/update": "taskId",
  "tasks/cancel": "taskId",
};

/** The headers that mirror a request with an envelope; none for a request without. Lower-case names. */
export function mirrorHeaders(request: RpcRequest): Record<string, string> {
  const version = objectIn(request.params, "_meta")?.[PROTOCOL_VERSION_META_KEY];
  if (typeof version !== "string") return {};
  const source = Object.hasOwn(nameSources, request.method) ? nameSources[request.method] : undefined;
  const name = source === undefined ? undefined : request.params?.[source];
  return {
    "mcp-protocol-version": version,
    "mcp-method": request.method,
    ...(typeof name === "string" ? { "mcp-name": headerValue(name) } : {}),
  };
}

/** A value as an HTTP field value: plain when that is safe, otherwise Base64 of its UTF-8 between the markers. */
export function headerValue(value: string): string {
  const plain =
    /^[\t\x20-\x7e]+$/.test(value) && value === value.trim() && !(value.startsWith("=?base64?") && value.endsWith("?="));
  return plain ? value : `=?base64?${Buffer.from(value, "utf8").toString("base64")}?=`;
}

/** Where a tool's schema asks for an argument to be mirrored, or why its declarations are not valid. */
export type ParamHeaders =
  | { readonly valid: true; readonly headers: readonly { readonly name: string; readonly path: readonly string[] }[] }
  | { readonly valid: false; readonly reason: string };

const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/** Reads the `x-mcp-header` declarations of an input schema. A tool whose declarations are not valid must not be listed. */
export function paramHeadersOf(inputSchema: unknown): ParamHeaders {
  const headers: { name: string; path: readonly string[] }[] = [];
  const taken = new Set<string>();

  /** @returns the first violation. `reachable`: only `properties` keys led here */
  const visit = (node: unknown, path: readonly string[], reachable: boolean): string | undefined => {
    if (Array.isArray(node)) {
      for (const item of node) {
        const fault = visit(item, path, false);
        if (fault !== undefined) return fault;
      }
      return undefined;
    }
    if (!isObject(node)) return undefined;
    if ("x-mcp-header" in node) {
      const name = node["x-mcp-header"];
      const place = path.join(".") || "the schema itself";
      if (!reachable || path.length === 0) return `x-mcp-header is not allowed at ${place}`;
      if (typeof name !== "string" || !token.test(name)) return `x-mcp-header at ${place} is not a header name`;
      if (node["type"] !== "string" && node["type"] !== "integer" && node["type"] !== "boolean")
        return `x-mcp-header at ${place} needs a string, an integer or a boolean`;
      if (taken.has(name.toLowerCase())) return `x-mcp-header '${name}' is declared twice`;
      taken.add(name.toLowerCase());
      headers.push({ name, path });
    }
    for (const [key, child] of Object.entries(node)) {
      if (key === "x-mcp-header" || instanceKeywords.has(key)) continue;
      const properties = key === "properties" && isObject(child);
      const children =
        properties || (namedSubschemas.has(key) && isObject(child)) ? Object.entries(child) : [[key, child] as const];
      for (const [name, schema] of children) {
        const fault = visit(schema, [...path, name], reachable && properties);
        if (fault !== undefined) return fault;
      }
    }
    return undefined;
  };

  const fault = visit(inputSchema, [], true);
  return fault === undefined ? { valid: true, headers } : { valid: false, reason: fault };
}

/** Keywords whose value is data, not a schema. */
const instanceKeywords = new Set(["default", "const", "enum", "examples", "required"]);
/** Keywords whose value maps names to schemas. */
const namedSubschemas = new Set(["patternProperties", "dependentSchemas", "$defs", "definitions"]);

/** `Mcp-Param-*` headers of one call. An argument that is absent, null or of another kind sends none. */
export function paramHeaders(inputSchema: unknown, args: unknown): Record<string, string> {
  const declared = paramHeadersOf(inputSchema);
  if (!declared.valid) return {};
  const found: Record<string, string> = {};
  for (const { name, path } of declared.headers) {
    let value: unknown = args;
    for (const key of path) value = isObject(value) && Object.hasOwn(value, key) ? value[key] : undefined;
    if (typeof value === "string" || typeof value === "boolean" || Number.isSafeInteger(value)) {
      found[`mcp-param-${name.toLowerCase()}`] = headerValue(String(value));
    }
  }
  return found;
}
