import { afterEach, describe, expect, it } from "vitest";
import { marginMs, promiseNames } from "../../../src/replay/contracts.ts";
import type { HttpProvider } from "../../servers/providers/http-provider.ts";
import { resultText } from "../../support/fake-hosting.ts";
import { booking, lookup, markOf, prevention, preventionWithout, ProviderLab, type LabOptions } from "./provider-lab.ts";

/** Contracts against providers over real HTTP: what is asserted is the provider's ledger, not what anybody says. */

const open: ProviderLab[] = [];
afterEach(async () => {
  for (const lab of open.splice(0)) await lab.close();
});

async function http(options: LabOptions = {}): Promise<ProviderLab & { readonly http: HttpProvider }> {
  const lab = await ProviderLab.http(options);
  open.push(lab);
  return lab;
}

const creates = (lab: { readonly http: HttpProvider }) => lab.http.calls.filter((call) => call.tool === "create_booking");
const keys = (lab: { readonly http: HttpProvider }) => creates(lab).map((call) => call.arguments["requestKey"]);

describe("a provider that keeps its promises", () => {
  it("makes one booking of a call whose answers are lost, under one key and with new RPC ids", async () => {
    const lab = await http();
    lab.contractIs({ duplicatePrevention: prevention });
    lab.http.faults.push("lose", "lose");
    const answer = await lab.call();
    expect(markOf(answer)).toMatchObject({ state: "completed", via: "replayed", attempts: 3 });
    expect(lab.provider.bookings).toHaveLength(1);
    expect(new Set(keys(lab)).size).toBe(1);
    expect(new Set(creates(lab).map((call) => call.rpcId)).size).toBe(3);
    expect((await lab.only()).intention).toMatchObject({ arguments: booking, key: keys(lab)[0], keyArgument: "/requestKey" });
  });

  it.each(["status", "result"] as const)(
    "is asked again while it says (by %s) that the first call is still at work",
    async (said) => {
      const lab = await http({ said });
      lab.contractIs({ duplicatePrevention: prevention });
      const work = lab.provider.hold();
      lab.http.faults.push("cut-at-work");
      const answering = lab.call();
      // Once it was asked again, and has said so, the work may end.
      await expect.poll(() => creates(lab).length).toBe(2);
      work.release();
      const answer = await answering;
      expect(markOf(answer)).toMatchObject({ state: "completed", via: "replayed" });
      expect(lab.provider.bookings).toHaveLength(1);
      expect(new Set(keys(lab)).size).toBe(1);
      const lost = (await lab.core.journal.events((await lab.only()).id)).filter((event) => event.type === "lost");
      expect(lost.slice(1)).toMatchObject([{ data: { kind: "still-running", outcome: "not-executed" } }]);
    },
  );

  it.each(["status", "result"] as const)(
    "stops it with an alarm when it says (by %s) that the key belongs to another payload, and the key is kept",
    async (said) => {
      const lab = await http({ said });
      lab.contractIs({ duplicatePrevention: { ...prevention, suppliedBy: "caller" } });
      lab.http.faults.push("never-arrives");
      // Somebody else uses the same key in between.
      lab.http.onFault = () => void lab.provider.create({ ...booking, hotel: "Ritz", requestKey: "one" }, "elsewhere");
      const answer = await lab.call({ ...booking, requestKey: "one" });
      expect(markOf(answer)).toMatchObject({ state: "unresolved", reason: "key-conflict", attempts: 2 });
      expect(lab.provider.bookings).toMatchObject([{ hotel: "Ritz" }]);
      expect(await lab.only()).toMatchObject({ state: "unresolved", intention: { key: "one" } });
      expect(lab.log.join("\n")).toContain("ALARM");
      expect(markOf(await lab.call({ ...booking, requestKey: "two" }))).toMatchObject({ state: "held" });
      expect(creates(lab)).toHaveLength(2);
    },
  );

  it("is not asked again when the window of the key is over, less the margin", async () => {
    const retentionSeconds = 600;
    for (const [ms, replayed] of [
      [retentionSeconds * 1000 - marginMs(retentionSeconds) - 2_000, true],
      [retentionSeconds * 1000 - marginMs(retentionSeconds), false],
    ] as const) {
      const lab = await http({ provider: { retentionSeconds } });
      lab.contractIs({ duplicatePrevention: { ...prevention, retentionSeconds } });
      lab.http.faults.push("lose");
      lab.http.onFault = () => lab.clock.jump(ms);
      expect(markOf(await lab.call())).toMatchObject({ state: replayed ? "completed" : "unresolved" });
      expect(creates(lab)).toHaveLength(replayed ? 2 : 1);
      expect(lab.provider.bookings).toHaveLength(1);
    }
  });

  it("knows the key again when a person repeats what they wrongly took for undone", async () => {
    const lab = await http();
    lab.contractIs({ duplicatePrevention: preventionWithout("reachesProvider") });
    lab.http.faults.push("lose");
    await lab.call();
    const { id } = await lab.only();
    await lab.core.calls.settle(id, "no-effect", "not in my mail", "person");
    expect(resultText(await lab.core.calls.repeat(id, "not in my mail", {}))).toContain("R-1");
    expect(lab.provider.bookings).toHaveLength(1);
  });
});

