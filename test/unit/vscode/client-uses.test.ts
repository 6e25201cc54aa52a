import { describe, expect, it } from "vitest";
import { usesToKeep } from "../../../src/vscode/client-uses.ts";

describe("a client's last use", () => {
  it("is kept when it is the first, and again when it is a good while later", () => {
    expect(usesToKeep({}, { a: 5 }, 60_000)).toEqual({ a: 5 });
    expect(usesToKeep({ a: 5 }, { a: 60_005 }, 60_000)).toBeUndefined();
    expect(usesToKeep({ a: 5 }, { a: 60_006 }, 60_000)).toEqual({ a: 60_006 });
    expect(usesToKeep({ a: 5 }, { a: 6 }, 0)).toEqual({ a: 6 });
    expect(usesToKeep({ a: 5 }, { a: 5 }, 0)).toBeUndefined();
  });

  it("never goes back to what this window saw when another saw it later, and forgets clients that are gone", () => {
    expect(usesToKeep({ a: 100, gone: 7 }, { a: 50, b: 1 }, 60_000)).toEqual({ a: 100, b: 1 });
  });
});
