/**
 * Owns: one server process with its children: starting it in a group of its own, and ending exactly that group.
 * Leaves to others: what is said over its pipes (stdio-transport.ts).
 */
import { spawnSync, type ChildProcess } from "node:child_process";
import { getDefaultEnvironment } from "@modelcontextprotocol/client/stdio";
import spawn from "cross-spawn";
import type { Clock } from "../clock.ts";
import { guardGroup, releaseGroup } from "./process-guard.ts";

export interface ProcessPlan {
  readonly command: string;
  readonly args: readonly string[];
  /** Beside the few variables that every server inherits. */
  readonly env: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

const posix = process.platform !== "win32";
const running = new Set<ChildProcess>();

/** Starts the program. A program that cannot start reports an `error` event on the child. */
export function startProcess(plan: ProcessPlan): ChildProcess {
  const child = spawn(plan.command, plan.args, {
    env: { ...getDefaultEnvironment(), ...plan.env },
    stdio: ["pipe", "pipe", "pipe"],
    detached: posix,
    windowsHide: true,
    ...(plan.cwd === undefined ? {} : { cwd: plan.cwd }),
  });
  if (child.pid !== undefined) {
    // When this process ends without having stopped its servers, they must not outlive it.
    if (running.size === 0) process.on("exit", killAll);
    running.add(child);
    guardGroup(child.pid);
    child.once("exit", () => forget(child));
  }
  return child;
}

function forget(child: ChildProcess): void {
  if (running.delete(child) && running.size === 0) process.off("exit", killAll);
}

function killAll(): void {
  for (const child of running) signalGroup(child, "SIGKILL");
}

/** Signals the process and its children. Only ever called with a process that was started here. */
export function signalGroup(child: ChildProcess, signal: "SIGTERM" | "SIGKILL"): void {
  if (child.pid === undefined) return;
  try {
    if (posix) process.kill(-child.pid, signal);
    else if (signal === "SIGKILL") spawnSync("taskkill", ["/pid", String(child.pid), "/T", "/F"], { windowsHide: true });
  } catch {
    // The group is gone already.
  }
}

/**
 * Ends the process politely: its stdin is closed, after `graceMs` the group gets SIGTERM, after `graceMs` more SIGKILL.
 * Settles when the process is gone, however it went. Source: MCP 2025-11-25, "Lifecycle: Shutdown, stdio".
 */
export async function endProcess(child: ChildProcess, clock: Clock, graceMs: number): Promise<void> {
  if (child.pid === undefined) return;
  if (child.exitCode === null && child.signalCode === null) {
    const { promise: gone, resolve } = Promise.withResolvers<void>();
    child.once("exit", () => resolve());
    child.stdin?.end();
    let stop = clock.after(graceMs, () => {
      signalGroup(child, "SIGTERM");
      stop = clock.after(graceMs, () => signalGroup(child, "SIGKILL"));
    });
    await gone;
    stop();
  }
  // Children that outlived their leader. The leader's id is still theirs, so this is no stranger's group.
  if (posix) signalGroup(child, "SIGKILL");
  releaseGroup(child.pid);
}
