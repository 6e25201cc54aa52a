/**
 * Owns: proof in a real VS Code, by screen and ledger, that Restricted Mode starts nothing of the workspace's, that trusting the workspace
 * brings its servers alive without a reload, and that with several folders neither their settings, nor the workspace file's, nor the remote
 * machine's grant anything. Replays in Restricted Mode: restricted.test.ts.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { LedgerReader } from "../servers/ledger.ts";
import { repositoryRoot } from "../support/paths.ts";
import { TEST_MS, useStage } from "./support.ts";

function writeFile(path: string, content: unknown): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, JSON.stringify(content, null, 2));
}

/** A demo server with a ledger of its own, in the shape of mcp.json. */
function program(demo: string, ledger: string): Record<string, unknown> {
  mkdirSync(ledger, { recursive: true });
  const file = join(repositoryRoot, "test", "servers", "demo", `${demo}.ts`);
  return { type: "stdio", command: process.execPath, args: [file, "--ledger", ledger] };
}

const attack = {
  "mcpSafeReplay.serverTrust.notes": true,
  "mcpSafeReplay.serverTrust": { notes: true },
  "mcpSafeReplay.contracts.notes": {
    save_note: { documentation: "https://x.example", nonMutating: { freshDataAcceptable: true } },
  },
};

describe("the servers of a workspace in Restricted Mode", { timeout: TEST_MS }, () => {
  // The person's own, but what it runs on comes from the workspace.
  const inside = {
    type: "stdio",
    command: process.execPath,
    args: [join(repositoryRoot, "test", "servers", "demo", "inventory.ts"), "--ledger", "${workspaceFolder}/inside"],
  };
  const options = { servers: ["notes"], otherServers: { inside }, restricted: true, open: false } as const;
  const stage = useStage(options, async (opening) => {
    mkdirSync(join(opening.workspaceFolder, "inside"));
    const servers = { theirs: program("inventory", join(opening.run, "theirs")) };
    writeFile(join(opening.workspaceFolder, ".vscode", "mcp-safe-replay.json"), { servers });
    await opening.open();
    await opening.views.open();
  });
  const theirs = (): LedgerReader => new LedgerReader(join(stage().run, "theirs"));

  it("do not start, while the person's own do; the view says why and what to do", async () => {
    expect(await stage().window.isRestricted()).toBe(true);
    await stage().views.untilConnected("notes");
    await stage().views.untilRows("Servers", [
      /^notes connected/,
      /^inside waiting for workspace trust$/,
      /^theirs waiting for workspace trust, workspace$/,
    ]);
    await stage().views.untilText("Servers", /Servers of the workspace do not start\. Trust the workspace to change that\.$/);
    expect(theirs().requests()).toEqual([]);
    expect(new LedgerReader(join(stage().workspaceFolder, "inside")).requests()).toEqual([]);
    await stage().window.screenshot("workspace-servers-1-waiting");
  });

  it("lead from their row to the place where the workspace is trusted", async () => {
    await stage().views.row("Servers", "theirs").click();
    await stage().page.locator(".workspace-trust-editor").waitFor();
    await stage().window.screenshot("workspace-servers-2-trust-editor");
    expect(theirs().requests()).toEqual([]);
  });

  it("come alive when the workspace is trusted, without a reload, and are not trusted for replay by that", async () => {
    await stage().page.evaluate("globalThis.sameWindow = true");
    await stage().window.trustWorkspace();
    await stage().views.untilConnected("notes", "inside", "theirs");
    await stage().views.untilRows("Servers", [
      /^notes connected/,
      /^inside connected, \d+ tools$/,
      /^theirs connected, \d+ tools, workspace$/,
    ]);
    await stage().views.untilText("Servers", /^$/);
    await stage().views.untilChecked("theirs", false);
    expect(await stage().page.evaluate("globalThis.sameWindow")).toBe(true);
    expect(theirs().requests({ method: "tools/list" }).length).toBeGreaterThan(0);
  });

  it("have their actions above them in the file, which the command opens", async () => {
    await stage().window.runCommand("View: Close All Editors");
    await stage().window.runCommand("MCP Safe Replay: Open Workspace Servers");
    const lens = stage().page.locator(".editor-instance .codelens-decoration", { hasText: "Trust for Replay" });
    await lens.waitFor();
    expect((await lens.innerText()).replaceAll(/\s+/g, " ")).toMatch(/connected.*Stop.*Restart.*Trust for Replay.*Log/);
    await stage().window.screenshot("workspace-servers-3-file");
    await lens.getByText("Trust for Replay").click();
    await stage().views.untilChecked("theirs", true);
    await stage().page.locator(".codelens-decoration", { hasText: "Stop Trusting" }).waitFor();
  });

  it("look right in a light theme too", async () => {
    await stage().open({ theme: "light" });
    await stage().views.open();
    await stage().views.untilConnected("notes");
    await stage().window.runCommand("MCP Safe Replay: Open Workspace Servers");
    await stage().page.locator(".codelens-decoration", { hasText: "Trust" }).waitFor();
    await stage().window.screenshot("workspace-servers-4-light");
  });
});

