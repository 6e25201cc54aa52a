import { describe, expect, it, onTestFinished } from "vitest";
import type { Era } from "../../../src/hosting/evidence.ts";
import { child, lives } from "./fixtures/child.ts";
import { connected, host, http } from "./fixtures/host.ts";
import { legacyHandlers, modernHandlers, RawServer, type Handler, type Handlers } from "./fixtures/raw-http.ts";

async function raw(handlers: Handlers): Promise<RawServer> {
  const server = await RawServer.start(handlers);
  onTestFinished(() => server.close());
  return server;
}

function eras(initial?: Era) {
  let era = initial;
  return {
    get: () => era,
    set: (_fingerprint: string, found: Era) => {
      era = found;
    },
    get now() {
      return era;
    },
  };
}

const discovered =
  (versions: string[]): Handler =>
  (turn) =>
    turn.result({
      resultType: "complete",
      supportedVersions: versions,
      capabilities: { tools: {} },
      ttlMs: 0,
      cacheScope: "private",
    });
const methods = (server: RawServer) => server.seen.map((seen) => seen.method);

describe("which era a server speaks, by its answer to server/discover (HTTP)", () => {
  it.each<[string, Handler, Era]>([
    ["a discovery that names 2026-07-28", discovered(["2026-07-28"]), "2026-07-28"],
    ["a discovery that names no version of ours", discovered(["2027-01-01"]), "2025-11-25"],
    ["a result that is no discovery", (turn) => turn.result({ hello: true }), "2025-11-25"],
    ["method not found", (turn) => turn.error({ code: -32601, message: "no" }), "2025-11-25"],
    ["any unknown error", (turn) => turn.error({ code: -32001, message: "no" }, 400), "2025-11-25"],
    [
      "an unsupported version, with older ones named",
      (turn) => turn.error({ code: -32022, message: "no", data: { supported: ["2025-11-25"] } }, 400),
      "2025-11-25",
    ],
    ["400 without a correlated answer", (turn) => turn.status(400, "Bad Request"), "2025-11-25"],
    ["404", (turn) => turn.status(404), "2025-11-25"],
    ["405", (turn) => turn.status(405), "2025-11-25"],
    ["202 and no answer", (turn) => turn.status(202), "2025-11-25"],
    ["an event stream without an answer", (turn) => (turn.stream(), turn.response.end()), "2025-11-25"],
  ])("%s", async (_name, handler, era) => {
    const server = await raw(
      era === "2026-07-28" ? modernHandlers({ "server/discover": handler }) : legacyHandlers({ "server/discover": handler }),
    );
    const store = eras();
    const { connection } = await connected(http(server.url), { eraStore: store });
    expect(connection.facts.era).toBe(era);
    expect(store.now).toBe(era);
    expect(server.requests("server/discover")).toHaveLength(1);
    expect(server.requests("initialize")).toHaveLength(era === "2026-07-28" ? 0 : 1);
    expect(server.requests("tools/call")).toHaveLength(0);
  });

  it.each<[string, Handler, string]>([
    ["401", (turn) => turn.status(401), "unauthorised"],
    ["403", (turn) => turn.status(403), "unauthorised"],
    ["429", (turn) => turn.status(429, "", { "retry-after": "1" }), "http-status"],
    ["500", (turn) => turn.status(500), "http-status"],
    ["503", (turn) => turn.status(503), "http-status"],
    ["a reset", (turn) => turn.reset(), "reset"],
    ["a page", (turn) => turn.status(200, "<html>", { "content-type": "text/html" }), "not-json"],
    ["a redirect", (turn) => turn.status(308, "", { location: "/other" }), "redirected"],
    [
      "an unsupported version, with only newer ones named",
      (turn) => turn.error({ code: -32022, message: "no", data: { supported: ["2027-01-01"] } }, 400),
      "protocol",
    ],
    ["a header mismatch", (turn) => turn.error({ code: -32020, message: "no" }, 400), "protocol"],
    ["a missing client capability", (turn) => turn.error({ code: -32021, message: "no" }, 400), "protocol"],
  ])("%s is an error, never a fallback", async (_name, handler, kind) => {
    const server = await raw(legacyHandlers({ "server/discover": handler }));
    const { server: hosted } = host(http(server.url));
    await expect(hosted.connect()).rejects.toMatchObject({ name: "HostingError", kind });
    expect(methods(server)).toEqual(["server/discover"]);
  });

  it("a server that never answers the probe is an error, after the time for a handshake", async () => {
    const server = await raw(legacyHandlers({ "server/discover": () => undefined }));
    const { server: hosted } = host(http(server.url), { limits: { handshake: 50 } });
    await expect(hosted.connect()).rejects.toMatchObject({ kind: "no-answer" });
    expect(methods(server)).toEqual(["server/discover"]);
  });
});

