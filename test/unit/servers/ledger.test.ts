import { appendFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Ledger, LedgerReader } from "../../servers/ledger.ts";

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "msr-ledger-"));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

describe("the ledger", () => {
  it("counts effects by tool, key and attempt, for any reader", () => {
    const ledger = new Ledger(directory, { server: "s" });
    const reader = new LedgerReader(directory);
    expect(reader.countEffects()).toBe(0);
    ledger.recordEffect({ tool: "put", key: "a", arguments: { key: "a", value: "1" } });
    ledger.recordEffect({ tool: "put", key: "a", arguments: { key: "a", value: "2" } });
    ledger.recordEffect({ tool: "charge", arguments: { b: 1, a: 2 } });
    expect(reader.countEffects({ tool: "put" })).toBe(2);
    expect(reader.countDistinctEffects({ tool: "put" })).toBe(1);
    expect(reader.effects({ tool: "put", attempt: 2 })).toMatchObject([{ arguments: { value: "2" } }]);
    expect(reader.effects({ tool: "charge" })[0]?.key).toBe('{"a":2,"b":1}');
    expect(reader.executions("put", "a")).toBe(2);
  });

  it("counts requests with equal arguments as attempts of one call, whatever the order of their fields", () => {
    const ledger = new Ledger(directory, { server: "s" });
    const call = (callArguments: Record<string, unknown>) =>
      ledger.recordRequest({ method: "tools/call", rpcId: 1, params: { name: "charge", arguments: callArguments } });
    expect(call({ a: 1, b: 2 }).attempt).toBe(1);
    expect(call({ b: 2, a: 1 }).attempt).toBe(2);
    expect(call({ a: 1 }).attempt).toBe(1);
    ledger.recordRequest({ method: "tools/list" });
    expect(ledger.countCalls("charge")).toBe(3);
    expect(ledger.requests()).toHaveLength(4);
  });

  it("goes on where another process left it", () => {
    new Ledger(directory, { server: "s" }).recordEffect({ tool: "t", key: "k", arguments: {} });
    expect(new Ledger(directory, { server: "s" }).recordEffect({ tool: "t", key: "k", arguments: {} }).attempt).toBe(2);
  });

  it("does not read a line before it is complete", () => {
    const ledger = new Ledger(directory, { server: "s" });
    ledger.recordEffect({ tool: "t", arguments: {} });
    const file = join(directory, "effects.jsonl");
    appendFileSync(file, '{"tool":"t","key":"ü');
    expect(ledger.countEffects()).toBe(1);
    appendFileSync(file, '","attempt":1,"arguments":{}}\n');
    expect(ledger.countEffects({ key: "ü" })).toBe(1);
  });

  it("wakes whoever waits for an effect, and says what was missing when the limit is over", async () => {
    const ledger = new Ledger(directory, { server: "s" });
    const waiting = new LedgerReader(directory).untilEffects(1, { tool: "t" });
    ledger.recordEffect({ tool: "t", arguments: {} });
    await waiting;
    await expect(new LedgerReader(directory).untilCalls(1, undefined, 1)).rejects.toThrow("1 effects, 0 calls");
  });
});
