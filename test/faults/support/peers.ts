/**
 * Owns: the fault servers behind one face, so that a cell is written once for every transport: script, ledger, hanging calls, restarts.
 * Leaves to others: the faults themselves (test/servers/fault).
 */
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ServerDefinition } from "../../../src/hosting/definitions.ts";
import { startHttpFaultServer, type HttpBinding, type HttpFaultServer } from "../../servers/fault/http-fault-server.ts";
import { stdioFaults, type StdioFaults } from "../../servers/fault/stdio-faults.ts";
import type { Step } from "../../servers/fault/steps.ts";
import { defaultTools, type Era, type FaultTool, type ServerInfo } from "../../servers/fault/world.ts";
import type { LedgerReader, RequestEntry } from "../../servers/ledger.ts";

/** Hundreds of processes of the same program: compiled once. */
export const compileCache = join(tmpdir(), "msr-compile-cache");

/** The columns of the matrix. `stdio`: 2025-11-25 over stdio, `stdio-modern`: 2026-07-28. */
export const transports = [
  "stdio",
  "stdio-modern",
  "http-json",
  "http-sse-ids",
  "http-sse",
  "modern-json",
  "modern-sse",
  "sse-2024",
] as const;
export type Transport = (typeof transports)[number];

export function isStdio(transport: Transport): transport is "stdio" | "stdio-modern" {
  return transport === "stdio" || transport === "stdio-modern";
}

export function eraOf(transport: Transport): Era {
  return transport.includes("modern") ? "2026-07-28" : "2025-11-25";
}

/** How an answer is commonly lost there, after the effect, with nothing to recover it by. */
export function plainLoss(transport: Transport): Step {
  switch (transport) {
    case "stdio":
    case "stdio-modern":
      return { do: "exit" };
    case "http-json":
    case "modern-json":
      return { do: "reset" };
    case "http-sse-ids":
      return { do: "stream-end", after: "headers" };
    case "http-sse":
    case "modern-sse":
    case "sse-2024":
      return { do: "stream-end" };
  }
}

export interface PeerOptions {
  readonly tools?: readonly FaultTool[];
  /** Default: the ledger's lines are left to the operating system (no process of an HTTP peer is killed). */
  readonly sync?: boolean;
  readonly withoutGetStream?: boolean;
}

export class Peer {
  readonly transport: Transport;
  readonly era: Era;
  readonly ledger: LedgerReader;
  readonly definition: ServerDefinition;
  /** Undefined on stdio. */
  readonly http: HttpFaultServer | undefined;
  /** Undefined on HTTP. */
  readonly stdio: StdioFaults | undefined;

  private constructor(transport: Transport, http: HttpFaultServer | undefined, stdio: StdioFaults | undefined) {
    this.transport = transport;
    this.era = eraOf(transport);
    this.http = http;
    this.stdio = stdio;
    if (http !== undefined) {
      this.ledger = http.ledger;
      this.definition = { type: transport === "sse-2024" ? "sse" : "http", url: http.url, headers: {} };
    } else if (stdio !== undefined) {
      this.ledger = stdio.ledger;
      this.definition = {
        type: "stdio",
        command: stdio.command,
        args: stdio.args,
        env: { NODE_COMPILE_CACHE: compileCache },
      };
    } else throw new Error("a peer is HTTP or stdio");
  }

  static async start(transport: Transport, directory: string, options: PeerOptions = {}): Promise<Peer> {
    const { tools = defaultTools, sync = false } = options;
    if (isStdio(transport)) {
      const era = transport === "stdio" ? "legacy" : "modern";
      return new Peer(transport, undefined, stdioFaults(directory, { era, tools, sync }));
    }
    const withoutGetStream = options.withoutGetStream ?? false;
    const http = await startHttpFaultServer({ binding: bindingOf(transport), ledger: directory, tools, sync, withoutGetStream });
    return new Peer(transport, http, undefined);
  }

  /** Steps for the next tools/calls. */
  script(...steps: Step[]): void {
    if (this.http !== undefined) this.http.script(...steps);
    else this.stdio?.script(...steps);
  }

  /** Steps for the next requests of another method. */
  scriptFor(method: string, ...steps: Step[]): void {
    if (this.http !== undefined) this.http.scriptFor(method, ...steps);
    else this.stdio?.scriptFor(method, ...steps);
  }

  /** What happens to a tools/call that has no step. */
  byDefault(step: Step): void {
    if (this.http !== undefined) this.http.byDefault(step);
    else this.stdio?.set({ byDefault: step });
  }

  /** Changes what the next tools/list shows; tells nobody. */
  setTools(tools: readonly FaultTool[]): void {
    if (this.http !== undefined) this.http.setTools(tools);
    else this.stdio?.set({ tools });
  }

  setServerInfo(serverInfo: ServerInfo): void {
    if (this.http !== undefined) this.http.setServerInfo(serverInfo);
    else this.stdio?.set({ serverInfo });
  }

  /** Lets hanging calls go on, the oldest first. */
  release(count = 1): void {
    if (this.http !== undefined) this.http.release(count);
    else this.stdio?.release(count);
  }

  requests(method?: string): RequestEntry[] {
    return this.ledger.requests(method === undefined ? {} : { method });
  }

  /** Settles when so many requests of a method have arrived, in the whole life of the ledger. */
  untilRequests(method: string, count: number): Promise<void> {
    return this.#until(() => this.ledger.requests({ method }).length >= count);
  }

  /** How many requests have come to hang: on HTTP those that hang now, on stdio all so far. */
  get hanging(): number {
    return this.http?.hanging ?? this.stdio?.hung() ?? 0;
  }

  /** Settles when so many hang, counted as `hanging` counts them. */
  untilHanging(count: number): Promise<void> {
    return this.#until(() => this.hanging >= count);
  }

  #until(condition: () => boolean): Promise<void> {
    return this.http !== undefined ? this.http.until(condition, longMs) : this.ledger.until(condition, longMs);
  }

  async close(): Promise<void> {
    await this.http?.close();
  }
}

/** Only an end to a test that has gone wrong. */
const longMs = 60_000;

function bindingOf(transport: Exclude<Transport, "stdio" | "stdio-modern">): HttpBinding {
  return transport;
}
