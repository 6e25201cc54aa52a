/**
 * Owns: proof that the fault matrix would notice: each rule of the heart is broken in a copy of the source, and the named test must fail
 * there (and pass in an unbroken copy).
 * Run: node test/faults/mutations.ts      (not part of `npm test`; a minute or two)
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { environmentWithPinnedNode, repositoryRoot } from "../support/paths.ts";

interface Mutation {
  readonly rule: string;
  /** File under src, the text that is there once, and what stands there in the copy. */
  readonly edits: readonly (readonly [file: string, from: string, to: string])[];
  /** Row of the matrix and transport; the agent's path. */
  readonly row: number;
  readonly transport: string;
}

const mutations: readonly Mutation[] = [
  {
    rule: "what cannot be journaled is not sent",
    edits: [
      [
        "replay/attempt.ts",
        'if (!course.provenRead) return { kind: "journal-failed", text: textOf(error) };',
        "void textOf(error);",
      ],
    ],
    row: 1,
    transport: "http-json",
  },
  {
    rule: "a tool that declares nothing is not replayed",
    edits: [
      [
        "replay/gate.ts",
        "else if (now !== undefined && !declaresRepeatable(now) && nonMutating === undefined)",
        "else if (false)",
      ],
    ],
    row: 6,
    transport: "http-json",
  },
  {
    rule: "the gate is asked of the tool as it is after the reconnect",
    edits: [
      [
        "replay/further-attempt.ts",
        "verdict = ask(desk, budget, course, loss.connectionLoss, tool, sameServer);",
        "verdict = ask(desk, budget, course, loss.connectionLoss, course.tool, sameServer);",
      ],
    ],
    row: 39,
    transport: "http-json",
  },
  {
    rule: "another server is not the same server",
    edits: [["replay/gate.ts", 'if (!input.sameServer) reasons.push("server-changed");', ""]],
    row: 39,
    transport: "sse-2024",
  },
  {
    rule: "trust is read at the moment of use",
    edits: [
      ["replay/gate.ts", 'if (!input.trust.workspace) reasons.push("workspace-not-trusted");', ""],
      ["replay/gate.ts", 'if (!input.trust.server) reasons.push("server-not-trusted");', ""],
    ],
    row: 40,
    transport: "http-sse",
  },
  {
    rule: "at most 1 + 3 attempts",
    edits: [
      [
        "replay/gate.ts",
        'if (input.attempts >= Math.min(1 + input.maxReplays, hardAttemptLimit)) reasons.push("attempts-used-up");',
        "",
      ],
    ],
    row: 41,
    transport: "modern-json",
  },
  {
    rule: "a 5xx proves nothing",
    edits: [
      [
        "replay/classify.ts",
        "[400, 401, 403, 404, 405, 406, 413, 415, 422, 429, 431]",
        "[400, 401, 403, 404, 405, 406, 413, 415, 422, 429, 431, 502]",
      ],
    ],
    row: 21,
    transport: "http-json",
  },
  {
    rule: "a redirect is no lost connection",
    edits: [
      [
        "replay/classify.ts",
        'redirected: { reason: "redirected", connectionLoss: false },',
        'redirected: { reason: "redirected", connectionLoss: true },',
      ],
    ],
    row: 22,
    transport: "modern-sse",
  },
  {
    rule: "a consequential call is not sent again in a new session",
    edits: [
      ["replay/course.ts", '(verdict.reason === "session-gone" && course.provenRead)', 'verdict.reason === "session-gone"'],
    ],
    row: 17,
    transport: "http-json",
  },
  {
    rule: "an identical call is held while one is unresolved",
    edits: [
      [
        "replay/duplicates.ts",
        'if (first !== undefined && mode.unresolved !== "off") {',
        'if (first !== undefined && mode.unresolved === "off") {',
      ],
    ],
    row: 36,
    transport: "stdio",
  },
  {
    rule: "no cursor GET in the 2026-07-28 era",
    edits: [
      ["replay/recovery.ts", 'attempt.era === "2025-11-25" && ', ""],
      [
        "hosting/http-transport.ts",
        "if (this.#protocolVersion === undefined || isModern(this.#protocolVersion)) return;",
        "if (this.#protocolVersion === undefined) return;",
      ],
      [
        "hosting/http-transport.ts",
        'if (this.#over || isModern(from.protocolVersion)) exchange.lose("stream-ended");',
        'if (this.#over) exchange.lose("stream-ended");',
      ],
      [
        "hosting/live-connection.ts",
        'this.facts.era === "2025-11-25" ? this.#wire.resume?.(rpcId, cursor, observer, signal) : undefined',
        "this.#wire.resume?.(rpcId, cursor, observer, signal)",
      ],
    ],
    row: 15,
    transport: "modern-sse",
  },
  {
    rule: "`retry` is honoured",
    edits: [
      [
        "hosting/http-transport.ts",
        "const wait = cursor.retryMs ?? resumeWaitsMs[fruitless] ?? 0;",
        "const wait = resumeWaitsMs[fruitless] ?? 0;",
      ],
    ],
    row: 14,
    transport: "http-sse-ids",
  },
  {
    rule: "an answer's stream is resumed from the latest id",
    edits: [["hosting/http-transport.ts", 'if (turn !== "refused") cursor = turn;', ""]],
    row: 12,
    transport: "http-sse-ids",
  },
  {
    rule: "a key is repeated only within the provider's window",
    edits: [["replay/contracts.ts", 'reasons.push("window-over");', "reasons.concat();"]],
    row: 42,
    transport: "http-json",
  },
  {
    rule: "a settled operation is not rewritten by a late answer",
    edits: [
      [
        "operations/model.ts",
        '    completed: "completed",\n    "effect-confirmed": "effect-confirmed",\n    "no-effect": "no-effect",',
        '    completed: "completed",\n    "effect-confirmed": "effect-confirmed",\n    "no-effect": "completed",',
      ],
    ],
    row: 33,
    transport: "http-sse",
  },
  {
    rule: "what was cancelled before anything left did not run",
    edits: [
      [
        "replay/course.ts",
        'if (course.doubt !== undefined) return this.#hold(course, course.doubt, ["cancelled"]);',
        'if (course.attempts > 0) return this.#hold(course, course.doubt ?? "cancelled", ["cancelled"]);',
      ],
    ],
    row: 32,
    transport: "http-json",
  },
  {
    rule: "an operation that somebody waits for is not looked up behind their back",
    edits: [["replay/reconciliation.ts", " || underWay(operation.id)", ""]],
    row: 44,
    transport: "stdio",
  },
];

