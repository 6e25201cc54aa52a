import { describe, expect, it } from "vitest";
import { headerValue, mirrorHeaders, paramHeaders, paramHeadersOf, withEnvelope } from "../../../src/hosting/modern.ts";

const envelope = (protocolVersion: string) => ({
  protocolVersion,
  clientInfo: { name: "c", version: "1" },
  capabilities: { elicitation: {} },
});
const keys = {
  version: "io.modelcontextprotocol/protocolVersion",
  info: "io.modelcontextprotocol/clientInfo",
  capabilities: "io.modelcontextprotocol/clientCapabilities",
};

describe("the envelope of 2026-07-28", () => {
  it("names this connection's version; a caller that brought the rest speaks for itself", () => {
    const params = { name: "t", _meta: { [keys.version]: "x", [keys.info]: { name: "agent" }, traceparent: "00" } };
    expect(withEnvelope(params, envelope("2026-07-28"))).toEqual({
      name: "t",
      _meta: {
        traceparent: "00",
        [keys.version]: "2026-07-28",
        [keys.info]: { name: "agent" },
        [keys.capabilities]: { elicitation: {} },
      },
    });
  });

  it("is made for a request without params", () => {
    expect(withEnvelope(undefined, envelope("2026-07-28"))).toHaveProperty("_meta");
  });

  it("is taken out of what goes to an older server, and nothing else is touched", () => {
    const meta = { [keys.version]: "2026-07-28", [keys.info]: {}, [keys.capabilities]: {}, progressToken: 1 };
    expect(withEnvelope({ name: "t", _meta: meta }, envelope("2025-11-25"))).toEqual({ name: "t", _meta: { progressToken: 1 } });
    const plain = { name: "t", _meta: { progressToken: 1 } };
    expect(withEnvelope(plain, envelope("2025-11-25"))).toBe(plain);
    expect(withEnvelope(undefined, envelope("2025-11-25"))).toBeUndefined();
  });
});

describe("header values", () => {
  // The examples of the specification, "Value Encoding".
  it.each([
    ["us-west1", "us-west1"],
    ["Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="],
    [" padded ", "=?base64?IHBhZGRlZCA=?="],
    ["line1\nline2", "=?base64?bGluZTEKbGluZTI=?="],
    ["=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="],
    ["", "=?base64??="],
  ])("%j", (value, expected) => {
    expect(headerValue(value)).toBe(expected);
  });
});

describe("mirrored headers", () => {
  const request = (method: string, params: Record<string, unknown>) =>
    ({ jsonrpc: "2.0", id: "1", method, params: { ...params, _meta: { [keys.version]: "2026-07-28" } } }) as const;

  it.each([
    ["tools/call", { name: "book" }, "book"],
    ["prompts/get", { name: "p" }, "p"],
    ["resources/read", { uri: "file:///x" }, "file:///x"],
    ["tasks/get", { taskId: "t1" }, "t1"],
    ["tools/list", { name: "not mirrored" }, undefined],
    ["constructor", { name: "not mirrored" }, undefined],
  ])("%s", (method, params, name) => {
    expect(mirrorHeaders(request(method, params))).toEqual({
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": method,
      ...(name === undefined ? {} : { "mcp-name": name }),
    });
  });

  it("are none for a request of the older era", () => {
    expect(mirrorHeaders({ jsonrpc: "2.0", id: "1", method: "tools/call", params: { name: "book" } })).toEqual({});
  });
});

describe("arguments mirrored by x-mcp-header", () => {
  const schema = {
    type: "object",
    properties: {
      region: { type: "string", "x-mcp-header": "Region" },
      limits: { type: "object", properties: { rows: { type: "integer", "x-mcp-header": "Rows" } } },
      dry: { type: "boolean", "x-mcp-header": "Dry-Run" },
      query: { type: "string", default: { "x-mcp-header": "no schema" } },
    },
  };

  it("are found at any depth of properties", () => {
    expect(paramHeaders(schema, { region: "us", limits: { rows: 42 }, dry: false, query: "q" })).toEqual({
      "mcp-param-region": "us",
      "mcp-param-rows": "42",
      "mcp-param-dry-run": "false",
    });
  });

  it("send nothing when absent, null, of another kind or too large a number", () => {
    expect(paramHeaders(schema, { region: null, limits: { rows: 2 ** 53 }, dry: {} })).toEqual({});
    expect(paramHeaders(schema, undefined)).toEqual({});
  });

  it.each<[string, unknown]>([
    ["an empty name", { properties: { a: { type: "string", "x-mcp-header": "" } } }],
    ["a name that is no token", { properties: { a: { type: "string", "x-mcp-header": "a b" } } }],
    [
      "the same name twice",
      { properties: { a: { type: "string", "x-mcp-header": "N" }, b: { type: "string", "x-mcp-header": "n" } } },
    ],
    ["a number", { properties: { a: { type: "number", "x-mcp-header": "N" } } }],
    ["an object", { properties: { a: { type: "object", "x-mcp-header": "N" } } }],
    ["the root", { type: "string", "x-mcp-header": "N" }],
    ["under items", { properties: { a: { type: "array", items: { type: "string", "x-mcp-header": "N" } } } }],
    ["under oneOf", { oneOf: [{ properties: { a: { type: "string", "x-mcp-header": "N" } } }] }],
    ["under $defs", { $defs: { d: { type: "string", "x-mcp-header": "N" } } }],
    ["under if", { if: { properties: { a: { type: "string", "x-mcp-header": "N" } } } }],
  ])("are not valid: %s", (_name, inputSchema) => {
    expect(paramHeadersOf(inputSchema)).toMatchObject({ valid: false });
  });

  it("a property that is merely called so is none", () => {
    expect(paramHeadersOf({ properties: { "x-mcp-header": { type: "string" } } })).toEqual({ valid: true, headers: [] });
  });
});
