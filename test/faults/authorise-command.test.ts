/**
 * Owns: authorising a remote server from the command line, and that `serve` uses what was kept: real processes, a real authorisation server.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { afterEach, beforeEach, expect, it } from "vitest";
import { AuthorisationServer } from "../servers/auth/authorisation-server.ts";
import { startHttpFaultServer, type HttpFaultServer } from "../servers/fault/http-fault-server.ts";
import { Headless, headlessFile, runHeadless } from "../support/headless.ts";

let program: Headless;
let as: AuthorisationServer;
let server: HttpFaultServer;
beforeEach(async () => {
  program = new Headless();
  as = await AuthorisationServer.start();
  server = await startHttpFaultServer({ binding: "http-json", ledger: join(program.folder.path, "ledger"), sync: false });
  const challenge = as.protects(server.url);
  server.setToken("none yet", challenge);
  as.onToken = (token) => server.setToken(token);
  server.script({ do: "unauthorised", challenge });
});
afterEach(async () => {
  await program.remove();
  await server.close();
  await as.close();
});

/** Runs `authorise`; the person opens the page that it prints. */
async function authorise(): Promise<{ code: number; stdout: string; stderr: string }> {
  const args = ["authorise", "bank", "--config", program.configFile, "--journal-dir", program.journalDir];
  const child = spawn(process.execPath, [headlessFile, ...args], { stdio: ["ignore", "pipe", "pipe"] });
  const out = { stdout: "", stderr: "" };
  let page: string | undefined;
  child.stdout.setEncoding("utf8").on("data", (text: string) => (out.stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    out.stderr += text;
    const printed = /^ {2}(http:\S+)$/m.exec(out.stderr)?.[1];
    if (printed === undefined || page !== undefined) return;
    page = printed;
    // Redirects and all.
    void fetch(printed).then((response) => response.text());
  });
  const [code] = (await once(child, "close")) as [number | null];
  return { code: code ?? -1, ...out };
}

it("prints the page, waits for its redirect, keeps the token privately, and serve uses it", async () => {
  const config = { servers: { bank: { type: "http", url: server.url } }, workspaceTrusted: true };
  writeFileSync(program.configFile, JSON.stringify(config));
  const ran = await authorise();
  expect([ran.code, ran.stdout]).toEqual([0, "bank: it is authorised.\n"]);
  expect(ran.stdout + ran.stderr).not.toMatch(/as-(token|refresh|code)/);

  const file = join(program.journalDir, "grants.json");
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(readFileSync(file, "utf8")).toContain("as-token-1");

  await program.serve(config);
  const client = new Client({ name: "a real agent", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(program.urls["bank"] ?? "")));
  const result = await client.callTool({ name: "charge", arguments: { account: "a", amount: 1 } });
  await client.close();
  // Its first request was refused by the script, so it came with a renewed token.
  expect(result.isError).not.toBe(true);
  expect(server.effects().length).toBe(1);
  expect(new Set(server.calls().map(({ rpcId }) => rpcId)).size).toBe(2);
  const [operation] = await program.operations();
  expect(operation?.attempts.map(({ outcome }) => outcome)).toEqual(["not-executed", "observed"]);
  expect(program.stderr + JSON.stringify(await program.operations())).not.toMatch(/as-(token|refresh|code)/);

  const args = ["authorise", "bank", "--config", program.configFile, "--journal-dir", program.journalDir, "--forget"];
  expect((await runHeadless(args)).stdout).toBe("bank: the authorisation was forgotten.\n");
  expect(readFileSync(file, "utf8")).not.toContain("as-token");
});

it("says in one line why it came to nothing, and ends with 1", async () => {
  writeFileSync(program.configFile, JSON.stringify({ servers: { bank: { type: "http", url: server.url } } }));
  as.behaviour.person = "denies";
  const ran = await authorise();
  expect([ran.code, ran.stdout]).toEqual([1, ""]);
  expect(ran.stderr).toContain("bank: The authorisation was denied.\n");
  expect(ran.stderr).not.toContain("words of the authorisation server");
});

it("is bad usage without a server of that name", async () => {
  writeFileSync(program.configFile, JSON.stringify({ servers: {} }));
  const args = ["authorise", "bank", "--config", program.configFile, "--journal-dir", program.journalDir];
  expect(await runHeadless(args)).toMatchObject({ code: 2, stdout: "" });
});
