/**
 * Owns: proof that the tests of contracts and reconciliation would notice: each rule is broken in a copy of the source, and a test of the
 * named files must fail there (and all pass in an unbroken copy).
 * Run: node test/unit/mutations.ts [part of a rule]      (not part of `npm test`; a few minutes)
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { environmentWithPinnedNode, repositoryRoot } from "../support/paths.ts";

interface Mutation {
  readonly rule: string;
  /** File under src, the text that is there once, and what stands there in the copy. */
  readonly edits: readonly (readonly [file: string, from: string, to: string])[];
  /** Test files under test/unit. */
  readonly tests: readonly string[];
}

const contracts = ["replay/contracts.test"];
const calls = ["replay/contract-calls"];
const lookups = ["replay/lookup.test"];
const guards = ["replay/call-manager.test", "replay/contract-calls"];

const mutations: readonly Mutation[] = [
  {
    rule: "a contract names its documentation",
    edits: [["replay/contracts.ts", "(text) => URL.canParse(text) && /^https?:$/.test(new URL(text).protocol),", "() => true,"]],
    tests: contracts,
  },
  {
    rule: "a contract with fewer than five promises never replays",
    edits: [["replay/contracts.ts", 'if (missingPromises(prevention).length > 0) reasons.push("promises-missing");', ""]],
    tests: calls,
  },
  {
    rule: "retention is counted from the first send",
    edits: [["replay/attempt.ts", "course.firstSentAt ??= desk.clock.now();", "course.firstSentAt = desk.clock.now();"]],
    tests: calls,
  },
  {
    rule: "a repeat's retention is counted from the operation's first send, not from the repeat",
    edits: [["replay/call-manager.ts", "firstSentAt: operation?.createdAt,", "firstSentAt: undefined,"]],
    tests: calls,
  },
  {
    rule: "retention has a margin",
    edits: [["replay/contracts.ts", "return Math.max(60_000, retentionSeconds * 10);", "return 0;"]],
    tests: [...contracts, "replay/providers"],
  },
  {
    rule: "a clock that went back covers nothing",
    edits: [["replay/contracts.ts", 'if (input.now < input.firstSentAt) reasons.push("clock-moved");', ""]],
    tests: contracts,
  },
  {
    rule: "a timeout is not covered",
    edits: [
      [
        "replay/contracts.ts",
        'if (!input.connectionLoss) reasons.push("not-a-connection-loss");\n  if (!input.trust.workspace)',
        "if (!input.trust.workspace)",
      ],
    ],
    tests: contracts,
  },
  {
    rule: "the key belongs to the argument that the contract names now",
    edits: [["replay/contracts.ts", " || input.keyArgument !== prevention.keyArgument", ""]],
    tests: contracts,
  },
  {
    rule: "a contract is read as it stands at the replay",
    edits: [
      [
        "replay/further-attempt.ts",
        "const contract = desk.contract(course.server.name, course.tool.name);",
        "const contract = course.contract;",
      ],
    ],
    tests: calls,
  },
  {
    rule: "the gateway's key is hidden from the agent",
    edits: [["replay/contracts.ts", 'if (isRecord(at["properties"])) Reflect.deleteProperty(at["properties"], last);', ""]],
    tests: contracts,
  },
  {
    rule: "a caller's key stays in the agent's view",
    edits: [
      [
        "replay/contracts.ts",
        'if (prevention?.suppliedBy !== "gateway" || tool.inputSchema',
        "if (prevention === undefined || tool.inputSchema",
      ],
    ],
    tests: contracts,
  },
  {
    rule: "the gateway's key replaces whatever the agent puts there",
    edits: [
      [
        "replay/call-manager.ts",
        'suppliedBy === "gateway" ? uuidv7() : keyIn(args, keyArgument)',
        'keyIn(args, keyArgument) ?? (suppliedBy === "gateway" ? uuidv7() : undefined)',
      ],
    ],
    tests: calls,
  },
  {
    rule: "a key makes no other intention",
    edits: [["replay/call-manager.ts", "const bare = withoutKey(args, keyArgument);", "const bare = args;"]],
    tests: calls,
  },
  {
    rule: "a repeat carries the operation's key",
    edits: [
      [
        "replay/call-manager.ts",
        "const params = { name: intention.tool, arguments: sentArguments(intention) };",
        "const params = { name: intention.tool, arguments: intention.arguments };",
      ],
    ],
    tests: calls,
  },
  {
    rule: "409 is asked again",
    edits: [
      [
        "replay/course.ts",
        "if (loss.httpStatus === 409) return this.#askAgain",
        "if (loss.httpStatus === 9) return this.#askAgain",
      ],
    ],
    tests: ["replay/providers"],
  },
  {
    rule: "409 asks trust and window anew",
    edits: [
      [
        "replay/course.ts",
        'if (!further.allowed) return this.#lookUpOrHold(course, doubtOf(course), further.reasons);\n    const replayed = desk.event(course.id, "replayed", "gateway", {\n      attempt: course.attempts + 1,\n      verdict: [further.by, lost.kind],',
        'if (!further.allowed) return { connection, cause: "replay", via: "replayed", lead: [] };\n    const replayed = desk.event(course.id, "replayed", "gateway", {\n      attempt: course.attempts + 1,\n      verdict: [further.by, lost.kind],',
      ],
    ],
    tests: calls,
  },
  {
    rule: "422 stops and raises the alarm",
    edits: [["replay/course.ts", "if (loss.httpStatus === 422) return this.#alarm(course, number);", ""]],
    tests: [...calls, "replay/providers"],
  },
  {
    rule: "422 in the body of a result stops and raises the alarm",
    edits: [["replay/course.ts", "if (isSaid(prevention.otherPayload, data)) return this.#alarm(course, number);", ""]],
    tests: [...calls, "replay/providers"],
  },
  {
    rule: "an error to a replay says nothing of the lost attempt",
    edits: [["replay/course.ts", "if (isError && course.doubt !== undefined)", "if (false as boolean)"]],
    tests: calls,
  },
  {
    rule: "a record must be the operation's own",
    edits: [["replay/lookup.ts", "if (differing.length > 0)", "if (differing.length > 99)"]],
    tests: lookups,
  },
  {
    rule: "a vague no is no no",
    edits: [
      [
        "replay/lookup.ts",
        "const none = evaluate(lookup.noEffect, data) === true;",
        "const none = isThere(evaluate(lookup.noEffect, data));",
      ],
    ],
    tests: lookups,
  },
  {
    rule: "yes and no together decide nothing",
    edits: [["replay/lookup.ts", "if (effect && none)", "if (false as boolean)"]],
    tests: lookups,
  },
  {
    rule: "none, too early, decides nothing",
    edits: [["replay/lookup.ts", "if (age < lookup.consistentAfterSeconds * 1000) {", "if (age < 0) {"]],
    tests: lookups,
  },
  {
    rule: "none, when records may be gone, decides nothing",
    edits: [["replay/lookup.ts", "if (times.now - times.firstSentAt >=", "if (times.now - times.now >="]],
    tests: lookups,
  },
  {
    rule: "records are believed to be kept for less than is promised, for clock error",
    edits: [["replay/lookup.ts", " - marginMs(lookup.recordsKeptSeconds)", ""]],
    tests: lookups,
  },
  {
    rule: "an isError lookup decides nothing",
    edits: [
      [
        "replay/lookup.ts",
        'if (result["isError"] === true) return { found: "undecided", evidence: "the lookup tool reported an error" };',
        "",
      ],
    ],
    tests: lookups,
  },
  {
    rule: "the lookup tool is a proven read",
    edits: [
      [
        "replay/reconciliation.ts",
        "if (!isProvenRead(tool, desk.trustNow(server), desk.contract(server.name, lookup.tool))) {",
        "if (false as boolean) {",
      ],
    ],
    tests: calls,
  },
  {
    rule: "a lookup that hangs is given up",
    edits: [["replay/reconciliation.ts", "return await desk.within(lookupTimeoutMs, call.send());", "return await call.send();"]],
    tests: ["replay/providers"],
  },
  {
    rule: "none proves nothing while the call may be under way",
    edits: [
      ["replay/reconciliation.ts", 'return finding.found === "no-effect" && mayStillRun(operation)', "return (false as boolean)"],
    ],
    tests: calls,
  },
  {
    rule: "another definition may be another account",
    edits: [
      [
        "replay/reconciliation.ts",
        'if (intention.fingerprint !== server.fingerprint) return undecided("its server is defined differently now");',
        "",
      ],
    ],
    tests: calls,
  },
  {
    rule: "a record that may be an identical call's is no proof",
    edits: [["replay/reconciliation.ts", "if (other !== undefined)", 'if (other === "")']],
    tests: calls,
  },
  {
    rule: "a lookup settles only the attempts that there were when it asked",
    edits: [["replay/reconciliation.ts", "      attempts: operation.attempts.length,\n    });\n    if", "    });\n    if"]],
    tests: calls,
  },
  {
    rule: "a lookup runs by itself after a loss",
    edits: [
      [
        "replay/course.ts",
        "if (course.provenRead || course.contract?.lookup === undefined) return",
        "if (true as boolean) return",
      ],
    ],
    tests: calls,
  },
  {
    rule: "a lookup runs again when the server comes back",
    edits: [
      ["replay/reconciliation.ts", "if (this.hasLookup(operation)) await this.#lookUpIfUnresolved(operation.id, server);", ""],
    ],
    tests: calls,
  },
  {
    rule: "an early lookup is made again later",
    edits: [
      [
        "replay/course.ts",
        "this.#reconciliation.lookUpLater(course.id, course.server, finding.againMs);\n        return this.#hold",
        "return this.#hold",
      ],
    ],
    tests: calls,
  },
  {
    rule: "a slow lookup does not keep the agent waiting",
    edits: [["replay/course.ts", 'resolve("too-slow");', ""]],
    tests: calls,
  },
  {
    rule: "a lost answer is recovered on demand",
    edits: [
      [
        "replay/call-manager.ts",
        "return await this.#reconciliation.recoverNow(operation, await server.connect());",
        "return false;",
      ],
    ],
    tests: calls,
  },
  {
    rule: "recovery is offered where a cursor or task is left",
    edits: [
      [
        "replay/call-manager.ts",
        'recover: operation.state === "unresolved" && recoverable(operation).length > 0,',
        "recover: false,",
      ],
    ],
    tests: calls,
  },
  {
    rule: "repeat only after no-effect",
    edits: [["replay/call-manager.ts", 'if (operation.state !== "no-effect") {', 'if (operation.state === "completed") {']],
    tests: guards,
  },
  {
    rule: "a settlement does not overlook a later attempt",
    edits: [["replay/settle.ts", "...(attempts === undefined ? {} : { attempts })", "..." + "{}"]],
    tests: calls,
  },
  {
    rule: "guard, unresolved: held",
    edits: [["replay/duplicates.ts", 'if (first !== undefined && mode.unresolved !== "off") {', "if (false as boolean) {"]],
    tests: guards,
  },
  {
    rule: "guard, unresolved: warn sends and marks",
    edits: [
      [
        "replay/duplicates.ts",
        'if (mode.unresolved === "warn") return { send: true, duplicateOf: first.id, letThroughBy: undefined };',
        "",
      ],
    ],
    tests: guards,
  },
  {
    rule: "guard, undelivered: off sends",
    edits: [
      ["replay/duplicates.ts", 'if (undelivered !== undefined && mode.undelivered === "hold")', "if (undelivered !== undefined)"],
    ],
    tests: guards,
  },
  {
    rule: "guard, undelivered: warn marks",
    edits: [["replay/duplicates.ts", 'mode.undelivered === "warn" ? undelivered?.id : undefined', "undefined"]],
    tests: guards,
  },
  {
    rule: "guard, in flight: off does not mark",
    edits: [
      ["replay/call-manager.ts", 'inFlight === "off" ? undefined : this.#underWay.get(digest)', "this.#underWay.get(digest)"],
    ],
    tests: guards,
  },
  {
    rule: "guard, in flight: hold holds",
    edits: [
      [
        "replay/call-manager.ts",
        'if (twin !== undefined && inFlight === "hold" && !declaresRead(tool))',
        "if (false as boolean)",
      ],
    ],
    tests: guards,
  },
  {
    rule: "a recorded answer is for the same client",
    edits: [["replay/duplicates.ts", "if (before.client !== now.client) return false;", ""]],
    tests: guards,
  },
  {
    rule: "a recorded answer is for the same conversation",
    edits: [["replay/duplicates.ts", "before.conversationId === now.conversationId;", "true;"]],
    tests: guards,
  },
  {
    rule: "a recorded answer has a window",
    edits: [["replay/duplicates.ts", "!operation.delivered && inWindow(desk, operation)", "!operation.delivered"]],
    tests: guards,
  },
  {
    rule: "a confirmed fact answers the identical call",
    edits: [
      ["replay/duplicates.ts", 'states: ["unresolved", "completed", "effect-confirmed"]', 'states: ["unresolved", "completed"]'],
    ],
    tests: guards,
  },
  {
    rule: "let through is used once",
    edits: [
      [
        "replay/call-manager.ts",
        'lead.push(desk.event(guarded.letThroughBy, "let-through", "gateway", { used: id }));',
        "void id;",
      ],
    ],
    tests: guards,
  },
];

