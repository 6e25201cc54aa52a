/**
 * Owns: reading and writing the person's settings, and nobody else's. A workspace or a remote machine never has a say here: the values
 * of other scopes are ignored and pointed out (DESIGN.md section 6, PLATFORM.md "Workspace trust and settings").
 * Leaves to others: what a definition may be (src/hosting/definitions.ts), what is trusted (trust-source.ts), showing problems (problems.ts).
 */
import { ConfigurationTarget, EventEmitter, workspace } from "vscode";
import type { ConfigurationChangeEvent, Disposable, Event, Uri, WorkspaceConfiguration } from "vscode";
import type { Problem } from "../hosting/definitions.ts";
import type { JournalSettings } from "../operations/journal.ts";
import { defaultRetention, retentionLimits } from "../operations/retention.ts";
import { argumentPath, keptArgumentsModes, type KeptArguments } from "../operations/withhold.ts";
import type { DuplicateGuardMode, ReplaySettings } from "../replay/settings.ts";
import { personsOwn, showsProfile, type SettingValues } from "./persons-value.ts";
import { UserError } from "./user-error.ts";

export const section = "mcpSafeReplay";

/** Every setting decides about safety: only the person's own value counts. */
export const settingKeys = [
  "servers",
  "inputs",
  "serverTrust",
  "contracts",
  "replay.maxReplays",
  "replay.reads",
  "duplicateGuard.unresolved",
  "duplicateGuard.undelivered",
  "duplicateGuard.inFlight",
  "requestTimeoutSeconds",
  "journal.arguments",
  "journal.redactedPaths",
  "journal.keepDays",
  "journal.keepCount",
  "gateway.tcp",
  "gateway.port",
] as const;
export type SettingKey = (typeof settingKeys)[number];

type Inspection = NonNullable<ReturnType<WorkspaceConfiguration["inspect"]>>;

/** VS Code tells local and remote user values apart, but its typings leave these fields out. */
interface UserScopes {
  readonly globalLocalValue?: unknown;
  readonly globalRemoteValue?: unknown;
}

function inspect(key: SettingKey): (Inspection & UserScopes) | undefined {
  return workspace.getConfiguration(section).inspect(key);
}

function valuesOf(key: SettingKey, configuration = workspace.getConfiguration(section)): SettingValues {
  const values = { ...configuration.inspect(key), effective: configuration.get(key) };
  // As plain data: what VS Code gives are proxies and objects of several kinds, which are never equal.
  return JSON.parse(JSON.stringify(values)) as SettingValues;
}

/** Whether a profile is in use whose settings have a value for this setting, which is one for all profiles. */
function isOverlaidByProfile(key: SettingKey, values = valuesOf(key)): boolean {
  if (values.globalLocalValue === undefined) return false;
  const configuration = workspace.getConfiguration(section);
  return settingKeys.some((one) => showsProfile(one === key ? values : valuesOf(one, configuration)));
}

/** The person's own value (persons-value.ts has the rule). */
export function personsValue(key: SettingKey): unknown {
  const values = valuesOf(key);
  return personsOwn(values, isOverlaidByProfile(key, values));
}

