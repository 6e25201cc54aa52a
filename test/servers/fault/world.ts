/**
 * Owns: the world behind the fault and SDK test servers: their tools, what a call does, and what each method answers in both eras.
 * Leaves to others: the wire, and losing answers.
 */
import { randomUUID } from "node:crypto";
import { canonicalArguments, Ledger } from "../ledger.ts";
import { hasEffect, type Step } from "./steps.ts";

export type Json = Readonly<Record<string, unknown>>;
export type Era = "2025-11-25" | "2026-07-28";
export type RpcId = string | number;

/** A tool as tools/list shows it. */
export interface FaultTool {
  readonly name: string;
  readonly description?: string;
  readonly inputSchema: { readonly type: "object"; readonly [field: string]: unknown };
  readonly outputSchema?: { readonly type: "object"; readonly [field: string]: unknown };
  readonly annotations?: Json;
  readonly [field: string]: unknown;
}

const text = { type: "string", minLength: 1 } as const;

/**
 * `charge` (no annotations: consequential), `lookup` (read-only), `put` (idempotent), `contradictory` (read-only and destructive),
 * `find_charge` (read-only: the provider's authoritative lookup by idempotency key or account).
 * Tools named `lookup`, `find_…` or `read_…` have no effect, whatever their annotations say; every other tool has one.
 */
export const defaultTools: readonly FaultTool[] = [
  {
    name: "charge",
    description: "Charges an account. With an idempotency key, the same charge is made once.",
    inputSchema: {
      type: "object",
      properties: { account: text, amount: { type: "number" }, idempotencyKey: text, note: { type: "string" } },
      required: ["account", "amount"],
    },
    // A refusal has other fields.
    outputSchema: {
      type: "object",
      properties: { charge: { type: "string" }, account: { type: "string" }, amount: { type: "number" } },
    },
  },
  {
    name: "lookup",
    description: "Looks an item up.",
    inputSchema: { type: "object", properties: { item: text }, required: ["item"] },
    outputSchema: {
      type: "object",
      properties: { item: { type: "string" }, count: { type: "integer" } },
      required: ["item", "count"],
    },
    annotations: { readOnlyHint: true },
  },
  {
    name: "put",
    description: "Stores a value under a key, in place of an earlier one.",
    inputSchema: { type: "object", properties: { key: text, value: { type: "string" } }, required: ["key", "value"] },
    annotations: { idempotentHint: true },
  },
  {
    name: "contradictory",
    description: "Says that it only reads and that it destroys.",
    inputSchema: { type: "object", properties: { item: text }, required: ["item"] },
    annotations: { readOnlyHint: true, destructiveHint: true },
  },
  {
    name: "find_charge",
    description: "Finds a charge by its idempotency key, or the charges of an account.",
    inputSchema: { type: "object", properties: { idempotencyKey: text, account: text } },
    annotations: { readOnlyHint: true },
  },
];

/** The tools with `execution.taskSupport` (2025-11-25: a call may ask for a task). */
export function withTaskSupport(tools: readonly FaultTool[], support: "optional" | "required" = "optional"): FaultTool[] {
  return tools.map((tool) => ({ ...tool, execution: { taskSupport: support } }));
}

export function isReader(tool: string): boolean {
  return /^(lookup$|find_|read_)/.test(tool);
}

/** What a method answers: a result or a JSON-RPC error with its HTTP status. */
export type Reply =
  | { readonly result: Json }
  | { readonly error: { readonly code: number; readonly message: string; readonly data?: unknown }; readonly status?: number };

export interface Request {
  readonly id: RpcId;
  readonly method: string;
  readonly params: Json;
}

interface Task {
  readonly id: string;
  readonly rpcId: RpcId;
  readonly result: Json;
  readonly createdAt: string;
  readonly ends: "completed" | "failed" | "cancelled";
  readonly pollIntervalMs: number;
  readonly ttlMs: number;
  readonly forget: boolean;
  working: number;
  cancelled: boolean;
}

export interface ServerInfo {
  readonly name: string;
  readonly version: string;
  readonly [field: string]: unknown;
}

const legacyVersions = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/** `_meta` keys of the 2026-07-28 envelope. */
export const metaKeys = {
  protocolVersion: "io.modelcontextprotocol/protocolVersion",
  clientInfo: "io.modelcontextprotocol/clientInfo",
  clientCapabilities: "io.modelcontextprotocol/clientCapabilities",
  serverInfo: "io.modelcontextprotocol/serverInfo",
  subscriptionId: "io.modelcontextprotocol/subscriptionId",
  relatedTask: "io.modelcontextprotocol/related-task",
} as const;

const tasksExtension = "io.modelcontextprotocol/tasks";

export function metaOf(params: Json | undefined): Json {
  const meta = params?.["_meta"];
  return typeof meta === "object" && meta !== null ? (meta as Json) : {};
}

function textResult(content: string, structuredContent: Json): Json {
  return { content: [{ type: "text", text: content }], structuredContent };
}

