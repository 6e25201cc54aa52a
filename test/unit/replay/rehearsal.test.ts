import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import type { HostedConnection } from "../../../src/hosting/connection.ts";
import { contractFingerprint, readContracts, type Contract } from "../../../src/replay/contracts.ts";
import {
  judgeScenario,
  planRehearsal,
  type Finding,
  type Ran,
  type Rehearsed,
  type RehearsalReport,
} from "../../../src/replay/rehearsal-plan.ts";
import type { ProviderFaults } from "../../servers/providers/provider.ts";
import { runHeadless } from "../../support/headless.ts";
import { booking, lookup, prevention, preventionWithout, ProviderLab, stdioDefinition, type LabOptions } from "./provider-lab.ts";

// Processes are started and restarted; a loaded machine needs its time for that.
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const open: ProviderLab[] = [];
afterEach(async () => {
  for (const lab of open.splice(0)) await lab.close();
});

async function stdio(options: LabOptions = {}): Promise<ProviderLab> {
  const lab = await ProviderLab.stdio({ meetMs: 200, ...options });
  open.push(lab);
  lab.contractIs({ duplicatePrevention: prevention, lookup });
  return lab;
}

const request = { server: "hotel", tool: "create_booking", arguments: booking };
const phrase = "create up to 9 effects with create_booking on hotel";
const verdicts = (report: RehearsalReport): Partial<Record<Rehearsed, Finding["verdict"]>> =>
  Object.fromEntries(report.findings.map(({ promise, verdict }) => [promise, verdict]));
const evidence = (report: RehearsalReport, promise: Rehearsed): string =>
  (report.findings.find((finding) => finding.promise === promise)?.evidence ?? []).join("\n");

/** For a lookup that knows nothing of keys: it finds a booking by its guest, and each scenario has one of its own. */
const byGuest = { ...lookup, arguments: { guest: "{{arguments/guest}}" } };

describe("a rehearsal of a provider that keeps its promises", () => {
  let lab: ProviderLab;
  let report: RehearsalReport;
  let before: HostedConnection | undefined;
  const told: string[] = [];

  beforeAll(async () => {
    lab = await ProviderLab.stdio({ meetMs: 200 });
    lab.contractIs({ duplicatePrevention: prevention, lookup });
    before = lab.core.servers.get("hotel")?.connection;
    report = await lab.core.rehearse(request, phrase, { progress: (text) => told.push(text) });
  });
  afterAll(() => lab.close());

  it("finds each kept that can be tested, and says which cannot", () => {
    expect(verdicts(report)).toEqual({
      scopedToAccountAndOperation: "not-testable",
      boundToPayload: "held",
      atomicUnderConcurrency: "held",
      retainedForWholeWindow: "not-testable",
      reachesProvider: "held",
      lookupFinds: "held",
      lookupKnowsNone: "held",
    });
    expect(told).toEqual(expect.arrayContaining(["twice in a row", "twice at once", "after a lost answer", "after a restart"]));
  });

  it("leaves one booking for each key", () => {
    expect(lab.provider.bookings).toHaveLength(4);
    expect(new Set(lab.provider.bookings.map((one) => one.requestKey)).size).toBe(4);
  });

  it("is bound to contract, tool and server", () => {
    const contract = lab.contracts.get("hotel")?.get("create_booking") as Contract;
    const fingerprint = lab.core.servers.get("hotel")?.fingerprint ?? "";
    expect(report.contract).toBe(contractFingerprint(contract, "create_booking", fingerprint));
    const others = [
      contractFingerprint({ ...contract, documentation: "https://provider.example/other" }, "create_booking", fingerprint),
      contractFingerprint(contract, "other", fingerprint),
      contractFingerprint(contract, "create_booking", "another account"),
    ];
    expect(others).not.toContain(report.contract);
  });

  it("puts every call on record, as attempts of one operation for each key, and leaves nothing open", async () => {
    const operations = await lab.operations();
    expect(operations.map((one) => one.id).sort()).toEqual([...report.operations].sort());
    expect(operations.map((one) => one.state)).toEqual(Array.from({ length: 5 }, () => "completed"));
    expect(operations.every((one) => one.intention.caller.client === "Rehearsal")).toBe(true);
    const attempts = operations.flatMap((one) => one.attempts.map((attempt) => attempt.rpcId));
    expect(new Set(attempts).size).toBe(attempts.length);
    expect(attempts.length).toBeGreaterThanOrEqual(9);
  });

  it("leaves the server that agents use alone", () => {
    expect(before?.open).toBe(true);
    expect(lab.core.servers.get("hotel")?.connection).toBe(before);
  });
});

