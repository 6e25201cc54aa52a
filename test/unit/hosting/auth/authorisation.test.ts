/** Owns: one server's authorisation against a real authorisation server: what is sent where, what is kept, when a person is needed. */
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { fingerprintOf, readDefinitions, type RemoteDefinition } from "../../../../src/hosting/definitions.ts";
import { grantKey, memoryGrantStore, type GrantStore } from "../../../../src/hosting/auth/grant-store.ts";
import { authorisationFor, type ServerAuthorisation } from "../../../../src/hosting/auth/server-authorisation.ts";
import { AuthorisationServer } from "../../../servers/auth/authorisation-server.ts";
import { person } from "../../../servers/auth/person.ts";
import { startHttpFaultServer, type HttpBinding, type HttpFaultServer } from "../../../servers/fault/http-fault-server.ts";
import { temporaryFolder } from "../../../support/temp.ts";
import { FakeClock, host, type Hosted } from "../fixtures/host.ts";

const folder = temporaryFolder();
const closing: (() => Promise<void> | void)[] = [];
let as: AuthorisationServer;
let store: GrantStore;
const kept = new Map<string, string>();
const logged: string[] = [];

beforeEach(async () => {
  as = await AuthorisationServer.start();
  closing.push(() => as.close());
  kept.clear();
  logged.length = 0;
  store = {
    read: (key) => Promise.resolve(kept.get(key)),
    write: (key, text) => Promise.resolve(void kept.set(key, text)),
    remove: (key) => Promise.resolve(void kept.delete(key)),
  };
});
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

/** A server that takes the newest token of its authorisation server, and no other. */
async function protectedServer(binding: HttpBinding = "http-json", guard = as): Promise<HttpFaultServer> {
  const server = await startHttpFaultServer({ binding, ledger: join(folder.path, crypto.randomUUID()), sync: false });
  closing.push(() => server.close());
  server.setToken("none yet");
  guard.onToken = (token) => server.setToken(token);
  return server;
}

interface Site extends Hosted {
  readonly definition: RemoteDefinition;
  readonly authorisation: ServerAuthorisation;
}

function hosted(url: string, more: { oauth?: object; type?: string; clock?: FakeClock } = {}): Site {
  const { clock = new FakeClock(), ...fields } = more;
  const { definitions, problems } = readDefinitions({ it: { url, ...fields } }, "servers", { env: {} });
  expect(problems).toEqual([]);
  const definition = definitions.get("it") as RemoteDefinition;
  const authorisation = authorisationFor(definition, store, clock, (_level, text) => logged.push(text));
  if (authorisation === undefined) throw new Error("a remote server has an authorisation");
  const site = host(definition, { authorisation });
  return { ...site, definition, authorisation };
}

/** The metadata of this server lies at its authorisation server; its challenges do not name it, so it is told beforehand. */
function told(site: Site, resource = site.definition.url): void {
  site.authorisation.refused({ status: 401, challenge: as.protects(resource), token: undefined });
}

async function authorised(binding: HttpBinding = "http-json", more: Parameters<typeof hosted>[1] = {}): Promise<Site> {
  const server = await protectedServer(binding);
  const site = hosted(server.url, { ...(binding === "sse-2024" ? { type: "sse" } : {}), ...more });
  told(site);
  await site.authorisation.authorise(person());
  await site.server.start();
  return site;
}

