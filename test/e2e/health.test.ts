/**
 * Owns: proof that the Servers view tells the truth about servers in every state, what a person can do about each, and pictures of it in
 * the light and the dark theme.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { legacyHandlers, RawServer, type Handlers } from "../unit/hosting/fixtures/raw-http.ts";
import { SOON, TEST_MS, useStage } from "./support.ts";

const servers = new Map<string, RawServer>();
const start = async (name: string, handlers: Handlers): Promise<string> => {
  const server = await RawServer.start(handlers);
  servers.set(name, server);
  return server.url;
};
const url = (name: string): string => servers.get(name)?.url ?? "";
const named = (name: string): RawServer => {
  const server = servers.get(name);
  if (server === undefined) throw new Error(`no server ${name}`);
  return server;
};

describe("the Servers view", { timeout: TEST_MS }, () => {
  beforeAll(async () => {
    await start("doubtful", legacyHandlers({ "tools/call": (turn) => turn.reset(), ping: () => undefined }));
    await start("locked", { "server/discover": (turn) => turn.status(401) });
    await start("slow", { "server/discover": () => undefined });
    await start("sleepy", legacyHandlers());
    await start("away", { "server/discover": (turn) => turn.status(503, "", { "retry-after": "3000" }) });
  });
  afterAll(async () => {
    for (const server of servers.values()) await server.close();
  });

  const stage = useStage(
    {
      servers: ["booking"],
      get otherServers() {
        return {
          doubtful: { url: url("doubtful"), start: "onStartup" },
          locked: { url: url("locked"), start: "onStartup" },
          slow: { url: url("slow"), start: "onStartup" },
          away: { url: url("away"), start: "onStartup" },
          crashing: {
            command: process.execPath,
            args: ["-e", "console.error('no licence file'); process.exit(3)"],
            start: "onStartup",
          },
          byhand: { url: url("sleepy"), start: "manual" },
        };
      },
    },
    ({ views }) => views.open(),
  );

  it("shows each state, and the status bar only what needs a person", async () => {
    await stage().views.untilConnected("booking", "doubtful");
    await stage().callTool("doubtful", "book", {});
    await stage().views.untilRows("Servers", [
      "booking connected, 3 tools",
      "doubtful in doubt, 2 tools",
      "locked needs authorisation",
      "slow connecting",
      /^away reconnecting, attempt 1, next try at \d\d:\d\d:\d\d$/,
      /^crashing failed (now|1 min): The server's program ended 5 times within a minute/,
      "byhand stopped",
    ]);
    const bar = stage().page.locator(".statusbar-item", { hasText: "2 MCP servers need you" });
    await bar.waitFor();
    expect(named("sleepy").seen).toEqual([]);
    await stage().window.clearNotifications();
    await stage().window.screenshot("health-1-dark");
  });

  it("says in the tooltip how fast a server answers and when it was reached anew", async () => {
    await stage()
      .views.row("Servers", /^booking/)
      .hover();
    const card = stage().page.locator(".monaco-hover:visible", { hasText: "Reconnects" });
    await card.waitFor();
    const text = await card.innerText();
    expect(text).toMatch(/Latest answer after: \d+ ms/);
    expect(text).toContain("none in the last hour");
    await stage().window.screenshot("health-2-tooltip");
  });

  it("has the last words of a failed program one click away", async () => {
    await stage()
      .views.row("Servers", /^crashing/)
      .click();
    const text = await stage().documentText("crashing");
    expect(text).toContain("no licence file");
    expect(text).toContain("ended too often");
    await stage().window.screenshot("health-3-details");
  });

  it("starts by hand what is started by hand only, and remembers its tools after that", async () => {
    await stage().views.act("Servers", "byhand", "Start Server…");
    await expect.poll(() => stage().views.rows("Servers"), SOON).toContain("byhand connected, 2 tools");
    await stage().views.act("Servers", "byhand", "Stop Server…");
    await expect.poll(() => stage().views.rows("Servers"), SOON).toContain("byhand stopped, 2 tools remembered");
  });

  it("can be read in the light theme", async () => {
    await stage().close();
    await stage().open({ theme: "light" });
    await stage().views.open();
    await expect.poll(() => stage().views.rows("Servers"), SOON).toContain("byhand stopped, 2 tools remembered");
    await expect.poll(() => stage().views.rows("Servers"), SOON).toContainEqual(expect.stringMatching(/^crashing failed/));
    await stage().window.screenshot("health-4-light");
  });
});
