/**
 * Owns: the rules for what is trusted now. Free of VS Code, pure but for the source it reads.
 * Leaves to others: where settings and consent are kept (src/vscode/trust-source.ts, src/headless.ts).
 * Source: DESIGN.md section 6. Trust is read at the moment of use: keep no verdict.
 */

/** Reads the two gates as they stand at this moment. */
export interface TrustSource {
  workspaceTrusted(): boolean;
  /** The user's own `mcpSafeReplay.serverTrust` entry: own property, literally `true`. Never a workspace's word. */
  serverTrustSetting(server: string): boolean;
  /** The definition fingerprint to which the person's grant was bound, if there is one. */
  consentFingerprint(server: string): string | undefined;
}

export type ServerTrust =
  { readonly trusted: true } | { readonly trusted: false; readonly why: "not-granted" | "no-consent" | "definition-changed" };

/** Whether a server may be trusted for replay: the setting and a consent record for exactly this definition. */
export function serverTrust(source: TrustSource, server: string, fingerprint: string): ServerTrust {
  if (source.serverTrustSetting(server) !== true) return { trusted: false, why: "not-granted" };
  const consent = source.consentFingerprint(server);
  if (consent === undefined) return { trusted: false, why: "no-consent" };
  if (consent !== fingerprint) return { trusted: false, why: "definition-changed" };
  return { trusted: true };
}

/** Both gates, read now. */
export interface TrustNow {
  readonly workspace: boolean;
  readonly server: boolean;
}

export function trustNow(source: TrustSource, server: string, fingerprint: string): TrustNow {
  return { workspace: source.workspaceTrusted() === true, server: serverTrust(source, server, fingerprint).trusted };
}
