import { describe, expect, it, onTestFinished } from "vitest";
import { connected, http, recorder } from "./fixtures/host.ts";
import { legacyHandlers, modernHandlers, RawServer, type Handler, type Handlers } from "./fixtures/raw-http.ts";

async function raw(handlers: Handlers): Promise<RawServer> {
  const server = await RawServer.start(handlers);
  onTestFinished(() => server.close());
  return server;
}

const call = { name: "book", arguments: { night: "2026-12-24" } };
const asJson = { "content-type": "application/json" };
const done = { content: [{ type: "text", text: "done" }] };

describe("an answer is an answer", () => {
  it.each<[string, Handler]>([
    [
      "with fields that nobody knows",
      (turn) =>
        turn.status(200, JSON.stringify({ jsonrpc: "2.0", id: turn.seen.body.id, result: done, trace: 1, meta: {} }), asJson),
    ],
    ["without a jsonrpc member", (turn) => turn.status(200, JSON.stringify({ id: turn.seen.body.id, result: done }), asJson)],
    ["in a batch", (turn) => turn.status(200, JSON.stringify([{ jsonrpc: "2.0", id: turn.seen.body.id, result: done }]), asJson)],
    ["with status 500", (turn) => turn.result(done, 500)],
    ["with status 404 outside the legacy era's errors", (turn) => turn.result(done, 404)],
    ["of media type text/plain", (turn) => turn.result(done, 200, { "content-type": "text/plain" })],
    [
      "with a result that fails every schema",
      (turn) => turn.result({ content: [{ type: "hologram", light: true }], structuredContent: 7 }),
    ],
    [
      "when the connection breaks after its last byte",
      (turn) => {
        const body = JSON.stringify({ jsonrpc: "2.0", id: turn.seen.body.id, result: done });
        turn.response.writeHead(200, asJson);
        turn.response.write(body, () => turn.socket.destroy());
      },
    ],
    [
      "on an event stream that never ends",
      (turn) => {
        turn.stream();
        turn.event({ data: { jsonrpc: "2.0", id: turn.seen.body.id, result: done } });
      },
    ],
    [
      "on an event stream, without the last empty line",
      (turn) => {
        turn.stream();
        turn.response.end(`data: ${JSON.stringify({ jsonrpc: "2.0", id: turn.seen.body.id, result: done })}`);
      },
    ],
    [
      "after an answer to somebody else",
      (turn) => {
        turn.stream();
        turn.event({ data: { jsonrpc: "2.0", id: "nobody", result: {} } });
        turn.event({ data: { jsonrpc: "2.0", id: turn.seen.body.id, result: done } });
        turn.response.end();
      },
    ],
    [
      "when a second one follows",
      (turn) => {
        turn.stream();
        turn.event({ data: { jsonrpc: "2.0", id: turn.seen.body.id, result: done } });
        turn.event({ data: { jsonrpc: "2.0", id: turn.seen.body.id, error: { code: 1, message: "second" } } });
        turn.response.end();
      },
    ],
  ])("%s", async (_name, handler) => {
    const server = await raw(legacyHandlers({ "tools/call": handler }));
    const { connection } = await connected(http(server.url));
    const prepared = connection.prepareCall(call, {});
    const ending = await prepared.send();
    expect(ending).toMatchObject({ kind: "answer", answer: { id: prepared.rpcId } });
    expect(ending.kind === "answer" && "result" in ending.answer).toBe(true);
    expect(server.requests("tools/call")).toHaveLength(1);
  });

  it("an error with odd members too, completed but not lost", async () => {
    const server = await raw(
      legacyHandlers({
        "tools/call": (turn) => turn.status(200, JSON.stringify({ id: turn.seen.body.id, error: "broken" }), asJson),
      }),
    );
    const { connection } = await connected(http(server.url));
    expect(await connection.prepareCall(call, {}).send()).toMatchObject({
      kind: "answer",
      answer: { error: { code: -32603, message: "The server answered with an error.", data: "broken" } },
    });
  });

  it("of more than 64 MiB", { timeout: 60_000 }, async () => {
    const text = "x".repeat(70 * 2 ** 20);
    const server = await raw(legacyHandlers({ "tools/call": (turn) => turn.result({ content: [{ type: "text", text }] }) }));
    const { connection } = await connected(http(server.url));
    const ending = await connection.prepareCall(call, {}).send();
    expect(ending.kind).toBe("answer");
    expect(JSON.stringify(ending).length).toBeGreaterThan(text.length);
  });
});

