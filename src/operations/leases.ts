/**
 * Owns: which running program holds what, so that a live one's call is never taken for lost and a dead one's is found at once.
 *
 * A lease is an exclusive lock on a file of its own. The operating system keeps it exactly as long as the program lives: it ends with the
 * process however that dies, holds while the process is stopped or the computer sleeps, and knows nothing of process ids (which are used
 * again, and mean nothing across containers) or of clocks (which jump). SQLite sets the lock, so leases work wherever the journal itself does.
 */
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { isBusy } from "./failures.ts";

const folderName = "leases";
const suffix = ".lease";

export class Lease {
  readonly id: string;
  readonly #db: DatabaseSync;

  private constructor(id: string, db: DatabaseSync) {
    this.id = id;
    this.#db = db;
  }

  /**
   * Takes a lease, waiting `waitMs` milliseconds at most for another holder.
   * @throws SQLite's or the file system's error when it is held or the file cannot be made
   */
  static take(directory: string, id: string, waitMs = 0): Lease {
    const path = pathOf(directory, id);
    mkdirSync(join(directory, folderName), { recursive: true, mode: 0o700 });
    try {
      closeSync(openSync(path, "wx", 0o600));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
    const db = new DatabaseSync(path, { timeout: waitMs });
    try {
      db.exec("BEGIN EXCLUSIVE");
    } catch (error) {
      db.close();
      throw error;
    }
    return new Lease(id, db);
  }

  release(): void {
    if (this.#db.isOpen) this.#db.close();
  }
}

/** Whether a running program holds this lease. When the system cannot tell, it counts as held: a live call is never taken for lost. */
export function isHeld(directory: string, id: string): boolean {
  const path = pathOf(directory, id);
  if (!existsSync(path)) return false;
  let db: DatabaseSync | undefined;
  try {
    db = new DatabaseSync(path, { readOnly: true, timeout: 0 });
    db.prepare("SELECT 1 FROM sqlite_master").get();
    return false;
  } catch (error) {
    return isBusy(error) || existsSync(path);
  } finally {
    db?.close();
  }
}

/** The ids of all leases there are, held or not. */
export function leases(directory: string): readonly string[] {
  try {
    return readdirSync(join(directory, folderName))
      .filter((name) => name.endsWith(suffix))
      .map((name) => name.slice(0, -suffix.length));
  } catch {
    return [];
  }
}

/** Forgets a lease that nobody holds. */
export function removeLease(directory: string, id: string): void {
  rmSync(pathOf(directory, id), { force: true });
}

function pathOf(directory: string, id: string): string {
  return join(directory, folderName, id + suffix);
}
