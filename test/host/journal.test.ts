// Owns: proof that the journal of the running extension works in a thread of its own, keeps what the person's settings say, and can be
// verified and exported from here. What it looks like is proved in test/e2e.

import assert from "node:assert/strict";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import * as vscode from "vscode";
import type { HttpFaultServer } from "../servers/fault/http-fault-server.ts";
import { callByCommand, hostHttpFaults, latestOperationOf, newFolder, run, settingsApplied, type Hosted } from "./support.ts";

async function keep(arguments_: string | undefined): Promise<void> {
  await vscode.workspace
    .getConfiguration("mcpSafeReplay")
    .update("journal.arguments", arguments_, vscode.ConfigurationTarget.Global);
  await settingsApplied();
}

describe("the journal", () => {
  let shop: Hosted & { readonly faults: HttpFaultServer };
  before(async () => {
    shop = await hostHttpFaults("ledgered");
  });
  after(async () => {
    await keep(undefined);
    await shop.faults.close();
  });

  it("works in a thread of its own", () => {
    const report = process.report.getReport() as unknown as { workers: readonly { header: { event: string } }[] };
    const threads = report.workers.map(({ header }) => header.event);
    assert.ok(
      threads.some((event) => event.includes("[journal]")),
      JSON.stringify(threads),
    );
  });

  it("keeps what the setting says, exports it to a private file, and is whole", async () => {
    await keep("digest");
    assert.equal((await callByCommand(shop, "charge", { account: "purse-of-ada", amount: 5 })).kind, "result");
    await latestOperationOf("ledgered");
    await keep("full");
    await callByCommand(shop, "charge", { account: "purse-of-bob", amount: 5 });

    for (const format of ["jsonl", "csv"] as const)
      for (const what of ["events", "operations"] as const) {
        const path = join(newFolder(), `journal.${format}`);
        await run("mcpSafeReplay.exportJournal", { path, format, what });
        const text = readFileSync(path, "utf8");
        assert.ok(text.includes("purse-of-bob"), `${what} as ${format}`);
        assert.ok(!text.includes("purse-of-ada"), `${what} as ${format}`);
        if (process.platform !== "win32") assert.equal(statSync(path).mode & 0o777, 0o600);
      }
    const verdict = await run("mcpSafeReplay.verifyJournal", {});
    assert.ok(verdict?.ok === true && verdict.events > 0, JSON.stringify(verdict));
  });

  it("refuses to close a conflict that is none", async () => {
    const { id } = await latestOperationOf("ledgered");
    await assert.rejects(run("mcpSafeReplay.closeConflict", { id, note: "seen" }), /in no conflict/);
    await assert.rejects(run("mcpSafeReplay.closeConflict", { id, note: " " }), /A note is needed/);
  });
});
