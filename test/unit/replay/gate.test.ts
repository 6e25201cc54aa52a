import { describe, expect, it } from "vitest";
import {
  annotationsOf,
  declaresRead,
  isContradictory,
  isProvenRead,
  replayGate,
  type GateInput,
} from "../../../src/replay/gate.ts";

const schema = { type: "object", properties: { a: { type: "string" } } };
const idempotent = { name: "t", inputSchema: schema, annotations: { idempotentHint: true } };
const read = { name: "t", inputSchema: schema, annotations: { readOnlyHint: true } };

const allowed: GateInput = {
  connectionLoss: true,
  trust: { workspace: true, server: true },
  before: idempotent,
  now: idempotent,
  sameServer: true,
  attempts: 1,
  maxReplays: 3,
  replayReads: true,
  budgetLeft: true,
};

describe("the replay gate", () => {
  it("allows an idempotent tool of a trusted server in a trusted workspace", () => {
    expect(replayGate(allowed)).toEqual({ allowed: true, reasons: [] });
  });

  it.each<[string, Partial<GateInput>, string]>([
    ["a timeout or a cancellation", { connectionLoss: false }, "not-a-connection-loss"],
    ["an untrusted workspace", { trust: { workspace: false, server: true } }, "workspace-not-trusted"],
    ["an untrusted server", { trust: { workspace: true, server: false } }, "server-not-trusted"],
    ["a tool that is gone", { now: undefined }, "tool-gone"],
    ["another server in its place", { sameServer: false }, "server-changed"],
    ["a changed input schema", { now: { ...idempotent, inputSchema: { type: "object" } } }, "schema-changed"],
    ["a tool that was never listed before", { before: undefined }, "schema-changed"],
    ["no annotations", { now: { name: "t", inputSchema: schema } }, "not-declared-repeatable"],
    [
      "readOnlyHint with destructiveHint",
      { now: { ...read, annotations: { readOnlyHint: true, destructiveHint: true } } },
      "contradictory-annotations",
    ],
    [
      "readOnlyHint with idempotentHint false",
      { now: { ...read, annotations: { readOnlyHint: true, idempotentHint: false } } },
      "contradictory-annotations",
    ],
    [
      "an idempotent tool whose read-only hint is contradicted",
      { now: { ...read, annotations: { readOnlyHint: true, idempotentHint: true, destructiveHint: true } } },
      "contradictory-annotations",
    ],
    [
      "a hint that is only truthy",
      { now: { ...idempotent, annotations: { idempotentHint: "true" } } },
      "not-declared-repeatable",
    ],
    [
      "a hint inherited from a prototype",
      { now: { ...idempotent, annotations: Object.create({ idempotentHint: true }) } },
      "not-declared-repeatable",
    ],
    ["the fourth attempt being used up", { attempts: 4 }, "attempts-used-up"],
    ["a lower limit set by the person", { attempts: 2, maxReplays: 1 }, "attempts-used-up"],
    ["a limit beyond 1 + 3", { attempts: 4, maxReplays: 99 }, "attempts-used-up"],
    ["reads that may not be replayed", { before: read, now: read, replayReads: false }, "reads-not-replayed"],
    ["an empty budget", { budgetLeft: false }, "budget-used-up"],
  ])("refuses with %s", (_, change, reason) => {
    const verdict = replayGate({ ...allowed, ...change });
    expect(verdict.allowed).toBe(false);
    expect(verdict.reasons).toContain(reason);
  });

  it("says every reason, not only the first", () => {
    expect(
      replayGate({ ...allowed, connectionLoss: false, trust: { workspace: false, server: false }, attempts: 9 }).reasons,
    ).toEqual(["not-a-connection-loss", "workspace-not-trusted", "server-not-trusted", "attempts-used-up"]);
  });

  it("takes a reordered schema for the same schema", () => {
    const reordered = { properties: { a: { type: "string" } }, type: "object" };
    expect(replayGate({ ...allowed, now: { ...idempotent, inputSchema: reordered } }).allowed).toBe(true);
  });
});

describe("annotations", () => {
  it("count only as literal booleans of the tool itself", () => {
    expect(annotationsOf({ annotations: { readOnlyHint: 1, idempotentHint: true, destructiveHint: null } })).toEqual({
      idempotentHint: true,
    });
    expect(annotationsOf(undefined)).toEqual({});
  });

  it("contradict each other as the design says", () => {
    expect(isContradictory({ readOnlyHint: true, destructiveHint: true })).toBe(true);
    expect(isContradictory({ readOnlyHint: true, idempotentHint: false })).toBe(true);
    expect(isContradictory({ readOnlyHint: true, destructiveHint: false })).toBe(false);
    expect(isContradictory({ idempotentHint: false, destructiveHint: true })).toBe(false);
  });

  it("make a proven read only behind both trusts", () => {
    expect(declaresRead(read)).toBe(true);
    expect(isProvenRead(read, { workspace: true, server: true })).toBe(true);
    expect(isProvenRead(read, { workspace: false, server: true })).toBe(false);
    expect(isProvenRead(read, { workspace: true, server: false })).toBe(false);
    expect(isProvenRead(idempotent, { workspace: true, server: true })).toBe(false);
  });
});
