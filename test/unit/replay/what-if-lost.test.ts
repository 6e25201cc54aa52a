import { describe, expect, it } from "vitest";
import { promiseNames, readContracts, type Contract } from "../../../src/replay/contracts.ts";
import { whatIfLost } from "../../../src/replay/what-if-lost.ts";

const idempotent = { name: "t", annotations: { idempotentHint: true } };
const read = { name: "t", annotations: { readOnlyHint: true } };
const trusted = { workspace: true, server: true };
const settings = { reads: true, maxReplays: 3 };
const contract = (fields: object): Contract =>
  readContracts({ s: { t: { documentation: "https://provider.example/", ...fields } } }, "contracts")
    .contracts.get("s")!
    .get("t")!;
const promises = Object.fromEntries(promiseNames.map((name) => [name, true]));
const prevention = { keyArgument: "/key", suppliedBy: "gateway", retentionSeconds: 86_400, promises };
const lookup = {
  tool: "find",
  arguments: {},
  effect: "a",
  noEffect: "b",
  sameAs: { "/x": "x" },
  consistentAfterSeconds: 1,
  recordsKeptSeconds: 60,
};

describe("what would happen if the answer were lost now", () => {
  it("follows the gate", () => {
    expect(whatIfLost(idempotent, trusted, settings, undefined)).toBe("replayed");
    expect(whatIfLost(read, trusted, settings, undefined)).toBe("read-again");
    expect(whatIfLost(read, trusted, { ...settings, reads: false }, undefined)).toBe("kept-unresolved");
    expect(whatIfLost(idempotent, trusted, { ...settings, maxReplays: 0 }, undefined)).toBe("kept-unresolved");
    expect(whatIfLost(idempotent, { workspace: true, server: false }, settings, undefined)).toBe("kept-unresolved-untrusted");
    expect(whatIfLost({ name: "t" }, trusted, settings, undefined)).toBe("kept-unresolved");
    const contradictory = { name: "t", annotations: { readOnlyHint: true, destructiveHint: true } };
    expect(whatIfLost(contradictory, trusted, settings, undefined)).toBe("kept-unresolved-contradictory");
  });

  it("follows the contracts", () => {
    const plain = { name: "t" };
    expect(whatIfLost(plain, { workspace: true, server: false }, settings, contract({ duplicatePrevention: prevention }))).toBe(
      "replayed-with-key",
    );
    expect(whatIfLost(plain, { workspace: false, server: true }, settings, contract({ duplicatePrevention: prevention }))).toBe(
      "kept-unresolved",
    );
    expect(whatIfLost(plain, trusted, settings, contract({ duplicatePrevention: { ...prevention, promises: {} }, lookup }))).toBe(
      "looked-up",
    );
    expect(whatIfLost(plain, trusted, settings, contract({ nonMutating: { freshDataAcceptable: true } }))).toBe("read-again");
    const destructive = { name: "t", annotations: { destructiveHint: true } };
    expect(whatIfLost(destructive, trusted, settings, contract({ nonMutating: { freshDataAcceptable: true } }))).toBe(
      "kept-unresolved-contradictory",
    );
  });
});
