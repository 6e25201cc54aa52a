/**
 * Owns: proof in a real VS Code that a person gets from an existing mcp.json to protected servers by the palette: choosing, seeing what
 * will change, switching the originals off, and entering a secret, which then stands nowhere.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { parse } from "jsonc-parser";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startHttpFaultServer, type HttpFaultServer } from "../servers/fault/http-fault-server.ts";
import { LedgerReader } from "../servers/ledger.ts";
import { repositoryRoot } from "../support/paths.ts";
import { temporaryFolder } from "../support/temp.ts";
import { TEST_MS, useStage, type Stage } from "./support.ts";

const secret = "sesame-4711-open";

describe("the way from an existing mcp.json", { timeout: TEST_MS }, () => {
  let remote: HttpFaultServer;
  const folder = temporaryFolder();
  const fileOf = (stage: Stage): string => join(stage.profile.userDataDir, "User", "mcp.json");
  const ledgerOf = (stage: Stage): string => join(stage.run, "imported");

  beforeAll(async () => {
    remote = await startHttpFaultServer({
      binding: "http-json",
      ledger: folder.path,
      serverInfo: { name: "till", version: "1" },
      token: secret,
    });
  });
  afterAll(async () => {
    await remote.close();
    folder.remove();
  });

  const stageNow = useStage({ servers: [], open: false }, async (stage) => {
    mkdirSync(ledgerOf(stage), { recursive: true });
    const booking = join(repositoryRoot, "test", "servers", "demo", "booking.ts");
    const text = `{
  // What this person had before
  "servers": {
    "hotel": {
      "command": ${JSON.stringify(process.execPath)},
      "args": ${JSON.stringify([booking, "--ledger", ledgerOf(stage)])},
      "env": { "HOTEL_API_KEY": "key-0815" }
    },
    "till": {
      "type": "http",
      "url": ${JSON.stringify(remote.url)},
      "headers": { "Authorization": "Bearer \${input:till_token}" }
    },
    "stays": { "command": "stays" }
  },
  "inputs": [{ "type": "promptString", "id": "till_token", "description": "Token of the till", "password": true }]
}
`;
    mkdirSync(dirname(fileOf(stage)), { recursive: true });
    writeFileSync(fileOf(stage), text);
    await stage.open();
    await stage.views.open();
  });

  it("begins in the empty view", async () => {
    const stage = stageNow();
    await stage.views.untilText("Servers", /^No servers yet\. Take over those that you have in mcp\.json/);
    await stage.window.screenshot("import-1-empty");
  });

  it("asks which file, then which servers, and shows what will change before anything does", async () => {
    const stage = stageNow();
    await stage.views.pane("Servers").getByRole("button", { name: "Import Servers" }).click();
    await stage.window.pick("VS Code, your mcp.json");
    const list = stage.page.locator(".quick-input-widget:visible");
    await list.locator(".label-name", { hasText: /^stays$/ }).waitFor();
    await stage.window.screenshot("import-2-choose");
    await list.locator(".monaco-list-row", { hasText: "stays" }).click();
    await list.getByRole("button", { name: "OK" }).click();
    await stage.page.locator(".monaco-diff-editor").waitFor();
    await list.locator(".label-name", { hasText: /^Import 2 servers and switch off in VS Code$/ }).waitFor();
    expect(stage.userSettings()["mcpSafeReplay.servers"]).toEqual({});
    const diff = await stage.page.locator(".monaco-diff-editor .modified-in-monaco-diff-editor").innerText();
    expect(diff).toContain("hotel");
    expect(await stage.page.locator(".monaco-workbench").innerText()).not.toContain("key-0815");
    await stage.window.screenshot("import-3-before-after");
  });

  it("imports them, switches the originals off and keeps the file as it was beside it", async () => {
    const stage = stageNow();
    const before = readFileSync(fileOf(stage), "utf8");
    await stage.window.pick("Import 2 servers and switch off in VS Code");
    await stage.window.waitForNotification(/Imported 2 MCP servers: hotel, till/);
    await stage.views.untilRows("Servers", [/^hotel connected/, /^till needs a value$/]);
    const left = readFileSync(fileOf(stage), "utf8");
    expect(left).toContain("// What this person had before");
    expect(Object.keys(parse(left).servers)).toEqual(["stays"]);
    expect(readFileSync(`${fileOf(stage)}.backup`, "utf8")).toBe(before);
    expect(existsSync(`${fileOf(stage)}.backup-2`)).toBe(false);
    expect(JSON.stringify(stage.userSettings())).not.toContain("key-0815");
    await stage.window.screenshot("import-4-imported");
    await stage.window.clearNotifications();
  });

  it("protects the imported server's calls", async () => {
    const stage = stageNow();
    await stage.loseCall("hotel", "create_booking", { hotel: "Astoria", night: "2026-12-24", guest: "Ada" });
    expect(new LedgerReader(ledgerOf(stage)).countCalls("create_booking")).toBe(1);
    await stage.views.untilBadge("1");
  });

  it("asks for a secret by a click on the row, hides it while it is typed, and keeps it out of the settings", async () => {
    const stage = stageNow();
    await stage.views.row("Servers", "till").click();
    const box = stage.page.locator(".quick-input-widget:visible input[type=password]");
    await box.waitFor();
    expect(await stage.window.quickInputText()).toContain("Token of the till");
    await box.fill(secret);
    await stage.window.screenshot("import-5-secret");
    await box.press("Enter");
    await stage.views.untilConnected("till");
    expect(remote.requests("initialize").at(-1)?.headers["authorization"]).toBe(`Bearer ${secret}`);
    expect(JSON.stringify(stage.userSettings())).not.toContain(secret);
  });

  it("still has the secret in the next window, and forgets it by command", async () => {
    const stage = stageNow();
    await stage.window.reload();
    await stage.views.open();
    // Their tools are known from the last window: nothing is started before somebody uses them.
    await stage.views.untilRows("Servers", [/^hotel stopped, \d+ tools? remembered$/, /^till stopped, \d+ tools? remembered$/]);
    const before = remote.requests("initialize").length;
    await stage.views.act("Servers", "till", "Start Server…");
    await stage.views.untilConnected("till");
    const after = remote.requests("initialize");
    expect(after.length).toBe(before + 1);
    expect(after.at(-1)?.headers["authorization"]).toBe(`Bearer ${secret}`);
    await stage.window.runCommand("MCP Safe Replay: Forget Secrets…");
    expect(await stage.window.dialogText()).toContain("Forget all values that you entered for MCP servers");
    await stage.window.screenshot("import-6-forget");
    await stage.window.answerDialog("Forget");
    await stage.views.untilRows("Servers", [/^hotel needs a value$/, /^till needs a value$/]);
  });
});
