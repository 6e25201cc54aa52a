/**
 * Owns: the command line program as a real process, for tests: start it, read its one line, end it, ask it for its operations.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { repositoryRoot } from "./paths.ts";
import { temporaryFolder } from "./temp.ts";

/** From source, so that a test needs no build; `MSR_HEADLESS` names another file (for example dist/headless.js). */
export const headlessFile = process.env.MSR_HEADLESS ?? join(repositoryRoot, "src", "headless.ts");

export interface ListedOperation {
  readonly id: string;
  readonly server: string;
  readonly tool: string;
  readonly state: string;
  readonly reason: string | null;
  readonly attempts: readonly { rpcId: string; era: string; stage: string; outcome: string | null }[];
  readonly createdAt: string;
  readonly events: readonly { type: string; actor: string; at: string; data: Record<string, unknown> }[];
}

export interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the program to its end. */
export async function runHeadless(args: readonly string[], env: Record<string, string> = {}): Promise<Ran> {
  const child = spawn(process.execPath, [headlessFile, ...args], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
  const [code] = (await once(child, "close")) as [number | null];
  return { code: code ?? -1, stdout, stderr };
}

export class Headless {
  readonly folder: { readonly path: string; remove(): void };
  readonly journalDir: string;
  readonly configFile: string;
  #child: ChildProcess | undefined;
  listening = "";
  urls: Readonly<Record<string, string>> = {};
  stderr = "";
  /** Settles when the process that `serve` started last has ended: with the signal that ended it, or its exit code. */
  ended: Promise<NodeJS.Signals | number> | undefined;

  constructor() {
    this.folder = temporaryFolder();
    this.journalDir = join(this.folder.path, "journal");
    this.configFile = join(this.folder.path, "config.json");
  }

  /** Starts `serve` with this configuration; ready when its line is there. Extra arguments replace `--no-token`. */
  async serve(config: unknown, extra: readonly string[] = ["--no-token"], env: Record<string, string> = {}): Promise<void> {
    writeFileSync(this.configFile, JSON.stringify(config));
    const child = spawn(
      process.execPath,
      [headlessFile, "serve", "--config", this.configFile, "--journal-dir", this.journalDir, ...extra],
      {
        env: { ...process.env, ...env },
        stdio: ["ignore", "pipe", "pipe"],
      },
    );
    this.#child = child;
    this.ended = once(child, "exit").then(([code, signal]) => (signal as NodeJS.Signals | null) ?? (code as number));
    child.stderr.setEncoding("utf8").on("data", (text: string) => (this.stderr += text));
    const lines = createInterface({ input: child.stdout });
    const first = await Promise.race([
      once(lines, "line").then(([line]) => line as string),
      once(child, "exit").then(([code]) => {
        throw new Error(`the program ended with ${String(code)}: ${this.stderr}`);
      }),
    ]);
    const ready = JSON.parse(first) as { listening: string; servers: Record<string, string> };
    this.listening = ready.listening;
    this.urls = ready.servers;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** @returns the exit code, or null when the signal ended it */
  async end(signal: NodeJS.Signals = "SIGTERM"): Promise<number | null> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return child?.exitCode ?? null;
    const exited = once(child, "exit") as Promise<[number | null]>;
    child.kill(signal);
    return (await exited)[0];
  }

  async operations(): Promise<ListedOperation[]> {
    const { stdout, stderr, code } = await runHeadless(["operations", "--journal-dir", this.journalDir, "--json"]);
    if (code !== 0) throw new Error(stderr);
    return JSON.parse(stdout) as ListedOperation[];
  }

  async remove(): Promise<void> {
    await this.end();
    this.folder.remove();
  }
}
