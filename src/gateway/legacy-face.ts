/**
 * Owns: the gateway as a Streamable HTTP server for the protocol versions 2024-11-05 to 2025-11-25, without session ids.
 * Leaves to others: sockets, tokens and limits (gateway.ts), 2026-07-28 (modern-face.ts), what becomes of a call (src/replay).
 *
 * VS Code sends a tools/call again when a request with a session id gets 400 or 404, so no session id is ever given, and every refusal
 * comes before anything runs (PLATFORM.md, "VS Code as a client of the gateway"). A disconnect cancels nothing here; `notifications/cancelled`
 * does (2025-11-25, "Streamable HTTP", "Sending Messages to the Server").
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { HostedConnection } from "../hosting/connection.ts";
import { callerOf, type Client } from "./clients.ts";
import {
  assumedVersion,
  batchVersions,
  capabilitiesForLegacy,
  isLegacyVersion,
  legacyVersions,
  paramsFromLegacy,
  resultForLegacy,
} from "./envelope.ts";
import { errorMessage, Exchange, refuse, type ResponseMode } from "./exchange.ts";
import { confirm, faultOfLoss, makeCall, reach, readCall, shownTools, timeoutFor, type FaceServices } from "./forward.ts";
import { isObject, type ReadBody, type RpcId, type RpcNotification, type RpcRequest } from "./messages.ts";
import type { AgentAnswer, Question, ServerHub } from "./server-hub.ts";
import { faults, ownResult, resultTexts, type Fault } from "./texts.ts";

/** One HTTP request of an agent's, its server found and its client known. */
export interface AgentRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly hub: ServerHub;
  readonly client: Client;
}

/** Rounds of `input_required` for one call of an agent that does not know them. */
const maxInputRounds = 10;

/** What the Accept header allows; undefined: nothing that we can give. A missing header means JSON. */
export function accepted(header: string | undefined): { json: boolean; stream: boolean } | undefined {
  if (header === undefined || header.trim() === "") return { json: true, stream: false };
  const types = header
    .split(",")
    .map((part) => part.split(";"))
    .filter((parts) => !parts.slice(1).some((parameter) => /^\s*q\s*=\s*0(\.0{0,3})?\s*$/i.test(parameter)))
    .map((parts) => (parts[0] ?? "").trim().toLowerCase());
  const stream = types.includes("text/event-stream") || types.includes("text/*");
  const json = types.includes("application/json") || types.includes("application/*") || types.includes("*/*");
  return stream || json ? { json, stream } : undefined;
}

export class LegacyFace {
  readonly #services: FaceServices;

  constructor(services: FaceServices) {
    this.#services = services;
  }

  /** A GET: the stream for what belongs to no call. */
  get(agent: AgentRequest): void {
    const fault = this.#versionFault(agent.request);
    if (fault !== undefined) {
      refuse(agent.response, fault);
      return;
    }
    if (accepted(agent.request.headers.accept)?.stream !== true) {
      refuse(agent.response, faults.acceptStream());
      return;
    }
    const exchange = new Exchange(agent.request, agent.response, {
      mode: "stream",
      keepAliveMs: this.#services.keepAliveMs,
      answers: 0,
    });
    if (!exchange.gone) agent.hub.addStream(exchange, agent.client);
  }

  /** A POST: messages that were read in full. Nothing has run when it is refused. */
  post(agent: AgentRequest, body: ReadBody): void {
    const requests = body.messages.filter((message) => message.kind === "request");
    const onlyId = !body.batch ? (requests[0]?.id ?? null) : null;
    const accept = accepted(agent.request.headers.accept);
    const fault =
      this.#versionFault(agent.request) ??
      (body.batch ? this.#batchFault(agent.request, requests) : undefined) ??
      (accept === undefined && requests.length > 0 ? faults.accept() : undefined);
    if (fault !== undefined) {
      refuse(agent.response, fault, onlyId);
      return;
    }

    for (const message of body.messages) {
      if (message.kind === "notification") this.#notified(agent, message);
      else if (message.kind === "response") agent.hub.answered(message);
    }
    if (requests.length === 0) {
      agent.response.writeHead(202, { "content-length": 0 }).end();
      return;
    }
    const mode: ResponseMode =
      accept?.stream !== true
        ? "json"
        : !accept.json || requests.some((request) => request.method === "tools/call")
          ? "stream"
          : "auto";
    const exchange = new Exchange(agent.request, agent.response, {
      mode,
      keepAliveMs: this.#services.keepAliveMs,
      answers: requests.length,
      batch: body.batch,
    });
    for (const request of requests) void this.#serve(agent, exchange, request);
  }

  #versionFault(request: IncomingMessage): Fault | undefined {
    const version = request.headers["mcp-protocol-version"];
    return version === undefined || isLegacyVersion(version) ? undefined : faults.protocolVersion();
  }

