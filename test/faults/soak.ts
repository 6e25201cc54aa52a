/**
 * Owns: the soak: random faults with a seed, over all transports, and afterwards the ledger's word on every single call.
 * `node test/faults/soak.ts [--calls 10000] [--seed S] [--minutes M] [--transport NAME …]` prints a summary; exit code 1 when a rule was broken.
 *
 * The rules, for every operation: at most one effect (an idempotent tool's repeated execution is one); a "not executed" has none; every
 * effect belongs to an attempt that is in the journal; every call is answered.
 */
import { randomInt } from "node:crypto";
import { argv } from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import type { Clock } from "../../src/clock.ts";
import type { Operation, OperationEvent, OperationState } from "../../src/operations/model.ts";
import type { EffectEntry } from "../servers/ledger.ts";
import { Lab, paths, requestTimeoutMs, type Class, type Subject } from "./support/lab.ts";
import { isStdio, transports, type Transport } from "./support/peers.ts";
import { Chance, randomStep } from "./support/random-steps.ts";

export interface SoakOptions {
  readonly calls: number;
  readonly seed: number;
  /** Default: all of them. */
  readonly over?: readonly Transport[];
  /** No new round is begun after so many milliseconds. */
  readonly limitMs?: number;
}

const counters = [
  "calls",
  "losses",
  "recovered",
  "replayed",
  "unresolved",
  "not executed",
  "held",
  "effects",
  "double effects",
  "false answers",
  "hanging",
] as const;
export type Counter = (typeof counters)[number];
export type Counts = Record<Counter, number>;

export interface SoakSummary {
  readonly seed: number;
  readonly total: Counts;
  readonly byTransport: ReadonlyMap<Transport, Counts>;
  /** Every broken rule, in words. */
  readonly broken: readonly string[];
  readonly text: string;
}

/** One server's life has so many calls; then everything starts anew (and so does the replay budget). */
const callsInALife = 40;
/** The caller's patience: the time limit of the settings stands for so many milliseconds here. */
const patienceMs = 4_000;
/** A call that is not answered by then hangs. */
const hangsAfterMs = 90_000;
/** Processes cost more than sockets: of a hundred calls, so many go over each transport. */
const share = (transport: Transport): number => (isStdio(transport) ? 5 : 15);

/** The machine's clock, but for the caller's patience. */
const clock: Clock = {
  now: Date.now,
  after(ms, run) {
    const timer = setTimeout(run, ms === requestTimeoutMs ? patienceMs : ms);
    return () => clearTimeout(timer);
  },
};

const none = (): Counts => Object.fromEntries(counters.map((name) => [name, 0])) as Counts;

export async function soak({ calls, seed, over = transports, limitMs = 3_600_000 }: SoakOptions): Promise<SoakSummary> {
  const chance = new Chance(seed);
  const byTransport = new Map(over.map((transport) => [transport, none()]));
  const broken: string[] = [];
  const end = performance.now() + limitMs;
  // So many lives at a time as there are transports, their sizes by the transport's share.
  for (let left = calls; left > 0 && performance.now() < end;) {
    const lives: Promise<void>[] = [];
    for (const transport of transports.map((_, slot) => over[slot % over.length] ?? "http-json")) {
      const size = Math.min(left, Math.max(1, Math.round((callsInALife * share(transport)) / 15)));
      left -= size;
      if (size <= 0) continue;
      const counts = byTransport.get(transport) ?? none();
      lives.push(live(transport, size, new Chance(chance.below(2 ** 31)), counts, broken));
    }
    await Promise.all(lives);
  }
  const total = none();
  for (const counts of byTransport.values()) for (const name of counters) total[name] += counts[name];
  return { seed, total, byTransport, broken, text: summarise(seed, total, byTransport, broken) };
}

interface Life {
  readonly lab: Lab;
  readonly chance: Chance;
  /** Every intention so far, to be made again now and then. */
  readonly subjects: Subject[];
  /** Operations of which a caller was told that they did not run. */
  readonly toldNotExecuted: Set<string>;
}

/** One server and one gateway, from start to end, under fire; then the books are compared. */
async function live(transport: Transport, size: number, chance: Chance, counts: Counts, broken: string[]): Promise<void> {
  const prevention = chance.yes(0.5);
  const lab = await Lab.open(transport, {
    core: { clock },
    random: chance.next,
    ...(prevention ? { contracts: keyed } : {}),
  });
  let over = false;
  try {
    const lossy = 0.3 + 0.5 * chance.next();
    lab.peer.script(...Array.from({ length: size * 4 }, () => randomStep(transport, chance, lossy)));
    const releasing = releaseNowAndThen(lab, chance, () => over);
    const life: Life = { lab, chance, subjects: [], toldNotExecuted: new Set() };
    let started = 0;
    const worker = async (): Promise<void> => {
      while (started < size) {
        started += 1;
        await oneCall(life, counts, broken);
      }
    };
    await Promise.all(Array.from({ length: 1 + chance.below(6) }, worker));
    const books = await settledBooks(lab);
    over = true;
    await releasing;
    await compare(life, books, counts, broken);
  } finally {
    over = true;
    await lab.close();
  }
}

