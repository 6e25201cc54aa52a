/**
 * Owns: a bare agent over the gateway's unix socket: one POST for each request, answers read from JSON or SSE, the gateway's questions
 * answered by a handler; it can cancel a call by notification and walk away from one.
 * Leaves to others: what the gateway makes of it.
 */
import { request as httpRequest, type ClientRequest, type IncomingMessage } from "node:http";
import type { Era, Json } from "../../servers/fault/world.ts";

export type RpcAnswer =
  | { readonly kind: "result"; readonly result: Json; readonly at: number }
  | { readonly kind: "error"; readonly error: { readonly code: number; readonly message: string }; readonly at: number }
  /** The exchange ended without an answer: the agent would hang. */
  | { readonly kind: "nothing"; readonly status: number; readonly at: number };

export interface AgentCall {
  readonly answer: Promise<RpcAnswer>;
  /** Everything else that came on the call's stream. */
  readonly heard: Json[];
  /** Settles when so many keep-alive comments have come. */
  untilComments(count: number): Promise<void>;
  /** `notifications/cancelled`; in the 2026-07-28 era the stream is closed instead. */
  cancel(): Promise<void>;
  /** The agent goes away. */
  disconnect(): void;
}

export interface AgentOptions {
  readonly socket: string;
  readonly path: string;
  readonly name?: string;
  readonly era?: Era;
  /** Answers the gateway's own requests; undefined: the agent has no such capability. */
  readonly asked?: (method: string, params: Json) => Json;
}

export class Agent {
  readonly #options: AgentOptions;
  readonly #era: Era;
  #id = 0;

  constructor(options: AgentOptions) {
    this.#options = options;
    this.#era = options.era ?? "2025-11-25";
  }

  /** 2025-11-25 only: tells what the agent can do. */
  async initialize(): Promise<RpcAnswer> {
    return this.request("initialize", {
      protocolVersion: "2025-11-25",
      capabilities: this.#options.asked === undefined ? {} : { elicitation: {} },
      clientInfo: { name: this.#name, version: "1" },
    }).answer;
  }

  call(tool: string, callArguments: Json, more: Json = {}): AgentCall {
    return this.request("tools/call", { name: tool, arguments: callArguments, ...more });
  }

  get #name(): string {
    return this.#options.name ?? "agent";
  }

  request(method: string, params: Json): AgentCall {
    this.#id += 1;
    const id = this.#id;
    const { promise, resolve } = Promise.withResolvers<RpcAnswer>();
    const heard: Json[] = [];
    const comments = new EventTarget();
    let commentCount = 0;
    const outgoing = this.#post({ jsonrpc: "2.0", id, method, params: this.#withEnvelope(params) }, (response) => {
      void read(
        response,
        (message) => {
          if (message["id"] === id && message["method"] === undefined) {
            const at = performance.now();
            const error = message["error"] as { code: number; message: string } | undefined;
            resolve(
              error === undefined ? { kind: "result", result: message["result"] as Json, at } : { kind: "error", error, at },
            );
          } else if (message["method"] !== undefined && message["id"] !== undefined) this.#answerQuestion(message);
          else heard.push(message);
        },
        () => {
          commentCount += 1;
          comments.dispatchEvent(new Event("comment"));
        },
      ).then(() => resolve({ kind: "nothing", status: response.statusCode ?? 0, at: performance.now() }));
    });
    outgoing.on("error", () => resolve({ kind: "nothing", status: 0, at: performance.now() }));
    return {
      answer: promise,
      heard,
      untilComments: (count) =>
        new Promise((enough) => {
          const look = (): void => {
            if (commentCount >= count) enough();
          };
          comments.addEventListener("comment", look);
          look();
        }),
      cancel: async () => {
        if (this.#era === "2026-07-28") outgoing.destroy();
        else await this.#tell({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: id } });
      },
      disconnect: () => outgoing.destroy(),
    };
  }

  #answerQuestion(question: Json): void {
    const { id, method, params } = question as { id: unknown; method: string; params: Json };
    const { asked } = this.#options;
    const body =
      asked === undefined ? { error: { code: -32601, message: "Method not found" } } : { result: asked(method, params) };
    void this.#tell({ jsonrpc: "2.0", id, ...body });
  }

  #tell(message: Json): Promise<void> {
    return new Promise((resolve) => {
      this.#post(message, (response) => void response.resume().once("close", () => resolve())).on("error", () => resolve());
    });
  }

  #withEnvelope(params: Json): Json {
    if (this.#era === "2025-11-25") return params;
    return {
      ...params,
      _meta: {
        ...(params["_meta"] as Json | undefined),
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { name: this.#name, version: "1" },
        "io.modelcontextprotocol/clientCapabilities": this.#options.asked === undefined ? {} : { elicitation: { form: {} } },
      },
    };
  }

  #post(message: Json, answered: (response: IncomingMessage) => void): ClientRequest {
    const { socket, path } = this.#options;
    const params = message["params"] as Json | undefined;
    const modern = this.#era === "2026-07-28" ? mirrored(message["method"], params) : {};
    const outgoing = httpRequest({
      socketPath: socket,
      path,
      method: "POST",
      agent: false,
      headers: {
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        "mcp-protocol-version": this.#era,
        "user-agent": this.#name,
        ...modern,
      },
    });
    outgoing.once("response", answered);
    outgoing.end(JSON.stringify(message));
    return outgoing;
  }
}

/** Reads a JSON or SSE body; settles at its end, however it comes. */
async function read(response: IncomingMessage, take: (message: Json) => void, comment: () => void): Promise<void> {
  response.setEncoding("utf8");
  const streams = response.headers["content-type"]?.startsWith("text/event-stream") === true;
  let text = "";
  try {
    for await (const chunk of response) {
      text += String(chunk);
      if (!streams) continue;
      const events = text.split("\n\n");
      text = events.pop() ?? "";
      for (const event of events) {
        if (event.startsWith(":")) comment();
        const data = event
          .split("\n")
          .filter((line) => line.startsWith("data:"))
          .map((line) => line.slice(5).trim())
          .join("\n");
        if (data !== "") take(JSON.parse(data) as Json);
      }
    }
    if (!streams && text.trim() !== "") take(JSON.parse(text) as Json);
  } catch {
    // The connection broke: there is no more to read.
  }
}

/** The headers that mirror a 2026-07-28 request. */
function mirrored(method: unknown, params: Json | undefined): Record<string, string> {
  if (typeof method !== "string") return {};
  const name = method === "resources/read" ? params?.["uri"] : params?.["name"];
  const named = method === "tools/call" || method === "prompts/get" || method === "resources/read";
  return { "mcp-method": method, ...(named && typeof name === "string" ? { "mcp-name": name } : {}) };
}
