import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Ending } from "../../../src/hosting/evidence.ts";
import { HostingError } from "../../../src/hosting/connection.ts";
import type { Journal } from "../../../src/operations/journal.ts";
import { openSqliteJournal } from "../../../src/operations/sqlite-journal.ts";
import { operationMetaKey } from "../../../src/replay/answers.ts";
import { CallManager } from "../../../src/replay/call-manager.ts";
import type { CallAnswer } from "../../../src/replay/calls.ts";
import { marginMs, promiseNames, readContracts, type Contracts } from "../../../src/replay/contracts.ts";
import { defaultReplaySettings } from "../../../src/replay/settings.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { answer, FakeServer, loss, resultText, rpcError, type Step } from "../../support/fake-hosting.ts";
import { temporaryFolder } from "../../support/temp.ts";

/** A provider that keeps its promise about keys, and a lookup tool that tells what it has. */
class Provider {
  readonly bookings = new Map<string, Record<string, unknown>>();
  /** What the next create_booking requests do after the booking was made. */
  readonly faults: ("lose" | "running" | "other-payload" | "busy" | "refuse" | "answer")[] = [];
  lookupSays: "truth" | "none" | "other" | "several" | "forbidden" | "lost" = "truth";
  creates = 0;

  readonly step: Step = ({ params, rpcId }): Ending => {
    const args = params["arguments"] as Record<string, string>;
    if (params["name"] === "find_booking") return this.#find(args, rpcId);
    this.creates += 1;
    const fault = this.faults.shift() ?? "answer";
    if (fault === "running") return answer(JSON.stringify({ status: "running" }), rpcId, { isError: true });
    if (fault === "other-payload") return answer(JSON.stringify({ status: "other payload" }), rpcId, { isError: true });
    if (fault === "busy") return answer("busy, try again", rpcId, { isError: true });
    if (fault === "refuse") return loss("http-status", { stage: "answering", httpStatus: 429, bodyIsJsonOrEmpty: true });
    const key = args["idempotencyKey"] ?? `no key ${this.bookings.size}`;
    if (!this.bookings.has(key)) this.bookings.set(key, args);
    return fault === "lose" ? loss("reset") : answer(`booked ${key}`, rpcId);
  };

  #find(args: Record<string, string>, rpcId: string): Ending {
    const data = (value: unknown, fields: Record<string, unknown> = {}): Ending => answer(JSON.stringify(value), rpcId, fields);
    if (this.lookupSays === "lost") return loss("reset");
    if (this.lookupSays === "forbidden") return data({ status: "forbidden" }, { isError: true });
    if (this.lookupSays === "several") return data({ status: "several" });
    const found = this.bookings.get(args["reference"] ?? "");
    if (this.lookupSays === "none" || found === undefined) return data({ status: "none" });
    return data({ status: "booked", booking: this.lookupSays === "other" ? { ...found, hotel: "Elsewhere" } : found });
  }
}

const schema = { type: "object", properties: { hotel: { type: "string" }, idempotencyKey: { type: "string" } } };
const tools = () => [
  { name: "create_booking", inputSchema: schema },
  { name: "find_booking", inputSchema: { type: "object" }, annotations: { readOnlyHint: true } },
];
const promises = Object.fromEntries(promiseNames.map((name) => [name, true]));
const documentation = "https://provider.example/docs";
const duplicatePrevention = {
  keyArgument: "/idempotencyKey",
  suppliedBy: "gateway",
  retentionSeconds: 86_400,
  promises,
  running: "status == 'running'",
  otherPayload: "status == 'other payload'",
};
const lookup = {
  tool: "find_booking",
  arguments: { reference: "{{key}}" },
  effect: "status == 'booked'",
  noEffect: "status == 'none'",
  sameAs: { "/hotel": "booking.hotel" },
  consistentAfterSeconds: 2,
  recordsKeptSeconds: 86_400,
};

let folder: { path: string; remove(): void };
let journal: Journal;
let server: FakeServer;
let provider: Provider;
let clock: FakeClock;
let workspaceTrusted: boolean;
let trusted: boolean;
let contracts: Contracts;
let calls: CallManager;

const contractIs = (contract: Record<string, unknown>): void => {
  const read = readContracts({ hotel: { create_booking: { documentation, ...contract } } }, "contracts");
  expect(read.problems).toEqual([]);
  contracts = read.contracts;
};

