/**
 * Owns: the answering side of one HTTP request: JSON or an SSE stream, keep-alive, and whether the bytes left for the agent.
 * Leaves to others: what is said (the faces), and what a departed agent means for the operation (src/replay).
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { codes, errorOf, faults, type Fault } from "./texts.ts";
import type { RpcId } from "./messages.ts";

/**
 * `stream`: SSE with its headers at once. `auto`: JSON, unless something has to be said before the answer, or the answer takes longer than
 * one keep-alive. `json`: JSON only (the agent does not take SSE).
 */
export type ResponseMode = "stream" | "auto" | "json";

/** Unsent bytes after which progress is dropped, and after which a stream without an answer to deliver is given up. */
const slowReaderBytes = 1024 * 1024;
const lostReaderBytes = 16 * 1024 * 1024;

export interface ExchangeOptions {
  readonly mode: ResponseMode;
  readonly keepAliveMs: number;
  /** How many answers end it (a batch has several). 0: a stream that only ends when one side leaves. */
  readonly answers: number;
  /** It stands for long and has little to lose: an agent that does not read it is let go. */
  readonly standing?: boolean;
  /** Answers go into an array (JSON) because the request was a batch. */
  readonly batch?: boolean;
}

export class Exchange {
  readonly #response: ServerResponse;
  readonly #mode: ResponseMode;
  readonly #batch: boolean;
  readonly #standing: boolean;
  readonly #collected: string[] = [];
  readonly #onGone = new Set<() => void>();
  readonly #keepAlive: NodeJS.Timeout;
  #missing: number;
  #streaming = false;
  #gone = false;
  #ended = false;

  constructor(request: IncomingMessage, response: ServerResponse, options: ExchangeOptions) {
    this.#response = response;
    this.#mode = options.mode;
    this.#batch = options.batch ?? false;
    this.#missing = options.answers;
    this.#standing = options.standing ?? options.answers === 0;
    const leave = () => {
      clearInterval(this.#keepAlive);
      if (this.#gone || response.writableFinished) return;
      this.#gone = true;
      for (const listener of [...this.#onGone]) listener();
      this.#onGone.clear();
    };
    this.#keepAlive = setInterval(() => this.#tick(), options.keepAliveMs);
    this.#keepAlive.unref();
    response.on("close", leave);
    response.on("error", leave);
    if (request.socket.destroyed || response.destroyed) leave();
    else if (options.mode === "stream") this.openStream();
  }

  /** True once the agent's connection is over before everything was handed to it. */
  get gone(): boolean {
    return this.#gone;
  }

  /** Whether a message other than the answer can reach the agent on this exchange. */
  get canStream(): boolean {
    return !this.#gone && !this.#ended && (this.#streaming || this.#mode !== "json");
  }

  /** Called once when the agent leaves early; at once when it has left already. */
  onGone(listener: () => void): () => void {
    if (this.#gone) {
      listener();
      return () => {};
    }
    this.#onGone.add(listener);
    return () => this.#onGone.delete(listener);
  }

  openStream(): void {
    if (this.#streaming || this.#gone || this.#ended || this.#mode === "json") return;
    this.#streaming = true;
    this.#response.writeHead(200, {
      "content-type": "text/event-stream",
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
    });
    this.#response.flushHeaders();
  }

  /** Says something before the answer: a notification or a request of the server's. False when it cannot reach the agent. */
  send(message: Readonly<Record<string, unknown>>, options: { droppable?: boolean } = {}): boolean {
    if (!this.canStream) return false;
    this.openStream();
    if (options.droppable === true && this.#response.writableLength > slowReaderBytes) return true;
    if (this.#standing && this.#response.writableLength > lostReaderBytes) {
      this.#response.destroy();
      return false;
    }
    const text = serialise(message);
    if (text === undefined) return false;
    this.#response.write(eventOf(text));
    return true;
  }

  /**
   * Gives one answer; the last one ends the exchange.
   * @param status HTTP status, used only when nothing has been sent yet and the exchange has one answer
   * @returns true once the bytes were handed to the agent's connection, false when the agent is gone
   */
  answer(message: { readonly id: RpcId | null; readonly [field: string]: unknown }, status = 200): Promise<boolean> {
    if (this.#gone || this.#ended || this.#missing === 0) return Promise.resolve(false);
    const text = serialise({ jsonrpc: "2.0", ...message }) ?? JSON.stringify(errorMessage(message.id, faults.internal()));
    this.#missing -= 1;
    const last = this.#missing === 0;
    if (this.#streaming || (this.#mode !== "json" && this.#batch)) {
      this.openStream();
      if (last) this.#ended = true;
      return this.#handOver((done) => {
        if (last) this.#response.end(eventOf(text), done);
        else this.#response.write(eventOf(text), done);
      });
    }
    this.#collected.push(text);
    if (!last) return this.#whenFinished();
    this.#ended = true;
    const body = this.#batch ? `[${this.#collected.join(",")}]` : text;
    const finished = this.#handOver((done) => {
      if (!this.#response.headersSent) {
        this.#response.writeHead(status, {
          "content-type": "application/json",
          "content-length": Buffer.byteLength(body),
          "cache-control": "no-store",
        });
      }
      this.#response.end(body, done);
    });
    return finished;
  }

  /** Ends a stream that has no answer. */
  end(): void {
    if (this.#gone || this.#ended) return;
    this.#ended = true;
    this.#response.end();
  }

  #handOver(write: (done: (error?: Error | null) => void) => void): Promise<boolean> {
    return new Promise((resolve) => {
      const stop = this.onGone(() => resolve(false));
      write((error) => {
        stop();
        resolve((error === undefined || error === null) && !this.#gone);
      });
    });
  }

  #whenFinished(): Promise<boolean> {
    return new Promise((resolve) => {
      const stop = this.onGone(() => resolve(false));
      this.#response.once("finish", () => {
        stop();
        resolve(!this.#gone);
      });
    });
  }

  #tick(): void {
    if (this.#gone || this.#ended) return;
    if (this.#mode !== "json") {
      this.openStream();
      if (this.#response.writableLength <= slowReaderBytes) this.#response.write(": keep-alive\n\n");
      return;
    }
    // JSON allows white space before the value: it keeps the connection and the agent's patience alive.
    if (!this.#response.headersSent) {
      this.#response.writeHead(200, { "content-type": "application/json", "cache-control": "no-store" });
    }
    this.#response.write(" ");
  }
}

function eventOf(text: string): string {
  return `event: message\ndata: ${text}\n\n`;
}

function serialise(message: unknown): string | undefined {
  try {
    return JSON.stringify(message);
  } catch {
    // Nested too deep for the serialiser; or longer than a string can be.
    return undefined;
  }
}

/** A JSON-RPC error message. */
export function errorMessage(
  id: RpcId | null,
  fault: Fault,
): { jsonrpc: "2.0"; id: RpcId | null; error: ReturnType<typeof errorOf> } {
  return { jsonrpc: "2.0", id, error: errorOf(fault) };
}

/** Refuses a whole HTTP request. */
export function refuse(
  response: ServerResponse,
  fault: Fault,
  id: RpcId | null = null,
  headers: Record<string, string> = {},
): void {
  if (response.headersSent || response.destroyed) return;
  const body = JSON.stringify(errorMessage(id, fault));
  // A JSON-RPC error about the whole request is still an HTTP refusal, unless the fault belongs to the answer.
  const status = fault.status === 200 && fault.code === codes.parse ? 400 : fault.status;
  response.writeHead(status, {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
    "cache-control": "no-store",
    ...headers,
  });
  response.end(body);
}
