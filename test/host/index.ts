// Owns: what VS Code calls in its extension host (`extensionTestsPath`): runs Mocha over the bundled `*.test.ts` of this
// folder, writes lines to the console and the outcome to the file `MSR_HOST_RESULT`.
// Leaves to others: bundling and starting VS Code (test/support/host-runner.ts), the tests themselves.

import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import Mocha from "mocha";

/** Outcome of one run, as written to `MSR_HOST_RESULT`. */
export interface HostResult {
  readonly passed: string[];
  readonly failed: { readonly title: string; readonly message: string; readonly stack: string }[];
  readonly pending: string[];
  readonly durationMs: number;
}

/** The browser host shows only lines that begin so; in a desktop VS Code all lines are shown. */
function say(text: string): void {
  for (const line of text.split("\n")) console.log(`[test] ${line}`);
}

function write(result: HostResult): void {
  const file = process.env.MSR_HOST_RESULT;
  if (file === undefined || file === "") return;
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `${JSON.stringify(result, null, 2)}\n`);
}

/** Called by VS Code. Rejects when a test failed, or when there is none. */
export async function run(): Promise<void> {
  const started = Date.now();
  const result: HostResult & { durationMs: number } = { passed: [], failed: [], pending: [], durationMs: 0 };
  const grep = process.env.MSR_HOST_GREP;
  const mocha = new Mocha({
    ui: "bdd",
    timeout: 60_000,
    reporter: class {
      constructor(runner: Mocha.Runner) {
        runner.on("pass", (test) => {
          result.passed.push(test.fullTitle());
          say(`ok - ${test.fullTitle()} (${test.duration ?? 0} ms)`);
        });
        runner.on("pending", (test) => {
          result.pending.push(test.fullTitle());
          say(`skip - ${test.fullTitle()}`);
        });
        runner.on("fail", (test, error: Error) => {
          result.failed.push({ title: test.fullTitle(), message: error.message, stack: error.stack ?? "" });
          say(`FAIL - ${test.fullTitle()}\n${error.stack ?? error.message}`);
        });
      }
    } as unknown as Mocha.ReporterConstructor,
    ...(grep === undefined || grep === "" ? {} : { grep }),
  });
  for (const name of readdirSync(__dirname).toSorted()) if (name.endsWith(".test.js")) mocha.addFile(join(__dirname, name));
  await new Promise<void>((done) => {
    mocha.run(() => done());
  });
  result.durationMs = Date.now() - started;
  write(result);
  const ran = result.passed.length + result.failed.length;
  say(
    `${result.passed.length} passed, ${result.failed.length} failed, ${result.pending.length} skipped in ${result.durationMs} ms`,
  );
  if (result.failed.length > 0) throw new Error(`${result.failed.length} of ${ran} tests failed.`);
  if (ran === 0) throw new Error("No test ran.");
}
