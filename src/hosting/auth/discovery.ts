/**
 * Owns: where a server is authorised: protected resource metadata (RFC 9728), authorisation server metadata (RFC 8414, OpenID Connect
 * Discovery), the defaults of 2025-03-26 for servers that publish neither, and what of it is not acceptable.
 * Leaves to others: the requests themselves (the SDK's helpers), and what is done there (flow.ts).
 * Source: MCP 2025-11-25 and 2026-07-28 "Authorization"; MCP 2025-03-26 "Authorization: Fallbacks for Servers without Metadata Discovery".
 */
import {
  checkResourceAllowed,
  discoverAuthorizationServerMetadata,
  discoverOAuthProtectedResourceMetadata,
  IssuerMismatchError,
  resourceUrlFromServerUrl,
  type AuthorizationServerMetadata,
  type FetchLike,
  type OAuthProtectedResourceMetadata,
} from "@modelcontextprotocol/client";
import { assertAllowed } from "./auth-fetch.ts";
import { AuthorisationError } from "./auth-errors.ts";

export interface Discovered {
  /** As the resource names it: what the SDK's helpers take. */
  readonly authorizationServer: string;
  /** Undefined for a server of 2025-03-26 without metadata, whose endpoints are the default ones. */
  readonly metadata: AuthorizationServerMetadata | undefined;
  readonly issuer: string;
  /** RFC 8707: exactly as the server wrote it. */
  readonly resource: string | undefined;
  readonly scopesSupported: readonly string[] | undefined;
}

/**
 * @param resourceMetadataUrl from the server's challenge
 * @throws AuthorisationError
 */
export async function discover(serverUrl: string, resourceMetadataUrl: URL | undefined, fetchFn: FetchLike): Promise<Discovered> {
  const resource = await protectedResource(serverUrl, resourceMetadataUrl, fetchFn);
  if (
    resource !== undefined &&
    !checkResourceAllowed({ requestedResource: resourceUrlFromServerUrl(serverUrl), configuredResource: resource.resource })
  )
    throw new AuthorisationError("wrong-resource");
  const named = resource?.authorization_servers?.[0];
  const authorizationServer = named ?? new URL("/", serverUrl).href;
  const metadata = await authorizationServerMetadata(authorizationServer, fetchFn, named === undefined);
  if (metadata === undefined) {
    // The default endpoints are of servers that know nothing of metadata; who names an authorisation server has one.
    if (named !== undefined) throw new AuthorisationError("no-metadata");
    assertAllowed(authorizationServer, serverUrl);
  } else {
    if (metadata.code_challenge_methods_supported?.includes("S256") !== true) throw new AuthorisationError("no-pkce");
    const endpoints = [metadata.authorization_endpoint, metadata.token_endpoint, metadata.registration_endpoint];
    for (const endpoint of endpoints) if (endpoint !== undefined) assertAllowed(endpoint, serverUrl);
  }
  return {
    authorizationServer,
    metadata,
    issuer: metadata?.issuer ?? authorizationServer,
    resource: resource?.resource,
    scopesSupported: resource?.scopes_supported,
  };
}

async function protectedResource(
  serverUrl: string,
  resourceMetadataUrl: URL | undefined,
  fetchFn: FetchLike,
): Promise<OAuthProtectedResourceMetadata | undefined> {
  let status = 0;
  const watched: FetchLike = async (url, init) => {
    const response = await fetchFn(url, init);
    status = response.status;
    return response;
  };
  try {
    const options = resourceMetadataUrl === undefined ? {} : { resourceMetadataUrl };
    return await discoverOAuthProtectedResourceMetadata(serverUrl, options, watched);
  } catch (error) {
    if (error instanceof AuthorisationError) throw error;
    if (status >= 500) throw new AuthorisationError("unreachable");
    if (status >= 200 && status < 300) throw new AuthorisationError("unreadable");
    // Not there. A challenge that names a document which is not there is a mistake of the server's, not a server of 2025-03-26.
    if (resourceMetadataUrl !== undefined) throw new AuthorisationError("no-metadata");
    return undefined;
  }
}

async function authorizationServerMetadata(
  authorizationServer: string,
  fetchFn: FetchLike,
  ownOrigin: boolean,
): Promise<AuthorizationServerMetadata | undefined> {
  if (!URL.canParse(authorizationServer)) throw new AuthorisationError("unreadable");
  let status = 0;
  const watched: FetchLike = async (url, init) => {
    const response = await fetchFn(url, init);
    status = response.status;
    return response;
  };
  try {
    const metadata = await discoverAuthorizationServerMetadata(authorizationServer, {
      fetchFn: watched,
      skipIssuerValidation: ownOrigin,
    });
    // In 2025-03-26 the metadata lies at the root of the server's own origin, whatever path there its issuer has; but it is there.
    if (ownOrigin && metadata !== undefined && !isAt(metadata.issuer, authorizationServer))
      throw new AuthorisationError("wrong-issuer");
    return metadata;
  } catch (error) {
    if (error instanceof AuthorisationError) throw error;
    if (error instanceof IssuerMismatchError) throw new AuthorisationError("wrong-issuer");
    throw new AuthorisationError(status >= 500 ? "unreachable" : "unreadable");
  }
}

function isAt(issuer: string, address: string): boolean {
  return URL.canParse(issuer) && new URL(issuer).origin === new URL(address).origin;
}