describe("a person's authorisation", () => {
  it.each(["http-json", "modern-json", "sse-2024"] as const)("lets a server of %s be reached", async (binding) => {
    const server = await protectedServer(binding);
    const site = hosted(server.url, binding === "sse-2024" ? { type: "sse" } : {});
    await expect(site.server.connect()).rejects.toMatchObject({ kind: "unauthorised" });
    expect([site.server.status.state, site.authorisation.need]).toEqual(["needs-authorisation", "sign-in"]);
    told(site);
    await site.authorisation.authorise(person());
    await site.server.start();
    expect(site.server.status.state).toBe("connected");
    const tokens = server.requests().map(({ headers }) => headers["authorization"]);
    expect(new Set(tokens)).toEqual(new Set([undefined, "Bearer as-token-1"]));
  });

  it("proves itself by PKCE, names the resource, and has a state of its own", async () => {
    const site = await authorised();
    const [asked] = as.requests("/authorize");
    const [token] = as.tokenRequests("authorization_code");
    expect(asked?.query.get("code_challenge_method")).toBe("S256");
    expect([asked?.query.get("resource"), token?.form.get("resource")]).toEqual([site.definition.url, site.definition.url]);
    expect(asked?.query.get("state")).toMatch(/^[\w-]{43}$/);
    expect(asked?.query.get("redirect_uri")).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/authorised$/);
    expect(JSON.parse(as.requests("/register")[0]?.body ?? "{}")).toMatchObject({
      redirect_uris: [asked?.query.get("redirect_uri")],
      token_endpoint_auth_method: "none",
      application_type: "native",
    });
  });

  it("is one at a time, whoever asks", async () => {
    const server = await protectedServer();
    const site = hosted(server.url);
    told(site);
    const one = person();
    const other = person();
    await Promise.all([site.authorisation.authorise(one), site.authorisation.authorise(other)]);
    expect([one.opened.length, other.opened.length, as.requests("/token").length]).toEqual([1, 0, 1]);
  });

  it.each([
    ["denied", { person: "denies" }],
    ["registration-refused", { registration: "refused" }],
    ["no-registration", { registration: "none" }],
    ["no-pkce", { pkce: undefined }],
    ["wrong-issuer", { iss: "wrong" }],
    ["wrong-issuer", { iss: "none" }],
    ["wrong-issuer", { iss: "wrong", issPromised: false }],
    // Nothing of a redirect is believed whose issuer is wrong, its error included.
    ["wrong-issuer", { iss: "wrong", person: "denies" }],
    ["wrong-issuer", { issuer: "https://elsewhere.example" }],
  ] as const)("ends without a token: %s (%j)", async (failure, behaviour) => {
    const server = await protectedServer();
    const site = hosted(server.url);
    Object.assign(as.behaviour, behaviour);
    told(site);
    const failed = site.authorisation.authorise(person());
    await expect(failed).rejects.toMatchObject({ failure });
    await failed.catch((error: unknown) => expect(String(error)).not.toContain("words of the authorisation server"));
    expect([as.requests("/token").length, kept.size, site.authorisation.authorised]).toEqual([0, 0, false]);
    expect(logged.join()).not.toContain("words of the authorisation server");
  });

  it("waits past a redirect with another state, and past the same one a second time", async () => {
    const server = await protectedServer();
    const site = hosted(server.url);
    told(site);
    let early: Response | undefined;
    let redirected: URL | undefined;
    const someone = person(async (redirect) => {
      const forged = new URL(redirect);
      forged.searchParams.set("state", "x".repeat(43));
      forged.searchParams.set("code", "forged");
      early = await fetch(forged);
      return (redirected = redirect);
    });
    await site.authorisation.authorise(someone);
    expect(early?.status).toBe(400);
    expect(someone.shown[0]).toContain("Authorised.");
    expect(as.tokenRequests("authorization_code").map(({ form }) => form.get("code"))).toEqual([
      redirected?.searchParams.get("code"),
    ]);
    // The port is closed with it.
    await expect(fetch(redirected ?? "")).rejects.toThrow();
  });

  it("uses the client of the definition, whose secret is nowhere but in its place", async () => {
    const site = await authorised("http-json", { oauth: { clientId: "ours", clientSecret: "hush-hush" } });
    expect(as.requests("/register")).toEqual([]);
    const [token] = as.tokenRequests("authorization_code");
    expect(token?.headers["authorization"]).toBe(`Basic ${Buffer.from("ours:hush-hush").toString("base64")}`);
    const { secrets: _, ...open } = site.definition;
    expect(JSON.stringify([open, ...kept.values(), logged, site.log])).not.toContain("hush-hush");
    // A new secret is the same server.
    const { definitions } = readDefinitions(
      { it: { url: site.definition.url, oauth: { clientId: "ours", clientSecret: "another" } } },
      "servers",
      { env: {} },
    );
    expect(fingerprintOf(definitions.get("it") as RemoteDefinition)).toBe(site.server.fingerprint);
  });

  it("uses a client id metadata document where the authorisation server takes one", async () => {
    as.behaviour.clientIdDocuments = true;
    await authorised("http-json", { oauth: { clientMetadataUrl: "https://client.example/client.json" } });
    expect(as.requests("/register")).toEqual([]);
    expect(as.requests("/authorize")[0]?.query.get("client_id")).toBe("https://client.example/client.json");
  });
});

