/**
 * Owns: running test tiers one after the other and adding their totals up: out/results/<tier>.json and out/results/total.txt.
 * Leaves to others: the tiers (npm scripts of their own). A tier that ends without a result counts as one failure.
 *
 * Usage: node test/support/run-tests.ts all            (every tier of `npm test`)
 *        node test/support/run-tests.ts vitest <tier>  (one tier: the tests in test/<tier>)
 */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { repositoryRoot } from "./paths.ts";
import { readTotals, resultsFolder, writeTotals, type Totals } from "./totals.ts";

/** In the order in which they fail fastest. `check` is types, lint and format: it counts as one test. */
const tiers = ["check", "unit", "faults", "crash", "conformance", "host", "e2e"] as const;

/** A test that hangs has failed; these are no measure of speed. Milliseconds. */
const limits = { test: 120_000, hook: 180_000 };

/** Runs a program with the terminal's own output and says how it ended. */
function run(command: string, args: readonly string[]): Promise<number> {
  return new Promise((done) => {
    const child = spawn(command, args, { cwd: repositoryRoot, stdio: "inherit", shell: process.platform === "win32" });
    child.once("error", () => done(1));
    child.once("exit", (code) => done(code ?? 1));
  });
}

async function vitest(tier: string): Promise<number> {
  mkdirSync(resultsFolder, { recursive: true });
  const raw = join(resultsFolder, `${tier}.vitest.json`);
  rmSync(raw, { force: true });
  const code = await run("vitest", [
    "run",
    "--dir",
    `test/${tier}`,
    `--testTimeout=${limits.test}`,
    `--hookTimeout=${limits.hook}`,
    // Two windows at once would take the focus from each other.
    ...(tier === "e2e" ? ["--no-file-parallelism"] : []),
    "--reporter=default",
    "--reporter=json",
    `--outputFile.json=${raw}`,
  ]);
  if (existsSync(raw)) {
    const report = JSON.parse(readFileSync(raw, "utf8")) as {
      numPassedTests: number;
      numFailedTests: number;
      numFailedTestSuites: number;
    };
    // A file that fails before its first test is a failure too.
    const failed = report.numFailedTests === 0 && code !== 0 ? Math.max(1, report.numFailedTestSuites) : report.numFailedTests;
    writeTotals(tier, { passed: report.numPassedTests, failed });
  }
  return code;
}

async function all(): Promise<number> {
  rmSync(resultsFolder, { recursive: true, force: true });
  mkdirSync(resultsFolder, { recursive: true });
  let passed = 0;
  let failed = 0;
  const lines: string[] = [];
  for (const tier of tiers) {
    console.log(`\n=== ${tier === "check" ? "check" : `test:${tier}`} ===\n`);
    const started = Date.now();
    const code = await run("npm", ["run", "--silent", tier === "check" ? "check" : `test:${tier}`]);
    const totals = totalsOf(tier, code);
    passed += totals.passed;
    failed += totals.failed;
    lines.push(
      `${tier.padEnd(8)} ${totals.passed} passed, ${totals.failed} failed, ${Math.round((Date.now() - started) / 1000)} s`,
    );
  }
  const total = `${passed} passed, ${failed} failed`;
  writeFileSync(join(resultsFolder, "total.txt"), `${total}\n`);
  console.log(`\n${lines.join("\n")}\n${total}`);
  return failed === 0 ? 0 : 1;
}

function totalsOf(tier: string, code: number): Totals {
  if (tier === "check") return code === 0 ? { passed: 1, failed: 0 } : { passed: 0, failed: 1 };
  const totals = readTotals(tier);
  if (totals === undefined) return { passed: 0, failed: 1 };
  if (code !== 0 && totals.failed === 0) return { ...totals, failed: 1 };
  // A tier in which nothing ran has proved nothing.
  return totals.passed + totals.failed === 0 ? { passed: 0, failed: 1 } : totals;
}

const [mode, tier] = process.argv.slice(2);
process.exitCode = mode === "vitest" && tier !== undefined ? await vitest(tier) : await all();
