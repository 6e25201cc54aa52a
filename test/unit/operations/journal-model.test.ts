/**
 * The journal against a simple model: a list of what was appended and one word of state for each operation. Two windows write, lose,
 * recover, settle, repeat, close and die at random, while the clock jumps and closed operations leave.
 */
import { DatabaseSync } from "node:sqlite";
import fc from "fast-check";
import { afterEach, describe, expect, it } from "vitest";
import type { EventType, OperationEvent } from "../../../src/operations/model.ts";
import { openSqliteJournal, type SqliteJournal } from "../../../src/operations/sqlite-journal.ts";
import { verifyJournal } from "../../../src/operations/verify.ts";
import { temporaryFolder } from "../../support/temp.ts";
import { all, attemptStart, intention, lost } from "../journal-contract.ts";

/** What the model knows of an operation. */
interface Known {
  state: string;
  /** Which window's call is out; -1: none. */
  window: number;
  /** It was settled once, whatever came of it after that. */
  settled: boolean;
  conflict: boolean;
  attempts: number;
}

interface Model {
  readonly operations: Map<string, Known>;
  /** `operation type`, in order. */
  events: string[];
}

const day = 24 * 60 * 60 * 1000;
const closedStates = ["completed", "not-executed", "effect-confirmed", "no-effect", "dismissed"];

class Windows {
  readonly directory: string;
  readonly remove: () => void;
  now = 1_700_000_000_000;
  readonly #open: ({ journal: SqliteJournal; handles: DatabaseSync[] } | undefined)[] = [undefined, undefined];

  constructor() {
    const folder = temporaryFolder();
    this.directory = folder.path;
    this.remove = () => folder.remove();
  }

  at(window: number): SqliteJournal {
    let found = this.#open[window];
    if (found === undefined) {
      const handles: DatabaseSync[] = [];
      const journal = openSqliteJournal({
        directory: this.directory,
        watchMs: 0,
        now: () => this.now,
        retention: { days: 30, count: 5 },
        openDatabase: (path, options) => {
          const db = new DatabaseSync(path, options);
          handles.push(db);
          return db;
        },
      });
      this.#open[window] = found = { journal, handles };
    }
    return found.journal;
  }

  isOpen(window: number): boolean {
    return this.#open[window] !== undefined;
  }

  async close(window: number): Promise<void> {
    const found = this.#open[window];
    this.#open[window] = undefined;
    await found?.journal.close();
  }

