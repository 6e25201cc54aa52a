/**
 * Owns: running a demo server: a real MCP server on the v1 SDK (protocol up to 2025-11-25) over stdio or Streamable HTTP, its ledger,
 * and losing an answer: on stdio the process ends, on HTTP the socket is destroyed.
 * Leaves to others: the tools (booking.ts, notes.ts, inventory.ts), and which answers are lost (control.ts).
 *
 * Command line: `node booking.ts --ledger DIR [--http PORT]`; instead of `--ledger`, MSR_DEMO_LEDGER. MSR_DEMO_LOSE replaces the mode
 * of the tools that lose answers by default.
 */
import { randomUUID } from "node:crypto";
import { realpathSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import type { RequestHandlerExtra } from "@modelcontextprotocol/sdk/shared/protocol.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import type { CallToolResult, RequestId, ServerNotification, ServerRequest } from "@modelcontextprotocol/sdk/types.js";
import { Ledger } from "../ledger.ts";
import { answerModes, decideAnswer, isAnswerMode, type AnswerMode } from "./control.ts";

export type CallExtra = RequestHandlerExtra<ServerRequest, ServerNotification>;

/** What a demo server's tools work with, one for each connection. */
export interface DemoConnection {
  readonly ledger: Ledger;
  /** Hands out the answer of a call whose effect is made, or loses it, as the tool's mode says. */
  readonly answer: (tool: string, byDefault: AnswerMode, extra: CallExtra, result: CallToolResult) => Promise<CallToolResult>;
}

export interface DemoServer {
  readonly name: string;
  readonly title: string;
  readonly version: string;
  readonly instructions: string;
  /** On HTTP: one JSON body for each answer (a lost answer is then lost before the headers), or an SSE stream (progress is possible). */
  readonly httpAnswers: "json" | "sse";
  register(server: McpServer, connection: DemoConnection): void;
}

/** A text answer with the same facts as structured content. */
export function textResult(text: string, structuredContent?: Record<string, unknown>): CallToolResult {
  return { content: [{ type: "text", text }], ...(structuredContent === undefined ? {} : { structuredContent }) };
}

/** A tool's own refusal or failure. */
export function errorResult(text: string, structuredContent?: Record<string, unknown>): CallToolResult {
  return { ...textResult(text, structuredContent), isError: true };
}

interface Wire {
  readonly transport: Transport;
  /** Cuts the connection on which the answer to this request is awaited. */
  cut(id: RequestId): void;
}

/** Connects one McpServer of a demo to a transport; every message is in the ledger before a tool runs. */
async function serve(demo: DemoServer, ledger: Ledger, defaultMode: AnswerMode | undefined, wire: Wire): Promise<McpServer> {
  const attempts = new Map<RequestId, number>();
  const server = new McpServer(
    { name: demo.name, title: demo.title, version: demo.version },
    { capabilities: { tools: { listChanged: true } }, instructions: demo.instructions },
  );
  demo.register(server, {
    ledger,
    async answer(tool, byDefault, extra, result) {
      const mode = byDefault === "answer" ? byDefault : (defaultMode ?? byDefault);
      const decision = decideAnswer(ledger.directory, tool, mode, attempts.get(extra.requestId) ?? 1);
      if (decision === "answer") return result;
      if (decision === "lose") wire.cut(extra.requestId);
      return new Promise(() => {});
    },
  });
  await server.connect(wire.transport);
  const onmessage = wire.transport.onmessage;
  wire.transport.onmessage = (message, extra) => {
    if ("method" in message) {
      const id = "id" in message ? message.id : undefined;
      const request = ledger.recordRequest({ method: message.method, rpcId: id, params: message.params });
      if (id !== undefined && request.attempt !== undefined) attempts.set(id, request.attempt);
    }
    onmessage?.(message, extra);
  };
  return server;
}

async function serveStdio(demo: DemoServer, ledger: Ledger, defaultMode: AnswerMode | undefined): Promise<void> {
  process.stdin.once("end", () => process.exit(0));
  await serve(demo, ledger, defaultMode, { transport: new StdioServerTransport(), cut: () => process.exit(1) });
}

/** A demo server that listens on a loopback port. */
export interface HttpDemo {
  /** The MCP endpoint. */
  readonly url: string;
  close(): Promise<void>;
}

interface Session {
  readonly transport: StreamableHTTPServerTransport;
  readonly responses: Map<RequestId, ServerResponse>;
}

/**
 * Serves a demo over Streamable HTTP with sessions.
 * @param port 0: any free one
 */
export async function startHttpDemo(
  demo: DemoServer,
  options: { readonly ledger: Ledger; readonly port: number; readonly defaultMode?: AnswerMode | undefined },
): Promise<HttpDemo> {
  const sessions = new Map<string, Session>();

  async function newSession(): Promise<Session> {
    const responses = new Map<RequestId, ServerResponse>();
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      enableJsonResponse: demo.httpAnswers === "json",
      onsessioninitialized: (id) => void sessions.set(id, session),
      onsessionclosed: (id) => void sessions.delete(id),
    });
    const session: Session = { transport, responses };
    await serve(demo, options.ledger, options.defaultMode, {
      // The SDK's class declares its callbacks without `undefined`, which exactOptionalPropertyTypes tells apart.
      transport: transport,
      cut: (id) => responses.get(id)?.destroy(),
    });
    return session;
  }

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // A web page must not reach a server that listens on loopback.
    if (request.headers.origin !== undefined) {
      refuse(response, 403, "No web origins");
      return;
    }
    if (new URL(request.url ?? "/", "http://localhost").pathname !== "/mcp") {
      refuse(response, 404, "The MCP endpoint is /mcp");
      return;
    }
    const body = request.method === "POST" ? await readJson(request) : undefined;
    if (request.method === "POST" && body === undefined) {
      refuse(response, 400, "Not JSON");
      return;
    }
    const sessionId = request.headers["mcp-session-id"];
    const session =
      typeof sessionId === "string" ? sessions.get(sessionId) : request.method === "POST" ? await newSession() : undefined;
    if (session === undefined) {
      if (sessionId === undefined) refuse(response, 400, "Needs a session");
      else refuse(response, 404, "Session not found");
      return;
    }
    for (const message of Array.isArray(body) ? (body as unknown[]) : [body]) {
      const id = (message as { id?: RequestId } | undefined)?.id;
      if (id === undefined) continue;
      session.responses.set(id, response);
      response.once("close", () => session.responses.delete(id));
    }
    await session.transport.handleRequest(request, response, body);
  }

  const http = createServer((request, response) => {
    handle(request, response).catch((error: unknown) => {
      process.stderr.write(`${demo.name}: ${String(error)}\n`);
      response.destroy();
    });
  });
  await new Promise<void>((resolve, reject) => {
    http.once("error", reject);
    http.listen(options.port, "127.0.0.1", resolve);
  });
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
    async close() {
      const closed = new Promise<void>((resolve) => http.close(() => resolve()));
      for (const session of sessions.values()) await session.transport.close();
      http.closeAllConnections();
      await closed;
    },
  };
}

