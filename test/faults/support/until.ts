/**
 * Owns: waiting for something that tells nobody when it happens (another process's pipe, another program's journal): looked at again and
 * again. What can tell is waited for by its event instead.
 */
import { setTimeout as delay } from "node:timers/promises";

/** @param limitMs only an end to a test that has gone wrong */
export async function until(condition: () => boolean | Promise<boolean>, limitMs = 60_000): Promise<void> {
  const end = performance.now() + limitMs;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`it did not come to that within ${limitMs} ms`);
    await delay(5);
  }
}
