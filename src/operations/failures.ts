/**
 * Owns: what can stand in the way of the journal, in one table: the system's codes, and for each a clear message that names the mend.
 */
import { JournalError } from "./journal.ts";

/** SQLite's primary result code (sqlite.org/rescode.html), from the extended one that node:sqlite gives. */
function sqliteCode(error: unknown): number | undefined {
  const code = (error as { errcode?: unknown } | null)?.errcode;
  return typeof code === "number" ? code & 0xff : undefined;
}

/** SQLITE_BUSY, SQLITE_LOCKED: somebody else is at it. */
export function isBusy(error: unknown): boolean {
  return [5, 6].includes(sqliteCode(error) ?? 0);
}

/** SQLITE_CORRUPT, SQLITE_NOTADB: what is there is not what was written. */
export function isDamage(error: unknown): boolean {
  return [11, 26].includes(sqliteCode(error) ?? 0);
}

/** SQLITE_READONLY: it would take writing to go on. */
export function isReadOnly(error: unknown): boolean {
  return sqliteCode(error) === 8;
}

/** SQLITE_IOERR: a write or sync failed. */
export function isDiskError(error: unknown): boolean {
  return sqliteCode(error) === 10;
}

/** The errors for what SQLite does not throw by itself. */
export const damage = (): Error => Object.assign(new Error("the database is damaged"), { errcode: 11 });
export const busy = (): Error => Object.assign(new Error("the database is locked"), { errcode: 5 });

/** SQLITE_CONSTRAINT, or a value that no column takes: what was to be written is wrong, not the place where. */
export function isMistake(error: unknown): boolean {
  return error instanceof TypeError || sqliteCode(error) === 19;
}

/** After the cause: what it means for the person's calls. */
const meanwhile = "Until then nothing is sent that is not a proven read.";

const causes: readonly { readonly codes: readonly (number | string)[]; readonly says: (directory: string) => string }[] = [
  {
    codes: [13, "ENOSPC", "EDQUOT"],
    says: (directory) => `The disk with the operation journal is full. Free some space on the disk of ${directory}. ${meanwhile}`,
  },
  {
    codes: [3, 8, 14, "EACCES", "EPERM", "EROFS"],
    says: (directory) =>
      `The operation journal cannot be written: no permission. Give yourself the right to write to ${directory} and the files in it. ${meanwhile}`,
  },
  {
    codes: [5, 6],
    says: (directory) =>
      `The operation journal is locked by another program. Close the program that holds the files in ${directory}. ${meanwhile}`,
  },
  {
    codes: ["ENOTDIR", "EEXIST"],
    says: (directory) =>
      `The operation journal's folder cannot be made: a file is in its way. Move the file away that stands at ${directory} or above it. ${meanwhile}`,
  },
  {
    codes: [11, 26],
    says: (directory) =>
      `The operation journal in ${directory} is damaged. Close every other window and program that uses it: it is then set aside, and what can be read of it is kept. ${meanwhile}`,
  },
];

/** The error to show for whatever the system threw. */
export function problemOf(error: unknown, directory: string): JournalError {
  if (error instanceof JournalError) return error;
  const code = sqliteCode(error) ?? (error as NodeJS.ErrnoException | null)?.code;
  const cause = causes.find(({ codes }) => code !== undefined && codes.includes(code));
  return new JournalError(
    isDamage(error) ? "damaged" : "unwritable",
    cause?.says(directory) ??
      `The operation journal could not be written: the disk reported an error. Check that the disk of ${directory} works and has room. ${meanwhile}`,
  );
}