describe("a refresh", () => {
  it("replaces a token that is running out before the next request, and takes the rotated refresh token", async () => {
    const clock = new FakeClock();
    as.behaviour.expiresIn = 3_600;
    const site = await authorised("http-json", { clock });
    const connection = await site.server.connect();
    for (const round of [1, 2, 3]) {
      clock.advance(3_590_000);
      expect((await connection.request("ping", undefined)).kind).toBe("answer");
      expect(site.authorisation.token).toBe(`as-token-${round + 1}`);
    }
    const given = as.tokenRequests("refresh_token").map(({ form }) => form.get("refresh_token"));
    expect(given).toEqual(["as-refresh-1", "as-refresh-2", "as-refresh-3"]);
    expect([...kept.values()].join()).toContain("as-refresh-4");
  });

  it("mends a refused request by itself, once for all that were refused", async () => {
    const site = await authorised("http-json");
    const connection = await site.server.connect();
    as.onToken("revoked");
    const gate = Promise.withResolvers<void>();
    as.behaviour.gate = gate.promise;
    const asked = [1, 2, 3].map(() => connection.request("ping", undefined));
    gate.resolve();
    expect((await Promise.all(asked)).map(({ kind }) => kind)).toEqual(["answer", "answer", "answer"]);
    expect(as.tokenRequests("refresh_token").length).toBe(1);
    expect(site.authorisation.need).toBeUndefined();
  });

  it.each(["refused", "none"] as const)("that is not to be had (%s) needs a person", async (how) => {
    if (how === "none") as.behaviour.refresh = "none";
    const site = await authorised();
    const connection = await site.server.connect();
    as.behaviour.refresh = how;
    as.onToken("revoked");
    const ending = await connection.request("ping", undefined);
    expect(ending).toMatchObject({ kind: "loss", loss: { httpStatus: 401 } });
    expect(site.authorisation.need).toBe("sign-in");
    // The refresh token is not shown again.
    await connection.request("ping", undefined);
    expect(as.tokenRequests("refresh_token").length).toBe(how === "refused" ? 1 : 0);
    expect([...kept.values()].join()).not.toContain("as-refresh");
    await site.until("needs-authorisation");
    await site.authorisation.authorise(person());
    await site.server.start();
    expect(site.server.status.state).toBe("connected");
  });

  it("that cannot be asked for now forgets nothing and asks nobody", async () => {
    const site = await authorised();
    const connection = await site.server.connect();
    as.behaviour.refresh = "down";
    as.onToken("revoked");
    await connection.request("ping", undefined);
    expect([site.authorisation.need, site.authorisation.authorised]).toEqual([undefined, true]);
    expect([...kept.values()].join()).toContain("as-refresh-1");
  });

  it("whose token is refused at once is not tried over and over", async () => {
    const site = await authorised();
    const connection = await site.server.connect();
    as.onToken("revoked");
    as.onToken = () => undefined;
    await connection.request("ping", undefined);
    await connection.request("ping", undefined);
    expect(as.tokenRequests("refresh_token").length).toBe(1);
    expect(site.authorisation.need).toBe("sign-in");
  });

  it("is never shown to an authorisation server that took another one's place", async () => {
    const site = await authorised();
    const connection = await site.server.connect();
    const next = await AuthorisationServer.start("next");
    closing.push(() => next.close());
    as.resources.set("/prm", { resource: site.definition.url, authorization_servers: [next.issuer] });
    as.onToken("revoked");
    await connection.request("ping", undefined);
    expect(site.authorisation.need).toBe("sign-in");
    expect([next.requests("/token").length, as.tokenRequests("refresh_token").length]).toEqual([0, 0]);
    next.onToken = (token) => as.onToken(token);
    await site.authorisation.authorise(person());
    expect(next.requests("/register").length).toBe(1);
    expect(JSON.stringify(next.seen)).not.toContain("as-");
    expect(site.authorisation.token).toBe("next-token-1");
  });
});

describe("more scopes", () => {
  const stepUp = (site: Site, scope: string): number | undefined =>
    site.authorisation.refused({
      status: 403,
      challenge: `${as.challenge("/prm")}, error="insufficient_scope", scope="${scope}"`,
      token: site.authorisation.token,
    });

  it("need a person, keep what was granted, and are asked for once", async () => {
    const server = await protectedServer();
    const site = hosted(server.url);
    const challenge = `${as.protects(server.url)}, scope="read"`;
    site.authorisation.refused({ status: 401, challenge, token: undefined });
    // It never grants what is asked for.
    as.behaviour.grants = () => "read";
    await site.authorisation.authorise(person());
    expect(await site.authorisation.settle(stepUp(site, "write"))).toBe("person");
    expect(site.authorisation.need).toBe("more-scopes");
    await site.authorisation.authorise(person());
    expect(as.requests("/authorize").map(({ query }) => query.get("scope"))).toEqual(["read", "read write"]);
    expect(await site.authorisation.settle(stepUp(site, "write"))).toBe("no");
    expect(site.authorisation.need).toBeUndefined();
    expect(await site.authorisation.settle(stepUp(site, "admin"))).toBe("person");
  });

  it("are no matter of a plain 403", async () => {
    const site = await authorised();
    expect(site.authorisation.refused({ status: 403, challenge: undefined, token: "x" })).toBeUndefined();
    expect(site.authorisation.need).toBeUndefined();
  });
});

