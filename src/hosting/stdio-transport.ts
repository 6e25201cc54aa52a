/**
 * Owns: a server process as a `Wire`: one JSON-RPC message per line, and evidence of how far each request got.
 * Leaves to others: starting and ending processes (child-process.ts), starting a new one after the end (server-host.ts).
 * Source: MCP 2025-11-25 "Transports: stdio", MCP 2026-07-28 "stdio".
 */
import type { ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import type { JSONRPCMessage, TransportSendOptions } from "@modelcontextprotocol/client";
import type { Clock } from "../clock.ts";
import { endProcess, startProcess, type ProcessPlan } from "./child-process.ts";
import type { CallObserver } from "./connection.ts";
import type { JsonRpcAnswer, Loss, LossKind } from "./evidence.ts";
import { LossError } from "./hosting-errors.ts";
import { parseJson, type JsonObject, type RpcNotification, type RpcRequest } from "./json-rpc.ts";
import type { Log } from "./log.ts";
import { isModern } from "./modern.ts";
import { Router, type Exchange } from "./router.ts";
import { sendForClient } from "./send-for-client.ts";
import type { ExchangeOptions, Wire } from "./wire.ts";

export interface StdioTransportOptions extends ProcessPlan {
  readonly capabilities: JsonObject;
  readonly clock: Clock;
  readonly log: Log;
  /** Between the polite steps of ending the process, in milliseconds. */
  readonly graceMs?: number;
  /** A line of the process's stderr. */
  readonly stderr: (line: string) => void;
  /** The process ended, or closed a pipe, without having been asked to. Called once. */
  readonly ended: () => void;
}

const defaultGraceMs = 2_000;
/** How long output that was written before the exit may take to be read, in milliseconds. */
const drainMs = 250;
/** How long answers may still come after the process stopped reading, in milliseconds. */
const siblingsMs = 2_000;
/** Characters of one line of stderr that are kept. */
const lineLimit = 2_000;

export class StdioTransport implements Wire {
  readonly kind = "stdio";
  readonly closed: Promise<Loss>;
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: <T extends JSONRPCMessage>(message: T) => void;
  onstray: ((message: JsonObject) => boolean) | undefined;
  onsuspect: (() => void) | undefined;

  readonly #options: StdioTransportOptions;
  readonly #router: Router;
  readonly #settleClosed: (loss: Loss) => void;
  readonly #timers = new Set<() => void>();
  #child: ChildProcess | undefined;
  #starting: Promise<void> | undefined;
  #over = false;
  #closing: Promise<void> | undefined;
  #line: Buffer[] = [];

  constructor(options: StdioTransportOptions) {
    this.#options = options;
    const { promise, resolve } = Promise.withResolvers<Loss>();
    this.closed = promise;
    this.#settleClosed = resolve;
    this.#router = new Router({
      capabilities: options.capabilities,
      log: options.log,
      respond: (answer) => void this.post(answer),
      stray: (message) => this.onstray?.(message) ?? false,
      notification: (message) => this.onmessage?.(message as unknown as JSONRPCMessage),
    });
  }

  get open(): boolean {
    return this.#child !== undefined && !this.#over;
  }

  start(): Promise<void> {
    return (this.#starting ??= this.#start());
  }

  setProtocolVersion(version: string): void {
    this.#router.modern = isModern(version);
  }

  send(message: JSONRPCMessage, options?: TransportSendOptions): Promise<void> {
    return sendForClient(this, message, options);
  }

  exchange(request: RpcRequest, observer: CallObserver, options: ExchangeOptions = {}): Exchange {
    const exchange = this.#router.begin(request.id, observer, options.callerToken);
    const stdin = this.#child?.stdin;
    if (!this.open || !stdin?.writable) {
      exchange.lose("not-connected");
      return exchange;
    }
    // A pipe takes bytes at once or later; from here on nobody can say that none left.
    exchange.raise("sending");
    stdin.write(`${JSON.stringify(request)}\n`, (error) => {
      if (error) exchange.lose("stdin-closed");
      else exchange.raise("sent");
    });
    return exchange;
  }

  post(message: RpcNotification | JsonRpcAnswer): Promise<void> {
    const stdin = this.#child?.stdin;
    if (!this.open || !stdin?.writable) return Promise.resolve();
    const { promise, resolve } = Promise.withResolvers<void>();
    stdin.write(`${JSON.stringify(message)}\n`, () => resolve());
    return promise;
  }

  giveUp(loss: Loss): void {
    if (this.#over) return;
    this.#over = true;
    this.#settleClosed(loss);
    this.onclose?.();
  }

  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    this.giveUp({ kind: "closed-here", stage: "not-sent" });
    this.#router.loseAll("closed-here");
    const child = this.#child;
    if (!child) return;
    await endProcess(child, this.#options.clock, this.#options.graceMs ?? defaultGraceMs);
    for (const stop of this.#timers) stop();
    for (const stream of [child.stdin, child.stdout, child.stderr]) stream?.destroy();
  }

  async #start(): Promise<void> {
    const child = startProcess(this.#options);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    child.once("spawn", () => {
      if (this.#over) {
        reject(new LossError({ kind: "closed-here", stage: "not-sent" }));
        return;
      }
      resolve();
    });
    child.once("error", (error) => {
      this.#options.log("error", `The program could not be started (${(error as NodeJS.ErrnoException).code ?? error.name}).`);
      this.#end("spawn-failed");
      reject(new LossError({ kind: "spawn-failed", stage: "not-sent" }));
    });
    this.#child = child;
    child.stdout?.on("data", (chunk: Buffer) => this.#read(chunk));
    child.stdout?.once("end", () => this.#stdoutEnded(child));
    child.stdout?.on("error", () => this.#stdoutEnded(child));
    child.stdin?.on("error", () => this.#stdinClosed());
    child.once("exit", (code, signal) => {
      this.#options.log("info", `The program ended (${signal ?? `exit code ${code}`}).`);
      // Its last words may still be in the pipe; a grandchild that holds the pipe must not keep callers waiting.
      if (child.stdout?.readableEnded === true) this.#end("process-exit");
      else this.#after(drainMs, () => this.#end("process-exit"));
    });
    if (child.stderr) this.#followStderr(child.stderr);
    return promise;
  }

  #after(ms: number, run: () => void): void {
    const stop = this.#options.clock.after(ms, () => {
      this.#timers.delete(stop);
      run();
    });
    this.#timers.add(stop);
  }

  /** The whole wire is lost: nothing under way can be answered any more. */
  #end(kind: LossKind): void {
    if (this.#line.length > 0) this.#take(Buffer.concat(this.#line));
    this.#line = [];
    if (!this.#closing && kind !== "spawn-failed") this.#options.ended();
    this.#router.loseAll(kind);
    this.giveUp({ kind, stage: "not-sent" });
    void this.close();
  }

  #stdoutEnded(child: ChildProcess): void {
    if (child.exitCode !== null || child.signalCode !== null) {
      this.#end("process-exit");
      return;
    }
    // The end of stdout and the exit arrive in any order: the exit is the better word, if it comes at once.
    const { promise, resolve } = Promise.withResolvers<LossKind>();
    child.once("exit", () => resolve("process-exit"));
    this.#after(drainMs, () => resolve("stdout-closed"));
    void promise.then((kind) => this.#end(kind));
  }

  /** Requests whose write failed are lost already. Answers to earlier ones may still come for a moment. */
  #stdinClosed(): void {
    if (this.#over) return;
    this.giveUp({ kind: "stdin-closed", stage: "not-sent" });
    if (this.#router.exchanges.length === 0) {
      this.#end("stdin-closed");
      return;
    }
    this.#after(siblingsMs, () => this.#end("stdin-closed"));
  }

  #read(chunk: Buffer): void {
    let from = 0;
    for (let newline = chunk.indexOf(10); newline !== -1; newline = chunk.indexOf(10, from)) {
      this.#line.push(chunk.subarray(from, newline));
      const line = this.#line.length === 1 ? this.#line[0] : Buffer.concat(this.#line);
      this.#line = [];
      from = newline + 1;
      if (line) this.#take(line);
    }
    if (from < chunk.length) this.#line.push(chunk.subarray(from));
  }

  #take(line: Buffer): void {
    const text = line.toString("utf8").trim();
    if (text === "") return;
    const value = parseJson(text);
    if (typeof value !== "object" || value === null) {
      this.#options.log("warning", "The program wrote a line to stdout that is no JSON-RPC message; it was ignored.");
      return;
    }
    for (const message of Array.isArray(value) ? value : [value]) this.#router.receive(message);
  }

  #followStderr(stderr: NodeJS.ReadableStream): void {
    createInterface({ input: stderr, crlfDelay: Infinity }).on("line", (line) => this.#options.stderr(line.slice(0, lineLimit)));
  }
}
