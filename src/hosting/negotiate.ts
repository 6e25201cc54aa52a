/**
 * Owns: making a connection: which transport and which protocol era, found out with `server/discover` and never with a tool.
 * Leaves to others: when to connect, and what to do when it fails (server-host.ts).
 * Source: MCP 2026-07-28 "Versioning", and "Backward Compatibility" of stdio and Streamable HTTP; MCP 2025-11-25 "Transports:
 * Backwards Compatibility".
 */
import { randomUUID } from "node:crypto";
import {
  Client,
  isSpecType,
  SdkError,
  SdkErrorCode,
  SERVER_INFO_META_KEY,
  SUPPORTED_PROTOCOL_VERSIONS,
  type DiscoverResult,
} from "@modelcontextprotocol/client";
import type { Clock } from "../clock.ts";
import type { ServerAuthorisation } from "./auth/server-authorisation.ts";
import { HostingError, type ServerFacts } from "./connection.ts";
import { withSecrets, type ServerDefinition } from "./definitions.ts";
import type { Ending, Era, Loss } from "./evidence.ts";
import { errorOf, LossError } from "./hosting-errors.ts";
import { HttpTransport } from "./http-transport.ts";
import { isObject, objectIn, rpcErrors, type JsonObject } from "./json-rpc.ts";
import type { Log } from "./log.ts";
import { modernVersion, withEnvelope, type ClientInfo } from "./modern.ts";
import { SseTransport } from "./sse-transport.ts";
import { StdioTransport } from "./stdio-transport.ts";
import type { Wire } from "./wire.ts";

/** Remembers the era of a definition (by its fingerprint) across connections and starts. */
export interface EraStore {
  get(fingerprint: string): Era | undefined;
  set(fingerprint: string, era: Era): void;
  /**
   * The era to try first with a program that may speak both, whatever it spoke last: one process speaks one era. A program that refuses it
   * is started again and asked.
   */
  preferred?(fingerprint: string): Era | undefined;
}

/** Milliseconds. */
export interface ConnectLimits {
  /** How long a process may stay silent on `server/discover` before it is taken for a legacy server. */
  readonly probe: number;
  /** How long a server may take to answer one step of the handshake (a program may have to be downloaded first). */
  readonly handshake: number;
  /** How long a TCP and TLS connection may take. */
  readonly connect: number;
  /** Between the polite steps of ending a process. */
  readonly grace: number;
}

export const defaultLimits: ConnectLimits = { probe: 5_000, handshake: 60_000, connect: 10_000, grace: 2_000 };

export interface NegotiationParts {
  readonly definition: ServerDefinition;
  readonly fingerprint: string;
  readonly clientInfo: ClientInfo;
  /** The client capabilities to declare. */
  readonly capabilities: JsonObject;
  readonly eraStore: EraStore;
  readonly clock: Clock;
  readonly random: () => number;
  readonly log: Log;
  readonly limits: ConnectLimits;
  /** Of a remote server; without it, a challenge is a failure. */
  readonly authorisation?: ServerAuthorisation | undefined;
  /** A line of a process's stderr. */
  readonly stderr: (line: string) => void;
  /** A process ended without having been asked to, at whatever moment. */
  readonly processEnded: () => void;
}

/** A wire on which the handshake is done, and the SDK's client that did it. */
export interface Negotiated {
  readonly wire: Wire;
  readonly client: Client;
  readonly facts: ServerFacts;
}

/**
 * One way to try. `era` undefined: ask. `remembered`: the era comes from the store and may be out of date. `preferred`: it is a wish, of
 * which nothing is known yet. `unasked`: the process before this one ended instead of an answer. `legacyRefused`: a process of this
 * program has refused the older era.
 */
interface Plan {
  readonly transport: ServerDefinition["type"];
  readonly era: Era | undefined;
  readonly remembered?: boolean;
  readonly preferred?: boolean;
  readonly unasked?: boolean;
  readonly legacyRefused?: boolean;
}

/** A failed try: what to say of it, and the way to go on, if there is one. */
class Failed extends Error {
  readonly error: HostingError;
  readonly next: Plan | undefined;
  constructor(error: HostingError, next?: Plan) {
    super(error.message);
    this.error = error;
    this.next = next;
  }
}

/**
 * Makes a connection; a challenge that is settled without a person leads to one more try. Rejects with `HostingError`; no process, socket or timer of a failed try is left then.
 * @param signal aborted: give up
 */