describe("a rehearsal", () => {
  it("calls nothing without the words that say what it may create", async () => {
    const lab = await stdio();
    await expect(lab.core.rehearse(request, "yes", {})).rejects.toMatchObject({ name: "RehearsalError", code: "not-agreed" });
    await expect(lab.core.rehearse(request, "", {})).rejects.toThrow(phrase);
    expect(lab.provider.bookings).toHaveLength(0);
    expect(await lab.operations()).toHaveLength(0);
    expect((await lab.core.planRehearsal(request)).plan).toMatchObject({ calls: 9, effects: 4, phrase });
  });

  it.each<[string, ProviderFaults, LabOptions, Rehearsed]>([
    ["that is not atomic", { notAtomic: true }, {}, "atomicUnderConcurrency"],
    ["that does not look at the payload", { ignoresPayload: true }, {}, "boundToPayload"],
    ["that knows no keys", { noKeys: true }, {}, "reachesProvider"],
    ["that never sees the key, because the server keeps it in its own memory", { keyStopsAtServer: true }, {}, "reachesProvider"],
  ])("finds out a provider %s", async (_, faults, options, promise) => {
    const lab = await stdio({ faults, ...options });
    const seesKeys = faults.noKeys !== true && faults.keyStopsAtServer !== true;
    if (!seesKeys) lab.contractIs({ duplicatePrevention: prevention, lookup: byGuest });
    const report = await lab.core.rehearse(
      seesKeys ? request : { ...request, arguments: { ...booking, guest: "Sandbox {{n}}" } },
      phrase,
      {},
    );
    expect(verdicts(report)[promise]).toBe("broken");
    // The ledger agrees: more bookings than keys.
    if (promise !== "boundToPayload") expect(lab.provider.bookings.length).toBeGreaterThan(4);
  });

  it("says that a memory of the server's own is not enough, though the same process knows the key", async () => {
    const lab = await stdio({ faults: { keyStopsAtServer: true } });
    lab.contractIs({ duplicatePrevention: prevention, lookup: byGuest });
    const report = await lab.core.rehearse({ ...request, arguments: { ...booking, guest: "Sandbox {{n}}" } }, phrase, {});
    expect(evidence(report, "reachesProvider")).toContain("twice in a row: 2 calls with one key left one effect");
    expect(evidence(report, "reachesProvider")).toContain("after a restart: 2 calls with one key left 2 effects");
    expect(verdicts(report).retainedForWholeWindow).toBe("broken");
  });

  it("finds a key forgotten before its time, when it is asked to wait for that", async () => {
    const lab = await ProviderLab.http({ faults: { forgetsAfterSeconds: 30 } });
    open.push(lab);
    lab.contractIs({ duplicatePrevention: prevention, lookup });
    const waiting = { ...request, waitMs: 60_000 };
    const report = await lab.core.rehearse(waiting, "create up to 10 effects with create_booking on hotel", {
      progress: (text) => {
        // The wait is about to begin; it falls due when time moves on.
        if (text.startsWith("waiting")) setImmediate(() => lab.clock.jump(60_000));
      },
    });
    expect(verdicts(report).retainedForWholeWindow).toBe("broken");
    expect(lab.provider.bookings).toHaveLength(5);
  });

  it("believes the window only when it was waited for", async () => {
    const lab = await ProviderLab.http({ provider: { retentionSeconds: 100 } });
    open.push(lab);
    lab.contractIs({ duplicatePrevention: { ...prevention, retentionSeconds: 100 }, lookup });
    const report = await lab.core.rehearse(
      { ...request, waitMs: 41_000 },
      "create up to 10 effects with create_booking on hotel",
      {
        progress: (text) => {
          if (text.startsWith("waiting")) setImmediate(() => lab.clock.jump(41_000));
        },
      },
    );
    expect(verdicts(report).retainedForWholeWindow).toBe("held");
    expect(lab.provider.bookings).toHaveLength(4);
    // Over HTTP only the connection can be made anew, and that proves less.
    expect(verdicts(report).reachesProvider).toBe("not-testable");
  });

  it("waits for the lookup's consistency delay before it counts", async () => {
    const lab = await ProviderLab.http({ provider: { visibleAfterSeconds: 20 } });
    open.push(lab);
    lab.contractIs({ duplicatePrevention: prevention, lookup: { ...lookup, consistentAfterSeconds: 20 } });
    const told: string[] = [];
    const report = await lab.core.rehearse(request, phrase, {
      progress: (text) => {
        told.push(text);
        if (text.startsWith("waiting")) setImmediate(() => lab.clock.jump(20_000));
      },
    });
    expect(told.at(-1)).toBe("waiting 20 s, until the lookup has to know");
    expect(verdicts(report)).toMatchObject({ atomicUnderConcurrency: "held", lookupFinds: "held" });
  });

  it("calls nothing when nothing could be counted, and says so of each promise", async () => {
    const lab = await stdio();
    lab.contractIs({ duplicatePrevention: prevention });
    const report = await lab.core.rehearse(request, "", {});
    expect(new Set(Object.values(verdicts(report)))).toEqual(new Set(["not-testable"]));
    expect(evidence(report, "boundToPayload")).toContain("names no lookup");
    expect(lab.provider.bookings).toHaveLength(0);
  });

  it("does not begin when the lookup's word would not count", async () => {
    const lab = await stdio();
    lab.trusted = false;
    await expect(lab.core.rehearse(request, phrase, {})).rejects.toMatchObject({ code: "not-trusted" });
    expect(lab.provider.bookings).toHaveLength(0);
  });

  it("of a lookup alone makes one booking and looks it up", async () => {
    const lab = await stdio();
    lab.contractIs({ lookup: byGuest });
    const report = await lab.core.rehearse(request, "create up to 1 effect with create_booking on hotel", {});
    expect(verdicts(report)).toEqual({ lookupFinds: "held", lookupKnowsNone: "held" });
    expect(lab.provider.bookings).toHaveLength(1);
  });

  it("ends when the person ends it, and keeps what was begun on record", async () => {
    const lab = await stdio();
    const ended = new AbortController();
    const report = await lab.core.rehearse(request, phrase, {
      signal: ended.signal,
      progress: (text) => {
        if (text === "twice at once") ended.abort();
      },
    });
    expect(verdicts(report)).toMatchObject({ atomicUnderConcurrency: "not-testable", reachesProvider: "not-testable" });
    expect(lab.provider.bookings).toHaveLength(1);
    expect(report.operations.length).toBeGreaterThan(0);
  });
});

