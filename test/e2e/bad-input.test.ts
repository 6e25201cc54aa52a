/**
 * Owns: proof that each mistake (a definition, a trust, arguments, a value of somebody else's, a journal that cannot be used) is told in
 * one clear message, that the rest keeps working, and that nothing is sent.
 */
import { renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, it } from "vitest";
import { SOON, TEST_MS, useStage } from "./support.ts";

const stay = { hotel: "Hotel Astoria", night: "2026-12-24", guest: "Ada Lovelace" };

describe("a mistake", { timeout: TEST_MS }, () => {
  const stage = useStage(
    {
      servers: ["booking"],
      otherServers: { broken: { command: 5 }, misspelt: { comand: "true" }, missing: { command: "${env:MSR_NOT_SET}" } },
      settings: { "mcpSafeReplay.serverTrust": { nobody: true }, "mcpSafeReplay.requestTimeoutSeconds": "soon" },
      // VS Code merges the settings of the remote machine over the person's own.
      machineSettings: { "mcpSafeReplay.serverTrust.booking": true },
    },
    async ({ views }) => {
      await views.open();
      await views.untilConnected("booking");
    },
  );
  const requests = (): number => stage().ledger("booking").countCalls();

  it("in the settings is told in one message each, and the good server is hosted", async () => {
    await stage().window.waitForNotification("mcpSafeReplay.");
    await stage().window.screenshot("bad-input-1-settings");
    await expect
      .poll(
        () =>
          stage()
            .allNotifications()
            .then((all) => all.toSorted()),
        SOON,
      )
      .toEqual([
        "The settings of the remote machine tried to set mcpSafeReplay.serverTrust. This was ignored: only your own user settings count.",
        expect.stringMatching(/^mcpSafeReplay\.requestTimeoutSeconds must be a number of seconds .*; the default is used\.$/),
        "mcpSafeReplay.serverTrust.nobody trusts a server that does not exist.",
        expect.stringMatching(/^mcpSafeReplay\.servers\.broken\.command .*string/),
        "mcpSafeReplay.servers.missing.command the environment variable MSR_NOT_SET is not set.",
        "mcpSafeReplay.servers.misspelt needs 'command' (stdio) or 'url' (http, sse).",
      ]);
    await stage().views.untilRows("Servers", [/^booking connected/]);
  });

  it("of the remote machine is not written over: the person is told where to mend it", async () => {
    await stage().window.clearNotifications();
    await stage().views.untilChecked("booking", false);
    await stage().views.checkbox("booking").click();
    const message = await stage().window.waitForNotification("The settings of the remote machine have a value");
    expect(message).toContain("mcpSafeReplay.serverTrust");
    await stage().views.untilChecked("booking", false);
    await stage().window.clearNotifications();
  });

  it("in the arguments is told in the box, and nothing is sent", async () => {
    await stage().chooseTool("booking", "create_booking");
    const told = (): Promise<string> => stage().window.quickInputText();
    await stage().window.answerInput("hotel");
    await expect.poll(told, SOON).toMatch(/Not JSON: /);
    await stage().window.answerInput("[1]");
    await expect.poll(told, SOON).toContain("Arguments must be a JSON object: {…}");
    await stage().window.answerInput('{"hotel":"Hotel Astoria"}');
    await expect.poll(told, SOON).toMatch(/arguments.*'night'/);
    await stage().window.screenshot("bad-input-2-arguments");
    await stage().window.closeQuickInput();
    expect(requests()).toBe(0);
  });

  it("leaves the good server working", async () => {
    await stage().callTool("booking", "find_booking", { guest: "nobody" });
    expect(await stage().documentText("find_booking · booking: completed")).toContain("There is no such booking.");
    await stage().callTool("booking", "create_booking", stay);
    await stage().window.waitForNotification("lost its answer");
    expect(requests()).toBe(2);
  });
});

describe("a journal that cannot be used", { timeout: TEST_MS }, () => {
  const stage = useStage({ servers: ["booking"] }, async (current) => {
    await current.views.open();
    await current.views.untilConnected("booking");
    await current.loseCall("booking", "create_booking", stay);
  });
  const requests = (): number => stage().ledger("booking").countCalls();
  // The window's extension host ends after the window, and holds the journal until then.
  const journalFile = (): DatabaseSync => new DatabaseSync(join(stage().journalFolder, "journal.sqlite"), { timeout: 60_000 });

  it("because a newer version wrote it: its calls are shown, and none is sent", async () => {
    await stage().close();
    const journal = journalFile();
    const { user_version: version } = journal.prepare("PRAGMA user_version").get() as { user_version: number };
    journal.exec(`PRAGMA user_version = ${version + 1}`);
    journal.close();

    await stage().open();
    await stage().views.open();
    const message = await stage().window.waitForNotification("The operation journal was written by a newer version");
    expect(message).toMatch(/Update MCP Safe Replay\./);
    await stage().views.untilText("Unresolved", /^The operation journal was written by a newer version of MCP Safe Replay/);
    await stage().views.untilRows("Unresolved", [/^create_booking · booking/]);
    await stage().views.untilConnected("booking");
    await stage().window.screenshot("bad-input-3-newer-journal");
    await stage().window.clearNotifications();

    await stage().window.runCommand("MCP Safe Replay: Call Tool…");
    await stage().window.waitForNotification("The operation journal was written by a newer version");
    expect(await stage().window.quickPickLabels()).toEqual([]);
    expect(requests()).toBe(1);

    await stage().close();
    const mended = journalFile();
    mended.exec(`PRAGMA user_version = ${version}`);
    mended.close();
  });

  it("because its folder cannot be written to: one message, and all is well after the mend, without a reload", async () => {
    // A program that runs as root may write everywhere: a file in the folder's place stops it too.
    const aside = `${stage().journalFolder}.aside`;
    renameSync(stage().journalFolder, aside);
    writeFileSync(stage().journalFolder, "not a folder");
    await stage().open();
    await stage().views.open();
    const message = await stage().window.waitForNotification("MCP Safe Replay cannot write to");
    expect(message).toContain(stage().journalFolder);
    await stage().views.untilText("Unresolved", /^MCP Safe Replay cannot write to/);
    expect(await stage().window.hasCommand("MCP Safe Replay: Try to Start Again")).toBe(true);
    await stage().window.screenshot("bad-input-4-no-journal-folder");
    expect(requests()).toBe(1);

    rmSync(stage().journalFolder);
    renameSync(aside, stage().journalFolder);
    await stage().press("MCP Safe Replay cannot write to", "Try Again");
    await stage().views.untilConnected("booking");
    await stage().views.untilRows("Unresolved", [/^create_booking · booking/]);
    await stage().window.screenshot("bad-input-5-mended");
  });
});
