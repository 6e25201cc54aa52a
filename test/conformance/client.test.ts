/**
 * Owns: the client scenarios of @modelcontextprotocol/conformance against our hosting layer (client.ts), one test for each: 0.1.16 for
 * 2025-11-25, and for 2026-07-28 exactly what that revision's frozen requirement set names.
 */
import { execFile, execFileSync } from "node:child_process";
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

/** What is not offered, and why. None of these is required of a client: they are extensions of the specification. */
const notOffered: Readonly<Record<string, string>> = {
  "auth/dpop": "tokens bound to a key (SEP-1932) are not offered: a server that gives only such tokens cannot be used",
  "auth/dpop-nonce": "tokens bound to a key (SEP-1932) are not offered: a server that gives only such tokens cannot be used",
  "auth/wif-jwt-bearer": "it needs the identity of a workload, which an editor does not have",
  "auth/enterprise-managed-authorization": "it needs an identity provider's token of the person, which an editor does not have",
  "auth/cross-app-access-complete-flow": "it needs an identity provider's token of the person, which an editor does not have",
};

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
  // A run in which nothing was checked proves nothing.
  const passed = ran.code === 0 && !(scenario.startsWith("auth/") && totals === "no totals");
  return { passed, report: passed ? totals : output.slice(-6_000) };
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
  const auth = authScenarios("conformance-2025");
  for (const scenario of ["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry", ...auth])
    declare(scenario, () => expectPass("conformance-2025", scenario, []));
});

describe("2026-07-28 (conformance 0.2.0-alpha.12)", () => {
  const { required, notScored } = requirements();
  for (const scenario of [...required, ...notScored])
    declare(scenario, () =>
      // A scenario of an extension belongs to no revision, and with one named nothing of it is run.
      expectPass("conformance-2026", scenario, isExtension(scenario) ? [] : ["--spec-version", "2026-07-28"]),
    );
});

function isExtension(scenario: string): boolean {
  return scenario.startsWith("auth/client-credentials-");
}

describe("authorisation in the older revisions (conformance 0.2.0-alpha.12)", () => {
  const { required, notScored } = requirements();
  const rest = authScenarios("conformance-2026").filter((scenario) => ![...required, ...notScored].includes(scenario));
  for (const scenario of rest) declare(scenario, () => expectPass("conformance-2026", scenario, []));
});

function declare(scenario: string, run: () => Promise<void>): void {
  const why = notOffered[scenario];
  if (why === undefined) it(scenario, run, limitMs);
  else it.skip(`${scenario}: ${why}`, () => undefined);
}

/** Every authorisation scenario of a package for clients, by its own list. */
function authScenarios(name: string): readonly string[] {
  const program = join(packages, name, "dist", "index.js");
  if (!existsSync(program)) return [];
  const listed = execFileSync(process.execPath, [program, "list", "--client"], { encoding: "utf8" });
  return [...new Set([...stripVTControlCharacters(listed).matchAll(/^ +- (auth\/\S+)/gm)].map(([, scenario]) => scenario ?? ""))];
}

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