function refuse(response: ServerResponse, status: number, message: string): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify({ jsonrpc: "2.0", error: { code: -32000, message }, id: null }));
}

async function readJson(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  try {
    return JSON.parse(Buffer.concat(chunks).toString("utf8")) as unknown;
  } catch {
    return undefined;
  }
}

class UsageError extends Error {}

/** Runs a demo as a program. On HTTP the first line of stdout is `{"listening":"http://127.0.0.1:PORT/mcp"}`. */
async function run(demo: DemoServer): Promise<void> {
  const { values } = parseArgs({ options: { ledger: { type: "string" }, http: { type: "string" } } });
  const directory = values.ledger ?? process.env.MSR_DEMO_LEDGER;
  if (directory === undefined) throw new UsageError("--ledger DIR (or MSR_DEMO_LEDGER) is needed");
  const mode = process.env.MSR_DEMO_LOSE;
  if (mode !== undefined && !isAnswerMode(mode)) throw new UsageError(`MSR_DEMO_LOSE must be one of ${answerModes.join(", ")}`);
  const ledger = new Ledger(directory, { server: demo.name });
  if (values.http === undefined) return serveStdio(demo, ledger, mode);
  if (!/^\d{1,5}$/.test(values.http)) throw new UsageError("--http needs a port (0: any)");
  const running = await startHttpDemo(demo, { ledger, port: Number(values.http), defaultMode: mode });
  process.stdout.write(`${JSON.stringify({ listening: running.url })}\n`);
  for (const signal of ["SIGINT", "SIGTERM"] as const)
    process.once(signal, () => void running.close().then(() => process.exit(0)));
}

function isProgram(moduleUrl: string | undefined): boolean {
  // A CommonJS bundle has no module URL; it holds one server and is only ever run.
  if (moduleUrl === undefined) return true;
  try {
    return process.argv[1] !== undefined && realpathSync(process.argv[1]) === realpathSync(fileURLToPath(moduleUrl));
  } catch {
    return false;
  }
}

/** Runs the demo when its module is the program that Node was started with; does nothing when it is imported. */
export function runWhenProgram(demo: DemoServer, moduleUrl: string | undefined): void {
  if (!isProgram(moduleUrl)) return;
  run(demo).catch((error: unknown) => {
    process.stderr.write(`${demo.name}: ${error instanceof Error ? error.message : String(error)}\n`);
    process.exit(error instanceof UsageError || (error as { code?: string }).code?.startsWith("ERR_PARSE_ARGS") === true ? 2 : 1);
  });
}
