/**
 * The conformance packages' server scenarios against a conforming server (the SDK v2 conformance server), and against the gateway in front of
 * it: the same verdict for every check. Each exception is named here with its reason.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startEverythingV2, type EverythingV2 } from "../servers/everything-v2/http.ts";
import { Headless } from "../support/headless.ts";
import { differences, runScenarios, sideBySide, type Difference, type Package } from "./server-verdicts.ts";

let program: Headless;
const peers: Record<string, EverythingV2> = {};

beforeAll(async () => {
  peers["legacy"] = await startEverythingV2({ eras: "legacy" });
  peers["modern"] = await startEverythingV2({ eras: "modern" });
  peers["both"] = await startEverythingV2({ eras: "both" });
  program = new Headless();
  await program.serve({
    servers: Object.fromEntries(Object.entries(peers).map(([name, peer]) => [name, { type: "http", url: peer.url }])),
    serverTrust: { legacy: true, modern: true, both: true },
    workspaceTrusted: true,
  });
});
afterAll(async () => {
  await program.remove();
  for (const peer of Object.values(peers)) await peer.close();
});

/** Which differences there may be, by `scenario/check`, and why. */
type Exceptions = Readonly<Record<string, string>>;

interface Run {
  readonly title: string;
  readonly name: Package;
  readonly selection: readonly string[];
  readonly peer: "legacy" | "modern" | "both";
  /** At least so many checks have a verdict: a run that skipped them all would be equal too. */
  readonly atLeast: number;
  readonly exceptions: Exceptions;
}

const noSession =
  "asks for a session id, and event ids: with a session id VS Code would send a call again on 400 or 404, so the gateway gives none; it keeps the server's session and resumes its streams itself";
const noTasks = "this server has no tasks: how it says so is all that is measured (not scored by the package)";
const legacy: Exceptions = {
  "server-initialize/server-session-id-visible-ascii": noSession,
  "server-session-lifecycle/server-session-initialized-accepted": noSession,
  "server-session-lifecycle/server-session-delete-accepted": noSession,
  "server-session-lifecycle/server-session-terminated-returns-404": noSession,
  "server-sse-multiple-streams/server-accepts-multiple-post-streams": noSession,
  "server-sse-multiple-streams/server-sse-streams-functional": noSession,
  "server-sse-multiple-streams/server-sse-multiple-streams-session": noSession,
  "server-sse-polling/server-sse-priming-event": noSession,
  "server-sse-polling/server-sse-retry-field": noSession,
  "server-sse-polling/server-sse-disconnect-resume": noSession,
  "server-sse-polling/server-sse-polling-session": noSession,
};
const modern: Exceptions = {
  "tasks-capability-negotiation/sep-2663-server-rejects-undeclared-client": noTasks,
  "tasks-dispatch-and-envelope/sep-2663-legacy-task-param-ignored": noTasks,
  "tasks-dispatch-and-envelope/tasks-immediate-result-shortcut": noTasks,
  "tasks-dispatch-and-envelope/tasks-result-type-complete-on-non-task-responses": noTasks,
  "tasks-lifecycle/tasks-sync-tool-call": noTasks,
};

const runs: readonly Run[] = [
  {
    title: "0.1.16 (2025-11-25), a 2025-11-25 server",
    name: "conformance-2025",
    selection: ["--suite", "all"],
    peer: "legacy",
    atLeast: 40,
    exceptions: legacy,
  },
  {
    title: "0.1.16 (2025-11-25), a server of both eras",
    name: "conformance-2025",
    selection: ["--suite", "all"],
    peer: "both",
    atLeast: 40,
    exceptions: legacy,
  },
  {
    title: "0.2.0-alpha.12, requirements of 2025-11-25, a 2025-11-25 server",
    name: "conformance-2026",
    selection: ["--requirements", "2025-11-25"],
    peer: "legacy",
    atLeast: 40,
    exceptions: legacy,
  },
  {
    title: "0.2.0-alpha.12, requirements of 2026-07-28, a 2026-07-28 server",
    name: "conformance-2026",
    selection: ["--requirements", "2026-07-28"],
    peer: "modern",
    atLeast: 130,
    exceptions: modern,
  },
  {
    title: "0.2.0-alpha.12, requirements of 2026-07-28, a server of both eras",
    name: "conformance-2026",
    selection: ["--requirements", "2026-07-28"],
    peer: "both",
    atLeast: 130,
    exceptions: modern,
  },
];

describe("conformance server scenarios", () => {
  it.each(runs)(
    "$title: equal verdicts alone and through the gateway",
    async ({ title, name, selection, peer, atLeast, exceptions }) => {
      const alone = await runScenarios(name, peers[peer]!.url, selection);
      const through = await runScenarios(name, program.urls[peer]!, selection);
      console.log(sideBySide(title, alone, through));
      const found = differences(alone, through);
      for (const { scenario, check, alone: one, through: two } of found)
        console.log(
          `  ${scenario} / ${check}: ${one} alone, ${two} through: ${exceptions[`${scenario}/${check}`] ?? "NOT EXPLAINED"}`,
        );
      expect(found.filter(({ scenario, check }: Difference) => exceptions[`${scenario}/${check}`] === undefined)).toEqual([]);
      expect([...alone.values()].reduce((sum, checks) => sum + checks.size, 0)).toBeGreaterThanOrEqual(atLeast);
    },
  );
});
