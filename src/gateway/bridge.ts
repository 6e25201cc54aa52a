/**
 * Owns: the bridge for clients that only speak stdio: each line that the client writes is one POST to the gateway, each message that comes
 * back is one line. The messages pass as they are, in both eras' framing.
 * Leaves to others: what a message means (the gateway), where the gateway is and what lets in (headless.ts).
 *
 * Nothing is ever sent twice: a request whose answer is lost on the way is answered here, and the gateway's journal has the rest.
 */
import { Agent, request as httpRequest, type ClientRequest, type IncomingMessage } from "node:http";
import type { Readable, Writable } from "node:stream";
import { isObject, objectIn } from "../hosting/json-rpc.ts";
import { mirrorHeaders, paramHeaders } from "../hosting/modern.ts";
import { readSse } from "../hosting/sse.ts";
import { clientHeader } from "./clients.ts";
import { metaKeys } from "./envelope.ts";
import { idKey, isRpcId, type RpcId } from "./messages.ts";
import { codes, ownResult, resultTexts } from "./texts.ts";

export interface BridgeTarget {
  /** A unix socket or a pipe; undefined: TCP. */
  readonly socketPath?: string;
  readonly host?: string;
  readonly port?: number;
  /** The path of the hosted server's URL. */
  readonly path: string;
  readonly token?: string;
}

export interface BridgeOptions {
  readonly target: BridgeTarget;
  /** How this client is named until it says its own name. Unique among running bridges, so that their requests are told apart. */
  readonly name: string;
  readonly input: Readable;
  readonly output: Writable;
  /** Lines without message contents. */
  readonly log: (text: string) => void;
  /** Aborted: end at once. */
  readonly signal?: AbortSignal;
  /** Milliseconds for answers that are under way when the client closes its end. */
  readonly graceMs?: number;
}

interface UnderWay {
  readonly id: RpcId;
  readonly method: string;
  readonly modern: boolean;
  readonly outgoing: ClientRequest;
  /** Its bytes are on the way: what refers to it may follow. */
  readonly sent: Promise<unknown>;
  answered: boolean;
}

type Message = Record<string, unknown>;

/** Waits before the stream of what belongs to no request is asked for again, in milliseconds. */
const streamWaitMs = 1000;

/** Runs until the client closes its end, or stops reading. Never rejects. */
export async function runBridge(options: BridgeOptions): Promise<void> {
  await new Bridge(options).run();
}

class Bridge {
  readonly #options: BridgeOptions;
  readonly #agent = new Agent({ keepAlive: false });
  readonly #underWay = new Map<string, UnderWay>();
  readonly #schemas = new Map<string, unknown>();
  readonly #ended = new AbortController();
  readonly #posts = new Set<Promise<void>>();
  #version: string | undefined;
  #stream: ClientRequest | undefined;
  #streaming = false;
  #drained: Promise<void> = Promise.resolve();

  constructor(options: BridgeOptions) {
    this.#options = options;
  }

