/**
 * Owns: hostile traffic over a real socket, generated: whatever arrives, the gateway answers, lives, leaks nothing and sends nothing that the
 * bytes do not say. A failing run prints the seed that repeats it.
 */
import { Agent, request as httpRequest } from "node:http";
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { both, stage, type Stage } from "./fakes.ts";

const secret = "s3cret-argument";
const encode = (value: unknown) => Buffer.from(JSON.stringify(value));

let s: Stage;
const agent = new Agent({ keepAlive: true, maxSockets: 4 });
beforeAll(async () => {
  s = await stage({ keepAliveMs: 1000 });
  s.calls.automatic = () => ({ content: [] });
  (await s.server.live()).automatic = () => ({});
});
afterAll(async () => {
  agent.destroy();
  await s.close();
});

interface Outcome {
  readonly status: number;
  readonly body: string;
}

function attempt(body: Buffer, headers: Record<string, string>): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      {
        socketPath: s.socketPath,
        agent,
        method: "POST",
        path: "/servers/one/mcp",
        headers: { "content-length": body.length, ...headers },
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("end", () => resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() }));
        response.on("error", reject);
      },
    );
    request.on("error", reject);
    request.end(body);
  });
}

/** Every message of an answer, whether JSON or SSE. */
function messages(outcome: Outcome): unknown[] {
  if (outcome.body === "") return [];
  if (!outcome.body.startsWith("event:") && !outcome.body.startsWith(":")) return [JSON.parse(outcome.body)].flat();
  const events = outcome.body.split("\n\n").filter((event) => event.includes("data: "));
  return events.map((event) => JSON.parse(event.slice(event.indexOf("data: ") + 6)) as unknown);
}

const wellFormed = [
  { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "book", arguments: { secret }, _meta: { progressToken: 1 } } },
  {
    jsonrpc: "2.0",
    id: "i",
    method: "initialize",
    params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "x", version: "1" } },
  },
  { jsonrpc: "2.0", id: 2, method: "resources/read", params: { uri: "u:1" } },
  { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } },
  { jsonrpc: "2.0", id: "gateway-x", result: { action: "accept" } },
  [
    { jsonrpc: "2.0", id: 1, method: "ping" },
    { jsonrpc: "2.0", id: 2, method: "tools/call", params: { name: "book", arguments: { secret } } },
  ],
  {
    jsonrpc: "2.0",
    id: 3,
    method: "tools/call",
    params: {
      name: "book",
      arguments: { secret },
      requestState: "mcp-safe-replay.x",
      _meta: { "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} },
    },
  },
];

const headers = fc.record(
  {
    "content-type": fc.constant("application/json"),
    accept: fc.constantFrom(both, "application/json", "text/event-stream", "*/*"),
    "mcp-protocol-version": fc.constantFrom("2025-11-25", "2025-03-26", "2026-07-28", "2030-01-01", "x"),
    "mcp-method": fc.constantFrom("tools/call", "ping", ""),
    "mcp-name": fc.constantFrom("book", "=?base64?Ym9vaw==?=", "=?base64?x?="),
  },
  { requiredKeys: ["content-type", "accept"] },
);

/** Bytes with some of them changed, removed, doubled or put in. */
const mutated = fc
  .tuple(
    fc.constantFrom(...wellFormed),
    fc.array(
      fc.tuple(
        fc.nat(),
        fc.constantFrom("set", "drop", "double", "insert"),
        fc.oneof(fc.integer({ min: 0, max: 255 }), fc.constantFrom(0x22, 0x5c, 0x7b, 0x7d, 0x5b, 0x2c)),
      ),
      { maxLength: 6 },
    ),
  )
  .map(([message, changes]) => {
    let bytes = [...encode(message)];
    for (const [place, kind, byte] of changes) {
      const at = place % (bytes.length + 1);
      if (kind === "set") bytes[at] = byte;
      else if (kind === "drop") bytes.splice(at, 1);
      else if (kind === "insert") bytes.splice(at, 0, byte);
      else bytes = [...bytes.slice(0, at), ...bytes.slice(at, at + 20), ...bytes.slice(at)];
    }
    return Buffer.from(bytes);
  });

/** JSON of the right shape with wrong things in it. */
const wild = fc
  .tuple(
    fc.constantFrom(...wellFormed.filter((one) => !Array.isArray(one))),
    fc.constantFrom(
      "jsonrpc",
      "id",
      "method",
      "params",
      "result",
      "error",
      "params.name",
      "params.arguments",
      "params._meta",
      "params._meta.progressToken",
      "params.uri",
      "params.protocolVersion",
      "params.capabilities",
    ),
    fc.oneof(
      fc.jsonValue({ maxDepth: 6 }),
      fc.constantFrom<unknown>(null, -0, 1e308, "__proto__", { __proto__x: 1 }, [[[[]]]], "constructor"),
    ),
  )
  .map(([message, path, value]) => {
    const copy = JSON.parse(JSON.stringify(message)) as Record<string, unknown>;
    const keys = path.split(".");
    const last = keys.pop() ?? "";
    let node = copy;
    for (const key of keys) {
      if (typeof node[key] !== "object" || node[key] === null) node[key] = {};
      node = node[key] as Record<string, unknown>;
    }
    node[last] = value;
    return encode(copy);
  });

describe("hostile traffic", () => {
  it.each([
    ["mutated bytes", mutated, 1500],
    ["wild values", wild, 1500],
    ["any bytes", fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)), 500],
  ])(
    "(%s) is always answered with JSON-RPC, leaks nothing, and sends nothing that it does not say",
    async (what, bodies, runs) => {
      const seed = Number(process.env["MSR_SEED"] ?? Math.trunc(Math.random() * 2 ** 31));
      const numRuns = Number(process.env["MSR_RUNS"] ?? runs);
      const statuses = new Map<number, number>();
      const calledBefore = s.calls.count;
      await fc.assert(
        fc.asyncProperty(bodies, headers, async (body, head) => {
          const before = s.calls.count;
          const outcome = await attempt(body, head);
          statuses.set(outcome.status, (statuses.get(outcome.status) ?? 0) + 1);
          expect([200, 202, 400, 404, 406]).toContain(outcome.status);
          if (outcome.status === 202) expect(outcome.body).toBe("");
          for (const message of messages(outcome)) expect(message).toMatchObject({ jsonrpc: "2.0" });
          expect(outcome.body + JSON.stringify(s.log)).not.toContain(secret);
          if (s.calls.count > before) {
            // Something was sent: then the bytes are valid JSON, and say so.
            const said = [JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body))].flat() as {
              method?: unknown;
              jsonrpc?: unknown;
            }[];
            expect(said.filter((one) => one.method === "tools/call" && one.jsonrpc === "2.0").length).toBeGreaterThanOrEqual(
              s.calls.count - before,
            );
            expect(outcome.status).toBe(200);
          }
        }),
        { numRuns, seed },
      );
      const answers = [...statuses].sort(([a], [b]) => a - b).map(([status, count]) => `${count} with ${status}`);
      console.log(
        `fuzzed (${what}): ${numRuns} requests, seed ${seed}; answered ${answers.join(", ")}; ${s.calls.count - calledBefore} were calls`,
      );
      expect(
        (await attempt(encode({ jsonrpc: "2.0", id: 1, method: "ping" }), { "content-type": "application/json" })).status,
      ).toBe(200);
    },
    60_000,
  );
});
