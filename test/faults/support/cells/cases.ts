/**
 * Owns: situations of CASES.md that no row of the fault matrix shows whole.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { createGateway } from "../../../../src/gateway/gateway.ts";
import { unresolvedAnswer } from "../../../../src/replay/answers.ts";
import { repositoryRoot } from "../../../support/paths.ts";
import { Agent } from "../agent.ts";
import { completed, expectOutcome, readLost, replayed, unresolved } from "../checks.ts";
import { serverName, type Calling, type Subject } from "../lab.ts";
import { isStdio } from "../peers.ts";
import type { Run } from "../run.ts";
import { reasonOfLoss } from "./gate.ts";
import { hanging } from "./waiting.ts";

/** Case 3: the one stable text, with the operation's id. */
export async function stableText(run: Run): Promise<void> {
  const lab = await run.open();
  const subject = await run.lose(lab, "C", [run.loss], unresolved(reasonOfLoss(run)));
  const again = lab.subject("C");
  lab.peer.script(run.loss);
  const answer = await lab.call(run.path, again).answer;
  const { id } = await lab.operation(again);
  const expected = unresolvedAnswer(id, reasonOfLoss(run), 1) as { content: [{ text: string }] };
  expect(answer.text).toBe(expected.content[0].text);
  expect(answer.text).toContain(id);
  expect(id).not.toBe((await lab.operation(subject)).id);
}

/** Case 5: the gate stands before every repeat. */
export async function gated(run: Run): Promise<void> {
  const lab = await run.open();
  const reason = reasonOfLoss(run);
  await run.lose(lab, "C", [run.loss], unresolved(reason));
  await run.lose(lab, "R", [run.loss], replayed());
  await run.lose(lab, "S", [run.loss], replayed());
  const untrusted = await run.open({ trusted: false });
  // Not proven to be a read: consequential, but in a quiet group of its own.
  await run.lose(untrusted, "R", [run.loss], { ...unresolved(reason), effects: 0 });
  await run.lose(untrusted, "S", [run.loss], unresolved(reason));
  const off = await run.open({ settings: { maxReplays: 0 } });
  await run.lose(off, "R", [run.loss], readLost(reason));
}

/** Case 8: healed for later calls; this one stays unresolved. */
export async function healedForLaterCalls(run: Run): Promise<void> {
  const lab = await run.open();
  const lost = await run.lose(lab, "C", [run.loss], unresolved(reasonOfLoss(run)));
  await run.lose(lab, "C", [], completed());
  expect([lab.requests(lost).length, (await lab.operation(lost)).state]).toEqual([1, "unresolved"]);
}

/** Case 9: what breaks after the answer takes nothing back. */
export async function answerStands(run: Run): Promise<void> {
  const lab = await run.open();
  lab.peer.http?.scriptFor("HTTP DELETE", { do: "status", status: 500 }, { do: "status", status: 500 });
  const subjects: Subject[] = [];
  for (const cls of ["C", "R", "S"] as const) {
    const connection = await lab.server.connect();
    subjects.push(await run.lose(lab, cls, [{ do: "answer-then-break" }], completed()));
    // A call that is written to a process before its end is noticed is lost: that is another case (17).
    if (isStdio(run.transport) || run.transport === "sse-2024") await connection.closed;
  }
  await lab.server.restart();
  await run.lose(lab, "C", [], completed());
  for (const subject of subjects) {
    expect([lab.requests(subject).length, (await lab.operation(subject)).state]).toEqual([1, "completed"]);
  }
}

/** Case 11: many losses at once lead to one new connection. */
export async function oneReconnect(run: Run): Promise<void> {
  const lab = await run.open();
  const subjects = Array.from({ length: 5 }, () => lab.subject("R"));
  const waiting: Calling[] = [];
  for (const subject of subjects) waiting.push(await hanging(run, lab, subject));
  const calls = lab.peer.ledger.calls();
  if (lab.peer.http !== undefined) await lab.peer.http.restart();
  else process.kill(calls[0]?.pid ?? 0, "SIGKILL");
  for (const [index, subject] of subjects.entries()) {
    await expectOutcome(lab, subject, await (waiting[index] as Calling).answer, replayed());
  }
  if (isStdio(run.transport)) expect(new Set(lab.peer.requests().map(({ pid }) => pid)).size).toBe(2);
  else if (lab.peer.era === "2025-11-25") expect(lab.peer.requests("initialize")).toHaveLength(2);
}

