/**
 * Owns: what the journal costs, in figures: how long it holds up the event loop, how many syncs it takes, and whether it grows slow.
 * Run: node test/bench/journal.ts          (everything; a minute or two)
 *      node test/bench/journal.ts --quick  (a tenth of the operations)
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { monitorEventLoopDelay, performance } from "node:perf_hooks";
import { setImmediate, setTimeout } from "node:timers/promises";
import { uuidv7 } from "uuidv7";
import { exportJsonl } from "../../src/operations/export.ts";
import type { Journal } from "../../src/operations/journal.ts";
import type { EventType, OperationEvent } from "../../src/operations/model.ts";
import { openSqliteJournal } from "../../src/operations/sqlite-journal.ts";
import { verifyJournal } from "../../src/operations/verify.ts";
import { openJournal } from "../../src/operations/worker-journal.ts";
import { lookAt } from "../../src/vscode/snapshot.ts";

const quick = process.argv.includes("--quick");
const folder = mkdtempSync(join(tmpdir(), "msr-bench-"));
let places = 0;
const place = (): string => join(folder, String(++places));

const event = (operationId: string, type: EventType, data: unknown): OperationEvent =>
  ({ operationId, type, actor: "agent", at: 1_700_000_000_000, data }) as OperationEvent;
const attempt = {
  number: 1,
  rpcId: "1",
  era: "2025-11-25",
  transport: "http",
  connectionId: "c",
  protocolVersion: "2025-11-25",
  cause: "call",
};
const sent = (id: string): readonly OperationEvent[] => [
  event(id, "prepared", {
    server: "booking",
    tool: "create_booking",
    arguments: { guest: "Ada Lovelace", hotel: "Grand", night: "2026-01-02", note: "x".repeat(300) },
    // As random as a real one: it decides where in its index it goes.
    digest: Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString("hex"),
    caller: { client: "bench" },
    fingerprint: "f".repeat(64),
    provenRead: false,
    declaredRead: false,
  }),
  event(id, "sent", attempt),
];
const answered = (id: string): OperationEvent =>
  event(id, "answered", {
    attempt: 1,
    reason: "answered",
    result: { content: [{ type: "text", text: "y".repeat(300) }] },
    isError: false,
  });
const lost = (id: string): OperationEvent =>
  event(id, "lost", { attempt: 1, stage: "sent", reason: "connection-lost", kind: "reset" });

const ms = (value: number): string => `${value.toFixed(2)} ms`;
function spread(times: number[]): string {
  const sorted = [...times].sort((a, b) => a - b);
  const at = (share: number): string => ms(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0);
  return `median ${at(0.5)}, 99% ${at(0.99)}, worst ${at(1)}`;
}
const median = (times: number[]): number => [...times].sort((a, b) => a - b)[Math.floor(times.length / 2)] ?? 0;

/** How long the event loop was busy, and how late it was for a timer, while something went on. */
function meter(): { end(times: number): string } {
  const late = monitorEventLoopDelay({ resolution: 1 });
  late.enable();
  const before = performance.eventLoopUtilization();
  return {
    end(times) {
      const { active } = performance.eventLoopUtilization(before);
      late.disable();
      const lateness = (nanoseconds: number): string => ms(Math.max(0, nanoseconds / 1e6 - 1));
      return `event loop busy ${ms(active / times)} each; late 99% ${lateness(late.percentile(99))}, worst ${lateness(late.max)}`;
    },
  };
}

/** A neighbour that writes and syncs all the time. */
async function loadedDisk<T>(run: () => Promise<T>): Promise<T> {
  const file = join(folder, "load");
  const program = `
    const fs = require("node:fs");
    const file = fs.openSync(${JSON.stringify(file)}, "w");
    const block = Buffer.alloc(1 << 20);
    process.stdout.write("on");
    for (let n = 0; ; n++) {
      fs.writeSync(file, block, 0, block.length, (n % 64) << 20);
      if (n % 4 === 0) fs.fsyncSync(file);
    }`;
  const neighbours = [0, 1].map(() => spawn(process.execPath, ["-e", program], { stdio: ["ignore", "pipe", "inherit"] }));
  await Promise.all(neighbours.map((one) => once(one.stdout, "data")));
  try {
    return await run();
  } finally {
    for (const one of neighbours) one.kill("SIGKILL");
  }
}