  /** Without a last word: the file is pulled from under it, and only the operating system notices that it is gone. */
  async die(window: number): Promise<void> {
    for (const db of this.#open[window]?.handles ?? []) if (db.isOpen) db.close();
    await this.close(window);
  }
}

/** An answer, a loss, a word: from which states, and to which. The model's own table, in plain words. */
const moves: Record<string, { from: readonly string[]; to: (state: string) => string; data: (attempt: number) => unknown }> = {
  answered: {
    from: ["in-flight"],
    to: () => "completed",
    data: (attempt) => ({ attempt, result: {}, isError: false, reason: "answered" }),
  },
  refused: { from: ["prepared", "in-flight"], to: () => "not-executed", data: (attempt) => ({ attempt, reason: "refused" }) },
  lost: { from: ["prepared", "in-flight", "unresolved"], to: () => "unresolved", data: (attempt) => ({ ...lost, attempt }) },
  recovered: {
    from: ["in-flight", "unresolved"],
    to: () => "completed",
    data: (attempt) => ({ attempt, how: "cursor", result: {}, isError: false }),
  },
  "late-answer": {
    from: ["in-flight", "unresolved", "completed", "effect-confirmed", "no-effect", "dismissed"],
    to: (state) => (["in-flight", "unresolved"].includes(state) ? "completed" : state),
    data: (attempt) => ({ attempt, result: {}, isError: false }),
  },
  "settled effect-confirmed": {
    from: ["unresolved"],
    to: () => "effect-confirmed",
    data: () => ({ as: "effect-confirmed", evidence: "e" }),
  },
  "settled no-effect": { from: ["unresolved"], to: () => "no-effect", data: () => ({ as: "no-effect", evidence: "e" }) },
  "settled dismissed": { from: ["unresolved"], to: () => "dismissed", data: () => ({ as: "dismissed", evidence: "e" }) },
  conflict: {
    from: ["effect-confirmed", "no-effect", "dismissed", "in-flight", "unresolved", "completed"],
    to: (state) => state,
    data: () => ({ settledAs: "no-effect", isError: false }),
  },
  acknowledged: {
    from: ["effect-confirmed", "no-effect", "dismissed", "in-flight", "unresolved", "completed"],
    to: (state) => state,
    data: () => ({ note: "seen to" }),
  },
  delivered: { from: ["completed", "effect-confirmed"], to: (state) => state, data: () => ({ to: "agent" }) },
};

type Command = fc.AsyncCommand<Model, Windows>;

/** A window that opens finds what dead windows left under way. */
function opens(model: Model, windows: Windows, window: number): SqliteJournal {
  if (!windows.isOpen(window)) loseAll(model, (known) => known.window >= 0 && !windows.isOpen(known.window));
  return windows.at(window);
}

function loseAll(model: Model, which: (known: Known) => boolean): void {
  for (const [id, known] of model.operations) {
    if (!["prepared", "in-flight"].includes(known.state) || !which(known)) continue;
    known.state = "unresolved";
    known.window = -1;
    model.events.push(`${id} lost`);
  }
}

function command(name: string, run: (model: Model, windows: Windows) => Promise<void>): Command {
  return {
    check: () => true,
    async run(model, windows) {
      await run(model, windows);
      await agree(model, windows);
    },
    toString: () => name,
  };
}

const event = (windows: Windows, operationId: string, type: string, data: unknown): OperationEvent =>
  ({ operationId, type: type as EventType, actor: "agent", at: windows.now, data }) as OperationEvent;

const commands = [
  fc.tuple(fc.nat(1), fc.boolean()).map(([window, durable]) =>
    command(`send(window ${window}, ${durable ? "durable" : "lazy"})`, async (model, windows) => {
      const journal = opens(model, windows, window);
      const id = `op${model.operations.size}`;
      model.operations.set(id, { state: "in-flight", window, settled: false, conflict: false, attempts: 1 });
      model.events.push(`${id} prepared`, `${id} sent`);
      const events = [event(windows, id, "prepared", intention()), event(windows, id, "sent", attemptStart())];
      await journal.append(events, { durable });
    }),
  ),
  fc.tuple(fc.nat(1), fc.nat(30), fc.constantFrom(...Object.keys(moves))).map(([window, pick, name]) =>
    command(`${name}(window ${window}, ${pick})`, async (model, windows) => {
      const journal = opens(model, windows, window);
      const ids = [...model.operations.keys()];
      const id = ids[pick % Math.max(1, ids.length)];
      const known = id === undefined ? undefined : model.operations.get(id);
      const move = moves[name];
      if (id === undefined || known === undefined || move === undefined) return;
      const type = name.split(" ")[0] ?? "";
      const append = journal.append([event(windows, id, type, move.data(known.attempts))], { durable: type === "settled" });
      if (
        !move.from.includes(known.state) ||
        (type === "conflict" && !known.settled) ||
        (type === "acknowledged" && !known.conflict)
      ) {
        await expect(append).rejects.toMatchObject({ name: "IllegalTransition" });
        return;
      }
      await append;
      known.state = move.to(known.state);
      known.settled ||= type === "settled";
      known.conflict = type === "conflict" || (known.conflict && type !== "acknowledged");
      model.events.push(`${id} ${type}`);
    }),
  ),
  fc.tuple(fc.nat(1), fc.nat(30)).map(([window, pick]) =>
    command(`repeat(window ${window}, ${pick})`, async (model, windows) => {
      const journal = opens(model, windows, window);
      const ids = [...model.operations].filter(([, known]) => known.state === "no-effect").map(([id]) => id);
      const id = ids[pick % Math.max(1, ids.length)];
      const known = id === undefined ? undefined : model.operations.get(id);
      if (id === undefined || known === undefined) return;
      known.attempts += 1;
      Object.assign(known, { state: "in-flight", window });
      model.events.push(`${id} repeated`, `${id} sent`);
      const again = { ...attemptStart(known.attempts), cause: "repeat" };
      const repeated = event(windows, id, "repeated", { attempt: known.attempts, evidence: "e" });
      await journal.append([repeated, event(windows, id, "sent", again)], { durable: true });
    }),
  ),
  fc.nat(1).map((window) =>
    command(`close(window ${window})`, async (model, windows) => {
      if (!windows.isOpen(window)) return;
      await windows.close(window);
      loseAll(model, (known) => known.window === window);
    }),
  ),
  fc.nat(1).map((window) =>
    command(`die(window ${window})`, async (_model, windows) => {
      await windows.die(window);
    }),
  ),
  fc.integer({ min: -3650, max: 3650 }).map((days) =>
    command(`clock(${days} days)`, async (_model, windows) => {
      windows.now += days * day;
    }),
  ),
  fc.nat(1).map((window) =>
    command(`prune(window ${window})`, async (model, windows) => {
      const journal = opens(model, windows, window);
      const left = await journal.prune();
      const there = new Set((await journal.operations({})).map((one) => one.id));
      const gone = [...model.operations].filter(([id, known]) => known.state !== "gone" && !there.has(id));
      expect(gone).toHaveLength(left);
      for (const [id, known] of gone) {
        expect(closedStates).toContain(known.state);
        expect(known.conflict).toBe(false);
        model.operations.set(id, { ...known, state: "gone" });
      }
      model.events = model.events.filter((one) => !gone.some(([id]) => one.startsWith(`${id} `)));
      const closed = [...model.operations.values()].filter((known) => closedStates.includes(known.state) && !known.conflict);
      expect(closed.length).toBeLessThanOrEqual(5);
    }),
  ),
];

/** Every window sees what the model says. */
async function agree(model: Model, windows: Windows): Promise<void> {
  const expected = [...model.operations]
    .filter(([, known]) => known.state !== "gone")
    .map(([id, known]) => [id, known.state, known.conflict, known.attempts])
    .reverse();
  for (const window of [0, 1]) {
    if (!windows.isOpen(window)) continue;
    const operations = await windows.at(window).operations({});
    expect(operations.map((one) => [one.id, one.state, one.conflict, one.attempts.length])).toEqual(expected);
    const unresolved = expected.filter(([, state]) => state === "unresolved").length;
    expect(await windows.at(window).count(["unresolved"])).toBe(unresolved);
  }
}

const open: Windows[] = [];
afterEach(async () => {
  for (const windows of open.splice(0)) {
    await windows.close(0);
    await windows.close(1);
    windows.remove();
  }
});

describe("the journal and its model", () => {
  it("agree after every step, whatever happens in whatever order", { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(fc.commands(commands, { maxCommands: 60, size: "max" }), async (steps) => {
        const windows = new Windows();
        open.push(windows);
        const model: Model = { operations: new Map(), events: [] };
        await fc.asyncModelRun(() => ({ model, real: windows }), steps);
        const journal = opens(model, windows, 0);
        const events = (await all(journal.allEvents())).map((one) => `${one.operationId} ${one.type}`);
        expect(events).toEqual(model.events);
        expect(await verifyJournal(windows.directory)).toMatchObject({ ok: true });
      }),
      { numRuns: 100 },
    );
  });
});