describe("the session of 2025-11-25", () => {
  it("is named in every later request, with the protocol version, and deleted at the end", async () => {
    const server = await raw(legacyHandlers());
    const { server: hosted, connection } = await connected(http(server.url, { Authorization: "Bearer t" }));
    expect(connection.facts.sessionId).toBe("session-1");
    await connection.prepareCall(call, {}).send();
    await hosted.stop();
    expect(server.requests("initialize")[0]?.headers).not.toHaveProperty("mcp-session-id");
    for (const method of ["notifications/initialized", "tools/list", "tools/call", "DELETE"]) {
      expect(server.requests(method)).toHaveLength(1);
      expect(server.requests(method)[0]?.headers).toMatchObject({
        "mcp-session-id": "session-1",
        "mcp-protocol-version": "2025-11-25",
        authorization: "Bearer t",
      });
    }
  });

  it("gone (404): this call is lost so, the connection is over, a new session is made, and the call is not sent in it", async () => {
    const server = await raw(legacyHandlers({ "tools/call": (turn) => turn.status(404) }));
    const { server: hosted, connection, until } = await connected(http(server.url));
    const ending = await connection.prepareCall(call, {}).send();
    expect(ending).toEqual({
      kind: "loss",
      loss: { kind: "session-gone", stage: "answering", httpStatus: 404, bodyIsJsonOrEmpty: true },
    });
    expect(connection.open).toBe(false);
    expect((await connection.closed).kind).toBe("session-gone");
    await until("connected");
    expect(hosted.connection?.facts.sessionId).toBe("session-2");
    expect(server.requests("tools/call")).toHaveLength(1);
    expect(server.requests("DELETE")).toHaveLength(0);
  });

  it("is over, too, when the 404 is correlated; the answer stands", async () => {
    const server = await raw(
      legacyHandlers({ "tools/call": (turn) => turn.error({ code: -32001, message: "Session not found" }, 404) }),
    );
    const { connection } = await connected(http(server.url));
    expect(await connection.prepareCall(call, {}).send()).toMatchObject({ kind: "answer", httpStatus: 404 });
    expect((await connection.closed).kind).toBe("session-gone");
  });

  it("lives on when a 404 only says that the method is unknown", async () => {
    const server = await raw(
      legacyHandlers({ "tools/call": (turn) => turn.error({ code: -32601, message: "Method not found" }, 404) }),
    );
    const { connection } = await connected(http(server.url));
    expect(await connection.prepareCall(call, {}).send()).toMatchObject({
      kind: "answer",
      httpStatus: 404,
      answer: { error: { code: -32601 } },
    });
    expect(connection.open).toBe(true);
  });

  it("gone under one call leaves its sibling alone", async () => {
    let finish = (): void => undefined;
    const server = await raw(
      legacyHandlers({
        "tools/call": (turn) => {
          if (turn.seen.body.params?.["name"] === "look") finish = () => turn.result(done);
          else turn.status(404);
        },
      }),
    );
    const { connection } = await connected(http(server.url));
    const sibling = connection.prepareCall({ name: "look", arguments: {} }, {}).send();
    await server.until("tools/call");
    await connection.prepareCall(call, {}).send();
    expect(connection.open).toBe(false);
    finish();
    expect((await sibling).kind).toBe("answer");
  });
});