export async function negotiate(parts: NegotiationParts, signal: AbortSignal): Promise<Negotiated> {
  try {
    return await negotiateOnce(parts, signal);
  } catch (error) {
    const challenged = error instanceof HostingError && error.kind === "unauthorised";
    if (!challenged || (await parts.authorisation?.settle(error.challenge)) !== "retry") throw error;
    return negotiateOnce(parts, signal);
  }
}

async function negotiateOnce(parts: NegotiationParts, signal: AbortSignal): Promise<Negotiated> {
  const type = parts.definition.type;
  const known = parts.eraStore.get(parts.fingerprint);
  const preferred = type === "stdio" ? parts.eraStore.preferred?.(parts.fingerprint) : undefined;
  let plan: Plan =
    type === "sse"
      ? { transport: "sse", era: "2025-11-25" }
      : preferred !== undefined && preferred !== known
        ? { transport: type, era: preferred, preferred: true }
        : { transport: type, era: known, remembered: known !== undefined };
  let first: HostingError | undefined;
  for (;;) {
    try {
      const negotiated = await follow(plan, parts, signal);
      parts.eraStore.set(parts.fingerprint, negotiated.facts.era);
      return negotiated;
    } catch (reason) {
      if (signal.aborted) throw new HostingError("closed-here", "The connection was given up on this side.");
      if (!(reason instanceof Failed)) throw reason;
      // The old transport is a last resort: when it is not there either, the first refusal is the one that helps a person.
      first ??= reason.error;
      if (!reason.next) throw plan.transport === "sse" && type !== "sse" ? first : reason.error;
      plan = reason.next;
    }
  }
}

async function follow(plan: Plan, parts: NegotiationParts, signal: AbortSignal): Promise<Negotiated> {
  const wire = openWire(plan.transport, parts);
  const close = (): void => void wire.close();
  signal.addEventListener("abort", close, { once: true });
  try {
    signal.throwIfAborted();
    await wire.start().catch((error: unknown) => Promise.reject(new Failed(failureOf(error))));
    const probe = plan.era === "2025-11-25" ? undefined : await discover(wire, plan, parts);
    if (probe?.kind === "modern") return await connectModern(wire, probe.discovered, parts);
    return await connectLegacy(wire, plan, probe, parts);
  } catch (reason) {
    await wire.close();
    throw reason;
  } finally {
    signal.removeEventListener("abort", close);
  }
}

function openWire(transport: ServerDefinition["type"], parts: NegotiationParts): Wire {
  const { capabilities, clock, random, log, limits } = parts;
  const definition = withSecrets(parts.definition);
  if (definition.type === "stdio") {
    const { stderr, processEnded: ended } = parts;
    return new StdioTransport({ ...definition, capabilities, clock, log, graceMs: limits.grace, stderr, ended });
  }
  const remote = {
    url: definition.url,
    headers: definition.headers,
    capabilities,
    clock,
    random,
    log,
    connectTimeoutMs: limits.connect,
    authorisation: parts.authorisation,
  };
  return transport === "sse" ? new SseTransport(remote) : new HttpTransport(remote);
}

/** What the probe found. `late`: the answer may still come. */
type Probe =
  { readonly kind: "modern"; readonly discovered: JsonObject } | { readonly kind: "legacy"; readonly late?: Promise<Ending> };

/** Asks with `server/discover` on this very wire. Rejects with `Failed` where the answer is no sign of a legacy server. */
async function discover(wire: Wire, plan: Plan, parts: NegotiationParts, again = false): Promise<Probe> {
  const { clientInfo, capabilities, clock, limits } = parts;
  const params = withEnvelope(undefined, { protocolVersion: modernVersion, clientInfo, capabilities });
  const request = { jsonrpc: "2.0", id: randomUUID(), method: "server/discover", ...(params ? { params } : {}) } as const;
  const exchange = wire.exchange(request, {});
  // Only a process may be silent because it does not know the method; a remembered modern one is given its time to start.
  const silenceMeansLegacy = wire.kind === "stdio" && plan.era === undefined;
  const silence = Promise.withResolvers<"silent">();
  const stop = clock.after(silenceMeansLegacy ? limits.probe : limits.handshake, () => silence.resolve("silent"));
  const ending = await Promise.race([exchange.ending, silence.promise]);
  stop();
  // Refused, and named as supported in the same breath: chosen from what it names, and asked once more.
  if (ending !== "silent" && !again && namesOurs(ending)) return discover(wire, plan, parts, true);
  if (ending !== "silent") return judge(ending, wire, plan);
  if (silenceMeansLegacy) return { kind: "legacy", late: exchange.ending };
  throw new Failed(
    noAnswerInTime(),
    wire.kind === "stdio" && plan.remembered === true ? { transport: "stdio", era: undefined } : undefined,
  );
}

