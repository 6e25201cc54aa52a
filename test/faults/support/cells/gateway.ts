/**
 * Owns: rows 2, 3 and 25 of the fault matrix: the gateway itself is killed, as a process of its own, at a place that is always the same.
 */
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import type { Operation } from "../../../../src/operations/model.ts";
import { openSqliteJournal } from "../../../../src/operations/sqlite-journal.ts";
import type { Step } from "../../../servers/fault/steps.ts";
import { Headless } from "../../../support/headless.ts";
import { Agent } from "../agent.ts";
import { compileCache, isStdio, Peer } from "../peers.ts";
import type { Run } from "../run.ts";
import { until } from "../until.ts";

const hook = fileURLToPath(new URL("../kill-hook.mjs", import.meta.url));
const charge = { account: "killed", amount: 10 };

/** The program with the peer behind it; `killAfter`: the type of the journal event after which it dies by itself. */
class Killed {
  readonly program = new Headless();
  readonly peer: Peer;

  constructor(peer: Peer) {
    this.peer = peer;
  }

  async start(killAfter?: string): Promise<Agent> {
    const socket = join(this.program.folder.path, "s", "gateway");
    const config = { servers: { peer: this.peer.definition }, serverTrust: { peer: true }, workspaceTrusted: true };
    await this.program.serve(config, ["--listen", `unix:${socket}`], {
      NODE_COMPILE_CACHE: compileCache,
      ...(killAfter === undefined ? {} : { NODE_OPTIONS: `--import=${hook}`, MSR_TEST_KILL_AFTER: killAfter }),
    });
    return new Agent({ socket, path: this.program.urls["peer"] ?? "" });
  }

  /** What the journal says when the operation is as wished; read as any other program may, while the gateway runs or not. */
  async operation(wish: (operation: Operation) => boolean): Promise<Operation> {
    let found: Operation | undefined;
    const look = async (): Promise<boolean> => {
      const journal = openSqliteJournal({ directory: this.program.journalDir, readOnly: true });
      try {
        [found] = await journal.operations({});
        return found !== undefined && wish(found);
      } finally {
        await journal.close();
      }
    };
    await until(look);
    return found as Operation;
  }

  get counts(): { effects: number; requests: number } {
    return { effects: this.peer.ledger.countEffects(), requests: this.peer.ledger.countCalls() };
  }

  async close(): Promise<void> {
    await this.program.end("SIGKILL");
    await this.program.remove();
    await this.peer.close();
  }
}

async function withKilled(run: Run, body: (killed: Killed) => Promise<void>): Promise<void> {
  const program = new Headless();
  const peer = await Peer.start(run.transport, join(program.folder.path, "ledger"), { sync: isStdio(run.transport) });
  const killed = new Killed(peer);
  try {
    await body(killed);
  } finally {
    await killed.close();
    program.folder.remove();
  }
}

/** Row 2: the attempt is in the journal, nothing was sent. */
export function killedBeforeSend(run: Run): Promise<void> {
  return withKilled(run, async (killed) => {
    const agent = await killed.start("sent");
    const answer = await agent.call("charge", charge).answer;
    expect(answer.kind).toBe("nothing");
    expect(await killed.program.ended).toBe("SIGKILL");
    await expectUnresolvedAfterRestart(killed, { effects: 0, requests: 0 });
  });
}

/** Row 3: sent, and nobody heard the answer. */
export function killedAfterSend(run: Run): Promise<void> {
  return withKilled(run, async (killed) => {
    await callAndKill(killed, { do: "hang" });
    await expectUnresolvedAfterRestart(killed, { effects: 1, requests: 1 });
  });
}

/** Row 3 with a saved cursor: the session still lives, and the answer is fetched by GET, not by a second call. */
export function recoveredAfterRestart(run: Run): Promise<void> {
  return withKilled(run, async (killed) => {
    await callAndKill(killed, { do: "hang" }, (operation) => operation.attempts[0]?.cursor !== undefined);
    killed.peer.release();
    await killed.start();
    const operation = await killed.operation(({ state }) => state === "completed");
    expect(operation).toMatchObject({ reason: "recovered", answer: { isError: false }, delivered: false });
    expect(killed.counts).toEqual({ effects: 1, requests: 1 });
    const resumed = killed.peer.http?.requests().filter(({ lastEventId }) => lastEventId !== undefined) ?? [];
    expect(resumed.length).toBeGreaterThan(0);
    expect(new Set(resumed.map(({ sessionId }) => sessionId))).toEqual(new Set([operation.attempts[0]?.sessionId]));
  });
}

/** Row 25: the answer was a task, its id is in the journal, and whoever waited for the rest is gone: the task is polled. */
export function taskPolledAfterRestart(run: Run): Promise<void> {
  return withKilled(run, async (killed) => {
    killed.peer.script({ do: "task", working: 2 });
    const agent = await killed.start("task");
    await agent.call("charge", charge, killed.peer.era === "2025-11-25" ? { task: { ttl: 60_000 } } : {}).answer;
    expect(await killed.program.ended).toBe("SIGKILL");
    expect((await killed.operation(() => true)).attempts).toMatchObject([{ taskId: killed.peer.http?.world.tasks()[0]?.taskId }]);
    await killed.start();
    const operation = await killed.operation(({ state }) => state === "completed");
    expect(operation).toMatchObject({ reason: "recovered", answer: { isError: false } });
    expect(JSON.stringify(operation.answer)).toContain("Charged");
    expect(killed.counts).toEqual({ effects: 1, requests: 1 });
    expect(killed.peer.requests("tasks/get").length).toBeGreaterThanOrEqual(3);
  });
}

async function callAndKill(killed: Killed, step: Step, wish: (operation: Operation) => boolean = () => true): Promise<void> {
  const agent = await killed.start();
  killed.peer.script(step);
  const calling = agent.call("charge", charge);
  await killed.peer.untilHanging(1);
  await killed.operation(wish);
  await killed.program.end("SIGKILL");
  expect((await calling.answer).kind).toBe("nothing");
}

async function expectUnresolvedAfterRestart(killed: Killed, counts: { effects: number; requests: number }): Promise<void> {
  const agent = await killed.start();
  const operation = await killed.operation(({ state }) => state === "unresolved");
  expect(operation.reason).toBe("process-ended");
  // Its user calls again (field case 20): held, nothing sent.
  const again = await agent.call("charge", charge).answer;
  expect(JSON.stringify(again)).toContain(`HELD: an identical earlier call is still unresolved (operation ${operation.id})`);
  expect(killed.counts).toEqual(counts);
}
