import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { HostingError } from "../../../src/hosting/connection.ts";
import type { Journal } from "../../../src/operations/journal.ts";
import { JournalError } from "../../../src/operations/journal.ts";
import { openSqliteJournal } from "../../../src/operations/sqlite-journal.ts";
import { operationMetaKey } from "../../../src/replay/answers.ts";
import { CallManager } from "../../../src/replay/call-manager.ts";
import type { CallAnswer, CallHooks } from "../../../src/replay/calls.ts";
import type { Contracts } from "../../../src/replay/contracts.ts";
import { defaultReplaySettings, type ReplaySettings } from "../../../src/replay/settings.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { answer, FakeServer, loss, resultText, rpcError, type Step } from "../../support/fake-hosting.ts";
import { temporaryFolder } from "../../support/temp.ts";

const inputSchema = { type: "object" };
const tools = () => [
  { name: "charge", inputSchema },
  { name: "put", inputSchema, annotations: { idempotentHint: true } },
  { name: "lookup", inputSchema, annotations: { readOnlyHint: true } },
  { name: "contradictory", inputSchema, annotations: { readOnlyHint: true, idempotentHint: true, destructiveHint: true } },
];
const secret = "card 4242-4242";

let folder: { path: string; remove(): void };
let journal: Journal;
let server: FakeServer;
let clock: FakeClock;
let settings: ReplaySettings;
let workspaceTrusted: boolean;
let trusted: boolean;
let calls: CallManager;
let failing: JournalError | undefined;
let contracts: Contracts;

beforeEach(() => {
  folder = temporaryFolder();
  const real = openSqliteJournal({ directory: folder.path, watchMs: 0 });
  journal = real;
  failing = undefined;
  contracts = new Map();
  server = new FakeServer("shop", tools());
  clock = new FakeClock();
  clock.instantBelow = 2_500;
  settings = { ...defaultReplaySettings, requestTimeoutMs: 60_000 };
  workspaceTrusted = true;
  trusted = true;
  calls = new CallManager({
    journal: new Proxy(real, {
      get(target, key) {
        if (key === "append" && failing) return () => Promise.reject(new JournalError("unwritable", failing?.message ?? ""));
        const value = Reflect.get(target, key) as unknown;
        return typeof value === "function" ? (value as (...args: unknown[]) => unknown).bind(target) : value;
      },
    }),
    servers: () => new Map([["shop", server]]),
    trust: {
      workspaceTrusted: () => workspaceTrusted,
      serverTrustSetting: () => trusted,
      consentFingerprint: () => "fingerprint",
    },
    settings: () => settings,
    contracts: () => contracts,
    clock,
    random: () => 0.5,
    log: () => undefined,
  });
});
afterEach(async () => {
  await journal.close();
  folder.remove();
});

const call = (
  tool: string,
  args: Record<string, unknown> = { note: secret },
  hooks: CallHooks = {},
  client = "agent",
  conversationId?: string,
): Promise<CallAnswer> =>
  calls.call(
    {
      server: "shop",
      tool,
      arguments: args,
      params: { name: tool, arguments: args },
      caller: { client, ...(conversationId === undefined ? {} : { conversationId }) },
    },
    hooks,
  );
const mark = (given: CallAnswer) =>
  given.kind === "result" ? (given.result["_meta"] as Record<string, unknown> | undefined)?.[operationMetaKey] : undefined;
const only = async () => {
  const list = await journal.operations({});
  expect(list).toHaveLength(1);
  return list[0]!;
};
const lose =
  (kind: Parameters<typeof loss>[0] = "reset", fields: Parameters<typeof loss>[1] = {}): Step =>
  () =>
    loss(kind, fields);
const nextTurn = () => new Promise<void>((done) => setImmediate(done));