describe("the standalone stream of 2025-11-25", () => {
  it("brings a late answer to a call that got only 202", async () => {
    let stream: Parameters<Handler>[0] | undefined;
    const server = await raw(
      legacyHandlers({ GET: (turn) => (turn.stream(), (stream = turn)), "tools/call": (turn) => turn.status(202) }),
    );
    const { connection } = await connected(http(server.url));
    await server.until("GET");
    const seen = recorder();
    const prepared = connection.prepareCall(call, seen);
    expect(await prepared.send()).toMatchObject({ kind: "loss", loss: { kind: "no-answer" } });
    stream?.event({ data: { jsonrpc: "2.0", id: prepared.rpcId, result: done } });
    expect(await seen.late_).toMatchObject({ result: done });
  });

  it("is opened again when it ends, from its last event, not before the server's retry", async () => {
    const server = await raw(
      legacyHandlers({
        GET: (turn) => {
          turn.stream();
          if (turn.server.requests("GET").length === 1) {
            turn.event({
              id: "e-1",
              retry: 60,
              data: { jsonrpc: "2.0", method: "notifications/message", params: { level: "info", data: "hello" } },
            });
            turn.response.end();
          }
        },
      }),
    );
    const { log } = await connected(http(server.url));
    const [first, second] = [await server.until("GET", 1), await server.until("GET", 2)];
    expect(first.headers).not.toHaveProperty("last-event-id");
    expect(second.headers).toMatchObject({ "last-event-id": "e-1", "mcp-session-id": "session-1" });
    expect(second.at - first.at).toBeGreaterThanOrEqual(58);
    expect(log).toContainEqual({ level: "info", text: "hello" });
  });

  it("that ends at once again and again is not opened in a tight loop", async () => {
    const server = await raw(
      legacyHandlers({
        GET: (turn) => {
          turn.stream();
          turn.event({ id: "e", retry: 0 });
          turn.response.end();
        },
      }),
    );
    await connected(http(server.url));
    const [first, fifth] = [await server.until("GET", 1), await server.until("GET", 5)];
    expect(fifth.at - first.at).toBeGreaterThanOrEqual(4 * 48);
  });

  it("is not insisted on", async () => {
    const server = await raw(legacyHandlers());
    const { connection } = await connected(http(server.url));
    await server.until("GET");
    await connection.prepareCall(call, {}).send();
    expect(server.requests("GET")).toHaveLength(1);
    expect(connection.open).toBe(true);
  });

  it("missing (404) is no end of the session when requests are answered", async () => {
    const server = await raw(legacyHandlers({ GET: (turn) => turn.status(404, "Cannot GET /mcp") }));
    const { connection } = await connected(http(server.url));
    await server.until("GET");
    expect((await connection.prepareCall(call, {}).send()).kind).toBe("answer");
    expect(connection.open).toBe(true);
    expect(server.requests("initialize")).toHaveLength(1);
  });

  it("carries the server's ping, which is answered", async () => {
    const server = await raw(
      legacyHandlers({
        GET: (turn) => {
          turn.stream();
          turn.event({ data: { jsonrpc: "2.0", id: "p1", method: "ping" } });
        },
      }),
    );
    await connected(http(server.url));
    expect((await server.until("answer")).body).toEqual({ jsonrpc: "2.0", id: "p1", result: {} });
  });

  it("brings changed tools", async () => {
    let stream: Parameters<Handler>[0] | undefined;
    const server = await raw(legacyHandlers({ GET: (turn) => (turn.stream(), (stream = turn)) }));
    const { server: hosted } = await connected(http(server.url));
    await server.until("GET");
    expect(hosted.tools.map((tool) => tool.name)).toEqual(["book", "look"]);
    server.handlers["tools/list"] = (turn) => turn.result({ tools: [{ name: "other", inputSchema: {} }] });
    const changed = new Promise<void>((resolve) => hosted.onDidChangeTools(resolve));
    stream?.event({ data: { jsonrpc: "2.0", method: "notifications/tools/list_changed" } });
    await changed;
    expect(hosted.tools.map((tool) => tool.name)).toEqual(["other"]);
  });
});

describe("messages on a call's own stream", () => {
  it("go to its observer: progress with the caller's token, the rest as related", async () => {
    const server = await raw(
      legacyHandlers({
        "tools/call": (turn) => {
          turn.stream();
          turn.event({ id: "c-1" });
          const meta = turn.seen.body.params?.["_meta"] as { progressToken: string };
          turn.event({
            id: "c-2",
            data: {
              jsonrpc: "2.0",
              method: "notifications/progress",
              params: { progressToken: meta.progressToken, progress: 1 },
            },
          });
          turn.event({ data: { jsonrpc: "2.0", method: "notifications/message", params: { level: "info", data: "working" } } });
          turn.event({
            data: { jsonrpc: "2.0", id: turn.seen.body.id, result: { task: { taskId: "task-1", status: "working" } } },
          });
          turn.response.end();
        },
      }),
    );
    const { connection } = await connected(http(server.url));
    const seen = recorder();
    const ending = await connection.prepareCall({ ...call, _meta: { progressToken: "mine", traceparent: "00-1" } }, seen).send();
    expect(ending.kind).toBe("answer");
    expect(seen.progressed).toEqual([{ progressToken: "mine", progress: 1 }]);
    expect(seen.heard).toMatchObject([{ method: "notifications/message" }]);
    expect(seen.tasks).toEqual(["task-1"]);
    expect(seen.cursors).toEqual([
      { eventId: "c-1", sessionId: "session-1", protocolVersion: "2025-11-25" },
      { eventId: "c-2", sessionId: "session-1", protocolVersion: "2025-11-25" },
    ]);
    expect(server.requests("tools/call")[0]?.body.params).toMatchObject({ _meta: { traceparent: "00-1" } });
  });
});

