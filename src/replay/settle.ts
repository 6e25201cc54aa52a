/**
 * Owns: closing an unresolved operation on evidence, and a conflict with a note, from any program that has the journal.
 * Leaves to others: asking for the evidence.
 */
import { JournalError, type Journal } from "../operations/journal.ts";
import { IllegalTransition, type Actor, type Operation, type Settlement } from "../operations/model.ts";

/**
 * Settles once: of two programs that try, one succeeds.
 * @param attempts how many attempts the operation had when this was established; when there is one more by now, nothing is settled
 * @throws JournalError `unknown-operation`, `not-unresolved` (settled or answered in the meantime), or what the journal says
 */
export async function settleOperation(
  journal: Journal,
  id: string,
  as: Settlement,
  evidence: string,
  actor: Actor,
  at: number,
  attempts?: number,
): Promise<Operation> {
  const operation = await journal.operation(id);
  if (operation === undefined) throw new JournalError("unknown-operation", `There is no operation ${id}.`);
  try {
    const data = { as, evidence, ...(attempts === undefined ? {} : { attempts }) };
    const [settled] = await journal.append([{ operationId: id, type: "settled", actor, at, data }], { durable: true });
    return settled ?? operation;
  } catch (error) {
    if (!(error instanceof IllegalTransition)) throw error;
    const now = await journal.operation(id);
    throw new JournalError(
      "not-unresolved",
      now?.state === "unresolved"
        ? `Operation ${id} was attempted again in the meantime: what was established before that says nothing about it now.`
        : `Operation ${id} is not unresolved (it is '${now?.state ?? operation.state}'): there is nothing to settle.`,
    );
  }
}

/**
 * Closes a conflict, once. Nothing of what was settled or answered is rewritten.
 * @throws JournalError `unknown-operation`, `not-unresolved` (no conflict, or closed in the meantime), or what the journal says
 */
export async function acknowledgeConflict(journal: Journal, id: string, note: string, at: number): Promise<Operation> {
  const operation = await journal.operation(id);
  if (operation === undefined) throw new JournalError("unknown-operation", `There is no operation ${id}.`);
  try {
    const event = { operationId: id, type: "acknowledged", actor: "person", at, data: { note } } as const;
    const [closed] = await journal.append([event], { durable: true });
    return closed ?? operation;
  } catch (error) {
    if (!(error instanceof IllegalTransition)) throw error;
    throw new JournalError("not-unresolved", `Operation ${id} is in no conflict: there is nothing to close.`);
  }
}
