/**
 * Owns: proof that the settings are found in the Settings UI by the words that a person would type, and understood there: what each does,
 * its default and its risk. Granting and taking back trust there by mouse: trust.test.ts.
 */
import type { Locator } from "playwright-core";
import { describe, expect, it } from "vitest";
import { TEST_MS, useStage, type Stage } from "./support.ts";

async function search({ page }: Stage, text: string): Promise<void> {
  await page.locator(".settings-editor .settings-header .suggest-input-container").click();
  await page.keyboard.press("ControlOrMeta+A");
  await page.keyboard.insertText(text);
  await page.locator(".settings-editor .settings-count-widget", { hasText: /Settings? Found/ }).waitFor();
}

/** One of our settings in the list, scrolled to by the mouse wheel: the list holds only what is on the screen. */
async function find({ page }: Stage, key: string): Promise<Locator> {
  const found = page.locator(`.settings-editor [data-key="mcpSafeReplay.${key}"]`);
  const list = page.locator(".settings-editor .settings-tree-container");
  await list.hover();
  await expect
    .poll(
      async () => {
        if ((await found.count()) > 0) return true;
        await page.mouse.wheel(0, 400);
        return false;
      },
      { timeout: 30_000, message: `the setting ${key}` },
    )
    .toBe(true);
  return found;
}

describe("the Settings UI", { timeout: TEST_MS }, () => {
  const stage = useStage({ servers: ["notes", "booking"] }, async ({ views, window, page }) => {
    await views.open();
    await views.untilConnected("notes", "booking");
    await window.runCommand("Preferences: Open Settings (UI)");
    await page.locator(".settings-editor").waitFor();
  });

  it.each([
    ["replay", "servers"],
    ["trust", "serverTrust"],
    ["unresolved", "duplicateGuard.unresolved"],
    ["MCP", "servers"],
  ])("finds our settings by searching for %j", async (word, key) => {
    await search(stage(), word);
    await (await find(stage(), key)).waitFor();
    await stage().window.screenshot(`settings-1-search-${word.toLowerCase()}`);
  });

  it("says what trust is, its default and its risk, and has a row for each server although nobody has touched JSON", async () => {
    await expect
      .poll(() => stage().userSettings()["mcpSafeReplay.serverTrust"], { timeout: 20_000 })
      .toEqual({ notes: false, booking: false });
    await search(stage(), "mcpSafeReplay.serverTrust");
    const setting = await find(stage(), "serverTrust");
    const text = (await setting.innerText()).replaceAll(/\s+/g, " ");
    expect(text).toContain("Which servers you trust for replay. Default: none.");
    expect(text).toContain("Risk: a trusted server whose declarations are wrong can let one call have its effect twice.");
    expect(text).toMatch(/notes false/);
    expect(text).toMatch(/booking false/);
    await stage().window.screenshot("settings-2-trust");
  });

  it("looks right in a light theme too", async () => {
    await stage().open({ theme: "light" });
    await stage().window.runCommand("Preferences: Open Settings (UI)");
    await search(stage(), "mcp safe replay");
    await find(stage(), "serverTrust");
    await stage().window.screenshot("settings-3-light");
  });
});
