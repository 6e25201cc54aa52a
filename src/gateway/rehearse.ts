/**
 * Owns: giving a rehearsal a server of its own, so that restarts and cut connections touch no call of anybody else's, and letting it run only
 * when the person's words are those of its plan.
 * Leaves to others: the rehearsal itself (src/replay/rehearsal.ts), asking the person.
 */
import type { HostedServer } from "../hosting/hosted-server.ts";
import { createHostedServer, type HostedServerOptions } from "../hosting/server-host.ts";
import { Desk, type DeskOptions } from "../replay/desk.ts";
import { prepareRehearsal, rehearse, RehearsalError, type Prepared, type RehearsalHooks } from "../replay/rehearsal.ts";
import type { RehearsalReport, RehearsalRequest } from "../replay/rehearsal-plan.ts";

/** A call of a rehearsal gets this long to answer, in milliseconds. */
const answerLimitMs = 60_000;

export interface RehearsalParts {
  readonly desk: DeskOptions;
  /** Of the server that is rehearsed on. */
  readonly server: Pick<HostedServerOptions, "definition" | "authorisation" | "clientInfo">;
}

/**
 * What a rehearsal would do; calls nothing.
 * @param server to ask for its tools; default: one of its own, which ends with this
 * @throws RehearsalError
 */
export async function planRehearsalOf(
  parts: RehearsalParts,
  request: RehearsalRequest,
  server?: HostedServer,
): Promise<Prepared> {
  const desk = deskFor(parts.desk);
  return server === undefined
    ? withServer(parts, request.server, (own) => prepareRehearsal(desk, own, request))
    : prepareRehearsal(desk, server, request);
}

/**
 * @param agreed what the person typed; it must be the plan's phrase
 * @throws RehearsalError before anything was called
 */
export async function rehearseContract(
  parts: RehearsalParts,
  request: RehearsalRequest,
  agreed: string,
  hooks: RehearsalHooks,
): Promise<RehearsalReport> {
  const desk = deskFor(parts.desk);
  return withServer(parts, request.server, async (own) => {
    const { plan } = await prepareRehearsal(desk, own, request);
    if (!("why" in plan) && agreed.trim() !== plan.phrase)
      throw new RehearsalError(
        "not-agreed",
        `This calls '${request.tool}' ${plan.calls} times. To agree to it, the words are: ${plan.phrase}`,
      );
    return rehearse(desk, own, request, hooks);
  });
}

function deskFor(options: DeskOptions): Desk {
  return new Desk({
    ...options,
    settings: () => {
      const settings = options.settings();
      return { ...settings, requestTimeoutMs: Math.min(answerLimitMs, settings.requestTimeoutMs) };
    },
  });
}

async function withServer<T>(parts: RehearsalParts, name: string, use: (server: HostedServer) => Promise<T>): Promise<T> {
  const { clock, random, log } = parts.desk;
  const server = createHostedServer({ name, clock, random, ...parts.server });
  const stopLog = server.onLog((line) => log(name, line.text));
  try {
    return await use(server);
  } finally {
    stopLog();
    await server.dispose();
  }
}
