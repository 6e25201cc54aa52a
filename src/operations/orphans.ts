/**
 * Owns: what becomes of an operation whose program is gone: its answer is lost, `process-ended` (fault matrix, rows 2 and 3).
 * Leaves to others: knowing who lives (leases.ts), the transaction around it.
 */
import { isHeld, removeLease } from "./leases.ts";
import type { Operation, OperationEvent } from "./model.ts";
import type { Tables } from "./tables.ts";

export interface Orphans {
  /** Operations under way that no living program holds. */
  readonly operations: readonly string[];
  /** Owners on record that are gone. */
  readonly owners: readonly string[];
}

/** @param gone whether the program behind an owner's id is gone */
export function findOrphans(tables: Tables, gone: (owner: string) => boolean): Orphans {
  const owners = new Map(tables.owners().map((owner) => [owner, gone(owner)]));
  return {
    operations: tables
      .underWay()
      .filter(({ owner }) => owners.get(owner) !== false)
      .map(({ id }) => id),
    owners: [...owners].filter(([, isGone]) => isGone).map(([owner]) => owner),
  };
}

/** Records them as lost and forgets their owners. */
export function loseOrphans(tables: Tables, directory: string, orphans: Orphans, now: number): void {
  for (const id of orphans.operations) {
    const operation = tables.operation(id);
    if (operation !== undefined) tables.write([lostWithItsProgram(operation, now)], "");
  }
  for (const owner of orphans.owners) {
    tables.removeOwner(owner);
    removeLease(directory, owner);
  }
}

/** A living program's call is never taken for lost. */
export function isGone(directory: string, self: string): (owner: string) => boolean {
  return (owner) => owner !== self && !isHeld(directory, owner);
}

function lostWithItsProgram(operation: Operation, at: number): OperationEvent {
  const attempt = operation.attempts.at(-1);
  return {
    operationId: operation.id,
    type: "lost",
    actor: "gateway",
    at,
    data: {
      ...(attempt === undefined ? {} : { attempt: attempt.number }),
      stage: attempt?.stage ?? "not-sent",
      reason: "process-ended",
      kind: "process-ended",
    },
  };
}