/** A copy of what the tests need; `node_modules` is shared. */
function copy(): string {
  const folder = mkdtempSync(join(tmpdir(), "msr-mutation-"));
  for (const name of ["src", "package.json", "tsconfig.json", "test/faults", "test/unit", "test/servers", "test/support"])
    cpSync(join(repositoryRoot, name), join(folder, name), { recursive: true });
  cpSync(join(repositoryRoot, "test", "package.json"), join(folder, "test", "package.json"));
  symlinkSync(join(repositoryRoot, "node_modules"), join(folder, "node_modules"), "junction");
  return folder;
}

/** The names of the tests that failed. */
async function failures(folder: string, tests: readonly string[]): Promise<readonly string[]> {
  const report = join(folder, "report.json");
  rmSync(report, { force: true });
  const args = ["run", "--dir", "test/unit", ...tests, "--bail=1", "--reporter=json", `--outputFile.json=${report}`];
  const env = environmentWithPinnedNode();
  const child = spawn("vitest", args, { cwd: folder, stdio: "ignore", env, shell: process.platform === "win32" });
  await once(child, "exit");
  const { testResults } = JSON.parse(readFileSync(report, "utf8")) as {
    testResults: { message: string; assertionResults: { fullName: string; status: string }[] }[];
  };
  const failed = testResults.flatMap(({ message, assertionResults }) =>
    assertionResults.length === 0
      ? [`(does not load) ${message.slice(0, 100)}`]
      : assertionResults.filter(({ status }) => status === "failed").map(({ fullName }) => fullName),
  );
  // The files that were not run any more after the first failure are not what failed.
  return failed.sort((a, b) => Number(a.startsWith("(")) - Number(b.startsWith("(")));
}

