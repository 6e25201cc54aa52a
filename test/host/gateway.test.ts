// Owns: proof that VS Code's own MCP client loses nothing by the gateway: a server that asks in the middle of a call, tools that change,
// a call that takes long, and other clients that are let in and revoked.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import * as vscode from "vscode";
import { agentTool, callAsAgent, eventually, extension, host, hostHttpFaults, nodeProgram, run, type Hosted } from "./support.ts";

/** Hosts a program whose ledger nobody reads. */
async function hostProgram(name: string, title: string, args: readonly string[]): Promise<Hosted> {
  await host({ [name]: { type: "stdio", command: nodeProgram(), args } });
  return { name, title, ledger: undefined as never };
}

const root = (): string => extension().extensionPath;

describe("VS Code behind the gateway", () => {
  it("is asked by a server in the middle of a call, and the call ends with its word", async () => {
    const server = await hostHttpFaults("asking", { binding: "http-sse" });
    server.faults.script({ do: "elicit", message: "Which room?" });
    const answer = callAsAgent(server, "charge", { amount: 1 });
    // A person would fill in the form; the notification that offers it is taken away, which is an answer too.
    let settled = false;
    void answer.then(() => (settled = true));
    await eventually("the question to be answered", async () => {
      if (!settled) await vscode.commands.executeCommand("notifications.clearAll");
      return settled ? true : undefined;
    });
    const { kind, text } = await answer;
    assert.equal(kind, "result");
    assert.doesNotMatch(text, /UNRESOLVED/);
    // The answer to the server's question came by a POST of its own and found its way.
    const said = server.faults.requests("response").filter(({ rpcId }) => String(rpcId).startsWith("elicit-"));
    assert.equal(said.length, 1);
    assert.match(JSON.stringify(said[0]?.message), /"action":"(accept|decline|cancel)"/);
  });

  it("lets a server's wish for a model end in an answer where there is no model", async () => {
    const program = join(root(), "node_modules", "@modelcontextprotocol", "server-everything", "dist", "index.js");
    const everything = await hostProgram("everything", "Everything Reference Server", [program, "stdio"]);
    const answer = await callAsAgent(everything, "trigger-sampling-request", { prompt: "hello", maxTokens: 5 });
    assert.notEqual(answer.kind, "cancelled");
    assert.doesNotMatch(answer.text, /UNRESOLVED/);
  });

  it("shows a tool that a server has added while it runs", async () => {
    const vendor = await hostProgram("vendor", "The Vendor", [join(root(), "test", "servers", "vendor", "vendor-server.ts")]);
    await agentTool(vendor, "grow");
    const before = vscode.lm.tools.filter(({ name }) => name.includes("grown-")).length;
    const { kind } = await callAsAgent(vendor, "grow", {});
    assert.equal(kind, "result");
    await eventually("the new tool in lm.tools", () =>
      vscode.lm.tools.filter(({ name }) => name.includes("grown-")).length > before ? true : undefined,
    );
  });

  // `node test/bench/long-call.ts --vscode --seconds 370` makes it a call of more than six minutes, beyond VS Code's five minutes of patience with a silent line.
  const longSeconds = Number(process.env.MSR_LONG_CALL_SECONDS ?? "0");
  it("gets the answer of a call that its server is silent about for a while", async function () {
    this.timeout(60_000 + longSeconds * 1000);
    const server = await hostHttpFaults("silent", { binding: "http-json" });
    server.faults.script({ do: "hang" });
    const source = new vscode.CancellationTokenSource();
    let settled = false;
    const answer = callAsAgent(server, "charge", { amount: 2 }, source.token).finally(() => (settled = true));
    await eventually("the call to arrive", () => (server.ledger.calls("charge").length > 0 ? true : undefined));
    assert.equal(settled, false);
    if (longSeconds > 0) await new Promise((over) => setTimeout(over, longSeconds * 1000));
    assert.equal(settled, false);
    server.faults.release();
    assert.equal((await answer).kind, "result");
  });
});

describe("another client", () => {
  it("is let in by a configuration of its own, and revoked", async () => {
    await hostProgram("shared", "The Vendor", [join(root(), "test", "servers", "vendor", "vendor-server.ts")]);
    const given = await run("mcpSafeReplay.copyGatewayConfiguration", { client: "mcp.json", servers: ["shared"], way: "stdio" });
    assert.ok(given);
    assert.equal(await vscode.env.clipboard.readText(), given.snippet);
    const { mcpServers } = JSON.parse(given.snippet) as {
      mcpServers: Record<string, { command: string; args: string[]; env: Record<string, string> }>;
    };
    const { args, env } = mcpServers["shared"]!;
    // What is started lies where no update of the extension moves it.
    assert.ok(args[0]!.endsWith("mcp-safe-replay.cjs") && !args[0]!.startsWith(join(root(), "dist")), args[0]);
    const ask = () => askOnce(args, env);
    assert.match(await ask(), /"name":"vendor"/);
    await run("mcpSafeReplay.revokeClient", { client: given.name });
    assert.match(await ask(), /"error"/);
    await assert.rejects(run("mcpSafeReplay.revokeClient", { client: given.name }));
  });

  it("keeps the port that its configuration names", async () => {
    await hostProgram("ported", "The Vendor", [join(root(), "test", "servers", "vendor", "vendor-server.ts")]);
    const configuration = () => vscode.workspace.getConfiguration("mcpSafeReplay");
    const kept = () => configuration().inspect<number>("gateway.port")?.globalValue;
    assert.equal(kept() ?? 0, 0);
    await configuration().update("gateway.tcp", true, vscode.ConfigurationTarget.Global);
    try {
      const copy = () => run("mcpSafeReplay.copyGatewayConfiguration", { client: "mcp.json", servers: ["ported"], way: "http" });
      const given = await eventually("the port to be open", copy);
      const entry = (
        JSON.parse(given.snippet) as { mcpServers: Record<string, { url: string; headers: Record<string, string> }> }
      ).mcpServers["ported"]!;
      assert.equal(kept(), Number(new URL(entry.url).port));
      // The same port, before and after VS Code has taken the setting in.
      const answers = async () =>
        (
          await fetch(entry.url, {
            method: "POST",
            headers: { ...entry.headers, "content-type": "application/json", accept: "application/json, text/event-stream" },
            body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping" }),
          })
        ).status;
      assert.equal(await answers(), 200);
      assert.equal(
        (JSON.parse((await copy())!.snippet) as typeof given & { mcpServers: { ported: { url: string } } }).mcpServers.ported.url,
        entry.url,
      );
      // Closed and opened again: as after a reload.
      await configuration().update("gateway.tcp", false, vscode.ConfigurationTarget.Global);
      await eventually("the port to be closed", () =>
        answers().then(
          () => undefined,
          () => true,
        ),
      );
      await configuration().update("gateway.tcp", true, vscode.ConfigurationTarget.Global);
      assert.equal(await eventually("the port to be open again", answers), 200);
    } finally {
      for (const key of ["gateway.tcp", "gateway.port"])
        await configuration().update(key, undefined, vscode.ConfigurationTarget.Global);
    }
  });
});

/** What the configured program answers to `initialize`. */
async function askOnce(args: readonly string[], env: Readonly<Record<string, string>>): Promise<string> {
  const child = spawn(nodeProgram(), [...args], { env: { ...process.env, ...env }, stdio: ["pipe", "pipe", "ignore"] });
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (said += text));
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "other", version: "1" } };
  child.stdin.end(`${JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params })}\n`);
  await once(child, "close");
  return said;
}
