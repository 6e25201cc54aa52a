/**
 * Owns: the plainest clients there are, for tests of the servers: one HTTP exchange at a time with what really came over the wire, and a
 * child process spoken to line by line.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { Agent, request as httpRequest, type IncomingHttpHeaders } from "node:http";
import { createInterface } from "node:readline";

export interface Reached {
  /** `complete`: the body ended as announced; `cut`: it did not; `refused`: no response headers at all. */
  readonly end: "complete" | "cut" | "refused";
  readonly status: number | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  readonly errorCode: string | undefined;
}

/** Sends one request and says how the exchange ended. Never rejects. */
export function exchange(
  url: string,
  options: {
    method?: string;
    headers?: Record<string, string>;
    body?: unknown;
    agent?: Agent;
    /** Called with everything that has arrived so far; true ends the exchange from this side. */
    until?: (body: string) => boolean;
  } = {},
): Promise<Reached> {
  const { promise, resolve } = Promise.withResolvers<Reached>();
  const text = options.body === undefined ? undefined : JSON.stringify(options.body);
  let body = "";
  let status: number | undefined;
  let headers: IncomingHttpHeaders = {};
  const outgoing = httpRequest(url, {
    method: options.method ?? (text === undefined ? "GET" : "POST"),
    agent: options.agent ?? new Agent({ keepAlive: false }),
    headers: {
      accept: "application/json, text/event-stream",
      ...(text === undefined ? {} : { "content-type": "application/json", "content-length": String(Buffer.byteLength(text)) }),
      ...options.headers,
    },
  });
  outgoing.on("response", (incoming) => {
    status = incoming.statusCode;
    headers = incoming.headers;
    const finish = (end: Reached["end"], errorCode?: string): void => resolve({ end, status, headers, body, errorCode });
    incoming.setEncoding("utf8");
    incoming.on("data", (chunk: string) => {
      body += chunk;
      if (options.until?.(body) !== true) return;
      finish("complete");
      outgoing.destroy();
    });
    incoming.on("end", () => finish(incoming.complete ? "complete" : "cut"));
    incoming.on("error", (error: NodeJS.ErrnoException) => finish("cut", error.code));
    incoming.on("aborted", () => finish("cut"));
  });
  outgoing.on("error", (error: NodeJS.ErrnoException) =>
    resolve({ end: status === undefined ? "refused" : "cut", status, headers, body, errorCode: error.code }),
  );
  outgoing.end(text);
  return promise;
}

export interface SseEvent {
  readonly id: string | undefined;
  readonly event: string | undefined;
  readonly retry: string | undefined;
  readonly data: string;
}

/** The complete events of an SSE body. */
export function eventsOf(body: string): SseEvent[] {
  return body
    .split("\n\n")
    .slice(0, -1)
    .map((block) => {
      const field = (name: string): string | undefined =>
        block
          .split("\n")
          .find((line) => line.startsWith(`${name}:`))
          ?.slice(name.length + 1)
          .trim();
      return { id: field("id"), event: field("event"), retry: field("retry"), data: field("data") ?? "" };
    });
}

/** The JSON-RPC messages of a body, JSON or SSE. */
export function messagesOf(reached: Reached): Record<string, unknown>[] {
  if (reached.headers["content-type"]?.startsWith("text/event-stream") === true) {
    return eventsOf(reached.body)
      .filter((event) => event.event !== "endpoint" && event.data.startsWith("{"))
      .map((event) => JSON.parse(event.data) as Record<string, unknown>);
  }
  if (reached.body === "") return [];
  const parsed = JSON.parse(reached.body) as Record<string, unknown> | Record<string, unknown>[];
  return Array.isArray(parsed) ? parsed : [parsed];
}

const versionKey = "io.modelcontextprotocol/protocolVersion";

/** A tools/call (or another request) as the 2026-07-28 binding wants it. */
export function modernRequest(
  id: string,
  method: string,
  params: Record<string, unknown> = {},
): { headers: Record<string, string>; body: Record<string, unknown> } {
  const name = params["name"] ?? params["taskId"];
  return {
    headers: {
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": method,
      ...(typeof name === "string" ? { "mcp-name": name } : {}),
    },
    body: {
      jsonrpc: "2.0",
      id,
      method,
      params: {
        ...params,
        _meta: { [versionKey]: "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} },
      },
    },
  };
}

/** A session of the 2025-11-25 binding. */
export async function initialize(url: string): Promise<Record<string, string>> {
  const reached = await exchange(url, {
    body: {
      jsonrpc: "2.0",
      id: "init",
      method: "initialize",
      params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "raw", version: "1" } },
    },
  });
  const sessionId = String(reached.headers["mcp-session-id"]);
  const headers = { "mcp-session-id": sessionId, "mcp-protocol-version": "2025-11-25" };
  await exchange(url, { headers, body: { jsonrpc: "2.0", method: "notifications/initialized" } });
  return headers;
}

/** A child process that is spoken to in JSON lines. */
export class LineProcess {
  readonly child: ChildProcess;
  readonly lines: string[] = [];
  readonly #exit: Promise<number | NodeJS.Signals | null>;
  readonly #stdoutEnded: Promise<void>;
  #waiting: (() => void)[] = [];

  constructor(command: string, args: readonly string[]) {
    this.child = spawn(command, args, { stdio: ["pipe", "pipe", "pipe"] });
    this.#exit = once(this.child, "exit").then(([code, signal]) => (code ?? signal) as number | NodeJS.Signals | null);
    const { stdout, stdin } = this.child;
    if (stdout === null || stdin === null) throw new Error("The child has no pipes");
    stdin.on("error", () => {});
    this.#stdoutEnded = once(stdout, "close").then(() => {});
    createInterface({ input: stdout }).on("line", (line) => {
      this.lines.push(line);
      this.#wake();
    });
    void this.#exit.then(() => this.#wake());
    void this.#stdoutEnded.then(() => this.#wake());
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  send(message: Record<string, unknown>): void {
    this.child.stdin?.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  }

  /** Writes, and says whether it arrived: the code of the error, or "written". */
  write(message: Record<string, unknown>): Promise<string> {
    const { promise, resolve } = Promise.withResolvers<string>();
    this.child.stdin?.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`, (error) =>
      resolve((error as NodeJS.ErrnoException | null | undefined)?.code ?? "written"),
    );
    return promise;
  }

  /** The first line that is the answer to this id. Rejects when stdout ends without it. */
  async answer(id: string): Promise<Record<string, unknown>> {
    let ended = false;
    void this.#stdoutEnded.then(() => (ended = true));
    for (;;) {
      for (const line of this.lines) {
        try {
          const message = JSON.parse(line) as Record<string, unknown>;
          if (message["id"] === id && message["method"] === undefined) return message;
        } catch {
          // Not JSON-RPC.
        }
      }
      if (ended) throw new Error(`stdout ended without the answer to ${id}`);
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  /** Exit code or signal. */
  get exit(): Promise<number | NodeJS.Signals | null> {
    return this.#exit;
  }

  get stdoutEnded(): Promise<void> {
    return this.#stdoutEnded;
  }

  async end(): Promise<void> {
    if (this.child.exitCode === null && this.child.signalCode === null) this.child.kill("SIGKILL");
    await this.#exit;
  }
}
