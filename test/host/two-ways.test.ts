// Owns: proof that a call by our command goes the same way as an agent's: for each way in which an exchange can end, the same state,
// the same reason, the same requests and effects, and a text of the same kind.

import assert from "node:assert/strict";
import * as vscode from "vscode";
import type { HttpFaultServer } from "../servers/fault/http-fault-server.ts";
import type { StdioFaults } from "../servers/fault/stdio-faults.ts";
import {
  callAsAgent,
  callByCommand,
  eventually,
  hostHttpFaults,
  hostStdioFaults,
  latestOperationOf,
  type Answer,
  type CallPath,
  type Hosted,
} from "./support.ts";

interface Row {
  readonly title: string;
  readonly over: "stdio" | "http";
  readonly arrange: (http: HttpFaultServer, stdio: StdioFaults) => void | Promise<void>;
  readonly tidy?: (http: HttpFaultServer) => Promise<void>;
  readonly answer: { readonly kind: Answer["kind"]; readonly text: RegExp };
  readonly state: string;
  readonly reason: string;
  readonly requests: number;
  readonly effects: number;
}

const rows: readonly Row[] = [
  {
    title: "the server's process ends before it answers",
    over: "stdio",
    arrange: (_, stdio) => stdio.script({ do: "exit" }),
    answer: { kind: "result", text: /^UNRESOLVED: .*\(the server's process ended before the answer arrived\)/ },
    state: "unresolved",
    reason: "process-exit",
    requests: 1,
    effects: 1,
  },
  {
    title: "the connection is reset before the headers of the response",
    over: "http",
    arrange: (http) => http.script({ do: "reset" }),
    answer: { kind: "result", text: /^UNRESOLVED: .*\(the connection was lost before the answer arrived\)/ },
    state: "unresolved",
    reason: "connection-lost",
    requests: 1,
    effects: 1,
  },
  {
    title: "the connection is refused",
    over: "http",
    arrange: (http) => http.goDown(),
    tidy: (http) => http.comeUp(),
    answer: { kind: "result", text: /^NOT EXECUTED: the server did not run this call \(the server could not be reached\)/ },
    state: "not-executed",
    reason: "not-sent",
    requests: 0,
    effects: 0,
  },
  {
    title: "the tool reports an error",
    over: "http",
    arrange: (http) => http.script({ do: "tool-error", text: "The card was declined.", effect: false }),
    answer: { kind: "result", text: /^The card was declined\.$/ },
    state: "completed",
    reason: "answered",
    requests: 1,
    effects: 0,
  },
  {
    title: "the server answers with a JSON-RPC error",
    over: "stdio",
    arrange: (_, stdio) => stdio.script({ do: "error", code: -32001, message: "Out of office" }),
    answer: { kind: "error", text: /Out of office/ },
    state: "completed",
    reason: "answered",
    requests: 1,
    effects: 0,
  },
  {
    title: "the server answers",
    over: "stdio",
    arrange: (_, stdio) => stdio.script({ do: "answer" }),
    answer: { kind: "result", text: /charge/i },
    state: "completed",
    reason: "answered",
    requests: 1,
    effects: 1,
  },
];

const ways: readonly { readonly name: string; readonly call: CallPath }[] = [
  { name: "an agent's call", call: callAsAgent },
  { name: "a call by the command", call: callByCommand },
];

describe("both ways to call a tool", () => {
  let http: Hosted & { readonly faults: HttpFaultServer };
  let stdio: Hosted & { readonly faults: StdioFaults };
  let accounts = 0;

  before(async () => {
    http = await hostHttpFaults("pay-http");
    stdio = await hostStdioFaults("pay-stdio");
  });
  after(() => http.faults.close());

  for (const row of rows) {
    for (const { name, call } of ways) {
      it(`${name}: ${row.title}`, async () => {
        const server = row.over === "http" ? http : stdio;
        // Both servers are known to VS Code before the fault.
        await callAsAgent(server, "lookup", { item: "chairs" });
        const requests = server.ledger.countCalls("charge");
        const effects = server.ledger.countEffects({ tool: "charge" });
        await row.arrange(http.faults, stdio.faults);
        accounts += 1;
        const answer = await call(server, "charge", { account: `account-${accounts}`, amount: 7 });
        await row.tidy?.(http.faults);

        assert.equal(answer.kind, row.answer.kind, answer.text);
        assert.match(answer.text, row.answer.text);
        assert.equal(server.ledger.countCalls("charge") - requests, row.requests, "requests that reached the server");
        assert.equal(server.ledger.countEffects({ tool: "charge" }) - effects, row.effects, "effects");
        const { tool, state, reason } = await latestOperationOf(server.name);
        assert.deepEqual({ tool, state, reason }, { tool: "charge", state: row.state, reason: row.reason });
      });
    }
  }

  // A script has no way to cancel: the button of the command's progress is pressed in test/e2e.
  it("an agent's call: the agent cancels", async () => {
    await callAsAgent(http, "lookup", { item: "chairs" });
    const effects = http.ledger.countEffects({ tool: "charge" });
    http.faults.script({ do: "hang" });
    const source = new vscode.CancellationTokenSource();
    const answer = callAsAgent(http, "charge", { account: "cancelled", amount: 7 }, source.token);
    await http.faults.untilHanging(1);
    source.cancel();
    assert.equal((await answer).kind, "cancelled");
    // The effect came before the answer: cancelling proves nothing about it.
    assert.equal(http.ledger.countEffects({ tool: "charge" }) - effects, 1);
    await http.faults.until(() => http.faults.requests("notifications/cancelled").length === 1);
    const operation = await eventually("the operation to be unresolved", async () => {
      const latest = await latestOperationOf(http.name);
      return latest.state === "unresolved" ? latest : undefined;
    });
    assert.equal(operation.reason, "cancelled");
    http.faults.release();
  });
});