/** Whether the answer refuses the protocol version and names this very version as one that the server supports. */
function namesOurs(ending: Ending): boolean {
  if (ending.kind === "loss" || !("error" in ending.answer)) return false;
  const { code, data } = ending.answer.error;
  const supported = isObject(data) ? data["supported"] : undefined;
  return code === rpcErrors.unsupportedProtocolVersion && Array.isArray(supported) && supported.includes(modernVersion);
}

/** The one table of what an answer to the probe says about the era. */
function judge(ending: Ending, wire: Wire, plan: Plan): Probe {
  if (ending.kind === "loss") return judgeLoss(ending.loss, wire, plan);
  if ("result" in ending.answer) {
    const result: unknown = ending.answer.result;
    if (isModernDiscovery(result)) return { kind: "modern", discovered: result };
    return { kind: "legacy" };
  }
  const { code, data } = ending.answer.error;
  // A recognised modern error names a modern server: never a fallback.
  if (code === rpcErrors.unsupportedProtocolVersion) {
    const supported = isObject(data) && Array.isArray(data["supported"]) ? data["supported"] : [];
    const modern = supported.filter((version) => typeof version === "string" && version >= modernVersion);
    if (modern.length === 0) return { kind: "legacy" };
    throw new Failed(
      new HostingError("protocol", `The server refused protocol version ${modernVersion}; it names others.`, {
        detail: modern.join(", "),
      }),
    );
  }
  if (code === rpcErrors.headerMismatch || code === rpcErrors.missingClientCapability) {
    throw new Failed(
      new HostingError("protocol", "The server refused to be asked for its protocol versions.", { detail: `error ${code}` }),
    );
  }
  return { kind: "legacy" };
}

function judgeLoss(loss: Loss, wire: Wire, { legacyRefused }: Plan): Probe {
  const status = loss.httpStatus;
  if (wire.kind === "stdio") {
    // Some servers end on any request before `initialize`: a new process is not asked again.
    throw new Failed(
      errorOf(loss),
      legacyRefused !== true && (loss.kind === "process-exit" || loss.kind === "stdout-closed")
        ? { transport: "stdio", era: "2025-11-25", unasked: true }
        : undefined,
    );
  }
  const refused =
    loss.kind === "http-status" &&
    status !== undefined &&
    status >= 400 &&
    status < 500 &&
    status !== 401 &&
    status !== 403 &&
    status !== 429;
  if (refused || loss.kind === "no-answer" || loss.kind === "stream-ended") return { kind: "legacy" };
  throw new Failed(errorOf(loss));
}

function isModernDiscovery(result: unknown): result is JsonObject {
  return isObject(result) && isSpecType.DiscoverResult(result) && result.supportedVersions.includes(modernVersion);
}

async function connectModern(wire: Wire, discovered: JsonObject, parts: NegotiationParts): Promise<Negotiated> {
  const client = newClient(parts);
  const discover = discovered as unknown as DiscoverResult;
  await client
    .connect(wire, { prior: { kind: "modern", discover } })
    .catch(async (error: unknown) => Promise.reject(new Failed(await failureOn(wire, error))));
  return {
    wire,
    client,
    facts: factsOf("2026-07-28", modernVersion, wire, discovered, objectIn(discovered["_meta"], SERVER_INFO_META_KEY)),
  };
}

