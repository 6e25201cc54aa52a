/**
 * The rule of the house as a property: whatever agents, connections, lookups, programs and persons do, in whatever order, one operation has
 * one effect at most, unless a person repeated it after "it did not happen".
 *
 * Two windows share a journal file and a provider. The provider keeps its documented promises (keys, lookup within its delay); everything
 * else may go wrong: answers are lost before or after the effect, effects come after the loss, calls hang, windows end and die, persons
 * settle what they do not know. What counts is the provider's own list of effects.
 *
 * `MSR_SEED` repeats a run, `MSR_RUNS` changes their number.
 */
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Clock } from "../../../src/clock.ts";
import type { Ending } from "../../../src/hosting/evidence.ts";
import type { Operation, OperationEvent, Settlement } from "../../../src/operations/model.ts";
import { openSqliteJournal, type SqliteJournal } from "../../../src/operations/sqlite-journal.ts";
import { CallManager } from "../../../src/replay/call-manager.ts";
import { promiseNames, readContracts, type Contracts } from "../../../src/replay/contracts.ts";
import { defaultReplaySettings } from "../../../src/replay/settings.ts";
import { answer, FakeServer, loss } from "../../support/fake-hosting.ts";
import { temporaryFolder } from "../../support/temp.ts";

const retentionSeconds = 600;
const consistentAfterSeconds = 3;
/** How long the property is tried, when no number of runs is asked for. Milliseconds. */
const limitMs = 15_000;
/** A timer that is due later than this is not waited for: the call hangs. Milliseconds. */
const patienceMs = 10_000;

// ---- time -------------------------------------------------------------------------------------------------------------------------

/** Time that moves from one timer to the next. */
class VirtualClock implements Clock {
  #now = 1_700_000_000_000;
  readonly #timers = new Set<{ readonly at: number; readonly run: () => void }>();

  now(): number {
    return this.#now;
  }

