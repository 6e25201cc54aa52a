/**
 * Owns: getting a grant: by a person in a browser (authorisation code with PKCE), by a refresh token, or by the client's own credentials;
 * which client this is to the authorisation server; which scopes are asked for.
 * Leaves to others: when (server-authorisation.ts), keeping it (grant-store.ts), the requests themselves (the SDK's helpers).
 * Source: MCP 2025-11-25 and 2026-07-28 "Authorization", OAuth 2.1, RFC 7591, RFC 8707, RFC 9207.
 */
import { randomBytes } from "node:crypto";
import {
  ClientCredentialsProvider,
  computeScopeUnion,
  createPrivateKeyJwtAuth,
  exchangeAuthorization,
  fetchToken,
  IssuerMismatchError,
  OAuthError,
  OAuthErrorCode,
  PrivateKeyJwtProvider,
  refreshAuthorization,
  registerClient,
  RegistrationRejectedError,
  resolveClientMetadata,
  startAuthorization,
  validateAuthorizationResponseIssuer,
  type FetchLike,
  type OAuthClientInformationMixed,
  type OAuthTokens,
} from "@modelcontextprotocol/client";
import type { Clock } from "../../clock.ts";
import type { OAuthDefinition } from "../definitions.ts";
import { AuthorisationError } from "./auth-errors.ts";
import type { Discovered } from "./discovery.ts";
import { canonicalUrl, type Grant, type RegisteredClient } from "./grant-store.ts";

/** What a redirect said. */
export interface RedirectAnswer {
  readonly code: string | undefined;
  readonly error: string | undefined;
  readonly iss: string | undefined;
}

/** Where one authorisation's redirect arrives. */
export interface RedirectReceiver {
  readonly redirectUri: string;
  /** The one answer that carries this state; others are refused and waited past. */
  wait(state: string): Promise<RedirectAnswer>;
  close(): void;
}

/** The way to the person. */
export interface Interaction {
  receive(): Promise<RedirectReceiver>;
  /** Shows the person this page in a browser. Rejects or returns false when they do not want to see it. */
  open(url: URL): Promise<boolean>;
}

/** One server's part in it. */
export interface FlowParts {
  readonly serverUrl: string;
  readonly fingerprint: string;
  /** Secrets in their places. */
  readonly oauth: OAuthDefinition | undefined;
  readonly fetchFn: FetchLike;
  readonly clock: Clock;
}

/** How long a person may take, in milliseconds. */
const personLimitMs = 10 * 60_000;

/**
 * The scopes to ask for: what the challenge names, else what the definition names, else all that the resource supports; with what was asked
 * for before (a step up must not lose it). Undefined: none is named, and the authorisation server decides.
 */
export function scopesFor(
  challenged: string | undefined,
  before: string | undefined,
  discovered: Discovered,
  oauth: OAuthDefinition | undefined,
): string | undefined {
  const wanted = challenged ?? oauth?.scopes?.join(" ") ?? discovered.scopesSupported?.join(" ");
  const scope = computeScopeUnion(before, wanted);
  // A refresh token may depend on it (OpenID Connect Core, 11).
  const offline = scope !== undefined && discovered.metadata?.scopes_supported?.includes("offline_access") === true;
  return offline ? computeScopeUnion(scope, "offline_access") : scope;
}

/**
 * By a person in a browser.
 * @throws AuthorisationError
 */
export async function authoriseByPerson(
  parts: FlowParts,
  discovered: Discovered,
  scope: string | undefined,
  interaction: Interaction,
  signal: AbortSignal | undefined,
): Promise<Grant> {
  const receiver = await interaction.receive();
  try {
    return await guarded("code-refused", async () => {
      const { authorizationServer, metadata, resource } = discovered;
      const { redirectUri } = receiver;
      const registeredClient = await register(parts, discovered, scope, redirectUri);
      const clientInformation = clientOf(parts, discovered, registeredClient);
      // Known to nobody but this authorisation.
      const state = randomBytes(32).toString("base64url");
      const { authorizationUrl, codeVerifier } = await startAuthorization(authorizationServer, {
        ...(metadata === undefined ? {} : { metadata }),
        clientInformation,
        redirectUrl: redirectUri,
        state,
        ...(scope === undefined ? {} : { scope }),
        ...(resource === undefined ? {} : { resource }),
      });
      const answered = receiver.wait(state);
      if (!(await interaction.open(authorizationUrl))) throw new AuthorisationError("cancelled");
      const { code, error, iss } = await inTime(answered, parts.clock, signal);
      // Before anything of it is believed, the error included.
      validateAuthorizationResponseIssuer({
        iss,
        expectedIssuer: metadata?.issuer,
        issParameterSupported: metadata?.["authorization_response_iss_parameter_supported"] === true,
      });
      if (error !== undefined) throw new AuthorisationError(error === "access_denied" ? "denied" : "redirect-failed");
      if (code === undefined || code === "") throw new AuthorisationError("redirect-failed");
      const tokens = await exchangeAuthorization(authorizationServer, {
        ...(metadata === undefined ? {} : { metadata }),
        clientInformation,
        authorizationCode: code,
        ...(iss === undefined ? {} : { iss }),
        codeVerifier,
        redirectUri,
        ...(resource === undefined ? {} : { resource }),
        ...keyAuthentication(parts),
        fetchFn: parts.fetchFn,
      });
      return grantOf(parts, discovered, tokens, scope, registeredClient);
    });
  } finally {
    receiver.close();
  }
}

