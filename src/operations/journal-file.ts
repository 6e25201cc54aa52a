/**
 * Owns: opening the journal's file, whatever is found in its place: nothing, an older or newer format, a foreign or a damaged file, no
 * permission, a full disk. It never throws: it opens for writing, or for reading, or says why not.
 * Leaves to others: the formats (migrations.ts), what becomes of a damaged file (salvage.ts), the words (failures.ts).
 */
import {
  chmodSync,
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  rmSync,
  statSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { DatabaseSync, type DatabaseSyncOptions } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { uuidv7 } from "uuidv7";
import { damage, isDamage, isReadOnly, problemOf } from "./failures.ts";
import { JournalError } from "./journal.ts";
import { isHeld, Lease, leases, removeLease } from "./leases.ts";
import { applicationId, migrate, schemaVersion } from "./migrations.ts";
import { damageNoted, forgetDamage, setAsideAndSalvage } from "./salvage.ts";

export const journalFileName = "journal.sqlite";

/** Opens a database; a test can put its own in, to fail where it wants. */
export type OpenDatabase = (path: string, options: DatabaseSyncOptions) => DatabaseSync;

export interface JournalFileOptions {
  readonly directory: string;
  readonly now: () => number;
  /** How long to wait for a lock that another program holds, in milliseconds. */
  readonly busyMs: number;
  readonly openDatabase: OpenDatabase;
}

export interface JournalFile {
  /** Undefined when not even reading is possible. */
  readonly db: DatabaseSync | undefined;
  /** Held while this program may write; undefined: for reading only. */
  readonly lease: Lease | undefined;
  readonly problem: JournalError | undefined;
  readonly notice: string | undefined;
}

/** Held while a program opens the journal, so that one at a time makes, migrates or mends it. */
const openingLease = "opening";

/** A copy that was made before a migration is kept for this long, in milliseconds (30 days). */
const backupKeptMs = 30 * 24 * 60 * 60 * 1000;

/** Makes folder and file when they are not there, private to the user; migrates an older format; sets a damaged file aside. */
export function openForWriting(options: JournalFileOptions): JournalFile {
  const { directory, now, busyMs } = options;
  let opening: Lease | undefined;
  let lease: Lease | undefined;
  let db: DatabaseSync | undefined;
  try {
    makePrivateFolder(directory);
    opening = Lease.take(directory, openingLease, busyMs);
    let notice: string | undefined;
    if (damageNoted(directory)?.name !== undefined) notice = mend(directory, now());
    const tell = (text: string): void => {
      notice = notice === undefined ? text : `${notice} ${text}`;
    };
    try {
      db = openSound(options, tell);
    } catch (error) {
      if (!isDamage(error)) throw error;
      tell(mend(directory, now()));
      db = openSound(options, tell);
    }
    lease = Lease.take(directory, uuidv7());
    sweep(db, directory, lease.id, now());
    return { db, lease, problem: undefined, notice };
  } catch (error) {
    if (db?.isOpen === true) db.close();
    lease?.release();
    return { ...openForReading(options), problem: problemOf(error, directory) };
  } finally {
    opening?.release();
  }
}

/**
 * @param tell for what the person should know though all is well
 * @throws JournalError `foreign`, `newer-version`, or SQLite's error, damage among them
 */
function openSound({ directory, now, openDatabase, busyMs }: JournalFileOptions, tell: (text: string) => void): DatabaseSync {
  const path = join(directory, journalFileName);
  makePrivateFile(path);
  let db = openDatabase(path, { readOnly: true, timeout: busyMs });
  try {
    // Looked at before it is opened for writing, so that nothing is changed in what is not a sound journal of ours.
    try {
      formatOf(db, path);
    } catch (error) {
      // What a crash left half done can only be looked at once it is undone, and that takes writing.
      if (!isReadOnly(error)) throw error;
    }
    db.close();
    db = openDatabase(path, { timeout: busyMs });
    const version = formatOf(db, path);
    if (version > schemaVersion) throw newerVersion(version);
    if (damageNoted(directory) !== undefined) {
      if (!isSound(db)) throw damage();
      forgetDamage(directory);
    }
    // A commit waits for the disk, on a Mac too. What is deleted is overwritten. Checkpoints are the journal's own (sqlite-journal.ts):
    // SQLite's would not say when one fails.
    db.exec("PRAGMA synchronous=FULL; PRAGMA fullfsync=ON; PRAGMA secure_delete=ON; PRAGMA wal_autocheckpoint=0");
    db.exec("PRAGMA journal_mode=WAL");
    // The rollback journal that this step used must not come back with the next power cut: it would undo everything since.
    syncFolder(directory);
    if (version < schemaVersion) {
      const copy = version > 0 ? backUp(db, directory, version, now()) : undefined;
      migrate(db, version);
      if (copy !== undefined) tell(convertedNotice(version, copy));
    }
    return db;
  } catch (error) {
    if (db.isOpen) db.close();
    if (isDamage(error) && !wasOurs(path)) throw foreign(path);
    throw error;
  }
}

/** Opens what is there and changes nothing. */
export function openForReading({ directory, busyMs, openDatabase }: JournalFileOptions): JournalFile {
  const path = join(directory, journalFileName);
  let db: DatabaseSync | undefined;
  try {
    if (!existsSync(path)) {
      throw new JournalError("unwritable", `There is no journal in ${directory}. Check the folder's name.`);
    }
    db = openDatabase(path, { readOnly: true, timeout: busyMs });
    let version: number;
    try {
      version = formatOf(db, path);
    } catch (error) {
      if (existsSync(`${path}-journal`)) throw unfinished();
      // Beside a file in a folder that cannot be written, SQLite cannot keep its index of the log. Where there is no log, none is needed.
      if (error instanceof JournalError || isDamage(error) || logSize(path) > 0) throw error;
      db.close();
      const url = pathToFileURL(path);
      url.searchParams.set("immutable", "1");
      db = openDatabase(url.href, { readOnly: true });
      version = formatOf(db, path);
    }
    if (version < schemaVersion) throw olderVersion(version);
    return { db, lease: undefined, problem: version > schemaVersion ? newerVersion(version) : undefined, notice: undefined };
  } catch (error) {
    if (db?.isOpen === true) db.close();
    return { db: undefined, lease: undefined, problem: problemOf(error, directory), notice: undefined };
  }
}

/** The file's format; 0: an empty file. @throws JournalError `foreign` */
export function formatOf(db: DatabaseSync, path: string): number {
  const version = pragma(db, "user_version");
  if (pragma(db, "application_id") !== applicationId && (version !== 0 || hasTables(db))) throw foreign(path);
  return version;
}

export function newerVersion(version: number): JournalError {
  return new JournalError(
    "newer-version",
    `The operation journal was written by a newer version of MCP Safe Replay (format ${version}, this version knows ${schemaVersion}). Update MCP Safe Replay. Until then the journal can only be read, and nothing is sent that is not a proven read.`,
  );
}

function olderVersion(version: number): JournalError {
  return new JournalError(
    "older-version",
    version === 0
      ? "The operation journal is empty: nothing was ever written to it."
      : `The operation journal is of an older format (${version}, this version reads ${schemaVersion}). Open it for writing once, by starting VS Code or 'mcp-safe-replay serve': it is converted then.`,
  );
}

function unfinished(): JournalError {
  return new JournalError(
    "older-version",
    "The operation journal was being made or converted when its program died. Open it for writing once, by starting VS Code or 'mcp-safe-replay serve': that is finished then.",
  );
}

function foreign(path: string): JournalError {
  return new JournalError(
    "foreign",
    `${path} belongs to another program. Move it away; a new journal is made then. Until then nothing is sent that is not a proven read.`,
  );
}

// ---- private files ----------------------------------------------------------------------------------------------------------------

function makePrivateFolder(directory: string): void {
  if (mkdirSync(directory, { recursive: true, mode: 0o700 }) !== undefined) syncFolder(dirname(directory));
  if ((statSync(directory).mode & 0o777) !== 0o700) chmodSync(directory, 0o700);
}

/**
 * Made here and not by SQLite, so that it is never readable by others, not even for a moment; its side files take the same mode.
 * A file that is there is not opened: closing it again would drop the locks that this process has on it (POSIX; SQLite, "How To Corrupt").
 */
function makePrivateFile(path: string): void {
  if (!existsSync(path)) closeSync(openSync(path, "wx", 0o600));
  else if ((statSync(path).mode & 0o777) !== 0o600) chmodSync(path, 0o600);
}

/** What was made or removed in a folder stays so after a power cut. Not every system lets a folder be opened and synced. */
function syncFolder(directory: string): void {
  let folder: number | undefined;
  try {
    folder = openSync(directory, "r");
    fsyncSync(folder);
  } catch (error) {
    const { code = "" } = error as NodeJS.ErrnoException;
    if (!["EISDIR", "EPERM", "EACCES", "EINVAL", "ENOTSUP"].includes(code)) throw error;
  } finally {
    if (folder !== undefined) closeSync(folder);
  }
}

// ---- damage -----------------------------------------------------------------------------------------------------------------------

/** Sets the damaged file aside, unless another program has it open. @returns what the person should be told */
function mend(directory: string, now: number): string {
  if (leases(directory).some((id) => id !== openingLease && isHeld(directory, id))) throw damage();
  return setAsideAndSalvage(directory, now);
}

function isSound(db: DatabaseSync): boolean {
  return Object.values(db.prepare("PRAGMA integrity_check(1)").get() ?? {})[0] === "ok";
}

/** Whether a file that SQLite does not take was a journal once: it still has SQLite's first words, our mark (byte 68), or nothing at all there. */
function wasOurs(path: string): boolean {
  const header = Buffer.alloc(100);
  const file = openSync(path, "r");
  try {
    readSync(file, header, 0, header.length, 0);
  } finally {
    closeSync(file);
  }
  return (
    header.toString("latin1", 0, 16) === "SQLite format 3\0" ||
    header.readUInt32BE(68) === applicationId ||
    header.every((byte) => byte === 0)
  );
}

// ---- copies and leftovers ---------------------------------------------------------------------------------------------------------

/** A whole copy before the format changes, made by SQLite itself. @returns its path */
function backUp(db: DatabaseSync, directory: string, version: number, now: number): string {
  const stamp = new Date(now).toISOString().replace(/[-:]|\.\d+/g, "");
  const path = join(directory, `journal.format-${version}-${stamp}.sqlite`);
  rmSync(path, { force: true });
  closeSync(openSync(path, "wx", 0o600));
  db.prepare("VACUUM INTO ?").run(path);
  const file = openSync(path, "r+");
  fsyncSync(file);
  closeSync(file);
  return path;
}

function convertedNotice(version: number, copy: string): string {
  return `The operation journal was converted from format ${version} to ${schemaVersion}; nothing was lost. A copy of it as it was is kept for 30 days: ${copy}.`;
}

/** What programs that are gone left lying about. */
function sweep(db: DatabaseSync, directory: string, self: string, now: number): void {
  const known = new Set(
    db
      .prepare("SELECT id FROM owners")
      .all()
      .map((row) => row["id"]),
  );
  for (const id of leases(directory)) {
    if (id !== self && id !== openingLease && !known.has(id) && !isHeld(directory, id)) removeLease(directory, id);
  }
  for (const name of readdirSync(directory)) {
    if (!/^journal\.format-\d+-.*\.sqlite$/.test(name)) continue;
    const path = join(directory, name);
    if (now - statSync(path).mtimeMs > backupKeptMs) rmSync(path, { force: true });
  }
}

// ---- small things -----------------------------------------------------------------------------------------------------------------

function logSize(path: string): number {
  return statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0;
}

/** A number that SQLite keeps about a database. */
export function pragma(db: DatabaseSync, name: string): number {
  return Number(Object.values(db.prepare(`PRAGMA ${name}`).get() ?? {})[0] ?? 0);
}

function hasTables(db: DatabaseSync): boolean {
  return db.prepare("SELECT 1 FROM sqlite_master LIMIT 1").get() !== undefined;
}
