import { describe, expect, it } from "vitest";
import type { HostedServer, ServerStatus } from "../../../src/hosting/hosted-server.ts";
import { HealthRecord } from "../../../src/hosting/health/record.ts";
import { serverStates } from "../../../src/hosting/health/transitions.ts";
import { latencyText, needy, reconnectsText, serverDocument, stateMeanings, stateText } from "../../../src/vscode/health-text.ts";

const now = Date.UTC(2026, 10, 30, 12, 0, 0);
const status = (fields: Partial<ServerStatus>): ServerStatus => ({ state: "connected", since: now, ...fields });

describe("a state in a row", () => {
  it("says what there is to know at once", () => {
    expect(stateText(status({}), now)).toBe("connected");
    expect(stateText(status({ state: "connecting" }), now)).toBe("connecting");
    expect(stateText(status({ state: "connecting", attempt: 2 }), now)).toBe("connecting, attempt 2");
    expect(stateText(status({ state: "reconnecting", attempt: 3, nextTryAt: now + 4_000 }), now)).toMatch(
      /^reconnecting, attempt 3, next try at \d\d:00:04$/,
    );
    expect(stateText(status({ state: "failed", since: now - 180_000, reason: "It ended." }), now)).toBe(
      "failed 3 min: It ended.",
    );
    expect(stateText(status({ state: "needs-authorisation" }), now)).toBe("needs authorisation");
  });

  it("has a meaning in a sentence", () => {
    for (const state of serverStates) expect(stateMeanings[state]).toMatch(/^It |^A |^Something |^The .*\.$/);
  });
});

function recorded(): HealthRecord {
  const record = new HealthRecord();
  const at = now - 3_700_000;
  record.changed({ at, from: "connecting", on: "listed", to: "connected" });
  record.changed({ at, from: "connected", on: "lost", to: "reconnecting", why: "The old reason." });
  record.changed({ at, from: "connecting", on: "listed", to: "connected" });
  record.changed({ at: now - 120_000, from: "connected", on: "lost", to: "reconnecting", why: "The connection\nwas lost." });
  record.changed({ at: now - 119_000, from: "connecting", on: "attempt-failed", to: "reconnecting", why: "Another." });
  record.changed({ at: now - 60_000, from: "connecting", on: "listed", to: "connected" });
  record.answered({ ms: 12, method: "ping", at: now });
  record.probed();
  return record;
}

describe("what is on record", () => {
  it("counts reconnects, those of the last hour apart, and says why the last one was", () => {
    const health = recorded().read(now);
    expect(health.reconnects).toEqual({ total: 2, lastHour: 1 });
    expect(reconnectsText(health, now)).toBe("1 in the last hour; the last one 1 minute ago: The connection\nwas lost.");
    expect(latencyText(health, now)).toBe("12 ms (ping, just now)");
    expect(reconnectsText(new HealthRecord().read(now), now)).toBe("none in the last hour");
  });

  it("does not call it a reconnect when a person stopped and started the server", () => {
    const record = new HealthRecord();
    record.changed({ at: now, from: "connected", on: "lost", to: "reconnecting" });
    record.changed({ at: now, from: "reconnecting", on: "stop", to: "stopped" });
    record.changed({ at: now, from: "connecting", on: "listed", to: "connected" });
    expect(record.read(now).reconnects.total).toBe(0);
  });

  it("is a document: the state, the last lines of its program, every change, newest first", () => {
    const server = {
      name: "booking",
      status: status({ state: "failed", reason: "The server's program ended 5 times.", lastOutput: ["boom", "bang"] }),
      health: recorded().read(now),
      remembered: undefined,
    } as unknown as HostedServer;
    const text = serverDocument(server, now);
    expect(text).toMatch(/^# booking: failed\n/);
    expect(text).toContain("- Why: The server's program ended 5 times.");
    expect(text).toContain("    boom\n    bang");
    expect(text).toContain("reconnecting (the connection was lost). The connection was lost.");
    expect(text.indexOf("Another.")).toBeLessThan(text.indexOf("The old reason."));
  });
});

it("only servers that do not go on by themselves need a person", () => {
  const servers = serverStates.map((state) => ({ name: state, status: status({ state }) }));
  expect(
    needy(servers, [
      { name: "a", why: "input" },
      { name: "b", why: "workspace-trust" },
    ]),
  ).toEqual([
    { name: "needs-authorisation", why: "needs authorisation" },
    { name: "failed", why: "failed" },
    { name: "a", why: "needs a value" },
  ]);
});