describe("what a server says on whatever stream", () => {
  it("reaches the log and the list of tools, from a call's own stream too", async () => {
    const server = await raw(
      legacyHandlers({
        "tools/call": (turn) => {
          turn.stream();
          turn.event({
            data: { jsonrpc: "2.0", method: "notifications/message", params: { level: "warning", data: "low on rooms" } },
          });
          turn.event({ data: { jsonrpc: "2.0", method: "notifications/tools/list_changed" } });
          turn.event({ data: { jsonrpc: "2.0", id: turn.seen.body.id, result: done } });
          turn.response.end();
        },
      }),
    );
    const { connection, log } = await connected(http(server.url));
    const seen = recorder();
    await connection.prepareCall(call, seen).send();
    expect(seen.heard).toHaveLength(2);
    expect(log).toContainEqual({ level: "warning", text: "low on rooms" });
    await server.until("tools/list", 2);
  });
});

describe("cancelling", () => {
  it("tells a legacy server and still takes the answer", async () => {
    let finish = (): void => undefined;
    const server = await raw(legacyHandlers({ "tools/call": (turn) => (finish = () => turn.result(done)) }));
    const { connection } = await connected(http(server.url));
    const prepared = connection.prepareCall(call, {});
    const ending = prepared.send();
    await server.until("tools/call");
    prepared.cancel("the agent stopped");
    const cancelled = await server.until("notifications/cancelled");
    expect(cancelled.body.params).toEqual({ requestId: prepared.rpcId, reason: "the agent stopped" });
    finish();
    expect((await ending).kind).toBe("answer");
  });

  it("closes a modern server's stream, which is the signal there", async () => {
    const closed = Promise.withResolvers<void>();
    const server = await raw(
      modernHandlers({
        "tools/call": (turn) => {
          turn.stream();
          turn.response.once("close", () => closed.resolve());
        },
      }),
    );
    const { connection } = await connected(http(server.url));
    const seen = recorder();
    const prepared = connection.prepareCall(call, seen);
    const ending = prepared.send();
    await expect.poll(() => seen.stages).toContain("answering");
    prepared.cancel();
    expect(await ending).toEqual({ kind: "loss", loss: { kind: "cancelled-here", stage: "answering" } });
    await closed.promise;
    expect(server.requests("notifications/cancelled")).toHaveLength(0);
    expect(connection.open).toBe(true);
  });

  it("by the signal of a passed-on request ends it at once", async () => {
    const server = await raw(legacyHandlers({ "resources/read": () => undefined }));
    const { connection } = await connected(http(server.url));
    const stop = new AbortController();
    const ending = connection.request("resources/read", { uri: "x" }, { signal: stop.signal });
    await server.until("resources/read");
    stop.abort();
    expect(await ending).toMatchObject({ kind: "loss", loss: { kind: "cancelled-here", stage: "sent" } });
    await server.until("notifications/cancelled");
  });
});

