/**
 * Owns: which of the values that VS Code shows for a setting is the person's own. Pure.
 * Leaves to others: reading them (settings.ts).
 *
 * Measured with VS Code 1.139: a workspace's and a remote machine's values reach into the merged value by dotted sub-keys. In a
 * profile, that profile's settings file can have a value of a setting that applies to all profiles: VS Code does not offer that and
 * marks it in the file, yet mixes it into the person's, and `inspect` shows it in place of theirs.
 */
import { isDeepStrictEqual } from "node:util";

/** The values of one setting, as `WorkspaceConfiguration.inspect` and `get` give them. */
export interface SettingValues {
  readonly defaultValue?: unknown;
  readonly globalValue?: unknown;
  /** The settings file of the profile in use. VS Code's typings leave it out. */
  readonly globalLocalValue?: unknown;
  /** The remote machine's settings. VS Code's typings leave it out. */
  readonly globalRemoteValue?: unknown;
  readonly workspaceValue?: unknown;
  readonly workspaceFolderValue?: unknown;
  /** What is in force, merged from all of them. */
  readonly effective: unknown;
}

/** Whether these values can only be found in a profile that is not the default one. */
export function showsProfile(values: SettingValues): boolean {
  if (values.globalRemoteValue !== undefined) return false;
  // The person's own value of a setting for all profiles is in `globalValue` alone.
  if (values.globalLocalValue === undefined) return values.globalValue !== undefined;
  return !hasForeign(values) && !isDeepStrictEqual(values.effective, overlaid(values.defaultValue, values.globalLocalValue));
}

/**
 * The person's own value; undefined when there is none. Never a merged one while a workspace or a machine has a value.
 * @param inProfile whether another profile than the default one is in use: what it says does not count
 */
export function personsOwn(values: SettingValues, inProfile: boolean): unknown {
  const { globalLocalValue: local, effective } = values;
  if (local === undefined) return values.globalRemoteValue === undefined ? values.globalValue : undefined;
  if (!inProfile) return local;
  // What the profile lies over cannot be seen. It counts as not there.
  if (hasForeign(values) || !isObject(local) || !isObject(effective)) return undefined;
  return Object.fromEntries(Object.entries(effective).filter(([key]) => !Object.hasOwn(local, key)));
}

function hasForeign(values: SettingValues): boolean {
  return [values.globalRemoteValue, values.workspaceValue, values.workspaceFolderValue].some((value) => value !== undefined);
}

/** As VS Code lays one value over another: objects key by key, everything else whole. */
function overlaid(under: unknown, over: unknown): unknown {
  if (!isObject(under) || !isObject(over)) return over;
  const merged: Record<string, unknown> = { ...under };
  for (const [key, value] of Object.entries(over)) merged[key] = overlaid(under[key], value);
  return merged;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
