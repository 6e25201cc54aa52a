import { describe, expect, it } from "vitest";
import { readPrefill } from "../../../src/vscode/read-prefill.ts";
import { repeatText } from "../../../src/vscode/repeat-text.ts";
import { event, lost, minute, now, operationOf, prepared, sent } from "./operations.ts";

describe("what a reading tool is asked about a call", () => {
  const schema = {
    type: "object",
    properties: { hotel: {}, guest: {}, requestKey: {}, limit: { default: 10 }, page: { type: "integer" } },
    required: ["page"],
  };
  const intention = { arguments: { hotel: "Grand", nights: 2 } };

  it("begins with the call's own arguments, its key, and what the tool requires", () => {
    expect(readPrefill(schema, intention)).toEqual({ hotel: "Grand", limit: 10, page: 0 });
    expect(readPrefill(schema, { ...intention, key: "k", keyArgument: "/meta/requestKey" })).toEqual({
      hotel: "Grand",
      requestKey: "k",
      limit: 10,
      page: 0,
    });
    expect(readPrefill(undefined, intention)).toEqual({});
  });

  it("is what the contract's lookup would ask, when this is its tool", () => {
    expect(readPrefill(schema, intention, { reference: "k" })).toEqual({ reference: "k" });
  });
});

describe("what a person reads before a repeat", () => {
  const settledAt = (at: number, fields: Parameters<typeof prepared>[0] = {}) =>
    operationOf([
      prepared(fields),
      sent(1),
      lost(1),
      event("settled", "person", { as: "no-effect", evidence: "asked the hotel" }, at),
    ]);
  const facts = { now, keyMayBeForgotten: false, serverChanged: false };

  it("names the evidence, whose it is and its age, and shows arguments and key", () => {
    const text = repeatText(settledAt(now - 2 * minute, { key: "0197-key", keyArgument: "/key" }), facts);
    expect(text).toContain("Evidence, 2 minutes ago, by a person: asked the hotel");
    expect(text).toContain("with the same key");
    expect(text).toContain("Key: 0197-key");
    expect(text).toContain('"guest": "Ada"');
    expect(text).not.toContain("look again");
  });

  it("warns of old evidence, a clock that went back, a key that may be forgotten and a server that changed", () => {
    expect(repeatText(settledAt(now - 2 * 60 * minute), facts)).toContain("2 hours ago");
    expect(repeatText(settledAt(now - 2 * 60 * minute), facts)).toContain("The evidence is old: look again");
    expect(repeatText(settledAt(now + minute), facts)).toContain("The clock went back");
    expect(repeatText(settledAt(now), { ...facts, keyMayBeForgotten: true })).toContain("may have forgotten the key");
    expect(repeatText(settledAt(now), { ...facts, serverChanged: true })).toContain("defined differently");
  });
});
