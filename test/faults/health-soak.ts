/**
 * Owns: the soak of the health monitor: servers that flap in every way there is, agents that call them all the while, and afterwards the
 * servers' own word on every call.
 * `npm run -s soak:health [-- --minutes 10 --seed S]` prints a summary; exit code 1 when a rule was broken.
 *
 * The rules: every call is answered; a call that may change something has at most one effect, and none when its answer says that it was
 * not executed; when the flapping is over, every server is connected again; nothing is left behind.
 */
import { randomInt } from "node:crypto";
import { request } from "node:http";
import { join } from "node:path";
import { argv } from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";
import { existsSync, readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { createCore } from "../../src/gateway/core.ts";
import type { ServerDefinition } from "../../src/hosting/definitions.ts";
import { defaultReplaySettings } from "../../src/replay/settings.ts";
import { temporaryFolder } from "../support/temp.ts";
import { legacyHandlers, modernHandlers, RawServer, type Handlers, type Turn } from "../unit/hosting/fixtures/raw-http.ts";

export interface HealthSoakOptions {
  readonly seed: number;
  readonly ms: number;
}

export interface HealthSoakSummary {
  readonly calls: number;
  readonly reconnects: number;
  readonly probes: number;
  /** Answered as unresolved: the tool may have run. */
  readonly lost: number;
  readonly notExecuted: number;
  readonly breakers: number;
  readonly hung: number;
  readonly doubled: number;
  /** Every broken rule, in words. */
  readonly broken: readonly string[];
  readonly text: string;
}

/** The time limit of a call, and when one counts as hung. Milliseconds. */
const patienceMs = 3_000;
const hungMs = 30_000;
/** How long a server may take to be connected again after the flapping. Milliseconds. */
const healMs = 90_000;
const callers = 2;

/** A small seeded generator (mulberry32): the same seed flaps alike. */
function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A server that can be made to flap, and knows how often each call took effect. */
interface Flapper {
  readonly definition: ServerDefinition;
  /** One way to flap, drawn by chance; settles when it is over. */
  flap(random: () => number): Promise<void>;
  effects(id: string): number;
  end(): Promise<void>;
}

/** A server over HTTP: ends sessions, drops answers, refuses, falls silent, goes down and comes back. */
async function httpFlapper(era: "legacy" | "modern"): Promise<Flapper> {
  const effects = new Map<string, number>();
  let mode: "well" | "reset" | "busy" | "busy-later" | "silent" = "well";
  let firstSession = 1;
  const handlers: Handlers = era === "legacy" ? legacyHandlers() : modernHandlers();
  const guard =
    (handler: (turn: Turn) => void) =>
    (turn: Turn): void => {
      if (mode === "silent") return;
      const session = Number(String(turn.seen.headers["mcp-session-id"] ?? "").split("-")[1]);
      if (mode === "busy") turn.status(503);
      else if (mode === "busy-later") turn.status(503, "", { "retry-after": "1" });
      else if (era === "legacy" && session < firstSession) turn.status(404);
      else handler(turn);
    };
  for (const [method, handler] of Object.entries(handlers)) handlers[method] = guard(handler);
  handlers["tools/call"] = guard((turn) => {
    const args = turn.seen.body.params?.["arguments"] as { id: string };
    effects.set(args.id, (effects.get(args.id) ?? 0) + 1);
    if (mode === "reset") turn.reset();
    else turn.result({ content: [{ type: "text", text: args.id }], ...(era === "modern" ? { resultType: "complete" } : {}) });
  });
  let server = await RawServer.start(handlers);
  let sessions = 0;
  handlers["initialize"] = guard((turn) => {
    sessions++;
    turn.result(
      { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo: { name: "flapper", version: "1" } },
      200,
      { "mcp-session-id": `session-${sessions}` },
    );
  });
  const port = Number(new URL(server.url).port);
  const { url } = server;
  return {
    definition: { type: "http", url, headers: {} },
    async flap(random) {
      server.seen.length = 0;
      const kind = Math.floor(random() * 6);
      const ms = 300 + random() * 2_500;
      if (kind === 0) firstSession = sessions + 1;
      else if (kind === 1) {
        await server.close();
        await delay(ms);
        server = await RawServer.start(handlers, port);
      } else {
        mode = (["reset", "busy", "busy-later", "silent"] as const)[kind - 2] ?? "reset";
        await delay(mode === "silent" ? ms * 4 : ms);
        mode = "well";
      }
    },
    effects: (id) => effects.get(id) ?? 0,
    end: () => server.close(),
  };
}

/** A program: ends in the middle of a call, is killed, stands still. */
function processFlapper(folder: string): Flapper {
  const log = join(folder, "program.log");
  const program = fileURLToPath(new URL("../unit/hosting/fixtures/stdio-child.ts", import.meta.url));
  const entries = (): Record<string, unknown>[] =>
    existsSync(log)
      ? readFileSync(log, "utf8")
          .split("\n")
          .filter((line) => line.endsWith("}"))
          .map((line) => JSON.parse(line) as Record<string, unknown>)
      : [];
  const signal = (name: NodeJS.Signals, pid: number | undefined): void => {
    try {
      if (pid !== undefined) process.kill(pid, name);
    } catch {
      // It is gone already.
    }
  };
  return {
    definition: { type: "stdio", command: process.execPath, args: [program, log], env: {} },
    async flap(random) {
      const pid = entries().findLast((entry) => typeof entry["started"] === "number")?.["started"] as number | undefined;
      if (random() < 0.5) {
        signal("SIGKILL", pid);
        return;
      }
      signal("SIGSTOP", pid);
      await delay(500 + random() * 6_000);
      signal("SIGCONT", pid);
    },
    effects: (id) =>
      entries().filter(
        (entry) => entry["method"] === "tools/call" && (entry["params"] as { arguments?: { id?: string } }).arguments?.id === id,
      ).length,
    end: () => Promise.resolve(),
  };
}

type Answer = "answered" | "lost" | "not-executed" | "other" | "hung";

/** One call of an agent's through the gateway. */
function call(socketPath: string, server: string, id: string): Promise<Answer> {
  return new Promise((resolve) => {
    const outgoing = request(
      {
        socketPath,
        path: `/servers/${server}/mcp`,
        method: "POST",
        headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
        agent: false,
      },
      (answer) => {
        let text = "";
        answer.setEncoding("utf8");
        answer.on("data", (chunk: string) => (text += chunk));
        answer.on("end", () => {
          clearTimeout(late);
          const state = /"mcp-safe-replay\/operation":\{[^}]*"state":"([a-z-]+)"/.exec(text)?.[1];
          const error = text.includes('"isError":true');
          if (state === "unresolved") resolve("lost");
          else if (state === "not-executed") resolve("not-executed");
          else resolve(text.includes('"result"') && !error ? "answered" : "other");
        });
      },
    );
    const late = setTimeout(() => {
      resolve("hung");
      outgoing.destroy();
    }, hungMs);
    outgoing.on("error", () => undefined);
    outgoing.end(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "book", arguments: { id } } }));
  });
}