const keyed = {
  charge: {
    documentation: "https://provider.example/docs/idempotency",
    duplicatePrevention: {
      keyArgument: "/idempotencyKey",
      suppliedBy: "gateway",
      retentionSeconds: 86_400,
      promises: {
        scopedToAccountAndOperation: true,
        boundToPayload: true,
        atomicUnderConcurrency: true,
        retainedForWholeWindow: true,
        reachesProvider: true,
      },
    },
  },
};

/** What hangs goes on at some time, or is given up before. */
async function releaseNowAndThen(lab: Lab, chance: Chance, over: () => boolean): Promise<void> {
  while (!over()) {
    await delay(20 + chance.below(100));
    if (lab.peer.hanging > 0 && chance.yes(0.5)) lab.peer.release(1);
  }
}

async function oneCall(life: Life, counts: Counts, broken: string[]): Promise<void> {
  const { lab, chance, subjects } = life;
  disturb(lab, chance);
  // Now and then somebody makes an earlier call again.
  const repeated = subjects.length > 0 && chance.yes(0.15) ? subjects[chance.below(subjects.length)] : undefined;
  const subject = repeated ?? lab.subject(chance.pick<Class>(["C", "C", "R", "S"]));
  if (repeated === undefined) subjects.push(subject);
  counts.calls += 1;
  // A program that ended too often stays down until a person starts it.
  if (lab.server.status.state === "failed") await lab.server.start().catch(() => undefined);
  const calling = lab.call(chance.pick(paths), subject);
  const leaves = chance.yes(0.08);
  if (leaves) {
    const cancels = chance.yes(0.5);
    const wait = chance.below(30);
    void delay(wait).then(() => (cancels ? calling.cancel() : calling.disconnect()));
  }
  const answer = await Promise.race([calling.answer, delay(hangsAfterMs, undefined, { ref: false })]);
  if (answer === undefined || (answer.kind === "nothing" && !leaves)) {
    counts.hanging += 1;
    broken.push(`${lab.transport}: a call of ${subject.tool} was not answered`);
    return;
  }
  if (answer.mark?.state === "held") counts.held += 1;
  const { id, state } = answer.mark ?? {};
  if (id !== undefined && state === "not-executed") life.toldNotExecuted.add(id);
}

/** What happens to servers and sockets beside the calls. */
function disturb(lab: Lab, chance: Chance): void {
  const { http } = lab.peer;
  lab.trust.server = !chance.yes(0.05);
  if (http === undefined || !chance.yes(0.05)) return;
  switch (chance.below(4)) {
    case 0:
      http.forgetSessions();
      break;
    case 1:
      void http.dropIdleSockets(chance.pick(["fin", "reset"]));
      break;
    case 2:
      http.dropAllSockets(chance.pick(["fin", "reset"]));
      break;
    default:
      http.setTools([...http.world.tools]);
      http.notify("notifications/tools/list_changed");
  }
}

/** All that is known of an operation, for whoever looks for the mistake. */
async function history(lab: Lab, operation: Operation): Promise<string> {
  const events = await lab.core.journal.events(operation.id);
  const said = events.map(({ type, actor, at, data }) => {
    const { arguments: _arguments, result: _result, ...facts } = data as unknown as Record<string, unknown>;
    return `    ${new Date(at).toISOString().slice(14, 23)} ${type} (${actor}) ${JSON.stringify(facts).slice(0, 300)}`;
  });
  const own = new Set<unknown>(operation.attempts.map(({ rpcId }) => rpcId));
  const requests = lab.peer.ledger.calls().filter(({ rpcId }) => own.has(rpcId));
  const steps = new Map((lab.peer.http?.calls() ?? []).map(({ rpcId, step }) => [rpcId, step]));
  const effects = lab.peer.ledger.effects().filter(({ rpcId }) => own.has(rpcId));
  return [
    ...said,
    ...requests.map(
      ({ at, rpcId }) =>
        `    request ${new Date(at).toISOString().slice(14, 23)} ${String(rpcId)} ${JSON.stringify(steps.get(rpcId))}`,
    ),
    ...lab.log.filter((line) => line.includes(operation.id) || line.includes("journal")).map((line) => `    log ${line}`),
    ...effects.map(({ at, rpcId }) => `    effect  ${new Date(at).toISOString().slice(14, 23)} ${String(rpcId)}`),
  ].join("\n");
}

