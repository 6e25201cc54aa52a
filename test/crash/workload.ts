/**
 * Owns: a scripted life of a journal, and what it says while it goes on.
 * Leaves to others: what must hold afterwards, whatever became of it (invariants.ts).
 *
 * `acked`: the journal said that these events are written. `sends`: only now would the first byte of the call leave.
 */
import type { Journal } from "../../src/operations/journal.ts";
import type { EventType, OperationEvent } from "../../src/operations/model.ts";

export type Line =
  | { readonly acked: readonly (readonly [id: string, type: EventType])[]; readonly durable: boolean }
  | { readonly sends: string }
  | { readonly pruning: true };

export type Say = (line: Line) => void;

const attempt = (number: number, cause = "call") => ({
  number,
  rpcId: `rpc-${number}`,
  era: "2025-11-25",
  transport: "http",
  connectionId: "c",
  protocolVersion: "2025-11-25",
  cause,
});
const result = { result: { content: [{ type: "text", text: "done" }] }, isError: false };
const lost = { attempt: 1, stage: "sent", reason: "connection-lost", kind: "reset" };

/**
 * @param calls how many calls; each of six kinds of them lives another life
 * @param first the number of the first of them
 */
export async function workload(journal: Journal, calls: number, say: Say, first = 0): Promise<void> {
  /** @returns whether it was written; a call whose event was not goes no further */
  const append = async (
    id: string,
    durable: boolean,
    ...events: readonly (readonly [EventType, unknown])[]
  ): Promise<boolean> => {
    try {
      await journal.append(
        events.map(([type, data]) => ({ operationId: id, type, actor: "agent", at: 1, data }) as OperationEvent),
        { durable },
      );
    } catch {
      return false;
    }
    say({ acked: events.map(([type]) => [id, type]), durable });
    return true;
  };
  const call = async (number: number): Promise<void> => {
    const id = `op${number}`;
    const intention = {
      server: "booking",
      tool: "create_booking",
      // Some are larger than a page.
      arguments: { guest: id, note: "x".repeat(number % 4 === 3 ? 6_000 : 40) },
      digest: `digest-${number}`,
      caller: { client: "test" },
      fingerprint: "f",
      provenRead: false,
      declaredRead: false,
    };
    if (!(await append(id, true, ["prepared", intention], ["sent", attempt(1)]))) return;
    say({ sends: id });
    switch (number % 6) {
      case 0:
        if (await append(id, false, ["answered", { attempt: 1, reason: "answered", ...result }]))
          await append(id, false, ["delivered", { to: "agent" }]);
        break;
      case 1:
        if (await append(id, false, ["lost", lost]))
          await append(id, true, ["settled", { as: "effect-confirmed", evidence: "seen" }]);
        break;
      case 2:
        await append(id, false, ["lost", lost]);
        break;
      case 3:
        if (await append(id, false, ["cursor", { attempt: 1, eventId: "7" }], ["lost", lost]))
          await append(id, false, ["recovered", { attempt: 1, how: "cursor", ...result }]);
        break;
      case 4:
        await append(id, false, ["refused", { attempt: 1, reason: "refused" }]);
        break;
      default:
        if (!(await append(id, false, ["lost", lost]))) return;
        if (!(await append(id, true, ["settled", { as: "no-effect", evidence: "looked" }]))) return;
        if (!(await append(id, true, ["repeated", { attempt: 2, evidence: "looked" }], ["sent", attempt(2, "repeat")]))) return;
        say({ sends: id });
        await append(id, false, ["answered", { attempt: 2, reason: "answered", ...result }]);
    }
  };
  // Three at a time: they share transactions.
  for (let number = first; number < first + calls; number += 3) {
    await Promise.all([number, number + 1, number + 2].filter((one) => one < first + calls).map(call));
  }
  say({ pruning: true });
  journal.configure({ retention: { days: 1_000_000, count: 2 } });
  await journal.prune().catch(() => undefined);
}