describe("a rehearsal's plan", () => {
  const contract = (more: Record<string, unknown>): Contract =>
    readContracts({ hotel: { create_booking: { documentation: "https://provider.example", ...more } } }, "c")
      .contracts.get("hotel")
      ?.get("create_booking") as Contract;
  const keyed = contract({ duplicatePrevention: prevention, lookup });

  it.each<[string, Contract | undefined, Record<string, unknown>, string]>([
    ["no contract", undefined, booking, "there is no contract"],
    ["no lookup", contract({ duplicatePrevention: prevention }), booking, "names no lookup"],
    ["only a read", contract({ nonMutating: { freshDataAcceptable: true } }), booking, "changes nothing"],
    [
      "calls that the lookup cannot tell apart",
      contract({ duplicatePrevention: prevention, lookup: byGuest }),
      booking,
      "cannot tell the calls of a rehearsal apart",
    ],
    [
      "arguments that the lookup needs and that are missing",
      contract({ lookup: byGuest }),
      { hotel: "Grand" },
      "needs something",
    ],
    [
      "no place for the key",
      contract({ duplicatePrevention: { ...prevention, keyArgument: "/hotel/key" }, lookup }),
      booking,
      "has no place",
    ],
  ])("is none with %s", (_, given, args, why) => {
    const plan = planRehearsal(given, { ...request, arguments: args }, undefined);
    expect("why" in plan ? plan.why : "").toContain(why);
  });

  it("changes one argument for the other payload, one that tells records apart, and keeps to the tool's choices", () => {
    const other = (args: Record<string, unknown>, schema?: Record<string, unknown>) => {
      const plan = planRehearsal(keyed, { ...request, arguments: args }, schema);
      return "why" in plan ? plan : plan.otherArguments;
    };
    expect(other(booking)).toEqual({ ...booking, hotel: "Grand 2" });
    expect(other(booking, { properties: { hotel: { enum: ["Grand", "Ritz"] } } })).toEqual({ ...booking, hotel: "Ritz" });
    expect(other({ night: "2026-12-31" })).toEqual({ night: "2027-01-01" });
    expect(other({ nights: 2 })).toEqual({ nights: 3 });
  });

  const ran: Ran = {
    name: "twice in a row",
    before: { kind: "none" },
    after: { kind: "found" },
    calls: 2,
    answered: 2,
    sameAnswers: true,
  };
  it.each<[string, Partial<Ran>, Finding["verdict"]]>([
    ["the same answers and a record found, without a count", {}, "held"],
    ["different answers, without a count", { sameAnswers: false }, "not-testable"],
    ["one answer only, without a count", { answered: 1 }, "not-testable"],
    ["one effect counted", { after: { kind: "count", count: 1 }, sameAnswers: false }, "held"],
    ["two effects counted", { after: { kind: "count", count: 2 } }, "broken"],
    ["two effects counted though the scenario was spoilt", { after: { kind: "count", count: 2 }, spoilt: "cut" }, "broken"],
    ["one effect counted in a spoilt scenario", { after: { kind: "count", count: 1 }, spoilt: "cut" }, "not-testable"],
    ["one effect more than before", { before: { kind: "count", count: 3 }, after: { kind: "count", count: 4 } }, "held"],
    ["no effect counted", { after: { kind: "count", count: 0 } }, "not-testable"],
    ["nothing found", { after: { kind: "none" } }, "not-testable"],
    ["something unclear", { after: { kind: "unclear", why: "several" } }, "not-testable"],
    ["something found before anything was called", { before: { kind: "found" } }, "not-testable"],
  ])("judges %s", (_, change, verdict) => {
    expect(judgeScenario({ ...ran, ...change }).verdict).toBe(verdict);
  });
});