describe("a call that is answered", () => {
  it("passes the server's own result on unchanged", async () => {
    server.script = [() => answer("booked", "x", { structuredContent: { a: 1 }, unknownField: [1] })];
    const given = await call("charge");
    expect(given).toMatchObject({
      kind: "result",
      result: { content: [{ type: "text", text: "booked" }], structuredContent: { a: 1 }, unknownField: [1] },
    });
    expect(Object.keys((given as { result: object }).result).sort()).toEqual(["content", "structuredContent", "unknownField"]);
    expect(await only()).toMatchObject({ state: "completed", reason: "answered" });
  });

  it("passes a JSON-RPC error and an isError result on as what they are: answers", async () => {
    server.script = [() => rpcError(-32602, "bad"), () => answer("failed", "x", { isError: true })];
    expect(await call("charge")).toMatchObject({ kind: "error", error: { code: -32602, message: "bad" } });
    expect(await call("charge")).toMatchObject({ kind: "error" }); // the recorded answer: the first was never delivered
    const other = await call("charge", { other: 1 });
    expect(other).toMatchObject({ kind: "result", result: { isError: true } });
    expect((await journal.operations({})).every((one) => one.state === "completed")).toBe(true);
  });

  it("is on disk before its first byte leaves", async () => {
    server.script = [
      async () => {
        const at = await journal.operations({ states: ["in-flight"] });
        return answer(at.length === 1 ? "journaled" : "not journaled");
      },
    ];
    expect(resultText(await call("charge"))).toBe("journaled");
  });
});

describe("a call whose answer is lost", () => {
  it("is unresolved, sent once, and its text is stable and free of arguments", async () => {
    server.script = [lose("reset")];
    const given = await call("charge");
    const { id } = await only();
    expect(await only()).toMatchObject({ state: "unresolved", reason: "connection-lost" });
    expect(server.requests).toHaveLength(1);
    expect(server.rediscoveries).toBe(0);
    expect(mark(given)).toEqual({ id, state: "unresolved", reason: "connection-lost", attempts: 1 });
    expect(resultText(given)).toBe(
      `UNRESOLVED: this tool call may have completed before its answer was lost (the connection was lost before the answer arrived). ` +
        `It was not repeated. Do not repeat it automatically: calling again could do it twice. First verify whether it took effect, for example with a tool that only reads, ` +
        `or ask the person to reconcile it in MCP Safe Replay. Operation ${id}.`,
    );
    expect(JSON.stringify(given)).not.toContain("4242");
  });

  it.each([
    ["a process exit", lose("process-exit"), "process-exit"],
    ["a truncated body", lose("truncated", { httpStatus: 200 }), "answer-unreadable"],
    ["HTTP 503", lose("http-status", { httpStatus: 503 }), "http-status"],
    ["a redirect", lose("redirected", { httpStatus: 307 }), "redirected"],
    ["a stop of the server", lose("closed-here"), "server-stopped"],
  ])("by %s is unresolved with its reason", async (_, step, reason) => {
    server.script = [step];
    await call("charge");
    expect(await only()).toMatchObject({ state: "unresolved", reason });
    expect(server.requests).toHaveLength(1);
  });

  it("is replayed when gate and both trusts allow it, with a new RPC id, and the caller just gets the answer", async () => {
    server.script = [lose(), () => answer("saved")];
    const given = await call("put");
    expect(resultText(given)).toBe("saved");
    expect(mark(given)).toMatchObject({ state: "completed", via: "replayed", attempts: 2 });
    expect(new Set(server.requests.map((request) => request.rpcId)).size).toBe(2);
    expect(await only()).toMatchObject({
      state: "completed",
      reason: "replayed",
      attempts: [{ outcome: "unknown" }, { outcome: "observed", cause: "replay" }],
    });
    expect((await journal.events((await only()).id)).map((event) => event.type)).toEqual([
      "prepared",
      "sent",
      "lost",
      "replayed",
      "sent",
      "answered",
    ]);
  });

  it.each([
    ["server", () => (trusted = false)],
    ["workspace", () => (workspaceTrusted = false)],
  ])("is not replayed without %s trust", async (_, withdraw) => {
    withdraw();
    server.script = [lose()];
    await call("put");
    expect(await only()).toMatchObject({ state: "unresolved" });
    expect(server.requests).toHaveLength(1);
    expect(server.rediscoveries).toBe(0);
  });

  it.each([
    ["trust is withdrawn", () => (trusted = false)],
    ["the workspace loses trust", () => (workspaceTrusted = false)],
    ["the tool is gone", () => (server.toolsLater = [])],
    [
      "its schema changed",
      () =>
        (server.toolsLater = [
          { name: "put", inputSchema: { type: "object", required: ["x"] }, annotations: { idempotentHint: true } },
        ]),
    ],
    ["its hint is gone", () => (server.toolsLater = [{ name: "put", inputSchema }])],
    ["another server answers", () => (server.serverName = "impostor")],
  ])("is not replayed when during the reconnect %s", async (_, change) => {
    server.script = [lose()];
    server.onRediscover = () => void change();
    await call("put");
    expect(await only()).toMatchObject({ state: "unresolved" });
    expect(server.requests).toHaveLength(1);
    expect(server.rediscoveries).toBe(1);
  });

  it("makes 1 + 3 attempts at most", async () => {
    server.script = [lose(), lose(), lose(), lose(), () => answer("too late")];
    const given = await call("put");
    expect(server.requests).toHaveLength(4);
    expect(mark(given)).toMatchObject({ state: "unresolved", attempts: 4 });
  });

  it("never replays a tool that contradicts itself", async () => {
    server.script = [lose()];
    await call("contradictory");
    expect(server.requests).toHaveLength(1);
    expect(await only()).toMatchObject({ state: "unresolved", intention: { provenRead: false, declaredRead: false } });
  });

  it("of a proven read is read again and the answer marked as a new observation", async () => {
    server.script = [lose(), () => answer("7 left")];
    const given = await call("lookup");
    expect(resultText(given)).toBe("7 left");
    expect((given as { result: Record<string, Record<string, unknown>> }).result["_meta"]).toMatchObject({
      "mcp-safe-replay/observation": "new",
    });
  });

  it("of a proven read that stays lost says that reading again is safe, and leaves nothing unresolved", async () => {
    settings = { ...settings, reads: false };
    server.script = [lose()];
    const given = await call("lookup");
    expect(resultText(given)).toContain("reading again is safe");
    expect(await only()).toMatchObject({ state: "dismissed", reason: "connection-lost" });
  });

  it("is recovered by its cursor: no further request", async () => {
    server.script = [
      ({ observer }) => {
        observer.cursor?.({ eventId: "e1", sessionId: "session", protocolVersion: "2025-11-25", retryMs: 5 });
        return loss("stream-ended");
      },
    ];
    const asked: unknown[] = [];
    server.resume = (rpcId, cursor) => {
      asked.push(cursor);
      return Promise.resolve(answer("recovered", rpcId));
    };
    const given = await call("charge");
    expect(resultText(given)).toBe("recovered");
    expect(mark(given)).toMatchObject({ state: "completed", via: "recovered", attempts: 1 });
    expect(server.requests).toHaveLength(1);
    expect(asked).toEqual([{ eventId: "e1", sessionId: "session", protocolVersion: "2025-11-25", retryMs: 5 }]);
  });
});

