import { describe, expect, it } from "vitest";
import type { Ending } from "../../../src/hosting/evidence.ts";
import { child, lives } from "./fixtures/child.ts";
import { connected, host, recorder } from "./fixtures/host.ts";

const call = (name: string) => ({ name, arguments: { night: "2026-12-24" } });
const lost = (loss: Record<string, unknown>): Ending => ({ kind: "loss", loss }) as unknown as Ending;

describe("a call lost over stdio", () => {
  it.each([
    ["exit", "the process ends before the answer", "process-exit"],
    ["kill", "the process is killed", "process-exit"],
    ["half-line", "half of the answer's line, then the end", "process-exit"],
    ["close-stdout", "stdout is closed while the process lives", "stdout-closed"],
  ])("%s: %s", async (name, _what, kind) => {
    const server = child();
    const { connection } = await connected(server.definition);
    const seen = recorder();
    expect(await connection.prepareCall(call(name), seen).send()).toEqual(lost({ kind, stage: "sent" }));
    expect(seen.stages).toEqual(["sending", "sent"]);
    expect(server.received("tools/call")).toHaveLength(1);
    expect(connection.open).toBe(false);
    expect((await connection.closed).kind).toBe(kind);
  });

  it("EPIPE: the failed write is lost at once, and an earlier call is not left hanging", async () => {
    const server = child();
    const { connection } = await connected(server.definition);
    const closed = new Promise<void>((resolve) => {
      connection.onMessage((message) => (message["method"] === "notifications/message" ? resolve() : undefined));
    });
    const earlier = connection.prepareCall(call("close-stdin"), {}).send();
    await closed;
    const started = performance.now();
    const ending = await connection.prepareCall(call("answer"), {}).send();
    expect(ending).toEqual(lost({ kind: "stdin-closed", stage: "sending" }));
    expect(performance.now() - started).toBeLessThan(1_000);
    expect(connection.open).toBe(false);
    expect((await earlier).kind).toBe("loss");
    expect(server.received("tools/call")).toHaveLength(1);
  });

  it("nothing is written once the connection is over", async () => {
    const server = child();
    const { connection } = await connected(server.definition);
    await connection.prepareCall(call("exit"), {}).send();
    const seen = recorder();
    expect(await connection.prepareCall(call("answer"), seen).send()).toEqual(lost({ kind: "not-connected", stage: "not-sent" }));
    expect(seen.stages).toEqual([]);
    expect(server.received("tools/call")).toHaveLength(1);
  });

  it("closing it loses what is under way as closed here", async () => {
    const server = child();
    const { connection } = await connected(server.definition);
    const seen = recorder();
    const ending = connection.prepareCall(call("hang"), seen).send();
    await expect.poll(() => seen.stages).toContain("sent");
    await connection.close();
    expect(await ending).toEqual(lost({ kind: "closed-here", stage: "sent" }));
  });
});

describe("answers over stdio", () => {
  it.each([
    ["garbage", "lines that are no JSON-RPC come before it"],
    ["whole-line-without-end", "its line is whole but for the line's end when the process ends"],
    ["answer-then-exit", "the process ends right after it"],
    ["twice", "it comes twice: the first counts"],
    ["batch", "it comes in a batch, with fields that nobody knows"],
  ])("%s: %s", async (name) => {
    const { connection, log } = await connected(child().definition);
    const ending = await connection.prepareCall(call(name), {}).send();
    expect(ending).toMatchObject({ kind: "answer", answer: { result: { content: [{ type: "text", text: name }] } } });
    if (name === "garbage") {
      expect(log.filter((line) => line.level === "warning")).toHaveLength(4);
      await expect.poll(() => log.map((line) => line.text)).toContain("a warning");
    }
  });

  it("of any size", { timeout: 60_000 }, async () => {
    const { connection } = await connected(child().definition);
    const ending = await connection.prepareCall(call("big"), {}).send();
    expect(JSON.stringify(ending).length).toBeGreaterThan(20_000_000);
  });

  it("come with the caller's own progress token", async () => {
    const server = child();
    const { connection } = await connected(server.definition);
    const seen = recorder();
    const prepared = connection.prepareCall({ ...call("progress"), _meta: { progressToken: 7, other: true } }, seen);
    await prepared.send();
    expect(seen.progressed).toEqual([{ progressToken: 7, progress: 1 }]);
    expect(server.received("tools/call")[0]?.["params"]).toMatchObject({ _meta: { progressToken: prepared.rpcId, other: true } });
  });

  it("come late to an observer whose call was already given up", async () => {
    const server = child();
    const { connection } = await connected(server.definition);
    const ending = await connection.request("tools/call", call("hang"), { timeoutMs: 20 });
    expect(ending).toEqual(lost({ kind: "cancelled-here", stage: "sent" }));
    await expect.poll(() => server.received("notifications/cancelled")).toHaveLength(1);
    expect(server.received("notifications/cancelled")[0]?.["params"]).toMatchObject({
      requestId: server.received("tools/call")[0]?.["id"],
    });
  });
});

