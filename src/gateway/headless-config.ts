/**
 * Owns: the command line program's configuration file (DESIGN.md section 9) and its mistakes, each with its place.
 * Leaves to others: what a server's definition may be (src/hosting/definitions.ts).
 */
import * as z from "zod";
import { problemsOf, readDefinitions, type Problem, type ServerDefinition } from "../hosting/definitions.ts";
import type { StartPolicy } from "../hosting/hosted-server.ts";
import type { JournalSettings } from "../operations/journal.ts";
import { defaultRetention, retentionLimits } from "../operations/retention.ts";
import { argumentPath, keptArgumentsModes } from "../operations/withhold.ts";
import { readContracts, type Contracts } from "../replay/contracts.ts";
import {
  defaultReplaySettings,
  duplicateGuardModes,
  replaySettingsSchema,
  type DuplicateGuard,
  type ReplaySettings,
} from "../replay/settings.ts";

export interface HeadlessConfig {
  readonly definitions: ReadonlyMap<string, ServerDefinition>;
  /** When a server is started, where the file says so. */
  readonly starts: ReadonlyMap<string, StartPolicy>;
  readonly serverTrust: ReadonlyMap<string, boolean>;
  readonly workspaceTrusted: boolean;
  readonly settings: ReplaySettings;
  readonly contracts: Contracts;
  readonly journal: JournalSettings;
  /** Every mistake; nothing may be served while there is one. */
  readonly problems: readonly Problem[];
}

/** The file is no configuration at all. */
export class ConfigError extends Error {}

const guardMode = z.enum(duplicateGuardModes).optional();

const { days, count } = retentionLimits;
const journalSchema = z.strictObject({
  arguments: z.enum(keptArgumentsModes).optional(),
  redactedPaths: z
    .array(z.string().regex(argumentPath, "must be a JSON Pointer, such as /card/number or /guests/*/passport"))
    .optional(),
  keepDays: z.number().int().min(days.min).max(days.max).optional(),
  keepCount: z.number().int().min(count.min).max(count.max).optional(),
});

const schema = z.strictObject({
  servers: z.record(z.string(), z.unknown()),
  serverTrust: z.record(z.string(), z.boolean()).optional(),
  workspaceTrusted: z.boolean().optional(),
  requestTimeoutSeconds: z.number().positive().max(86_400).optional(),
  replay: replaySettingsSchema.optional(),
  duplicateGuard: z
    .enum(duplicateGuardModes)
    .or(z.strictObject({ unresolved: guardMode, undelivered: guardMode, inFlight: guardMode }))
    .optional(),
  contracts: z.unknown().optional(),
  journal: journalSchema.optional(),
});

/** @throws ConfigError when the text is not JSON */
export function readConfig(text: string, env: Readonly<Record<string, string | undefined>>): HeadlessConfig {
  let input: unknown;
  try {
    input = JSON.parse(text);
  } catch {
    throw new ConfigError("is not JSON");
  }
  const parsed = schema.safeParse(input);
  if (!parsed.success) {
    const problems = problemsOf(parsed.error, "").map(({ place, message }) => ({
      place: place.replace(/^\./, "") || "configuration",
      message,
    }));
    return {
      definitions: new Map(),
      starts: new Map(),
      serverTrust: new Map(),
      workspaceTrusted: false,
      settings: defaultReplaySettings,
      contracts: new Map(),
      journal: journalOf(undefined),
      problems,
    };
  }
  const { data } = parsed;
  const { definitions, starts, problems } = readDefinitions(data.servers, "servers", { env });
  for (const name of Object.keys(data.serverTrust ?? {})) {
    if (!Object.hasOwn(data.servers, name))
      problems.push({ place: `serverTrust.${name}`, message: "there is no server of this name" });
  }
  const read = readContracts(data.contracts, "contracts", new Set(Object.keys(data.servers)));
  problems.push(...read.problems);
  return {
    definitions,
    starts,
    contracts: read.contracts,
    journal: journalOf(data.journal),
    serverTrust: new Map(Object.entries(data.serverTrust ?? {})),
    workspaceTrusted: data.workspaceTrusted ?? false,
    settings: {
      maxReplays: data.replay?.maxReplays ?? defaultReplaySettings.maxReplays,
      reads: data.replay?.reads ?? defaultReplaySettings.reads,
      duplicateGuard: guardOf(data.duplicateGuard),
      requestTimeoutMs:
        data.requestTimeoutSeconds === undefined ? defaultReplaySettings.requestTimeoutMs : data.requestTimeoutSeconds * 1000,
    },
    problems,
  };
}

function journalOf(given: z.infer<typeof journalSchema> | undefined): JournalSettings {
  return {
    arguments: { mode: given?.arguments ?? "full", paths: given?.redactedPaths ?? [] },
    retention: {
      days: given?.keepDays ?? defaultRetention.days,
      count: given?.keepCount ?? defaultRetention.count,
    },
  };
}

type Mode = (typeof duplicateGuardModes)[number];

/** One word sets both parts that keep a call back; an object sets each part by itself. */
function guardOf(given: Mode | { [part in keyof DuplicateGuard]?: Mode | undefined } | undefined): DuplicateGuard {
  const standard = defaultReplaySettings.duplicateGuard;
  if (given === undefined) return standard;
  if (typeof given === "string")
    return { unresolved: given, undelivered: given, inFlight: given === "off" ? "off" : standard.inFlight };
  return {
    unresolved: given.unresolved ?? standard.unresolved,
    undelivered: given.undelivered ?? standard.undelivered,
    inFlight: given.inFlight ?? standard.inFlight,
  };
}
