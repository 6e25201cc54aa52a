/**
 * Owns: the gateway as a Streamable HTTP server of protocol version 2026-07-28: every request carries its own envelope, there is no
 * handshake, and a client's disconnect is its cancel signal.
 * Leaves to others: sockets, tokens and limits (gateway.ts), the older versions (legacy-face.ts), what becomes of a call (src/replay).
 *
 * The SDK decides what belongs to this era (`classifyInboundRequest`). Its server classes are not used: they lift `requestState` and unknown
 * `_meta` out of a request, answer by the vocabulary of one era, and validate results, while a gateway passes on what it does not know.
 * This module alone loads the SDK, and only when the first such request comes.
 */
import { randomBytes } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { classifyInboundRequest } from "@modelcontextprotocol/server";
import type { HostedConnection } from "../hosting/connection.ts";
import type { CallAnswer } from "../replay/calls.ts";
import { callerOf } from "./clients.ts";
import { capabilitiesForModern, errorForModern, metaKeys, modernVersion, paramsFromModern, resultForModern } from "./envelope.ts";
import { errorMessage, Exchange, refuse } from "./exchange.ts";
import { confirm, faultOfLoss, makeCall, reach, readCall, shownTools, timeoutFor, type FaceServices } from "./forward.ts";
import { accepted, type AgentRequest } from "./legacy-face.ts";
import { isObject, isRpcId, type ReadBody, type RpcId, type RpcRequest } from "./messages.ts";
import { paramHeaderMismatch, standardHeaderMismatch } from "./modern-headers.ts";
import { neededCapability, respondTo, type AgentAnswer, type ServerHub, type ServerRequest } from "./server-hub.ts";
import { codes, faults, ownResult, resultTexts, toServer, type Fault } from "./texts.ts";

type Fields = Record<string, unknown>;

/** Spec requests that this era does not have; anything else unknown is a vendor's and goes to the server. */
const removed: ReadonlySet<string> = new Set([
  "initialize",
  "ping",
  "logging/setLevel",
  "resources/subscribe",
  "resources/unsubscribe",
  "tasks/list",
  "tasks/result",
  "sampling/createMessage",
  "elicitation/create",
  "roots/list",
]);
/** Requests of the tasks extension: other names' meaning in 2025-11-25. */
const taskRequests: ReadonlySet<string> = new Set(["tasks/get", "tasks/update", "tasks/cancel"]);

/** Which part of a listen filter lets a notification through. */
const listenKinds: Readonly<Record<string, "toolsListChanged" | "promptsListChanged" | "resourcesListChanged">> = {
  "notifications/tools/list_changed": "toolsListChanged",
  "notifications/prompts/list_changed": "promptsListChanged",
  "notifications/resources/list_changed": "resourcesListChanged",
};

/** How long a call waits for an agent to come back with the input that its server asked for, in milliseconds. */
const inputWaitMs = 15 * 60_000;
const statePrefix = "mcp-safe-replay.";
const severity = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
const maxListenUris = 1000;

/** A question of a 2025-11-25 server's that waits for the agent's next round. */
interface Question {
  readonly method: string;
  readonly params: unknown;
  settle(answer: AgentAnswer): void;
}

/** A call whose agent comes and goes: it is answered with `input_required` and returns with the input. */
interface WaitingCall {
  readonly hub: ServerHub;
  readonly tool: string;
  readonly arguments: Fields;
  readonly questions: Map<string, Question>;
  readonly controller: AbortController;
  /** The agent's present round, if it is here. */
  round: { readonly exchange: Exchange; readonly request: RpcRequest; readonly done: () => void } | undefined;
  answer: CallAnswer | undefined;
  timer: NodeJS.Timeout | undefined;
  asked: number;
}

export class ModernFace {
  readonly #services: FaceServices;
  readonly #waiting = new Map<string, WaitingCall>();
  readonly #standing = new Set<() => void>();
  #listeners = 0;

  constructor(services: FaceServices) {
    this.#services = services;
  }