describe("a call that never ran", () => {
  it("is not executed when there is no connection to be had", async () => {
    server.connectError = new HostingError("connect-refused", "no");
    const given = await call("charge");
    expect(resultText(given)).toContain("calling again is safe");
    expect(await only()).toMatchObject({ state: "not-executed", reason: "not-sent", attempts: [] });
  });

  it("is sent again without the gate when it provably never left", async () => {
    trusted = false;
    server.script = [lose("connect-refused", { stage: "not-sent" }), () => answer("done")];
    const given = await call("charge");
    expect(resultText(given)).toBe("done");
    expect(mark(given)).toMatchObject({ via: "resent" });
    expect(await only()).toMatchObject({ state: "completed" });
  });

  it("gives up after the same bound", async () => {
    server.script = Array.from({ length: 9 }, () => lose("connect-refused", { stage: "not-sent" }));
    await call("charge");
    expect(server.requests).toHaveLength(4);
    expect(await only()).toMatchObject({ state: "not-executed", reason: "not-sent" });
  });

  it("is not executed when the server refused it", async () => {
    server.script = [lose("http-status", { stage: "answering", httpStatus: 429, bodyIsJsonOrEmpty: true })];
    await call("charge");
    expect(await only()).toMatchObject({ state: "not-executed", reason: "refused" });
    expect(server.requests).toHaveLength(1);
  });

  it("is not sent again in a new session when it is consequential; a proven read is", async () => {
    const gone = lose("session-gone", { stage: "answering", httpStatus: 404, bodyIsJsonOrEmpty: true });
    server.script = [gone];
    await call("charge");
    expect(server.requests).toHaveLength(1);
    expect(await only()).toMatchObject({ state: "not-executed", reason: "session-gone" });
    server.script = [gone, () => answer("read")];
    expect(resultText(await call("lookup"))).toBe("read");
    expect(server.requests).toHaveLength(3);
  });

  it("is refused when the journal cannot be written, and nothing is sent", async () => {
    failing = new JournalError("unwritable", "The disk is full.");
    const given = await call("charge");
    expect(resultText(given)).toContain("NOT EXECUTED");
    expect(resultText(given)).toContain("The disk is full");
    expect(server.requests).toHaveLength(0);
  });

  it("still reads when the journal cannot be written", async () => {
    failing = new JournalError("unwritable", "The disk is full.");
    expect(resultText(await call("lookup"))).toBe("ok");
  });

  it("is refused when the server lists no such tool, or is not hosted", async () => {
    expect(resultText(await call("gone"))).toContain("lists no tool named 'gone'");
    expect(server.requests).toHaveLength(0);
  });
});

