import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { describe, expect, it } from "vitest";

const src = resolve(import.meta.dirname, "../../src");
const files = readdirSync(src, { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".ts") && !name.endsWith(".d.ts"))
  .map((name) => name.replaceAll("\\", "/"));

interface Import {
  readonly from: string;
  /** A file below src, or a package's name. */
  readonly to: string;
  readonly typeOnly: boolean;
}

const imports: Import[] = files.flatMap((from) => {
  const text = readFileSync(join(src, from), "utf8");
  const found = text.matchAll(
    /^\s*(import|export)\s+(type\s)?(?:[^;"']*?\sfrom\s+)?["']([^"']+)["']|\bimport\(\s*["']([^"']+)["']\s*\)/gm,
  );
  return [...found].map((match) => {
    const target = match[3] ?? match[4] ?? "";
    const to = target.startsWith(".") ? relative(src, resolve(src, dirname(from), target)).replaceAll("\\", "/") : target;
    return { from, to, typeOnly: match[2] !== undefined };
  });
});

/** Which folder may know which (DESIGN.md section 8). `.` is what stands at the top of src. */
const mayImport: Record<string, readonly string[]> = {
  clock: [],
  trust: ["clock"],
  operations: ["clock"],
  hosting: ["clock"],
  replay: ["clock", "operations", "hosting", "trust"],
  gateway: ["clock", "replay", "operations", "hosting", "trust"],
  vscode: ["clock", "gateway", "replay", "operations", "hosting", "trust"],
  headless: ["clock", "gateway", "replay", "operations", "hosting", "trust"],
  extension: ["vscode"],
};
const room = (file: string): string => (file.includes("/") ? (file.split("/")[0] ?? "") : file.replace(/\.ts$/, ""));

describe("the house", () => {
  it("has imports that run one way", () => {
    const wrong = imports.filter(
      ({ from, to }) => to.endsWith(".ts") && room(from) !== room(to) && !(mayImport[room(from)] ?? []).includes(room(to)),
    );
    expect(wrong).toEqual([]);
  });

  it("knows VS Code only under src/vscode and in src/extension.ts", () => {
    const wrong = imports.filter(({ from, to }) => to === "vscode" && room(from) !== "vscode" && room(from) !== "extension");
    expect(wrong).toEqual([]);
  });

  it("has no circles", () => {
    const graph = new Map<string, string[]>();
    // A type-only import is gone at run time, but a reader has to follow it all the same.
    for (const { from, to } of imports) if (to.endsWith(".ts")) graph.set(from, [...(graph.get(from) ?? []), to]);
    const circles: string[] = [];
    const done = new Set<string>();
    const visit = (file: string, path: readonly string[]): void => {
      if (path.includes(file)) {
        circles.push([...path.slice(path.indexOf(file)), file].join(" → "));
        return;
      }
      if (done.has(file)) return;
      for (const next of graph.get(file) ?? []) visit(next, [...path, file]);
      done.add(file);
    };
    for (const file of files) visit(file, []);
    expect(circles).toEqual([]);
  });

  it("says at the top of every file what it owns", () => {
    expect(files.filter((file) => !/^(\/\*\*?|\/\/)/.test(readFileSync(join(src, file), "utf8")))).toEqual([]);
  });
});
