import { describe, expect, it } from "vitest";
import { readContracts, type Lookup } from "../../../src/replay/contracts.ts";
import { isTied, judgeLookup, lookupArguments, type LookupTimes } from "../../../src/replay/lookup.ts";

const lookup = readContracts(
  {
    booking: {
      create_booking: {
        documentation: "https://provider.example/lookup",
        lookup: {
          tool: "find_booking",
          arguments: {
            reference: "{{key}}",
            hotel: "{{arguments/hotel}}",
            nights: "{{arguments/nights}}",
            note: "for {{operation}} at {{arguments/hotel}}",
          },
          effect: "status == 'booked'",
          noEffect: "status == 'none'",
          sameAs: { "/hotel": "booking.hotel", "/nights": "booking.nights" },
          consistentAfterSeconds: 5,
          recordsKeptSeconds: 3600,
        },
      },
    },
  },
  "contracts",
)
  .contracts.get("booking")
  ?.get("create_booking")?.lookup as Lookup;

const subject = { id: "op", key: "intent-17", keyArgument: "/key", arguments: { hotel: "Grand", nights: 2 } };
const result = (data: unknown) => ({ content: [], structuredContent: data as Record<string, unknown> });
const soon: LookupTimes = { firstSentAt: 1_000_000, lostAt: 1_000_000, now: 1_001_000 };
const later: LookupTimes = { firstSentAt: 1_000_000, lostAt: 1_000_000, now: 1_006_000 };
const booking = { hotel: "Grand", nights: 2 };

describe("a lookup's arguments", () => {
  it("come from the operation, and keep their types", () => {
    expect(lookupArguments(lookup, subject)).toEqual({
      reference: "intent-17",
      hotel: "Grand",
      nights: 2,
      note: "for op at Grand",
    });
  });

  it("are not made when something is missing", () => {
    expect(lookupArguments(lookup, { ...subject, key: undefined })).toBeUndefined();
    expect(lookupArguments(lookup, { ...subject, arguments: { hotel: "Grand" } })).toBeUndefined();
  });
});

describe("a lookup's answer", () => {
  it.each<[string, unknown, LookupTimes, string, string]>([
    ["found exactly", { status: "booked", booking }, soon, "effect", "found the record"],
    [
      "found for other arguments",
      { status: "booked", booking: { ...booking, nights: 3 } },
      later,
      "undecided",
      "differs in /nights",
    ],
    [
      "found with an argument missing",
      { status: "booked", booking: { hotel: "Grand" } },
      later,
      "undecided",
      "differs in /nights",
    ],
    ["found without a record", { status: "booked" }, later, "undecided", "differs in /hotel, /nights"],
    ["several found", { status: "several", bookings: [booking, booking] }, later, "undecided", "neither of the two"],
    ["none", { status: "none" }, later, "no-effect", "definitively"],
    ["none, but too early", { status: "none" }, soon, "undecided", "too early"],
    [
      "none, when records may be gone",
      { status: "none" },
      { firstSentAt: 0, lostAt: 3_530_000, now: 3_540_000 },
      "undecided",
      "dropped the record",
    ],
    ["none, just before records may be gone", { status: "none" }, { firstSentAt: 0, lostAt: 0, now: 3_539_999 }, "no-effect", ""],
    [
      "none, after the clock went back",
      { status: "none" },
      { firstSentAt: 1_000_000, lostAt: 1_000_000, now: 999_000 },
      "undecided",
      "clock went back",
    ],
    ["malformed", "nonsense", later, "undecided", "neither of the two"],
    ["empty", {}, later, "undecided", "neither of the two"],
  ])("%s", (_, data, times, found, evidence) => {
    const finding = judgeLookup(lookup, subject, result(data), times);
    expect(finding.found).toBe(found);
    expect(finding.evidence).toContain(evidence);
    expect(finding.evidence).not.toContain("Grand");
  });

  it("is a no only when the contract's expression says so plainly", () => {
    for (const noEffect of ["status", "bookings", "count"]) {
      const vague = { ...lookup, noEffect };
      const found = judgeLookup(vague, subject, result({ status: "forbidden", bookings: [1], count: 3 }), later);
      expect(found.found).toBe("undecided");
    }
  });

  it("may be tied to the operation by its key alone", () => {
    const byKey = { ...lookup, sameAs: { "/key": "booking.key" } };
    expect(judgeLookup(byKey, subject, result({ status: "booked", booking: { key: "intent-17" } }), soon).found).toBe("effect");
    expect(judgeLookup(byKey, subject, result({ status: "booked", booking: { key: "intent-18" } }), soon).found).toBe(
      "undecided",
    );
    expect(isTied(byKey, subject)).toBe(true);
    expect(isTied({ ...lookup, arguments: { hotel: "{{arguments/hotel}}" } }, subject)).toBe(false);
    expect(isTied({ ...lookup, arguments: { deep: [{ of: "x-{{ operation }}" }] } }, subject)).toBe(true);
  });

  it("that is an error decides nothing, whatever it says", () => {
    expect(judgeLookup(lookup, subject, { ...result({ status: "none" }), isError: true }, later).found).toBe("undecided");
  });

  it("that says both decides nothing", () => {
    const both = { ...lookup, noEffect: "status == 'booked'" };
    expect(judgeLookup(both, subject, result({ status: "booked", booking }), later).found).toBe("undecided");
  });

  it("says when asking again can mean more", () => {
    expect(judgeLookup(lookup, subject, result({ status: "none" }), soon)).toMatchObject({ found: "undecided", againMs: 4_000 });
  });
});