const folder = copy();
let wrong = 0;
try {
  const asked = mutations.filter(({ rule }) => rule.includes(process.argv[2] ?? ""));
  const unbroken = await failures(folder, [...new Set(asked.flatMap(({ tests }) => tests))]);
  if (unbroken.length > 0) throw new Error(`These fail in the unbroken copy:\n${unbroken.join("\n")}`);
  for (const { rule, edits, tests } of asked) {
    const before = edits.map(([file]) => [file, readFileSync(join(folder, "src", file), "utf8")] as const);
    let verdict = "";
    for (const [file, from, to] of edits) {
      const path = join(folder, "src", file);
      const text = readFileSync(path, "utf8");
      if (text.split(from).length !== 2) verdict = `STALE: ${file} does not have this text once: ${from}`;
      writeFileSync(
        path,
        text.replace(from, () => to),
      );
    }
    if (verdict === "") {
      const failed = await failures(folder, tests);
      verdict = failed[0] === undefined ? "NOT NOTICED" : `noticed by: ${failed[0]}`;
    }
    if (!verdict.startsWith("noticed")) wrong += 1;
    console.log(`${rule.padEnd(82)}${verdict}`);
    for (const [file, text] of before) writeFileSync(join(folder, "src", file), text);
  }
  console.log(`\n${asked.length - wrong} of ${asked.length} broken rules were noticed.`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.exitCode = wrong === 0 ? 0 : 1;
