/**
 * Owns: proof that a call which is under way when the window is reloaded, or its extension host killed, is there afterwards,
 * unresolved, and is not sent again; and that no server outlives that host.
 */
import { execFileSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { SOON, TEST_MS, useStage } from "./support.ts";

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

/** A field of a process, as `ps` names it; undefined when the process is gone or only waits to be collected. */
function processField(pid: number, field: "ppid" | "args"): string | undefined {
  try {
    const text = execFileSync("ps", ["-o", `stat=,${field}=`, "-p", String(pid)], { encoding: "utf8" }).trim();
    return text === "" || text.startsWith("Z") ? undefined : text.replace(/^\S+\s+/, "");
  } catch {
    return undefined;
  }
}

/** The extension host above a process of ours. */
function extensionHostOf(pid: number): number {
  for (let at = pid; at > 1; at = Number(processField(at, "ppid") ?? 0)) {
    if (processField(at, "args")?.includes("--type=extensionHost") === true) return at;
  }
  throw new Error(`No extension host is above process ${pid}.`);
}

describe("a call that is under way when the extension host is killed", { timeout: TEST_MS }, () => {
  const stay = { hotel: "Hotel Astoria", night: "2026-12-31", guest: "Ada Lovelace" };
  const stage = useStage({ servers: ["booking"] }, ({ views }) => views.open());

  it("leaves no server behind, and is unresolved in the next one", async () => {
    const ledger = stage().ledger("booking");
    stage().setModes("booking", { create_booking: "hang" });
    await stage().callTool("booking", "create_booking", stay);
    await ledger.untilEffects(1);
    const server = ledger.effects().at(-1)?.pid ?? 0;
    process.kill(extensionHostOf(server), "SIGKILL");
    await expect.poll(() => processField(server, "args"), SOON).toBeUndefined();
    await stage().views.untilRows("Unresolved", [
      /^create_booking · booking now: this program ended while the call was under way$/,
    ]);
    await stage().views.untilBadge("1");
    expect(ledger.countEffects()).toBe(1);
    expect(ledger.countCalls("create_booking")).toBe(1);
  });
});
