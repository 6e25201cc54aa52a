/**
 * Owns: the request headers that 2026-07-28 requires beside the body, and their agreement with it.
 * Leaves to others: the era itself and the version header's agreement (the SDK's classifier, in modern-face.ts). Pure.
 * Source: 2026-07-28 "Streamable HTTP", "Standard Request Headers" and "Custom Headers from Tool Parameters"; the tasks extension's binding.
 * Texts name the header, never a value: a mirrored value is a tool argument.
 */
import type { IncomingMessage } from "node:http";
import type { ListedTool } from "../hosting/connection.ts";
import { isObject, type RpcRequest } from "./messages.ts";
import { faults, shown, type Fault } from "./texts.ts";

/** Which member of params the Mcp-Name header mirrors. */
const nameSource: Readonly<Record<string, string>> = {
  "tools/call": "name",
  "prompts/get": "name",
  "resources/read": "uri",
  "tasks/get": "taskId",
  "tasks/update": "taskId",
  "tasks/cancel": "taskId",
};

type Headers = Pick<IncomingMessage, "headers">;

/** MCP-Protocol-Version, Mcp-Method and Mcp-Name: there, readable, and equal to the body's. */
export function standardHeaderMismatch(request: Headers, message: RpcRequest): Fault | undefined {
  if (request.headers["mcp-protocol-version"] === undefined) return faults.headers("the MCP-Protocol-Version header is missing");
  if (request.headers["mcp-method"] === undefined) return faults.headers("the Mcp-Method header is missing");
  const source = Object.hasOwn(nameSource, message.method) ? nameSource[message.method] : undefined;
  const value = source === undefined ? undefined : message.params?.[source];
  if (source === undefined || typeof value !== "string") return undefined;
  const header = request.headers["mcp-name"];
  if (typeof header !== "string") return faults.headers("the Mcp-Name header is missing");
  const decoded = decode(header);
  if (decoded === undefined) return faults.headers("the Mcp-Name header is not readable");
  return decoded === value ? undefined : faults.headers(`the Mcp-Name header is not the body's params.${source}`);
}

/** Mcp-Param-*: for each argument that the tool's schema mirrors into a header, the header is there and equal. */
export function paramHeaderMismatch(request: Headers, message: RpcRequest, tools: readonly ListedTool[]): Fault | undefined {
  if (message.method !== "tools/call") return undefined;
  const tool = tools.find((one) => one.name === message.params?.["name"]);
  for (const { path, header, type } of declarations(tool?.inputSchema, [])) {
    const value = path.reduce<unknown>(
      (node, key) => (isObject(node) && Object.hasOwn(node, key) ? node[key] : undefined),
      message.params?.["arguments"],
    );
    const expected = asText(value);
    if (expected === undefined) continue;
    const name = `Mcp-Param-${header}`;
    const sent = request.headers[name.toLowerCase()];
    if (typeof sent !== "string") return faults.headers(`the ${shown(name)} header is missing`);
    const decoded = decode(sent);
    if (decoded === undefined) return faults.headers(`the ${shown(name)} header is not readable`);
    const numeric = (type === "integer" || type === "number") && typeof value === "number" && /^-?\d+(\.\d+)?$/.test(decoded);
    if (numeric ? Number(decoded) !== value : decoded !== expected)
      return faults.headers(`the ${shown(name)} header is not the body's argument`);
  }
  return undefined;
}

interface Declaration {
  readonly path: readonly string[];
  readonly header: string;
  readonly type: unknown;
}

/** `x-mcp-header` on properties that are reached through `properties` alone. */
function declarations(schema: unknown, path: readonly string[]): Declaration[] {
  if (!isObject(schema) || path.length > 32) return [];
  const header = schema["x-mcp-header"];
  const own =
    path.length > 0 && typeof header === "string" && /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(header)
      ? [{ path, header, type: schema["type"] }]
      : [];
  const properties = isObject(schema["properties"]) ? Object.entries(schema["properties"]) : [];
  return [...own, ...properties.flatMap(([key, child]) => declarations(child, [...path, key]))];
}

function asText(value: unknown): string | undefined {
  if (typeof value === "string") return value;
  if (typeof value === "boolean") return String(value);
  if (typeof value !== "number" || (Number.isInteger(value) && !Number.isSafeInteger(value))) return undefined;
  return String(value);
}

/** A header's value: as it is, or `=?base64?…?=` around UTF-8. Undefined when that is not well formed. */
function decode(header: string): string | undefined {
  const value = header.replace(/^[ \t]+|[ \t]+$/g, "");
  const found = /^=\?base64\?(.*)\?=$/s.exec(value);
  if (found?.[1] === undefined) return value;
  if (!/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(found[1])) return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Buffer.from(found[1], "base64"));
  } catch {
    return undefined;
  }
}
