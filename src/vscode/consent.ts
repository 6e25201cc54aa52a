/**
 * Owns: what a person agreed to when trusting a server: the fingerprint of its definition, and digests of the definition's parts so that
 * a later question can say what changed without keeping a secret. Pure.
 * Leaves to others: where the records are kept, and asking (trust-source.ts).
 */
import { createHash, randomBytes } from "node:crypto";
import type { ServerDefinition } from "../hosting/definitions.ts";

export interface ConsentRecord {
  readonly fingerprint: string;
  /** Milliseconds since the epoch. */
  readonly at: number;
  readonly salt: string;
  /** Part of the definition, in words, to its salted digest. */
  readonly parts: Readonly<Record<string, string>>;
}

export function consentTo(definition: ServerDefinition, fingerprint: string, at: number): ConsentRecord {
  const salt = randomBytes(16).toString("hex");
  return { fingerprint, at, salt, parts: partsOf(definition, salt) };
}

/** Which parts of the definition differ from what was agreed to, in words. */
export function changesSince(record: ConsentRecord, definition: ServerDefinition): string[] {
  const now = partsOf(definition, record.salt);
  const names = new Set([...Object.keys(record.parts), ...Object.keys(now)]);
  return [...names].filter((name) => record.parts[name] !== now[name]);
}

function partsOf(definition: ServerDefinition, salt: string): Record<string, string> {
  const digest = (value: unknown): string =>
    createHash("sha256").update(salt).update(JSON.stringify(value)).digest("hex").slice(0, 32);
  const named = (kind: string, values: Readonly<Record<string, string>>): [string, string][] =>
    Object.entries(values).map(([name, value]) => [`${kind} ${name}`, digest(value)]);
  const parts: [string, string][] =
    definition.type === "stdio"
      ? [
          ["command", digest(definition.command)],
          ["arguments", digest(definition.args)],
          ["working folder", digest(definition.cwd ?? null)],
          ...named("environment variable", definition.env),
        ]
      : [
          ["URL", digest(definition.url)],
          ...named("header", definition.headers),
          ...(definition.oauth === undefined ? [] : ([["authorisation", digest(definition.oauth)]] as [string, string][])),
        ];
  return Object.fromEntries([["kind of server", digest(definition.type)], ...parts]);
}

/** What the extension state holds, read with distrust: anything unexpected is as if it were not there. */
export function readRecords(stored: unknown): ConsentRecord[] {
  if (!Array.isArray(stored)) return [];
  return stored.filter(
    (one: unknown): one is ConsentRecord =>
      typeof one === "object" &&
      one !== null &&
      "fingerprint" in one &&
      typeof one.fingerprint === "string" &&
      "at" in one &&
      typeof one.at === "number" &&
      "salt" in one &&
      typeof one.salt === "string" &&
      "parts" in one &&
      typeof one.parts === "object" &&
      one.parts !== null,
  );
}