/**
 * By the refresh token, at the authorisation server that gave it.
 * @throws AuthorisationError `grant-refused` when a person is needed
 */
export async function refresh(parts: FlowParts, discovered: Discovered, grant: Grant): Promise<Grant> {
  const { refreshToken, registeredClient } = grant;
  if (refreshToken === undefined || discovered.issuer !== grant.issuer) throw new AuthorisationError("grant-refused");
  return guarded("grant-refused", async () => {
    const { authorizationServer, metadata, resource } = discovered;
    const tokens = await refreshAuthorization(authorizationServer, {
      ...(metadata === undefined ? {} : { metadata }),
      clientInformation: clientOf(parts, discovered, registeredClient),
      refreshToken,
      ...(resource === undefined ? {} : { resource }),
      ...keyAuthentication(parts),
      fetchFn: parts.fetchFn,
    });
    return grantOf(parts, discovered, tokens, grant.scope, registeredClient);
  });
}

/**
 * By the client's own credentials (OAuth 2.1 section 4.2; the MCP extension "OAuth client credentials"): no person.
 * @throws AuthorisationError
 */
export async function authoriseByCredentials(
  parts: FlowParts,
  discovered: Discovered,
  scope: string | undefined,
): Promise<Grant> {
  return guarded("grant-refused", async () => {
    const { oauth, fetchFn } = parts;
    const { authorizationServer, metadata, resource, issuer: expectedIssuer } = discovered;
    const clientId = oauth?.clientId;
    if (clientId === undefined) throw new AuthorisationError("no-registration");
    const { privateKey, clientSecret } = oauth ?? {};
    const provider =
      privateKey === undefined
        ? new ClientCredentialsProvider({ clientId, clientSecret: clientSecret ?? "", expectedIssuer })
        : new PrivateKeyJwtProvider({ clientId, privateKey, algorithm: oauth?.signingAlgorithm ?? "ES256", expectedIssuer });
    const tokens = await fetchToken(provider, authorizationServer, {
      ...(metadata === undefined ? {} : { metadata }),
      ...(resource === undefined ? {} : { resource }),
      ...(scope === undefined ? {} : { scope }),
      fetchFn,
    });
    return grantOf(parts, discovered, tokens, scope, undefined);
  });
}

/** Which client this is: the definition's own, its metadata document, or one that registers itself now (RFC 7591). */
async function register(
  parts: FlowParts,
  discovered: Discovered,
  scope: string | undefined,
  redirectUri: string,
): Promise<RegisteredClient | undefined> {
  if (parts.oauth?.clientId !== undefined || usesMetadataDocument(parts, discovered)) return undefined;
  const { authorizationServer, metadata } = discovered;
  if (metadata !== undefined && metadata.registration_endpoint === undefined) throw new AuthorisationError("no-registration");
  const methods = metadata?.token_endpoint_auth_methods_supported ?? ["none"];
  const method = ["none", "client_secret_basic", "client_secret_post"].find((one) => methods.includes(one)) ?? "none";
  const clientMetadata = resolveClientMetadata({
    redirectUrl: redirectUri,
    clientMetadata: {
      client_name: "MCP Safe Replay",
      redirect_uris: [redirectUri],
      grant_types: ["authorization_code", "refresh_token"],
      response_types: ["code"],
      token_endpoint_auth_method: method,
    },
  });
  // Deprecated by the specification in favour of metadata documents, but what most authorisation servers offer.
  // eslint-disable-next-line @typescript-eslint/no-deprecated
  const client = await registerClient(authorizationServer, {
    ...(metadata === undefined ? {} : { metadata }),
    clientMetadata,
    ...(scope === undefined ? {} : { scope }),
    fetchFn: parts.fetchFn,
  }).catch((error: unknown) => {
    if (error instanceof AuthorisationError) throw error;
    if (!(error instanceof RegistrationRejectedError)) throw new AuthorisationError("unreadable");
    // No metadata, and nothing at the default place either: this is no authorisation server at all.
    const nothingThere = metadata === undefined && (error.status === 404 || error.status === 405);
    throw new AuthorisationError(nothingThere ? "no-metadata" : "registration-refused");
  });
  const { client_id, client_secret, token_endpoint_auth_method } = client;
  return {
    client_id,
    ...(client_secret === undefined ? {} : { client_secret }),
    ...(token_endpoint_auth_method === undefined ? {} : { token_endpoint_auth_method }),
  };
}

