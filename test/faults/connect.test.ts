/** The command line program towards other clients: the stdio bridge, a configuration that is read again, the structured log. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface, type Interface } from "node:readline";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { startHttpFaultServer, type HttpFaultServer } from "../servers/fault/http-fault-server.ts";
import { Headless, headlessFile, runHeadless } from "../support/headless.ts";
import { repositoryRoot } from "../support/paths.ts";

let program: Headless;
let faults: HttpFaultServer;
const children: ChildProcess[] = [];
beforeEach(async () => {
  program = new Headless();
  faults = await startHttpFaultServer({ binding: "http-json", ledger: join(program.folder.path, "ledger") });
});
afterEach(async () => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  await faults.close();
  await program.remove();
});

interface Bridge {
  readonly child: ChildProcess;
  readonly lines: AsyncIterator<string>;
  say(message: Record<string, unknown>): void;
  next(): Promise<Record<string, unknown>>;
  readonly ended: Promise<number | null>;
}

function bridge(args: readonly string[], env: Record<string, string> = {}): Bridge {
  const child = spawn(process.execPath, [headlessFile, "connect", ...args], {
    stdio: ["pipe", "pipe", "ignore"],
    env: { ...process.env, ...env },
  });
  children.push(child);
  const reader: Interface = createInterface({ input: child.stdout });
  const lines = reader[Symbol.asyncIterator]();
  return {
    child,
    lines,
    say: (message) => void child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`),
    next: async () => JSON.parse((await lines.next()).value as string) as Record<string, unknown>,
    ended: once(child, "exit").then(([code]) => code as number | null),
  };
}

const initialize = {
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "a stdio client", version: "1" } },
};
const charge = { id: 2, method: "tools/call", params: { name: "charge", arguments: { amount: 7 } } };
const textOf = (message: Record<string, unknown>) =>
  (message["result"] as { content: { text: string }[] }).content[0]?.text ?? "";
const config = () => ({ servers: { shop: { type: "http", url: faults.url } }, workspaceTrusted: true });

describe("connect", () => {
  it("needs the token on a port, passes a call on once, and ends with its client", async () => {
    const token = "a token of thirty characters..".replaceAll(" ", "-");
    const tokenFile = join(program.folder.path, "token");
    writeFileSync(tokenFile, token);
    await program.serve(config(), ["--token-file", tokenFile]);
    const stranger = bridge(["shop", "--url", program.listening]);
    stranger.say(initialize);
    expect(await stranger.next()).toMatchObject({ id: 1, error: {} });

    const client = bridge(["shop", "--url", program.listening], { MCP_SAFE_REPLAY_TOKEN: token });
    client.say(initialize);
    expect(await client.next()).toMatchObject({ id: 1, result: { protocolVersion: "2025-11-25" } });
    client.say({ method: "notifications/initialized" });
    client.say(charge);
    expect(await client.next()).toMatchObject({ id: 2, result: { content: [{ type: "text" }] } });
    client.child.stdin?.end();
    expect(await client.ended).toBe(0);
    expect(faults.ledger.effects({ tool: "charge" })).toHaveLength(1);
  });

  it("answers, and sends nothing again, when the gateway dies in the middle of a call", async () => {
    const socket = join(program.folder.path, "s", "gateway");
    await program.serve(config(), ["--listen", `unix:${socket}`]);
    faults.script({ do: "hang" });
    const client = bridge(["shop", "--socket", socket]);
    client.say(initialize);
    await client.next();
    client.say(charge);
    await faults.ledger.until((ledger) => ledger.calls("charge").length === 1);
    await program.end("SIGKILL");
    const lost = await client.next();
    expect(lost).toMatchObject({ id: 2, result: { isError: true } });
    expect(textOf(lost)).toMatch(/may have run.*Do not repeat it automatically/);
    client.say({ ...charge, id: 3 });
    const refused = await client.next();
    expect(refused).toMatchObject({ id: 3, result: { isError: true } });
    expect(textOf(refused)).toContain("Nothing was sent; calling again is safe");
    client.child.kill("SIGTERM");
    expect(await client.ended).toBe(0);
    expect(faults.calls()).toHaveLength(1);
  });

  it("says what is wrong with its arguments", async () => {
    for (const [args, message] of [
      [["shop"], "exactly one of --socket PATH, --url URL and --gateways DIR"],
      [["shop", "--url", "https://example.com/"], "of this machine"],
      [["--socket", "/x"], "name exactly one server"],
      [["shop", "--gateways", program.folder.path], "no window with a running gateway"],
    ] as const) {
      const ran = await runHeadless(["connect", ...args]);
      expect(ran.code).toBe(2);
      expect(ran.stderr).toContain(message);
    }
  });
});

describe.skipIf(process.platform === "win32")("serve", () => {
  const said = (text: string) => expect.poll(() => program.stderr, { timeout: 60_000 }).toContain(text);

  it("reads its configuration again on SIGHUP; a mistake leaves the old one running and is said", async () => {
    await program.serve(config());
    const list = async (name: string) => {
      const response = await fetch(`${program.listening}/servers/${name}/mcp`, {
        method: "POST",
        headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
        body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" }),
      });
      return response.status;
    };
    expect(await list("shop")).toBe(200);
    expect(await list("second")).toBe(404);

    writeFileSync(program.configFile, '{"servers": {"shop": {"type": "stdio"}}}');
    process.kill(program.pid!, "SIGHUP");
    await said("the configuration was not changed: servers.shop");
    expect(await list("shop")).toBe(200);

    const two = { ...config(), servers: { ...config().servers, second: { type: "http", url: faults.url } } };
    writeFileSync(program.configFile, JSON.stringify(two));
    process.kill(program.pid!, "SIGHUP");
    await said("was read again: shop, second");
    expect(await list("second")).toBe(200);
    expect(await program.end()).toBe(0);
  });

  it("logs one JSON object a line with --log-format json, without arguments of calls", async () => {
    const everything = join(repositoryRoot, "node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    await program.serve({ servers: { e: { type: "stdio", command: process.execPath, args: [everything, "stdio"] } } }, [
      "--no-token",
      "--log-format",
      "json",
    ]);
    const client = bridge(["e", "--url", program.listening]);
    client.say(initialize);
    await client.next();
    client.say({ id: 2, method: "tools/call", params: { name: "echo", arguments: { message: "a-private-word" } } });
    expect(textOf(await client.next())).toContain("a-private-word");
    await program.end();
    const lines = program.stderr.trim().split("\n");
    expect(lines.length).toBeGreaterThan(1);
    for (const line of lines) expect(JSON.parse(line)).toMatchObject({ time: expect.any(String), level: expect.any(String) });
    expect(program.stderr).not.toContain("a-private-word");
  });
});
