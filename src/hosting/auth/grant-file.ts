/**
 * Owns: authorisations kept in one file that only its owner can read, for programs without a keychain.
 * Leaves to others: what a grant is (grant-store.ts).
 */
import { randomUUID } from "node:crypto";
import { chmodSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import * as z from "zod";
import type { GrantStore } from "./grant-store.ts";

const contents = z.object({ version: z.literal(1), grants: z.record(z.string(), z.string()) });

/**
 * Read anew each time, because another program of the same person may have written; replaced as a whole, so that a crash leaves the old
 * one or the new one. A file that cannot be read is as if empty.
 */
export function grantFile(path: string): GrantStore {
  const read = (): Record<string, string> => {
    try {
      return contents.parse(JSON.parse(readFileSync(path, "utf8"))).grants;
    } catch {
      return {};
    }
  };
  const write = (grants: Record<string, string>): void => {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    const temporary = `${path}.${randomUUID()}`;
    try {
      writeFileSync(temporary, JSON.stringify({ version: 1, grants }), { mode: 0o600, flag: "wx" });
      // Whatever the umask says.
      chmodSync(temporary, 0o600);
      renameSync(temporary, path);
    } catch (error) {
      rmSync(temporary, { force: true });
      throw error;
    }
  };
  return {
    read: async (key) => read()[key],
    write: async (key, text) => write({ ...read(), [key]: text }),
    remove: async (key) => {
      const { [key]: removed, ...others } = read();
      if (removed !== undefined) write(others);
    },
  };
}
