/**
 * Owns: what of the journal the Unresolved view shows, sorted into what needs a person and what does not. Imports nothing of VS Code.
 * Leaves to others: when to look (operations.ts), how it looks (views).
 */
import type { Journal } from "../operations/journal.ts";
import { settlements, type Operation } from "../operations/model.ts";

export interface Snapshot {
  /** Consequential and unresolved: somebody must establish what happened. Newest first, like all of these. */
  readonly unresolved: readonly Operation[];
  /** Unresolved calls of tools that declare themselves reads. */
  readonly reads: readonly Operation[];
  /** Settled, and then an answer said otherwise; nobody has seen to it yet. However old. */
  readonly conflicts: readonly Operation[];
  /** Settled lately. */
  readonly settled: readonly Operation[];
}

export const emptySnapshot: Snapshot = { unresolved: [], reads: [], conflicts: [], settled: [] };

/** Of what is open, so many of the newest are shown: a list of more helps nobody, and memory stays bounded. */
export const openShown = 5_000;
const settledShown = 10;
const settledLooked = 500;

export async function lookAt(journal: Journal): Promise<Snapshot> {
  const [open, contradicted, settled] = await Promise.all([
    journal.operations({ states: ["unresolved"], limit: openShown }),
    journal.operations({ conflict: true, limit: openShown }),
    journal.operations({ states: settlements, limit: settledLooked }),
  ]);
  const bySettling = [...settled].sort((a, b) => (b.settlement?.at ?? 0) - (a.settlement?.at ?? 0));
  return {
    unresolved: open.filter((operation) => !operation.intention.declaredRead),
    reads: open.filter((operation) => operation.intention.declaredRead),
    // One that is open again is shown as that first.
    conflicts: contradicted.filter(({ state }) => state !== "unresolved" && state !== "in-flight"),
    // What the gateway closes by itself (a proven read without an answer) concerns nobody.
    settled: bySettling.filter((one) => !one.conflict && one.settlement?.actor !== "gateway").slice(0, settledShown),
  };
}
