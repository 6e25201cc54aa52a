/**
 * Owns: what is kept of an authorisation, under which key, and reading it back; a store in memory.
 * Leaves to others: where it lies (SecretStorage, a private file), and getting it (flow.ts).
 *
 * A grant belongs to one server URL and one fingerprint of a definition: whoever asks with another pair does not find it, and one that
 * lies under a wrong key is not taken.
 */
import { createHash } from "node:crypto";
import { resourceUrlFromServerUrl } from "@modelcontextprotocol/client";
import * as z from "zod";

/** Texts by key, private to the person. A failure to read is as if nothing were there; a failure to write is the caller's to hear of. */
export interface GrantStore {
  read(key: string): Promise<string | undefined>;
  write(key: string, text: string): Promise<void>;
  remove(key: string): Promise<void>;
  /** Somebody else (another window) wrote or removed. @returns a function that ends it */
  onDidChange?(listener: (key: string) => void): () => void;
}

const clientSchema = z.object({
  client_id: z.string(),
  client_secret: z.string().optional(),
  token_endpoint_auth_method: z.string().optional(),
});

const grantSchema = z.object({
  version: z.literal(1),
  serverUrl: z.string(),
  fingerprint: z.string(),
  issuer: z.string(),
  /** As the resource's metadata names it. */
  authorizationServer: z.string(),
  /** RFC 8707; absent when the server published no metadata. */
  resource: z.string().optional(),
  /** RFC 7591: the client that this grant was given to. Absent: the definition's own, or the client id metadata document. */
  registeredClient: clientSchema.optional(),
  accessToken: z.string(),
  refreshToken: z.string().or(z.undefined()).optional(),
  /** Granted, or else asked for. */
  scope: z.string().optional(),
  /** Milliseconds since the epoch. */
  expiresAt: z.number().optional(),
});

export type Grant = z.infer<typeof grantSchema>;
export type RegisteredClient = z.infer<typeof clientSchema>;

/** The URL as the resource's name: without a fragment, in normal form (MCP "Canonical Server URI"). */
export function canonicalUrl(url: string): string {
  return resourceUrlFromServerUrl(url).href;
}

export function grantKey(url: string, fingerprint: string): string {
  return createHash("sha256")
    .update(`${canonicalUrl(url)}\n${fingerprint}`)
    .digest("hex");
}

/** What lies under a key, if it is a grant for this very server. */
export function readGrant(text: string | undefined, url: string, fingerprint: string): Grant | undefined {
  if (text === undefined) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  const parsed = grantSchema.safeParse(value);
  if (!parsed.success) return undefined;
  const grant = parsed.data;
  return grant.serverUrl === canonicalUrl(url) && grant.fingerprint === fingerprint ? grant : undefined;
}

/** Kept until this process ends. */
export function memoryGrantStore(): GrantStore {
  const texts = new Map<string, string>();
  return {
    read: (key) => Promise.resolve(texts.get(key)),
    write: (key, text) => Promise.resolve(void texts.set(key, text)),
    remove: (key) => Promise.resolve(void texts.delete(key)),
  };
}
