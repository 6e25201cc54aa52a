/** Owns: the port beside the socket, clients that are revoked, the place where bridges find a gateway, and servers of both eras. */
import { createServer } from "node:net";
import { mkdtemp, readdir, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { LegacyTwins } from "../../../src/gateway/legacy-twins.ts";
import { announceGateway, livingGateway } from "../../../src/gateway/meeting-place.ts";
import { FakeServer, legacyFacts, modernFacts, stage, type Stage } from "./fakes.ts";

const closing: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function set(options: Parameters<typeof stage>[0]): Promise<Stage> {
  const made = await stage(options);
  closing.push(() => made.close());
  return made;
}

const ping = (url: string, token?: string) =>
  fetch(url, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping" }),
  });

describe("a port beside the socket", () => {
  it("serves the same servers, to holders of a token only, until it is closed", async () => {
    const s = await set({ tokens: [{ name: "Zed", token: "zed-token" }] });
    const door = await s.gateway.listenTcp({ kind: "tcp", host: "127.0.0.1", port: 0 });
    expect(door.listening).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    expect((await ping(door.urlOf("one"))).status).toBe(401);
    expect((await ping(door.urlOf("one"), "wrong")).status).toBe(401);
    expect(await (await ping(door.urlOf("one"), "zed-token")).json()).toEqual({ jsonrpc: "2.0", id: 1, result: {} });
    expect(s.gateway.clients()).toMatchObject([{ token: "Zed", servers: ["one"] }]);
    const strange = await fetch(door.urlOf("one"), { method: "POST", headers: { origin: "https://evil.example" } });
    expect(strange.status).toBe(403);
    await door.close();
    await expect(ping(door.urlOf("one"), "zed-token")).rejects.toThrow();
  });

  it("is not opened without tokens, nor where another program listens", async () => {
    const open = await set({});
    await expect(open.gateway.listenTcp({ kind: "tcp", host: "127.0.0.1", port: 0 })).rejects.toMatchObject({ code: "no-token" });
    const one = await set({ tokens: ["one-token"] });
    const two = await set({ tokens: ["two-token"] });
    const door = await one.gateway.listenTcp({ kind: "tcp", host: "127.0.0.1", port: 0 });
    const port = Number(new URL(door.listening).port);
    await expect(two.gateway.listenTcp({ kind: "tcp", host: "127.0.0.1", port })).rejects.toMatchObject({ code: "port-taken" });
  });

  it("lets a revoked client in no more, and the others still", async () => {
    let clients = [
      { name: "a", token: "token-of-a" },
      { name: "b", token: "token-of-b" },
    ];
    const s = await set({ tokens: () => clients });
    const door = await s.gateway.listenTcp({ kind: "tcp", host: "127.0.0.1", port: 0 });
    expect((await ping(door.urlOf("one"), "token-of-a")).status).toBe(200);
    clients = clients.filter(({ name }) => name !== "a");
    expect((await ping(door.urlOf("one"), "token-of-a")).status).toBe(401);
    expect((await ping(door.urlOf("one"), "token-of-b")).status).toBe(200);
  });
});

describe("the meeting place of bridges", () => {
  it("names the socket of a gateway that answers, and forgets dead ones", async () => {
    const folder = await mkdtemp(join(tmpdir(), "gw-"));
    closing.push(() => rm(folder, { recursive: true, force: true }));
    const place = join(folder, "gateways");
    expect(await livingGateway(place)).toBeUndefined();
    const socket = join(folder, "s");
    const server = createServer((one) => one.end()).listen(socket);
    closing.push(() => new Promise((done) => server.close(done)));
    const takeBack = await announceGateway(place, socket);
    await writeFile(join(place, "999999.json"), JSON.stringify({ socket: join(folder, "nobody") }));
    await writeFile(join(place, "7.json"), "{ broken");
    const later = new Date(Date.now() + 60_000);
    await utimes(join(place, "999999.json"), later, later);
    expect(await livingGateway(place)).toBe(socket);
    expect((await readdir(place)).sort()).toEqual(["7.json", `${process.pid}.json`].sort());
    await takeBack();
    expect(await livingGateway(place)).toBeUndefined();
  });
});

describe("a server of both eras", () => {
  const log = (): void => undefined;
  const remote = (name: string, facts: typeof legacyFacts) =>
    Object.defineProperty(new FakeServer(name, facts), "definition", { value: { type: "http", url: "http://x", headers: {} } });

  it("has a second connection, of the older era, for legacy agents; one of it, however many ask", async () => {
    const server = remote("s", modernFacts);
    let made = 0;
    const twins = new LegacyTwins(() => {
      made += 1;
      return remote("s", legacyFacts);
    }, log);
    const found = await Promise.all([twins.of(server), twins.of(server), twins.of(server)]);
    expect(new Set(found).size).toBe(1);
    expect(found[0]).not.toBe(server);
    expect(made).toBe(1);
  });

  it("has none where it refuses the older era, which is found out once; nor has one of the older era, nor a program", async () => {
    const modernOnly = remote("m", modernFacts);
    let made = 0;
    const twins = new LegacyTwins(() => {
      made += 1;
      return remote("m", modernFacts);
    }, log);
    expect(await twins.of(modernOnly)).toBe(modernOnly);
    expect(await twins.of(modernOnly)).toBe(modernOnly);
    expect(made).toBe(1);
    const legacy = remote("l", legacyFacts);
    expect(await twins.of(legacy)).toBe(legacy);
    const program = new FakeServer("p", modernFacts);
    expect(await twins.of(program)).toBe(program);
    expect(made).toBe(1);
  });

  it("that is a program is opened in the older era when it starts for a legacy agent; one that runs is left alone until then", async () => {
    const logged: string[] = [];
    const twins = new LegacyTwins(
      () => {
        throw new Error("a second process");
      },
      (_, text) => logged.push(text),
    );
    const fresh = new FakeServer("fresh", modernFacts);
    expect(await twins.of(fresh)).toBe(fresh);
    expect(twins.programs.wished(fresh.fingerprint)).toBe(true);
    const running = new FakeServer("running", modernFacts);
    await running.connect();
    expect(await twins.of(running)).toBe(running);
    expect(await twins.of(running)).toBe(running);
    expect(logged).toHaveLength(1);
    expect(twins.programs.wished(running.fingerprint)).toBe(true);
    // Started again under the wish, and it speaks the newer era all the same.
    (await running.live()).open = false;
    await running.connect();
    await twins.of(running);
    expect(twins.programs.wished(running.fingerprint)).toBe(false);
    expect(logged).toHaveLength(1);
  });
});