beforeEach(() => {
  folder = temporaryFolder();
  journal = openSqliteJournal({ directory: folder.path, watchMs: 0 });
  server = new FakeServer("hotel", tools());
  provider = new Provider();
  server.script = Array.from({ length: 50 }, () => provider.step);
  clock = new FakeClock();
  clock.instantBelow = 2_500;
  workspaceTrusted = true;
  trusted = true;
  contracts = new Map();
  calls = new CallManager({
    journal,
    servers: () => new Map([["hotel", server]]),
    trust: {
      workspaceTrusted: () => workspaceTrusted,
      serverTrustSetting: () => trusted,
      consentFingerprint: () => "fingerprint",
    },
    settings: () => ({ ...defaultReplaySettings, requestTimeoutMs: 60_000 }),
    contracts: () => contracts,
    clock,
    random: () => 0.5,
    log: () => undefined,
  });
});
afterEach(async () => {
  await journal.close();
  folder.remove();
});

const book = (args: Record<string, unknown> = { hotel: "Grand" }): Promise<CallAnswer> =>
  calls.call(
    {
      server: "hotel",
      tool: "create_booking",
      arguments: args,
      params: { name: "create_booking", arguments: args },
      caller: { client: "agent" },
    },
    {},
  );
const mark = (given: CallAnswer) =>
  given.kind === "result" ? (given.result["_meta"] as Record<string, unknown> | undefined)?.[operationMetaKey] : undefined;
const only = async () => {
  const list = await journal.operations({});
  expect(list).toHaveLength(1);
  return list[0]!;
};
const createRequests = () => server.requests.filter((request) => request.params["name"] === "create_booking");
const keys = () => createRequests().map((request) => (request.params["arguments"] as Record<string, unknown>)["idempotencyKey"]);

