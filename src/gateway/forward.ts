/**
 * Owns: what both faces do alike towards a hosted server: reach it, pass a request on, make a tools/call; and the words for failures.
 * Leaves to others: the shape of each era's answer (the faces), whether a call is sent, replayed or held (src/replay).
 */
import { HostingError, type HostedConnection, type ListedTool } from "../hosting/connection.ts";
import type { Loss } from "../hosting/evidence.ts";
import type { ServerLogLine } from "../hosting/hosted-server.ts";
import type { CallAnswer, CallHooks, CallRequest, Calls } from "../replay/calls.ts";
import { trustNow, type TrustNow, type TrustSource } from "../trust/trust.ts";
import type { Clients } from "./clients.ts";
import type { FairQueue } from "./fair-queue.ts";
import { honestTools } from "./honest-tools.ts";
import { isObject } from "./messages.ts";
import type { ServerHub } from "./server-hub.ts";
import { faults, ownResult, resultTexts, type Fault } from "./texts.ts";

/** What a face needs; one object for all requests. */
export interface FaceServices {
  readonly calls: Pick<Calls, "call">;
  readonly trust: TrustSource;
  readonly clients: Clients;
  readonly keepAliveMs: number;
  /** Milliseconds a passed-on request (not a tools/call) may take; 0: no limit. */
  readonly requestTimeoutMs: number;
  readonly callQueue: FairQueue;
  readonly requestQueue: FairQueue;
  readonly queueLimit: number;
  /** How agents see a tool of this server's. */
  shownTool(server: string, tool: ListedTool): ListedTool;
  log(line: ServerLogLine): void;
}

/** Requests that change nothing at the server, by the specification: asking again is safe. */
const reads: ReadonlySet<string> = new Set([
  "tools/list",
  "prompts/list",
  "prompts/get",
  "resources/list",
  "resources/templates/list",
  "resources/read",
  "completion/complete",
  "tasks/list",
  "tasks/get",
  "tasks/result",
  "server/discover",
  "ping",
]);

/** Requests that wait for something by their nature. */
const waits: ReadonlySet<string> = new Set(["tasks/result", "subscriptions/listen"]);

export function timeoutFor(method: string, services: FaceServices): { timeoutMs?: number } {
  return services.requestTimeoutMs === 0 || waits.has(method) ? {} : { timeoutMs: services.requestTimeoutMs };
}

/** The connection, made on demand; a failure is one clear sentence, and the next request tries again. */
export async function reach(
  hub: ServerHub,
  services: FaceServices,
): Promise<{ connection: HostedConnection } | { fault: Fault }> {
  try {
    return { connection: await hub.server.connect() };
  } catch (error) {
    const kind = error instanceof HostingError ? error.kind : undefined;
    services.log({ level: "warning", text: `${hub.server.name}: cannot be reached (${kind ?? "internal error"})` });
    return { fault: faults.serverUnreachable(hub.server.name, kind) };
  }
}

/** What an agent is told about a passed-on request that was lost. */
export function faultOfLoss(method: string, loss: Loss): Fault {
  if (loss.stage === "not-sent") return faults.notSent();
  return reads.has(method) ? faults.noAnswerRead() : faults.noAnswer();
}

/** Trust in this server as it stands at this moment. */
export function trustOf(hub: ServerHub, services: FaceServices): TrustNow {
  return trustNow(services.trust, hub.server.name, hub.server.fingerprint);
}

/** A tools/list result as agents may see it now. */
export function shownTools(
  hub: ServerHub,
  services: FaceServices,
  result: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  return honestTools(result, trustOf(hub, services), (tool) => services.shownTool(hub.server.name, tool));
}

/** The part of a tools/call's params that must be right before anything is made of it. */
export function readCall(
  params: Record<string, unknown> | undefined,
): { tool: string; arguments: Record<string, unknown> } | { fault: Fault } {
  const name = params?.["name"];
  if (typeof name !== "string" || name === "") return { fault: faults.params("'name' must be the name of a tool") };
  if (name.length > 1024) return { fault: faults.params("'name' is longer than 1024 characters") };
  const args = params !== undefined && Object.hasOwn(params, "arguments") ? params["arguments"] : {};
  if (!isObject(args)) return { fault: faults.params("'arguments' must be an object") };
  return { tool: name, arguments: args };
}

/** Makes a call. A call manager that breaks its promise is no invitation to repeat. */
export async function makeCall(request: CallRequest, hooks: CallHooks, services: FaceServices): Promise<CallAnswer> {
  try {
    return await services.calls.call(request, hooks);
  } catch {
    services.log({ level: "error", text: `${request.server}: the call manager failed` });
    return { kind: "result", result: ownResult(resultTexts.failed), operationId: undefined, delivered: () => {} };
  }
}

/** Tells the call manager that an answer reached its agent; what goes wrong there is not the agent's affair. */
export function confirm(answer: CallAnswer, services: FaceServices): void {
  try {
    answer.delivered();
  } catch {
    services.log({ level: "error", text: "a delivered answer could not be recorded" });
  }
}
