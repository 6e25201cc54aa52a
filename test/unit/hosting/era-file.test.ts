import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { eraFile } from "../../../src/hosting/era-file.ts";
import { temporaryFolder } from "../../support/temp.ts";

let folder: { path: string; remove(): void };
beforeEach(() => {
  folder = temporaryFolder();
});
afterEach(() => folder.remove());
const path = () => join(folder.path, "eras.json");

describe("the remembered eras", () => {
  it("outlive the program, in a file that is private to the user", () => {
    eraFile(path()).set("a", "2026-07-28");
    eraFile(path()).set("b", "2025-11-25");
    expect(eraFile(path()).get("a")).toBe("2026-07-28");
    expect(eraFile(path()).get("b")).toBe("2025-11-25");
    expect(eraFile(path()).get("c")).toBeUndefined();
    expect(statSync(path()).mode & 0o777).toBe(0o600);
  });

  it("are forgotten rather than believed when the file is no good", () => {
    for (const text of ["", "{", "[]", '{"a":"1999-01-01"}', '{"a":7}']) {
      writeFileSync(path(), text);
      expect(eraFile(path()).get("a")).toBeUndefined();
    }
    eraFile(path()).set("a", "2025-11-25");
    expect(JSON.parse(readFileSync(path(), "utf8"))).toEqual({ a: "2025-11-25" });
  });

  it("cost nothing when the file cannot be written", () => {
    const nowhere = eraFile(join(folder.path, "no", "such", "folder", "eras.json"));
    nowhere.set("a", "2025-11-25");
    expect(nowhere.get("a")).toBe("2025-11-25");
  });
});