describe("duplicate prevention", () => {
  it("replays a lost call with the same key and a new RPC id: one booking", async () => {
    contractIs({ duplicatePrevention });
    trusted = false; // the contract stands by itself; server trust is for hints
    provider.faults.push("lose", "lose", "answer");
    const given = await book();
    expect(resultText(given)).toContain("booked");
    expect(mark(given)).toMatchObject({ state: "completed", via: "replayed", attempts: 3 });
    expect(provider.bookings.size).toBe(1);
    expect(new Set(keys()).size).toBe(1);
    expect(new Set(createRequests().map((request) => request.rpcId)).size).toBe(3);
    expect(await only()).toMatchObject({ state: "completed", intention: { key: keys()[0], arguments: { hotel: "Grand" } } });
  });

  it("gives every operation a key of its own, whatever the agent puts there", async () => {
    contractIs({ duplicatePrevention });
    const first = await book({ hotel: "Grand", idempotencyKey: "mine" });
    first.delivered();
    await book({ hotel: "Ritz", idempotencyKey: "mine" });
    expect(new Set(keys()).size).toBe(2);
    expect(keys()).not.toContain("mine");
  });

  it("takes the caller's key where the contract says so, and still knows the same intention under a fresh one", async () => {
    contractIs({ duplicatePrevention: { ...duplicatePrevention, suppliedBy: "caller", retentionSeconds: 60 } });
    provider.faults.push("lose");
    const given = await book({ hotel: "Grand", idempotencyKey: "one" });
    expect(mark(given)).toMatchObject({ state: "unresolved" });
    expect(mark(await book({ hotel: "Grand", idempotencyKey: "two" }))).toMatchObject({ state: "held" });
    expect(keys()).toEqual(["one"]);
  });

  it("refuses a call whose key has no place, and keeps a caller's arguments as they are when it gave no usable key", async () => {
    contractIs({ duplicatePrevention: { ...duplicatePrevention, keyArgument: "/meta/key" } });
    expect(resultText(await book({ hotel: "Grand", meta: "text" }))).toContain("NOT EXECUTED");
    expect(server.requests).toHaveLength(0);
    contractIs({ duplicatePrevention: { ...duplicatePrevention, suppliedBy: "caller" } });
    provider.faults.push("lose");
    expect(mark(await book({ hotel: "Grand", idempotencyKey: 17 }))).toMatchObject({ state: "unresolved" });
    expect(keys()).toEqual([17]);
    expect((await only()).intention).toMatchObject({ arguments: { hotel: "Grand", idempotencyKey: 17 } });
  });

  it("knows the same intention whether or not the agent wrote the object that holds the key", async () => {
    contractIs({ duplicatePrevention: { ...duplicatePrevention, keyArgument: "/meta/key", promises: {} } });
    provider.faults.push("lose");
    await book({ hotel: "Grand" });
    expect(mark(await book({ hotel: "Grand", meta: {} }))).toMatchObject({ state: "held" });
    expect(provider.creates).toBe(1);
  });

  it.each<[string, () => void]>([
    ["the contract is withdrawn", () => (contracts = new Map())],
    ["the tool has another schema", () => (server.toolsLater = [{ name: "create_booking", inputSchema: { type: "object" } }])],
    ["the tool is gone", () => (server.toolsLater = [])],
  ])("does not replay when %s while it reconnects", async (_, change) => {
    contractIs({ duplicatePrevention });
    provider.faults.push("lose");
    server.onRediscover = change;
    expect(mark(await book())).toMatchObject({ state: "unresolved" });
    expect(provider.creates).toBe(1);
  });

  it("asks anew, trust included, before it sends a replay again that never left", async () => {
    contractIs({ duplicatePrevention });
    provider.faults.push("lose");
    server.script.splice(1, 0, () => {
      workspaceTrusted = false;
      return loss("connect-refused", { stage: "not-sent" });
    });
    expect(mark(await book())).toMatchObject({ state: "unresolved" });
    expect(server.requests).toHaveLength(2);
    expect(provider.bookings.size).toBe(1);
    expect(await only()).toMatchObject({ state: "unresolved", attempts: [{ outcome: "unknown" }, { outcome: "not-executed" }] });
  });

  it.each(promiseNames)("does not replay without the promise %s", async (name) => {
    contractIs({ duplicatePrevention: { ...duplicatePrevention, promises: { ...promises, [name]: false } } });
    provider.faults.push("lose");
    expect(mark(await book())).toMatchObject({ state: "unresolved" });
    expect(provider.creates).toBe(1);
  });

  it("does not replay in Restricted Mode, or when the provider may have forgotten the key", async () => {
    contractIs({ duplicatePrevention });
    workspaceTrusted = false;
    provider.faults.push("lose");
    expect(mark(await book())).toMatchObject({ state: "unresolved" });
    workspaceTrusted = true;
    contractIs({ duplicatePrevention: { ...duplicatePrevention, retentionSeconds: 100 } });
    server.script.unshift((call) => {
      clock.advance(100_000 - marginMs(100));
      return provider.step(call);
    });
    provider.faults.push("lose");
    expect(mark(await book({ hotel: "Ritz" }))).toMatchObject({ state: "unresolved" });
    expect(provider.creates).toBe(2);
  });

  it("counts the retention from the first send, through every further attempt", async () => {
    contractIs({ duplicatePrevention: { ...duplicatePrevention, retentionSeconds: 100 } });
    server.script.splice(1, 0, (call) => {
      clock.advance(100_000 - marginMs(100));
      return provider.step(call);
    });
    provider.faults.push("lose", "lose", "answer");
    expect(mark(await book())).toMatchObject({ state: "unresolved", attempts: 2 });
    expect(provider.creates).toBe(2);
  });

  it("counts it from the first send for a repeat too: what the provider may have forgotten is not sent by itself", async () => {
    contractIs({ duplicatePrevention: { ...duplicatePrevention, retentionSeconds: 100 } });
    workspaceTrusted = false;
    provider.faults.push("lose", "lose", "answer");
    await book();
    workspaceTrusted = true;
    clock.advance(100_000 - marginMs(100));
    const { id } = await only();
    await calls.settle(id, "no-effect", "looked", "person");
    expect(mark(await calls.repeat(id, "looked", {}))).toMatchObject({ state: "unresolved", attempts: 2 });
    expect(provider.creates).toBe(2);
  });

  it("asks again with the same key while the provider says that the first is still running", async () => {
    contractIs({ duplicatePrevention });
    provider.faults.push("lose", "running", "answer");
    expect(resultText(await book())).toContain("booked");
    expect(provider.bookings.size).toBe(1);
    expect(new Set(keys()).size).toBe(1);
  });

  it("stops and raises the alarm when the key was used with another payload, and keeps the key", async () => {
    contractIs({ duplicatePrevention });
    provider.faults.push("lose", "other-payload", "answer");
    expect(mark(await book())).toMatchObject({ state: "unresolved", reason: "key-conflict" });
    expect(provider.creates).toBe(2);
    expect(await only()).toMatchObject({ state: "unresolved", reason: "key-conflict", intention: { key: keys()[0] } });
  });

  it.each(["busy", "refuse"] as const)("never takes a replay's '%s' for the lost booking's fate", async (fault) => {
    contractIs({ duplicatePrevention });
    provider.faults.push("lose", fault);
    const given = await book();
    expect(mark(given)).toMatchObject({ state: "unresolved", reason: "connection-lost" });
    expect(provider.bookings.size).toBe(1);
    // The agent calls again under the impression that it failed: held, not booked under a fresh key.
    expect(mark(await book())).toMatchObject({ state: "held" });
    expect(provider.bookings.size).toBe(1);
  });

  it("repeats after 'it did not happen' with the same key", async () => {
    contractIs({ duplicatePrevention: { ...duplicatePrevention, promises: { ...promises, reachesProvider: false } } });
    provider.faults.push("lose");
    await book();
    const { id } = await only();
    await calls.settle(id, "no-effect", "looked", "person");
    expect(resultText(await calls.repeat(id, "looked", {}))).toContain("booked");
    expect(new Set(keys()).size).toBe(1);
    expect(provider.bookings.size).toBe(1); // the person was wrong: the key still protects
  });
});

