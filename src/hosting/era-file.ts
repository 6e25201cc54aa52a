/**
 * Owns: which protocol era each server definition spoke last, remembered across starts in one small file. It only saves a question:
 * a server that does not fit what is remembered is asked anew.
 */
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import * as z from "zod";
import type { Era } from "./evidence.ts";
import type { EraStore } from "./negotiate.ts";

const contents = z.record(z.string(), z.enum(["2025-11-25", "2026-07-28"]));
/** Definitions come and go; the oldest are forgotten. */
const most = 500;

/** A file that cannot be read is as if empty; one that cannot be written is not written: nothing depends on it. */
export function eraFile(path: string): EraStore {
  let eras: Map<string, Era> | undefined;
  const read = (): Map<string, Era> => {
    try {
      return new Map(Object.entries(contents.parse(JSON.parse(readFileSync(path, "utf8")))));
    } catch {
      return new Map();
    }
  };
  return {
    get: (fingerprint) => (eras ??= read()).get(fingerprint),
    set: (fingerprint, era) => {
      // Another window may have written meanwhile.
      eras = read();
      if (eras.get(fingerprint) === era) return;
      eras.delete(fingerprint);
      eras.set(fingerprint, era);
      const kept = [...eras].slice(-most);
      try {
        const temporary = `${path}.${process.pid}`;
        writeFileSync(temporary, JSON.stringify(Object.fromEntries(kept)), { mode: 0o600 });
        renameSync(temporary, path);
      } catch {
        // Asked again at the next start.
      }
    },
  };
}