describe("a promise that is declared but not kept", () => {
  /** What has to happen between the lost answer and the replay, for the fault to show. */
  const faulty: readonly {
    readonly promise: (typeof promiseNames)[number];
    readonly options: LabOptions;
    readonly arrange: (lab: ProviderLab & { readonly http: HttpProvider }) => void;
  }[] = [
    {
      promise: "atomicUnderConcurrency",
      options: { faults: { notAtomic: true }, meetMs: 10_000 },
      arrange: (lab) => lab.http.faults.push("cut-at-work"),
    },
    {
      promise: "retainedForWholeWindow",
      options: { faults: { forgetsAfterSeconds: 1 } },
      arrange: (lab) => {
        lab.http.faults.push("lose");
        lab.http.onFault = () => lab.clock.jump(1_500);
      },
    },
    {
      promise: "reachesProvider",
      options: { faults: { keyStopsAtServer: true } },
      arrange: (lab) => {
        lab.http.faults.push("lose");
        lab.http.onFault = () => lab.provider.restartServer();
      },
    },
    {
      promise: "scopedToAccountAndOperation",
      options: { faults: { noKeys: true } },
      arrange: (lab) => lab.http.faults.push("lose"),
    },
  ];

  it.each(faulty)("costs a second booking: $promise", async ({ options, arrange }) => {
    const lab = await http(options);
    lab.contractIs({ duplicatePrevention: prevention });
    arrange(lab);
    await lab.call();
    await expect.poll(() => lab.provider.bookings.length).toBe(2);
  });

  it.each(faulty)("costs nothing in a contract that does not declare it: $promise", async ({ promise, options, arrange }) => {
    const lab = await http({ ...options, meetMs: 0 });
    lab.contractIs({ duplicatePrevention: preventionWithout(promise) });
    arrange(lab);
    expect(markOf(await lab.call())).toMatchObject({ state: "unresolved", attempts: 1 });
    expect(creates(lab)).toHaveLength(1);
    await expect.poll(() => lab.provider.bookings.length).toBe(1);
  });
});

describe("a lookup at the provider", () => {
  it("confirms the lost booking without a second create", async () => {
    const lab = await http();
    lab.contractIs({ duplicatePrevention: preventionWithout("atomicUnderConcurrency"), lookup });
    lab.http.faults.push("lose");
    expect(markOf(await lab.call())).toMatchObject({ state: "effect-confirmed", reason: "lookup" });
    expect(lab.provider.bookings).toHaveLength(1);
    expect(creates(lab)).toHaveLength(1);
  });

  it("that definitively finds none allows one more attempt of the same operation, with the same key", async () => {
    const lab = await http();
    lab.contractIs({ duplicatePrevention: preventionWithout("atomicUnderConcurrency"), lookup });
    lab.http.faults.push("never-arrives");
    expect(resultText(await lab.call())).toContain("R-1");
    expect(await lab.only()).toMatchObject({ state: "completed", attempts: [{ cause: "call" }, { cause: "repeat" }] });
    expect(new Set(keys(lab)).size).toBe(1);
    expect(lab.provider.bookings).toHaveLength(1);
  });

  it.each(["lose", "forbidden"] as const)("that is answered with '%s' decides nothing", async (fault) => {
    const lab = await http();
    lab.contractIs({ lookup: { ...lookup, arguments: { hotel: "{{arguments/hotel}}", guest: "{{arguments/guest}}" } } });
    lab.http.faults.push("never-arrives");
    lab.http.lookupFaults.push(fault);
    expect(markOf(await lab.call())).toMatchObject({ state: "unresolved" });
    expect(creates(lab)).toHaveLength(1);
    const looked = (await lab.core.journal.events((await lab.only()).id)).find((event) => event.type === "looked-up");
    expect(looked).toMatchObject({ data: { found: "undecided" } });
  });

  it("that does not answer in time decides nothing, and is given up", async () => {
    const lab = await http();
    lab.contractIs({ lookup: { ...lookup, arguments: { hotel: "{{arguments/hotel}}", guest: "{{arguments/guest}}" } } });
    lab.http.faults.push("never-arrives");
    lab.http.lookupFaults.push("hang");
    const answering = lab.call();
    await expect.poll(() => lab.http.calls.filter((call) => call.tool === "find_booking").length).toBe(1);
    lab.clock.fire(10_000);
    expect(markOf(await answering)).toMatchObject({ state: "unresolved" });
    expect(creates(lab)).toHaveLength(1);
  });

  it("is asked again when the server comes back", async () => {
    const lab = await http();
    lab.contractIs({ duplicatePrevention: preventionWithout("boundToPayload"), lookup });
    lab.http.faults.push("lose");
    lab.http.lookupFaults.push("forbidden");
    expect(markOf(await lab.call())).toMatchObject({ state: "unresolved" });
    await lab.core.servers.get("hotel")?.restart();
    await expect.poll(async () => (await lab.only()).state).toBe("effect-confirmed");
    expect(lab.provider.bookings).toHaveLength(1);
  });
});
