import { describe, expect, it } from "vitest";
import type { RehearsalReport } from "../../../src/replay/rehearsal-plan.ts";
import { readReport, rehearsalText, rehearsalWords } from "../../../src/vscode/rehearsal-document.ts";

const report: RehearsalReport = {
  server: "booking",
  tool: "create_booking",
  at: new Date(2026, 10, 30, 12).getTime(),
  contract: "c",
  findings: [
    { promise: "boundToPayload", verdict: "held", evidence: ["refused"] },
    { promise: "atomicUnderConcurrency", verdict: "broken", evidence: ["twice at once: 2 calls with one key left 2 effects"] },
    { promise: "scopedToAccountAndOperation", verdict: "not-testable", evidence: ["read the documentation"] },
  ],
  operations: ["op-1", "op-2"],
};

describe("a rehearsal in words", () => {
  it("is 'not rehearsed', 'rehearsed on DATE' with its outcome, or out of date", () => {
    expect(rehearsalWords(undefined)).toBe("not rehearsed");
    expect(rehearsalWords({ report, current: true })).toBe("rehearsed on 2026-11-30: 1 held, 1 broken, 1 not testable");
    expect(rehearsalWords({ report, current: false })).toBe("not rehearsed as it is now (it changed since 2026-11-30)");
  });

  it("says promise by promise what was seen, the broken ones first, and claims no more", () => {
    const text = rehearsalText(report);
    expect(text.indexOf("## Broken")).toBeLessThan(text.indexOf("## Held"));
    expect(text.indexOf("## Held")).toBeLessThan(text.indexOf("## Not testable"));
    expect(text).toContain(
      "- Two calls with one key at the same moment have one effect (`atomicUnderConcurrency`)\n  - twice at once",
    );
    expect(text).toContain("no proof for every time");
    expect(text).toContain("- op-1\n- op-2");
  });

  it("is read back with distrust", () => {
    expect(readReport(JSON.parse(JSON.stringify(report)))).toEqual(report);
    for (const stored of [
      undefined,
      null,
      7,
      "x",
      [],
      {},
      { ...report, at: "today" },
      { ...report, findings: [{ promise: "toString", verdict: "held", evidence: [] }] },
      { ...report, findings: [{ promise: "boundToPayload", verdict: "constructor", evidence: [] }] },
    ])
      expect(readReport(stored)).toBeUndefined();
  });
});
