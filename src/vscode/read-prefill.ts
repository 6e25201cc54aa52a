/**
 * Owns: what to ask a reading tool about an unresolved call: its own arguments where the reading tool has the same, its key where there is a
 * place for it, or exactly what a contract says. Pure.
 * Leaves to others: everything else that the tool requires (prefill.ts).
 */
import type { Intention } from "../operations/model.ts";
import { prefill } from "./prefill.ts";

/** @param asked what the contract's lookup would ask, when this is its tool */
export function readPrefill(
  inputSchema: Record<string, unknown> | undefined,
  intention: Pick<Intention, "arguments" | "key" | "keyArgument">,
  asked?: Record<string, unknown>,
): Record<string, unknown> {
  if (asked !== undefined) return asked;
  const properties = inputSchema?.["properties"];
  const names = typeof properties === "object" && properties !== null ? Object.keys(properties) : [];
  const { key, keyArgument } = intention;
  const keyName = keyArgument?.split("/").at(-1);
  const known = names.flatMap((name): [string, unknown][] => {
    if (key !== undefined && name === keyName) return [[name, key]];
    return Object.hasOwn(intention.arguments, name) ? [[name, intention.arguments[name]]] : [];
  });
  return { ...prefill(inputSchema), ...Object.fromEntries(known) };
}
