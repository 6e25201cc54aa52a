// Owns: proof that trust is read at the moment of use: taken back in the middle of a replay, it stops the replay.

import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Journal } from "../../src/operations/journal.ts";
import { openSqliteJournal } from "../../src/operations/sqlite-journal.ts";
import { CallManager } from "../../src/replay/call-manager.ts";
import type { CallAnswer } from "../../src/replay/calls.ts";
import { defaultReplaySettings } from "../../src/replay/settings.ts";
import type { TrustSource } from "../../src/trust/trust.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { answer, FakeServer, loss, resultText } from "../support/fake-hosting.ts";
import { temporaryFolder } from "../support/temp.ts";

const put = { name: "put", inputSchema: { type: "object" }, annotations: { idempotentHint: true } };

let folder: { path: string; remove(): void };
let journal: Journal;
let server: FakeServer;
let calls: CallManager;
const gates = { workspace: true, setting: true, consent: "fingerprint" as string | undefined };

beforeEach(() => {
  Object.assign(gates, { workspace: true, setting: true, consent: "fingerprint" });
  folder = temporaryFolder();
  journal = openSqliteJournal({ directory: folder.path, watchMs: 0 });
  server = new FakeServer("shop", [put]);
  const clock = new FakeClock();
  clock.instantBelow = 2_500;
  const trust: TrustSource = {
    workspaceTrusted: () => gates.workspace,
    serverTrustSetting: () => gates.setting,
    consentFingerprint: () => gates.consent,
  };
  calls = new CallManager({
    journal,
    servers: () => new Map([["shop", server]]),
    trust,
    settings: () => defaultReplaySettings,
    contracts: () => new Map(),
    clock,
    random: () => 0.5,
    log: () => undefined,
  });
});
afterEach(async () => {
  await calls.dispose();
  await journal.close();
  folder.remove();
});

const call = (): Promise<CallAnswer> =>
  calls.call(
    {
      server: "shop",
      tool: "put",
      arguments: { a: 1 },
      params: { name: "put", arguments: { a: 1 } },
      caller: { client: "agent" },
    },
    {},
  );

const ways: readonly [string, () => void][] = [
  ["the setting is switched off", () => (gates.setting = false)],
  ["the workspace is no longer trusted", () => (gates.workspace = false)],
  ["the record of consent is gone", () => (gates.consent = undefined)],
  ["the definition is not the one that was agreed to", () => (gates.consent = "another")],
];

describe("trust taken back in the middle of a replay", () => {
  it("is what the replay stands on: with it, the call is sent again", async () => {
    server.script = [() => loss("reset"), () => answer("kept")];
    expect(resultText((await call()) as never)).toContain("kept");
    expect(server.requests).toHaveLength(2);
  });

  it.each(ways)("while the answer is being lost (%s): nothing is sent again", async (_, revoke) => {
    server.script = [
      () => {
        revoke();
        return loss("reset");
      },
    ];
    expect(resultText((await call()) as never)).toContain("UNRESOLVED");
    expect(server.requests).toHaveLength(1);
    expect(server.rediscoveries).toBe(0);
  });

  it.each(ways)("while the tools are being discovered again (%s): nothing is sent again", async (_, revoke) => {
    server.script = [() => loss("reset")];
    server.onRediscover = revoke;
    expect(resultText((await call()) as never)).toContain("UNRESOLVED");
    expect(server.rediscoveries).toBe(1);
    expect(server.requests).toHaveLength(1);
  });

  it.each(ways)("after the first replay was lost too (%s): there is no second", async (_, revoke) => {
    server.script = [
      () => loss("reset"),
      () => {
        revoke();
        return loss("reset");
      },
    ];
    expect(resultText((await call()) as never)).toContain("UNRESOLVED");
    expect(server.requests).toHaveLength(2);
  });
});