/** An own property of the person's object value; undefined for anything else. */
export function personsEntry(key: SettingKey, name: string): unknown {
  const value = personsValue(key);
  return isRecord(value) && Object.hasOwn(value, name) ? value[name] : undefined;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A problem and the setting or file to open for it. */
export interface PlacedProblem extends Problem {
  readonly open: SettingKey | Uri;
}

interface Rule {
  readonly message: string;
  /** What counts until a mistake is mended, if it is not the default. */
  readonly meanwhile?: string;
  accepts(value: unknown): boolean;
}

const guardRule: Rule = {
  message: "must be 'hold', 'warn' or 'off'",
  accepts: (value) => value === "hold" || value === "warn" || value === "off",
};

const wholeNumber = ({ min, max }: { readonly min: number; readonly max: number }): Rule => ({
  message: `must be a whole number from ${min} to ${max}`,
  meanwhile: "until it is mended, nothing leaves because of it",
  accepts: (value) => Number.isInteger(value) && (value as number) >= min && (value as number) <= max,
});

const rules: Readonly<Partial<Record<SettingKey, Rule>>> = {
  "replay.maxReplays": {
    message: "must be a whole number from 0 to 3",
    accepts: (value) => Number.isInteger(value) && (value as number) >= 0 && (value as number) <= 3,
  },
  "replay.reads": { message: "must be true or false", accepts: (value) => typeof value === "boolean" },
  "duplicateGuard.unresolved": guardRule,
  "duplicateGuard.undelivered": guardRule,
  "duplicateGuard.inFlight": guardRule,
  requestTimeoutSeconds: {
    message: "must be a number of seconds from 1 to 86400",
    accepts: (value) => typeof value === "number" && value >= 1 && value <= 86_400,
  },
  "journal.arguments": {
    message: "must be 'full', 'redacted' or 'digest'",
    meanwhile: "until it is mended, 'digest' is used",
    accepts: (value) => (keptArgumentsModes as readonly unknown[]).includes(value),
  },
  "journal.redactedPaths": {
    message: "must be a list of JSON Pointers, such as /card/number or /guests/*/passport",
    meanwhile: "until it is mended, 'redacted' keeps no arguments at all",
    accepts: (value) => Array.isArray(value) && value.every((one) => typeof one === "string" && argumentPath.test(one)),
  },
  "journal.keepDays": wholeNumber(retentionLimits.days),
  "journal.keepCount": wholeNumber(retentionLimits.count),
};

/** The person's value, if it is one; undefined leaves the default in force. */
function accepted(key: SettingKey): unknown {
  const value = personsValue(key);
  return rules[key]?.accepts(value) === true ? value : undefined;
}

/** The heart's settings as the person wrote them; a mistake leaves the default in force. */
export function replaySettings(defaults: ReplaySettings): ReplaySettings {
  const seconds = accepted("requestTimeoutSeconds") as number | undefined;
  return {
    ...defaults,
    maxReplays: (accepted("replay.maxReplays") as number | undefined) ?? defaults.maxReplays,
    reads: (accepted("replay.reads") as boolean | undefined) ?? defaults.reads,
    duplicateGuard: {
      unresolved: (accepted("duplicateGuard.unresolved") as DuplicateGuardMode | undefined) ?? defaults.duplicateGuard.unresolved,
      undelivered:
        (accepted("duplicateGuard.undelivered") as DuplicateGuardMode | undefined) ?? defaults.duplicateGuard.undelivered,
      inFlight: (accepted("duplicateGuard.inFlight") as DuplicateGuardMode | undefined) ?? defaults.duplicateGuard.inFlight,
    },
    requestTimeoutMs: seconds === undefined ? defaults.requestTimeoutMs : seconds * 1000,
  };
}

/**
 * What the journal keeps, as the person wrote it. A mistake must not put on disk what somebody meant to keep off it: until it is mended,
 * arguments are kept as their digest only, and nothing leaves early.
 */
export function journalSettings(): JournalSettings {
  const given = (key: SettingKey): boolean => personsValue(key) !== undefined;
  const mode =
    (accepted("journal.arguments") as KeptArguments["mode"] | undefined) ?? (given("journal.arguments") ? "digest" : "full");
  const paths = accepted("journal.redactedPaths") as readonly string[] | undefined;
  const keeping = (key: SettingKey, standard: number, most: number): number =>
    (accepted(key) as number | undefined) ?? (given(key) ? most : standard);
  const badPaths = mode === "redacted" && paths === undefined && given("journal.redactedPaths");
  return {
    arguments: { mode: badPaths ? "digest" : mode, paths: paths ?? [] },
    retention: {
      days: keeping("journal.keepDays", defaultRetention.days, retentionLimits.days.max),
      count: keeping("journal.keepCount", defaultRetention.count, retentionLimits.count.max),
    },
  };
}

/** Mistakes in the plain settings. */
export function replaySettingProblems(): PlacedProblem[] {
  const problems: PlacedProblem[] = [];
  for (const key of settingKeys) {
    const rule = rules[key];
    const value = personsValue(key);
    if (rule !== undefined && value !== undefined && !rule.accepts(value)) {
      const meanwhile = rule.meanwhile ?? "the default is used";
      problems.push({ open: key, place: `${section}.${key}`, message: `${rule.message}; ${meanwhile}` });
    }
  }
  return problems;
}

/**
 * Mistakes in `serverTrust`: trust for a server that does not exist, or a value that is neither true nor false.
 * `known` are the names that are in use or were trusted before (in another workspace), those with a mistake in their definition included.
 */
export function trustProblems(known: { has(name: string): boolean }): PlacedProblem[] {
  const open = "serverTrust";
  const place = `${section}.${open}`;
  const value = personsValue(open);
  if (value === undefined) return [];
  if (!isRecord(value))
    return [{ open, place, message: "must be an object of server names and true or false; nothing is trusted" }];
  const problems: PlacedProblem[] = [];
  for (const [name, entry] of Object.entries(value)) {
    if (typeof entry !== "boolean")
      problems.push({ open, place: `${place}.${name}`, message: "must be true or false; the server is not trusted" });
    else if (entry && !known.has(name))
      problems.push({ open, place: `${place}.${name}`, message: "trusts a server that does not exist" });
  }
  return problems;
}

/** Keys for which somebody else supplies a value: a workspace, one of its folders, a remote machine, or a profile that was opened. */
export function foreignKeys(): Readonly<Record<"workspace" | "machine" | "profile", readonly SettingKey[]>> {
  const scopes = [undefined, ...(workspace.workspaceFolders ?? []).map((folder) => folder.uri)];
  const inspected = (key: SettingKey): (Inspection & UserScopes)[] =>
    scopes.map((scope) => workspace.getConfiguration(section, scope).inspect(key)).filter((found) => found !== undefined);
  return {
    workspace: settingKeys.filter((key) =>
      inspected(key).some((one) => one.workspaceValue !== undefined || one.workspaceFolderValue !== undefined),
    ),
    machine: settingKeys.filter((key) => inspected(key).some((one) => one.globalRemoteValue !== undefined)),
    profile: settingKeys.filter((key) => isOverlaidByProfile(key)),
  };
}

/** Settings as one source: their changes, and the only way in which this extension writes them. */
export class Settings implements Disposable {
  readonly #changed = new EventEmitter<ConfigurationChangeEvent>();
  readonly onDidChange: Event<ConfigurationChangeEvent> = this.#changed.event;
  readonly #subscription: Disposable;
  /** One write after the other: each begins with what the one before left. */
  #writes: Promise<unknown> = Promise.resolve();

  constructor() {
    this.#subscription = workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration(section)) this.#changed.fire(event);
    });
  }

  /** Sets one entry of an object setting in the user's settings, keeping the others. */
  setEntry(key: "servers" | "serverTrust", name: string, value: unknown): Promise<void> {
    return this.#write(key, (entries) => ({ ...entries, [name]: value }));
  }

  /** Adds servers, and the inputs that they ask for, to the user's settings. Whoever has the name or the id already keeps it. */
  async addServers(
    servers: Readonly<Record<string, unknown>>,
    inputs: readonly Readonly<Record<string, unknown>>[],
  ): Promise<void> {
    if (inputs.length > 0) {
      await this.#update("inputs", (before) => {
        const kept: unknown[] = Array.isArray(before) ? before : [];
        const ids = new Set(kept.map((one) => (isRecord(one) ? one["id"] : undefined)));
        return [...kept, ...inputs.filter(({ id }) => !ids.has(id))];
      });
    }
    await this.#write("servers", (entries) => ({ ...servers, ...entries }));
  }

  /**
   * Writes `false` for each server that has no entry yet, so that the Settings UI has a row for it. Nothing is written while one of
   * them is on that was not `confirmed` here: that may not be the person's word, and other windows would take it for their act.
   */
  async listForTrust(names: readonly string[], confirmed: (name: string) => boolean): Promise<void> {
    const missing = (entries: Record<string, unknown>): string[] => names.filter((name) => !Object.hasOwn(entries, name));
    const value = personsValue("serverTrust");
    if (value !== undefined && !isRecord(value)) return; // a mistake that is reported; it is the person's to mend
    if (missing(value ?? {}).length === 0) return;
    if (Object.entries(value ?? {}).some(([name, on]) => on === true && names.includes(name) && !confirmed(name))) return;
    if (isOverlaidByProfile("serverTrust")) return;
    await this.#write("serverTrust", (entries) => ({
      ...entries,
      ...Object.fromEntries(missing(entries).map((name) => [name, false])),
    }));
  }

  /** The port for other clients, in the user's settings. */
  setPort(port: number): Promise<void> {
    return this.#update("gateway.port", () => port);
  }

  #write(key: "servers" | "serverTrust", change: (entries: Record<string, unknown>) => Record<string, unknown>): Promise<void> {
    return this.#update(key, (before) => change(isRecord(before) ? before : {}));
  }

  #update(key: SettingKey, change: (before: unknown) => unknown): Promise<void> {
    const done = this.#writes.then(async () => {
      // VS Code would write the person's change into the remote machine's settings, where it does not count.
      if (inspect(key)?.globalRemoteValue !== undefined) {
        throw new UserError(
          `The settings of the remote machine have a value for ${section}.${key}, so your own cannot be changed from here. ` +
            `Remove it there (Preferences: Open Remote Settings), then try again.`,
        );
      }
      // What it lies over cannot be seen: a write would lose that, or make the profile's word the person's.
      if (isOverlaidByProfile(key)) {
        throw new UserError(
          `The settings of this profile have a value for ${section}.${key}, which is a setting for all profiles, ` +
            `so your own cannot be changed from here. Remove it there (Preferences: Open User Settings (JSON)), then try again.`,
        );
      }
      await workspace.getConfiguration(section).update(key, change(personsValue(key)), ConfigurationTarget.Global);
    });
    this.#writes = done.catch(() => undefined);
    return done;
  }

  dispose(): void {
    this.#subscription.dispose();
    this.#changed.dispose();
  }
}
