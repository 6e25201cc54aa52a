/** Owns: where an authorisation is looked for, in which order, and what of it is refused. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { systemClock } from "../../../../src/clock.ts";
import { assertAllowed, authFetch } from "../../../../src/hosting/auth/auth-fetch.ts";
import { discover } from "../../../../src/hosting/auth/discovery.ts";
import { AuthorisationServer } from "../../../servers/auth/authorisation-server.ts";

let as: AuthorisationServer;
beforeEach(async () => {
  as = await AuthorisationServer.start();
});
afterEach(() => as.close());

const wellKnown = "/.well-known/oauth-protected-resource";
const find = (named?: string, serverUrl = `${as.origin}/mcp`): ReturnType<typeof discover> =>
  discover(serverUrl, named === undefined ? undefined : new URL(named), authFetch({ serverUrl, clock: systemClock }));
const paths = (): string[] => as.seen.map(({ path }) => path);
const protect = (path: string, more: object = {}): void =>
  void as.resources.set(path, { resource: `${as.origin}/mcp`, authorization_servers: [as.issuer], ...more });

describe("the resource's metadata", () => {
  it("is where the challenge says, and nowhere else is looked", async () => {
    protect("/elsewhere");
    expect(await find(`${as.origin}/elsewhere`)).toMatchObject({ issuer: as.issuer, resource: `${as.origin}/mcp` });
    expect(paths()).toEqual(["/elsewhere", "/.well-known/oauth-authorization-server"]);
  });

  it("is looked for at the server's path, then at the root", async () => {
    protect(wellKnown);
    await find();
    expect(paths().slice(0, 2)).toEqual([`${wellKnown}/mcp`, wellKnown]);
    as.seen.length = 0;
    protect(`${wellKnown}/mcp`);
    await find();
    expect(paths()[0]).toBe(`${wellKnown}/mcp`);
    expect(paths()).not.toContain(wellKnown);
  });

  it("of another resource is refused, before its authorisation server is asked", async () => {
    protect(wellKnown, { resource: "https://other.example/mcp" });
    await expect(find()).rejects.toMatchObject({ failure: "wrong-resource" });
    expect(paths()).not.toContain("/.well-known/oauth-authorization-server");
  });

  it("that a challenge names and that is not there is a mistake, not an older server", async () => {
    await expect(find(`${as.origin}/nowhere`)).rejects.toMatchObject({ failure: "no-metadata" });
  });

  it("may name no authorisation server without metadata", async () => {
    protect(wellKnown);
    as.behaviour.metadata = "none";
    await expect(find()).rejects.toMatchObject({ failure: "no-metadata" });
  });
});

describe("the authorisation server's metadata", () => {
  it.each([
    ["oauth", "", ["/.well-known/oauth-authorization-server"]],
    ["openid", "", ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]],
    ["oauth", "/t1", ["/.well-known/oauth-authorization-server/t1"]],
    ["openid", "/t1", ["/.well-known/oauth-authorization-server/t1", "/.well-known/openid-configuration/t1"]],
    [
      "openid-appended",
      "/t1",
      [
        "/.well-known/oauth-authorization-server/t1",
        "/.well-known/openid-configuration/t1",
        "/t1/.well-known/openid-configuration",
      ],
    ],
  ] as const)("%s of an issuer at '%s' is found in this order", async (metadata, path, expected) => {
    Object.assign(as.behaviour, { metadata, path });
    protect(wellKnown);
    expect((await find()).issuer).toBe(as.issuer);
    expect(paths().slice(2)).toEqual(expected);
  });

  it.each([
    ["wrong-issuer", { issuer: "https://elsewhere.example" }],
    ["no-pkce", { pkce: undefined }],
    ["no-pkce", { pkce: ["plain"] }],
    ["unreachable", { padding: 600_000 }],
  ] as const)("is refused: %s", async (failure, behaviour) => {
    Object.assign(as.behaviour, behaviour);
    protect(wellKnown);
    await expect(find()).rejects.toMatchObject({ failure });
  });

  it("is not fetched from another host that it redirects to", async () => {
    const other = createServer((_request, response) => response.end("{}"));
    let asked = 0;
    other.on("request", () => asked++);
    await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
    as.behaviour.redirect = `http://127.0.0.1:${(other.address() as AddressInfo).port}/metadata`;
    protect(wellKnown);
    await expect(find()).rejects.toMatchObject({ failure: "no-metadata" });
    expect(asked).toBe(0);
    other.close();
  });
});

describe("a server of 2025-03-26", () => {
  it("has its metadata at the root of its own origin", async () => {
    as.behaviour.issuer = `${as.origin}/oauth`;
    expect(await find()).toMatchObject({ issuer: `${as.origin}/oauth`, resource: undefined });
    as.behaviour.issuer = "https://elsewhere.example";
    await expect(find()).rejects.toMatchObject({ failure: "wrong-issuer" });
  });

  it("has the default endpoints when it publishes nothing", async () => {
    as.behaviour.metadata = "none";
    expect(await find()).toEqual({
      authorizationServer: `${as.origin}/`,
      issuer: `${as.origin}/`,
      metadata: undefined,
      resource: undefined,
      scopesSupported: undefined,
    });
  });
});

describe("an address", () => {
  it.each([
    ["https://as.example/token", "https://mcp.example/mcp", true],
    ["http://as.example/token", "https://mcp.example/mcp", false],
    ["http://127.0.0.1:1/token", "http://localhost:2/mcp", true],
    ["http://as.example/token", "http://127.0.0.1:2/mcp", false],
    // A server elsewhere has no business with what listens on this machine.
    ["http://127.0.0.1:1/token", "https://mcp.example/mcp", false],
    ["https://localhost/token", "https://mcp.example/mcp", false],
    ["file:///etc/passwd", "http://127.0.0.1:2/mcp", false],
    ["javascript:alert(1)", "https://mcp.example/mcp", false],
  ])("%s for %s: %s", (address, serverUrl, allowed) => {
    const check = (): void => assertAllowed(address, serverUrl);
    if (allowed) expect(check).not.toThrow();
    else expect(check).toThrow("not secure");
  });
});
