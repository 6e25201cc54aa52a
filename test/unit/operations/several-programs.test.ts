import { describe, expect, it } from "vitest";
import { isHeld, Lease, leases, removeLease } from "../../../src/operations/leases.ts";
import type { OperationEvent } from "../../../src/operations/model.ts";
import { openSqliteJournal } from "../../../src/operations/sqlite-journal.ts";
import { verifyJournal } from "../../../src/operations/verify.ts";
import { all, attemptStart, intention, lost, makeEvent } from "../journal-contract.ts";
import { closing, journalFolder, Program, tamper } from "./journal-support.ts";

const durable = { durable: true };
const sent = (id: string): readonly OperationEvent[] => [
  makeEvent(id, "prepared", intention()),
  makeEvent(id, "sent", attemptStart()),
];
const open = (directory: string, watchMs = 0) => closing(openSqliteJournal({ directory, watchMs }));

describe("several programs on one journal", () => {
  it("leave a living program's call alone, while it waits, is stopped by a signal, or the clock jumps", async () => {
    const directory = journalFolder();
    const holder = await Program.start({ directory });
    await holder.ask("append", sent("a"), durable);
    for (const now of [Date.now(), Date.now() + 1e10, 0]) {
      const other = openSqliteJournal({ directory, watchMs: 0, now: () => now });
      expect(await other.operation("a")).toMatchObject({ state: "in-flight" });
      await other.close();
    }
    if (process.platform !== "win32") holder.child.kill("SIGSTOP");
    expect(await open(directory).operation("a")).toMatchObject({ state: "in-flight" });
    if (process.platform !== "win32") holder.child.kill("SIGCONT");
    expect(await holder.ask("operation", "a")).toMatchObject({ state: "in-flight" });
  });

  it("find a killed program's call as lost, by themselves and each once", async () => {
    const directory = journalFolder();
    const holder = await Program.start({ directory });
    const [one, two] = await Promise.all([Program.start({ directory, watchMs: 50 }), Program.start({ directory, watchMs: 50 })]);
    const noticed = one.changed();
    await holder.ask("append", [...sent("a"), ...sent("b")], durable);
    await noticed;
    const found = one.changed();
    await holder.kill();
    await found;
    expect(await two.ask("operation", "a")).toMatchObject({ state: "unresolved", reason: "process-ended" });
    expect((await two.ask("events", "b")).map((event) => event.type)).toEqual(["prepared", "sent", "lost"]);
    expect(leases(directory)).toHaveLength(3); // one, two, and the one for opening
  });

  it("find it though the dead program's process id belongs to a living one now", async () => {
    const directory = journalFolder();
    const holder = await Program.start({ directory });
    await holder.ask("append", sent("a"), durable);
    await holder.kill();
    tamper(directory, `UPDATE owners SET pid = ${process.pid}`);
    expect(await open(directory).operation("a")).toMatchObject({ state: "unresolved", reason: "process-ended" });
  });

  it("let a call go on that another program repeats, and take it for lost when that one dies", async () => {
    const directory = journalFolder();
    const journal = open(directory);
    const settled = makeEvent("a", "settled", { as: "no-effect", evidence: "looked" });
    await journal.append([...sent("a"), makeEvent("a", "lost", lost), settled], durable);
    const other = await Program.start({ directory });
    const again = [
      makeEvent("a", "repeated", { attempt: 2, evidence: "looked" }),
      makeEvent("a", "sent", { ...attemptStart(2), cause: "repeat" }),
    ];
    await other.ask("append", again, durable);
    await journal.close();
    const third = open(directory);
    expect(await third.operation("a")).toMatchObject({ state: "in-flight" });
    await other.kill();
    expect(await open(directory).operation("a")).toMatchObject({ state: "unresolved", attempts: [{}, { number: 2 }] });
  });

  it("settle an operation once, whoever is first", async () => {
    const directory = journalFolder();
    const programs = await Promise.all([0, 1, 2].map(() => Program.start({ directory })));
    const rounds = 20;
    for (let round = 0; round < rounds; round++) {
      const id = `op${round}`;
      await programs[0]?.ask("append", [...sent(id), makeEvent(id, "lost", lost)], durable);
      const settle = (as: string): readonly OperationEvent[] => [makeEvent(id, "settled", { as, evidence: "looked" })];
      const results = await Promise.allSettled(
        programs.map((program, i) =>
          program.ask("append", settle(["no-effect", "effect-confirmed", "dismissed"][i] ?? ""), durable),
        ),
      );
      expect(results.filter((result) => result.status === "fulfilled")).toHaveLength(1);
      for (const result of results) {
        if (result.status === "rejected") expect(result.reason).toMatchObject({ name: "IllegalTransition" });
      }
    }
    const journal = open(directory);
    expect((await all(journal.allEvents())).filter((event) => event.type === "settled")).toHaveLength(rounds);
  });

  it("write at the same time, each in order, all in one chain", async () => {
    const directory = journalFolder();
    const programs = await Promise.all([0, 1, 2].map(() => Program.start({ directory, busyMs: 60_000 })));
    await Promise.all(
      programs.map(async (program, p) => {
        for (let i = 0; i < 50; i++) await program.ask("append", sent(`${p}-${i}`), durable);
      }),
    );
    expect(await verifyJournal(directory)).toMatchObject({ ok: true, events: 300 });
    const mine = (await programs[0]?.ask("operations", { limit: 1000 })) ?? [];
    for (const p of [0, 1, 2]) {
      const order = mine.filter((one) => one.id.startsWith(`${p}-`)).map((one) => one.id);
      expect(order).toEqual(Array.from({ length: 50 }, (_, i) => `${p}-${49 - i}`));
    }
  });

  it("are told of each other's changes, and of nothing else", async () => {
    const directory = journalFolder();
    const watching = await Program.start({ directory, watchMs: 20 });
    const journal = open(directory);
    let told = watching.changed();
    await journal.append(sent("a"), durable);
    await told;
    expect(await watching.ask("operation", "a")).toMatchObject({ state: "in-flight" });
    told = watching.changed();
    await journal.append([makeEvent("a", "lost", lost)], durable);
    await told;
    expect(await watching.ask("operation", "a")).toMatchObject({ state: "unresolved" });
  });

  it("end by giving up their lease: nothing stays behind", async () => {
    const directory = journalFolder();
    const program = await Program.start({ directory });
    await program.ask("append", sent("a"), durable);
    await program.ask("close");
    expect(leases(directory)).toEqual(["opening"]);
    // It said itself that nobody hears the answer any more: a reader sees it at once.
    const reading = closing(openSqliteJournal({ directory, readOnly: true }));
    expect(await reading.operation("a")).toMatchObject({ state: "unresolved", reason: "process-ended" });
  });
});

describe("a lease", () => {
  it("is held by one, until it is released", () => {
    const directory = journalFolder();
    openSqliteJournal({ directory, watchMs: 0 })
      .close()
      .catch(() => undefined);
    expect(isHeld(directory, "x")).toBe(false);
    const lease = Lease.take(directory, "x");
    expect(isHeld(directory, "x")).toBe(true);
    expect(() => Lease.take(directory, "x")).toThrow(/locked/);
    lease.release();
    lease.release();
    expect(isHeld(directory, "x")).toBe(false);
    Lease.take(directory, "x").release();
    removeLease(directory, "x");
    expect(leases(directory)).not.toContain("x");
  });

  it("that a program left behind before it wrote anything is swept away", async () => {
    const directory = journalFolder();
    await open(directory).close();
    Lease.take(directory, "leftover").release();
    const held = Lease.take(directory, "held");
    await open(directory).close();
    expect(leases(directory)).toEqual(expect.arrayContaining(["held", "opening"]));
    expect(leases(directory)).not.toContain("leftover");
    held.release();
  });
});