/** Case 12: identical calls at the same moment all run and are marked; once one is unresolved, further ones are held. */
export async function identicalInFlight(run: Run): Promise<void> {
  const lab = await run.open();
  const subject = lab.subject("C");
  const waiting: Calling[] = [];
  for (let count = 0; count < 3; count += 1) waiting.push(await hanging(run, lab, subject));
  expect(lab.requests(subject)).toHaveLength(3);
  lab.peer.release(3);
  const answers = await Promise.all(waiting.map(({ answer }) => answer));
  expect(answers.map(({ isError }) => isError)).toEqual([false, false, false]);
  const operations = await lab.operations(subject);
  expect(operations.map(({ state }) => state)).toEqual(["completed", "completed", "completed"]);
  expect(operations.filter(({ intention }) => intention.possibleDuplicateOf !== undefined)).toHaveLength(2);
  expect(answers.filter(({ mark }) => mark?.possibleDuplicateOf !== undefined)).toHaveLength(2);

  const lost = await run.lose(lab, "C", [run.loss], unresolved(reasonOfLoss(run)));
  const held = await Promise.all([1, 2, 3].map(() => lab.call(run.path, lost).answer));
  for (const answer of held) expect(answer.mark?.state).toBe("held");
  expect(lab.requests(lost)).toHaveLength(1);
}

/** Case 13: whoever comes first, there is one process, or one handshake. */
export async function startedOnce(run: Run): Promise<void> {
  const lab = await run.open({ connect: false });
  const agents = [1, 2, 3, 4].map((number) => lab.newAgent({ name: `agent ${number}` }));
  const answers = await Promise.all([
    ...agents.map((agent) => agent.request("tools/list", {}).answer),
    ...agents.map((agent) => agent.call("lookup", { item: "x" }).answer),
  ]);
  expect(answers.map(({ kind }) => kind)).toEqual(answers.map(() => "result"));
  expect(new Set(lab.peer.requests().map(({ pid }) => pid)).size).toBe(1);
  const handshake = lab.peer.era === "2026-07-28" ? "server/discover" : "initialize";
  expect(lab.peer.requests(handshake)).toHaveLength(1);
}

/** Cases 14 and 17: calls in flight when the server goes may have run; later ones get a live connection. */
export async function serverRestarts(run: Run): Promise<void> {
  const lab = await run.open();
  const lost = lab.subject("C");
  const calling = await hanging(run, lab, lost);
  if (lab.peer.http !== undefined) await lab.peer.http.restart();
  else process.kill(lab.peer.ledger.calls()[0]?.pid ?? 0, "SIGKILL");
  await expectOutcome(lab, lost, await calling.answer, unresolved(reasonOfLoss(run)));
  // On Streamable HTTP this one may be what finds out that the session is gone; then it did not run, and calling again is safe.
  const next = lab.subject("C");
  let answer = await lab.call(run.path, next).answer;
  if (answer.mark?.state === "not-executed") answer = await lab.call(run.path, next).answer;
  expect([answer.isError, lab.effects(next)]).toEqual([false, 1]);
}

/** Cases 15 and 19: a session that is gone is noticed and renewed without any call, and the state says so meanwhile. */
export async function renewedByMonitor(run: Run): Promise<void> {
  const lab = await run.open();
  const states: string[] = [];
  lab.server.onDidChange(() => states.push(lab.server.status.state));
  const { http } = lab.peer;
  if (http === undefined) throw new Error("HTTP only");
  await http.until(() => http.requests("HTTP GET").length > 0);
  if (run.transport === "sse-2024") {
    // The event stream is the session. Its end, a refused connection, and then the server is back.
    await http.goDown();
    await lab.untilServer("reconnecting");
    await http.comeUp();
  } else http.forgetSessions();
  await http.until(() => http.requests("initialize").length >= 2, 60_000);
  await lab.untilServer("connected");
  // An event stream that is refused speaks against the session: it is asked before it is given up. The end of the older one is its end.
  expect(states[0]).toBe(run.transport === "sse-2024" ? "reconnecting" : "degraded");
  expect(states).toContain("reconnecting");
  await run.lose(lab, "C", [], completed());
}

/** Case 16: no text decides anything. */
export async function wordingDoesNotMatter(run: Run): Promise<void> {
  const lab = await run.open();
  const words = "fetch failed: ECONNRESET, socket hang up, Session not found, Connection closed, request timed out";
  const subject = lab.subject("C");
  lab.peer.script({ do: "error", code: -32000, message: words });
  const answer = await lab.call(run.path, subject).answer;
  expect([answer.error?.code, answer.error?.message]).toEqual([-32000, words]);
  expect((await lab.operation(subject)).state).toBe("completed");
  await run.lose(lab, "C", [{ do: "tool-error", text: words, effect: true }], completed());
  expect(await lab.core.journal.count(["unresolved"])).toBe(0);
}

