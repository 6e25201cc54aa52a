/**
 * Owns: proof that a call which is under way when the window is reloaded is there afterwards, unresolved, and is not sent again.
 */
import { describe, expect, it } from "vitest";
import { TEST_MS, useStage } from "./support.ts";

describe("a call that is under way when the window is reloaded", { timeout: TEST_MS }, () => {
  const stay = { hotel: "Hotel Astoria", night: "2026-12-24", guest: "Ada Lovelace" };
  const stage = useStage({ servers: ["booking"] }, ({ views }) => views.open());

  it("is unresolved afterwards, and the badge says so", async () => {
    const ledger = stage().ledger("booking");
    stage().setModes("booking", { create_booking: "hang" });
    await stage().callTool("booking", "create_booking", stay);
    await ledger.untilEffects(1);
    expect((await stage().latestOperation()).state).toBe("in-flight");

    await stage().window.reload();
    await stage().views.open();
    await stage().views.untilRows("Unresolved", [
      /^create_booking · booking now: (the server was stopped|this program ended) while the call was under way$/,
    ]);
    await stage().views.untilBadge("1");
    expect(await stage().operations()).toMatchObject([
      {
        state: "unresolved",
        reason: expect.stringMatching(/^(server-stopped|process-ended)$/),
        attempts: [{ outcome: "unknown" }],
      },
    ]);
    await stage().window.screenshot("reload-1-unresolved");
  });

  it("is not sent again, and the identical call is held", async () => {
    await stage().callTool("booking", "create_booking", stay);
    await stage().window.waitForNotification("was not sent: an identical earlier call is still unresolved");
    expect(stage().ledger("booking").countEffects()).toBe(1);
    expect(stage().ledger("booking").countCalls("create_booking")).toBe(1);
  });
});
