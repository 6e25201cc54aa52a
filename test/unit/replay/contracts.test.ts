import { describe, expect, it } from "vitest";
import {
  dataOf,
  keyIn,
  marginMs,
  missingPromises,
  preventionVerdict,
  promiseNames,
  readContracts,
  withKey,
  withoutKey,
  withoutKeyArgument,
  type PreventionInput,
} from "../../../src/replay/contracts.ts";

const promises = Object.fromEntries(promiseNames.map((name) => [name, true]));
const prevention = { keyArgument: "/idempotencyKey", suppliedBy: "gateway", retentionSeconds: 86_400, promises };
const lookup = {
  tool: "find_booking",
  arguments: { reference: "{{key}}" },
  effect: "found",
  noEffect: "status == 'none'",
  sameAs: { "/hotel": "booking.hotel" },
  consistentAfterSeconds: 5,
  recordsKeptSeconds: 3600,
};
const documentation = "https://provider.example/docs/idempotency";
const read = (contract: unknown) => readContracts({ booking: { create_booking: contract } }, "mcpSafeReplay.contracts");
const good = (contract: unknown) => read(contract).contracts.get("booking")?.get("create_booking");

describe("contracts", () => {
  it("are read in the design's shape", () => {
    expect(read({ documentation, duplicatePrevention: prevention, lookup }).problems).toEqual([]);
    expect(good({ documentation, duplicatePrevention: prevention, lookup })).toBeDefined();
    expect(good({ documentation, nonMutating: { freshDataAcceptable: true } })).toBeDefined();
  });

  it.each<[string, unknown, string, string]>([
    ["no documentation", { duplicatePrevention: prevention }, ".documentation", "expected string"],
    ["documentation that is no address", { documentation: "see the wiki", lookup }, ".documentation", "http(s) address"],
    [
      "a key argument that is no pointer",
      { documentation, duplicatePrevention: { ...prevention, keyArgument: "key" } },
      ".duplicatePrevention.keyArgument",
      "JSON Pointer",
    ],
    [
      "a key argument that reaches for the prototype",
      { documentation, duplicatePrevention: { ...prevention, keyArgument: "/__proto__/x" } },
      ".duplicatePrevention.keyArgument",
      "no argument may have",
    ],
    [
      "an unknown promise",
      { documentation, duplicatePrevention: { ...prevention, promises: { ...promises, more: true } } },
      ".duplicatePrevention.promises",
      "does not know 'more'",
    ],
    [
      "no retention",
      { documentation, duplicatePrevention: { ...prevention, retentionSeconds: 0 } },
      ".duplicatePrevention.retentionSeconds",
      ">0",
    ],
    ["a broken count", { documentation, lookup: { ...lookup, count: "length(" } }, ".lookup.count", "JMESPath"],
    ["a broken expression", { documentation, lookup: { ...lookup, effect: "a[" } }, ".lookup.effect", "JMESPath"],
    ["no tie to the arguments", { documentation, lookup: { ...lookup, sameAs: {} } }, ".lookup.sameAs", "at least one argument"],
    ["nothing promised", { documentation }, "", "needs 'duplicatePrevention'"],
    [
      "both a read and a write",
      { documentation, duplicatePrevention: prevention, nonMutating: { freshDataAcceptable: true } },
      "",
      "only one can be right",
    ],
  ])("with %s never hold, and the mistake names its path", (_, contract, place, message) => {
    const { contracts, problems } = read(contract);
    expect(contracts.size).toBe(0);
    expect(problems[0]?.place).toBe(`mcpSafeReplay.contracts.booking.create_booking${place}`);
    expect(problems[0]?.message).toContain(message);
  });

  it("for a server that does not exist are told, and harm no other", () => {
    const contract = { documentation, lookup };
    const { contracts, problems } = readContracts(
      { bokking: { x: contract }, booking: { y: contract } },
      "c",
      new Set(["booking"]),
    );
    expect(problems).toEqual([{ place: "c.bokking", message: "is about a server that does not exist: it covers nothing" }]);
    expect(contracts.get("booking")?.has("y")).toBe(true);
  });

  it("keep their keys out of the caller's object and out of the intention", () => {
    const args = { hotel: "h", deep: { a: 1 } };
    expect(withKey(args, "/deep/key", "k")).toEqual({ hotel: "h", deep: { a: 1, key: "k" } });
    expect(args).toEqual({ hotel: "h", deep: { a: 1 } });
    expect(keyIn({ key: "k" }, "/key")).toBe("k");
    expect(keyIn({ key: 7 }, "/key")).toBeUndefined();
    expect(withoutKey({ a: 1, key: "k" }, "/key")).toEqual({ a: 1 });
  });

  it("make no difference between a key that is absent and an object that would hold only the key", () => {
    for (const args of [{ a: 1 }, { a: 1, meta: {} }, { a: 1, meta: { key: "mine" } }, { a: 1, meta: { key: null } }])
      expect(withoutKey(args, "/meta/key")).toStrictEqual({ a: 1 });
    expect(withoutKey({ meta: { key: "k", note: "n" } }, "/meta/key")).toStrictEqual({ meta: { note: "n" } });
    expect(withoutKey({ meta: "text" }, "/meta/key")).toStrictEqual({ meta: "text" });
  });

  it.each<[string, Record<string, unknown>, string]>([
    ["a text", { meta: "text" }, "/meta/key"],
    ["nothing", { meta: null }, "/meta/key"],
    ["a list", { meta: [] }, "/meta/key"],
    ["a number", { meta: 7 }, "/meta/key"],
  ])("have no place for a key where %s stands in its way", (_, args, place) => {
    expect(withKey(args, place, "k")).toBeUndefined();
  });

  it("hide the argument that the gateway supplies from the agent's view of the tool", () => {
    const tool = {
      name: "create_booking",
      inputSchema: {
        type: "object",
        properties: { hotel: { type: "string" }, idempotencyKey: { type: "string" } },
        required: ["hotel", "idempotencyKey"],
      },
    };
    expect(withoutKeyArgument(tool, good({ documentation, duplicatePrevention: prevention })).inputSchema).toEqual({
      type: "object",
      properties: { hotel: { type: "string" } },
      required: ["hotel"],
    });
    expect(tool.inputSchema.required).toHaveLength(2);
    expect(withoutKeyArgument(tool, good({ documentation, duplicatePrevention: { ...prevention, suppliedBy: "caller" } }))).toBe(
      tool,
    );
    expect(withoutKeyArgument(tool, undefined)).toBe(tool);
  });
});

