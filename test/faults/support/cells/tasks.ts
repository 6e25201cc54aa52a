/**
 * Owns: row 26 of the fault matrix: a request whose answer would have been a task, lost before its id. (Row 25: gateway.ts.)
 */
import { replayed, unresolved } from "../checks.ts";
import type { Run } from "../run.ts";
import { reasonOfLoss } from "./gate.ts";

export async function lostBeforeTaskId(run: Run): Promise<void> {
  const lab = await run.open();
  const step = { do: "task", deliver: run.loss } as const;
  await run.lose(lab, "C", [step], unresolved(reasonOfLoss(run)));
  await run.lose(lab, "R", [step], replayed());
  await run.lose(lab, "S", [step], replayed());
}