  after(ms: number, run: () => void): () => void {
    const timer = { at: this.#now + ms, run };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  /** Milliseconds to the next timer. */
  get next(): number {
    return Math.min(...[...this.#timers].map((timer) => timer.at)) - this.#now;
  }

  advance(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      const due = [...this.#timers].filter((timer) => timer.at <= end).sort((a, b) => a.at - b.at)[0];
      if (due === undefined) break;
      this.#timers.delete(due);
      this.#now = Math.max(this.#now, due.at);
      due.run();
    }
    this.#now = end;
  }
}

// ---- the provider -----------------------------------------------------------------------------------------------------------------

/** What becomes of one request that reaches the wire. */
const fates = [
  "answered",
  "lost-after", // the effect is made, the answer is lost
  "lost-before", // lost before it reached the provider
  "lost-slow", // the connection is lost, and the effect comes a while after that
  "refused", // 429
  "not-sent",
  "failed", // the tool reports an error, without an effect
  "hangs",
] as const;
type Fate = (typeof fates)[number];

/** How a call that hangs may end. */
const ends = ["answered", "lost-after", "lost-before", "lost-slow"] as const;
type End = (typeof ends)[number];

const lookupFates = ["truth", "lost", "forbidden", "several"] as const;

interface Effect {
  readonly rpcId: string;
  readonly key: string | undefined;
  readonly hotel: string;
  readonly at: number;
}

class Provider {
  readonly clock: VirtualClock;
  readonly effects: Effect[] = [];
  readonly fates: Fate[] = [];
  readonly lookups: (typeof lookupFates)[number][] = [];
  readonly hanging: { finish(how: End): void }[] = [];
  /** Keys of calls that are at work. */
  readonly #atWork = new Set<string>();

  constructor(clock: VirtualClock) {
    this.clock = clock;
  }

  receive(params: Record<string, unknown>, rpcId: string): Ending | Promise<Ending> {
    const args = params["arguments"] as Record<string, string>;
    return params["name"] === "find_booking"
      ? this.#find(args, rpcId)
      : this.#create(args, rpcId, this.fates.shift() ?? "answered");
  }

  #create(args: Record<string, string>, rpcId: string, fate: Fate): Ending | Promise<Ending> {
    const key = args["key"];
    if (fate === "not-sent") return loss("connect-refused", { stage: "not-sent" });
    if (fate === "lost-before") return loss("reset");
    if (fate === "refused") return loss("http-status", { stage: "answering", httpStatus: 429, bodyIsJsonOrEmpty: true });
    if (fate === "failed") return answer("busy", rpcId, { isError: true });
    const earlier = this.#remembered(key);
    if (earlier !== undefined) return answer(`booked ${earlier.rpcId}`, rpcId);
    if (key !== undefined && this.#atWork.has(key)) return loss("http-status", { stage: "answering", httpStatus: 409 });
    if (fate === "lost-slow") {
      this.#later(args, rpcId);
      return loss("reset");
    }
    if (fate === "hangs") {
      if (key !== undefined) this.#atWork.add(key);
      return new Promise((resolve) => {
        this.hanging.push({
          finish: (how) => {
            if (key !== undefined) this.#atWork.delete(key);
            if (how === "lost-slow") this.#later(args, rpcId);
            else if (how !== "lost-before") this.#effect(args, rpcId);
            resolve(how === "answered" ? answer("booked", rpcId) : loss("reset"));
          },
        });
      });
    }
    this.#effect(args, rpcId);
    return fate === "lost-after" ? loss("reset") : answer("booked", rpcId);
  }

  #remembered(key: string | undefined): Effect | undefined {
    if (key === undefined) return undefined;
    return this.effects.find((effect) => effect.key === key && this.clock.now() - effect.at < retentionSeconds * 1000);
  }

  /** The provider is still at work when the connection is lost; it is done within the delay that it documents. */
  #later(args: Record<string, string>, rpcId: string): void {
    const key = args["key"];
    if (key !== undefined) this.#atWork.add(key);
    this.clock.after(consistentAfterSeconds * 1000 - 1, () => {
      if (key !== undefined) this.#atWork.delete(key);
      this.#effect(args, rpcId);
    });
  }

  #effect(args: Record<string, string>, rpcId: string): void {
    this.effects.push({ rpcId, key: args["key"], hotel: args["hotel"] ?? "", at: this.clock.now() });
  }

  #find(args: Record<string, string>, rpcId: string): Ending {
    const fate = this.lookups.shift() ?? "truth";
    if (fate === "lost") return loss("reset");
    if (fate === "forbidden") return answer("forbidden", rpcId, { isError: true });
    const found = this.effects.filter(
      (effect) =>
        (args["key"] === undefined || effect.key === args["key"]) &&
        (args["hotel"] === undefined || effect.hotel === args["hotel"]),
    );
    const [first] = found;
    const status = fate === "several" || found.length > 1 ? "several" : first === undefined ? "none" : "found";
    return answer(JSON.stringify({ status, booking: first ?? null }), rpcId);
  }
}

// ---- the contracts ----------------------------------------------------------------------------------------------------------------

const promises = Object.fromEntries(promiseNames.map((name) => [name, true]));
const duplicatePrevention = { keyArgument: "/key", suppliedBy: "gateway", retentionSeconds, promises };
const lookup = {
  tool: "find_booking",
  effect: "status == 'found'",
  noEffect: "status == 'none'",
  sameAs: { "/hotel": "booking.hotel" },
  consistentAfterSeconds,
  recordsKeptSeconds: 86_400,
};
const byKey = { ...lookup, arguments: { key: "{{key}}" } };
const byHotel = { ...lookup, arguments: { hotel: "{{arguments/hotel}}" } };
const kinds: Record<string, Record<string, unknown> | undefined> = {
  none: undefined,
  prevention: { duplicatePrevention },
  "prevention without all promises": {
    duplicatePrevention: { ...duplicatePrevention, promises: { ...promises, reachesProvider: false } },
  },
  "lookup by key": { duplicatePrevention: { ...duplicatePrevention, promises: {} }, lookup: byKey },
  "lookup by arguments": { lookup: byHotel },
  "prevention and lookup": { duplicatePrevention, lookup: byKey },
};

function contractsOf(kind: string): Contracts {
  const contract = kinds[kind];
  if (contract === undefined) return new Map();
  const read = readContracts({ hotel: { create_booking: { documentation: "https://provider.example", ...contract } } }, "c");
  if (read.problems.length > 0) throw new Error(JSON.stringify(read.problems));
  return read.contracts;
}