describe("a token", () => {
  it("is one server's own: two at once do not mix", async () => {
    const otherAs = await AuthorisationServer.start("other");
    closing.push(() => otherAs.close());
    const [one, two] = [await protectedServer(), await protectedServer("modern-json", otherAs)];
    const [siteOne, siteTwo] = [hosted(one.url), hosted(two.url)];
    told(siteOne);
    siteTwo.authorisation.refused({ status: 401, challenge: otherAs.protects(two.url), token: undefined });
    await Promise.all([siteOne.authorisation.authorise(person()), siteTwo.authorisation.authorise(person())]);
    await Promise.all([siteOne.server.start(), siteTwo.server.start()]);
    const carried = (server: HttpFaultServer): Set<string | undefined> =>
      new Set(server.requests().map(({ headers }) => headers["authorization"]));
    expect([carried(one), carried(two)]).toEqual([new Set(["Bearer as-token-1"]), new Set(["Bearer other-token-1"])]);
    expect(kept.size).toBe(2);
  });

  it.each([
    ["another URL", (url: string) => ({ url: url.replace("/mcp", "/mcp2") })],
    ["another header", (url: string) => ({ url, headers: { "x-tenant": "2" } })],
  ])("is not used with %s", async (_what, change) => {
    const site = await authorised();
    const { definitions } = readDefinitions({ it: change(site.definition.url) }, "servers", { env: {} });
    const changed = authorisationFor(definitions.get("it") as RemoteDefinition, store, new FakeClock(), () => undefined);
    await changed?.ready();
    expect(changed?.token).toBeUndefined();
    // Not even when it lies where it would be looked for.
    const definition = definitions.get("it") as RemoteDefinition;
    kept.set(grantKey(definition.url, fingerprintOf(definition)), [...kept.values()][0] ?? "");
    const again = authorisationFor(definition, store, new FakeClock(), () => undefined);
    await again?.ready();
    expect(again?.token).toBeUndefined();
  });

  it("goes to no other origin along a redirect", async () => {
    const server = await protectedServer();
    const site = hosted(server.url);
    told(site);
    await site.authorisation.authorise(person());
    const connection = await site.server.connect();
    for (const status of [302, 307, 308] as const) {
      server.script({ do: "redirect", status, to: "other-origin" });
      const ending = await connection.prepareCall({ name: "charge", arguments: {} }, {}).send();
      expect(ending).toMatchObject({ kind: "loss", loss: { kind: "redirected" } });
    }
    expect(server.requests().filter(({ origin }) => origin === "other")).toEqual([]);
    expect(JSON.stringify(as.seen)).not.toContain("Bearer as-token");
  });

  it("is kept across programs, and forgotten by signing out", async () => {
    const site = await authorised();
    const later = hosted(site.definition.url);
    await later.server.start();
    expect(later.server.status.state).toBe("connected");
    await later.authorisation.signOut();
    expect([kept.size, later.authorisation.token]).toEqual([0, undefined]);
  });

  it("serves until the program ends when it cannot be kept", async () => {
    store.write = () => Promise.reject(new Error("full"));
    const site = await authorised();
    expect(site.server.status.state).toBe("connected");
    await site.authorisation.ready();
    expect(site.authorisation.token).toBe("as-token-1");
  });

  it("is in no log line", async () => {
    const site = await authorised();
    expect(JSON.stringify([logged, site.log])).not.toMatch(/as-(token|refresh|code|client)/);
  });
});

describe("a client of its own account", () => {
  it("needs nobody", async () => {
    const server = await protectedServer();
    const site = hosted(server.url, { oauth: { clientId: "robot", clientSecret: "s", grant: "client-credentials" } });
    server.setToken("none yet");
    told(site);
    await site.authorisation.settle(1);
    await site.server.start();
    expect(site.server.status.state).toBe("connected");
    expect(as.requests("/authorize")).toEqual([]);
  });
});

it("a definition with an Authorization header of its own has no other", () => {
  const definition: RemoteDefinition = { type: "http", url: "https://x.example/mcp", headers: { authorization: "Bearer x" } };
  expect(authorisationFor(definition, memoryGrantStore(), new FakeClock(), () => undefined)).toBeUndefined();
});