describe("a server's own requests", () => {
  it("are answered here or declined, when no capability was declared", async () => {
    const server = child();
    const { connection } = await connected(server.definition);
    connection.onMessage(() => undefined);
    await connection.prepareCall(call("ask"), {}).send();
    const answers = () => server.entries().filter((entry) => String(entry["id"]).startsWith("server-"));
    await expect.poll(answers).toHaveLength(3);
    expect(answers()).toMatchObject([
      { id: "server-1", result: {} },
      { id: "server-2", error: { code: -32601 } },
      { id: "server-3", error: { code: -32601 } },
    ]);
  });

  it("reach a listener when the capability was declared, and its answer goes back", async () => {
    const server = child();
    const { server: hosted, connection } = await connected(server.definition, { capabilities: { elicitation: {} } });
    hosted.onMessage((message, on) => {
      if (message["method"] === "elicitation/create")
        on.respond({ jsonrpc: "2.0", id: message["id"] as string, result: { action: "decline" } });
    });
    await connection.prepareCall(call("ask"), {}).send();
    await expect
      .poll(() => server.entries().find((entry) => entry["id"] === "server-3"))
      .toMatchObject({ result: { action: "decline" } });
    expect(server.received("initialize")[0]?.["params"]).toMatchObject({ capabilities: { elicitation: {} } });
  });

  it("go to the one call that is under way, so that its clock can stand still", async () => {
    const server = child();
    const { server: hosted, connection } = await connected(server.definition, { capabilities: { elicitation: {} } });
    const strays: unknown[] = [];
    hosted.onMessage((message) => strays.push(message["method"]));
    const related: unknown[] = [];
    const observer = {
      related: (message: Record<string, unknown>) => {
        related.push(message["method"]);
        connection.respond({ jsonrpc: "2.0", id: message["id"] as string, result: { action: "accept" } });
      },
    };
    await connection.prepareCall(call("ask"), observer).send();
    await expect
      .poll(() => server.entries().find((entry) => entry["id"] === "server-3"))
      .toMatchObject({ result: { action: "accept" } });
    expect(related).toContain("elicitation/create");
    expect(strays).not.toContain("elicitation/create");
  });

  it("are declined when the capability was declared but nobody listens", async () => {
    const server = child();
    const { connection } = await connected(server.definition, { capabilities: { sampling: {}, elicitation: {} } });
    await connection.prepareCall(call("ask"), {}).send();
    await expect
      .poll(() => server.entries().find((entry) => entry["id"] === "server-2"))
      .toMatchObject({ error: { code: -32601 } });
  });
});

describe("the process", () => {
  it("that cannot be started is a clear error", async () => {
    const { server } = host({ type: "stdio", command: "/no/such/program", args: [], env: {} });
    await expect(server.connect()).rejects.toMatchObject({ kind: "spawn-failed" });
    expect(server.status).toMatchObject({ state: "failed", reason: "The server's program could not be started." });
  });

  it("inherits few variables and gets those of its definition", async () => {
    const server = child();
    process.env["HOSTING_TEST_SECRET"] = "1";
    await connected({ ...server.definition, env: { OWN: "1" } });
    delete process.env["HOSTING_TEST_SECRET"];
    const names = server.entries()[0]?.["env"];
    expect(names).toContain("OWN");
    expect(names).toContain("PATH");
    expect(names).not.toContain("HOSTING_TEST_SECRET");
  });

  it("ends by itself when its stdin is closed", async () => {
    const server = child();
    const { server: hosted } = await connected(server.definition);
    const [pid = 0] = server.pids();
    expect(lives(pid)).toBe(true);
    await hosted.stop();
    expect(lives(pid)).toBe(false);
    expect(server.entries().at(-1)).toEqual({ end: "stdin" });
  });

  it("that ignores the end of its stdin gets SIGTERM, then SIGKILL", async () => {
    const server = child("stubborn");
    const { server: hosted } = await connected(server.definition, { limits: { grace: 100 } });
    const [pid = 0] = server.pids();
    await hosted.stop();
    expect(lives(pid)).toBe(false);
    expect(server.entries().slice(-2)).toEqual([{ end: "stdin" }, { signal: "SIGTERM" }]);
  });

  it("takes its own children with it", async () => {
    const server = child("grandchild");
    const { server: hosted } = await connected(server.definition);
    const grandchild = server.entries().find((entry) => "grandchild" in entry)?.["grandchild"] as number;
    expect(lives(grandchild)).toBe(true);
    await hosted.stop();
    await expect.poll(() => lives(grandchild)).toBe(false);
  });

  it("whose child holds the pipes does not keep a caller waiting when it ends", async () => {
    const server = child("grandchild");
    const { connection } = await connected(server.definition);
    const ending = await connection.prepareCall(call("exit"), {}).send();
    expect(ending).toEqual(lost({ kind: "process-exit", stage: "sent" }));
    const grandchild = server.entries().find((entry) => "grandchild" in entry)?.["grandchild"] as number;
    await expect.poll(() => lives(grandchild)).toBe(false);
  });
});
