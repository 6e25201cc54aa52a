/**
 * Owns: the test's side of the stdio fault server: how it is started, scripted and let go on, through files in one directory.
 * Leaves to others: the process itself (stdio-fault-server.ts).
 */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { LedgerReader } from "../ledger.ts";
import type { Step } from "./steps.ts";
import type { FaultTool, ServerInfo } from "./world.ts";

/** `script.json`. Counts go over all processes of one ledger: the n-th tools/call takes the n-th step. */
export interface StdioScript {
  /** One for each tools/call; then `byDefault` (default: answered). */
  readonly steps?: readonly Step[];
  readonly byDefault?: Step;
  /** Steps for other methods (also `notifications/…`), one for each request. */
  readonly methods?: Readonly<Record<string, readonly Step[]>>;
  /** Requests of a method that came before its steps begin. */
  readonly after?: Readonly<Record<string, number>>;
  /** `both` (default): answers `server/discover` and `initialize`. */
  readonly era?: "legacy" | "modern" | "both";
  /** What a legacy server does with `server/discover`: an error (default), nothing, or it ends. */
  readonly discover?: "error" | "silent" | "exit";
  /** `crash`: the process ends at once, with a line on stderr. */
  readonly start?: "serve" | "crash";
  readonly tools?: readonly FaultTool[];
  readonly serverInfo?: ServerInfo;
  /** False leaves the ledger's lines to the operating system. */
  readonly sync?: boolean;
}

export interface StdioFaults {
  /** How to start it; to be given to a hosted server's definition or a client's transport. */
  readonly command: string;
  readonly args: readonly string[];
  readonly ledger: LedgerReader;
  /** Replaces fields of the script; works for the next request of a running process. */
  set(changes: StdioScript): void;
  /** Steps for the tools/calls that come from now on, in place of all earlier ones. */
  script(...steps: Step[]): void;
  /** Steps for the requests of another method that come from now on. */
  scriptFor(method: string, ...steps: Step[]): void;
  /** How many calls have come to hang so far, in all processes of the ledger. */
  hung(): number;
  /** Whether a process has closed its stdin as its script said. */
  stdinClosed(): boolean;
  /** Lets so many hanging calls go on, the oldest first (default 1). Calls that a process took with it do not count. */
  release(count?: number): void;
}

function writeJson(directory: string, name: string, value: unknown): void {
  const temporary = join(directory, `${name}.${process.pid}.tmp`);
  writeFileSync(temporary, JSON.stringify(value));
  renameSync(temporary, join(directory, name));
}

/** @param directory for the ledger and the script; made when it is missing */
export function stdioFaults(directory: string, script: StdioScript = {}): StdioFaults {
  mkdirSync(directory, { recursive: true });
  let current = script;
  let releases = 0;
  const ledger = new LedgerReader(directory);
  const set = (changes: StdioScript): void => {
    current = { ...current, ...changes };
    writeJson(directory, "script.json", current);
  };
  set({});
  const seen = (method: string): number => ledger.requests({ method }).length;
  return {
    command: process.execPath,
    args: [fileURLToPath(new URL("stdio-fault-server.ts", import.meta.url)), "--dir", directory],
    ledger,
    set,
    script: (...steps) => set({ steps, after: { ...current.after, "tools/call": seen("tools/call") } }),
    scriptFor: (method, ...steps) =>
      set({ methods: { ...current.methods, [method]: steps }, after: { ...current.after, [method]: seen(method) } }),
    hung() {
      const path = join(directory, "hung.json");
      return existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as { count: number }).count : 0;
    },
    stdinClosed: () => existsSync(join(directory, "stdin-closed")),
    release(count = 1) {
      releases += count;
      writeJson(directory, "release.json", { count: releases });
    },
  };
}
