/**
 * Owns: temporary folders of tests, removed when the test ends.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A new empty folder and how to remove it. Short, so that a unix socket fits in it. */
export function temporaryFolder(): { path: string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), "msr-"));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}