describe("the handshake of 2025-11-25", () => {
  it("falls back to HTTP+SSE when initialize is refused", async () => {
    const old = await raw({
      GET: (turn) => {
        turn.stream();
        turn.event({ event: "endpoint", data: "/message" });
        for (const method of ["initialize", "tools/list"]) {
          old.handlers[method] = (post) => {
            if (!post.seen.headers["accept"]?.includes("event-stream")) {
              post.status(202);
              turn.event({
                data: {
                  jsonrpc: "2.0",
                  id: post.seen.body.id,
                  result: {
                    protocolVersion: "2024-11-05",
                    capabilities: {},
                    serverInfo: { name: "old", version: "1" },
                    tools: [],
                  },
                },
              });
            } else post.status(405);
          };
        }
      },
      "server/discover": (turn) => turn.status(405),
      initialize: (turn) => turn.status(405),
    });
    const { connection } = await connected(http(old.url));
    expect(connection.facts).toMatchObject({ transport: "sse", era: "2025-11-25" });
    expect(methods(old)).toEqual([
      "server/discover",
      "initialize",
      "GET",
      "initialize",
      "notifications/initialized",
      "tools/list",
    ]);
  });

  it.each([401, 403, 500])("does not when it is refused otherwise (%i)", async (status) => {
    const server = await raw(legacyHandlers({ initialize: (turn) => turn.status(status) }));
    await expect(host(http(server.url)).server.connect()).rejects.toMatchObject({
      kind: status === 500 ? "http-status" : "unauthorised",
    });
    expect(server.requests("GET")).toHaveLength(0);
  });

  it("tells of the refusal, when there is no such stream either", async () => {
    const server = await raw(legacyHandlers({ initialize: (turn) => turn.status(404), GET: (turn) => turn.status(406) }));
    await expect(host(http(server.url)).server.connect()).rejects.toMatchObject({
      kind: "http-status",
      message: "The server answered with an HTTP error (HTTP 404).",
    });
    expect(server.requests("GET")).toHaveLength(1);
  });

  it("takes an older version of the server's", async () => {
    const server = await raw(
      legacyHandlers({
        initialize: (turn) =>
          turn.result({
            protocolVersion: "2025-03-26",
            capabilities: { tools: {} },
            serverInfo: { name: "older", version: "1", vendor: true },
            instructions: "Be kind.",
          }),
      }),
    );
    const { connection } = await connected(http(server.url));
    expect(connection.facts).toEqual({
      era: "2025-11-25",
      protocolVersion: "2025-03-26",
      transport: "http",
      serverInfo: { name: "older", version: "1", vendor: true },
      capabilities: { tools: {} },
      instructions: "Be kind.",
    });
    expect(server.requests("tools/list")[0]?.headers["mcp-protocol-version"]).toBe("2025-03-26");
  });

  it("refuses a version that nobody knows, and ends the session", async () => {
    const server = await raw(
      legacyHandlers({
        initialize: (turn) =>
          turn.result({ protocolVersion: "1999-01-01", capabilities: {}, serverInfo: { name: "x", version: "1" } }, 200, {
            "mcp-session-id": "s",
          }),
      }),
    );
    await expect(host(http(server.url)).server.connect()).rejects.toMatchObject({ kind: "protocol" });
    await server.until("DELETE");
  });
});

describe("a remembered era", () => {
  it("saves the question", async () => {
    const server = await raw(legacyHandlers());
    const store = eras();
    const { server: hosted } = await connected(http(server.url), { eraStore: store });
    await hosted.restart();
    expect(server.requests("server/discover")).toHaveLength(1);
    expect(server.requests("initialize")).toHaveLength(2);
  });

  it("that is out of date is found out: the server is modern now", async () => {
    const server = await raw(modernHandlers());
    const store = eras("2025-11-25");
    const { connection } = await connected(http(server.url), { eraStore: store });
    expect(connection.facts.era).toBe("2026-07-28");
    expect(store.now).toBe("2026-07-28");
    expect(methods(server)).toEqual(["initialize", "server/discover", "tools/list"]);
  });

  it("that is out of date is found out: the server is legacy now", async () => {
    const server = await raw(legacyHandlers());
    const store = eras("2026-07-28");
    const { connection } = await connected(http(server.url), { eraStore: store });
    expect(connection.facts.era).toBe("2025-11-25");
    expect(store.now).toBe("2025-11-25");
  });

  it("is kept when the server was not reached", async () => {
    const server = await raw(legacyHandlers());
    await server.close();
    const store = eras("2025-11-25");
    await expect(host(http(server.url), { eraStore: store }).server.connect()).rejects.toMatchObject({ kind: "connect-refused" });
    expect(store.now).toBe("2025-11-25");
  });
});