describe("2026-07-28", () => {
  it("every request carries the envelope and the headers that mirror it, and no session", async () => {
    const server = await raw(
      modernHandlers({
        "server/discover": (turn) => {
          modernHandlers()["server/discover"]?.({
            ...turn,
            result: (result) => turn.result(result, 200, { "mcp-session-id": "ignored" }),
          });
        },
        "tools/list": (turn) =>
          turn.result({
            resultType: "complete",
            ttlMs: 0,
            cacheScope: "private",
            tools: [
              {
                name: "reserve é",
                inputSchema: {
                  type: "object",
                  properties: {
                    night: { type: "string", "x-mcp-header": "Night" },
                    guests: { type: "integer", "x-mcp-header": "Guests" },
                  },
                },
              },
              { name: "bad", inputSchema: { type: "object", properties: { n: { type: "number", "x-mcp-header": "N" } } } },
            ],
          }),
      }),
    );
    const { connection, server: hosted, log } = await connected(http(server.url));
    expect(hosted.tools.map((tool) => tool.name)).toEqual(["reserve é"]);
    expect(log).toContainEqual({
      level: "warning",
      text: "The tool bad was left out: x-mcp-header at n needs a string, an integer or a boolean.",
    });
    await connection
      .prepareCall({ name: "reserve é", arguments: { night: " tonight ", guests: 2 }, _meta: { traceparent: "00-1" } }, {})
      .send();
    const [seen] = server.requests("tools/call");
    expect(seen?.headers).toMatchObject({
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": "tools/call",
      "mcp-name": "=?base64?cmVzZXJ2ZSDDqQ==?=",
      "mcp-param-night": "=?base64?IHRvbmlnaHQg?=",
      "mcp-param-guests": "2",
    });
    expect(seen?.headers).not.toHaveProperty("mcp-session-id");
    expect(seen?.body.params?.["_meta"]).toEqual({
      traceparent: "00-1",
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientInfo": { name: "hosting-test", version: "1.0.0" },
      "io.modelcontextprotocol/clientCapabilities": {},
    });
    await hosted.stop();
    expect(server.requests("GET")).toHaveLength(0);
    expect(server.requests("DELETE")).toHaveLength(0);
  });

  it("an event id is no cursor, and nothing is resumed", async () => {
    const server = await raw(
      modernHandlers({ "tools/call": (turn) => (turn.stream(), turn.event({ id: "e-1", retry: 5 }), turn.response.end()) }),
    );
    const { connection } = await connected(http(server.url));
    const seen = recorder();
    const prepared = connection.prepareCall(call, seen);
    expect(await prepared.send()).toMatchObject({ kind: "loss", loss: { kind: "stream-ended" } });
    expect(seen.cursors).toEqual([]);
    const resumed = await connection.resume(prepared.rpcId, { eventId: "e-1", protocolVersion: "2026-07-28" }, {});
    expect(resumed).toMatchObject({ kind: "loss", loss: { kind: "stream-ended" } });
    expect(server.requests("GET")).toHaveLength(0);
    expect(server.requests("tools/call")).toHaveLength(1);
  });

  it.each([
    ["header mismatch", -32020, 400],
    ["unsupported version", -32022, 400],
    ["unknown method, bare 404", -32601, 404],
  ])("%s is an answer, sent once", async (_name, code, status) => {
    const server = await raw(modernHandlers({ "tools/call": (turn) => turn.error({ code, message: "no" }, status) }));
    const { connection } = await connected(http(server.url));
    expect(await connection.prepareCall(call, {}).send()).toMatchObject({
      kind: "answer",
      httpStatus: status,
      answer: { error: { code } },
    });
    expect(server.requests("tools/call")).toHaveLength(1);
    expect(connection.open).toBe(true);
  });

  it("input_required is an answer, and no further round is made", async () => {
    const server = await raw(
      modernHandlers({
        "tools/call": (turn) => turn.result({ resultType: "input_required", requestState: "s", inputRequests: {} }),
      }),
    );
    const { connection } = await connected(http(server.url));
    expect(await connection.prepareCall(call, {}).send()).toMatchObject({
      kind: "answer",
      answer: { result: { requestState: "s" } },
    });
    expect(server.requests("tools/call")).toHaveLength(1);
  });

  it("a request of the server's is not answered", async () => {
    const server = await raw(
      modernHandlers({
        "tools/call": (turn) => {
          turn.stream();
          turn.event({ data: { jsonrpc: "2.0", id: "s1", method: "ping" } });
          turn.event({ data: { jsonrpc: "2.0", id: turn.seen.body.id, result: { resultType: "complete", ...done } } });
          turn.response.end();
        },
      }),
    );
    const { connection, log } = await connected(http(server.url));
    expect((await connection.prepareCall(call, {}).send()).kind).toBe("answer");
    expect(log).toContainEqual({
      level: "warning",
      text: "The server sent a request (ping), which its protocol version does not allow; it was ignored.",
    });
    await connection.prepareCall(call, {}).send();
    expect(server.requests("answer")).toHaveLength(0);
  });

  it("changed tools come over a subscription, which is asked for again when it drops", async () => {
    let listen: Parameters<Handler>[0] | undefined;
    const acknowledge: Handler = (turn) => {
      listen = turn;
      turn.stream();
      turn.event({
        data: {
          jsonrpc: "2.0",
          method: "notifications/subscriptions/acknowledged",
          params: {
            _meta: { "io.modelcontextprotocol/subscriptionId": turn.seen.body.id },
            notifications: { toolsListChanged: true },
          },
        },
      });
    };
    const server = await raw(
      modernHandlers({
        "server/discover": (turn) =>
          turn.result({
            resultType: "complete",
            supportedVersions: ["2026-07-28"],
            capabilities: { tools: { listChanged: true } },
            ttlMs: 0,
            cacheScope: "private",
          }),
        "subscriptions/listen": acknowledge,
      }),
    );
    const { server: hosted } = await connected(http(server.url));
    await server.until("subscriptions/listen");
    server.handlers["tools/list"] = (turn) => turn.result({ resultType: "complete", tools: [], ttlMs: 0, cacheScope: "private" });
    const changed = new Promise<void>((resolve) => hosted.onDidChangeTools(resolve));
    listen?.event({
      data: {
        jsonrpc: "2.0",
        method: "notifications/tools/list_changed",
        params: { _meta: { "io.modelcontextprotocol/subscriptionId": listen.seen.body.id } },
      },
    });
    await changed;
    expect(hosted.tools).toEqual([]);
    listen?.reset();
    await server.until("subscriptions/listen", 2);
    expect(hosted.status.state).toBe("connected");
  });
});

