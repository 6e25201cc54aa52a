/**
 * Owns: proof in a real VS Code that a person authorises a remote server in the browser, that the server is used with what came of it, that
 * a call refused meanwhile is made once more at most, and that tokens are nowhere but in the secret storage.
 * Leaves to others: the authorisation in its variants (test/unit/hosting/auth), refused calls over every transport (test/faults).
 */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { AuthorisationServer } from "../servers/auth/authorisation-server.ts";
import { startHttpFaultServer } from "../servers/fault/http-fault-server.ts";
import { temporaryFolder } from "../support/temp.ts";
import { TEST_MS, useStage } from "./support.ts";

const folder = temporaryFolder();
const as = await AuthorisationServer.start();
const server = await startHttpFaultServer({ binding: "http-json", ledger: join(folder.path, "ledger"), sync: false });
const signIn = "https://login.bank.example/authorize";
as.behaviour.page = signIn;
server.setToken("none yet", as.protects(server.url));
as.onToken = (token) => server.setToken(token);
afterAll(async () => {
  await server.close();
  await as.close();
  folder.remove();
});

/** The files of the profile in which a text stands as it is. */
function filesWith(text: string, root: string): string[] {
  return readdirSync(root, { recursive: true, withFileTypes: true }).flatMap((entry) => {
    const path = join(entry.parentPath, entry.name);
    if (!entry.isFile() || statSync(path).size > 64 * 1024 * 1024) return [];
    return readFileSync(path).includes(text) ? [path] : [];
  });
}

describe("a server that needs an authorisation", { timeout: TEST_MS }, () => {
  const stage = useStage({ servers: [], otherServers: { bank: { type: "http", url: server.url } } }, ({ views }) => views.open());

  it("says so in its row and in a message", async () => {
    await stage().views.untilRows("Servers", [/^bank needs authorisation/]);
    const message = await stage().window.waitForNotification('"bank" needs your authorisation');
    expect(message).toContain("before it can be used");
    await stage().window.screenshot("authorise-1-needed");
  });

  it("is authorised in the browser, and started", async () => {
    const { page, views, window } = stage();
    await window.clearNotifications();
    // The provider's page lies somewhere in the internet, as far as VS Code knows.
    await page.context().route(`${signIn}**`, async (route) => {
      const { search } = new URL(route.request().url());
      const answer = await fetch(`${as.origin}/authorize${search}`, { redirect: "manual" });
      await route.fulfill({ status: 302, headers: { location: answer.headers.get("location") ?? "" } });
    });
    const opened = page.context().waitForEvent("page");
    await views.act("Servers", "bank", "Authorise…");
    expect(await window.dialogText()).toContain("login.bank.example");
    await window.answerDialog("Open");
    const browser = await opened;
    await views.untilConnected("bank");
    expect(as.requests("/authorize").length).toBe(1);
    expect(as.tokenRequests("authorization_code").length).toBe(1);
    await browser.close();
    await window.screenshot("authorise-2-connected");
  });

  it("makes a call that was refused once more, with a new token", async () => {
    server.setToken("revoked");
    await stage().callTool("bank", "charge", { account: "a-1", amount: 10 });
    await stage().documentText("charge · bank: completed");
    expect([server.calls("charge").length, server.effects({ tool: "charge" }).length]).toEqual([2, 1]);
    const operation = await stage().latestOperation();
    expect(operation.attempts.map(({ outcome }) => outcome)).toEqual(["not-executed", "observed"]);
    expect(as.tokenRequests("refresh_token").length).toBe(1);
    await stage().window.runCommand("View: Close All Editors");
  });

  it("asks the person when a refresh does not do", async () => {
    as.behaviour.refresh = "refused";
    server.setToken("revoked");
    await stage().callTool("bank", "charge", { account: "a-2", amount: 10 });
    await stage().window.waitForNotification('"bank" needs your authorisation');
    await stage().views.untilRows("Servers", [/^bank needs authorisation/]);
    expect(server.effects({ tool: "charge" }).length).toBe(1);
    await stage().window.screenshot("authorise-3-again");
  });

  it("leaves no token in any file of the profile", () => {
    for (const text of ["as-token", "as-refresh", "as-code"]) expect(filesWith(text, stage().profile.userDataDir)).toEqual([]);
  });
});