describe("a repeat that a person ordered", () => {
  beforeEach(async () => {
    contractIs({ duplicatePrevention: { ...duplicatePrevention, promises: { ...promises, reachesProvider: false } } });
    provider.faults.push("lose");
    await book();
    await calls.settle((await only()).id, "no-effect", "looked", "person");
  });

  it("stops when the provider says that the key was used with other arguments", async () => {
    provider.faults.push("other-payload");
    expect(mark(await calls.repeat((await only()).id, "looked", {}))).toMatchObject({ reason: "key-conflict" });
    expect(await only()).toMatchObject({ state: "unresolved", reason: "key-conflict" });
  });

  it("is no answer while the provider says that the first call is still running", async () => {
    provider.faults.push("running");
    expect(mark(await calls.repeat((await only()).id, "looked", {}))).toMatchObject({ state: "unresolved" });
    expect(await only()).toMatchObject({ state: "unresolved", attempts: [{}, { outcome: "not-executed" }] });
  });

  it("is made once when two programs order it at the same time", async () => {
    const { id } = await only();
    const given = await Promise.all([calls.repeat(id, "looked", {}), calls.repeat(id, "looked", {})]);
    expect(given.map(resultText).filter((text) => text.includes("booked"))).toHaveLength(1);
    expect(given.map(resultText).filter((text) => text.includes("NOT EXECUTED"))).toHaveLength(1);
    expect(provider.creates).toBe(2);
  });
});

describe("a replay that is refused", () => {
  it("leaves an idempotent call unresolved: what its first attempt did is still unknown", async () => {
    server = new FakeServer("hotel", [{ name: "create_booking", inputSchema: schema, annotations: { idempotentHint: true } }]);
    server.script = Array.from({ length: 9 }, () => provider.step);
    provider.faults.push("lose", "refuse");
    const given = await book();
    expect(mark(given)).toMatchObject({ state: "unresolved", attempts: 2 });
    expect(await only()).toMatchObject({ state: "unresolved", attempts: [{ outcome: "unknown" }, { outcome: "not-executed" }] });
  });
});