describe("mcp-safe-replay rehearse", () => {
  async function run(lab: ProviderLab, contract: Record<string, unknown>, extra: readonly string[]) {
    const { command, args } = stdioDefinition(lab.ledger, { meetMs: 200 });
    const config = join(lab.folder, "config.json");
    writeFileSync(
      config,
      JSON.stringify({
        servers: { hotel: { command, args } },
        serverTrust: { hotel: true },
        workspaceTrusted: true,
        contracts: { hotel: { create_booking: { documentation: "https://provider.example/docs", ...contract } } },
      }),
    );
    const what = ["--server", "hotel", "--tool", "create_booking", "--arguments", JSON.stringify(booking)];
    return runHeadless(["rehearse", "--config", config, ...what, ...extra]);
  }

  it("says the words that are needed, calls nothing without them, and reports with them", async () => {
    const lab = await stdio();
    const refused = await run(lab, { duplicatePrevention: prevention, lookup }, ["--confirm", "yes"]);
    expect(refused).toMatchObject({ code: 2 });
    expect(refused.stderr).toContain(phrase);
    expect(lab.provider.bookings).toHaveLength(0);

    const done = await run(lab, { duplicatePrevention: prevention, lookup }, ["--confirm", phrase, "--json"]);
    expect(done).toMatchObject({ code: 0 });
    expect(verdicts(JSON.parse(done.stdout) as RehearsalReport)).toMatchObject({
      reachesProvider: "held",
      boundToPayload: "held",
    });
    expect(lab.provider.bookings).toHaveLength(4);

    const plain = await run(lab, { duplicatePrevention: preventionWithout("reachesProvider") }, ["--confirm", ""]);
    expect(plain).toMatchObject({ code: 0 });
    expect(plain.stdout).toContain("not testable  A key with other arguments is refused (boundToPayload)");
  });
});
