/**
 * Owns: what every journal must do, whatever it is kept in. One suite for all implementations.
 */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Journal, JournalSettings } from "../../src/operations/journal.ts";
import { IllegalTransition, type EventType, type OperationEvent } from "../../src/operations/model.ts";

export const intention = (fields: Record<string, unknown> = {}) => ({
  server: "booking",
  tool: "create_booking",
  arguments: { guest: "Ada" },
  digest: "digest",
  caller: { client: "test" },
  fingerprint: "f",
  provenRead: false,
  declaredRead: false,
  ...fields,
});
export const makeEvent = (operationId: string, type: EventType, data: unknown, at = 1): OperationEvent =>
  ({ operationId, type, actor: "agent", at, data }) as OperationEvent;
export const attemptStart = (number = 1) => ({
  number,
  rpcId: `rpc-${number}`,
  era: "2025-11-25",
  transport: "stdio",
  connectionId: "c1",
  protocolVersion: "2025-11-25",
  cause: "call",
});
export const lost = { attempt: 1, stage: "sent", reason: "connection-lost", kind: "reset" };

/** Answers of every kind that an operation can have had. */
export const answered = (fields: Record<string, unknown> = {}) => ({
  attempt: 1,
  result: { content: [{ type: "text", text: "ok" }] },
  isError: false,
  reason: "answered",
  ...fields,
});
export const all = async <T>(items: AsyncIterable<T>): Promise<T[]> => {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
};

export interface JournalUnderTest {
  /** Opens the journal of one folder, again after it was closed. */
  open(settings?: JournalSettings): Promise<Journal>;
  remove(): void;
}

