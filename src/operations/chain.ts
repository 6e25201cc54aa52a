/**
 * Owns: the hash chain over the journal's rows, and how it bridges what retention took out.
 *
 * Each row's hash is SHA-256 over the hash before it and everything in the row, its number included: a changed, moved or removed row
 * breaks the chain from there on. Where retention removed rows `first` to `last`, a gap stands in their place with the hash of the last of
 * them, so that the chain goes on; the newest `pruned` record holds the digest of all gaps, so that a gap cannot be made or widened unseen.
 * There is no secret in it: it shows tampering to whoever noted an earlier hash elsewhere, and damage to everybody.
 */
import { hash } from "node:crypto";

/** The hash before the first row. */
export const chainStart = "0".repeat(64);

/** A row as it is stored; `data` is the exact text. */
export interface ChainRow {
  readonly number: number;
  readonly operation_id: string;
  readonly type: string;
  readonly actor: string;
  readonly at: number;
  readonly data: string;
}

export interface Gap {
  readonly first: number;
  readonly last: number;
  /** The hash of row `last`. */
  readonly hash: string;
}

/** The hash of a row that follows `previous`; hex. */
export function link(previous: string, row: ChainRow): string {
  return hash("sha256", JSON.stringify([previous, row.number, row.operation_id, row.type, row.actor, row.at]) + row.data);
}

/** What the newest `pruned` record says of the gaps, in order of their numbers. */
export function digestOfGaps(gaps: Iterable<Gap>): string {
  let digest = chainStart;
  for (const gap of gaps) digest = hash("sha256", JSON.stringify([digest, gap.first, gap.last, gap.hash]));
  return digest;
}
