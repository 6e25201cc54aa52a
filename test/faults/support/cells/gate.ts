/**
 * Owns: rows 36 and 38 to 41 of the fault matrix: the duplicate guard, signs of life, and the gate read anew on the re-discovered tool.
 */
import { expect } from "vitest";
import type { GateReason } from "../../../../src/replay/gate.ts";
import { defaultTools, type FaultTool } from "../../../servers/fault/world.ts";
import { completed, expectOutcome, readLost, unresolved } from "../checks.ts";
import type { Class, Lab, Subject } from "../lab.ts";
import { isStdio } from "../peers.ts";
import type { Run } from "../run.ts";
import { hanging } from "./waiting.ts";

/** What a lost answer's reason is on this transport. */
export function reasonOfLoss(run: Run): "process-exit" | "connection-lost" {
  return isStdio(run.transport) ? "process-exit" : "connection-lost";
}

export async function identicalHeld(run: Run): Promise<void> {
  const lab = await run.open();
  const subject = await run.lose(lab, "C", [run.loss], unresolved(reasonOfLoss(run)));
  const { id } = await lab.operation(subject);
  // Whoever asks, by whichever way.
  for (const path of ["agent", "call-tool"] as const) {
    const held = await lab.call(path, subject).answer;
    expect(held.text).toContain(`HELD: an identical earlier call is still unresolved (operation ${id})`);
    expect(held.mark).toMatchObject({ id, state: "held" });
    expect([lab.requests(subject).length, lab.effects(subject)]).toEqual([1, 1]);
  }
  const other = lab.newAgent({ name: "another agent" }).call(subject.tool, subject.arguments);
  expect(await other.answer).toMatchObject({ kind: "result", result: { isError: true } });
  expect(await lab.operations(subject)).toHaveLength(1);
  expect(lab.requests(subject)).toHaveLength(1);
}

/** -32601 is an answer: whoever sends it lives. */
export async function unsupportedMethodProvesLife(run: Run): Promise<void> {
  const lab = await run.open();
  const { http, era } = lab.peer;
  const first = await run.lose(lab, "C", [], completed());
  const probe = era === "2026-07-28" ? "server/discover" : "ping";
  if (http !== undefined) {
    const before = http.requests(probe).length;
    http.scriptFor(probe, { do: "error", code: -32601, ...(era === "2026-07-28" ? { status: 404 } : {}) });
    await run.lose(lab, "C", [run.transport === "sse-2024" ? { do: "reset" } : run.loss], unresolved("connection-lost"));
    await http.until(() => http.requests(probe)[before]?.endedAt !== undefined, 60_000);
  }
  const unsupported = await lab.agent.request("resources/list", {}).answer;
  expect(unsupported).toMatchObject({ kind: "error", error: { code: -32601 } });
  const next = await run.lose(lab, "C", [], completed());
  const connectionOf = async (subject: Subject): Promise<string | undefined> =>
    (await lab.operation(subject)).attempts[0]?.connectionId;
  expect(await connectionOf(next)).toBe(await connectionOf(first));
  expect(lab.server.status.state).toBe("connected");
}

/** The tools as another version of the server has them, and what the gate must say. */
const changes: readonly (readonly [change: string, tools: (tools: readonly FaultTool[]) => FaultTool[], verdict: GateReason])[] =
  [
    ["the tool is gone", (tools) => tools.filter(({ name }) => name !== "put" && name !== "lookup"), "tool-gone"],
    [
      "another input schema",
      (tools) => tools.map((tool) => ({ ...tool, inputSchema: { ...tool.inputSchema, additionalProperties: false } })),
      "schema-changed",
    ],
    ["no annotations any more", (tools) => tools.map(({ annotations: _, ...tool }) => tool), "not-declared-repeatable"],
    [
      "contradictory annotations",
      (tools) => tools.map((tool) => ({ ...tool, annotations: { readOnlyHint: true, idempotentHint: false } })),
      "contradictory-annotations",
    ],
  ];

export async function changedTools(run: Run): Promise<void> {
  for (const [change, changed, verdict] of changes) {
    const lab = await run.open();
    for (const cls of ["R", "S"] as const) {
      lab.peer.setTools(defaultTools);
      await lab.server.rediscover(await lab.server.connect());
      await expectNotReplayed(run, lab, cls, () => lab.peer.setTools(changed(defaultTools)), verdict, change);
    }
  }
}

/** Another server answers there now. */
export async function changedServer(run: Run): Promise<void> {
  for (const cls of ["R", "S"] as const) {
    const lab = await run.open();
    const replaced = (): void => {
      lab.peer.setServerInfo({ name: "another-server", version: "1.0.0" });
      lab.peer.http?.forgetSessions();
    };
    await expectNotReplayed(run, lab, cls, replaced, "server-changed", "another server");
  }
}

async function expectNotReplayed(
  run: Run,
  lab: Lab,
  cls: Class,
  change: () => void,
  verdict: GateReason,
  what: string,
): Promise<void> {
  const subject = lab.subject(cls);
  const calling = await hanging(run, lab, subject, { do: "hang", then: run.loss });
  change();
  lab.peer.release();
  const reason = reasonOfLoss(run);
  const answer = await calling.answer;
  await expectOutcome(lab, subject, answer, cls === "R" ? readLost(reason) : unresolved(reason));
  expect([what, await lab.verdict(subject)]).toEqual([what, [verdict]]);
}

/** Trust is read at the moment of use: what is withdrawn during the reconnect is withdrawn. */
export async function trustWithdrawn(run: Run): Promise<void> {
  for (const which of ["server", "workspace"] as const) {
    for (const cls of ["R", "S"] as const) {
      const lab = await run.open();
      const subject = lab.subject(cls);
      const before = lab.peer.hanging;
      lab.peer.scriptFor("tools/list", { do: "hang" });
      lab.peer.script(run.loss);
      const calling = lab.call(run.path, subject);
      await lab.peer.untilHanging(before + 1);
      lab.trust[which] = false;
      lab.peer.release();
      const reason = reasonOfLoss(run);
      const answer = await calling.answer;
      await expectOutcome(lab, subject, answer, cls === "R" ? readLost(reason) : unresolved(reason));
      expect(await lab.verdict(subject)).toEqual([`${which}-not-trusted`]);
    }
  }
}

export async function lostFourTimes(run: Run): Promise<void> {
  for (const cls of ["S", "R"] as const) {
    const lab = await run.open();
    lab.peer.byDefault(run.loss);
    const reason = reasonOfLoss(run);
    const subject = await run.lose(
      lab,
      cls,
      [],
      cls === "R" ? readLost(reason, { requests: 4 }) : unresolved(reason, { requests: 4 }),
    );
    expect(await lab.verdict(subject)).toEqual(["attempts-used-up"]);
    const events = await lab.core.journal.events((await lab.operation(subject)).id);
    expect(events.filter(({ type }) => type === "replayed")).toHaveLength(3);
  }
}