interface Books {
  readonly operations: readonly Operation[];
  readonly effects: readonly EffectEntry[];
}

/**
 * The books when nothing is under way any more: calls whose agents went away end, too, by an answer, a loss or the time limit. (Between two
 * attempts an operation is unresolved for a moment; so the books themselves are looked at, not a count before them.)
 */
async function settledBooks(lab: Lab): Promise<Books> {
  const end = performance.now() + hangsAfterMs;
  for (;;) {
    // Effects first: each belongs to an attempt that is journaled by then.
    const effects = lab.peer.ledger.effects();
    const operations = await lab.core.journal.operations({ limit: 10_000 });
    if (operations.every(({ state }) => !underWay.has(state)) || performance.now() > end) return { operations, effects };
    await delay(10);
  }
}

const underWay: ReadonlySet<OperationState> = new Set(["prepared", "in-flight"]);

/** The books of the journal and of the server, at the end of a life. */
async function compare(
  { lab, toldNotExecuted }: Life,
  { operations, effects }: Books,
  counts: Counts,
  broken: string[],
): Promise<void> {
  counts.effects += effects.length;
  const owners = new Map<unknown, Operation>();
  for (const operation of operations) {
    for (const { rpcId } of operation.attempts) owners.set(rpcId, operation);
    count(operation, await lab.core.journal.events(operation.id), counts);
  }
  const made = new Map<string, Set<string>>();
  for (const effect of effects) {
    const owner = owners.get(effect.rpcId);
    if (owner === undefined) {
      broken.push(`${lab.transport}: an effect of ${effect.tool} belongs to no journaled attempt`);
      continue;
    }
    // Executions of an idempotent tool with the same key are one effect.
    const identity = effect.tool === "put" ? effect.key : String(effect.rpcId);
    made.set(owner.id, (made.get(owner.id) ?? new Set()).add(identity));
  }
  for (const operation of operations) {
    const own = made.get(operation.id)?.size ?? 0;
    if (own > 1) {
      counts["double effects"] += 1;
      broken.push(
        `${lab.transport}: operation ${operation.id} (${operation.intention.tool}) had ${own} effects\n${await history(lab, operation)}`,
      );
    }
    const denied = toldNotExecuted.has(operation.id) || operation.state === "not-executed" || operation.state === "no-effect";
    if (own > 0 && denied) {
      counts["false answers"] += 1;
      broken.push(`${lab.transport}: ${operation.id} was called "not executed", and it was\n${await history(lab, operation)}`);
    }
    if (underWay.has(operation.state)) {
      counts.hanging += 1;
      broken.push(`${lab.transport}: operation ${operation.id} was left '${operation.state}'\n${await history(lab, operation)}`);
    }
  }
}

function count(operation: Operation, events: readonly OperationEvent[], counts: Counts): void {
  counts.losses += events.filter(({ type }) => type === "lost").length;
  if (operation.reason === "recovered" || operation.reason === "late-answer") counts.recovered += 1;
  if (events.some(({ type }) => type === "replayed")) counts.replayed += 1;
  if (operation.state === "unresolved") counts.unresolved += 1;
  if (operation.state === "not-executed") counts["not executed"] += 1;
}

function summarise(seed: number, total: Counts, byTransport: ReadonlyMap<Transport, Counts>, broken: readonly string[]): string {
  const cell = (value: string | number): string => String(value).padStart(15);
  const line = (name: string, counts: Counts): string => name.padEnd(14) + counters.map((one) => cell(counts[one])).join("");
  return [
    `soak, seed ${seed}`,
    "".padEnd(14) + counters.map(cell).join(""),
    ...[...byTransport].map(([transport, counts]) => line(transport, counts)),
    line("all", total),
    broken.length === 0 ? "No rule was broken." : `BROKEN (${broken.length}):\n${broken.slice(0, 50).join("\n")}`,
  ].join("\n");
}

if (argv[1] !== undefined && import.meta.url === pathToFileURL(argv[1]).href) {
  const { values } = parseArgs({
    options: {
      calls: { type: "string", default: "10000" },
      seed: { type: "string" },
      minutes: { type: "string", default: "60" },
      transport: { type: "string", multiple: true },
    },
  });
  const over = transports.filter((transport) => values.transport?.includes(transport) ?? true);
  const seed = values.seed === undefined ? randomInt(2 ** 31) : Number(values.seed);
  console.log(`soak of ${values.calls} calls, seed ${seed}`);
  const started = performance.now();
  const summary = await soak({ calls: Number(values.calls), seed, over, limitMs: Number(values.minutes) * 60_000 });
  console.log(`${summary.text}\n${Math.round((performance.now() - started) / 1000)} s`);
  process.exitCode = summary.broken.length === 0 ? 0 : 1;
}
