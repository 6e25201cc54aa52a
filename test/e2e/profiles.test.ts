/**
 * Owns: proof that a profile of VS Code brings no trust with it: what its settings say of ours does not count, what the person gave in
 * their own settings counts in every profile, and what they click in one is written there.
 */
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { TEST_MS, useStage, type Stage } from "./support.ts";

const profile = { name: "From elsewhere", folder: "from-elsewhere" };
const setting = "mcpSafeReplay.serverTrust";

function profileSettingsFile(stage: Stage): string {
  return join(stage.profile.userDataDir, "User", "profiles", profile.folder, "settings.json");
}

/** The settings of this window that are not ours: a profile begins without them. */
function quietSettings(stage: Stage): Record<string, unknown> {
  return Object.fromEntries(Object.entries(stage.userSettings()).filter(([key]) => !key.startsWith("mcpSafeReplay.")));
}

/** Trust, a contract and a server that did not come from the person. */
const claims = {
  [setting]: { notes: true, booking: true },
  "mcpSafeReplay.servers": { intruder: { type: "stdio", command: "node", args: ["--version"] } },
  "mcpSafeReplay.contracts": { booking: { create_booking: { nonMutating: { freshDataAcceptable: true } } } },
};

/** Opens the window in a profile with these settings. */
async function openProfile(stage: Stage, settings: Readonly<Record<string, unknown>>): Promise<void> {
  const file = profileSettingsFile(stage);
  mkdirSync(join(file, ".."), { recursive: true });
  writeFileSync(file, JSON.stringify({ ...quietSettings(stage), ...settings }));
  // A profile has extensions of its own: ours is installed in this one too.
  copyFileSync(join(stage.profile.extensionsDir, "extensions.json"), join(file, "..", "extensions.json"));
  const stored = {
    name: profile.name,
    location: { $mid: 1, scheme: "vscode-remote", path: join(file, "..") },
  };
  await stage.open({
    payload: [["profile", profile.name]],
    prepare: async (page) => {
      await page.addInitScript((value) => localStorage.setItem("userDataProfiles", value), JSON.stringify([stored]));
    },
  });
  await stage.views.open();
}

describe("a profile whose settings came from elsewhere", { timeout: TEST_MS }, () => {
  const stage = useStage(
    { servers: ["booking", "notes"], open: false, settings: { [setting]: { notes: false, booking: false } } },
    (current) => openProfile(current, claims),
  );
  const note = { title: "Shopping", text: "Milk" };

  it("is the one that the window shows", async () => {
    await stage().views.untilConnected("notes");
    await stage().window.runCommand("Preferences: Open User Settings (JSON)");
    expect(await stage().editorText()).toContain("intruder");
    await stage().window.runCommand("View: Close All Editors");
  });

  it("brings no server, and no question whether to trust one; the person is told", async () => {
    await stage().views.untilConnected("booking");
    await stage().views.untilChecked("notes", false);
    await stage().views.untilChecked("booking", false);
    await stage().views.untilRows("Servers", [/^booking/, /^notes/]);
    const told = await stage().allNotifications();
    expect(told).toHaveLength(1);
    expect(told[0]).toContain(
      "This profile tried to set mcpSafeReplay.servers, mcpSafeReplay.serverTrust, mcpSafeReplay.contracts.",
    );
    await stage().window.screenshot("profiles-1-no-trust");
  });

  it("brings no trust: a lost call is not replayed", async () => {
    await stage().loseCall("notes", "save_note", note);
    expect(stage().ledger("notes").submissions("save_note", note)).toBe(1);
    expect((await stage().latestOperation()).events.at(-1)?.data).toEqual({ verdict: ["server-not-trusted"] });
  });

  it("does not become the person's own by a click", async () => {
    await stage().views.checkbox("notes").click();
    await stage().window.waitForNotification("The settings of this profile have a value for mcpSafeReplay.serverTrust");
    expect(stage().userSettings()[setting]).toEqual({ notes: false, booking: false });
    await stage().window.clearNotifications();
  });

  it("is not where trust is kept that the person gives in it: that counts in every profile", async () => {
    await openProfile(stage(), {});
    await stage().views.untilConnected("notes");
    await stage().views.untilChecked("notes", false);
    await stage().trust("notes");
    expect(stage().userSettings()[setting]).toEqual({ notes: true, booking: false });
    expect(readFileSync(profileSettingsFile(stage()), "utf8")).not.toContain("mcpSafeReplay");
    const other = { title: "Garden", text: "Seeds" };
    await stage().callTool("notes", "save_note", other);
    expect(await stage().documentText("save_note · notes: completed")).toContain('Saved "Garden".');
    expect(stage().ledger("notes").submissions("save_note", other)).toBe(2);
  });
});
