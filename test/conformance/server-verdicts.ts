/**
 * Owns: running the conformance package's server scenarios against a URL, and setting two runs side by side, check by check.
 * Leaves to others: what is run where, and which differences have a reason (the tests).
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { repositoryRoot } from "../support/paths.ts";
import { temporaryFolder } from "../support/temp.ts";

export type Package = "conformance-2025" | "conformance-2026";

/** Verdicts by scenario, then by check. A check that ran several times has all its verdicts, in order. */
export type Verdicts = ReadonlyMap<string, ReadonlyMap<string, string>>;

/** What is no verdict: notes for the reader. */
const notes: ReadonlySet<string> = new Set(["INFO", "SKIPPED"]);

/** Runs server scenarios; a run without any verdict is an error. */
export async function runScenarios(name: Package, url: string, selection: readonly string[]): Promise<Verdicts> {
  const folder = temporaryFolder();
  try {
    const program = join(repositoryRoot, "node_modules", name, "dist", "index.js");
    const child = spawn(process.execPath, [program, "server", "--url", url, ...selection, "-o", folder.path], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text: string) => (output += text));
    await once(child, "close");
    const verdicts = new Map<string, Map<string, string>>();
    for (const result of readdirSync(folder.path)) {
      const scenario = /^(?:server-)?(.*?)-\d{4}-\d{2}-\d{2}T[\d-]+Z$/.exec(result)?.[1];
      const file = join(folder.path, result, "checks.json");
      if (scenario === undefined || !existsSync(file)) continue;
      const checks = JSON.parse(readFileSync(file, "utf8")) as { id: string; status: string }[];
      const found = new Map<string, string>();
      for (const { id, status } of checks) {
        if (notes.has(status)) continue;
        found.set(id, found.has(id) ? `${found.get(id) ?? ""} ${status}` : status);
      }
      verdicts.set(scenario, found);
    }
    if (verdicts.size === 0) throw new Error(`${name} gave no verdict: ${output.slice(0, 2000)}`);
    return verdicts;
  } finally {
    folder.remove();
  }
}

export interface Difference {
  readonly scenario: string;
  readonly check: string;
  readonly alone: string;
  readonly through: string;
}

/** Every check with another verdict through the gateway than at the server itself. */
export function differences(alone: Verdicts, through: Verdicts): Difference[] {
  const found: Difference[] = [];
  for (const scenario of new Set([...alone.keys(), ...through.keys()])) {
    const one = alone.get(scenario);
    const two = through.get(scenario);
    for (const check of new Set([...(one?.keys() ?? []), ...(two?.keys() ?? [])])) {
      const verdicts = { alone: one?.get(check) ?? "none", through: two?.get(check) ?? "none" };
      if (verdicts.alone !== verdicts.through) found.push({ scenario, check, ...verdicts });
    }
  }
  return found;
}

function counts(verdicts: ReadonlyMap<string, string> | undefined): string {
  const all = [...(verdicts?.values() ?? [])].flatMap((verdict) => verdict.split(" "));
  const of = (status: string) => all.filter((one) => one === status).length;
  const parts = [`${of("SUCCESS")} passed`, ...(of("FAILURE") > 0 ? [`${of("FAILURE")} failed`] : [])];
  return [...parts, ...(of("WARNING") > 0 ? [`${of("WARNING")} warned`] : [])].join(", ");
}

/** Both tables side by side, one scenario a line. */
export function sideBySide(title: string, alone: Verdicts, through: Verdicts): string {
  const lines = [...new Set([...alone.keys(), ...through.keys()])].map((scenario) => {
    const [one, two] = [counts(alone.get(scenario)), counts(through.get(scenario))];
    return `  ${scenario.padEnd(46)} ${one.padEnd(24)} ${two.padEnd(24)} ${one === two ? "" : "differs"}`.trimEnd();
  });
  return [`${title}\n  ${"scenario".padEnd(46)} ${"server alone".padEnd(24)} through the gateway`, ...lines].join("\n");
}
