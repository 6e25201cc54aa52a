import { readFileSync } from "node:fs";
import { join } from "node:path";
import { AjvJsonSchemaValidator } from "@modelcontextprotocol/client/validators/ajv";
import { describe, expect, it } from "vitest";
import { promiseNames, readContracts } from "../../../src/replay/contracts.ts";
import { repositoryRoot } from "../../support/paths.ts";

/** The JSON schema in package.json (completion, hover help, squiggles) against the reader that decides. */

type Schema = Record<string, unknown>;

const { contributes } = JSON.parse(readFileSync(join(repositoryRoot, "package.json"), "utf8")) as {
  contributes: { configuration: { properties: Record<string, Schema> }[] };
};
const found = contributes.configuration.flatMap(({ properties }) => properties["mcpSafeReplay.contracts"] ?? []);
const schema = found[0] as Schema;
// VS Code's own keywords are none of JSON Schema's.
const validate = new AjvJsonSchemaValidator().getValidator(
  JSON.parse(
    JSON.stringify(schema, (key, value: unknown) =>
      ["defaultSnippets", "markdownDescription", "markdownEnumDescriptions", "patternErrorMessage", "scope", "order"].includes(
        key,
      )
        ? undefined
        : value,
    ),
  ),
);
const ofTool = ((schema["additionalProperties"] as Schema)["additionalProperties"] as Schema)["properties"] as Record<
  string,
  Schema
>;

const promises = Object.fromEntries(promiseNames.map((name) => [name, true]));
const documentation = "https://provider.example/docs";
const duplicatePrevention = { keyArgument: "/key", suppliedBy: "gateway", retentionSeconds: 60, promises };
const lookup = {
  tool: "find",
  arguments: { key: "{{key}}" },
  effect: "found",
  noEffect: "status == 'none'",
  sameAs: { "/name": "record.name" },
  consistentAfterSeconds: 5,
  recordsKeptSeconds: 60,
};

describe("the schema of contracts", () => {
  it.each<[string, Schema, boolean]>([
    ["duplicate prevention", { documentation, duplicatePrevention }, true],
    ["a lookup", { documentation, lookup }, true],
    ["a lookup that counts", { documentation, lookup: { ...lookup, count: "length(records)" } }, true],
    ["both", { documentation, duplicatePrevention, lookup }, true],
    ["a read", { documentation, nonMutating: { freshDataAcceptable: true } }, true],
    [
      "promises that are not all declared",
      { documentation, duplicatePrevention: { ...duplicatePrevention, promises: {} } },
      true,
    ],
    ["no documentation", { duplicatePrevention }, false],
    ["documentation that is no address", { documentation: "wiki", lookup }, false],
    ["nothing promised", { documentation }, false],
    ["an unknown field", { documentation, lookup, note: "x" }, false],
    ["an unknown promise", { documentation, duplicatePrevention: { ...duplicatePrevention, promises: { more: true } } }, false],
    [
      "a key argument that is no pointer",
      { documentation, duplicatePrevention: { ...duplicatePrevention, keyArgument: "key" } },
      false,
    ],
    ["another supplier", { documentation, duplicatePrevention: { ...duplicatePrevention, suppliedBy: "server" } }, false],
    ["no retention", { documentation, duplicatePrevention: { ...duplicatePrevention, retentionSeconds: 0 } }, false],
    ["an empty expression", { documentation, lookup: { ...lookup, effect: "" } }, false],
    ["nothing to compare", { documentation, lookup: { ...lookup, sameAs: {} } }, false],
    ["a comparison that is no pointer", { documentation, lookup: { ...lookup, sameAs: { name: "record.name" } } }, false],
    ["a negative delay", { documentation, lookup: { ...lookup, consistentAfterSeconds: -1 } }, false],
    ["a missing part of a lookup", { documentation, lookup: { ...lookup, recordsKeptSeconds: undefined } }, false],
  ])("and the reader agree on %s", (_, contract, good) => {
    const written = JSON.parse(JSON.stringify({ server: { tool: contract } })) as unknown;
    expect(readContracts(written, "c").problems.length === 0).toBe(good);
    expect(validate(written).valid).toBe(good);
  });

  it("explains every field, and what each promise is good for", () => {
    const undescribed: string[] = [];
    const visit = (fields: Record<string, Schema>, path: string): void => {
      for (const [name, field] of Object.entries(fields)) {
        const text = (field["markdownDescription"] ?? field["description"] ?? "") as string;
        if (text.length < 20) undescribed.push(`${path}${name}`);
        if (field["properties"] !== undefined) visit(field["properties"] as Record<string, Schema>, `${path}${name}.`);
      }
    };
    visit(ofTool, "");
    expect(undescribed).toEqual([]);
    const suppliedBy = (ofTool["duplicatePrevention"]?.["properties"] as Record<string, Schema>)["suppliedBy"];
    expect(suppliedBy?.["markdownEnumDescriptions"]).toHaveLength(2);
    const promiseFields = (ofTool["duplicatePrevention"]?.["properties"] as Record<string, Schema>)["promises"]?.["properties"];
    expect(Object.keys(promiseFields as Schema)).toEqual([...promiseNames]);
  });

  it("has fields that the reader knows, and no others", () => {
    const fields = (of: Schema | undefined): string[] => Object.keys(of?.["properties"] ?? {}).sort();
    expect(fields({ properties: ofTool })).toEqual(["documentation", "duplicatePrevention", "lookup", "nonMutating"]);
    for (const part of ["duplicatePrevention", "lookup", "nonMutating"] as const) {
      const wrong = readContracts(
        { s: { t: { documentation, [part]: Object.fromEntries(fields(ofTool[part]).map((name) => [name, Symbol()])) } } },
        "c",
      );
      expect(wrong.problems.filter((problem) => problem.message.includes("does not know"))).toEqual([]);
    }
  });

  it("completes with contracts that the reader takes, once their documentation is named", () => {
    const filled = (body: unknown): unknown =>
      JSON.parse(
        JSON.stringify(body)
          .replace(/"\^\$\{\d+:([^}]*)\}"/g, "$1")
          .replace(/\$\{\d+:([^}]*)\}/g, "$1")
          .replaceAll('"https://"', JSON.stringify(documentation)),
      );
    const snippets = (of: unknown): { label: string; body: unknown }[] =>
      (of as { defaultSnippets: { label: string; body: unknown }[] }).defaultSnippets;
    const tools = schema["additionalProperties"] as Schema;
    const written = [
      ...snippets(schema).map(({ body }) => filled(body)),
      ...snippets(tools).map(({ body }) => ({ server: filled(body) })),
      ...snippets(tools["additionalProperties"]).map(({ body }) => ({ server: { tool: filled(body) } })),
      ...(["duplicatePrevention", "lookup", "nonMutating"] as const).flatMap((part) =>
        snippets(ofTool[part]).map(({ body }) => ({ server: { tool: { documentation, [part]: filled(body) } } })),
      ),
    ];
    expect(written.length).toBeGreaterThan(14);
    for (const contracts of written) {
      expect(readContracts(contracts, "c").problems).toEqual([]);
      expect(validate(contracts).valid).toBe(true);
    }
  });

  it("declares no promise by itself: each is switched on by hand", () => {
    expect(JSON.stringify(schema)).not.toMatch(/"(scopedTo|boundTo|atomicUnder|retainedFor|reaches)\w*":"?\^?(\$\{\d+:)?true/);
  });
});
