/**
 * Owns: one remote server's authorisation over time: the token that its requests carry, what a challenge leads to, and whether a person is
 * needed.
 * Leaves to others: the steps of an authorisation (discovery.ts, flow.ts), asking the person, and what becomes of a refused call (src/replay).
 *
 * The rules in one place:
 *  - A token goes to this server's own URL only, and only while its definition is the one that was authorised.
 *  - One refresh and one authorisation at a time; whoever comes meanwhile shares it.
 *  - A challenge against a token that has been replaced since leads to one more try with the new one, and to nothing else.
 *  - A refreshed token that was never accepted is not refreshed again: a person is needed.
 *  - More scopes (403 `insufficient_scope`) need a person, once for each set of scopes.
 */
import { extractWWWAuthenticateParams, isStrictScopeSuperset, computeScopeUnion } from "@modelcontextprotocol/client";
import type { Clock } from "../../clock.ts";
import { fingerprintOf, withSecrets, type RemoteDefinition, type ServerDefinition } from "../definitions.ts";
import { AuthorisationError } from "./auth-errors.ts";
import { authFetch } from "./auth-fetch.ts";
import { discover, type Discovered } from "./discovery.ts";
import { authoriseByCredentials, authoriseByPerson, refresh, scopesFor, type FlowParts, type Interaction } from "./flow.ts";
import { grantKey, readGrant, type Grant, type GrantStore } from "./grant-store.ts";

/** Writes to the server's log. Lines hold no token and nothing that a server wrote. */
type AuthLog = (level: "info" | "warning", text: string) => void;

/** What a challenge led to. */
export type Settled =
  /** There is another token now: the request may be made again. */
  | "retry"
  /** A person has to authorise. */
  | "person"
  /** Nothing can be done about it, or not now. */
  | "no";

/** Why a person is needed. */
export type Need = "sign-in" | "more-scopes";

export interface ServerAuthorisationOptions {
  readonly definition: RemoteDefinition;
  readonly fingerprint: string;
  readonly store: GrantStore;
  readonly clock: Clock;
  readonly log: AuthLog;
}

/** A refusal as the transport saw it. */
export interface Refusal {
  readonly status: number;
  /** The `WWW-Authenticate` header. */
  readonly challenge: string | undefined;
  /** The token that the refused request carried. */
  readonly token: string | undefined;
}

interface Challenge {
  readonly resourceMetadataUrl: URL | undefined;
  readonly scope: string | undefined;
}

/** A token is replaced this long before it runs out, in milliseconds. */
const earlyMs = 30_000;
/** After an authorisation server could not be reached, a token that is running out is used as it is for this long. Milliseconds. */
const unreachableMs = 30_000;
/** Challenges that somebody may still ask about. */
const challengeLimit = 200;

/** The authorisation of a server; undefined for a program, and where the definition brings an `Authorization` header of its own. */
export function authorisationFor(
  definition: ServerDefinition,
  store: GrantStore,
  clock: Clock,
  log: AuthLog,
): ServerAuthorisation | undefined {
  if (definition.type === "stdio") return undefined;
  if (Object.keys(definition.headers).some((name) => name.toLowerCase() === "authorization")) return undefined;
  return new ServerAuthorisation({ definition, fingerprint: fingerprintOf(definition), store, clock, log });
}

export class ServerAuthorisation {
  readonly #options: ServerAuthorisationOptions;
  readonly #key: string;
  readonly #listeners = new Set<() => void>();
  readonly #settled = new Map<number, Promise<Settled>>();
  readonly #stopWatching: (() => void) | undefined;
  #grant: Grant | undefined;
  #renewing: Promise<Settled> | undefined;
  #authorising: Promise<void> | undefined;
  #challenge: Challenge = { resourceMetadataUrl: undefined, scope: undefined };
  #challenges = 0;
  #need: Need | undefined;
  #renewNotBefore = 0;
  /** False when the grant could not be written: it is here only. */
  #kept = true;
  /** A token that came without a person and has not been accepted yet. */
  #unproven: string | undefined;
  /** Scopes for which a person was there already. */
  readonly #steppedUp = new Set<string>();

