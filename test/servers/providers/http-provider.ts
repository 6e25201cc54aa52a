/**
 * Owns: a provider behind an MCP server over Streamable HTTP (2025-11-25, JSON answers, no sessions) in the test's own process; a call can
 * lose its answer after the provider has done its work.
 * Leaves to others: what is booked (provider.ts), the answers (tools.ts).
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { Provider } from "./provider.ts";
import { createdResult, foundResult, tools, type Fields, type Said } from "./tools.ts";

/**
 * What happens to the next create: its answer is lost after the work, its connection is cut while the provider is at work, or the call
 * never reaches the provider.
 */
export type Fault = "lose" | "cut-at-work" | "never-arrives" | "answer";

export interface HttpProvider {
  readonly url: string;
  readonly provider: Provider;
  /** For the next creates, one each; then they are answered. */
  readonly faults: Fault[];
  /** For the next lookups, one each. */
  readonly lookupFaults: ("lose" | "hang" | "forbidden" | "answer")[];
  /** Called when a fault takes a connection away, right before. */
  onFault: () => void;
  said: Said;
  /** `Retry-After` of a 409, in seconds. */
  retryAfter: number | undefined;
  /** The tools/call requests that came in, in order. */
  readonly calls: readonly { readonly rpcId: string | number; readonly tool: string; readonly arguments: Fields }[];
  /** What tools/list answers. */
  tools: readonly Fields[];
  close(): Promise<void>;
}

export async function startHttpProvider(provider: Provider, said: Said = "status"): Promise<HttpProvider> {
  const calls: { rpcId: string | number; tool: string; arguments: Fields }[] = [];
  const sockets = new Set<Socket>();

  function cut(response: ServerResponse): void {
    server.onFault();
    response.destroy();
  }

  async function call(id: string | number, params: Fields, response: ServerResponse): Promise<void> {
    const tool = String(params["name"]);
    const args = (params["arguments"] ?? {}) as Record<string, string>;
    calls.push({ rpcId: id, tool, arguments: args });
    if (tool === "find_booking") {
      const fault = server.lookupFaults.shift() ?? "answer";
      if (fault === "lose") cut(response);
      else if (fault === "forbidden") answer(response, id, { isError: true, content: [{ type: "text", text: "Forbidden." }] });
      else if (fault === "answer") answer(response, id, foundResult(provider, args));
      return;
    }
    const fault = server.faults.shift() ?? "answer";
    if (fault === "never-arrives") {
      cut(response);
      return;
    }
    const creating = provider.create(args, id);
    if (fault === "cut-at-work") cut(response);
    const made = createdResult(await creating, server.said);
    if (fault === "lose") cut(response);
    if (response.destroyed) return;
    if (typeof made === "number") {
      const wait = made === 409 && server.retryAfter !== undefined ? { "retry-after": String(server.retryAfter) } : {};
      response.writeHead(made, { "content-type": "application/json", ...wait }).end(JSON.stringify({ error: { status: made } }));
    } else answer(response, id, made);
  }

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.method !== "POST") return void response.writeHead(request.method === "DELETE" ? 200 : 405).end();
    let text = "";
    for await (const part of request.setEncoding("utf8")) text += part as string;
    const { id, method, params = {} } = JSON.parse(text) as { id?: string | number; method: string; params?: Fields };
    if (id === undefined) return void response.writeHead(202).end();
    switch (method) {
      case "initialize":
        answer(response, id, {
          protocolVersion: "2025-11-25",
          capabilities: { tools: {} },
          serverInfo: { name: "provider", version: "1.0.0" },
        });
        return;
      case "ping":
        answer(response, id, {});
        return;
      case "tools/list":
        answer(response, id, { tools: server.tools });
        return;
      case "tools/call":
        await call(id, params, response);
        return;
      default:
        write(response, { jsonrpc: "2.0", id, error: { code: -32601, message: "Method not found" } });
    }
  }

  const http = createServer((request, response) => {
    handle(request, response).catch(() => response.destroy());
  });
  http.on("connection", (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  const server: HttpProvider = {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
    provider,
    faults: [],
    lookupFaults: [],
    onFault: () => undefined,
    said,
    retryAfter: undefined,
    calls,
    tools,
    async close() {
      for (const socket of sockets) socket.destroy();
      http.close();
      await once(http, "close");
    },
  };
  return server;
}

function answer(response: ServerResponse, id: string | number, result: Fields): void {
  write(response, { jsonrpc: "2.0", id, result });
}

function write(response: ServerResponse, message: Fields): void {
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(message));
}