describe("waiting", () => {
  const never: Step = () => new Promise(() => undefined);

  it("ends at the time limit for a consequential call, which goes on being listened to; its late answer completes it", async () => {
    let release: (ending: ReturnType<typeof answer>) => void = () => undefined;
    server.script = [() => new Promise((done) => (release = done))];
    const pending = call("put");
    await nextTurn();
    clock.advance(60_000);
    const given = await pending;
    expect(mark(given)).toMatchObject({ state: "unresolved", reason: "timeout" });
    expect(server.requests).toHaveLength(1); // a timeout is never replayed, not even for an idempotent tool
    expect(server.cancelled).toEqual([]);
    // The health monitor knows that it may ask the server now.
    expect(server.unattended).toEqual([server.requests[0]?.rpcId]);
    release(answer("late"));
    await nextTurn();
    expect(await only()).toMatchObject({ state: "completed", reason: "late-answer" });
    expect(resultText(await call("put"))).toBe("late"); // handed out once
    expect(server.requests).toHaveLength(1);
  });

  it("gives a read up at the time limit and tells the server", async () => {
    server.script = [never];
    const pending = call("lookup");
    await nextTurn();
    clock.advance(60_000);
    expect(resultText(await pending)).toContain("reading again is safe");
    expect(server.cancelled).toHaveLength(1);
    expect(server.requests).toHaveLength(1);
  });

  it("starts anew with every sign of life, and stands still while the server waits for the person", async () => {
    let seen: Parameters<Step>[0] | undefined;
    server.script = [
      (one) => {
        seen = one;
        return new Promise(() => undefined);
      },
    ];
    let answered: () => void = () => undefined;
    const pending = call("charge", {}, { related: () => new Promise<void>((done) => (answered = done)) });
    await nextTurn();
    clock.advance(59_000);
    seen?.observer.progress?.({ progress: 1 });
    clock.advance(59_000);
    seen?.observer.related?.({ id: 7, method: "elicitation/create" });
    clock.advance(600_000);
    answered();
    await nextTurn();
    clock.advance(59_000);
    expect(await journal.operations({ states: ["in-flight"] })).toHaveLength(1);
    clock.advance(1_000);
    expect(mark(await pending)).toMatchObject({ reason: "timeout" });
  });

  it("ends when the caller cancels: the signal is passed on, nothing is proved, nothing replayed", async () => {
    const controller = new AbortController();
    let release: (ending: ReturnType<typeof answer>) => void = () => undefined;
    server.script = [() => new Promise((done) => (release = done))];
    const pending = call("put", {}, { signal: controller.signal });
    await nextTurn();
    controller.abort();
    expect(mark(await pending)).toMatchObject({ state: "unresolved", reason: "cancelled" });
    expect(server.cancelled).toHaveLength(1);
    release(answer("after all"));
    await nextTurn();
    expect(await only()).toMatchObject({ state: "completed", reason: "late-answer" });
    expect(server.requests).toHaveLength(1);
  });

  it("does not send what was cancelled before it was sent", async () => {
    const given = await call("charge", {}, { signal: AbortSignal.abort() });
    expect(resultText(given)).toContain("NOT EXECUTED");
    expect(server.requests).toHaveLength(0);
    expect(await only()).toMatchObject({ state: "not-executed", reason: "cancelled" });
  });
});

