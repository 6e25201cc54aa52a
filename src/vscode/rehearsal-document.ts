/**
 * Owns: a rehearsal in words: the line beside a contract, and the report as a document. Pure.
 * Leaves to others: remembering it (rehearsals.ts), the words for promises and verdicts (src/replay/rehearsal-words.ts).
 */
import type { Finding, RehearsalReport, Verdict } from "../replay/rehearsal-plan.ts";
import { rehearsedWords, tally, verdictWords } from "../replay/rehearsal-words.ts";
import { timeText } from "./words.ts";

/** What is known of a contract's rehearsal; `current`: it was of this very contract, tool and server. */
export interface KnownRehearsal {
  readonly report: RehearsalReport;
  readonly current: boolean;
}

/** "rehearsed on DATE: …" or "not rehearsed". */
export function rehearsalWords(known: KnownRehearsal | undefined): string {
  if (known === undefined) return "not rehearsed";
  const date = timeText(known.report.at).slice(0, 10);
  return known.current
    ? `rehearsed on ${date}: ${tally(known.report.findings)}`
    : `not rehearsed as it is now (it changed since ${date})`;
}

/** The report, in Markdown. */
export function rehearsalText(report: RehearsalReport): string {
  return [
    `# Rehearsal of ${report.tool} · ${report.server}: ${tally(report.findings)}`,
    `On ${timeText(report.at)}. This is what was seen that time, and no proof for every time. Findings are about the contract, the tool and the server as they were then.`,
    ...(["broken", "held", "not-testable"] as const).flatMap((verdict) => section(report.findings, verdict)),
    ...(report.operations.length === 0
      ? []
      : ["## Calls", `They stand in the journal like any others:\n\n${report.operations.map((id) => `- ${id}`).join("\n")}`]),
    "",
  ].join("\n\n");
}

function section(findings: readonly Finding[], verdict: Verdict): string[] {
  const found = findings.filter((finding) => finding.verdict === verdict);
  if (found.length === 0) return [];
  const title = verdictWords[verdict].toLowerCase();
  const lines = found.map(
    ({ promise, evidence }) => `- ${rehearsedWords[promise]} (\`${promise}\`)${evidence.map((line) => `\n  - ${line}`).join("")}`,
  );
  return [`## ${title.charAt(0).toUpperCase()}${title.slice(1)}`, lines.join("\n")];
}

/** What the extension's state holds, read with distrust: anything unexpected is as if it were not there. */
export function readReport(stored: unknown): RehearsalReport | undefined {
  const report = stored as Partial<RehearsalReport> | null | undefined;
  if (typeof report !== "object" || report === null) return undefined;
  const { server, tool, at, contract, findings, operations } = report;
  if (typeof server !== "string" || typeof tool !== "string" || typeof at !== "number" || typeof contract !== "string")
    return undefined;
  if (!Array.isArray(findings) || !findings.every(isFinding)) return undefined;
  return { server, tool, at, contract, findings, operations: Array.isArray(operations) ? operations.map(String) : [] };
}

function isFinding(finding: unknown): finding is Finding {
  if (typeof finding !== "object" || finding === null) return false;
  const { promise, verdict, evidence } = finding as Partial<Finding>;
  return (
    typeof promise === "string" &&
    Object.hasOwn(rehearsedWords, promise) &&
    typeof verdict === "string" &&
    Object.hasOwn(verdictWords, verdict) &&
    Array.isArray(evidence)
  );
}
