import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";

const root = join(import.meta.dirname, "..", "..", "..");
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const schema = JSON.parse(readFileSync(join(root, "media", "schemas", "workspace-servers.schema.json"), "utf8"));

interface Setting {
  readonly scope: string;
  readonly order: number;
  readonly default: unknown;
  readonly markdownDescription: string;
}
const categories = manifest.contributes.configuration as {
  title: string;
  order: number;
  properties: Record<string, Setting>;
}[];
const settings = categories.flatMap(({ properties }) => Object.entries(properties));

describe("the settings in the manifest", () => {
  it.each(settings)("%s says in plain words what it does, its default and its risk, and is the person's own", (name, setting) => {
    expect(setting.scope).toBe("application");
    expect(setting.markdownDescription).toContain("Default: ");
    expect(setting.markdownDescription).toContain("Risk: ");
    expect(setting).toHaveProperty("default");
    expect(manifest.capabilities.untrustedWorkspaces.restrictedConfigurations).toContain(name);
  });

  it("stand in categories with titles, in an order", () => {
    expect(new Set(categories.map(({ order }) => order)).size).toBe(categories.length);
    for (const { title, properties } of categories) {
      expect(title).not.toBe("");
      expect(Object.values(properties).map(({ order }) => order)).toEqual(Object.keys(properties).map((_, index) => index + 1));
    }
  });

  it.each(["replay", "trust", "unresolved", "MCP"])("are found by searching for %j", (word) => {
    const found = settings.filter(([name, { markdownDescription }]) =>
      `${name} ${markdownDescription}`.toLowerCase().includes(word.toLowerCase()),
    );
    expect(found.length).toBeGreaterThan(0);
  });
});

describe("the schema of a workspace's file", () => {
  it("knows the same servers and inputs as the settings, and nothing that would grant anything", () => {
    const { servers, inputs } = schema.properties;
    const own = manifest.contributes.configuration[0].properties as Record<string, Record<string, unknown>>;
    expect(servers.patternProperties).toEqual(JSON.parse(JSON.stringify(own["mcpSafeReplay.servers"]!["patternProperties"])));
    expect(inputs.items).toEqual(own["mcpSafeReplay.inputs"]!["items"]);
    expect(Object.keys(schema.properties)).toEqual(["$schema", "servers", "inputs"]);
    expect(schema.additionalProperties).toBe(false);
  });

  it("is contributed for that file", () => {
    expect(manifest.contributes.jsonValidation).toContainEqual({
      fileMatch: "**/.vscode/mcp-safe-replay.json",
      url: "./media/schemas/workspace-servers.schema.json",
    });
  });
});
