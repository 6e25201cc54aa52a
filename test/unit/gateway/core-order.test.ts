import { join } from "node:path";
import { expect, it } from "vitest";
import { createCore } from "../../../src/gateway/core.ts";
import type { ServerDefinition } from "../../../src/hosting/definitions.ts";
import { defaultReplaySettings } from "../../../src/replay/settings.ts";
import { temporaryFolder } from "../../support/temp.ts";

it("lists hosted servers in the order of their definitions, whenever each of them came, and keeps those that did not change", async () => {
  const folder = temporaryFolder();
  const core = await createCore({
    journalDir: join(folder.path, "journal"),
    listen: { kind: "unix", path: join(folder.path, "s", "gateway.sock") },
    trust: { workspaceTrusted: () => true, serverTrustSetting: () => false, consentFingerprint: () => undefined },
    settings: () => defaultReplaySettings,
    contracts: () => new Map(),
    log: () => undefined,
    clientInfo: { name: "test", version: "1" },
  });
  const definitions = (...names: string[]): ReadonlyMap<string, ServerDefinition> =>
    new Map(names.map((name) => [name, { type: "http", url: `http://127.0.0.1:9/${name}`, headers: {} }]));
  await core.setDefinitions(definitions("first", "third"));
  const third = core.servers.get("third");
  await core.setDefinitions(definitions("first", "second", "third"));
  expect([...core.servers.keys()]).toEqual(["first", "second", "third"]);
  expect(core.servers.get("third")).toBe(third);
  await core.dispose();
  folder.remove();
});
