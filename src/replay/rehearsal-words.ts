/**
 * Owns: the words for promises and verdicts, the same on the command line and in VS Code. Pure.
 */
import type { Finding, Rehearsed, RehearsalReport, Verdict } from "./rehearsal-plan.ts";

export const rehearsedWords: Readonly<Record<Rehearsed, string>> = {
  scopedToAccountAndOperation: "A key counts for one account and one kind of operation",
  boundToPayload: "A key with other arguments is refused",
  atomicUnderConcurrency: "Two calls with one key at the same moment have one effect",
  retainedForWholeWindow: "The key is remembered for the whole window",
  reachesProvider: "The key reaches the provider",
  lookupFinds: "The lookup finds what was made",
  lookupKnowsNone: "The lookup says when there is none",
};

export const verdictWords: Readonly<Record<Verdict, string>> = {
  held: "held",
  broken: "BROKEN",
  "not-testable": "not testable",
};

/** "3 held, 1 broken, 2 not testable". */
export function tally(findings: readonly Pick<Finding, "verdict">[]): string {
  const count = (verdict: Verdict): number => findings.filter((finding) => finding.verdict === verdict).length;
  return (["held", "broken", "not-testable"] as const)
    .filter((verdict) => count(verdict) > 0)
    .map((verdict) => `${count(verdict)} ${verdictWords[verdict].toLowerCase()}`)
    .join(", ");
}

/** The report as plain lines: each promise, its verdict, what was seen. */
export function reportLines(report: RehearsalReport): readonly string[] {
  return report.findings.flatMap(({ promise, verdict, evidence }) => [
    `${verdictWords[verdict].padEnd(12)}  ${rehearsedWords[promise]} (${promise})`,
    ...evidence.map((line) => `              ${line}`),
  ]);
}