describe("a lookup", () => {
  beforeEach(() => contractIs({ duplicatePrevention: { ...duplicatePrevention, promises: {} }, lookup }));

  it("that finds the record settles the lost booking without a second create", async () => {
    provider.faults.push("lose");
    const given = await book();
    expect(mark(given)).toMatchObject({ state: "effect-confirmed", reason: "lookup" });
    expect(resultText(given)).toContain("DONE");
    expect(provider.creates).toBe(1);
    expect(await only()).toMatchObject({ state: "effect-confirmed", reason: "lookup", settlement: { actor: "server" } });
  });

  it.each([
    ["other arguments", "other"],
    ["several records", "several"],
    ["an error", "forbidden"],
    ["no answer", "lost"],
  ] as const)("with %s decides nothing", async (_, says) => {
    provider.faults.push("lose");
    provider.lookupSays = says;
    expect(mark(await book())).toMatchObject({ state: "unresolved" });
    expect(provider.creates).toBe(1);
    expect((await journal.events((await only()).id)).filter((event) => event.type === "looked-up")).toMatchObject([
      { data: { found: "undecided" } },
    ]);
  });

  it("that definitively finds nothing, after the consistency delay, allows one repeat of the same operation", async () => {
    server.script.unshift(() => loss("reset")); // lost before it reached the provider
    clock.instantBelow = 0;
    const pending = book();
    for (let i = 0; i < 50; i++) {
      await new Promise<void>((done) => setImmediate(done));
      clock.advance(200);
    }
    const given = await pending;
    expect(resultText(given)).toContain("booked");
    expect(provider.bookings.size).toBe(1);
    expect(await only()).toMatchObject({
      state: "completed",
      attempts: [{ outcome: "unknown" }, { cause: "repeat", outcome: "observed" }],
    });
    const types = (await journal.events((await only()).id)).map((event) => event.type);
    expect(types).toEqual(["prepared", "sent", "lost", "looked-up", "looked-up", "settled", "repeated", "sent", "answered"]);
  });

  it("is only believed when the tool is a proven read of a trusted server", async () => {
    provider.faults.push("lose");
    trusted = false;
    expect(mark(await book())).toMatchObject({ state: "unresolved" });
    expect(server.requests).toHaveLength(1);
  });

  it("that comes too early is made again later, and then settles without sending anything", async () => {
    contractIs({
      duplicatePrevention: { ...duplicatePrevention, promises: {} },
      lookup: { ...lookup, consistentAfterSeconds: 60 },
    });
    server.script.unshift(() => loss("reset"));
    expect(mark(await book())).toMatchObject({ state: "unresolved" });
    clock.advance(60_000);
    await expect.poll(async () => (await only()).state).toBe("no-effect");
    expect(provider.creates).toBe(0);
  });

  it("does not take 'none' for an answer while the call may still be under way", async () => {
    let release: (ending: Ending) => void = () => undefined;
    server.script.unshift(() => new Promise((done) => (release = done)));
    const pending = book();
    await new Promise<void>((done) => setImmediate(done));
    clock.advance(60_000);
    expect(mark(await pending)).toMatchObject({ state: "unresolved", reason: "timeout" });
    clock.advance(10_000);
    const { id } = await only();
    expect(await calls.lookUp(id)).toMatchObject({ found: "undecided" });
    release(answer("booked after all"));
    await expect.poll(async () => (await only()).state).toBe("completed");
  });

  it("does not keep the agent waiting: it is answered within seconds, and what the lookup says later settles the call", async () => {
    provider.faults.push("lose");
    let say: (ending: Ending) => void = () => undefined;
    server.script.splice(1, 0, () => new Promise((done) => (say = done)));
    const pending = book();
    await expect.poll(() => server.requests.at(-1)?.params["name"]).toBe("find_booking");
    clock.advance(5_000);
    expect(mark(await pending)).toMatchObject({ state: "unresolved", reason: "connection-lost" });
    const reference = String(keys()[0]);
    say(answer(JSON.stringify({ status: "booked", booking: { hotel: "Grand", reference } })));
    await expect.poll(async () => (await only()).state).toBe("effect-confirmed");
    expect(provider.creates).toBe(1);
  });

  it("that says only after the agent was answered that there is none repeats nothing by itself", async () => {
    server.script.unshift(() => loss("reset"));
    let say: (ending: Ending) => void = () => undefined;
    server.script.splice(1, 0, () => new Promise((done) => (say = done)));
    contractIs({
      duplicatePrevention: { ...duplicatePrevention, promises: {} },
      lookup: { ...lookup, consistentAfterSeconds: 0 },
    });
    const pending = book();
    await expect.poll(() => server.requests.at(-1)?.params["name"]).toBe("find_booking");
    clock.advance(5_000);
    expect(mark(await pending)).toMatchObject({ state: "unresolved" });
    say(answer(JSON.stringify({ status: "none" })));
    await expect.poll(async () => (await only()).state).toBe("no-effect");
    expect(provider.creates).toBe(0);
  });

  it("is offered while the call is unresolved, and recovery only where a cursor or task is left", async () => {
    provider.faults.push("lose");
    provider.lookupSays = "lost";
    await book();
    const { id } = await only();
    expect(await calls.reconcileOptions(id)).toEqual({ recover: false, lookUp: true });
    await journal.append(
      [{ operationId: id, type: "cursor", actor: "server", at: clock.now(), data: { attempt: 1, eventId: "e1" } }],
      { durable: false },
    );
    expect(await calls.reconcileOptions(id)).toEqual({ recover: true, lookUp: true });
    await calls.settle(id, "dismissed", "", "person");
    expect(await calls.reconcileOptions(id)).toEqual({ recover: false, lookUp: false });
  });

  it("runs again when the server comes back, and on demand", async () => {
    provider.faults.push("lose");
    provider.lookupSays = "lost";
    await book();
    provider.lookupSays = "truth";
    await calls.revisit(server);
    expect(await only()).toMatchObject({ state: "effect-confirmed" });
    await expect(calls.lookUp((await only()).id)).rejects.toMatchObject({ code: "not-unresolved" });
  });
});

