import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { DatabaseSync } from "node:sqlite";
import type { Worker } from "node:worker_threads";
import { describe, expect, it, vi } from "vitest";
import { openJournal, verifyInThread } from "../../../src/operations/worker-journal.ts";
import { attemptStart, intention, makeEvent } from "../journal-contract.ts";
import { closing, fileOf, journalFolder, tamper } from "./journal-support.ts";

const threads: Worker[] = [];
vi.mock("node:worker_threads", async (original) => {
  const real = await original<typeof import("node:worker_threads")>();
  return {
    ...real,
    Worker: class extends real.Worker {
      constructor(...args: ConstructorParameters<typeof Worker>) {
        super(...args);
        threads.push(this);
      }
    },
  };
});

const prepared = (id: string) => [makeEvent(id, "prepared", intention())];
const durable = { durable: true };

describe("the journal in a thread of its own", () => {
  it("leaves the event loop free while it waits for the disk or a lock", async () => {
    const directory = journalFolder();
    const journal = closing(await openJournal({ directory, watchMs: 0, busyMs: 60_000 }));
    const other = new DatabaseSync(fileOf(directory));
    other.exec("BEGIN IMMEDIATE");
    let done = false;
    const append = journal.append(prepared("a"), durable).then(() => (done = true));
    // In the calling thread these turns would come only after the lock's time was over.
    for (let turn = 0; turn < 100; turn++) await new Promise((next) => setImmediate(next));
    expect(done).toBe(false);
    other.exec("ROLLBACK");
    other.close();
    await append;
    expect(await journal.operation("a")).toMatchObject({ state: "prepared" });
  });

  it("verifies in a thread of its own, and says what is wrong or missing", async () => {
    const directory = journalFolder();
    await expect(verifyInThread(directory)).rejects.toMatchObject({ name: "JournalError", code: "unwritable" });
    const journal = await openJournal({ directory, watchMs: 0 });
    await journal.append(prepared("a"), durable);
    const started = threads.length;
    expect(await verifyInThread(directory)).toMatchObject({ ok: true, events: 1 });
    expect(threads.length).toBe(started + 1);
    await journal.close();
    tamper(directory, "UPDATE events SET at = at + 1");
    expect(await verifyInThread(directory)).toMatchObject({ ok: false, at: 1 });
  });

  it("answers appends in order, and with the errors of the journal itself", async () => {
    const journal = closing(await openJournal({ directory: journalFolder(), watchMs: 0 }));
    const results = await Promise.allSettled([
      journal.append(prepared("a"), durable),
      journal.append([makeEvent("a", "sent", attemptStart())], durable),
      journal.append([makeEvent("a", "settled", { as: "no-effect", evidence: "" })], durable),
      journal.append([makeEvent("b", "prepared", { ...intention(), server: undefined })], durable),
      journal.append([makeEvent("c", "prepared", { ...intention(), arguments: { f: () => 1 } })], durable),
    ]);
    expect(results.map((result) => (result.status === "fulfilled" ? "ok" : (result.reason as Error).name))).toEqual([
      "ok",
      "ok",
      "IllegalTransition",
      "TypeError",
      "DataCloneError",
    ]);
    expect(results[2]).toMatchObject({ reason: { type: "settled", from: "in-flight" } });
  });

  it("says what stands in its way, and when that is over", async () => {
    const directory = journalFolder();
    const journal = closing(await openJournal({ directory, watchMs: 0 }));
    tamper(directory, "PRAGMA user_version=99");
    const told = new Promise<void>((done) => journal.onDidChange(done));
    await expect(journal.append(prepared("a"), durable)).rejects.toMatchObject({ code: "newer-version" });
    await told;
    expect(journal.problem).toMatchObject({ name: "JournalError", code: "newer-version" });
  });

  it("refuses what is asked while its thread dies, and starts another with the next call", async () => {
    const journal = closing(await openJournal({ directory: journalFolder(), watchMs: 0 }));
    await journal.append(prepared("a"), durable);
    const dying = threads.at(-1)?.terminate();
    await expect(journal.append(prepared("b"), durable)).rejects.toMatchObject({
      code: "unwritable",
      message: expect.stringContaining("started again with the next call") as string,
    });
    await dying;
    await journal.append(prepared("c"), durable);
    expect((await journal.operations({})).map((one) => one.id)).toEqual(["c", "a"]);
  });

  it("refuses appends once it is closed, and closing twice is closing once", async () => {
    const journal = await openJournal({ directory: journalFolder(), watchMs: 0 });
    const last = journal.append(prepared("a"), durable);
    await Promise.all([journal.close(), journal.close()]);
    await expect(last).resolves.toHaveLength(1);
    await expect(journal.append(prepared("b"), durable)).rejects.toMatchObject({ code: "closed" });
  });

  it.each([
    ["append", "void journal.append(events, { durable: true }).then(() => console.log('done'))"],
    ["end", "await journal.append(events, { durable: true }); await journal.close(); console.log('done')"],
  ])("does not keep a program alive that has nothing more to do, nor let it end before its %s is done", async (_what, code) => {
    const directory = journalFolder();
    const program = `
      import { openJournal } from ${JSON.stringify(join(import.meta.dirname, "../../../src/operations/worker-journal.ts"))};
      const journal = await openJournal({ directory: ${JSON.stringify(directory)} });
      const events = ${JSON.stringify(prepared("a"))};
      ${code};
    `;
    const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", program]);
    expect(stdout).toBe("done\n");
    const journal = closing(await openJournal({ directory, watchMs: 0 }));
    expect(await journal.operation("a")).toBeDefined();
  });
});
