/**
 * Owns: proof of Restricted Mode in a fresh profile: the packaged extension runs the person's servers and replays nothing, says so, takes
 * nothing from the workspace, and is fully alive as soon as the workspace is trusted, without a reload.
 */
import { describe, expect, it } from "vitest";
import { TEST_MS, useStage } from "./support.ts";

describe("in a workspace that is not trusted", { timeout: TEST_MS }, () => {
  const stage = useStage(
    {
      servers: ["booking", "notes"],
      restricted: true,
      workspaceSettings: {
        "mcpSafeReplay.serverTrust.booking": true,
        "mcpSafeReplay.servers.intruder": { command: "touch", args: ["intruder-was-here"] },
      },
    },
    ({ views }) => views.open(),
  );
  const note = (title: string): Record<string, string> => ({ title, text: "Milk" });
  const requests = (title: string): number => stage().ledger("notes").submissions("save_note", note(title));

  it("the installed extension says what Restricted Mode means", async () => {
    expect(await stage().window.isRestricted()).toBe(true);
    await stage().views.untilConnected("booking", "notes");
    await stage().views.untilText(
      "Servers",
      /^Restricted Mode: nothing is replayed, and every call counts as one that may change something\./,
    );
    await stage().views.untilText("Unresolved", /^Nothing is unresolved\./);
    await stage().window.screenshot("restricted-1-views");
  });

  it("what the workspace tries to set is ignored, and said to be", async () => {
    const message = await stage().window.waitForNotification("This workspace tried to set");
    expect(message).toBe(
      "This workspace tried to set mcpSafeReplay.servers, mcpSafeReplay.serverTrust. This was ignored: only your own user settings count.",
    );
    await stage().views.untilRows("Servers", [/^booking connected/, /^notes connected/]);
    await stage().views.untilChecked("booking", false);
    await stage().window.clearNotifications();
  });

  it("a call of the person's own server runs", async () => {
    await stage().callTool("booking", "find_booking", { guest: "Ada Lovelace" });
    expect(await stage().documentText("find_booking · booking: completed")).toContain("There is no such booking.");
    expect(stage().ledger("booking").countCalls("find_booking")).toBe(1);
    await stage().window.runCommand("View: Close All Editors");
  });

  it("a lost call of a trusted server is not replayed", async () => {
    await stage().views.checkbox("notes").click();
    await stage().views.untilChecked("notes", true);
    await stage().loseCall("notes", "save_note", note("restricted"));
    expect(requests("restricted")).toBe(1);
    const operation = await stage().latestOperation();
    expect(operation.state).toBe("unresolved");
    expect(operation.events.at(-1)?.data).toEqual({ verdict: ["workspace-not-trusted"] });
    await stage().views.untilBadge("1");
    await stage().window.screenshot("restricted-2-not-replayed");
  });

  it("once the person trusts the workspace, the same is replayed, without a reload", async () => {
    await stage().page.evaluate("globalThis.sameWindow = true");
    const [before] = stage().ledger("booking").requests({ method: "tools/call" });
    await stage().window.trustWorkspace();
    await stage().views.open();
    await stage().views.untilText("Servers", /^$/);
    await stage().views.untilConnected("booking", "notes");

    await stage().callTool("notes", "save_note", note("trusted"));
    expect(await stage().documentText("save_note · notes: completed")).toContain('Saved "trusted".');
    expect(requests("trusted")).toBe(2);
    expect((await stage().latestOperation()).attempts).toMatchObject([{ outcome: "unknown" }, { outcome: "observed" }]);
    // Neither the window nor the extension host nor the server is another one.
    expect(await stage().page.evaluate("globalThis.sameWindow")).toBe(true);
    await stage().callTool("booking", "find_booking", { guest: "Grace Hopper" });
    await stage().ledger("booking").untilCalls(2, "find_booking");
    expect(stage().ledger("booking").calls("find_booking").at(-1)?.pid).toBe(before?.pid);
    await stage().window.screenshot("restricted-3-trusted");
  });
});
