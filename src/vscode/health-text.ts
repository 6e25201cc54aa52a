/**
 * Owns: a hosted server's health in words: the row, the lines of its tooltip, and everything on record as a document. Pure.
 * Leaves to others: what is on record (src/hosting/health/record.ts), showing it (views, server-document.ts).
 */
import type { HostedServer, ServerState, ServerStatus } from "../hosting/hosted-server.ts";
import type { HealthEntry, ServerHealth } from "../hosting/health/record.ts";
import type { HealthEvent } from "../hosting/health/transitions.ts";
import type { WaitingServer } from "./sources/server-sources.ts";
import { agoText, countText, serverStateWords, shortAgoText, timeText, waitingWords } from "./words.ts";

/** What a state means for whoever reads it, in one sentence. */
export const stateMeanings: Readonly<Record<ServerState, string>> = {
  stopped: "It is not running. The next call that needs it starts it, unless it is started by hand only.",
  "waiting-for-trust": "It is defined by this workspace and starts once the workspace is trusted.",
  "needs-authorisation": "It refuses to be used without authorisation. Nothing is tried until you, or a call, ask again.",
  connecting: "A connection is being made.",
  connected: "It listed its tools on this connection, and nothing has spoken against it since.",
  degraded: "Something speaks against the connection. It is being asked whether it is there; calls still go to it.",
  reconnecting: "The connection was lost, or could not be made for a reason that may pass. It is tried again by itself.",
  failed: "It could not be started or reached, for a reason that does not pass by itself. Start it to try again.",
};

const eventWords: Readonly<Record<HealthEvent, string>> = {
  wanted: "it was needed",
  "not-trusted": "its workspace is not trusted",
  due: "the wait was over",
  listed: "it listed its tools",
  "attempt-failed": "the attempt failed",
  refused: "the attempt failed for good",
  unauthorised: "it asks for authorisation",
  "crash-loop": "it ended too often",
  suspected: "something spoke against it",
  proved: "it answered",
  lost: "the connection was lost",
  stop: "it was stopped",
};

/** The time of day, to the second, where the program runs. */
function clockText(at: number): string {
  return timeText(at).slice(11, 19);
}

/** The state for a narrow row: what, and what there is to know about it at once. */
export function stateText(status: ServerStatus, now: number): string {
  const words = serverStateWords[status.state];
  const attempt = status.attempt === undefined ? "" : `, attempt ${status.attempt}`;
  if (status.state === "reconnecting" && status.nextTryAt !== undefined)
    return `${words}${attempt}, next try at ${clockText(status.nextTryAt)}`;
  if (status.state === "connecting") return `${words}${attempt}`;
  if (status.state === "failed")
    return `${words} ${shortAgoText(status.since, now)}${status.reason === undefined ? "" : `: ${status.reason}`}`;
  return words;
}

/** "12 ms (ping, just now)". */
export function latencyText({ latency }: ServerHealth, now: number): string | undefined {
  return latency === undefined ? undefined : `${latency.ms} ms (${latency.method}, ${agoText(latency.at, now)})`;
}

/** "2 in the last hour; the last one 3 minutes ago: …". */
export function reconnectsText({ reconnects, lastReconnect }: ServerHealth, now: number): string {
  const count = reconnects.lastHour === 0 ? "none in the last hour" : `${reconnects.lastHour} in the last hour`;
  return lastReconnect === undefined ? count : `${count}; the last one ${agoText(lastReconnect.at, now)}: ${lastReconnect.why}`;
}

function entryText({ at, on, to, why }: HealthEntry): string {
  return `- ${timeText(at)}: ${serverStateWords[to]} (${eventWords[on]})${why === undefined ? "" : `. ${oneLine(why)}`}`;
}

/** Foreign text on a line of its own: no line break of its own counts. */
function oneLine(text: string): string {
  return text.replace(/\s+/g, " ").trim();
}

/** Everything on record of a server, in Markdown. It holds no arguments and no secrets. */
export function serverDocument(server: HostedServer, now: number): string {
  const { status, health } = server;
  const facts = status.facts ?? server.remembered?.facts;
  const latency = latencyText(health, now);
  const last = status.lastOutput;
  return [
    `# ${server.name}: ${serverStateWords[status.state]}`,
    stateMeanings[status.state],
    [
      `- Since: ${timeText(status.since)}`,
      ...(status.reason === undefined ? [] : [`- Why: ${oneLine(status.reason)}`]),
      ...(facts === undefined
        ? []
        : [
            `- Server: ${oneLine(`${facts.serverInfo.name} ${facts.serverInfo.version}`)}`,
            `- Protocol: ${facts.protocolVersion} over ${facts.transport}`,
          ]),
      ...(latency === undefined ? [] : [`- Latest answer after: ${latency}`]),
      `- Reconnects: ${reconnectsText(health, now)} (${health.reconnects.total} since it is hosted)`,
      `- Asked only to see whether it is there: ${countText(health.probes, "time")}`,
    ].join("\n"),
    ...(last === undefined
      ? []
      : [
          "## What its program wrote last",
          "These are the last lines of its standard error output. They are its own words.",
          last.map((line) => `    ${line}`).join("\n"),
        ]),
    "## What happened",
    health.history.length === 0 ? "Nothing yet." : [...health.history].reverse().map(entryText).join("\n"),
    "",
  ].join("\n\n");
}

/** A server and why it needs a person. */
export interface Needy {
  readonly name: string;
  readonly why: string;
}

/** The servers that do not go on without a person, in their order. Waiting for workspace trust is VS Code's own affair to show. */
export function needy(
  servers: Iterable<Pick<HostedServer, "name" | "status">>,
  waiting: readonly Pick<WaitingServer, "name" | "why">[],
): Needy[] {
  return [
    ...[...servers]
      .filter(({ status }) => status.state === "failed" || status.state === "needs-authorisation")
      .map(({ name, status }) => ({ name, why: serverStateWords[status.state] })),
    ...waiting.filter(({ why }) => why === "input").map(({ name, why }) => ({ name, why: waitingWords[why] })),
  ];
}