/** Runs the soak. Needs nothing but loopback and one folder, and leaves nothing behind. */
export async function soakHealth({ seed, ms }: HealthSoakOptions): Promise<HealthSoakSummary> {
  const folder = temporaryFolder();
  const flappers: ReadonlyMap<string, Flapper> = new Map([
    ["legacy", await httpFlapper("legacy")],
    ["modern", await httpFlapper("modern")],
    ["program", processFlapper(folder.path)],
  ]);
  const broken: string[] = [];
  const socket = join(folder.path, "s", "gateway.sock");
  const core = await createCore({
    journalDir: join(folder.path, "journal"),
    listen: { kind: "unix", path: socket },
    trust: { workspaceTrusted: () => true, serverTrustSetting: () => false, consentFingerprint: () => undefined },
    settings: () => ({ ...defaultReplaySettings, requestTimeoutMs: patienceMs }),
    contracts: () => new Map(),
    log: () => undefined,
    clientInfo: { name: "soak", version: "1" },
    random: seeded(seed + 1),
  });
  await core.setDefinitions(new Map([...flappers].map(([name, { definition }]) => [name, definition])));
  const ends = Date.now() + ms;
  const open = (): boolean => Date.now() < ends;
  const answers = new Map<string, { readonly server: string; readonly answer: Answer }>();
  let breakers = 0;
  let serial = 0;

  const flapping = [...flappers.values()].map(async (flapper, index) => {
    const random = seeded(seed + 100 + index);
    while (open()) {
      await delay(500 + random() * 4_000);
      if (open()) await flapper.flap(random);
    }
  });
  const calling = [...flappers.keys()].flatMap((server, index) =>
    Array.from({ length: callers }, async (_, caller) => {
      const random = seeded(seed + 1_000 + index * callers + caller);
      while (open()) {
        const id = `${server}-${serial++}`;
        answers.set(id, { server, answer: await call(socket, server, id) });
        // Now and then nobody asks anything for a while.
        await delay(random() < 0.02 ? 5_000 : 20 + random() * 400);
      }
    }),
  );
  /** The person at the desk: a program that stays down is started again. */
  const watching = (async () => {
    while (open()) {
      await delay(1_000);
      for (const server of core.servers.values()) {
        if (server.status.state !== "failed") continue;
        breakers++;
        await server.start().catch(() => undefined);
      }
    }
  })();
  await Promise.all([...flapping, ...calling, watching]);

  for (const server of core.servers.values()) {
    const until = Date.now() + healMs;
    if (server.status.state === "failed") await server.start().catch(() => undefined);
    while (server.status.state !== "connected" && Date.now() < until) await delay(200);
    if (server.status.state !== "connected")
      broken.push(`${server.name} is ${server.status.state} ${healMs} ms after the flapping`);
  }
  const reconnects = [...core.servers.values()].map(({ name, health }) => [name, health.reconnects.total] as const);
  const probes = [...core.servers.values()].map(({ health }) => health.probes).reduce((sum, count) => sum + count, 0);
  await core.dispose();

  let doubled = 0;
  const counts = { answered: 0, lost: 0, "not-executed": 0, other: 0, hung: 0 };
  for (const [id, { server, answer }] of answers) {
    counts[answer]++;
    const effects = flappers.get(server)?.effects(id) ?? 0;
    if (effects > 1) {
      doubled++;
      broken.push(`${id} took effect ${effects} times`);
    }
    if (answer === "not-executed" && effects > 0)
      broken.push(`${id} took effect although its answer says that it was not executed`);
    if (answer === "answered" && effects !== 1) broken.push(`${id} was answered and took effect ${effects} times`);
    if (answer === "hung") broken.push(`${id} was not answered within ${hungMs} ms`);
    if (answer === "other") broken.push(`${id} got an answer of another kind`);
  }
  for (const flapper of flappers.values()) await flapper.end();
  folder.remove();
  const total = reconnects.reduce((sum, [, count]) => sum + count, 0);
  const text = [
    `seed ${seed}, ${Math.round(ms / 1000)} s`,
    `calls ${answers.size}: answered ${counts.answered}, lost ${counts.lost}, not executed ${counts["not-executed"]}, hung ${counts.hung}, doubled ${doubled}`,
    `reconnects ${total} (${reconnects.map(([name, count]) => `${name} ${count}`).join(", ")}), probes ${probes}, started again by hand ${breakers}`,
    broken.length === 0 ? "no rule was broken" : `BROKEN: ${broken.slice(0, 20).join("; ")}`,
  ].join("\n");
  return {
    calls: answers.size,
    reconnects: total,
    probes,
    lost: counts.lost,
    notExecuted: counts["not-executed"],
    breakers,
    hung: counts.hung,
    doubled,
    broken,
    text,
  };
}

if (argv[1] !== undefined && import.meta.url === pathToFileURL(argv[1]).href) {
  const { values } = parseArgs({ options: { minutes: { type: "string", default: "10" }, seed: { type: "string" } } });
  const minutes = Number(values.minutes);
  const seed = values.seed === undefined ? randomInt(2 ** 31) : Number(values.seed);
  if (!(minutes > 0) || !Number.isSafeInteger(seed)) {
    console.error("--minutes must be a number above 0, --seed a whole number");
    process.exitCode = 2;
  } else {
    const summary = await soakHealth({ seed, ms: minutes * 60_000 });
    console.log(summary.text);
    process.exitCode = summary.broken.length === 0 ? 0 : 1;
  }
}