describe("the duplicate guard", () => {
  it("holds an identical call while the first is unresolved, whatever the caller's ids and the order of its arguments", async () => {
    server.script = [lose()];
    await call("charge", { a: 1, b: 2 });
    const { id } = await only();
    const again = await call("charge", { b: 2, a: 1 }, {}, "another agent");
    expect(mark(again)).toMatchObject({ id, state: "held" });
    expect(resultText(again)).toContain(id);
    expect(server.requests).toHaveLength(1);
    expect((await journal.events(id)).map((event) => event.type)).toContain("held");
    await call("charge", { a: 1, b: 3 });
    expect(server.requests).toHaveLength(2);
  });

  it("does not hold a consistent read, trusted or not", async () => {
    trusted = false;
    server.script = [lose()];
    await call("lookup");
    expect(await only()).toMatchObject({ state: "unresolved", intention: { declaredRead: true } });
    expect(resultText(await call("lookup"))).toBe("ok");
  });

  it("lets it through when it is switched off or set to warn", async () => {
    server.script = [lose(), lose()];
    await call("charge");
    settings = { ...settings, duplicateGuard: { unresolved: "warn", undelivered: "warn", inFlight: "warn" } };
    expect(mark(await call("charge"))).toMatchObject({ state: "unresolved" });
    settings = { ...settings, duplicateGuard: { unresolved: "off", undelivered: "off", inFlight: "off" } };
    expect(resultText(await call("charge"))).toBe("ok");
    expect(server.requests).toHaveLength(3);
  });

  it("hands an answer that never arrived to the next identical call, once", async () => {
    server.script = [() => answer("booked 1"), () => answer("booked 2")];
    await call("charge"); // delivered() is never called: the agent was gone
    const recorded = await call("charge");
    expect(resultText(recorded)).toBe("booked 1");
    expect(mark(recorded)).toMatchObject({ via: "recorded", state: "completed" });
    expect(server.requests).toHaveLength(1);
    recorded.delivered();
    await nextTurn();
    expect(resultText(await call("charge"))).toBe("booked 2");
    expect(server.requests).toHaveLength(2);
  });

  /** What the second of two identical calls gets, how many are sent, and whether it is marked as a possible duplicate. */
  it.each<[keyof ReplaySettings["duplicateGuard"], "hold" | "warn" | "off", string, number, boolean]>([
    ["unresolved", "hold", "HELD", 1, false],
    ["unresolved", "warn", "second", 2, true],
    ["unresolved", "off", "second", 2, false],
    ["undelivered", "hold", "first", 1, false],
    ["undelivered", "warn", "second", 2, true],
    ["undelivered", "off", "second", 2, false],
    ["inFlight", "hold", "HELD", 1, false],
    ["inFlight", "warn", "second", 2, true],
    ["inFlight", "off", "second", 2, false],
  ])("has a setting for each part: %s, %s", async (part, mode, gets, sent, isMarked) => {
    settings = { ...settings, duplicateGuard: { unresolved: "off", undelivered: "off", inFlight: "off", [part]: mode } };
    let release: () => void = () => undefined;
    const released = new Promise<void>((done) => (release = done));
    const lost = part === "unresolved";
    server.script = [
      () => (part === "inFlight" ? released.then(() => answer("first")) : lost ? loss("reset") : answer("first")),
      () => answer("second"),
    ];
    const first = call("charge");
    if (part === "inFlight") await expect.poll(() => server.requests.length).toBe(1);
    else await first;
    const [{ id } = { id: "" }] = await journal.operations({});
    const second = await call("charge");
    release();
    await first;
    expect(resultText(second)).toContain(gets);
    expect(server.requests).toHaveLength(sent);
    const { possibleDuplicateOf } = (mark(second) ?? {}) as { possibleDuplicateOf?: string };
    expect(possibleDuplicateOf).toBe(isMarked ? id : undefined);
  });

  it("keeps a recorded answer for the same client and conversation", async () => {
    await call("charge", {}, {}, "agent", "one");
    await call("charge", {}, {}, "agent", "two");
    await call("charge", {}, {}, "someone else");
    expect(server.requests).toHaveLength(3);
  });

  it("does not keep it beyond its window", async () => {
    await call("charge");
    clock.advance(25 * 3600 * 1000);
    await call("charge");
    expect(server.requests).toHaveLength(2);
  });

  it("marks identical calls in flight at the same moment as possible duplicates, and sends both", async () => {
    let both: () => void = () => undefined;
    const arrived = new Promise<void>((done) => (both = done));
    server.script = [
      () => arrived.then(() => answer()),
      () => {
        both();
        return answer();
      },
    ];
    const [one, two] = await Promise.all([call("charge"), call("charge")]);
    expect(server.requests).toHaveLength(2);
    const marks = [mark(one), mark(two)].filter((given) => given !== undefined);
    expect(marks).toHaveLength(1);
    expect(marks[0]).toHaveProperty("possibleDuplicateOf");
  });

  it("holds identical calls in flight where the person asked for that", async () => {
    settings = { ...settings, duplicateGuard: { ...settings.duplicateGuard, inFlight: "hold" } };
    const given = await Promise.all([call("charge"), call("charge")]);
    expect(server.requests).toHaveLength(1);
    expect(given.filter((one) => resultText(one).startsWith("HELD"))).toHaveLength(1);
  });
});

