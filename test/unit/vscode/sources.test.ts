import { describe, expect, it } from "vitest";
import { readInputs } from "../../../src/vscode/sources/input-definitions.ts";
import { readServersFile, serverPlaces } from "../../../src/vscode/sources/servers-file.ts";

describe("a workspace's file", () => {
  it("is JSON with comments and trailing commas", () => {
    const text = '{ // ours\n "servers": { "a": { "command": "a" }, },\n "inputs": [], }';
    expect(readServersFile(text, "f")).toEqual({ servers: { a: { command: "a" } }, inputs: [], problems: [] });
  });

  it.each([
    ['{\n "servers": {\n', "f, line 3", "is not JSON"],
    ["[]", "f", "must be an object"],
    ['{"servers": {}, "serverTrust": {"a": true}}', "f", "does not know 'serverTrust'"],
    ['{"contracts": {}}', "f", "does not know 'contracts'"],
  ])("with a mistake is told with its place (%s)", (text, place, message) => {
    const { problems } = readServersFile(text, "f");
    expect(problems[0]?.place).toBe(place);
    expect(problems[0]?.message).toContain(message);
  });

  it("shows where each server stands, also while it is being typed", () => {
    const text = '{"servers": {"a": {"command": "x"}, "b": {"comm';
    const places = serverPlaces(text);
    expect(places.map(({ name }) => name)).toEqual(["a", "b"]);
    expect(places.map(({ offset, length }) => text.slice(offset, offset + length))).toEqual(['"a"', '"b"']);
    for (const odd of ["", "[]", "nonsense", '{"servers": 1}']) expect(serverPlaces(odd)).toEqual([]);
  });
});

describe("inputs", () => {
  it("are read in mcp.json's shape", () => {
    const { inputs, problems } = readInputs(
      [
        { type: "promptString", id: "token", description: "Token", password: true },
        { type: "promptString", id: "region", default: "eu" },
        { type: "pickString", id: "env", options: ["test", { label: "Live", value: "live" }] },
      ],
      "inputs",
    );
    expect(problems).toEqual([]);
    expect([...inputs.values()]).toEqual([
      { type: "promptString", id: "token", description: "Token", password: true },
      { type: "promptString", id: "region", description: "region", default: "eu", password: false },
      {
        type: "pickString",
        id: "env",
        description: "env",
        options: [
          { label: "test", value: "test" },
          { label: "Live", value: "live" },
        ],
      },
    ]);
  });

  it.each<[unknown, string]>([
    [{}, "must be a list"],
    [[1], "must be an object"],
    [[{ id: "a b", type: "promptString" }], "'id' without blanks"],
    [[{ id: "a", type: "command" }], "'promptString' or 'pickString'"],
    [[{ id: "a", type: "pickString", options: [] }], "needs 'options'"],
    [
      [
        { id: "a", type: "promptString" },
        { id: "a", type: "promptString" },
      ],
      "is taken already",
    ],
  ])("with a mistake are told (%j)", (value, message) => {
    expect(readInputs(value, "inputs").problems[0]?.message).toContain(message);
  });
});
