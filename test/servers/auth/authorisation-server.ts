/**
 * Owns: a small authorisation server on real loopback HTTP that can be made to misbehave, and the metadata of the resource it protects.
 * Leaves to others: the protected MCP server (test/servers/fault), the person (person.ts).
 */
import { createHash, randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface Behaviour {
  /** Where its own metadata lies; `openid-appended` is OpenID's own form for an issuer with a path. */
  metadata: "oauth" | "openid" | "openid-appended" | "none";
  /** The path of the issuer, without a slash at the end. */
  path: string;
  /** What the metadata says in place of the true issuer. */
  issuer: string | undefined;
  pkce: readonly string[] | undefined;
  registration: "open" | "refused" | "none";
  /** How the authorisation endpoint answers the person's browser. */
  person: "agrees" | "denies";
  /** The `iss` of the redirect; undefined: none. */
  iss: "right" | "wrong" | "none";
  /** Whether the metadata promises `iss`. */
  issPromised: boolean;
  /** Seconds. */
  expiresIn: number | undefined;
  refresh: "rotates" | "keeps" | "refused" | "down" | "none";
  scopesSupported: readonly string[] | undefined;
  /** Which scope a token is said to have; undefined: not said. */
  grants: ((asked: string | undefined) => string | undefined) | undefined;
  /** Answers of the token endpoint wait for this. */
  gate: Promise<void> | undefined;
  clientIdDocuments: boolean;
  /** The page for the person, where it is not this server's own. */
  page: string | undefined;
  /** Status and Location for a request for its metadata. */
  redirect: string | undefined;
  /** Pads its metadata to so many bytes. */
  padding: number;
}

/** What the resource says of itself. */
export interface ResourceMetadata {
  readonly resource: string;
  readonly authorization_servers?: readonly string[];
  readonly scopes_supported?: readonly string[];
}

export interface Seen {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly body: string;
  readonly form: URLSearchParams;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
}

interface Code {
  readonly challenge: string;
  readonly redirectUri: string;
  readonly client: string;
  readonly scope: string | undefined;
}

export class AuthorisationServer {
  readonly behaviour: Behaviour = {
    metadata: "oauth",
    path: "",
    issuer: undefined,
    pkce: ["S256"],
    registration: "open",
    person: "agrees",
    iss: "right",
    issPromised: true,
    expiresIn: undefined,
    refresh: "rotates",
    scopesSupported: undefined,
    grants: undefined,
    gate: undefined,
    clientIdDocuments: false,
    page: undefined,
    redirect: undefined,
    padding: 0,
  };
  /** Documents of RFC 9728 by their path. */
  readonly resources = new Map<string, ResourceMetadata>();
  /** Every request, in order. */
  readonly seen: Seen[] = [];
  /** The access token given out last. */
  token: string | undefined;
  /** Called with each access token when it is given out. */
  onToken: (token: string) => void = () => undefined;
  readonly #name: string;
  readonly #server: Server;
  readonly #codes = new Map<string, Code>();
  readonly #refreshTokens = new Map<string, { readonly client: string; readonly scope: string | undefined }>();
  #tokens = 0;

  private constructor(name: string) {
    this.#name = name;
    this.#server = createServer((request, response) => void this.#handle(request, response));
  }

  /** @param name is part of every token and code that it gives out */
  static async start(name = "as"): Promise<AuthorisationServer> {
    const started = new AuthorisationServer(name);
    await new Promise<void>((resolve) => started.#server.listen(0, "127.0.0.1", resolve));
    return started;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get issuer(): string {
    return this.origin + this.behaviour.path;
  }

  /** The challenge of a resource whose metadata lies here. */
  challenge(path: string, more = ""): string {
    return `Bearer resource_metadata="${this.origin}${path}"${more}`;
  }

  /** Publishes the metadata of a resource here. @returns the challenge that names it */
  protects(resource: string, more: Partial<ResourceMetadata> = {}): string {
    this.resources.set("/prm", { resource, authorization_servers: [this.issuer], ...more });
    return this.challenge("/prm");
  }

  requests(path: string): readonly Seen[] {
    return this.seen.filter((one) => one.path === path);
  }

  /** The token requests with this grant type. */
  tokenRequests(grantType: string): readonly Seen[] {
    return this.requests("/token").filter((one) => one.form.get("grant_type") === grantType);
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks).toString();
    const url = new URL(request.url ?? "/", this.origin);
    const seen: Seen = {
      method: request.method ?? "",
      path: url.pathname,
      query: url.searchParams,
      body,
      form: new URLSearchParams(body),
      headers: request.headers,
    };
    this.seen.push(seen);
    const resource = this.resources.get(seen.path);
    if (resource !== undefined) {
      json(response, 200, resource);
      return;
    }
    const { behaviour } = this;
    if (seen.path === metadataPath(behaviour)) {
      if (behaviour.redirect !== undefined) {
        response.writeHead(302, { location: behaviour.redirect }).end();
        return;
      }
      json(response, 200, this.#metadata());
      return;
    }
    if (seen.path === "/authorize" && seen.method === "GET") {
      this.#authorize(seen, response);
      return;
    }
    if (seen.path === "/register" && behaviour.registration !== "none") {
      this.#register(seen, response);
      return;
    }
    if (seen.path === "/token" && seen.method === "POST") return this.#token(seen, response);
    json(response, 404, { error: "not_found" });
  }

  #metadata(): Record<string, unknown> {
    const { behaviour, origin } = this;
    return {
      issuer: behaviour.issuer ?? this.issuer,
      authorization_endpoint: behaviour.page ?? `${origin}/authorize`,
      token_endpoint: `${origin}/token`,
      ...(behaviour.registration === "none" ? {} : { registration_endpoint: `${origin}/register` }),
      response_types_supported: ["code"],
      token_endpoint_auth_methods_supported: ["none", "client_secret_basic"],
      ...(behaviour.pkce === undefined ? {} : { code_challenge_methods_supported: behaviour.pkce }),
      ...(behaviour.scopesSupported === undefined ? {} : { scopes_supported: behaviour.scopesSupported }),
      ...(behaviour.issPromised ? { authorization_response_iss_parameter_supported: true } : {}),
      ...(behaviour.clientIdDocuments ? { client_id_metadata_document_supported: true } : {}),
      // Of OpenID Connect Discovery.
      jwks_uri: `${origin}/jwks`,
      subject_types_supported: ["public"],
      id_token_signing_alg_values_supported: ["ES256"],
      ...(behaviour.padding > 0 ? { padding: "x".repeat(behaviour.padding) } : {}),
    };
  }

  #authorize({ query }: Seen, response: ServerResponse): void {
    const redirect = new URL(query.get("redirect_uri") ?? "");
    const code = `${this.#name}-code-${randomUUID()}`;
    redirect.searchParams.set("state", query.get("state") ?? "");
    const { iss } = this.behaviour;
    if (iss !== "none") redirect.searchParams.set("iss", iss === "right" ? this.issuer : "https://elsewhere.example");
    if (this.behaviour.person === "denies") {
      redirect.searchParams.set("error", "access_denied");
      redirect.searchParams.set("error_description", "words of the authorisation server");
    } else {
      this.#codes.set(code, {
        challenge: query.get("code_challenge") ?? "",
        redirectUri: query.get("redirect_uri") ?? "",
        client: query.get("client_id") ?? "",
        scope: query.get("scope") ?? undefined,
      });
      redirect.searchParams.set("code", code);
    }
    response.writeHead(302, { location: redirect.href }).end();
  }

  #register({ body }: Seen, response: ServerResponse): void {
    if (this.behaviour.registration === "refused") {
      json(response, 403, { error: "access_denied", error_description: "words of the authorisation server" });
      return;
    }
    const wanted = JSON.parse(body) as Record<string, unknown>;
    json(response, 201, { ...wanted, client_id: `${this.#name}-client-${randomUUID()}` });
  }

  async #token(seen: Seen, response: ServerResponse): Promise<void> {
    await this.behaviour.gate;
    const { form } = seen;
    const refused = (error: string, status = 400): void =>
      json(response, status, { error, error_description: "words of the authorisation server" });
    const grant = form.get("grant_type");
    if (grant === "authorization_code") {
      const code = this.#codes.get(form.get("code") ?? "");
      this.#codes.delete(form.get("code") ?? "");
      const verifier = createHash("sha256")
        .update(form.get("code_verifier") ?? "")
        .digest("base64url");
      if (code === undefined || code.challenge !== verifier || code.redirectUri !== form.get("redirect_uri")) {
        refused("invalid_grant");
        return;
      }
      if (clientOf(seen) !== code.client) {
        refused("invalid_client", 401);
        return;
      }
      this.#give(response, code.client, code.scope);
      return;
    }
    if (grant === "refresh_token") {
      if (this.behaviour.refresh === "down") {
        refused("server_error", 503);
        return;
      }
      const given = form.get("refresh_token") ?? "";
      const known = this.#refreshTokens.get(given);
      if (this.behaviour.refresh === "refused" || known === undefined || known.client !== clientOf(seen)) {
        refused("invalid_grant");
        return;
      }
      if (this.behaviour.refresh === "rotates") this.#refreshTokens.delete(given);
      this.#give(response, known.client, known.scope, this.behaviour.refresh === "keeps" ? given : undefined);
      return;
    }
    if (grant === "client_credentials") {
      this.#give(response, clientOf(seen), form.get("scope") ?? undefined);
      return;
    }
    refused("unsupported_grant_type");
  }

  #give(response: ServerResponse, client: string, scope: string | undefined, kept?: string): void {
    const { behaviour } = this;
    const token = `${this.#name}-token-${++this.#tokens}`;
    const refreshToken = kept ?? `${this.#name}-refresh-${this.#tokens}`;
    if (behaviour.refresh !== "none") this.#refreshTokens.set(refreshToken, { client, scope });
    this.token = token;
    this.onToken(token);
    const said = behaviour.grants === undefined ? scope : behaviour.grants(scope);
    json(response, 200, {
      access_token: token,
      token_type: "Bearer",
      ...(behaviour.expiresIn === undefined ? {} : { expires_in: behaviour.expiresIn }),
      ...(behaviour.refresh === "none" || kept !== undefined ? {} : { refresh_token: refreshToken }),
      ...(said === undefined ? {} : { scope: said }),
    });
  }
}

function metadataPath({ metadata, path }: Behaviour): string | undefined {
  switch (metadata) {
    case "oauth":
      return `/.well-known/oauth-authorization-server${path}`;
    case "openid":
      return `/.well-known/openid-configuration${path}`;
    case "openid-appended":
      return `${path}/.well-known/openid-configuration`;
    case "none":
      return undefined;
  }
}

function clientOf({ form, headers }: Seen): string {
  const basic = /^Basic (.+)$/.exec(String(headers["authorization"] ?? ""))?.[1];
  return (
    form.get("client_id") ??
    Buffer.from(basic ?? "", "base64")
      .toString()
      .split(":")[0] ??
    ""
  );
}

function json(response: ServerResponse, status: number, value: unknown): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
}