export class FaultWorld {
  readonly ledger: Ledger;
  tools: readonly FaultTool[] = defaultTools;
  serverInfo: ServerInfo = { name: "fault-server", version: "1.0.0" };
  instructions: string | undefined;
  readonly #tasks = new Map<string, Task>();

  constructor(ledger: Ledger) {
    this.ledger = ledger;
  }

  /**
   * Does what a tool does: the effect into the ledger (unless `effect` is false or the tool only reads), then the result.
   * A charge with an idempotency key that was charged before has no second effect; with other arguments it is refused.
   */
  execute(tool: string, callArguments: Json, rpcId: RpcId, effect = true): Json {
    const key = callArguments["idempotencyKey"];
    switch (tool) {
      case "charge": {
        const earlier = typeof key === "string" ? this.ledger.effects({ tool, key }).at(0) : undefined;
        if (earlier !== undefined && canonicalArguments(earlier.arguments) !== canonicalArguments(callArguments)) {
          return {
            content: [{ type: "text", text: "This idempotency key was used with another charge." }],
            structuredContent: { status: 422, code: "key-reused" },
            isError: true,
          };
        }
        if (earlier === undefined && effect) {
          this.ledger.recordEffect({ tool, arguments: callArguments, rpcId, ...(typeof key === "string" ? { key } : {}) });
        }
        const number = typeof key === "string" ? key : `charge-${this.ledger.countEffects({ tool })}`;
        return textResult(`Charged (${number}).`, {
          charge: number,
          account: callArguments["account"],
          amount: callArguments["amount"],
        });
      }
      case "put":
        if (effect) this.ledger.recordEffect({ tool, key: String(callArguments["key"]), arguments: callArguments, rpcId });
        return textResult("Stored.", { key: callArguments["key"] });
      case "lookup":
        return textResult("12 in stock.", { item: callArguments["item"], count: 12 });
      case "find_charge": {
        const charges = this.ledger
          .effects({ tool: "charge" })
          .filter(
            (charge) =>
              (key === undefined || charge.key === key) &&
              (callArguments["account"] === undefined || charge.arguments["account"] === callArguments["account"]),
          )
          .map((charge) => ({ ...charge.arguments, idempotencyKey: charge.arguments["idempotencyKey"] ?? null }));
        const status = charges.length === 0 ? "none" : charges.length === 1 ? "found" : "ambiguous";
        const found = charges.length === 1;
        return textResult(status, { found, status, charge: found ? charges[0] : null, candidates: charges.length });
      }
      default:
        if (effect && !isReader(tool)) this.ledger.recordEffect({ tool, arguments: callArguments, rpcId });
        return textResult("Done.", { done: true });
    }
  }

  /** What a request is answered in an era, with the effect in the ledger. How the answer goes out, or does not, is the wire's. */
  reply(era: Era, request: Request, step: Step): Reply {
    const reply = request.method === "tools/call" ? this.#call(era, request, step) : this.#other(era, request, step);
    if ("error" in reply || era === "2025-11-25") return reply;
    return {
      result: {
        resultType: "complete",
        ...reply.result,
        _meta: { [metaKeys.serverInfo]: this.serverInfo, ...metaOf(reply.result) },
      },
    };
  }