/** What other programs on the machine do to an event loop that has next to nothing to do. */
async function noise(): Promise<void> {
  const measured = meter();
  for (let i = 0; i < 1000; i++) await setTimeout(1);
  console.log(`  without a journal, for comparison: ${measured.end(1000)}`);
}

async function blocking(name: string, journal: Journal): Promise<void> {
  const appends: number[] = [];
  const reads: number[] = [];
  const measured = meter();
  for (let i = 0; i < 1000; i++) {
    // What one call costs: a look for a twin, and the journal before the send.
    let start = performance.now();
    await journal.operations({ digest: String(i), states: ["unresolved", "completed"], limit: 50 });
    reads.push(performance.now() - start);
    start = performance.now();
    await journal.append(sent(`op${i}`), { durable: true });
    appends.push(performance.now() - start);
    await setImmediate();
  }
  console.log(`  ${name}: ${measured.end(1000)}`);
  await journal.close();
  console.log(`    durable append: ${spread(appends)}`);
  console.log(`    read beside it: ${spread(reads)}`);
}

async function readsBetweenCommits(journal: Journal): Promise<string> {
  const reads: number[] = [];
  let running = true;
  const writing = (async () => {
    for (let i = 0; running; i++) await journal.append(sent(`w${i}`), { durable: true });
  })();
  for (let i = 0; i < 1000; i++) {
    const start = performance.now();
    await journal.operation(`w${i}`);
    reads.push(performance.now() - start);
  }
  running = false;
  await writing;
  await journal.close();
  return spread(reads);
}

async function syncs(): Promise<void> {
  for (const together of [1, 4, 16, 64]) {
    let commits = 0;
    const journal = openSqliteJournal({
      directory: place(),
      watchMs: 0,
      openDatabase: (path, options) => {
        const db = new DatabaseSync(path, options);
        const exec = db.exec.bind(db);
        db.exec = (sql) => {
          if (sql === "COMMIT") commits += 1;
          exec(sql);
        };
        return db;
      },
    });
    commits = 0;
    const start = performance.now();
    const calls = 640;
    for (let i = 0; i < calls; i += together) {
      await Promise.all(Array.from({ length: together }, (_, j) => journal.append(sent(`op${i + j}`), { durable: true })));
    }
    const each = (performance.now() - start) / calls;
    console.log(`  ${together} at a time: ${calls} durable appends in ${commits} syncs, ${ms(each)} each`);
    await journal.close();
  }
}

async function fill(journal: Journal, operations: number, unresolved: number): Promise<void> {
  for (let i = 0; i < operations; i += 100) {
    const events: OperationEvent[] = [];
    for (let j = i; j < i + 100; j++) {
      const id = uuidv7();
      events.push(...sent(id), j % Math.floor(operations / unresolved) === 0 ? lost(id) : answered(id));
    }
    await journal.append(events, { durable: false });
  }
}

/** Appends to both in turn, so that a busy moment of the machine hits both alike. */
async function writeTimes(one: Journal, other: Journal): Promise<readonly [number[], number[]]> {
  const times: readonly [number[], number[]] = [[], []];
  for (let i = 0; i < 4000; i++) {
    for (const which of i % 2 === 0 ? [0, 1] : [1, 0]) {
      const start = performance.now();
      await (which === 0 ? one : other).append(sent(uuidv7()), { durable: true });
      times[which]?.push(performance.now() - start);
    }
  }
  return times;
}