describe("settling and repeating", () => {
  it("answers the next identical call from the record after 'it happened', once", async () => {
    server.script = [lose()];
    await call("charge");
    const { id } = await only();
    await calls.settle(id, "effect-confirmed", "seen in the provider's list", "person");
    const given = await call("charge");
    expect(resultText(given)).toContain("ALREADY DONE");
    expect(resultText(given)).toContain("seen in the provider's list");
    expect(given).toMatchObject({ result: { isError: false } });
    expect(server.requests).toHaveLength(1);
    given.delivered();
    await nextTurn();
    expect(resultText(await call("charge"))).toBe("ok");
  });

  it("repeats after 'it did not happen' as a new attempt of the same operation", async () => {
    server.script = [lose(), () => answer("booked")];
    await call("charge");
    const { id } = await only();
    await expect(calls.repeat(id, "x", {})).rejects.toMatchObject({ code: "not-unresolved" });
    await calls.settle(id, "no-effect", "not in the provider's list", "person");
    const given = await calls.repeat(id, "asked the provider", {});
    expect(resultText(given)).toBe("booked");
    expect(await only()).toMatchObject({ id, state: "completed", attempts: [{ cause: "call" }, { cause: "repeat" }] });
    expect(server.requests[1]?.params).toEqual({ name: "charge", arguments: { note: secret } });
    expect(server.requests[0]?.rpcId).not.toBe(server.requests[1]?.rpcId);
  });

  it("settles once, and only what is unresolved", async () => {
    server.script = [lose()];
    await call("charge");
    const { id } = await only();
    await calls.settle(id, "no-effect", "looked", "person");
    await expect(calls.settle(id, "effect-confirmed", "looked", "person")).rejects.toMatchObject({ code: "not-unresolved" });
    await expect(calls.settle("nothing", "dismissed", "", "person")).rejects.toMatchObject({ code: "unknown-operation" });
  });

  it("keeps a person's word when a late answer contradicts it, and flags the conflict", async () => {
    let release: (ending: ReturnType<typeof answer>) => void = () => undefined;
    server.script = [() => new Promise((done) => (release = done))];
    const pending = call("charge");
    await nextTurn();
    clock.advance(60_000);
    await pending;
    const { id } = await only();
    await calls.settle(id, "no-effect", "looked", "person");
    release(answer("booked after all"));
    await nextTurn();
    expect(await only()).toMatchObject({ state: "no-effect", conflict: true, settlement: { as: "no-effect" } });
    expect((await journal.events(id)).map((event) => event.type)).toEqual([
      "prepared",
      "sent",
      "lost",
      "held",
      "settled",
      "late-answer",
      "conflict",
    ]);
  });

  /** A settlement that a late answer contradicts. */
  async function contradicted(): Promise<string> {
    let release: (ending: ReturnType<typeof answer>) => void = () => undefined;
    server.script = [() => new Promise((done) => (release = done))];
    const pending = call("charge");
    await nextTurn();
    clock.advance(60_000);
    await pending;
    const { id } = await only();
    await calls.settle(id, "no-effect", "looked", "person");
    release(answer("booked after all"));
    await expect.poll(async () => (await only()).conflict).toBe(true);
    return id;
  }

  it("lets a person close a conflict once, with a note that stands beside what was settled and answered", async () => {
    const id = await contradicted();
    await calls.acknowledge(id, "cancelled it at the shop");
    expect(await only()).toMatchObject({
      state: "no-effect",
      conflict: false,
      settlement: { as: "no-effect", evidence: "looked" },
      answer: { isError: false },
    });
    expect((await journal.events(id)).at(-1)).toMatchObject({
      type: "acknowledged",
      actor: "person",
      data: { note: "cancelled it at the shop" },
    });
    await expect(calls.acknowledge(id, "again")).rejects.toMatchObject({
      code: "not-unresolved",
      message: expect.stringContaining("in no conflict") as string,
    });
    await expect(calls.acknowledge("nothing", "x")).rejects.toMatchObject({ code: "unknown-operation" });
  });

  it("repeats nothing of which an answer says that it took effect, whatever was settled and whoever closed the conflict", async () => {
    const id = await contradicted();
    await expect(calls.repeat(id, "looked", {})).rejects.toMatchObject({ code: "not-unresolved" });
    await calls.acknowledge(id, "seen");
    await expect(calls.repeat(id, "looked", {})).rejects.toMatchObject({
      message: expect.stringContaining("says that it took effect") as string,
    });
    expect(server.requests).toHaveLength(1);
  });
});