describe("which era a process speaks", () => {
  it("a modern one is asked once, on the one process", async () => {
    const server = child("modern");
    const { connection } = await connected(server.definition);
    expect(connection.facts).toMatchObject({ era: "2026-07-28", transport: "stdio" });
    expect(server.pids()).toHaveLength(1);
    expect(server.received("initialize")).toHaveLength(0);
  });

  it("one that does not know the method is legacy, on the one process", async () => {
    const server = child();
    const { connection } = await connected(server.definition);
    expect(connection.facts.era).toBe("2025-11-25");
    expect(server.pids()).toHaveLength(1);
  });

  it("one that stays silent is legacy after a while, on the one process", async () => {
    const server = child("probe-silent");
    const { connection } = await connected(server.definition, { limits: { probe: 50 } });
    expect(connection.facts.era).toBe("2025-11-25");
    expect(server.pids()).toHaveLength(1);
  });

  it("one that ends at the question is started again and not asked again", async () => {
    const server = child("probe-exit");
    const { connection } = await connected(server.definition);
    expect(connection.facts.era).toBe("2025-11-25");
    expect(server.pids()).toHaveLength(2);
    expect(lives(server.pids()[0] ?? 0)).toBe(false);
    expect(server.received("server/discover")).toHaveLength(1);
  });

  it("a modern one that was slow to start is recognised all the same, on a fresh process", async () => {
    const server = child("modern", "slow");
    const { connection } = await connected(server.definition, { limits: { probe: 50 } });
    expect(connection.facts.era).toBe("2026-07-28");
    expect(server.pids()).toHaveLength(2);
    expect(lives(server.pids()[0] ?? 0)).toBe(false);
  });

  const preferLegacy = (known?: Era) => ({ ...eras(known), preferred: () => "2025-11-25" as const });

  it("one that speaks both is opened in the era that is preferred, on the one process, whatever it spoke last", async () => {
    for (const known of [undefined, "2026-07-28", "2025-11-25"] as const) {
      const server = child();
      const { connection } = await connected(server.definition, { eraStore: preferLegacy(known) });
      expect(connection.facts.era).toBe("2025-11-25");
      expect(server.pids()).toHaveLength(1);
      expect(server.received("server/discover")).toHaveLength(0);
    }
  });

  it.each<[string, string[]]>([
    ["refuses", ["modern"]],
    ["ends at", ["modern", "initialize-exit"]],
    ["is silent on", ["modern", "initialize-silent"]],
  ])("one that %s the preferred older era is started again and asked", async (_, options) => {
    const server = child(...options);
    const { connection } = await connected(server.definition, { eraStore: preferLegacy(), limits: { handshake: 2_000 } });
    expect(connection.facts.era).toBe("2026-07-28");
    expect(server.pids()).toHaveLength(2);
    expect(lives(server.pids()[0] ?? 0)).toBe(false);
  });

  it("one that ends at once is started twice, whatever is preferred", async () => {
    for (const eraStore of [eras(), preferLegacy()]) {
      const server = child("crash");
      await expect(host(server.definition, { eraStore }).server.connect()).rejects.toMatchObject({ kind: "process-exit" });
      expect(server.pids()).toHaveLength(2);
    }
  });

  it("one that ended instead of an answer, and then refuses the older era, is asked after all", async () => {
    const server = child("modern", "crash-once");
    const { connection } = await connected(server.definition);
    expect(connection.facts.era).toBe("2026-07-28");
    expect(server.pids()).toHaveLength(3);
    expect(lives(server.pids()[1] ?? 0)).toBe(false);
  });

  it("one that ends at once is an error", async () => {
    const server = child("crash");
    await expect(host(server.definition).server.connect()).rejects.toMatchObject({
      kind: "process-exit",
      message: "The server's program ended.",
    });
  });

  it("no process is left when the attempt is given up", async () => {
    const server = child("probe-silent");
    const { server: hosted } = host(server.definition);
    const connecting = hosted.connect();
    await expect.poll(() => server.received("server/discover")).toHaveLength(1);
    const outcome = expect(connecting).rejects.toMatchObject({ kind: "closed-here" });
    await hosted.stop();
    await outcome;
    expect(lives(server.pids()[0] ?? 0)).toBe(false);
    expect(hosted.status.state).toBe("stopped");
  });
});