const titleOf = ({ row, transport }: Mutation): string => `row ${row}: .* ${transport}, agent$`;

/** A copy of what the tests need; `node_modules` is shared. */
function copy(): string {
  const folder = mkdtempSync(join(tmpdir(), "msr-mutation-"));
  for (const name of ["src", "package.json", "tsconfig.json"])
    cpSync(join(repositoryRoot, name), join(folder, name), { recursive: true });
  mkdirSync(join(folder, "test"));
  for (const name of ["faults", "servers", "support", "package.json"]) {
    cpSync(join(repositoryRoot, "test", name), join(folder, "test", name), { recursive: true });
  }
  symlinkSync(join(repositoryRoot, "node_modules"), join(folder, "node_modules"), "junction");
  return folder;
}

interface Outcome {
  readonly passed: readonly string[];
  readonly failed: readonly string[];
}

async function runTests(folder: string, pattern: string): Promise<Outcome> {
  const report = join(folder, "report.json");
  const args = ["run", "--dir", "test/faults", "matrix", "-t", pattern, "--reporter=json", `--outputFile.json=${report}`];
  const child = spawn("vitest", args, {
    cwd: folder,
    stdio: "ignore",
    env: environmentWithPinnedNode(),
    shell: process.platform === "win32",
  });
  await once(child, "exit");
  const { testResults } = JSON.parse(readFileSync(report, "utf8")) as {
    testResults: { assertionResults: { fullName: string; status: string }[] }[];
  };
  const all = testResults.flatMap(({ assertionResults }) => assertionResults);
  const withStatus = (wanted: string): string[] => all.filter(({ status }) => status === wanted).map(({ fullName }) => fullName);
  return { passed: withStatus("passed"), failed: withStatus("failed") };
}

/** @returns what is wrong with the mutation itself, or undefined */
function apply(folder: string, { edits }: Mutation): string | undefined {
  for (const [file, from, to] of edits) {
    const path = join(folder, "src", file);
    const text = readFileSync(path, "utf8");
    if (text.split(from).length !== 2) return `${file} does not have this text once: ${from}`;
    writeFileSync(
      path,
      text.replace(from, () => to),
    );
  }
  return undefined;
}

let wrong = 0;
const verdict = (word: string, { rule }: Mutation, more: string): void => {
  if (word !== "noticed") wrong += 1;
  console.log(`${word.padEnd(12)}${rule.padEnd(78)}${more}`);
};

const sound = copy();
const expected = await runTests(sound, mutations.map(titleOf).join("|"));
rmSync(sound, { recursive: true, force: true });
if (expected.failed.length > 0) {
  console.log(`These fail in the unbroken copy:\n${expected.failed.join("\n")}`);
  process.exit(1);
}
console.log(`In the unbroken copy ${expected.passed.length} tests pass. Each rule broken:\n`);
for (const mutation of mutations) {
  const folder = copy();
  try {
    const stale = apply(folder, mutation);
    if (stale !== undefined) {
      verdict("STALE", mutation, stale);
      continue;
    }
    const { failed } = await runTests(folder, titleOf(mutation));
    verdict(failed.length > 0 ? "noticed" : "NOT NOTICED", mutation, failed[0] ?? `row ${mutation.row}, ${mutation.transport}`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
console.log(`\n${mutations.length - wrong} of ${mutations.length} broken rules were noticed.`);
process.exitCode = wrong === 0 ? 0 : 1;