describe("a journal that fails while a call is out", () => {
  const full = new JournalError("unwritable", "The disk is full.");
  const states = async () => (await journal.operations({})).map((one) => one.state);
  /** The call's answer is lost, and so is the disk. */
  const loseBoth: Step = () => {
    failing = full;
    return loss("reset");
  };

  it("has the loss on record before the next identical call, which is held", async () => {
    server.script = [loseBoth];
    expect(resultText(await call("charge"))).toContain("UNRESOLVED");
    expect(await states()).toEqual(["in-flight"]);
    failing = undefined;
    expect(resultText(await call("charge"))).toContain("HELD");
    expect(await states()).toEqual(["unresolved"]);
    expect(server.requests).toHaveLength(1);
  });

  it("sends nothing that may change something while a loss is not on record, and goes on reading", async () => {
    server.script = [loseBoth];
    await call("charge");
    const refused = await call("charge", { another: 1 });
    expect(mark(refused)).toMatchObject({ state: "not-executed", reason: "journal-failed" });
    expect(resultText(refused)).toContain("The disk is full");
    expect(resultText(await call("lookup"))).toBe("ok");
    expect(server.requests.map((one) => one.params["name"])).toEqual(["charge", "lookup"]);
  });

  it("refuses the identical call also when the journal works again just after the guard has looked", async () => {
    server.script = [loseBoth];
    await call("charge");
    let asked = 0;
    const { duplicateGuard } = settings;
    settings = {
      ...settings,
      // Read by each of the two looks of the guard, and a third time right before the sending.
      get duplicateGuard() {
        asked += 1;
        if (asked === 3) failing = undefined;
        return duplicateGuard;
      },
    };
    expect(mark(await call("charge"))).toMatchObject({ state: "not-executed", reason: "journal-failed" });
    expect(failing).toBeUndefined();
    expect(server.requests).toHaveLength(1);
    expect(resultText(await call("charge"))).toContain("HELD");
  });

  it("catches up by itself once it can be written", async () => {
    clock.instantBelow = 0;
    server.script = [loseBoth];
    await call("charge");
    clock.advance(5_000);
    await nextTurn();
    expect(await states()).toEqual(["in-flight"]);
    failing = undefined;
    clock.advance(5_000);
    await expect.poll(states).toEqual(["unresolved"]);
    expect((await journal.events((await only()).id)).map((event) => event.type)).toEqual(["prepared", "sent", "lost", "held"]);
  });

  it("has an answer on record that came meanwhile, and leaves alone what another window settled", async () => {
    server.script = [
      () => {
        failing = full;
        return answer("charged");
      },
    ];
    expect(resultText(await call("charge"))).toBe("charged");
    failing = undefined;
    await call("lookup");
    expect(await states()).toContain("completed");

    server.script = [loseBoth];
    await call("charge", { third: 3 });
    const [open] = await journal.operations({ states: ["in-flight"] });
    await journal.append(
      [
        {
          operationId: open!.id,
          type: "lost",
          actor: "gateway",
          at: 1,
          data: { attempt: 1, stage: "sent", reason: "timeout", kind: "timeout" },
        },
        { operationId: open!.id, type: "settled", actor: "person", at: 2, data: { as: "dismissed", evidence: "" } },
      ],
      { durable: true },
    );
    failing = undefined;
    await call("lookup");
    expect((await journal.operation(open!.id))?.state).toBe("dismissed");
  });

  it("is tried once more at the end", async () => {
    server.script = [loseBoth];
    await call("charge");
    failing = undefined;
    await calls.dispose();
    expect(await states()).toEqual(["unresolved"]);
  });
});
