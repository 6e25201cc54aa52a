/**
 * Owns: the short form of the soak (soak.ts has the long one): one seed that is always the same, and one that never is.
 */
import { randomInt } from "node:crypto";
import { expect, it } from "vitest";
import { soak } from "./soak.ts";

it.each([
  ["the same seed every time", 17],
  ["a seed of its own", randomInt(2 ** 31)],
])(
  "no double effect, no hanging call, no false answer in 300 randomly faulted calls over all transports (%s: %i)",
  async (_, seed) => {
    const summary = await soak({ calls: 300, seed });
    console.log(summary.text);
    expect(summary.broken).toEqual([]);
    expect(summary.total).toMatchObject({ calls: 300, "double effects": 0, "false answers": 0, hanging: 0 });
    // The soak has done something.
    for (const name of ["losses", "replayed", "unresolved", "not executed"] as const) {
      expect([name, summary.total[name] > 0]).toEqual([name, true]);
    }
  },
  600_000,
);
