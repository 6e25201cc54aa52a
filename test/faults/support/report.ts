/**
 * Owns: the matrix as it came out: a table (row × transport), why cells do not apply, the times, the totals; printed and written to
 * out/results/matrix.txt.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { repositoryRoot } from "../../support/paths.ts";
import type { Path } from "./lab.ts";
import { transports, type Transport } from "./peers.ts";
import type { Row } from "./rows.ts";

interface CellResult {
  readonly passed: Path[];
  readonly failed: Path[];
  readonly times: number[];
}

export class MatrixReport {
  readonly #rows: readonly Row[];
  readonly #cells = new Map<string, CellResult>();

  constructor(rows: readonly Row[]) {
    this.#rows = rows;
  }

  add(row: Row, transport: Transport, path: Path, ok: boolean, times: readonly number[]): void {
    const cell = this.#cell(row, transport);
    (ok ? cell.passed : cell.failed).push(path);
    cell.times.push(...times);
  }

  #cell(row: Row, transport: Transport): CellResult {
    const key = `${row.number} ${transport}`;
    const known = this.#cells.get(key) ?? { passed: [], failed: [], times: [] };
    this.#cells.set(key, known);
    return known;
  }

  /** A cell: how many call paths passed, FAIL, `–` when it does not apply, `…` when it did not run. */
  #sign(row: Row, transport: Transport): string {
    if (row.notOn[transport] !== undefined) return "–";
    const { passed, failed } = this.#cell(row, transport);
    if (failed.length > 0) return "FAIL";
    return passed.length === 0 ? "…" : passed.length === 2 ? "pass ×2" : "pass";
  }

  get text(): string {
    const lines: string[] = [];
    const width = 58;
    lines.push(`${"row".padEnd(width)}${transports.map((transport) => transport.padEnd(14)).join("")}median ms`);
    const counts = { pass: 0, fail: 0, notApplicable: 0, notRun: 0 };
    for (const row of this.#rows) {
      const signs = transports.map((transport) => this.#sign(row, transport));
      for (const sign of signs) {
        if (sign.startsWith("pass")) counts.pass += 1;
        else if (sign === "FAIL") counts.fail += 1;
        else if (sign === "–") counts.notApplicable += 1;
        else counts.notRun += 1;
      }
      const times = transports.flatMap((transport) => this.#cell(row, transport).times);
      const name = `${String(row.number).padStart(2)}  ${row.title}`;
      const cells = signs.map((sign) => sign.padEnd(14)).join("");
      lines.push(`${name.slice(0, width - 1).padEnd(width)}${cells}${times.length === 0 ? "" : median(times).toFixed(1)}`);
    }
    lines.push("", "Cells that do not apply (–):");
    for (const row of this.#rows)
      for (const [why, where] of grouped(row.notOn)) lines.push(`  ${row.number}  ${where.join(", ")}: ${why}`);
    const all = [...this.#cells.values()].flatMap((cell) => cell.times);
    lines.push("", "pass ×2: by an agent through the gateway, and by the Call Tool command's way; both share one decision.");
    lines.push("median ms: from the loss to the caller's answer, for consequential calls of which nothing could be recovered.");
    if (all.length > 0)
      lines.push(`All ${all.length} such calls: median ${median(all).toFixed(1)} ms, slowest ${Math.max(...all).toFixed(0)} ms.`);
    lines.push(
      "",
      `${counts.pass} cells pass, ${counts.fail} fail, ${counts.notRun} did not run, ${counts.notApplicable} do not apply.`,
    );
    return lines.join("\n");
  }

  write(): void {
    const folder = join(repositoryRoot, "out", "results");
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "matrix.txt"), `${this.text}\n`);
  }
}

function grouped(notOn: Row["notOn"]): Map<string, string[]> {
  const groups = new Map<string, string[]>();
  for (const [transport, why] of Object.entries(notOn)) groups.set(why, [...(groups.get(why) ?? []), transport]);
  return groups;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? (sorted[middle] ?? 0) : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2;
}
