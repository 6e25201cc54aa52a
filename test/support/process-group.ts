// Owns: starting a program so that it and its children end with us, and ending exactly those: by the id of the process
// (group) that was started here, never by a name. Leaves to others: what the programs are.

import { spawn, spawnSync, type ChildProcess, type SpawnOptions } from "node:child_process";

const GRACE_MS = 5_000;
const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
const running = new Set<ChildProcess>();

function signalGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return;
  try {
    if (process.platform === "win32") spawnSync("taskkill", ["/pid", String(child.pid), "/T", "/F"]);
    else process.kill(-child.pid, signal);
  } catch {
    // The group is gone already.
  }
}

function killAllNow(): void {
  for (const child of running) signalGroup(child, "SIGKILL");
  running.clear();
}

function onSignal(signal: NodeJS.Signals): void {
  // Somebody else's handler decides how to end; the `exit` listener then does the rest.
  if (process.listenerCount(signal) > 1) return;
  killAllNow();
  for (const name of SIGNALS) process.removeListener(name, onSignal);
  process.kill(process.pid, signal);
}

let listening = false;
function listen(): void {
  if (listening) return;
  listening = true;
  process.once("exit", killAllNow);
  for (const name of SIGNALS) process.on(name, onSignal);
}

/**
 * Starts a program as the leader of its own process group. The group is killed when this process exits or is
 * interrupted. Throws nothing: a program that cannot start reports an `error` event on the child.
 */
export function spawnGroup(command: string, args: readonly string[], options: SpawnOptions): ChildProcess {
  listen();
  const child = spawn(command, args, { ...options, detached: process.platform !== "win32" });
  running.add(child);
  return child;
}

/** Ends a group from `spawnGroup`: SIGTERM, after 5 s SIGKILL. Settles when the leader is gone; may be called again. */
export async function endGroup(child: ChildProcess): Promise<void> {
  if (child.pid !== undefined && child.exitCode === null && child.signalCode === null) {
    const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
    const late = setTimeout(() => signalGroup(child, "SIGKILL"), GRACE_MS);
    signalGroup(child, "SIGTERM");
    await gone;
    clearTimeout(late);
  }
  // Children that outlive their leader.
  if (running.delete(child) && process.platform !== "win32") signalGroup(child, "SIGKILL");
}