// ---- the world --------------------------------------------------------------------------------------------------------------------

/** One program on the journal. When it is gone, nothing of it reaches the provider any more. */
interface Program {
  readonly journal: SqliteJournal;
  readonly handles: DatabaseSync[];
  readonly server: FakeServer;
  readonly calls: CallManager;
  alive: boolean;
}

/** Where the system has a disk in memory, there: a run is many small writes, and what a disk does is tested elsewhere. */
function memoryFolder(): { readonly path: string; remove(): void } {
  if (!existsSync("/dev/shm")) return temporaryFolder();
  const path = mkdtempSync("/dev/shm/msr-");
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

class World {
  readonly clock = new VirtualClock();
  readonly provider = new Provider(this.clock);
  readonly folder = memoryFolder();
  readonly contracts: Contracts;
  readonly windows: (Program | undefined)[] = [undefined, undefined];
  trusted = true;
  #programs = 0;
  /** Everything that programs have asked of the journal and that is not answered yet. */
  #busy = 0;

  constructor(kind: string) {
    this.contracts = contractsOf(kind);
  }

  at(window: number): Program {
    return (this.windows[window] ??= this.#open());
  }

  #open(): Program {
    const handles: DatabaseSync[] = [];
    const journal = openSqliteJournal({
      directory: this.folder.path,
      watchMs: 0,
      now: () => this.clock.now(),
      openDatabase: (path, options) => {
        const db = new DatabaseSync(path, options);
        handles.push(db);
        return db;
      },
    });
    const server = new FakeServer("hotel", [
      { name: "create_booking", inputSchema: { type: "object" } },
      { name: "find_booking", inputSchema: { type: "object" }, annotations: { readOnlyHint: true } },
    ]);
    server.idPrefix = `p${++this.#programs}-`;
    const calls = new CallManager({
      journal: this.#counted(journal),
      servers: () => new Map([["hotel", server]]),
      trust: {
        workspaceTrusted: () => this.trusted,
        serverTrustSetting: () => true,
        consentFingerprint: () => server.fingerprint,
      },
      settings: () => defaultReplaySettings,
      contracts: () => this.contracts,
      clock: this.clock,
      random: () => 0.5,
      log: () => undefined,
    });
    const program: Program = { journal, handles, server, calls, alive: true };
    server.byDefault = ({ params, rpcId }) =>
      program.alive ? this.provider.receive(params, rpcId) : new Promise<Ending>(() => undefined);
    return program;
  }

  #counted(journal: SqliteJournal): SqliteJournal {
    return new Proxy(journal, {
      get: (target, name) => {
        const value = Reflect.get(target, name) as unknown;
        if (typeof value !== "function") return value;
        return (...args: unknown[]) => {
          const result = (value as (...given: unknown[]) => unknown).apply(target, args);
          if (!(result instanceof Promise)) return result;
          this.#busy += 1;
          return result.finally(() => (this.#busy -= 1));
        };
      },
    });
  }

  /** Until nothing is going on but waiting for timers. */
  async quiet(): Promise<void> {
    for (let still = 0; still < 3; still = this.#busy === 0 ? still + 1 : 0)
      await new Promise<void>((done) => setImmediate(done));
  }

  /** Lets time pass until it is done, or hangs. */
  async drive(task: Promise<unknown>): Promise<void> {
    let done = false;
    void task.then(
      () => (done = true),
      () => (done = true),
    );
    for (;;) {
      await this.quiet();
      const { next } = this.clock;
      if (done || next > patienceMs) return;
      this.clock.advance(next);
    }
  }

  async end(window: number): Promise<void> {
    const program = this.windows[window];
    if (program === undefined) return;
    this.windows[window] = undefined;
    await this.drive(program.calls.dispose());
    program.alive = false;
    await program.journal.close();
  }

  /** Without a last word: the file is pulled from under it. */
  async die(window: number): Promise<void> {
    const program = this.windows[window];
    if (program === undefined) return;
    this.windows[window] = undefined;
    program.alive = false;
    for (const db of program.handles) if (db.isOpen) db.close();
    await program.journal.close();
    await this.quiet();
  }

  async close(): Promise<void> {
    for (const window of [0, 1]) await this.end(window);
    this.folder.remove();
  }
}

// ---- what may happen --------------------------------------------------------------------------------------------------------------

type Command = fc.AsyncCommand<object, World>;

function command(name: string, run: (world: World) => Promise<void>): Command {
  return { check: () => true, run: (_model, world) => run(world).then(() => check(world)), toString: () => name };
}

async function pick(
  world: World,
  window: number,
  index: number,
  states: readonly Operation["state"][],
): Promise<Operation | undefined> {
  const found = await world.at(window).journal.operations({ states });
  return found[index % Math.max(1, found.length)];
}

const window = fc.nat(1);
const index = fc.nat(5);
const call = fc
  .tuple(window, fc.nat(1), fc.nat(1), fc.boolean(), fc.array(fc.constantFrom(...fates), { maxLength: 4 }))
  .map(([at, hotel, conversation, arrives, fated]) =>
    command(
      `call(window ${at}, hotel ${hotel}, conversation ${conversation}, ${arrives}, [${fated.join(", ")}])`,
      async (world) => {
        world.provider.fates.push(...fated);
        const args = { hotel: `h${hotel}` };
        const answering = world.at(at).calls.call(
          {
            server: "hotel",
            tool: "create_booking",
            arguments: args,
            params: { name: "create_booking", arguments: args },
            caller: { client: "agent", conversationId: `c${conversation}` },
          },
          {},
        );
        void answering.then((given) => {
          if (arrives) given.delivered();
        });
        await world.drive(answering);
        world.provider.fates.splice(0);
      },
    ),
  );
const commands = [
  // Most of what happens is a call.
  call,
  call,
  call,
  call,
  fc.tuple(window, index, fc.constantFrom(...lookupFates)).map(([at, which, fate]) =>
    command(`lookUp(window ${at}, ${which}, ${fate})`, async (world) => {
      const operation = await pick(world, at, which, ["unresolved"]);
      if (operation === undefined) return;
      world.provider.lookups.push(fate);
      await world.drive(world.at(at).calls.lookUp(operation.id));
      world.provider.lookups.splice(0);
    }),
  ),
  window.map((at) =>
    command(`server comes back(window ${at})`, async (world) => {
      const { calls, server } = world.at(at);
      await world.drive(calls.revisit(server));
    }),
  ),
  fc.tuple(window, index, fc.constantFrom<Settlement>("effect-confirmed", "no-effect", "dismissed")).map(([at, which, as]) =>
    command(`settle(window ${at}, ${which}, ${as})`, async (world) => {
      const operation = await pick(world, at, which, ["unresolved"]);
      if (operation !== undefined) await world.drive(world.at(at).calls.settle(operation.id, as, "a person says so", "person"));
    }),
  ),
  fc.tuple(window, index, fc.array(fc.constantFrom(...fates), { maxLength: 3 })).map(([at, which, fated]) =>
    command(`repeat(window ${at}, ${which}, [${fated.join(", ")}])`, async (world) => {
      const operation = await pick(world, at, which, ["no-effect"]);
      if (operation === undefined) return;
      world.provider.fates.push(...fated);
      await world.drive(world.at(at).calls.repeat(operation.id, "a person says so", {}));
      world.provider.fates.splice(0);
    }),
  ),
  fc.tuple(window, index).map(([at, which]) =>
    command(`let through(window ${at}, ${which})`, async (world) => {
      const operation = await pick(world, at, which, ["unresolved"]);
      if (operation !== undefined) await world.drive(world.at(at).calls.letThrough(operation.id, "a person says so"));
    }),
  ),
  fc.constantFrom(...ends).map((how) =>
    command(`a hanging call ends(${how})`, async (world) => {
      world.provider.hanging.shift()?.finish(how);
      await world.drive(Promise.resolve());
      // What follows from a loss takes its time.
      for (let i = 0; i < 20 && world.clock.next <= patienceMs; i++) {
        world.clock.advance(world.clock.next);
        await world.quiet();
      }
    }),
  ),
  window.map((at) => command(`end(window ${at})`, (world) => world.end(at))),
  window.map((at) => command(`die(window ${at})`, (world) => world.die(at))),
  fc.constantFrom(1_000, 4_000, 60_000, retentionSeconds * 1000, 1_800_000).map((ms) =>
    command(`time(${ms} ms)`, async (world) => {
      world.clock.advance(ms);
      await world.quiet();
    }),
  ),
  fc.boolean().map((trusted) =>
    command(`trust(${trusted})`, async (world) => {
      world.trusted = trusted;
      await world.quiet();
    }),
  ),
];

// ---- what must hold ---------------------------------------------------------------------------------------------------------------

const count = <T>(list: readonly T[], which: (one: T) => boolean): number => list.filter(which).length;

async function check(world: World): Promise<void> {
  await world.quiet();
  const { journal } = world.at(0);
  const operations = await journal.operations({});
  const owner = new Map(operations.flatMap((one) => one.attempts.map((attempt) => [attempt.rpcId, one.id] as const)));
  for (const effect of world.provider.effects)
    expect(owner.get(effect.rpcId), "an effect whose call is not in the journal").toBeDefined();
  const keys = operations.flatMap(({ intention }) => (intention.key === undefined ? [] : [intention.key]));
  expect(new Set(keys).size, "a key in two operations").toBe(keys.length);
  for (const operation of operations) {
    const effects = count(world.provider.effects, (effect) => owner.get(effect.rpcId) === operation.id);
    const events = await journal.events(operation.id);
    const ordered = count(events, (event) => event.type === "repeated" && event.actor === "person");
    expect(effects, `effects of ${operation.id}`).toBeLessThanOrEqual(1 + ordered);
    if (ordered > 0) continue;
    const lookedUp = lastSettlement(events, operation);
    if (lookedUp === "no-effect") expect(effects, "an effect that a lookup denied").toBe(0);
    if (lookedUp === "effect-confirmed") expect(effects, "no effect where a lookup found one").toBe(1);
  }
}

/** What a lookup settled, and is still so. */
function lastSettlement(events: readonly OperationEvent[], operation: Operation): Settlement | undefined {
  const { settlement } = operation;
  const stands = settlement !== undefined && settlement.actor === "server" && operation.state === settlement.as;
  return stands && events.some((event) => event.type === "looked-up") ? settlement.as : undefined;
}

describe("one operation", () => {
  it("has one effect at most, unless a person repeated it after 'it did not happen'", { timeout: 3_600_000 }, async () => {
    const seed = Number(process.env["MSR_SEED"] ?? Math.trunc(Math.random() * 2 ** 31));
    const wanted = process.env["MSR_RUNS"];
    const totals = { steps: 0, operations: 0, effects: 0, lost: 0, replays: 0, repeats: 0, lookups: 0, held: 0 };
    const result = await fc.check(
      fc.asyncProperty(
        fc.constantFrom(...Object.keys(kinds)),
        fc.commands(commands, { maxCommands: 40, size: "max" }),
        async (kind, steps) => {
          const world = new World(kind);
          try {
            await fc.asyncModelRun(() => ({ model: {}, real: world }), steps);
            await check(world);
            totals.steps += [...steps].length;
            totals.effects += world.provider.effects.length;
            for await (const { type } of world.at(0).journal.allEvents()) {
              totals.operations += type === "prepared" ? 1 : 0;
              totals.lost += type === "lost" ? 1 : 0;
              totals.replays += type === "replayed" ? 1 : 0;
              totals.repeats += type === "repeated" ? 1 : 0;
              totals.lookups += type === "looked-up" ? 1 : 0;
              totals.held += type === "held" ? 1 : 0;
            }
          } finally {
            await world.close();
          }
        },
      ),
      wanted === undefined
        ? { seed, numRuns: 100_000, plugins: [fc.interruptAfterTimeLimit(limitMs)] }
        : { seed, numRuns: Number(wanted) },
    );
    console.log(`one effect at most: ${result.numRuns} runs, seed ${result.seed}; ${JSON.stringify(totals)}`);
    if (result.failed) throw new Error(fc.defaultReportMessage(result));
    expect(result.numRuns).toBeGreaterThan(0);
  });
});
