/**
 * Owns: which running program holds an operation that is under way, so that a live one is never taken for lost and a dead one's is
 * found. A program is known by process id and the moment the process started: process ids are used again.
 */
import { readFileSync } from "node:fs";

export interface ProcessIdentity {
  readonly pid: number;
  readonly started: string;
}

export function identityOf(pid: number): ProcessIdentity | undefined {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EPERM") return undefined;
  }
  const stat = readStat(pid);
  if (stat === "gone") return undefined;
  return { pid, started: stat };
}

function readStat(pid: number): string {
  if (process.platform !== "linux") return "";
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    if (fields[0] === "Z" || fields[0] === "X") return "gone";
    return fields[19] ?? "";
  } catch {
    return "gone";
  }
}

export function isAlive(owner: ProcessIdentity & { readonly heartbeat: number }, now: number, staleAfterMs = 30_000): boolean {
  const found = identityOf(owner.pid);
  if (found === undefined) return false;
  if (found.started !== "" || owner.started !== "") return found.started === owner.started;
  return now - owner.heartbeat <= staleAfterMs;
}
