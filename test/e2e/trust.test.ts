/**
 * Owns: proof that a person can trust a server in the Settings UI and by the checkbox in the Servers view, that both write the same user
 * setting, and that it decides whether a lost call is replayed.
 */
import { describe, expect, it } from "vitest";
import { SOON, TEST_MS, useStage, type Stage } from "./support.ts";

const settingName = "mcpSafeReplay.serverTrust";

/** Searches for the setting in the Settings UI. */
async function openSetting({ page, window }: Stage): Promise<void> {
  await window.runCommand("Preferences: Open Settings (UI)");
  const search = page.locator(".settings-editor .settings-header .suggest-input-container");
  await search.waitFor();
  // The editor opens with the last search: searching again would draw the list anew under the mouse.
  if (!(await search.innerText()).includes(settingName)) {
    await search.click();
    await page.keyboard.insertText(settingName);
  }
  await page.locator(".settings-editor .settings-count-widget", { hasText: "Settings Found" }).waitFor();
  await page.locator(`.settings-editor [data-key="${settingName}"]`).waitFor();
}

/** Chooses a value in the row of a server, with the mouse. */
async function chooseInSettings({ page }: Stage, server: string, value: "true" | "false"): Promise<void> {
  const setting = page.locator(`.settings-editor [data-key="${settingName}"]`);
  const row = setting.locator(".setting-list-object-row", { has: page.locator(`.setting-list-object-key:text-is("${server}")`) });
  await row.hover();
  await row.getByRole("button", { name: "Edit Item" }).click();
  await setting.locator("select").selectOption(value);
  await setting.getByRole("button", { name: "OK" }).click();
  await row.locator(`.setting-list-object-value:text-is("${value}")`).waitFor();
}

describe("trust of a server", { timeout: TEST_MS }, () => {
  const stage = useStage({ servers: ["notes"] }, async ({ views }) => {
    await views.open();
    await views.untilConnected("notes");
  });
  const note = (title: string): Record<string, string> => ({ title, text: "Milk" });
  const requests = (title: string): number => stage().ledger("notes").submissions("save_note", note(title));
  const written = (): unknown => stage().userSettings()[settingName];

  /** Loses one call and says what came of it. */
  async function isReplayed(title: string): Promise<void> {
    await stage().callTool("notes", "save_note", note(title));
    expect(await stage().documentText("save_note · notes: completed")).toContain(`Saved "${title}".`);
    expect(requests(title)).toBe(2);
    expect(await stage().latestOperation()).toMatchObject({ state: "completed" });
    await stage().window.runCommand("View: Close All Editors");
  }
  async function isNotReplayed(title: string): Promise<void> {
    await stage().loseCall("notes", "save_note", note(title));
    expect(requests(title)).toBe(1);
    const operation = await stage().latestOperation();
    expect(operation.state).toBe("unresolved");
    expect(operation.events.at(-1)?.data).toEqual({ verdict: ["server-not-trusted"] });
  }

  it("is off at first: a lost call is not replayed", async () => {
    await stage().views.untilChecked("notes", false);
    await expect.poll(written, SOON).toEqual({ notes: false });
    await isNotReplayed("at first");
  });

  it("is given in the Settings UI with the mouse: the checkbox follows, and a lost call is replayed", async () => {
    await openSetting(stage());
    await stage().window.screenshot("trust-1-settings");
    await chooseInSettings(stage(), "notes", "true");
    await stage().views.untilChecked("notes", true);
    expect(written()).toEqual({ notes: true });
    await stage().window.screenshot("trust-2-settings-true");
    await isReplayed("by the Settings UI");
  });

  it("is taken back by the checkbox, in the same setting: a lost call is not replayed", async () => {
    await stage().views.checkbox("notes").click();
    await stage().views.untilChecked("notes", false);
    await expect.poll(written, SOON).toEqual({ notes: false });
    await isNotReplayed("taken back by the checkbox");
  });

  it("is given by the checkbox: the Settings UI follows, and a lost call is replayed", async () => {
    await openSetting(stage());
    await stage().views.checkbox("notes").click();
    await stage().views.untilChecked("notes", true);
    await expect.poll(written, SOON).toEqual({ notes: true });
    await stage().page.locator('.settings-editor .setting-list-object-value:text-is("true")').waitFor();
    await stage().window.screenshot("trust-3-checkbox");
    await isReplayed("by the checkbox");
  });

  it("is taken back in the Settings UI: a lost call is not replayed", async () => {
    await openSetting(stage());
    await chooseInSettings(stage(), "notes", "false");
    await stage().views.untilChecked("notes", false);
    expect(written()).toEqual({ notes: false });
    await isNotReplayed("taken back in the Settings UI");
  });
});
