/**
 * Owns: where each test tier leaves its totals (out/results/<tier>.json), so that they can be added up.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { repositoryRoot } from "./paths.ts";

export interface Totals {
  readonly passed: number;
  readonly failed: number;
}

export const resultsFolder = join(repositoryRoot, "out", "results");

export function writeTotals(tier: string, totals: Totals): void {
  mkdirSync(resultsFolder, { recursive: true });
  writeFileSync(join(resultsFolder, `${tier}.json`), JSON.stringify(totals));
}

/** @returns undefined when the tier left none */
export function readTotals(tier: string): Totals | undefined {
  const file = join(resultsFolder, `${tier}.json`);
  return existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as Totals) : undefined;
}
