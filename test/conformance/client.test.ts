/**
 * Owns: the client scenarios of @modelcontextprotocol/conformance against our hosting layer (client.ts), one test for each: 0.1.16 for
 * 2025-11-25, and for 2026-07-28 exactly what that revision's frozen requirement set names.
 */
import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify, stripVTControlCharacters } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { repositoryRoot } from "../support/paths.ts";
import { temporaryFolder } from "../support/temp.ts";

/** The packages, under the names that package.json gives them. */
const packages = join(repositoryRoot, "node_modules");
const command = `"${process.execPath}" "${fileURLToPath(new URL("client.ts", import.meta.url))}"`;

const cannotPass = "needs OAuth, which the hosting layer does not do yet: a server that asks for it is reported as such";

const folder = temporaryFolder();
afterAll(() => folder.remove());

const summary: string[] = [];
afterAll(() => console.log(summary.join("\n")));

/** Runs one scenario. @returns its verdict, and every check that is not a success */
async function run(name: string, scenario: string, more: readonly string[]): Promise<{ passed: boolean; report: string }> {
  const program = join(packages, name, "dist", "index.js");
  const args = [
    program,
    "client",
    "--command",
    command,
    "--scenario",
    scenario,
    "--timeout",
    "90000",
    "-o",
    folder.path,
    ...more,
  ];
  const ran = await promisify(execFile)(process.execPath, args, { cwd: folder.path, maxBuffer: 2 ** 26 }).then(
    ({ stdout, stderr }) => ({ code: 0, output: stdout + stderr }),
    (error: unknown) => {
      const { code, stdout, stderr } = error as { code: unknown; stdout: string; stderr: string };
      return { code, output: stdout + stderr };
    },
  );
  const output = stripVTControlCharacters(ran.output);
  const totals = /^Passed: .*$/m.exec(output)?.[0] ?? "no totals";
  summary.push(`${name.padEnd(18)} ${scenario.padEnd(40)} ${ran.code === 0 ? "pass" : "FAIL"}  ${totals}`);
  return { passed: ran.code === 0, report: ran.code === 0 ? totals : output.slice(-6_000) };
}

async function expectPass(name: string, scenario: string, more: readonly string[]): Promise<void> {
  const { passed, report } = await run(name, scenario, more);
  expect(passed, report).toBe(true);
}

/** Only an end to a test that hangs. */
const limitMs = 120_000;

beforeAll(() => {
  for (const name of ["conformance-2025", "conformance-2026"]) {
    if (!existsSync(join(packages, name))) throw new Error(`${name} is not installed in ${packages}: npm ci`);
  }
});

describe("2025-11-25 (conformance 0.1.16)", () => {
  it.each(["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"])(
    "%s",
    (scenario) => expectPass("conformance-2025", scenario, []),
    limitMs,
  );
});

describe("2026-07-28 (conformance 0.2.0-alpha.12)", () => {
  const { required, notScored } = requirements();
  for (const scenario of [...required, ...notScored]) {
    if (scenario.startsWith("auth/")) it.skip(`${scenario}: ${cannotPass}`, () => undefined);
    else it(scenario, () => expectPass("conformance-2026", scenario, ["--spec-version", "2026-07-28"]), limitMs);
  }
});

/** The client's part of `requirements/2026-07-28.yaml`: what the revision requires, and what is run without being scored. */
function requirements(): { readonly required: readonly string[]; readonly notScored: readonly string[] } {
  const path = join(packages, "conformance-2026", "requirements", "2026-07-28.yaml");
  if (!existsSync(path)) return { required: ["(the package is not installed)"], notScored: [] };
  const text = readFileSync(path, "utf8");
  const client = /^client:\n((?: {2}- .*\n)+)/m.exec(text)?.[1] ?? "";
  const required = [...client.matchAll(/^ {2}- (\S+)$/gm)].map(([, scenario]) => scenario ?? "");
  const notScored = [...text.matchAll(/^ {2}- scenario: (\S+)\n {4}leg: client$/gm)].map(([, scenario]) => scenario ?? "");
  return { required, notScored };
}