  async run(): Promise<void> {
    const { input, output, signal } = this.#options;
    const end = (): void => {
      this.#ended.abort();
      input.destroy();
    };
    signal?.addEventListener("abort", end, { once: true });
    if (signal?.aborted === true) end();
    // A client that stops reading is gone.
    output.on("error", end).on("close", end);
    try {
      for await (const line of lines(input)) await this.#take(line);
    } catch {
      // The client's end broke: the same as closed.
    }
    this.#streaming = false;
    this.#stream?.destroy();
    if (this.#posts.size > 0 && !this.#ended.signal.aborted) {
      const grace = Promise.withResolvers<undefined>();
      const timer = setTimeout(() => grace.resolve(undefined), this.#options.graceMs ?? 2000);
      this.#ended.signal.addEventListener("abort", () => grace.resolve(undefined), { once: true });
      const handedOver = Promise.all(this.#posts).then(() => new Promise<void>((done) => output.write("", () => done())));
      await Promise.race([handedOver, grace.promise]);
      clearTimeout(timer);
    }
    this.#ended.abort();
    for (const { outgoing } of this.#underWay.values()) outgoing.destroy();
    this.#agent.destroy();
  }

  /** Sends one line on. Waits only for what must come before the next one. */
  async #take(line: Buffer): Promise<void> {
    let value: unknown;
    try {
      value = JSON.parse(line.toString("utf8"));
    } catch {
      value = undefined; // the gateway says what is wrong with it
    }
    const message = isObject(value) ? value : undefined;
    const method = typeof message?.["method"] === "string" ? message["method"] : undefined;
    const params = objectIn(message, "params");
    const isModern = typeof objectIn(params, "_meta")?.[metaKeys.protocolVersion] === "string";
    if (method === "notifications/cancelled") {
      const cancelled = this.#find(params?.["requestId"]);
      // In the 2026-07-28 era the end of a request's own stream is its cancellation (Streamable HTTP, "Cancellation").
      if (cancelled?.modern === true) {
        cancelled.answered = true;
        cancelled.outgoing.destroy();
        return;
      }
      await cancelled?.sent;
    }
    const posted = this.#post(line, message, method, isModern);
    this.#posts.add(posted.over);
    void posted.over.finally(() => this.#posts.delete(posted.over));
    // The version that the handshake chose goes with everything after it; notifications keep their place.
    if (method === "initialize" || (method !== undefined && message?.["id"] === undefined)) await posted.over;
    else await posted.flushed;
    if (method === "notifications/initialized" && !this.#streaming) {
      this.#streaming = true;
      void this.#listen();
    }
  }

  #find(id: unknown): UnderWay | undefined {
    return isRpcId(id) ? this.#underWay.get(idKey(id)) : undefined;
  }

  #post(
    line: Buffer,
    message: Message | undefined,
    method: string | undefined,
    modern: boolean,
  ): { readonly flushed: Promise<unknown>; readonly over: Promise<void> } {
    const headers: Record<string, string> = {
      "content-type": "application/json",
      "content-length": String(line.length),
      accept: "application/json, text/event-stream",
      ...(modern && message !== undefined ? this.#mirrored(message) : this.#versionHeader()),
    };
    const outgoing = this.#request("POST", headers);
    const flushed = new Promise<unknown>((done) => outgoing.once("finish", done).once("close", done));
    const responded = new Promise<unknown>((done) => outgoing.once("response", done).once("close", done));
    const id = message?.["id"];
    let entry: UnderWay | undefined;
    if (method !== undefined && isRpcId(id)) {
      // A call's stream opens at once; other requests are answered before they are worth a cancellation.
      const sent = method === "tools/call" ? responded : flushed;
      entry = { id, method, modern, outgoing, sent, answered: false };
      this.#underWay.set(idKey(id), entry);
    }
    const over = this.#answers(outgoing, entry).finally(() => {
      if (entry !== undefined && this.#underWay.get(idKey(entry.id)) === entry) this.#underWay.delete(idKey(entry.id));
    });
    outgoing.end(line);
    return { flushed, over };
  }

  /** Hands on everything that comes back for one POST; what is still owed at the end is answered here. */
  async #answers(outgoing: ClientRequest, entry: UnderWay | undefined): Promise<void> {
    let response: IncomingMessage | undefined;
    const socketHad = { request: false };
    outgoing.once("socket", (socket) => {
      if (socket.connecting) socket.once("connect", () => (socketHad.request = true));
      else socketHad.request = true;
    });
    try {
      response = await new Promise<IncomingMessage>((resolve, reject) =>
        outgoing.once("response", resolve).once("error", reject),
      );
      await this.#read(response, entry);
    } catch {
      response?.destroy();
    }
    if (entry === undefined || entry.answered || this.#ended.signal.aborted) return;
    entry.answered = true;
    this.#options.log(socketHad.request ? "the gateway's answer was lost" : "the gateway cannot be reached");
    await this.#say(lostAnswer(entry, socketHad.request));
  }

  async #read(response: IncomingMessage, entry: UnderWay | undefined): Promise<void> {
    if (response.headers["content-type"]?.startsWith("text/event-stream") === true) {
      await readSse(this.#paced(response), {
        event: ({ type, data }) => {
          if (type === "message") this.#hand(data, entry);
        },
      });
      return;
    }
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString("utf8").trim();
    if (text === "") return;
    if (response.statusCode === 200 || entry === undefined) this.#hand(text, entry);
    else this.#hand(withId(text, entry.id), entry);
    await this.#drained;
  }

  /** Lets the gateway wait while the client does not read. */
  async *#paced(body: AsyncIterable<unknown>): AsyncIterable<Buffer> {
    for await (const chunk of body) {
      yield chunk as Buffer;
      await this.#drained;
    }
  }

  #hand(text: string, entry: UnderWay | undefined): void {
    // A line break in JSON stands between values only: as a blank it changes nothing.
    const line = text.replace(/[\r\n]+/g, " ");
    if (entry !== undefined && !entry.answered) this.#notice(line, entry);
    if (this.#ended.signal.aborted || line.trim() === "") return;
    void this.#write(line);
  }

  #say(message: Message): Promise<void> {
    return this.#write(JSON.stringify({ jsonrpc: "2.0", ...message }));
  }

  #write(line: string): Promise<void> {
    const { output } = this.#options;
    if (output.destroyed || output.write(`${line}\n`)) return this.#drained;
    this.#drained = new Promise((done) => {
      output.once("drain", () => done());
      output.once("close", () => done());
    });
    return this.#drained;
  }

  /** Sees the answer of a request go by. The gateway's own form needs no parsing, which would be dear for a long answer. */
  #notice(line: string, entry: UnderWay): void {
    if (entry.method === "tools/call" && line.startsWith(`{"jsonrpc":"2.0","id":${JSON.stringify(entry.id)},"result":`)) {
      entry.answered = true;
      return;
    }
    let value: unknown;
    try {
      value = JSON.parse(line);
    } catch {
      return;
    }
    if (!isObject(value) || "method" in value || value["id"] !== entry.id) return;
    entry.answered = true;
    const result = objectIn(value, "result");
    if (entry.method === "initialize" && typeof result?.["protocolVersion"] === "string")
      this.#version = result["protocolVersion"];
    const tools = entry.method === "tools/list" ? result?.["tools"] : undefined;
    if (!Array.isArray(tools)) return;
    for (const tool of tools)
      if (isObject(tool) && typeof tool["name"] === "string") this.#schemas.set(tool["name"], tool["inputSchema"]);
  }

  /** The stream of what belongs to no request (2025-11-25, "Listening for Messages from the Server"), asked for again when it drops. */
  async #listen(): Promise<void> {
    while (this.#streaming) {
      const stream = this.#request("GET", { accept: "text/event-stream", ...this.#versionHeader() });
      this.#stream = stream;
      stream.end();
      try {
        const response = await new Promise<IncomingMessage>((resolve, reject) =>
          stream.once("response", resolve).once("error", reject),
        );
        if (response.statusCode === 405) return;
        await this.#read(response, undefined);
      } catch {
        // Asked for again below.
      }
      if (!this.#streaming) return;
      await new Promise<void>((done) => {
        const timer = setTimeout(done, streamWaitMs);
        this.#ended.signal.addEventListener("abort", () => {
          clearTimeout(timer);
          done();
        });
      });
    }
  }

  #versionHeader(): Record<string, string> {
    return this.#version === undefined ? {} : { "mcp-protocol-version": this.#version };
  }

  #mirrored(message: Message): Record<string, string> {
    const params = objectIn(message, "params");
    const method = String(message["method"]);
    const mirrored = mirrorHeaders({ jsonrpc: "2.0", id: 0, method, ...(params === undefined ? {} : { params }) });
    if (method !== "tools/call") return mirrored;
    return { ...mirrored, ...paramHeaders(this.#schemas.get(String(params?.["name"])), params?.["arguments"]) };
  }

  #request(method: "GET" | "POST", headers: Record<string, string>): ClientRequest {
    const { target, name } = this.#options;
    const outgoing = httpRequest({
      agent: this.#agent,
      method,
      path: target.path,
      ...(target.socketPath === undefined ? { host: target.host, port: target.port } : { socketPath: target.socketPath }),
      headers: {
        ...headers,
        "user-agent": "mcp-safe-replay connect",
        [clientHeader]: name,
        ...(target.token === undefined ? {} : { authorization: `Bearer ${target.token}` }),
      },
    });
    outgoing.on("error", () => undefined);
    return outgoing;
  }
}

