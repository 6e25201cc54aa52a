/**
 * Owns: the settings of the heart and their defaults, checked at the boundary.
 * Leaves to others: where they are read from (src/vscode/settings.ts, src/headless.ts).
 */
import * as z from "zod";

export const duplicateGuardModes = ["hold", "warn", "off"] as const;
export type DuplicateGuardMode = (typeof duplicateGuardModes)[number];

/** What happens to a call when an identical one stands in the way (DESIGN.md section 5). `warn`: it is sent and marked. */
export interface DuplicateGuard {
  /** An identical call is unresolved. */
  readonly unresolved: DuplicateGuardMode;
  /** An identical call was answered, but its answer never reached the caller. `hold`: the recorded answer is handed out, once. */
  readonly undelivered: DuplicateGuardMode;
  /** An identical call is under way at this moment. */
  readonly inFlight: DuplicateGuardMode;
}

export interface ReplaySettings {
  /** Further attempts that the gate may allow after the first, 0 to 3. */
  readonly maxReplays: number;
  /** Whether proven reads are read again after a loss (fresh data is acceptable). */
  readonly reads: boolean;
  readonly duplicateGuard: DuplicateGuard;
  /** How long the agent waits for an answer, in milliseconds. For a consequential call the gateway keeps listening after that. */
  readonly requestTimeoutMs: number;
}

export const defaultReplaySettings: ReplaySettings = {
  maxReplays: 3,
  reads: true,
  duplicateGuard: { unresolved: "hold", undelivered: "hold", inFlight: "warn" },
  requestTimeoutMs: 1_800_000,
};

/** The settings as a person writes them (config file); unknown keys are mistakes. */
export const replaySettingsSchema = z.strictObject({
  maxReplays: z.number().int().min(0).max(3).optional(),
  reads: z.boolean().optional(),
});
