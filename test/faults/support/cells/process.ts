/**
 * Owns: rows 27 to 29 of the fault matrix: a server's process and its pipes.
 */
import { expect } from "vitest";
import type { Step } from "../../../servers/fault/steps.ts";
import { completed, expectOutcome, replayed, unresolved } from "../checks.ts";
import type { Run } from "../run.ts";

export async function processEnds(run: Run): Promise<void> {
  const lab = await run.open();
  for (const step of [{ do: "exit" }, { do: "exit", code: 0 }, { do: "kill" }, { do: "partial-line" }] satisfies Step[]) {
    // A person starts it again: a program that ends too often stays down by itself.
    await lab.server.start();
    await run.lose(lab, "C", [step], unresolved("process-exit"));
  }
  await lab.server.start();
  await run.lose(lab, "R", [{ do: "exit" }], replayed());
  await run.lose(lab, "S", [{ do: "kill" }], replayed());
}

export async function pipesClose(run: Run): Promise<void> {
  const lab = await run.open();
  await run.lose(lab, "C", [{ do: "close-stdout" }], unresolved("connection-lost"));
  await run.lose(lab, "R", [{ do: "close-stdout" }], replayed());
  await run.lose(lab, "S", [{ do: "close-stdout" }], replayed());

  // The server stops reading: whoever writes next meets EPIPE; the call before it is not left waiting either.
  const other = await run.open();
  const unheard = other.subject("C");
  other.peer.script({ do: "close-stdin" });
  const first = other.call(run.path, unheard);
  await other.peer.ledger.untilEffects(1, { tool: "charge" }, 60_000);
  // The ledger is written before the pipe is closed.
  await other.peer.ledger.until(() => other.peer.stdio?.stdinClosed() === true, 60_000);
  const written = other.subject("C");
  const second = other.call(run.path, written);
  await expectOutcome(other, written, await second.answer, unresolved("connection-lost", { effects: 0, requests: 0 }));
  await expectOutcome(other, unheard, await first.answer, unresolved("connection-lost"));
  await run.lose(other, "C", [], completed());
}

export async function garbage(run: Run): Promise<void> {
  const lab = await run.open();
  for (const cls of ["C", "R", "S"] as const) await run.lose(lab, cls, [{ do: "garbage" }], completed());
  expect(lab.log.some((line) => line.startsWith("warning") && line.includes("no JSON-RPC message"))).toBe(true);
}