  /** Ends standing subscriptions with their result and withdraws open questions. */
  close(): void {
    for (const end of [...this.#standing]) end();
    for (const call of this.#waiting.values()) {
      clearTimeout(call.timer);
      for (const question of call.questions.values()) question.settle({ error: toServer.gone });
    }
    this.#waiting.clear();
  }

  /** Serves a POST of this era, or says that it is none. Nothing has run when it is refused. */
  post(agent: AgentRequest, body: ReadBody): "handled" | "legacy" {
    const [message] = body.messages;
    if (body.batch || message === undefined || message.kind === "response") {
      const claims = body.messages.some(
        (one) => one.kind !== "response" && isObject(one.params?.["_meta"]) && metaKeys.protocolVersion in one.params["_meta"],
      );
      if (!claims) return "legacy";
      refuse(agent.response, faults.batchVersion());
      return "handled";
    }
    const id = message.kind === "request" ? message.id : null;
    const header = (name: string) => {
      const value = agent.request.headers[name];
      return typeof value === "string" ? value : undefined;
    };
    const claim = isObject(message.params?.["_meta"]) ? message.params["_meta"][metaKeys.protocolVersion] : undefined;
    if (typeof claim === "string" && claim.length > 64) {
      refuse(agent.response, faults.unsupportedVersion(claim, [modernVersion]), id);
      return "handled";
    }
    const versionHeader = header("mcp-protocol-version");
    const methodHeader = header("mcp-method");
    const outcome = classifyInboundRequest({
      httpMethod: "POST",
      ...(versionHeader === undefined ? {} : { protocolVersionHeader: versionHeader }),
      ...(methodHeader === undefined ? {} : { mcpMethodHeader: methodHeader }),
      body: {
        jsonrpc: "2.0",
        ...(id === null ? {} : { id }),
        method: message.method,
        ...(message.params === undefined ? {} : { params: message.params }),
      },
    });
    if (outcome.kind === "legacy") return "legacy";
    const fault =
      outcome.kind === "reject"
        ? ({
            status: outcome.httpStatus,
            code: outcome.code,
            reason: outcome.code === codes.headerMismatch ? "headers" : "message",
            message: outcome.message.length > 500 ? "The request's envelope is not valid." : outcome.message,
            ...(isObject(outcome.data) ? { data: outcome.data } : {}),
          } satisfies Fault)
        : outcome.classification.revision !== modernVersion
          ? faults.unsupportedVersion(outcome.classification.revision ?? "unknown", [modernVersion])
          : message.kind === "request"
            ? (standardHeaderMismatch(agent.request, message) ??
              paramHeaderMismatch(agent.request, message, agent.hub.server.tools) ??
              (accepted(agent.request.headers.accept) === undefined ? faults.accept() : undefined))
            : undefined;
    if (fault !== undefined) {
      refuse(agent.response, fault, id);
      return "handled";
    }
    if (message.kind === "request") {
      void this.#serve(agent, message);
      return "handled";
    }
    // A client's disconnect is its cancel signal here; a cancellation by notification has no meaning on this binding.
    const connection = agent.hub.server.connection;
    if (message.method !== "notifications/cancelled" && connection?.open === true) {
      connection.notify(message.method, paramsFromModern(message.params, connection.facts.era));
    }
    agent.response.writeHead(202, { "content-length": 0 }).end();
    return "handled";
  }

  async #serve(found: AgentRequest, request: RpcRequest): Promise<unknown> {
    const { id, method, params } = request;
    const envelope = isObject(params?.["_meta"]) ? params["_meta"] : {};
    const client = this.#services.clients.initialized(
      found.request,
      found.client,
      envelope[metaKeys.clientInfo],
      envelope[metaKeys.clientCapabilities],
    );
    const agent: AgentRequest = { ...found, client };
    const accept = accepted(agent.request.headers.accept);
    const listening = method === "subscriptions/listen";
    if (listening && accept?.stream !== true) {
      refuse(agent.response, faults.acceptStream(), id);
      return;
    }
    const exchange = new Exchange(agent.request, agent.response, {
      mode: accept?.stream !== true ? "json" : accept.json ? "auto" : "stream",
      keepAliveMs: this.#services.keepAliveMs,
      answers: 1,
      standing: listening,
    });
    try {
      if (removed.has(method)) return await this.#fail(exchange, id, faults.unsupported(404));
      switch (method) {
        case "server/discover":
          return await this.#discover(agent, exchange, id);
        case "subscriptions/listen": {
          await this.#listen(agent, exchange, request);
          return;
        }
        case "tools/call":
          return await this.#call(agent, exchange, request);
        default: {
          await this.#pass(agent, exchange, request);
          return;
        }
      }
    } catch {
      this.#services.log({ level: "error", text: `${agent.hub.server.name}: a request could not be handled` });
      if (method === "tools/call")
        await exchange.answer({ id, result: resultForModern(method, ownResult(resultTexts.failed), undefined) });
      else await this.#fail(exchange, id, faults.internal());
    }
  }

