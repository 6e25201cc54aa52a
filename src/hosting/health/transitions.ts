/**
 * Owns: the states of a hosted server and the one table of how it gets from one to another.
 * Leaves to others: what is done on the way (server-host.ts), when a question is asked (probe.ts), how long is waited (reconnects.ts).
 *
 * `npm run -s transitions` prints the table with the test of each row.
 */

export const serverStates = [
  /** Nobody wants it, or a person stopped it. The next wish starts it. */
  "stopped",
  /** The workspace that defines it is not trusted; nothing is started until it is. */
  "waiting-for-trust",
  /** It refused for want of authorisation (HTTP 401 or 403). Nothing is tried until a person, or a call, asks again. */
  "needs-authorisation",
  /** An attempt to connect is under way. */
  "connecting",
  /** tools/list was answered on this connection, and nothing has spoken against it since. */
  "connected",
  /** The connection is there and calls are sent on it, but something speaks against it that nothing has disproved yet. */
  "degraded",
  /** The connection was lost, or could not be made for a reason that may pass: the next attempt is set. */
  "reconnecting",
  /** It could not be made for a reason that does not pass by itself. Nothing is tried until somebody asks again. */
  "failed",
] as const;
export type ServerState = (typeof serverStates)[number];

export const healthEvents = [
  /** A call, an agent or a person wants a connection. */
  "wanted",
  /** It was wanted, but its workspace is not trusted. */
  "not-trusted",
  /** The wait before the next attempt is over. */
  "due",
  /** tools/list was answered on the new connection. */
  "listed",
  /** The attempt failed in a way that may pass. */
  "attempt-failed",
  /** The attempt failed in a way that waiting does not mend. */
  "refused",
  /** The server asks for authorisation. */
  "unauthorised",
  /** Its program ended too often within too short a time. */
  "crash-loop",
  /** Something speaks against the connection: a lost request, an unanswered question, a sleep of the computer. */
  "suspected",
  /** The server answered. */
  "proved",
  /** The connection is over: it ended by itself, or neither of two questions was answered. */
  "lost",
  /** Whoever used the connection closed it, or a person stopped the server. */
  "stop",
] as const;
export type HealthEvent = (typeof healthEvents)[number];

export interface Transition {
  readonly from: ServerState;
  readonly on: HealthEvent;
  readonly to: ServerState;
}

const row = (from: ServerState, on: HealthEvent, to: ServerState): Transition => ({ from, on, to });

/** Every legal transition. Whatever is not here is a mistake in this program. */
export const transitions: readonly Transition[] = [
  row("stopped", "wanted", "connecting"),
  row("stopped", "not-trusted", "waiting-for-trust"),

  row("waiting-for-trust", "wanted", "connecting"),
  row("waiting-for-trust", "stop", "stopped"),

  row("needs-authorisation", "wanted", "connecting"),
  row("needs-authorisation", "not-trusted", "waiting-for-trust"),
  row("needs-authorisation", "stop", "stopped"),

  row("connecting", "listed", "connected"),
  row("connecting", "attempt-failed", "reconnecting"),
  row("connecting", "refused", "failed"),
  row("connecting", "unauthorised", "needs-authorisation"),
  row("connecting", "crash-loop", "failed"),
  row("connecting", "stop", "stopped"),

  row("connected", "suspected", "degraded"),
  row("connected", "lost", "reconnecting"),
  row("connected", "crash-loop", "failed"),
  row("connected", "stop", "stopped"),

  row("degraded", "proved", "connected"),
  row("degraded", "lost", "reconnecting"),
  row("degraded", "unauthorised", "needs-authorisation"),
  row("degraded", "crash-loop", "failed"),
  row("degraded", "stop", "stopped"),

  row("reconnecting", "wanted", "connecting"),
  row("reconnecting", "due", "connecting"),
  row("reconnecting", "not-trusted", "waiting-for-trust"),
  row("reconnecting", "stop", "stopped"),

  row("failed", "wanted", "connecting"),
  row("failed", "not-trusted", "waiting-for-trust"),
  row("failed", "stop", "stopped"),
];

/** How a row is named in tests and in the printed table. */
export function nameOf({ from, on, to }: Transition): string {
  return `${from} -- ${on} --> ${to}`;
}

const table = new Map(transitions.map(({ from, on, to }) => [`${from}/${on}`, to]));

/**
 * Where an event leads.
 * @throws Error when the table has no such row: a mistake in this program
 */
export function nextState(from: ServerState, on: HealthEvent): ServerState {
  const to = table.get(`${from}/${on}`);
  if (to === undefined) throw new Error(`A hosted server that is ${from} cannot take the event '${on}'.`);
  return to;
}