  #batchFault(request: IncomingMessage, requests: readonly RpcRequest[]): Fault | undefined {
    const version = request.headers["mcp-protocol-version"] ?? assumedVersion;
    if (!(batchVersions as readonly unknown[]).includes(version)) return faults.batchVersion();
    return requests.some((message) => message.method === "initialize") ? faults.batchInitialize() : undefined;
  }

  #notified(agent: AgentRequest, message: RpcNotification): void {
    switch (message.method) {
      case "notifications/initialized":
        // The server had its own; see initialize.
        return;
      case "notifications/cancelled":
        agent.hub.cancel(agent.client, message.params?.["requestId"], message.params?.["reason"]);
        return;
      default: {
        const connection = agent.hub.server.connection;
        if (connection?.open === true) connection.notify(message.method, message.params);
      }
    }
  }

  async #serve(agent: AgentRequest, exchange: Exchange, request: RpcRequest): Promise<unknown> {
    const { id } = request;
    const fail = (fault: Fault) => exchange.answer({ id, error: errorMessage(id, fault).error });
    try {
      switch (request.method) {
        case "initialize": {
          await this.#initialize(agent, exchange, request);
          return;
        }
        case "ping":
          return await exchange.answer({ id, result: {} });
        case "tools/call":
          return await this.#call(agent, exchange, request);
        case "server/discover":
        case "subscriptions/listen":
          return await fail(faults.unsupported(200)); // of the later era, whatever the server speaks
        default:
          return await this.#pass(agent, exchange, request);
      }
    } catch {
      this.#services.log({ level: "error", text: `${agent.hub.server.name}: a request could not be handled` });
      if (request.method === "tools/call") await exchange.answer({ id, result: ownResult(resultTexts.failed) });
      else await fail(faults.internal());
    }
  }

  /** Answered from what the server said of itself, now or the last time; where nothing is remembered, it is connected for this. */
  async #initialize(agent: AgentRequest, exchange: Exchange, { id, params }: RpcRequest): Promise<unknown> {
    const asked = params?.["protocolVersion"];
    const fail = (fault: Fault) => exchange.answer({ id, error: errorMessage(id, fault).error });
    if (typeof asked !== "string") return await fail(faults.params("'protocolVersion' must be a string"));
    if (params !== undefined && Object.hasOwn(params, "capabilities") && !isObject(params["capabilities"])) {
      return await fail(faults.params("'capabilities' must be an object"));
    }
    const client = this.#services.clients.initialized(
      agent.request,
      agent.client,
      agent.hub.server.name,
      params?.["clientInfo"],
      params?.["capabilities"],
    );
    this.#services.log({ level: "debug", text: `${agent.hub.server.name}: '${client.name}' initialises` });
    const remembered = agent.hub.fromMemory();
    const reached = remembered === undefined ? await reach(agent.hub, this.#services) : { connection: remembered };
    if ("fault" in reached) return await fail(reached.fault);
    const { facts } = reached.connection;
    await exchange.answer({
      id,
      result: {
        protocolVersion: isLegacyVersion(asked) ? asked : legacyVersions[0],
        capabilities: capabilitiesForLegacy(facts),
        serverInfo: facts.serverInfo,
        ...(facts.instructions === undefined ? {} : { instructions: facts.instructions }),
      },
    });
  }

  /** Every request but a tools/call: passed on, its answer passed back. */
  async #pass(agent: AgentRequest, exchange: Exchange, request: RpcRequest): Promise<unknown> {
    const { hub, client } = agent;
    const { id, method } = request;
    const fail = (fault: Fault) => exchange.answer({ id, error: errorMessage(id, fault).error });
    const remembered = method === "tools/list" ? hub.fromMemory() : undefined;
    if (remembered !== undefined) {
      const result = resultForLegacy(method, { tools: remembered.tools }, remembered.facts.era);
      return await exchange.answer({ id, result: shownTools(hub, this.#services, result) });
    }
    const reached = await reach(hub, this.#services);
    if ("fault" in reached) return await fail(reached.fault);
    const { connection } = reached;
    const { era } = connection.facts;
    const here = this.#hereForModern(agent, connection, request);
    if (here !== undefined) return await exchange.answer({ id, result: here });
    const uri = request.params?.["uri"];
    if (method === "resources/unsubscribe" && typeof uri === "string" && !hub.unsubscribe(client.key, uri)) {
      return await exchange.answer({ id, result: {} });
    }

    const controller = new AbortController();
    const questions: Question[] = [];
    const relate = (message: Record<string, unknown>, from: HostedConnection | undefined) => {
      const question = hub.relate(message, { exchange, client }, from);
      if (question !== undefined) questions.push(question);
      return question?.answered;
    };
    const done = hub.underWay({
      clientKey: client.key,
      id,
      cancel: (reason) => controller.abort(reason),
      ask: (question, from) => void relate({ ...question }, from),
    });
    const entry = await this.#services.requestQueue.enter(client.key, controller.signal);
    if (!entry.entered) {
      done();
      return await fail(entry.why === "full" ? faults.busy(this.#services.queueLimit) : faults.notSentCancelled());
    }
    try {
      const ending = await connection.request(method, paramsFromLegacy(request.params, era, client), {
        signal: controller.signal,
        ...timeoutFor(method, this.#services),
        observer: {
          progress: (params) => {
            exchange.send(
              { jsonrpc: "2.0", method: "notifications/progress", params: withToken(params, request) },
              { droppable: true },
            );
          },
          related: (message) => void relate(message, connection),
        },
      });
      if (ending.kind === "loss") return await fail(faultOfLoss(method, ending.loss));
      if ("error" in ending.answer) return await exchange.answer({ id, error: ending.answer.error });
      if (method === "resources/subscribe" && typeof uri === "string") hub.subscribe(client.key, uri);
      const result = resultForLegacy(method, ending.answer.result, era);
      await exchange.answer({ id, result: method === "tools/list" ? shownTools(hub, this.#services, result) : result });
    } finally {
      done();
      entry.leave();
      for (const question of questions) question.withdraw();
    }
  }

  /** Requests that a 2026-07-28 server does not have: the gateway keeps what they say and tells the server in its own way. */
  #hereForModern(
    agent: AgentRequest,
    connection: HostedConnection,
    { method, params }: RpcRequest,
  ): Record<string, unknown> | undefined {
    if (connection.facts.era !== "2026-07-28") return undefined;
    const uri = params?.["uri"];
    if (method === "logging/setLevel") {
      agent.client.logLevel = params?.["level"];
      return {};
    }
    if (method === "resources/subscribe" && typeof uri === "string") {
      agent.hub.subscribe(agent.client.key, uri);
      return {};
    }
    if (method === "resources/unsubscribe" && typeof uri === "string") {
      agent.hub.unsubscribe(agent.client.key, uri);
      return {};
    }
    return undefined;
  }

  async #call(agent: AgentRequest, exchange: Exchange, request: RpcRequest): Promise<unknown> {
    const { hub, client } = agent;
    const { id } = request;
    const read = readCall(request.params);
    const fail = (fault: Fault) => exchange.answer({ id, error: errorMessage(id, fault).error });
    if ("fault" in read) return await fail(read.fault);

    const controller = new AbortController();
    let questions: Question[] = [];
    let over = false;
    const relate = (message: Record<string, unknown>, connection: HostedConnection | undefined) => {
      if (over) return undefined;
      const question = hub.relate(message, { exchange, client }, connection);
      if (question !== undefined) questions.push(question);
      return question?.answered;
    };
    const done = hub.underWay({
      clientKey: client.key,
      id,
      cancel: (reason) => controller.abort(reason),
      ask: (question, connection) => void relate({ ...question }, connection),
    });
    const entry = await this.#services.callQueue.enter(client.key, controller.signal);
    if (!entry.entered) {
      done();
      return await fail(entry.why === "full" ? faults.busy(this.#services.queueLimit) : faults.notSentCancelled());
    }
    const withdrawAll = () => {
      for (const question of questions) question.withdraw();
      questions = [];
    };
    controller.signal.addEventListener("abort", withdrawAll, { once: true });
    try {
      let params = request.params ?? {};
      for (let round = 0; ; round += 1) {
        const era = hub.server.connection?.facts.era ?? hub.server.status.era;
        const answer = await makeCall(
          {
            server: hub.server.name,
            tool: read.tool,
            arguments: read.arguments,
            params: paramsFromLegacy(params, era, client) ?? {},
            caller: callerOf(client, request.params),
            ...(hub.twin ? { hosted: hub.server } : {}),
          },
          {
            signal: controller.signal,
            progress: (progress) => {
              if (over || tokenOf(request) === undefined) return;
              exchange.send(
                { jsonrpc: "2.0", method: "notifications/progress", params: withToken(progress, request) },
                { droppable: true },
              );
            },
            related: (message) => relate(message, hub.server.connection),
          },
          this.#services,
        );
        withdrawAll();
        if (answer.kind === "error") {
          over = true;
          const left = await exchange.answer({ id, error: answer.error });
          if (left && !controller.signal.aborted) confirm(answer, this.#services);
          return;
        }
        if (answer.result["resultType"] !== "input_required") {
          over = true;
          const upstream = hub.server.connection?.facts.era ?? hub.server.status.era;
          const left = await exchange.answer({ id, result: resultForLegacy("tools/call", answer.result, upstream) });
          // An agent that cancelled does not read the answer any more.
          if (left && !controller.signal.aborted) confirm(answer, this.#services);
          return;
        }
        // This face speaks for an agent that does not know `input_required`: it has read that answer, and asks the agent in the agent's own way.
        confirm(answer, this.#services);
        const responses = round < maxInputRounds ? await this.#input(agent, exchange, answer.result, questions) : undefined;
        if (responses === undefined || controller.signal.aborted) {
          over = true;
          const text = round < maxInputRounds ? resultTexts.inputMissing : resultTexts.inputRounds;
          return await exchange.answer({ id, result: ownResult(text) });
        }
        const { inputResponses: _old, requestState: _state, ...rest } = params;
        const state = answer.result["requestState"];
        params = {
          ...rest,
          ...(Object.keys(responses).length === 0 ? {} : { inputResponses: responses }),
          ...(state === undefined ? {} : { requestState: state }),
        };
      }
    } finally {
      over = true;
      done();
      entry.leave();
      withdrawAll();
    }
  }

  /** Puts a 2026-07-28 server's input requests to the agent. Undefined when it did not answer one of them. */
  async #input(
    agent: AgentRequest,
    exchange: Exchange,
    result: Readonly<Record<string, unknown>>,
    questions: Question[],
  ): Promise<Record<string, unknown> | undefined> {
    const requests = isObject(result["inputRequests"]) ? result["inputRequests"] : {};
    const answers = await Promise.all(
      Object.entries(requests).map(async ([key, request]): Promise<[string, AgentAnswer]> => {
        const method = isObject(request) ? request["method"] : undefined;
        if (!isObject(request) || typeof method !== "string") return [key, { error: { code: 0, message: "" } }];
        const answer = await new Promise<AgentAnswer>((resolve) => {
          const withdraw = agent.hub.ask({ method, params: request["params"] }, { exchange, client: agent.client }, resolve);
          questions.push({ withdraw, answered: Promise.resolve() });
        });
        return [key, answer];
      }),
    );
    const responses: Record<string, unknown> = {};
    for (const [key, answer] of answers) {
      if ("error" in answer) return undefined;
      responses[key] = answer.result;
    }
    return responses;
  }
}

function tokenOf(request: RpcRequest): RpcId | undefined {
  const meta = request.params?.["_meta"];
  return isObject(meta) ? (meta["progressToken"] as RpcId | undefined) : undefined;
}

/** Progress carries the agent's own token, whatever the way here made of it. */
function withToken(params: Readonly<Record<string, unknown>>, request: RpcRequest): Record<string, unknown> {
  const token = tokenOf(request);
  return token === undefined ? { ...params } : { ...params, progressToken: token };
}
