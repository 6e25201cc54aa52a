/**
 * Owns: pictures of everything that the extension shows, in the light and the dark theme, for a look by a person; and proof that each of
 * them shows what it should.
 */
import { describe, expect, it } from "vitest";
import { TEST_MS, useStage } from "./support.ts";

describe("the extension's own pages", { timeout: TEST_MS }, () => {
  const stage = useStage({ servers: ["booking", "notes", "inventory"] }, async (current) => {
    await current.views.open();
    await current.views.untilConnected("booking", "notes", "inventory");
    await current.loseCall("booking", "create_booking", { hotel: "Hotel Astoria", night: "2026-12-24", guest: "Ada Lovelace" });
    await current.trust("notes");
    await current.close();
  });

  for (const theme of ["dark", "light"] as const) {
    it(`can be read in the ${theme} theme`, async () => {
      const window = await stage().open({ theme, viewport: { width: 1500, height: 860 } });
      expect(await stage().page.locator(".monaco-workbench").getAttribute("class")).toMatch(
        theme === "dark" ? /vs-dark/ : /vs(?!-)/,
      );
      const { views } = stage();
      await views.open();
      await views.untilConnected("booking", "notes", "inventory");
      await views.untilBadge("1");
      // A new browser knows nothing of what was agreed to in another one.
      const question = await window.waitForNotification('Trust for the MCP server "notes"');
      expect(question).toContain(
        "is switched on in your settings but was never confirmed here. Until you decide, its lost calls are not replayed.",
      );
      await views.untilChecked("notes", false);
      await window.screenshot(`look-${theme}-0-question`);
      await stage().press('Trust for the MCP server "notes"', "Trust for Replay");
      await views.untilChecked("notes", true);
      await views.expand("Unresolved", "create_booking · booking");
      for (const server of ["inventory", "notes", "booking"]) await views.expand("Servers", server);
      await views.untilRows("Servers", [
        "booking connected, 3 tools",
        "create_booking write",
        "find_booking read",
        "cancel_booking write",
        "notes connected, 2 tools",
        "save_note write · idempotent",
        "read_note read",
        "inventory connected, 4 tools",
        "check_inventory read",
        "write_off contradictory",
        "restock write",
        "slow_count read",
      ]);
      await window.screenshot(`look-${theme}-1-views`);

      await views.row("Servers", "save_note").hover();
      const card = stage().page.locator(".monaco-hover:visible", { hasText: "If its answer were lost now" });
      await card.waitFor();
      expect(await card.innerText()).toContain("It would be replayed: the tool declares that a repeat has no further effect.");
      await window.screenshot(`look-${theme}-2-tool`);

      await views.row("Unresolved", "create_booking · booking").hover();
      await stage().page.locator(".monaco-hover:visible", { hasText: "Asked by: Call Tool command" }).waitFor();
      await window.screenshot(`look-${theme}-3-operation`);

      await views.act("Unresolved", "create_booking · booking", "Show Operation…");
      const text = await stage().documentText("create_booking · booking: unresolved");
      expect(text).toContain("The call may have taken effect before its answer was lost.");
      await window.screenshot(`look-${theme}-4-document`);

      await window.runCommand("Welcome: Open Walkthrough...");
      await window.pick("Calls whose answers get lost");
      await window.webviewText("Where servers live");
      await window.screenshot(`look-${theme}-5-walkthrough`);
      await stage().page.locator(".gettingStartedContainer .step-title", { hasText: "When an answer is lost" }).click();
      await window.webviewText("It may have happened");
      await window.screenshot(`look-${theme}-6-walkthrough`);
    });
  }
});