async function connectLegacy(wire: Wire, plan: Plan, probe: Probe | undefined, parts: NegotiationParts): Promise<Negotiated> {
  const client = newClient(parts);
  let initialized: JsonObject | undefined;
  // The client keeps a listener that was there before it: this one sees the answer as it came.
  wire.onmessage = (message) => {
    if ("result" in message && "protocolVersion" in message.result) initialized ??= message.result;
  };
  try {
    await client.connect(wire, { prior: { kind: "legacy" }, timeout: parts.limits.handshake });
  } catch (reason) {
    const chosen = initialized?.["protocolVersion"];
    const unknown = typeof chosen === "string" && /^[\w.-]{1,32}$/.test(chosen) && !SUPPORTED_PROTOCOL_VERSIONS.includes(chosen);
    const error = unknown
      ? new HostingError("protocol", `The server chose protocol version ${chosen}, which is not known here.`)
      : await failureOn(wire, reason);
    // It is there now, and does not speak the older era: its end before had another reason.
    const refused = plan.unasked === true && error.kind === "protocol";
    const next = refused ? asked(plan) : await afterLegacy(reason, wire, plan, probe);
    throw new Failed(error, next);
  }
  const version = client.getNegotiatedProtocolVersion() ?? String(initialized?.["protocolVersion"]);
  return { wire, client, facts: factsOf("2025-11-25", version, wire, initialized, objectIn(initialized, "serverInfo")) };
}

/** A new process, which is asked what it speaks, and not again for the older era. */
const asked = ({ transport }: Plan): Plan => ({ transport, era: undefined, legacyRefused: true });

/** Where to go on after `initialize` failed, if anywhere. */
async function afterLegacy(reason: unknown, wire: Wire, plan: Plan, probe: Probe | undefined): Promise<Plan | undefined> {
  const status = reason instanceof LossError && reason.loss.kind === "http-status" ? reason.loss.httpStatus : undefined;
  const refused = status === 400 || status === 404 || status === 405;
  const answeredWithError = !(reason instanceof LossError) && !isTimeout(reason);
  // It was only a wish: a new process is asked what it speaks.
  if (plan.preferred === true && (reason instanceof LossError || isTimeout(reason) || answeredWithError)) return asked(plan);
  // The remembered era may be out of date.
  if (plan.remembered === true && (refused || answeredWithError)) return { transport: plan.transport, era: undefined };
  if (wire.kind === "http" && refused) return { transport: "sse", era: "2025-11-25" };
  // A modern server that was slow to start has answered the probe in the meantime; the `initialize` spoiled this process.
  if (wire.kind === "stdio" && probe?.kind === "legacy" && probe.late && (reason instanceof LossError || answeredWithError)) {
    const late = await Promise.race([probe.late, Promise.resolve(undefined)]);
    if (late?.kind === "answer" && "result" in late.answer && isModernDiscovery(late.answer.result))
      return { transport: "stdio", era: "2026-07-28" };
  }
  return undefined;
}

function factsOf(
  era: Era,
  protocolVersion: string,
  wire: Wire,
  opening: JsonObject | undefined,
  serverInfo: JsonObject | undefined,
): ServerFacts {
  const sessionId = wire.sessionId;
  const instructions = opening?.["instructions"];
  const text = (value: unknown, otherwise: string): string => (typeof value === "string" ? value : otherwise);
  return {
    era,
    protocolVersion,
    transport: wire.kind,
    ...(sessionId === undefined ? {} : { sessionId }),
    serverInfo: { ...serverInfo, name: text(serverInfo?.["name"], "unknown"), version: text(serverInfo?.["version"], "") },
    capabilities: objectIn(opening, "capabilities") ?? {},
    ...(typeof instructions === "string" ? { instructions } : {}),
  };
}

function newClient(parts: NegotiationParts): Client {
  return new Client(parts.clientInfo, { capabilities: parts.capabilities });
}

function isTimeout(reason: unknown): boolean {
  return reason instanceof SdkError && reason.code === SdkErrorCode.RequestTimeout;
}

/** The client knows only that the connection closed; the wire knows why. */
async function failureOn(wire: Wire, reason: unknown): Promise<HostingError> {
  if (reason instanceof SdkError && reason.code === SdkErrorCode.ConnectionClosed) return errorOf(await wire.closed);
  return failureOf(reason);
}

function noAnswerInTime(): HostingError {
  return new HostingError("no-answer", "The server did not answer in time.");
}

/** What the handshake failed with, as ours: a code for the log, never the peer's or the transport's text. */
function failureOf(reason: unknown): HostingError {
  if (reason instanceof HostingError) return reason;
  if (reason instanceof LossError) return errorOf(reason.loss);
  if (isTimeout(reason)) return noAnswerInTime();
  const code: unknown = reason instanceof Error && "code" in reason ? reason.code : undefined;
  const detail = typeof code === "string" || typeof code === "number" ? `error ${code}` : undefined;
  return new HostingError("protocol", "The server's answer to the handshake could not be used.", { detail });
}