async function scale(): Promise<void> {
  const operations = quick ? 10_000 : 100_000;
  const unresolved = operations / 100;
  const full = place();
  const filling = openSqliteJournal({ directory: full, watchMs: 0 });
  let start = performance.now();
  await fill(filling, operations, unresolved);
  await filling.close();
  console.log(`  ${operations} operations written in ${((performance.now() - start) / 1000).toFixed(1)} s`);

  start = performance.now();
  const journal = await openJournal({ directory: full, watchMs: 0 });
  console.log(`  open: ${ms(performance.now() - start)}`);
  // The first look is what a person waits for who opens the window; later ones come with each change.
  const looks: number[] = [];
  let shown = 0;
  for (let i = 0; i < 20; i++) {
    start = performance.now();
    shown = (await lookAt(journal)).unresolved.length;
    looks.push(performance.now() - start);
  }
  console.log(
    `  opening the Unresolved view with ${shown} unresolved: first ${ms(looks[0] ?? 0)} (limit 200 ms); ${spread(looks)}`,
  );
  const few = await openJournal({ directory: place(), watchMs: 0 });
  await fill(few, unresolved, unresolved);
  const looksAtFew: number[] = [];
  for (let i = 0; i < 20; i++) {
    start = performance.now();
    await lookAt(few);
    looksAtFew.push(performance.now() - start);
  }
  await few.close();
  console.log(`  ratio to a journal of nothing but these ${unresolved}: ${(median(looks) / median(looksAtFew)).toFixed(2)}`);
  start = performance.now();
  const counted = await journal.count(["unresolved"]);
  console.log(`  count of ${counted} unresolved: ${ms(performance.now() - start)}`);
  start = performance.now();
  await journal.operations({ states: ["effect-confirmed", "no-effect", "dismissed", "completed"], limit: 500 });
  console.log(`  newest 500 closed: ${ms(performance.now() - start)}`);

  const fresh = await openJournal({ directory: place(), watchMs: 0 });
  const [inEmpty, inFull] = await writeTimes(fresh, journal);
  console.log(`  durable append, empty: ${spread(inEmpty)}`);
  console.log(`  durable append, full:  ${spread(inFull)}`);
  console.log(`  ratio full / empty: ${(median(inFull) / median(inEmpty)).toFixed(2)}`);
  await fresh.close();

  const before = process.memoryUsage().rss;
  let most = before;
  let lines = 0;
  start = performance.now();
  for await (const line of exportJsonl(journal)) {
    lines += line.length > 0 ? 1 : 0;
    if (lines % 1000 === 0) most = Math.max(most, process.memoryUsage().rss);
  }
  const seconds = (performance.now() - start) / 1000;
  console.log(
    `  export of ${lines} events: ${seconds.toFixed(1)} s, at most ${Math.round((most - before) / 1e6)} MB more memory`,
  );
  await journal.close();

  start = performance.now();
  const verdict = await verifyJournal(full);
  console.log(
    `  verify: ${verdict.ok ? `${verdict.events} events whole` : verdict.message}, ${((performance.now() - start) / 1000).toFixed(1)} s`,
  );

  const pruning = await openJournal({ directory: full, watchMs: 0, retention: { days: 100_000, count: 1000 } });
  start = performance.now();
  const left = await pruning.prune();
  console.log(`  retention: ${left} operations left in ${((performance.now() - start) / 1000).toFixed(1)} s`);
  await pruning.close();
}

try {
  console.log("The event loop, quiet disk");
  await noise();
  await blocking("in the calling thread", openSqliteJournal({ directory: place() }));
  await blocking("in a thread of its own", await openJournal({ directory: place() }));
  console.log("The event loop, a disk that others write to");
  await loadedDisk(async () => {
    await noise();
    await blocking("in the calling thread", openSqliteJournal({ directory: place() }));
    await blocking("in a thread of its own", await openJournal({ directory: place() }));
    console.log(
      `  read while the thread commits all the time: ${await readsBetweenCommits(await openJournal({ directory: place() }))}`,
    );
  });
  console.log("Syncs shared by appends made together");
  await syncs();
  console.log("Scale");
  await scale();
} finally {
  rmSync(folder, { recursive: true, force: true });
}