export function journalContract(name: string, make: () => JournalUnderTest): void {
  describe(`${name}: the journal's contract`, () => {
    let journal: Journal;
    let place: JournalUnderTest;
    beforeEach(async () => {
      place = make();
      journal = await place.open();
    });
    afterEach(async () => {
      await journal.close();
      place.remove();
    });
    const reopen = async (settings?: JournalSettings): Promise<void> => {
      await journal.close();
      journal = await place.open(settings);
    };

    it("gives back what was appended, in order, after it was opened again", async () => {
      await journal.append([makeEvent("a", "prepared", intention()), makeEvent("a", "sent", attemptStart())], { durable: true });
      await journal.append([makeEvent("a", "lost", lost)], { durable: false });
      await reopen();
      expect((await journal.events("a")).map((event) => event.type)).toEqual(["prepared", "sent", "lost"]);
      expect(await journal.operation("a")).toMatchObject({
        id: "a",
        state: "unresolved",
        reason: "connection-lost",
        intention: { arguments: { guest: "Ada" } },
      });
    });

    it("writes all events of an append or none", async () => {
      await expect(
        journal.append(
          [
            makeEvent("a", "prepared", intention()),
            makeEvent("a", "answered", { attempt: 1, isError: false, reason: "answered" }),
          ],
          { durable: true },
        ),
      ).rejects.toBeInstanceOf(IllegalTransition);
      expect(await journal.operation("a")).toBeUndefined();
      expect(await journal.events("a")).toEqual([]);
    });

    it("keeps the good of two appends made in one turn when the other is illegal", async () => {
      const good = journal.append([makeEvent("a", "prepared", intention())], { durable: true });
      const bad = journal.append([makeEvent("b", "sent", attemptStart())], { durable: true });
      await expect(bad).rejects.toBeInstanceOf(IllegalTransition);
      await expect(good).resolves.toHaveLength(1);
      expect(await journal.operation("a")).toMatchObject({ state: "prepared" });
    });

    it("lets a read see what was appended before it, without a wait for the append", async () => {
      const appended = journal.append([makeEvent("a", "prepared", intention()), makeEvent("a", "sent", attemptStart())], {
        durable: false,
      });
      expect(await journal.operations({ digest: "digest" })).toMatchObject([{ id: "a", state: "in-flight" }]);
      await appended;
    });

    it("lists by state, server and digest, newest first, in pages", async () => {
      for (const id of ["a", "b", "c"]) {
        await journal.append(
          [
            makeEvent(id, "prepared", intention({ server: id, digest: id === "c" ? "other" : "same" })),
            makeEvent(id, "sent", attemptStart()),
          ],
          { durable: true },
        );
      }
      await journal.append([makeEvent("b", "lost", lost)], { durable: true });
      const ids = async (query: Parameters<Journal["operations"]>[0]) => (await journal.operations(query)).map((one) => one.id);
      expect(await ids({})).toEqual(["c", "b", "a"]);
      expect(await ids({ states: ["unresolved"] })).toEqual(["b"]);
      expect(await ids({ server: "c" })).toEqual(["c"]);
      expect(await ids({ digest: "same" })).toEqual(["b", "a"]);
      expect(await ids({ limit: 2 })).toEqual(["c", "b"]);
      expect(await ids({ before: "b" })).toEqual(["a"]);
      expect(await journal.count(["in-flight"])).toBe(2);
    });

    it("lists several states as one list, each page no longer than asked", async () => {
      for (let i = 0; i < 9; i++) {
        const id = `op${i}`;
        await journal.append([makeEvent(id, "prepared", intention()), makeEvent(id, "sent", attemptStart())], { durable: false });
        if (i % 3 === 0) await journal.append([makeEvent(id, "answered", answered())], { durable: false });
        if (i % 3 === 1) await journal.append([makeEvent(id, "lost", lost)], { durable: false });
      }
      const ids = async (query: Parameters<Journal["operations"]>[0]) => (await journal.operations(query)).map((one) => one.id);
      const states = ["completed", "unresolved"] as const;
      expect(await ids({ states })).toEqual(["op7", "op6", "op4", "op3", "op1", "op0"]);
      expect(await ids({ states, limit: 3 })).toEqual(["op7", "op6", "op4"]);
      expect(await ids({ states, limit: 3, before: "op4" })).toEqual(["op3", "op1", "op0"]);
      expect(await ids({ states, digest: "digest", limit: 4 })).toEqual(["op7", "op6", "op4", "op3"]);
      expect(await ids({ states: [] })).toEqual([]);
    });

    it("streams every event in journal order", async () => {
      // More than one page of them.
      for (let i = 0; i < 1200; i += 100) {
        const events = Array.from({ length: 100 }, (_, j) => makeEvent(`op${i + j}`, "prepared", intention()));
        await journal.append(events, { durable: false });
      }
      const seen = (await all(journal.allEvents())).map((event) => event.operationId);
      expect(seen).toEqual(Array.from({ length: 1200 }, (_, i) => `op${i}`));
    });

    it("numbers its entries without a hole and hashes each", async () => {
      await journal.append([makeEvent("a", "prepared", intention()), makeEvent("a", "sent", attemptStart())], { durable: true });
      await expect(journal.append([makeEvent("b", "sent", attemptStart())], { durable: true })).rejects.toThrow();
      await journal.append([makeEvent("a", "lost", lost)], { durable: true });
      const entries = await all(journal.entries());
      expect(entries.map((entry) => [entry.number, entry.operationId, entry.type])).toEqual([
        [1, "a", "prepared"],
        [2, "a", "sent"],
        [3, "a", "lost"],
      ]);
      expect(new Set(entries.map((entry) => entry.hash)).size).toBe(3);
      expect(entries[0]?.hash).toMatch(/^[0-9a-f]{64}$/);
    });

    it("records what is still under way when it is closed as lost: nobody will hear the answer", async () => {
      await journal.append([makeEvent("a", "prepared", intention()), makeEvent("a", "sent", attemptStart())], { durable: true });
      await reopen();
      expect(await journal.operation("a")).toMatchObject({ state: "unresolved", reason: "process-ended" });
    });

    it("keeps of arguments and answers what the settings say, from the moment they say it", async () => {
      const secrets = { user: "ada", password: "p-4711", card: { number: "4242" } };
      const write = (id: string) =>
        journal.append(
          [
            makeEvent(id, "prepared", intention({ arguments: secrets })),
            makeEvent(id, "sent", attemptStart()),
            makeEvent(id, "answered", answered()),
          ],
          { durable: true },
        );
      await write("full");
      journal.configure({ arguments: { mode: "redacted", paths: ["/card/number"] } });
      await write("redacted");
      await reopen({ arguments: { mode: "digest" } });
      await write("digest");
      const kept = async (id: string) => {
        const operation = await journal.operation(id);
        return [operation?.intention.arguments, operation?.intention.withheld, operation?.answer];
      };
      const answer = { result: answered().result, isError: false };
      expect(await kept("full")).toEqual([secrets, undefined, answer]);
      const redacted = { user: "ada", password: "(redacted)", card: { number: "(redacted)" } };
      expect(await kept("redacted")).toEqual([redacted, "some", answer]);
      expect(await kept("digest")).toEqual([{}, "all", { isError: false, withheld: "all" }]);
      expect((await journal.operation("digest"))?.intention.digest).toBe("digest");
    });

    it("lets closed operations leave when the settings say so, and no others", async () => {
      for (const id of ["old", "open", "new"]) {
        await journal.append([makeEvent(id, "prepared", intention()), makeEvent(id, "sent", attemptStart())], { durable: false });
      }
      for (const id of ["old", "new"]) await journal.append([makeEvent(id, "answered", answered())], { durable: false });
      await journal.append([makeEvent("open", "lost", lost)], { durable: true });
      expect(await journal.prune()).toBe(0);
      journal.configure({ retention: { days: 1_000_000, count: 1 } });
      expect(await journal.prune()).toBe(1);
      expect((await journal.operations({})).map((one) => one.id)).toEqual(["new", "open"]);
      expect(await journal.events("old")).toEqual([]);
      expect(await journal.events("open")).toHaveLength(3);
      const entries = await all(journal.entries());
      expect(entries.at(-1)).toMatchObject({ type: "pruned", data: { operations: 1, events: 3 } });
      expect((await all(journal.allEvents())).map((event) => event.operationId)).not.toContain("");
    });

    it("keeps the answer with the operation", async () => {
      await journal.append([makeEvent("a", "prepared", intention()), makeEvent("a", "sent", attemptStart())], { durable: true });
      await journal.append(
        [
          makeEvent("a", "answered", {
            attempt: 1,
            result: { content: [{ type: "text", text: "ok" }] },
            isError: false,
            reason: "answered",
          }),
        ],
        { durable: false },
      );
      await journal.append([makeEvent("a", "delivered", { to: "agent" })], { durable: false });
      expect(await journal.operation("a")).toMatchObject({
        state: "completed",
        delivered: true,
        answer: { result: { content: [{ text: "ok" }] } },
      });
    });

    it("tells its listeners of every change, until they leave", async () => {
      let calls = 0;
      const stop = journal.onDidChange(() => calls++);
      await journal.append([makeEvent("a", "prepared", intention())], { durable: true });
      expect(calls).toBe(1);
      stop();
      await journal.append([makeEvent("b", "prepared", intention())], { durable: true });
      expect(calls).toBe(1);
    });

    it("refuses appends once it is closed", async () => {
      await journal.close();
      await expect(journal.append([makeEvent("a", "prepared", intention())], { durable: true })).rejects.toMatchObject({
        code: "closed",
      });
    });
  });
}
