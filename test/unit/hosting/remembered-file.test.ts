import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { ServerFacts } from "../../../src/hosting/connection.ts";
import { rememberedFile, rememberedLimits } from "../../../src/hosting/remembered-file.ts";
import { temporaryFolder } from "../../support/temp.ts";

let folder: { path: string; remove(): void };
beforeEach(() => {
  folder = temporaryFolder();
});
afterEach(() => folder.remove());
const path = () => join(folder.path, "tools.json");
const facts: ServerFacts = {
  era: "2025-11-25",
  protocolVersion: "2025-11-25",
  transport: "http",
  serverInfo: { name: "s", version: "1", vendorField: 1 },
  capabilities: { tools: {} },
  instructions: "Be kind.",
};
const tools = [{ name: "book", inputSchema: { type: "object" }, annotations: { readOnlyHint: false }, vendorField: [1] }];

describe("what servers said of themselves", () => {
  it("outlives the program, in a file that is private to the user, without the session", () => {
    rememberedFile(path()).set("a", { facts: { ...facts, sessionId: "secret" }, tools });
    rememberedFile(path()).set("b", { facts, tools: [] });
    expect(rememberedFile(path()).get("a")).toEqual({ facts, tools });
    expect(rememberedFile(path()).get("b")).toEqual({ facts, tools: [] });
    expect(rememberedFile(path()).get("c")).toBeUndefined();
    expect(statSync(path()).mode & 0o777).toBe(0o600);
    expect(readFileSync(path(), "utf8")).not.toContain("secret");
  });

  it("is forgotten rather than believed when the file is no good; what is good in it stays", () => {
    for (const text of ["", "{", "[]", '{"a":7}', '{"a":{"facts":{},"tools":[]}}', '{"a":{"tools":[{}]}}']) {
      writeFileSync(path(), text);
      expect(rememberedFile(path()).get("a")).toBeUndefined();
    }
    writeFileSync(path(), JSON.stringify({ a: { facts, tools: [{ name: 7 }] }, b: { facts, tools } }));
    expect(rememberedFile(path()).get("a")).toBeUndefined();
    expect(rememberedFile(path()).get("b")).toEqual({ facts, tools });
  });

  it("is bounded: in servers, and in what is kept of one", () => {
    const file = rememberedFile(path());
    file.set("large", { facts, tools });
    file.set("large", { facts, tools: [{ name: "t", description: "x".repeat(rememberedLimits.characters) }] });
    expect(file.get("large")).toBeUndefined();
    for (let index = 0; index <= rememberedLimits.servers; index++) file.set(`s${index}`, { facts, tools: [] });
    expect(rememberedFile(path()).get("s0")).toBeUndefined();
    expect(rememberedFile(path()).get(`s${rememberedLimits.servers}`)).toBeDefined();
  });

  it("costs nothing when the file cannot be written", () => {
    const nowhere = rememberedFile(join(folder.path, "no", "such", "folder", "tools.json"));
    nowhere.set("a", { facts, tools });
    expect(nowhere.get("a")).toEqual({ facts, tools });
  });
});