describe("a lookup's word", () => {
  const byHotel = { ...lookup, arguments: { reference: "{{arguments/hotel}}" }, consistentAfterSeconds: 0 };

  it("does not count for an attempt that was made after the question was put", async () => {
    contractIs({ lookup: byHotel });
    provider.faults.push("lose");
    provider.lookupSays = "lost";
    await book();
    const { id } = await only();
    // The question is put now, and its answer takes its time.
    let say: (ending: Ending) => void = () => undefined;
    server.script.unshift(() => new Promise((done) => (say = done)));
    const looking = calls.lookUp(id);
    await expect.poll(() => server.requests.at(-1)?.params["name"]).toBe("find_booking");
    // Meanwhile a person repeats the call, and that answer is lost too.
    await calls.settle(id, "no-effect", "looked", "person");
    provider.faults.push("lose");
    expect(mark(await calls.repeat(id, "looked", {}))).toMatchObject({ state: "unresolved" });
    say(answer(JSON.stringify({ status: "none" })));
    expect(await looking).toMatchObject({ found: "undecided" });
    expect(await only()).toMatchObject({ state: "unresolved", attempts: [{}, {}] });
  });

  it("is no proof when the record may be that of an identical call", async () => {
    contractIs({ lookup: byHotel });
    provider.bookings.set("Grand", { hotel: "Grand" });
    (await book()).delivered();
    await expect.poll(async () => (await only()).delivered).toBe(true);
    provider.faults.push("lose");
    expect(mark(await book())).toMatchObject({ state: "unresolved" });
    const unresolved = (await journal.operations({ states: ["unresolved"] }))[0];
    const looked = (await journal.events(unresolved?.id ?? "")).find((event) => event.type === "looked-up");
    expect(JSON.stringify(looked?.data)).toContain("may be that of the identical operation");
    expect(JSON.stringify(looked?.data)).not.toContain("Grand");
  });

  it("is no proof when the record may be that of a call of which a person wrongly said that it did not happen", async () => {
    contractIs({ lookup: byHotel });
    provider.faults.push("lose");
    provider.lookupSays = "lost";
    await book();
    await calls.settle((await only()).id, "no-effect", "a guess", "person");
    provider.lookupSays = "truth";
    provider.bookings.set("Grand", { hotel: "Grand" });
    server.script.unshift(() => loss("reset")); // lost before it reached the provider
    expect(mark(await book())).toMatchObject({ state: "unresolved" });
  });

  it("says nothing about a server that is defined differently now", async () => {
    contractIs({ duplicatePrevention: { ...duplicatePrevention, promises: {} }, lookup });
    provider.faults.push("lose");
    provider.lookupSays = "lost";
    await book();
    provider.lookupSays = "truth";
    server.fingerprint = "another account";
    const { id } = await only();
    expect(await calls.lookUp(id)).toMatchObject({ found: "undecided", evidence: "its server is defined differently now" });
    expect(await calls.recoverAnswer(id)).toBe(false);
  });

  it("is not asked for with arguments of which the journal kept only a part", async () => {
    journal.configure({ arguments: { mode: "redacted", paths: ["/hotel"] } });
    contractIs({ lookup: { ...byHotel, sameAs: { "/night": "booking.night" } } });
    provider.bookings.set("Grand", { hotel: "Grand", night: "24" });
    provider.faults.push("lose");
    provider.lookupSays = "lost";
    await book({ hotel: "Grand", night: "24" });
    provider.lookupSays = "truth";
    const asked = server.requests.length;
    // Asked about "(redacted)", the provider would truthfully say that there is none.
    expect(await calls.lookUp((await only()).id)).toMatchObject({ found: "undecided" });
    expect(server.requests).toHaveLength(asked);
  });

  it("of 'none' proves nothing after our own program ended: the server elsewhere may still be at work", async () => {
    contractIs({ lookup: byHotel });
    server.script.unshift(() => new Promise(() => undefined));
    void book();
    await expect.poll(() => server.requests.length).toBe(1);
    await calls.dispose();
    expect(await only()).toMatchObject({ state: "unresolved", reason: "process-ended" });
    clock.advance(60_000);
    expect(await calls.lookUp((await only()).id)).toMatchObject({ found: "undecided" });
    expect(await only()).toMatchObject({ state: "unresolved" });
  });

  it("counts while the call is under way though the journal keeps no arguments, and not after that", async () => {
    journal.configure({ arguments: { mode: "digest" } });
    contractIs({ duplicatePrevention: { ...duplicatePrevention, promises: {} }, lookup });
    provider.faults.push("lose", "lose");
    expect(mark(await book())).toMatchObject({ state: "effect-confirmed" });
    provider.lookupSays = "lost";
    await book({ hotel: "Ritz" });
    provider.lookupSays = "truth";
    const [{ id } = { id: "" }] = await journal.operations({ states: ["unresolved"] });
    expect(await calls.lookUp(id)).toMatchObject({ found: "undecided" });
    await calls.settle(id, "no-effect", "looked", "person");
    await expect(calls.repeat(id, "looked", {})).rejects.toMatchObject({ code: "arguments-withheld" });
  });
});

