/**
 * Owns: proof that the person is told what the journal keeps and does not keep, where it matters, and can close a conflict, in the sidebar
 * of a real VS Code.
 */
import { mkdirSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { OperationEvent } from "../../src/operations/model.ts";
import { openSqliteJournal } from "../../src/operations/sqlite-journal.ts";
import { SOON, TEST_MS, useStage } from "./support.ts";

/** A settlement that an answer contradicts, written by another program on the same journal. */
async function contradict(directory: string): Promise<void> {
  mkdirSync(directory, { recursive: true });
  const journal = openSqliteJournal({ directory, watchMs: 0 });
  const at = Date.now();
  const event = (type: string, data: unknown): OperationEvent =>
    ({ operationId: "01990000-0000-7000-8000-000000000001", type, actor: "person", at, data }) as OperationEvent;
  const attempt = {
    number: 1,
    rpcId: "1",
    era: "2025-11-25",
    transport: "http",
    connectionId: "c",
    protocolVersion: "2025-11-25",
  };
  await journal.append(
    [
      event("prepared", {
        server: "notes",
        tool: "save_note",
        arguments: { title: "Groceries" },
        digest: "d",
        caller: { client: "agent" },
        fingerprint: "f",
        provenRead: false,
        declaredRead: false,
      }),
      event("sent", { ...attempt, cause: "call" }),
      event("lost", { attempt: 1, stage: "sent", reason: "timeout", kind: "timeout" }),
      event("settled", { as: "no-effect", evidence: "looked" }),
      event("late-answer", { attempt: 1, result: {}, isError: false }),
      event("conflict", { settledAs: "no-effect", isError: false }),
    ],
    { durable: true },
  );
  await journal.close();
}

describe("the journal", { timeout: TEST_MS }, () => {
  const stay = { hotel: "Hotel Astoria", night: "2026-12-24", guest: "Ada Lovelace" };
  const row = "create_booking · booking";
  const stage = useStage(
    { servers: ["booking"], settings: { "mcpSafeReplay.journal.arguments": "digest" } },
    async ({ views }) => {
      await views.open();
      await views.untilConnected("booking");
    },
  );

  it("that keeps no arguments says at once that there will be no lookup and no repeat, and in the document", async () => {
    await stage().loseCall("booking", "create_booking", stay);
    await stage().views.untilBadge("1");
    await stage().views.act("Unresolved", row, "Show Operation…");
    const text = await stage().documentText("create_booking · booking: unresolved");
    expect(text).toContain("They were not kept, as mcpSafeReplay.journal.arguments says");
    expect(text).not.toContain("Ada");
    await stage().views.act("Unresolved", row, "Reconcile…");
    const choices = stage().page.locator(".quick-input-list .monaco-list-row:visible");
    await choices.filter({ hasText: "No lookup, and no repeat later" }).waitFor(SOON);
    await stage().window.screenshot("journal-1-withheld");
    await stage().window.pick(/It did not happen/);
    await stage().window.answerInput("Asked the hotel: no such booking");
    expect(await stage().window.waitForNotification("did not happen")).toContain("It cannot be repeated from here");
    await stage().window.screenshot("journal-2-no-repeat");
    await stage().views.expand("Unresolved", "Recently settled");
    await stage().views.row("Unresolved", row).hover();
    expect(await stage().views.row("Unresolved", row).getByRole("button", { name: "Repeat Call…" }).count()).toBe(0);
  });

  it("shows a conflict that another program wrote, and lets the person close it with a note", async () => {
    await contradict(stage().journalFolder);
    const conflict = "save_note · notes";
    await stage().views.row("Unresolved", conflict).waitFor();
    await stage().window.screenshot("journal-3-conflict");
    expect(await stage().views.row("Unresolved", conflict).getByRole("button", { name: "Repeat Call…" }).count()).toBe(0);
    await stage().views.act("Unresolved", conflict, "Close Conflict…");
    await stage().window.screenshot("journal-4-note");
    await stage().window.answerInput("It is there twice: deleted one");
    await expect
      .poll(async () => (await stage().operations()).at(0)?.events.at(-1), SOON)
      .toMatchObject({
        type: "acknowledged",
        data: { note: "It is there twice: deleted one" },
      });
    await expect.poll(() => stage().views.rows("Unresolved"), SOON).not.toContainEqual(expect.stringContaining("contradicts"));
  });

  it("is verified by command, and its settings are understood, in a light theme too", async () => {
    await stage().window.clearNotifications();
    await stage().window.runCommand("MCP Safe Replay: Verify Journal");
    expect(await stage().window.waitForNotification("The journal is whole")).toMatch(/nothing altered or removed/);
    await stage().window.screenshot("journal-5-verified");
    await stage().open({ theme: "light" });
    await stage().window.runCommand("Preferences: Open Settings (UI)");
    const { page } = stage();
    await page.locator(".settings-editor .settings-header .suggest-input-container").click();
    await page.keyboard.insertText("mcpSafeReplay.journal");
    await page.locator('.settings-editor [data-key="mcpSafeReplay.journal.arguments"]').waitFor();
    await stage().window.screenshot("journal-6-settings");
  });
});