/** Case 16: the source itself: no error's message is ever compared, searched or matched. */
export function noMatchingOnMessages(): void {
  const matches = /\.message\s*(===|!==|\.(includes|match|startsWith|endsWith|search|indexOf|test)\b)|\.test\([^)]*\.message\)/;
  const found: string[] = [];
  for (const folder of ["hosting", "replay", "gateway", "operations"]) {
    const path = join(repositoryRoot, "src", folder);
    for (const file of readdirSync(path).filter((name) => name.endsWith(".ts"))) {
      for (const line of readFileSync(join(path, file), "utf8").split("\n"))
        if (matches.test(line)) found.push(`${file}: ${line}`);
    }
  }
  expect(found).toEqual([]);
}

/** Case 22: another RPC id, other `_meta`, another order of the members: the same intention. */
export async function sameIntention(run: Run): Promise<void> {
  const lab = await run.open();
  const subject = await run.lose(lab, "C", [run.loss], unresolved(reasonOfLoss(run)));
  const { account, amount } = subject.arguments;
  for (let number = 1; number <= 3; number += 1) {
    const answer = await lab
      .newAgent({ name: "agent" })
      .call(
        subject.tool,
        { amount, account },
        { _meta: { progressToken: `p${number}`, "vscode.requestId": `r${number}`, traceparent: `00-${number}`, callId: number } },
      ).answer;
    expect(JSON.stringify(answer)).toContain("HELD: ");
  }
  expect([lab.requests(subject).length, lab.effects(subject)]).toEqual([1, 1]);
}

/** Case 23: a changed definition starts that server anew, its trust is asked for again, and changed tools are seen. */
export async function editedDefinition(run: Run): Promise<void> {
  const consent: { fingerprint?: string } = {};
  const lab = await run.open({
    core: {
      trust: { workspaceTrusted: () => true, serverTrustSetting: () => true, consentFingerprint: () => consent.fingerprint },
    },
  });
  consent.fingerprint = lab.server.fingerprint;
  await run.lose(lab, "S", [run.loss], replayed());
  const old = lab.server;
  const pids = new Set(lab.peer.requests().map(({ pid }) => pid));
  const { definition } = lab.peer;
  const edited =
    definition.type === "stdio"
      ? { ...definition, env: { ...definition.env, EDITED: "1" } }
      : { ...definition, headers: { "x-edited": "1" } };
  lab.peer.setTools([
    { name: "charge", inputSchema: { type: "object" } },
    { name: "put", inputSchema: { type: "object" }, annotations: { idempotentHint: true } },
  ]);
  await lab.core.setDefinitions(new Map([[serverName, edited]]));
  expect(lab.server).not.toBe(old);
  expect(old.status.state).toBe("stopped");
  const listed = await lab.agent.request("tools/list", {}).answer;
  expect(JSON.stringify(listed)).not.toContain("find_charge");
  await run.lose(lab, "S", [run.loss], unresolved(reasonOfLoss(run)));
  const last = lab.peer.requests().at(-1);
  if (isStdio(run.transport)) expect(pids).not.toContain(last?.pid);
  else expect(last?.headers?.["x-edited"]).toBe("1");
}

/** Case 24: comments keep the agent's connection alive; ten minutes later the answer is delivered. */
export async function tenMinutesOfSilence(run: Run): Promise<void> {
  const lab = await run.open();
  const socket = join(lab.journalDir, "..", "k", "gateway");
  const gateway = await createGateway({
    listen: { kind: "unix", path: socket },
    servers: () => lab.core.servers,
    calls: lab.core.calls,
    trust: { workspaceTrusted: () => true, serverTrustSetting: () => true, consentFingerprint: () => lab.server.fingerprint },
    log: () => undefined,
    keepAliveMs: 20,
  });
  try {
    const subject = lab.subject("C");
    const before = lab.peer.hanging;
    lab.peer.script({ do: "hang" });
    const calling = new Agent({ socket, path: gateway.urlOf(serverName) }).call(subject.tool, subject.arguments);
    await lab.peer.untilHanging(before + 1);
    lab.clock.jump(600_000);
    await calling.untilComments(3);
    lab.peer.release();
    expect(await calling.answer).toMatchObject({ kind: "result" });
    expect((await lab.operation(subject)).state).toBe("completed");
  } finally {
    await gateway.close(0);
  }
}
