import { describe, expect, it } from "vitest";
import { fingerprintOf, type ServerDefinition } from "../../../src/hosting/definitions.ts";
import { changesSince, consentTo, readRecords } from "../../../src/vscode/consent.ts";

const program: ServerDefinition = { type: "stdio", command: "node", args: ["a.js"], env: { TOKEN: "s3cret" }, cwd: "/w" };
const remote: ServerDefinition = { type: "http", url: "https://a.example/mcp", headers: { Authorization: "Bearer s3cret" } };

describe("a record of consent", () => {
  it.each<[string, ServerDefinition, ServerDefinition]>([
    ["command", program, { ...program, command: "deno" }],
    ["arguments", program, { ...program, args: ["b.js"] }],
    ["environment variable TOKEN", program, { ...program, env: { TOKEN: "other" } }],
    ["environment variable NODE_OPTIONS", program, { ...program, env: { TOKEN: "s3cret", NODE_OPTIONS: "--require x" } }],
    ["working folder", program, { ...program, cwd: "/elsewhere" }],
    ["URL", remote, { ...remote, url: "https://b.example/mcp" }],
    ["header Authorization", remote, { ...remote, headers: { Authorization: "Bearer other" } }],
    ["authorisation", remote, { ...remote, oauth: { clientId: "mine" } }],
    ["kind of server", remote, { ...remote, type: "sse" }],
  ])("says that the %s changed, and the fingerprint is another", (what, before, after) => {
    expect(changesSince(consentTo(before, "f", 1), after)).toEqual([what]);
    expect(fingerprintOf(before)).not.toBe(fingerprintOf(after));
  });

  it("keeps no value, only salted digests", () => {
    const text = JSON.stringify([consentTo(program, "f", 1), consentTo(remote, "f", 1)]);
    for (const value of ["s3cret", "a.js", "node", "/w", "a.example"]) expect(text).not.toContain(`"${value}`);
    expect(consentTo(program, "f", 1).parts["command"]).not.toBe(consentTo(program, "f", 1).parts["command"]);
  });

  it("that is not one is as if it were not there", () => {
    for (const stored of [undefined, null, "x", {}, [1, null, {}, { fingerprint: 1 }, { fingerprint: "f", at: "now" }]])
      expect(readRecords(stored)).toEqual([]);
    expect(readRecords([consentTo(program, "f", 1), "x"])).toHaveLength(1);
  });
});
