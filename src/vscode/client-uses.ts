/**
 * Owns: when each client was last used, as it is kept across windows. Pure.
 * Leaves to others: where it is kept and how often (other-clients.ts).
 */

/** By client name, in milliseconds since the epoch. */
export type Uses = Readonly<Record<string, number>>;

/**
 * What is to be kept, or undefined when that is kept already.
 * @param kept what is kept now, perhaps by another window
 * @param seen what this window knows of the clients that there are
 * @param stepMs a later use is kept once it is more than so many milliseconds later
 */
export function usesToKeep(kept: Uses, seen: Uses, stepMs: number): Uses | undefined {
  const worth = Object.entries(seen).some(([name, use]) => !Object.hasOwn(kept, name) || use - (kept[name] ?? 0) > stepMs);
  if (!worth) return undefined;
  return Object.fromEntries(Object.entries(seen).map(([name, use]) => [name, Math.max(use, kept[name] ?? 0)]));
}
