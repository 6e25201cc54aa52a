/**
 * Owns: a stdio server (2025-11-25) that does what no SDK server does: fields, methods and notifications that no specification knows, `_meta`
 * given back, pages of tools, and a list that changes on demand.
 * Leaves to others: everything that the reference servers have.
 */
import { createInterface } from "node:readline";

type Json = Record<string, unknown>;

const names = ["echo-params", "say-vendor", "grow"];
const extra: string[] = [];

function say(message: Json): void {
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
}

function toolsPage(cursor: unknown): Json {
  const all = [...names, ...extra];
  const at = cursor === undefined ? 0 : Number(cursor);
  const tools = all.slice(at, at + 2).map((name) => ({
    name,
    title: `Tool ${name}`,
    description: "A vendor's tool.",
    inputSchema: { type: "object", "x-vendor-schema": { kept: true } },
    annotations: { readOnlyHint: true, "x-vendor-hint": 7 },
    vendorField: { nested: [1, null, "two", { three: 3.5 }] },
  }));
  return { tools, ...(at + 2 < all.length ? { nextCursor: String(at + 2) } : {}), vendorPage: at };
}

function call(params: Json): Json {
  const content = (text: string): Json => ({
    content: [{ type: "text", text, "x-vendor": true }],
    vendorResult: { kept: [1, 2] },
  });
  switch (params["name"]) {
    case "echo-params": {
      const { progressToken: _token, ...meta } = (params["_meta"] ?? {}) as Json;
      return { ...content(JSON.stringify({ ...params, _meta: meta })), _meta: { "vendor.example/back": meta } };
    }
    case "say-vendor":
      say({ method: "notifications/vendor/said", params: { words: ["a", { b: 1 }] } });
      return content("said");
    case "grow":
      extra.push(`grown-${extra.length + 1}`);
      say({ method: "notifications/tools/list_changed" });
      return content("grown");
    default:
      return { ...content("no such tool"), isError: true };
  }
}

function answer(method: string, params: Json): Json {
  switch (method) {
    case "initialize":
      return {
        protocolVersion: "2025-11-25",
        capabilities: {
          tools: { listChanged: true },
          experimental: { "vendor.example": { deep: { er: true } } },
          vendorCapability: {},
        },
        serverInfo: { name: "vendor", version: "1.2.3", title: "The Vendor", vendorInfo: 1 },
        instructions: "Ask for anything.",
      };
    case "ping":
      return {};
    case "tools/list":
      return toolsPage(params["cursor"]);
    case "tools/call":
      return call(params);
    case "vendor.example/echo":
      return { echoed: params, vendor: true };
    default:
      throw new Error(method);
  }
}

const notified: unknown[] = [];
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params = {} } = JSON.parse(line) as { id?: unknown; method?: string; params?: Json };
  if (method === undefined) continue;
  if (id === undefined) {
    if (method.startsWith("notifications/vendor/")) notified.push({ method, params });
    continue;
  }
  if (method === "vendor.example/notified") {
    say({ id, result: { notified: notified.splice(0) } });
    continue;
  }
  try {
    say({ id, result: answer(method, params) });
  } catch {
    say({ id, error: { code: -32601, message: `Method not found: ${method}`, data: { vendorData: [method] } } });
  }
}