describe("a duplicate-prevention contract", () => {
  const covered: PreventionInput = {
    contract: good({ documentation, duplicatePrevention: prevention }),
    connectionLoss: true,
    trust: { workspace: true, server: false },
    key: "k",
    keyArgument: "/idempotencyKey",
    sameSchema: true,
    firstSentAt: 1_000_000,
    now: 1_001_000,
    attempts: 1,
    maxAttempts: 4,
    toolIsThere: true,
    sameServer: true,
  };
  const end = covered.firstSentAt + 86_400_000 - marginMs(86_400);

  it("covers a further attempt within its window", () => {
    expect(preventionVerdict(covered)).toEqual({ allowed: true, reasons: [] });
    expect(preventionVerdict({ ...covered, now: end - 1 }).allowed).toBe(true);
  });

  it.each<[string, Partial<PreventionInput>, string]>([
    ["at the end of its window less the margin", { now: end }, "window-over"],
    ["when the clock went back", { now: 999_999 }, "clock-moved"],
    ["without a key", { key: undefined }, "no-key"],
    ["when the contract names another argument for the key now", { keyArgument: "/requestId" }, "no-key"],
    ["when the tool's schema changed", { sameSchema: false }, "schema-changed"],
    ["after a timeout", { connectionLoss: false }, "not-a-connection-loss"],
    ["in Restricted Mode", { trust: { workspace: false, server: true } }, "workspace-not-trusted"],
    ["when all attempts are used up", { attempts: 4 }, "attempts-used-up"],
    ["when the tool is gone", { toolIsThere: false }, "tool-gone"],
    ["when another server answers", { sameServer: false }, "server-changed"],
    ["when there is none", { contract: undefined }, "no-contract"],
  ])("does not cover it %s", (_, change, reason) => {
    expect(preventionVerdict({ ...covered, ...change })).toMatchObject({ allowed: false, reasons: [reason] });
  });

  it.each(promiseNames)("does not cover it without the promise %s", (name) => {
    for (const promisesGiven of [
      { ...promises, [name]: false },
      Object.fromEntries(Object.entries(promises).filter(([key]) => key !== name)),
    ]) {
      const contract = good({ documentation, duplicatePrevention: { ...prevention, promises: promisesGiven } });
      expect(missingPromises(contract!.duplicatePrevention!)).toEqual([name]);
      expect(preventionVerdict({ ...covered, contract }).reasons).toEqual(["promises-missing"]);
    }
  });

  it("never covers anything when the retention is not longer than the margin", () => {
    const contract = good({ documentation, duplicatePrevention: { ...prevention, retentionSeconds: 60 } });
    expect(preventionVerdict({ ...covered, contract, now: covered.firstSentAt }).reasons).toEqual(["window-over"]);
  });
});

describe("what an expression looks at", () => {
  it("is the structured content, else the first text as JSON, else the text", () => {
    expect(dataOf({ structuredContent: { a: 1 }, content: [{ type: "text", text: '{"b":2}' }] })).toEqual({ a: 1 });
    expect(dataOf({ content: [{ type: "image" }, { type: "text", text: '{"b":2}' }] })).toEqual({ b: 2 });
    expect(dataOf({ content: [{ type: "text", text: "plain" }] })).toEqual({ text: "plain" });
    expect(dataOf({})).toEqual({ text: "" });
  });
});