  constructor(options: ServerAuthorisationOptions) {
    this.#options = options;
    this.#key = grantKey(options.definition.url, options.fingerprint);
    this.#stopWatching = options.store.onDidChange?.((key) => {
      if (key === this.#key) void this.#reload();
    });
  }

  /** Why a person is needed now; undefined when nobody is. */
  get need(): Need | undefined {
    return this.#need;
  }

  /** Whether there is a token. */
  get authorised(): boolean {
    return this.#grant !== undefined;
  }

  /** What the next request carries. */
  get token(): string | undefined {
    return this.#grant?.accessToken;
  }

  onDidChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Before a request: reads what is kept, and replaces a token that is running out. Never rejects. */
  async ready(): Promise<void> {
    // Without one, another program may have got it since.
    if (this.#grant === undefined) await this.#reload();
    const { expiresAt, refreshToken } = this.#grant ?? {};
    const now = this.#options.clock.now();
    if (expiresAt !== undefined && refreshToken !== undefined && expiresAt - earlyMs <= now && this.#renewNotBefore <= now)
      await this.#renew(this.#challenge, this.token);
  }

  /**
   * A request was refused with 401 or 403. What can be done without a person begins at once.
   * @returns a number to ask `settle` about; undefined when it is no challenge
   */
  refused(refusal: Refusal): number | undefined {
    const { status, token } = refusal;
    const headers = new Headers(refusal.challenge === undefined ? {} : { "www-authenticate": refusal.challenge });
    const { resourceMetadataUrl, scope, error } = extractWWWAuthenticateParams(new Response(null, { headers }));
    const stepUp = status === 403 && error === "insufficient_scope";
    if (status !== 401 && !stepUp) return undefined;
    const challenge: Challenge = { resourceMetadataUrl: resourceMetadataUrl ?? this.#challenge.resourceMetadataUrl, scope };
    this.#challenge = challenge;
    const number = ++this.#challenges;
    this.#settled.set(number, stepUp ? this.#stepUp(challenge, token) : this.#renew(challenge, token));
    this.#settled.delete(number - challengeLimit);
    return number;
  }

  /** A request with this token was not refused. */
  accepted(token: string | undefined): void {
    if (token !== undefined && token === this.#unproven) this.#unproven = undefined;
  }

  /** What a challenge led to. Never rejects. */
  async settle(challenge: number | undefined): Promise<Settled> {
    return (challenge === undefined ? undefined : this.#settled.get(challenge)) ?? "no";
  }

  /**
   * Asks a person. One at a time: who comes meanwhile waits for the same end.
   * @throws AuthorisationError
   */
  authorise(interaction: Interaction, signal?: AbortSignal): Promise<void> {
    return (this.#authorising ??= this.#authorise(interaction, signal).finally(() => {
      this.#authorising = undefined;
    }));
  }

  /** Forgets what is kept. The server itself is not told. */
  async signOut(): Promise<void> {
    await this.#options.store.remove(this.#key);
    this.#kept = true;
    this.#steppedUp.clear();
    this.#unproven = undefined;
    this.#set(undefined, undefined);
  }

  dispose(): void {
    this.#stopWatching?.();
    this.#listeners.clear();
  }

  async #authorise(interaction: Interaction, signal: AbortSignal | undefined): Promise<void> {
    if (this.#grant === undefined) await this.#reload();
    const parts = this.#parts(signal);
    const found = await this.#discover(this.#challenge, parts);
    const scope = this.#scopes(found);
    const grant =
      parts.oauth?.grant === "client-credentials"
        ? await authoriseByCredentials(parts, found, scope)
        : await authoriseByPerson(parts, found, scope, interaction, signal);
    if (this.#need === "more-scopes" && scope !== undefined) this.#steppedUp.add(scope);
    await this.#keep(grant);
    this.#unproven = undefined;
    this.#set(grant, undefined);
    this.#options.log("info", "Authorised.");
  }

  /** What to ask for. Scopes that one authorisation server gave are nothing to another. */
  #scopes(found: Discovered): string | undefined {
    const before = this.#grant?.issuer === found.issuer ? this.#grant.scope : undefined;
    return scopesFor(this.#challenge.scope, before, found, this.#options.definition.oauth);
  }

  // Without a person.

  async #renew(challenge: Challenge, refusedToken: string | undefined): Promise<Settled> {
    return (this.#renewing ??= this.#renewOnce(challenge, refusedToken).finally(() => {
      this.#renewing = undefined;
    }));
  }

  async #renewOnce(challenge: Challenge, refusedToken: string | undefined): Promise<Settled> {
    // Another window may have been quicker, and a refresh token may be good for one use only.
    await this.#reload();
    const grant = this.#grant;
    if (grant !== undefined && grant.accessToken !== refusedToken) return "retry";
    const byCredentials = this.#options.definition.oauth?.grant === "client-credentials";
    if (this.#unproven !== undefined && this.#unproven === refusedToken) return this.#needs("sign-in");
    if (!byCredentials && grant?.refreshToken === undefined) return this.#needs("sign-in");
    try {
      const parts = this.#parts(undefined);
      // Asked anew each time: an authorisation server that has been replaced is never shown what another one gave.
      const found = await this.#discover(challenge, parts);
      const renewed = byCredentials
        ? await authoriseByCredentials(parts, found, this.#scopes(found))
        : await refresh(parts, found, grant as Grant);
      await this.#keep(renewed);
      this.#unproven = renewed.accessToken;
      this.#set(renewed, undefined);
      return "retry";
    } catch (error) {
      const failure = error instanceof AuthorisationError ? error.failure : "unreadable";
      this.#options.log("warning", `The authorisation could not be renewed (${failure}).`);
      // It may be reached the next time: nothing is forgotten.
      if (failure === "unreachable") {
        this.#renewNotBefore = this.#options.clock.now() + unreachableMs;
        return "no";
      }
      await this.#reload();
      if (this.#grant !== undefined && this.#grant.accessToken !== refusedToken) return "retry";
      // Not shown to it again.
      if (grant?.refreshToken !== undefined) await this.#keep((this.#grant = { ...grant, refreshToken: undefined }));
      return this.#needs("sign-in");
    }
  }

  /** 403 `insufficient_scope`: a refresh cannot widen a grant (RFC 6749 section 6). */
  async #stepUp(challenge: Challenge, refusedToken: string | undefined): Promise<Settled> {
    if (this.#grant === undefined) await this.#reload();
    if (this.token !== refusedToken) return "retry";
    const granted = this.#grant?.scope;
    const wanted = computeScopeUnion(granted, challenge.scope);
    // What was granted already and is refused all the same is not asked for over and over.
    if (!isStrictScopeSuperset(wanted, granted) || [...this.#steppedUp].some((one) => !isStrictScopeSuperset(wanted, one)))
      return "no";
    return this.#needs("more-scopes");
  }

  #needs(need: Need): Settled {
    this.#set(this.#grant, need);
    return "person";
  }

  // What is kept.

  async #reload(): Promise<void> {
    const { store, definition, fingerprint } = this.#options;
    if (!this.#kept) return;
    const text = await store.read(this.#key).catch(() => undefined);
    const grant = readGrant(text, definition.url, fingerprint);
    const changed = grant?.accessToken !== this.#grant?.accessToken;
    if (changed) this.#set(grant, grant === undefined ? this.#need : undefined);
  }

  /** A token that cannot be kept serves until this process ends. */
  async #keep(grant: Grant): Promise<void> {
    try {
      await this.#options.store.write(this.#key, JSON.stringify(grant));
      this.#kept = true;
    } catch {
      this.#kept = false;
      this.#options.log("warning", "The authorisation could not be kept: it ends with this program.");
    }
  }

  #set(grant: Grant | undefined, need: Need | undefined): void {
    const same = this.#grant === grant && this.#need === need;
    this.#grant = grant;
    this.#need = need;
    if (same) return;
    for (const listener of [...this.#listeners]) listener();
  }

  #discover(challenge: Challenge, parts: FlowParts): Promise<Discovered> {
    return discover(this.#options.definition.url, challenge.resourceMetadataUrl, parts.fetchFn);
  }

  #parts(signal: AbortSignal | undefined): FlowParts {
    const { definition, fingerprint, clock } = this.#options;
    return {
      serverUrl: definition.url,
      fingerprint,
      oauth: withSecrets(definition).oauth,
      clock,
      fetchFn: authFetch({ serverUrl: definition.url, clock, signal }),
    };
  }
}