describe("polling a task", () => {
  it("2025-11-25: until it has ended, then its result", async () => {
    let polls = 0;
    const server = await raw(
      legacyHandlers({
        "tasks/get": (turn) => turn.result({ taskId: "t1", status: ++polls < 3 ? "working" : "completed", pollInterval: 100 }),
        "tasks/result": (turn) => turn.result(done),
      }),
    );
    const { connection } = await connected(http(server.url));
    expect(await connection.pollTask("t1")).toMatchObject({ kind: "answer", answer: { result: done } });
    expect(server.requests("tasks/get")).toHaveLength(3);
    expect(server.requests("tasks/result")).toHaveLength(1);
  });

  it("2026-07-28: the result comes with the last poll", async () => {
    let polls = 0;
    const server = await raw(
      modernHandlers({
        "tasks/get": (turn) =>
          turn.result({
            resultType: "complete",
            taskId: "t1",
            pollIntervalMs: 100,
            ...(++polls < 2 ? { status: "working" } : { status: "completed", result: done }),
          }),
      }),
    );
    const { connection } = await connected(http(server.url));
    expect(await connection.pollTask("t1")).toMatchObject({ kind: "answer", answer: { result: done } });
    expect(server.requests("tasks/get").map((seen) => seen.headers["mcp-name"])).toEqual(["t1", "t1"]);
  });

  it("that failed is the error it failed with; an unknown one is the server's own error", async () => {
    const server = await raw(
      modernHandlers({
        "tasks/get": (turn) =>
          turn.seen.body.params?.["taskId"] === "t1"
            ? turn.result({
                resultType: "complete",
                taskId: "t1",
                status: "failed",
                error: { code: -32000, message: "no rooms" },
              })
            : turn.error({ code: -32602, message: "unknown task" }),
      }),
    );
    const { connection } = await connected(http(server.url));
    expect(await connection.pollTask("t1")).toMatchObject({
      kind: "answer",
      answer: { error: { code: -32000, message: "no rooms" } },
    });
    expect(await connection.pollTask("t2")).toMatchObject({ kind: "answer", answer: { error: { code: -32602 } } });
  });

  it("ends with the signal", async () => {
    const server = await raw(
      legacyHandlers({ "tasks/get": (turn) => turn.result({ taskId: "t1", status: "working", pollInterval: 100_000 }) }),
    );
    const { connection } = await connected(http(server.url));
    const stop = new AbortController();
    const ending = connection.pollTask("t1", stop.signal);
    await server.until("tasks/get");
    stop.abort();
    expect(await ending).toMatchObject({ kind: "loss", loss: { kind: "cancelled-here" } });
  });
});
