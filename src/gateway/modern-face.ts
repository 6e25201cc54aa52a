/**
 * Owns: the gateway as a Streamable HTTP server of protocol version 2026-07-28: every request carries its own envelope, there is no
 * handshake, and a client's disconnect is its cancel signal.
 * Leaves to others: tools/call and its rounds (modern-calls.ts), subscriptions (modern-listen.ts), sockets, tokens and limits (gateway.ts), the
 * older versions (legacy-face.ts), what becomes of a call (src/replay).
 *
 * The SDK decides what belongs to this era (`classifyInboundRequest`). Its server classes are not used: they lift `requestState` and unknown
 * `_meta` out of a request, answer by the vocabulary of one era, and validate results, while a gateway passes on what it does not know.
 * This module alone loads the SDK, and only when the first such request comes.
 */
import { classifyInboundRequest } from "@modelcontextprotocol/server";
import { capabilitiesForModern, errorForModern, metaKeys, modernVersion, paramsFromModern, resultForModern } from "./envelope.ts";
import { Exchange, refuse } from "./exchange.ts";
import { faultOfLoss, reach, shownTools, timeoutFor, type FaceServices } from "./forward.ts";
import { accepted, type AgentRequest } from "./legacy-face.ts";
import { isObject, isRpcId, type ReadBody, type RpcId, type RpcRequest } from "./messages.ts";
import { ModernCalls } from "./modern-calls.ts";
import { paramHeaderMismatch, standardHeaderMismatch } from "./modern-headers.ts";
import { ModernListeners } from "./modern-listen.ts";
import { fail, sayNotification, sayProgress, statusOf } from "./modern-says.ts";
import { respondTo } from "./server-hub.ts";
import { codes, faults, ownResult, resultTexts, toServer, type Fault } from "./texts.ts";

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

export class ModernFace {
  readonly #services: FaceServices;
  readonly #calls: ModernCalls;
  readonly #listeners: ModernListeners;

  constructor(services: FaceServices) {
    this.#services = services;
    this.#calls = new ModernCalls(services);
    this.#listeners = new ModernListeners(services);
  }

  /** Ends standing subscriptions with their result and withdraws open questions. */
  close(): void {
    this.#listeners.close();
    this.#calls.close();
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
      found.hub.server.name,
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
      if (removed.has(method)) return await fail(exchange, id, faults.unsupported(404));
      switch (method) {
        case "server/discover":
          return await this.#discover(agent, exchange, id);
        case "subscriptions/listen": {
          await this.#listeners.serve(agent, exchange, request);
          return;
        }
        case "tools/call":
          return await this.#calls.serve(agent, exchange, request);
        default: {
          await this.#pass(agent, exchange, request);
          return;
        }
      }
    } catch {
      this.#services.log({ level: "error", text: `${agent.hub.server.name}: a request could not be handled` });
      if (method === "tools/call")
        await exchange.answer({ id, result: resultForModern(method, ownResult(resultTexts.failed), undefined) });
      else await fail(exchange, id, faults.internal());
    }
  }

  async #discover(agent: AgentRequest, exchange: Exchange, id: RpcId): Promise<unknown> {
    const remembered = agent.hub.fromMemory();
    const reached = remembered === undefined ? await reach(agent.hub, this.#services) : { connection: remembered };
    if ("fault" in reached) return await fail(exchange, id, reached.fault);
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
    if ("fault" in reached) return await fail(exchange, id, reached.fault);
    const { connection } = reached;
    const { facts } = connection;
    if (taskRequests.has(method) && facts.era === "2025-11-25") return await fail(exchange, id, faults.unsupported(404));
    const controller = new AbortController();
    exchange.onGone(() => controller.abort());
    const entry = await this.#services.requestQueue.enter(client.key, controller.signal);
    if (!entry.entered) {
      return await fail(exchange, id, entry.why === "full" ? faults.busy(this.#services.queueLimit) : faults.notSentCancelled());
    }
    try {
      const ending = await connection.request(method, paramsFromModern(params, facts.era), {
        signal: controller.signal,
        ...timeoutFor(method, this.#services),
        observer: {
          progress: (progress) => sayProgress(exchange, params, progress),
          related: (message) => {
            if (isRpcId(message["id"])) respondTo(connection, message["id"], { error: toServer.unsupported });
            else sayNotification(hub, exchange, params, message);
          },
        },
      });
      if (ending.kind === "loss") return await fail(exchange, id, faultOfLoss(method, ending.loss));
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
}