describe("after a reconciliation", () => {
  beforeEach(async () => {
    contractIs({ duplicatePrevention: { ...duplicatePrevention, promises: {} }, lookup });
    provider.faults.push("lose");
    provider.lookupSays = "lost";
    await book();
    provider.lookupSays = "truth";
  });

  it("the identical call gets the fact that a lookup confirmed, once, and is not sent", async () => {
    const { id } = await only();
    expect(await calls.lookUp(id)).toMatchObject({ found: "effect" });
    const again = await book();
    expect(resultText(again)).toMatch(/^ALREADY DONE.*the lookup tool 'find_booking' found the record/);
    expect(mark(again)).toMatchObject({ id, state: "effect-confirmed", reason: "lookup", via: "recorded" });
    expect(provider.creates).toBe(1);
  });

  it("the identical call gets the answer that was recovered", async () => {
    const { id } = await only();
    const operation = await only();
    const rpcId = operation.attempts[0]?.rpcId ?? "";
    await journal.append(
      [{ operationId: id, type: "cursor", actor: "server", at: clock.now(), data: { attempt: 1, eventId: "e1" } }],
      { durable: false },
    );
    server.resume = () => Promise.resolve(answer("booked after all", rpcId));
    expect(await calls.recoverAnswer(id)).toBe(true);
    const again = await book();
    expect(resultText(again)).toBe("booked after all");
    expect(mark(again)).toMatchObject({ id, state: "completed", via: "recorded" });
    expect(provider.creates).toBe(1);
  });

  it("another client, another conversation and a later day are not answered from the record", async () => {
    const { id } = await only();
    await calls.settle(id, "effect-confirmed", "seen", "person");
    clock.advance(25 * 3_600_000);
    expect(resultText(await book())).toContain("booked");
    expect(provider.creates).toBe(2);
  });

  it("the identical call is told that it was answered when the journal keeps no answers", async () => {
    journal.configure({ arguments: { mode: "digest" } });
    await book({ hotel: "Ritz" }); // answered; its caller went away
    const again = await book({ hotel: "Ritz" });
    expect(resultText(again)).toMatch(/^ALREADY DONE/);
    expect(provider.creates).toBe(2);
  });
});

