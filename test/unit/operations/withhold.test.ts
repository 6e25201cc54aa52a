import { describe, expect, it } from "vitest";
import { keepsArguments, type OperationEvent } from "../../../src/operations/model.ts";
import { redactedMark as mark, withhold, type KeptArguments } from "../../../src/operations/withhold.ts";
import { apply } from "../../../src/operations/model.ts";
import { answered, intention, makeEvent } from "../journal-contract.ts";

const prepared = (args: Record<string, unknown>): OperationEvent => makeEvent("a", "prepared", intention({ arguments: args }));
const argumentsKept = (args: Record<string, unknown>, kept: KeptArguments): unknown =>
  (withhold(prepared(args), kept).data as { arguments: unknown }).arguments;
const redacted = (paths: readonly string[] = []): KeptArguments => ({ mode: "redacted", paths });

describe("what the journal keeps of a call's contents", () => {
  it("is everything by default", () => {
    const event = prepared({ password: "p" });
    expect(withhold(event, undefined)).toBe(event);
    expect(withhold(event, { mode: "full" })).toBe(event);
  });

  it.each([
    ["password"],
    ["userPassword"],
    ["user_pass"],
    ["PASSWORD"],
    ["apiKey"],
    ["api-key"],
    ["APIKey"],
    ["x-api-key"],
    ["accessToken"],
    ["token"],
    ["Authorization"],
    ["client_secret"],
    ["privateKey"],
    ["cardNumber"],
    ["card_no"],
    ["cvv"],
    ["pin"],
    ["otp"],
    ["Set-Cookie"],
    ["iban"],
    ["sessionId"],
  ])("is redacted at a name like %s, wherever it stands", (name) => {
    expect(argumentsKept({ a: { b: [{ [name]: "secret" }] } }, redacted())).toEqual({ a: { b: [{ [name]: mark }] } });
  });

  it.each([
    ["shipping"],
    ["maxTokens"],
    ["keyboard"],
    ["passenger"],
    ["compass"],
    ["spinner"],
    ["author"],
    ["secretary"],
    ["opinion"],
  ])("is not redacted at a harmless name like %s", (name) => {
    expect(argumentsKept({ [name]: "plain" }, redacted())).toEqual({ [name]: "plain" });
  });

  it("is redacted at the configured paths, whole, with * for any name or index", () => {
    const args = { guests: [{ name: "Ada", born: 1815 }], "a/b": { "c~d": 1 }, deep: { x: { y: 1 }, z: 2 } };
    expect(argumentsKept(args, redacted(["/guests/*/name", "/a~1b/c~0d", "/deep/x"]))).toEqual({
      guests: [{ name: mark, born: 1815 }],
      "a/b": { "c~d": mark },
      deep: { x: mark, z: 2 },
    });
    expect(argumentsKept(args, redacted(["/guests", "/deep/*"]))).toMatchObject({ guests: mark, deep: { x: mark, z: mark } });
    expect(argumentsKept({ name: 1, a: { name: 1 } }, redacted(["/name"]))).toEqual({ name: mark, a: { name: 1 } });
  });

  it("says whether a repeat or a lookup is still possible: only with all the arguments", () => {
    const possible = (args: Record<string, unknown>, kept: KeptArguments): boolean =>
      keepsArguments(apply(undefined, withhold(prepared(args), kept)));
    expect(possible({ guest: "Ada" }, redacted())).toBe(true);
    expect(possible({ password: "p" }, redacted())).toBe(false);
    expect(possible({ guest: "Ada" }, { mode: "digest" })).toBe(false);
    expect(possible({}, { mode: "digest" })).toBe(true);
  });

  it("leaves the digest of the full arguments alone: duplicates are found in every mode", () => {
    for (const mode of ["redacted", "digest"] as const) {
      expect(withhold(prepared({ password: "p" }), { mode }).data).toMatchObject({ digest: "digest" });
    }
  });

  it("holds for answers too: secrets in data are redacted, with digest nothing is kept but that there was one", () => {
    const result = { content: [{ type: "text", text: "done" }], structuredContent: { token: "t", id: 7 } };
    for (const type of ["answered", "late-answer", "recovered"] as const) {
      const event = makeEvent("a", type, answered({ result }));
      expect(withhold(event, redacted()).data).toMatchObject({
        result: { content: result.content, structuredContent: { token: mark, id: 7 } },
        withheld: "some",
      });
      const bare = withhold(event, { mode: "digest" }).data as { result?: unknown };
      expect(bare).toMatchObject({ isError: false, withheld: "all" });
      expect(bare.result).toBeUndefined();
    }
    const failed = makeEvent("a", "answered", answered({ result: undefined, error: { code: 1, message: "no" } }));
    expect(withhold(failed, { mode: "digest" }).data).toMatchObject({ error: undefined, withheld: "all" });
  });

  it("keeps names that JavaScript has a meaning for as plain names", () => {
    const args = JSON.parse('{"__proto__": {"password": "p"}, "a": 1}') as Record<string, unknown>;
    expect(JSON.stringify(argumentsKept(args, redacted()))).toBe(`{"__proto__":{"password":"${mark}"},"a":1}`);
  });
});