  #fail(exchange: Exchange, id: RpcId, fault: Fault): Promise<boolean> {
    return exchange.answer({ id, error: errorMessage(id, fault).error }, fault.status);
  }

  async #discover(agent: AgentRequest, exchange: Exchange, id: RpcId): Promise<unknown> {
    const remembered = agent.hub.fromMemory();
    const reached = remembered === undefined ? await reach(agent.hub, this.#services) : { connection: remembered };
    if ("fault" in reached) return await this.#fail(exchange, id, reached.fault);
    const { facts } = reached.connection;
    await exchange.answer({
      id,
      result: {
        resultType: "complete",
        supportedVersions: [modernVersion],
        capabilities: capabilitiesForModern(facts),
        ...(facts.instructions === undefined ? {} : { instructions: facts.instructions }),
        ttlMs: 0,
        cacheScope: "private",
        _meta: { [metaKeys.serverInfo]: facts.serverInfo },
      },
    });
  }

  /** Every request but a tools/call: passed on, its answer passed back. The agent's disconnect cancels it. */
  async #pass(agent: AgentRequest, exchange: Exchange, { id, method, params }: RpcRequest): Promise<unknown> {
    const { hub, client } = agent;
    const remembered = method === "tools/list" ? hub.fromMemory() : undefined;
    if (remembered !== undefined) {
      const result = resultForModern(method, { tools: remembered.tools }, remembered.facts);
      return await exchange.answer({ id, result: shownTools(hub, this.#services, result) });
    }
    const reached = await reach(hub, this.#services);
    if ("fault" in reached) return await this.#fail(exchange, id, reached.fault);
    const { connection } = reached;
    const { facts } = connection;
    if (taskRequests.has(method) && facts.era === "2025-11-25") return await this.#fail(exchange, id, faults.unsupported(404));
    const controller = new AbortController();
    exchange.onGone(() => controller.abort());
    const entry = await this.#services.requestQueue.enter(client.key, controller.signal);
    if (!entry.entered) {
      return await this.#fail(
        exchange,
        id,
        entry.why === "full" ? faults.busy(this.#services.queueLimit) : faults.notSentCancelled(),
      );
    }
    try {
      const ending = await connection.request(method, paramsFromModern(params, facts.era), {
        signal: controller.signal,
        ...timeoutFor(method, this.#services),
        observer: {
          progress: (progress) => this.#progress(exchange, params, progress),
          related: (message) => {
            if (isRpcId(message["id"])) respondTo(connection, message["id"], { error: toServer.unsupported });
            else this.#notified(hub, exchange, params, message);
          },
        },
      });
      if (ending.kind === "loss") return await this.#fail(exchange, id, faultOfLoss(method, ending.loss));
      if ("error" in ending.answer) {
        const { error } = ending.answer;
        const status = ending.httpStatus !== undefined && ending.httpStatus >= 400 ? ending.httpStatus : statusOf(error.code);
        return await exchange.answer({ id, error: errorForModern(error, facts.era) }, status);
      }
      const result = resultForModern(method, ending.answer.result, facts);
      await exchange.answer({ id, result: method === "tools/list" ? shownTools(hub, this.#services, result) : result });
    } finally {
      entry.leave();
    }
  }

  // ── tools/call ───────────────────────────────────────────────────────────────────────────────────

  async #call(agent: AgentRequest, exchange: Exchange, request: RpcRequest): Promise<unknown> {
    const { hub, client } = agent;
    const { id, params } = request;
    const read = readCall(params);
    if ("fault" in read) return await this.#fail(exchange, id, read.fault);
    const state = params?.["requestState"];
    if (typeof state === "string" && state.startsWith(statePrefix)) {
      await this.#comeBack(exchange, request, hub, read, state);
      return;
    }

    const controller = new AbortController();
    const leaving = exchange.onGone(() => controller.abort());
    const entry = await this.#services.callQueue.enter(client.key, controller.signal);
    if (!entry.entered) {
      return await this.#fail(
        exchange,
        id,
        entry.why === "full" ? faults.busy(this.#services.queueLimit) : faults.notSentCancelled(),
      );
    }
    leaving();
    const call: WaitingCall = {
      hub,
      tool: read.tool,
      arguments: read.arguments,
      questions: new Map(),
      controller,
      round: undefined,
      answer: undefined,
      timer: undefined,
      asked: 0,
    };
    const token = `${statePrefix}${randomBytes(24).toString("base64url")}`;
    const over = this.#enterRound(call, exchange, request);
    const done = hub.underWay({
      clientKey: client.key,
      ask: (question, from) => {
        if (call.answer === undefined) void this.#question(call, token, agent, question, from);
      },
    });
    const era = hub.server.connection?.facts.era ?? hub.server.status.era;
    void makeCall(
      {
        server: hub.server.name,
        tool: read.tool,
        arguments: read.arguments,
        params: paramsFromModern(params, era) ?? {},
        caller: callerOf(client, params),
      },
      {
        signal: controller.signal,
        progress: (progress) => {
          if (call.round !== undefined && call.answer === undefined)
            this.#progress(call.round.exchange, call.round.request.params, progress);
        },
        related: (message) => {
          if (call.answer !== undefined) return undefined;
          const { id: theirs, method } = message;
          if (isRpcId(theirs) && typeof method === "string") {
            return this.#question(call, token, agent, { ...message, id: theirs, method }, hub.server.connection);
          }
          if (call.round !== undefined) this.#notified(hub, call.round.exchange, call.round.request.params, message);
          return undefined;
        },
      },
      this.#services,
    ).then((answer) => {
      entry.leave();
      done();
      call.answer = answer;
      for (const question of [...call.questions.values()]) question.settle({ error: toServer.noInput });
      if (call.round !== undefined) void this.#deliver(call, token);
    });
    await over;
  }

  /** The agent is here (again): its leaving cancels the call, until this round is answered. Resolves when the round is over. */
  #enterRound(call: WaitingCall, exchange: Exchange, request: RpcRequest): Promise<void> {
    const over = deferred();
    let stop = (): void => undefined;
    const round = {
      exchange,
      request,
      done: () => {
        stop();
        call.round = undefined;
        over.resolve();
      },
    };
    call.round = round;
    stop = exchange.onGone(() => {
      if (call.round !== round) return;
      round.done();
      call.controller.abort();
    });
    return over.promise;
  }

  async #deliver(call: WaitingCall, token: string): Promise<void> {
    const { round, answer } = call;
    if (round === undefined || answer === undefined) return;
    clearTimeout(call.timer);
    this.#waiting.delete(token);
    round.done();
    const { facts } = call.hub.server.connection ?? {};
    const era = facts?.era ?? call.hub.server.status.era;
    const { id } = round.request;
    const left =
      answer.kind === "result"
        ? await round.exchange.answer({ id, result: resultForModern("tools/call", answer.result, facts) })
        : await round.exchange.answer({ id, error: errorForModern(answer.error, era) }, statusOf(answer.error.code));
    if (left) confirm(answer, this.#services);
  }

  /** A 2025-11-25 server asks something in the middle of the call: this era's agent hears it as the end of a round. */
  #question(
    call: WaitingCall,
    token: string,
    agent: AgentRequest,
    request: ServerRequest,
    connection: HostedConnection | undefined,
  ): Promise<void> {
    const answered = deferred();
    const respond = (answer: AgentAnswer) => {
      respondTo(connection, request.id, answer);
      answered.resolve();
    };
    const need = neededCapability(request.method);
    if (request.method === "ping") respond({ result: {} });
    else if (need === undefined || !isObject(agent.client.capabilities?.[need])) respond({ error: toServer.unsupported });
    else this.#ask(call, token, request, respond);
    return answered.promise;
  }

  #ask(
    call: WaitingCall,
    token: string,
    request: { readonly method: string; readonly params?: unknown },
    respond: (answer: AgentAnswer) => void,
  ): void {
    call.asked += 1;
    const key = `input-${call.asked}`;
    call.questions.set(key, {
      method: request.method,
      params: request.params,
      settle: (answer) => {
        if (call.questions.delete(key)) respond(answer);
      },
    });
    if (call.round !== undefined) void this.#askRound(call, token);
  }

  async #askRound(call: WaitingCall, token: string): Promise<void> {
    const { round } = call;
    if (round === undefined) return;
    round.done();
    this.#waiting.set(token, call);
    clearTimeout(call.timer);
    call.timer = setTimeout(() => this.#giveUp(call, token), inputWaitMs);
    call.timer.unref();
    const inputRequests = Object.fromEntries(
      [...call.questions].map(([key, { method, params }]) => [key, { method, ...(params === undefined ? {} : { params }) }]),
    );
    const left = await round.exchange.answer({
      id: round.request.id,
      result: { resultType: "input_required", inputRequests, requestState: token },
    });
    if (left || call.answer !== undefined) return;
    // The agent left before it could hear the question.
    this.#giveUp(call, token);
    call.controller.abort();
  }

  #giveUp(call: WaitingCall, token: string): void {
    clearTimeout(call.timer);
    this.#waiting.delete(token);
    for (const question of [...call.questions.values()]) question.settle({ error: toServer.noInput });
  }

  /** The agent returns with the input: the same operation goes on, nothing is sent anew. */
  async #comeBack(
    exchange: Exchange,
    request: RpcRequest,
    hub: ServerHub,
    read: { readonly tool: string; readonly arguments: Fields },
    token: string,
  ): Promise<unknown> {
    const { id, params } = request;
    const call = this.#waiting.get(token);
    const same =
      call !== undefined && call.hub === hub && call.tool === read.tool && isDeepStrictEqual(call.arguments, read.arguments);
    if (call === undefined || !same || call.round !== undefined) return await this.#fail(exchange, id, faults.inputState());
    const over = this.#enterRound(call, exchange, request);
    const responses = isObject(params?.["inputResponses"]) ? params["inputResponses"] : {};
    for (const [key, question] of [...call.questions]) {
      const response = Object.hasOwn(responses, key) ? responses[key] : undefined;
      if (isObject(response)) question.settle({ result: response });
    }
    if (call.answer !== undefined) void this.#deliver(call, token);
    else if (call.questions.size > 0) void this.#askRound(call, token);
    else clearTimeout(call.timer);
    await over;
  }

  #progress(exchange: Exchange, params: Fields | undefined, progress: Fields): void {
    const meta = params?.["_meta"];
    const token = isObject(meta) ? meta["progressToken"] : undefined;
    if (token === undefined) return;
    exchange.send(
      { jsonrpc: "2.0", method: "notifications/progress", params: { ...progress, progressToken: token } },
      { droppable: true },
    );
  }

  /** A notification on a request's own stream. This era has progress and, if the request asked for it, log messages there; vendors' pass. */
  #notified(hub: ServerHub, exchange: Exchange, params: Fields | undefined, message: Fields): void {
    const { method } = message;
    if (typeof method !== "string" || method === "notifications/cancelled") return;
    if (hub.announceRelated(message, undefined)) return;
    if (method === "notifications/message") {
      const meta = params?.["_meta"];
      const wanted = isObject(meta) ? severity.indexOf(String(meta[metaKeys.logLevel])) : -1;
      const level = isObject(message["params"]) ? severity.indexOf(String(message["params"]["level"])) : -1;
      if (wanted < 0 || level < wanted) return;
    }
    exchange.send({ ...message, jsonrpc: "2.0" });
  }

  // ── subscriptions/listen ─────────────────────────────────────────────────────────────────────────

  async #listen(agent: AgentRequest, exchange: Exchange, { id, params }: RpcRequest): Promise<unknown> {
    const filter = readFilter(params?.["notifications"]);
    if (filter === undefined)
      return await this.#fail(exchange, id, faults.params("'notifications' must be a subscription filter"));
    const { hub } = agent;
    const reached = await reach(hub, this.#services);
    if ("fault" in reached) return await this.#fail(exchange, id, reached.fault);
    const { connection } = reached;
    const honoured = honour(filter, capabilitiesForModern(connection.facts));
    const stamp = { [metaKeys.subscriptionId]: id };
    const over = deferred();
    const end = () => {
      this.#standing.delete(end);
      void exchange.answer({
        id,
        result: { resultType: "complete", _meta: { ...stamp, [metaKeys.serverInfo]: connection.facts.serverInfo } },
      });
      over.resolve();
    };
    exchange.send({
      jsonrpc: "2.0",
      method: "notifications/subscriptions/acknowledged",
      params: { notifications: honoured, _meta: stamp },
    });
    if (Object.keys(honoured).length === 0) {
      end();
      return;
    }

    const subscriber = `listen-${(this.#listeners += 1)}`;
    const uris = new Set(honoured.resourceSubscriptions ?? []);
    for (const uri of uris) {
      if (hub.subscribe(subscriber, uri) && connection.facts.era === "2025-11-25")
        void connection.request("resources/subscribe", { uri });
    }
    const stop = hub.listen((message) => {
      const { method } = message;
      if (typeof method !== "string") return;
      const kind = Object.hasOwn(listenKinds, method) ? listenKinds[method] : undefined;
      const fields = isObject(message["params"]) ? message["params"] : {};
      const wanted =
        kind === undefined
          ? method === "notifications/resources/updated" && typeof fields["uri"] === "string" && uris.has(fields["uri"])
          : honoured[kind] === true;
      if (!wanted) return;
      exchange.send({
        ...message,
        params: { ...fields, _meta: { ...(isObject(fields["_meta"]) ? fields["_meta"] : {}), ...stamp } },
      });
    });
    this.#standing.add(end);
    exchange.onGone(over.resolve);
    await over.promise;
    stop();
    this.#standing.delete(end);
    for (const uri of uris) {
      const now = hub.server.connection;
      if (hub.unsubscribe(subscriber, uri) && now?.open === true && now.facts.era === "2025-11-25")
        void now.request("resources/unsubscribe", { uri });
    }
  }
}