/** The lines of a stream of bytes, empty ones left out. */
async function* lines(input: Readable): AsyncIterable<Buffer> {
  let parts: Buffer[] = [];
  for await (const chunk of input) {
    let rest = typeof chunk === "string" ? Buffer.from(chunk) : (chunk as Buffer);
    for (let at = rest.indexOf(10); at >= 0; at = rest.indexOf(10)) {
      const line = trimmed(Buffer.concat([...parts, rest.subarray(0, at)]));
      parts = [];
      rest = rest.subarray(at + 1);
      if (line.length > 0) yield line;
    }
    if (rest.length > 0) parts.push(rest);
  }
  const last = trimmed(Buffer.concat(parts));
  if (last.length > 0) yield last;
}

function trimmed(line: Buffer): Buffer {
  return line.at(-1) === 13 ? line.subarray(0, -1) : line;
}

/** A refusal of the whole HTTP request, as the answer to the request that was refused. */
function withId(text: string, id: RpcId): string {
  try {
    const value: unknown = JSON.parse(text);
    if (isObject(value) && isObject(value["error"])) return JSON.stringify({ ...value, id });
  } catch {
    // Said below.
  }
  return JSON.stringify({ jsonrpc: "2.0", id, error: { code: codes.internal, message: "The gateway refused this request." } });
}

function lostAnswer({ id, method, modern }: UnderWay, reached: boolean): Message {
  const text = reached ? resultTexts.bridgeLost : resultTexts.bridgeNotSent;
  if (method !== "tools/call") return { id, error: { code: codes.internal, message: text } };
  return { id, result: { ...ownResult(text), ...(modern ? { resultType: "complete" } : {}) } };
}