function usesMetadataDocument(parts: FlowParts, discovered: Discovered): boolean {
  return parts.oauth?.clientMetadataUrl !== undefined && discovered.metadata?.["client_id_metadata_document_supported"] === true;
}

function clientOf(
  parts: FlowParts,
  discovered: Discovered,
  registered: RegisteredClient | undefined,
): OAuthClientInformationMixed {
  const { oauth } = parts;
  if (oauth?.clientId !== undefined)
    return {
      client_id: oauth.clientId,
      ...(oauth.clientSecret === undefined ? {} : { client_secret: oauth.clientSecret }),
    };
  if (registered !== undefined) return registered;
  if (oauth?.clientMetadataUrl !== undefined && usesMetadataDocument(parts, discovered))
    return { client_id: oauth.clientMetadataUrl };
  throw new AuthorisationError("grant-refused");
}

/** A client that proves itself by a signature (`private_key_jwt`). */
function keyAuthentication({ oauth }: FlowParts): {
  addClientAuthentication?: ReturnType<typeof createPrivateKeyJwtAuth>;
} {
  if (oauth?.clientId === undefined || oauth.privateKey === undefined) return {};
  return {
    addClientAuthentication: createPrivateKeyJwtAuth({
      issuer: oauth.clientId,
      subject: oauth.clientId,
      privateKey: oauth.privateKey,
      alg: oauth.signingAlgorithm ?? "ES256",
    }),
  };
}

function grantOf(
  parts: FlowParts,
  discovered: Discovered,
  tokens: OAuthTokens,
  asked: string | undefined,
  registeredClient: RegisteredClient | undefined,
): Grant {
  // RFC 6749 section 5.1: a kind of token that the client does not understand must not be used.
  if (tokens.token_type.toLowerCase() !== "bearer") throw new AuthorisationError("unreadable");
  const scope = tokens.scope ?? asked;
  return {
    version: 1,
    serverUrl: canonicalUrl(parts.serverUrl),
    fingerprint: parts.fingerprint,
    issuer: discovered.issuer,
    authorizationServer: discovered.authorizationServer,
    accessToken: tokens.access_token,
    ...(discovered.resource === undefined ? {} : { resource: discovered.resource }),
    ...(registeredClient === undefined ? {} : { registeredClient }),
    ...(tokens.refresh_token === undefined ? {} : { refreshToken: tokens.refresh_token }),
    ...(scope === undefined ? {} : { scope }),
    ...(tokens.expires_in === undefined ? {} : { expiresAt: parts.clock.now() + tokens.expires_in * 1_000 }),
  };
}

/** Errors of the SDK's helpers carry the peer's text: they end here. @param refused what a plain "no" of the authorisation server means */
async function guarded(refused: "code-refused" | "grant-refused", act: () => Promise<Grant>): Promise<Grant> {
  try {
    return await act();
  } catch (error) {
    if (error instanceof AuthorisationError) throw error;
    if (error instanceof IssuerMismatchError) throw new AuthorisationError("wrong-issuer");
    if (error instanceof OAuthError) {
      const passing: readonly string[] = [
        OAuthErrorCode.ServerError,
        OAuthErrorCode.TemporarilyUnavailable,
        OAuthErrorCode.TooManyRequests,
      ];
      throw new AuthorisationError(passing.includes(error.code) ? "unreachable" : refused);
    }
    throw new AuthorisationError("unreadable");
  }
}

async function inTime<T>(answer: Promise<T>, clock: Clock, signal: AbortSignal | undefined): Promise<T> {
  const over = Promise.withResolvers<never>();
  const giveUp = (): void => over.reject(new AuthorisationError("cancelled"));
  const stop = clock.after(personLimitMs, () => over.reject(new AuthorisationError("timeout")));
  if (signal?.aborted === true) giveUp();
  signal?.addEventListener("abort", giveUp, { once: true });
  try {
    return await Promise.race([answer, over.promise]);
  } finally {
    stop();
    signal?.removeEventListener("abort", giveUp);
  }
}