interface ListenFilter {
  toolsListChanged?: true;
  promptsListChanged?: true;
  resourcesListChanged?: true;
  resourceSubscriptions?: readonly string[];
}

function readFilter(value: unknown): ListenFilter | undefined {
  if (!isObject(value)) return undefined;
  const filter: ListenFilter = {};
  for (const kind of ["toolsListChanged", "promptsListChanged", "resourcesListChanged"] as const) {
    const wanted = Object.hasOwn(value, kind) ? value[kind] : undefined;
    if (wanted !== undefined && typeof wanted !== "boolean") return undefined;
    if (wanted === true) filter[kind] = true;
  }
  const uris = Object.hasOwn(value, "resourceSubscriptions") ? value["resourceSubscriptions"] : undefined;
  if (uris === undefined) return filter;
  if (!Array.isArray(uris) || uris.length > maxListenUris || !uris.every((uri) => typeof uri === "string")) return undefined;
  if (uris.length > 0) filter.resourceSubscriptions = uris;
  return filter;
}

/** The part of a filter that the server's capabilities can serve. */
function honour(filter: ListenFilter, capabilities: Fields): ListenFilter {
  const has = (group: string, field: string) => isObject(capabilities[group]) && capabilities[group][field] === true;
  const honoured: ListenFilter = {};
  if (filter.toolsListChanged && has("tools", "listChanged")) honoured.toolsListChanged = true;
  if (filter.promptsListChanged && has("prompts", "listChanged")) honoured.promptsListChanged = true;
  if (filter.resourcesListChanged && has("resources", "listChanged")) honoured.resourcesListChanged = true;
  if (filter.resourceSubscriptions && has("resources", "subscribe"))
    honoured.resourceSubscriptions = filter.resourceSubscriptions;
  return honoured;
}

/** The HTTP status that this era gives to a JSON-RPC error: an unknown method, a missing client capability; all others are 200. */
function statusOf(code: number): number {
  return code === codes.methodNotFound ? 404 : code === codes.missingClientCapability ? 400 : 200;
}

function deferred(): { promise: Promise<void>; resolve: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { promise, resolve };
}