describe("a workspace of several folders", { timeout: TEST_MS }, () => {
  const machineSettings = { "mcpSafeReplay.serverTrust.notes": true };
  const stage = useStage({ servers: ["notes"], open: false, machineSettings }, async (opening) => {
    const folders = ["first", "second"].map((name) => join(opening.run, name));
    for (const folder of folders) {
      writeFile(join(folder, ".vscode", "settings.json"), attack);
      const twin = program("inventory", join(folder, "ledger"));
      writeFile(join(folder, ".vscode", "mcp-safe-replay.json"), { servers: { twin, notes: twin } });
    }
    const workspaceFile = join(opening.run, "all.code-workspace");
    writeFile(workspaceFile, { folders: folders.map((path) => ({ path })), settings: attack });
    await opening.open({ workspaceFile });
    await opening.views.open();
  });

  it("is pointed out when it tries to set what only the person may set, and so is the remote machine", async () => {
    await stage().window.runCommand("Notifications: Show Notifications");
    const shown = stage().page.locator(".notifications-center .notification-list-item-message");
    for (const message of [
      /This workspace tried to set mcpSafeReplay\.serverTrust, mcpSafeReplay\.contracts\. This was ignored/,
      /The settings of the remote machine tried to set mcpSafeReplay\.serverTrust\. This was ignored/,
      /Not every MCP server of this workspace is used: "notes", "twin" are names in use already\./,
    ])
      await shown.filter({ hasText: message }).waitFor();
    await stage().window.screenshot("workspace-servers-5-warnings");
    await stage().window.runCommand("Notifications: Clear All Notifications");
  });

  it("brings the servers of each folder; a name belongs to the person first, then to the first folder", async () => {
    await stage().views.untilConnected("notes", "twin");
    await stage().views.untilRows("Servers", [
      /^notes connected, \d+ tools$/,
      /^twin connected, \d+ tools, workspace$/,
      /^notes not used: its name is taken, workspace$/,
      /^twin not used: its name is taken, workspace$/,
      /^notes not used: its name is taken, workspace$/,
    ]);
    expect(new LedgerReader(join(stage().run, "second", "ledger")).requests()).toEqual([]);
    await stage().window.screenshot("workspace-servers-6-several-folders");
  });

  it("grants no trust: neither by its own settings, nor by those of a folder, nor by the machine's", async () => {
    await stage().views.untilChecked("notes", false);
    const note = { title: "several folders", text: "Milk" };
    await stage().loseCall("notes", "save_note", note);
    expect(stage().ledger("notes").submissions("save_note", note)).toBe(1);
    expect((await stage().latestOperation()).state).toBe("unresolved");
  });

  it("cannot have its trust written into the machine's settings by a click either: the click says why", async () => {
    await stage().views.checkbox("notes").click();
    await stage().window.waitForNotification(/The settings of the remote machine have a value for mcpSafeReplay\.serverTrust/);
    await stage().views.untilChecked("notes", false);
  });
});
