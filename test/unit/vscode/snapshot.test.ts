import { expect, it } from "vitest";
import type { OperationEvent } from "../../../src/operations/model.ts";
import { openSqliteJournal } from "../../../src/operations/sqlite-journal.ts";
import { lookAt } from "../../../src/vscode/snapshot.ts";
import { temporaryFolder } from "../../support/temp.ts";
import { event, lost, now, prepared, sent } from "./operations.ts";

const of = (id: string, ...events: readonly OperationEvent[]): OperationEvent[] =>
  events.map((one) => ({ ...one, operationId: id }));
const settled = event("settled", "person", { as: "no-effect", evidence: "looked" }, now);
const late = event("late-answer", "server", { attempt: 1, isError: false }, now);
const conflict = event("conflict", "gateway", { settledAs: "no-effect", isError: false }, now);

it("shows every contradicted settlement however old, until a person has seen to it, and tells reads and settled calls apart", async () => {
  const folder = temporaryFolder();
  const journal = openSqliteJournal({ directory: folder.path, watchMs: 0 });
  const append = (...events: readonly OperationEvent[]) => journal.append(events, { durable: false });
  await append(...of("old", prepared(), sent(1), lost(1), settled, late, conflict));
  for (let i = 0; i < 600; i++) await append(...of(`settled${i}`, prepared(), sent(1), lost(1), settled));
  await append(...of("open", prepared(), sent(1), lost(1)), ...of("read", prepared({ declaredRead: true }), sent(1), lost(1)));

  const before = await lookAt(journal);
  expect(before.conflicts.map((one) => one.id)).toEqual(["old"]);
  expect(before.unresolved.map((one) => one.id)).toEqual(["open"]);
  expect(before.reads.map((one) => one.id)).toEqual(["read"]);
  expect(before.settled).toHaveLength(10);

  await append(...of("old", event("acknowledged", "person", { note: "cancelled it" }, now)));
  expect((await lookAt(journal)).conflicts).toEqual([]);
  await journal.close();
  folder.remove();
});
