/**
 * Owns: tools/call for agents of protocol version 2026-07-28, and its rounds: what a 2025-11-25 server asks in the middle of a call is this
 * agent's `input_required`, and the same operation goes on when it comes back.
 * Leaves to others: every other request (modern-face.ts), what becomes of a call (src/replay).
 */
import { randomBytes } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import type { HostedConnection } from "../hosting/connection.ts";
import type { CallAnswer } from "../replay/calls.ts";
import { callerOf } from "./clients.ts";
import { errorForModern, paramsFromModern, resultForModern, without } from "./envelope.ts";
import type { Exchange } from "./exchange.ts";
import { confirm, makeCall, readCall, type FaceServices } from "./forward.ts";
import type { AgentRequest } from "./legacy-face.ts";
import { isObject, isRpcId, type RpcRequest } from "./messages.ts";
import { fail, sayNotification, sayProgress, statusOf } from "./modern-says.ts";
import { neededCapability, respondTo, type AgentAnswer, type ServerHub, type ServerRequest } from "./server-hub.ts";
import { faults, toServer } from "./texts.ts";

type Fields = Record<string, unknown>;

/** How long a call waits for an agent to come back with the input that its server asked for, in milliseconds. */
const inputWaitMs = 15 * 60_000;
const statePrefix = "mcp-safe-replay.";
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

export class ModernCalls {
  readonly #services: FaceServices;
  readonly #waiting = new Map<string, WaitingCall>();

  constructor(services: FaceServices) {
    this.#services = services;
  }

  /** Withdraws open questions. */
  close(): void {
    for (const call of this.#waiting.values()) {
      clearTimeout(call.timer);
      for (const question of call.questions.values()) question.settle({ error: toServer.gone });
    }
    this.#waiting.clear();
  }

  /** Serves a tools/call, or a further round of one. */
  async serve(agent: AgentRequest, exchange: Exchange, request: RpcRequest): Promise<unknown> {
    const { hub, client } = agent;
    const { id, params } = request;
    const read = readCall(params);
    if ("fault" in read) return await fail(exchange, id, read.fault);
    const state = params?.["requestState"];
    if (typeof state === "string" && state.startsWith(statePrefix)) {
      await this.#comeBack(exchange, request, hub, read, state);
      return;
    }

    const controller = new AbortController();
    const leaving = exchange.onGone(() => controller.abort());
    const entry = await this.#services.callQueue.enter(client.key, controller.signal);
    if (!entry.entered) {
      return await fail(exchange, id, entry.why === "full" ? faults.busy(this.#services.queueLimit) : faults.notSentCancelled());
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
            sayProgress(call.round.exchange, call.round.request.params, progress);
        },
        related: (message) => {
          if (call.answer !== undefined) return undefined;
          const { id: theirs, method } = message;
          if (isRpcId(theirs) && typeof method === "string") {
            return this.#question(call, token, agent, { ...message, id: theirs, method }, hub.server.connection);
          }
          if (call.round !== undefined) sayNotification(hub, call.round.exchange, call.round.request.params, message);
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
      [...call.questions].map(([key, { method, params }]) => {
        const asked = withoutProgressToken(params);
        return [key, { method, ...(asked === undefined ? {} : { params: asked }) }];
      }),
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
    if (call === undefined || !same || call.round !== undefined) return await fail(exchange, id, faults.inputState());
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
}

/** Between rounds there is no stream on which a question's progress could be told: its token would mean nothing here. */
function withoutProgressToken(params: unknown): unknown {
  if (!isObject(params) || !isObject(params["_meta"])) return params;
  const { _meta, ...rest } = params;
  const kept = without(_meta, ["progressToken"]);
  if (Object.keys(kept).length > 0) return { ...rest, _meta: kept };
  return Object.keys(rest).length > 0 ? rest : undefined;
}

function deferred(): { promise: Promise<void>; resolve: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { promise, resolve };
}