  #call(era: Era, request: Request, step: Step): Reply {
    const name = String(request.params["name"]);
    if (!this.tools.some((tool) => tool.name === name)) return { error: { code: -32602, message: `Unknown tool: ${name}` } };
    const given = request.params["arguments"];
    const callArguments = typeof given === "object" && given !== null ? (given as Json) : {};
    const result = this.execute(name, callArguments, request.id, hasEffect(step));
    if (step.do === "task") return this.#newTask(era, request, result, step);
    return this.#scripted(result, step);
  }

  /** The answer that a step gives instead of the method's own. */
  #scripted(result: Json, step: Step): Reply {
    switch (step.do) {
      case "answer":
        return { result: step.result ?? result };
      case "tool-error":
        return {
          result: {
            content: [{ type: "text", text: step.text ?? "The provider refused." }],
            ...(step.structuredContent === undefined ? {} : { structuredContent: step.structuredContent }),
            isError: true,
          },
        };
      case "error":
        return {
          error: {
            code: step.code,
            message: step.message ?? "Scripted error",
            ...(step.data === undefined ? {} : { data: step.data }),
          },
          ...(step.status === undefined ? {} : { status: step.status }),
        };
      case "bad-output":
        return { result: { content: [{ type: "hologram", data: "?" }], structuredContent: { charge: 42, count: "many" } } };
      case "input-required":
        return {
          result: {
            resultType: "input_required",
            inputRequests: step.inputRequests ?? {
              confirm: {
                method: "elicitation/create",
                params: {
                  mode: "form",
                  message: "Really?",
                  requestedSchema: { type: "object", properties: { yes: { type: "boolean" } }, required: ["yes"] },
                },
              },
            },
            requestState: step.requestState ?? "state-1",
          },
        };
      case "header-mismatch":
        return { error: { code: -32020, message: "The request headers and body disagree" }, status: 400 };
      case "unsupported-version":
        return {
          error: { code: -32022, message: "Unsupported protocol version", data: { supported: step.supported ?? ["2026-07-28"] } },
          status: 400,
        };
      case "hang":
        return step.then === undefined ? { result } : this.#scripted(result, step.then);
      default:
        return { result };
    }
  }

  #newTask(era: Era, request: Request, result: Json, step: Step & { readonly do: "task" }): Reply {
    const task: Task = {
      id: randomUUID(),
      rpcId: request.id,
      result,
      createdAt: new Date().toISOString(),
      ends: step.ends ?? "completed",
      pollIntervalMs: step.pollIntervalMs ?? 10,
      ttlMs: step.ttlMs ?? 3_600_000,
      forget: step.forget ?? false,
      working: step.working ?? 1,
      cancelled: false,
    };
    this.#tasks.set(task.id, task);
    const facts = this.#taskFacts(era, task, "working");
    return { result: era === "2026-07-28" ? { resultType: "task", ...facts } : { task: facts } };
  }

  #taskFacts(era: Era, task: Task, status: string): Json {
    const times = { taskId: task.id, status, createdAt: task.createdAt, lastUpdatedAt: new Date().toISOString() };
    return era === "2026-07-28"
      ? { ...times, ttlMs: task.ttlMs, pollIntervalMs: task.pollIntervalMs }
      : { ...times, ttl: task.ttlMs, pollInterval: task.pollIntervalMs };
  }

  /** The ids of the tasks made so far, in order, with the RPC id of the call that made each. */
  tasks(): { readonly taskId: string; readonly rpcId: RpcId }[] {
    return [...this.#tasks.values()].map((task) => ({ taskId: task.id, rpcId: task.rpcId }));
  }

  #task(era: Era, request: Request): Reply {
    const task = this.#tasks.get(String(request.params["taskId"]));
    if (task === undefined || task.forget) return { error: { code: -32602, message: "Unknown task" } };
    const verb = request.method.slice("tasks/".length);
    if (verb === "cancel") task.cancelled = true;
    const ended = task.cancelled ? "cancelled" : task.ends;
    const failure = { code: -32603, message: "The task failed" };
    if (verb === "result") {
      // The 2025-11-25 form waits for the end of the task: it has ended now.
      task.working = 0;
      if (ended !== "completed") return { error: failure };
      return { result: { ...task.result, _meta: { ...metaOf(task.result), [metaKeys.relatedTask]: { taskId: task.id } } } };
    }
    const status = !task.cancelled && task.working > 0 ? "working" : ended;
    if (verb === "get") task.working -= 1;
    if (era === "2025-11-25") return { result: this.#taskFacts(era, task, status) };
    if (verb !== "get") return { result: {} };
    return {
      result: {
        ...this.#taskFacts(era, task, status),
        ...(status === "completed" ? { result: task.result } : status === "failed" ? { error: failure } : {}),
      },
    };
  }

  #other(era: Era, request: Request, step: Step): Reply {
    const own = this.#ownReply(era, request);
    if (step.do === "error" || step.do === "header-mismatch" || step.do === "unsupported-version")
      return this.#scripted({}, step);
    if (step.do === "answer" && step.result !== undefined) return { result: step.result };
    return own;
  }

  #ownReply(era: Era, request: Request): Reply {
    const modern = era === "2026-07-28";
    const cache = modern ? { ttlMs: 0, cacheScope: "private" } : {};
    const instructions = this.instructions === undefined ? {} : { instructions: this.instructions };
    const unknown: Reply = {
      error: { code: -32601, message: `Method not found: ${request.method}` },
      ...(modern ? { status: 404 } : {}),
    };
    switch (request.method) {
      case "initialize": {
        if (modern) return unknown;
        const wanted = String(request.params["protocolVersion"]);
        return {
          result: {
            protocolVersion: legacyVersions.includes(wanted) ? wanted : legacyVersions[0],
            capabilities: {
              tools: { listChanged: true },
              logging: {},
              tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } },
            },
            serverInfo: this.serverInfo,
            ...instructions,
          },
        };
      }
      case "server/discover":
        if (!modern) return unknown;
        return {
          result: {
            supportedVersions: ["2026-07-28"],
            capabilities: { tools: { listChanged: true }, extensions: { [tasksExtension]: {} } },
            ...cache,
            ...instructions,
          },
        };
      case "tools/list":
        return { result: { tools: this.tools, ...cache } };
      case "ping":
      case "logging/setLevel":
        return modern ? unknown : { result: {} };
      case "tasks/get":
      case "tasks/cancel":
        return this.#task(era, request);
      case "tasks/update":
        return modern ? this.#task(era, request) : unknown;
      case "tasks/result":
        return modern ? unknown : this.#task(era, request);
      case "tasks/list":
        if (modern) return unknown;
        return {
          result: {
            tasks: [...this.#tasks.values()].map((task) =>
              this.#taskFacts(era, task, task.cancelled ? "cancelled" : task.working > 0 ? "working" : task.ends),
            ),
          },
        };
      default:
        return unknown;
    }
  }
}