describe("a settlement", () => {
  it("does not overlook an attempt that was made in the meantime", async () => {
    provider.faults.push("lose", "lose");
    await book();
    const seen = await only();
    await calls.settle(seen.id, "no-effect", "looked", "person");
    await calls.repeat(seen.id, "looked", {});
    await expect(
      calls.settle(seen.id, "no-effect", "looked before the repeat", "person", seen.attempts.length),
    ).rejects.toMatchObject({ code: "not-unresolved" });
    expect(await only()).toMatchObject({ state: "unresolved", attempts: [{}, {}] });
  });

  it("on whose word the call was repeated is flagged when the first attempt is answered after all", async () => {
    let say: (ending: Ending) => void = () => undefined;
    server.script.unshift(() => new Promise((done) => (say = done)));
    const pending = book();
    await new Promise<void>((done) => setImmediate(done));
    clock.advance(60_000);
    await pending;
    const { id } = await only();
    await calls.settle(id, "no-effect", "looked", "person");
    expect(resultText(await calls.repeat(id, "looked", {}))).toContain("booked");
    say(answer("booked the first time"));
    await expect.poll(async () => (await only()).conflict).toBe(true);
    expect(await only()).toMatchObject({ state: "completed", attempts: [{ outcome: "observed" }, { outcome: "observed" }] });
  });

  it("of an earlier attempt does not contradict the late answer of a later one", async () => {
    provider.faults.push("lose");
    await book();
    const { id } = await only();
    await calls.settle(id, "no-effect", "looked", "person");
    let say: (ending: Ending) => void = () => undefined;
    server.script.unshift(() => new Promise((done) => (say = done)));
    const pending = calls.repeat(id, "looked", {});
    await expect.poll(() => server.requests.length).toBe(2);
    clock.advance(60_000);
    await pending;
    say(answer("booked"));
    await expect.poll(async () => (await only()).state).toBe("completed");
    expect((await only()).conflict).toBe(false);
  });
});

describe("a non-mutating contract", () => {
  it("makes a read of a trusted server's tool without hints: read again, marked as a new observation", async () => {
    contractIs({ nonMutating: { freshDataAcceptable: true } });
    provider.faults.push("lose", "answer");
    const given = await book();
    expect(mark(given)).toMatchObject({ via: "replayed" });
    expect((given as { result: Record<string, Record<string, unknown>> }).result["_meta"]).toMatchObject({
      "mcp-safe-replay/observation": "new",
    });
  });

  it("holds nothing when fresh data is not acceptable, and replays nothing", async () => {
    contractIs({ nonMutating: { freshDataAcceptable: false } });
    provider.faults.push("lose");
    expect(resultText(await book())).toContain("reading again is safe");
    expect(provider.creates).toBe(1);
  });

  it("does not count when the server declares the tool destructive", async () => {
    contractIs({ nonMutating: { freshDataAcceptable: true } });
    server.tools = [{ name: "create_booking", inputSchema: schema, annotations: { destructiveHint: true } }];
    provider.faults.push("lose");
    expect(mark(await book())).toMatchObject({ state: "unresolved" });
    expect(provider.creates).toBe(1);
  });
});

describe("a person's way out of the guard", () => {
  it("lets the next identical call through, once, and keeps the note", async () => {
    provider.faults.push("lose", "answer", "answer");
    await book();
    const { id } = await only();
    await calls.letThrough(id, "two rooms are wanted");
    const second = await book();
    expect(resultText(second)).toContain("booked");
    expect(mark(second)).toMatchObject({ possibleDuplicateOf: id });
    second.delivered();
    expect(mark(await book())).toMatchObject({ id, state: "held" });
    expect(provider.creates).toBe(2);
    expect((await journal.events(id)).filter((event) => event.type === "let-through")).toMatchObject([
      { data: { note: "two rooms are wanted" } },
      { data: {} },
    ]);
  });
});

describe("a permission to let one through", () => {
  it("is used by one of two identical calls that come at the same moment", async () => {
    provider.faults.push("lose", "answer", "answer");
    await book();
    const { id } = await only();
    await calls.letThrough(id, "two rooms are wanted");
    const given = await Promise.all([book(), book()]);
    expect(given.map(resultText).filter((text) => text.startsWith("booked"))).toHaveLength(1);
    expect(provider.creates).toBe(2);
  });
});

describe("errors", () => {
  it("of a repeat without a connection leave the operation settled as it was", async () => {
    provider.faults.push("lose");
    await book();
    const { id } = await only();
    await calls.settle(id, "no-effect", "looked", "person");
    server.connectError = new HostingError("connect-refused", "no");
    expect(resultText(await calls.repeat(id, "x", {}))).toContain("NOT EXECUTED");
    expect(await only()).toMatchObject({ state: "no-effect" });
  });

  it("of JSON-RPC in a first attempt are plain answers, contract or not", async () => {
    contractIs({ duplicatePrevention });
    server.script = [() => rpcError(-32602, "bad")];
    expect(await book()).toMatchObject({ kind: "error", error: { code: -32602 } });
  });
});
