/**
 * Owns: when an answer was lost, as far as the server's side can tell: the start of every time that is measured. Free of vitest.
 */
import type { RequestEntry } from "../../servers/ledger.ts";
import type { Peer } from "./peers.ts";

/**
 * @param request the last tools/call of the operation; undefined: none arrived
 * @param answeredAt `performance.now()` of the caller's answer
 * @returns `performance.now()` of the moment at which the server gave the answer up; undefined when it cannot be told
 */
export function lossTime({ http }: Peer, request: RequestEntry | undefined, answeredAt: number): number | undefined {
  if (request === undefined) return undefined;
  // A process: when it had read the request, which is a little earlier than its end.
  if (http === undefined) return request.at - performance.timeOrigin;
  // The call's own exchange, or the event stream on which its answer was to come.
  const ended = http
    .requests()
    .filter(({ rpcId, httpMethod }) => rpcId === request.rpcId || httpMethod === "GET")
    .map(({ endedAt }) => endedAt ?? Infinity)
    .filter((endedAt) => endedAt <= answeredAt);
  return ended.length === 0 ? undefined : Math.max(...ended);
}
