/** Owns: proof of which value of a setting counts as the person's own. */
import { describe, expect, it } from "vitest";
import { personsOwn, showsProfile, type SettingValues } from "../../../src/vscode/persons-value.ts";

const mine = { notes: true };
const theirs = { notes: true, booking: true };

/** A value, whether it gives a profile away, and what counts outside and inside of a profile. */
interface Case {
  readonly values: SettingValues;
  readonly profile?: true;
  readonly own?: unknown;
  readonly inProfile?: unknown;
}

const cases: Readonly<Record<string, Case>> = {
  "nothing is set": { values: { defaultValue: {}, effective: {} } },
  "only the person's own": {
    values: { defaultValue: {}, globalValue: mine, globalLocalValue: mine, effective: mine },
    own: mine,
    inProfile: {},
  },
  "the person's own, empty": {
    values: { defaultValue: {}, globalValue: {}, globalLocalValue: {}, effective: {} },
    own: {},
    inProfile: {},
  },
  "the person's own, over a default": {
    values: { defaultValue: { a: 1 }, globalValue: { b: 2 }, globalLocalValue: { b: 2 }, effective: { a: 1, b: 2 } },
    own: { b: 2 },
    inProfile: { a: 1 },
  },
  "a mistake of the person's, no object": {
    values: { defaultValue: {}, globalValue: "yes", globalLocalValue: "yes", effective: "yes" },
    own: "yes",
  },
  "a workspace's beside the person's": {
    values: {
      defaultValue: {},
      globalValue: mine,
      globalLocalValue: mine,
      workspaceValue: { notes: false, booking: true },
      effective: { notes: false, booking: true },
    },
    own: mine,
  },
  "a workspace's alone": { values: { defaultValue: {}, workspaceValue: theirs, effective: theirs } },
  "a folder's beside the person's": {
    values: { globalValue: mine, globalLocalValue: mine, workspaceFolderValue: theirs, effective: mine },
    own: mine,
  },
  "the machine's alone": {
    values: { defaultValue: {}, globalValue: theirs, globalRemoteValue: theirs, effective: theirs },
  },
  "the machine's beside the person's": {
    values: {
      defaultValue: {},
      globalValue: { notes: false },
      globalLocalValue: mine,
      globalRemoteValue: { notes: false },
      effective: { notes: false },
    },
    own: mine,
  },
  "a profile without a value": {
    values: { defaultValue: {}, globalValue: mine, effective: mine },
    profile: true,
    own: mine,
    inProfile: mine,
  },
  "a profile's, beside the person's": {
    values: {
      defaultValue: {},
      globalValue: { intruder: true },
      globalLocalValue: { intruder: true },
      effective: { notes: true, intruder: true },
    },
    profile: true,
    own: { intruder: true },
    inProfile: mine,
  },
  "a profile's, over the person's": {
    values: { defaultValue: {}, globalValue: mine, globalLocalValue: mine, effective: { notes: true, booking: false } },
    profile: true,
    own: mine,
    inProfile: { booking: false },
  },
  "a profile's scalar": { values: { defaultValue: 3, globalValue: 0, globalLocalValue: 0, effective: 0 }, own: 0 },
  "a profile's and a workspace's together": {
    values: {
      defaultValue: {},
      globalValue: theirs,
      globalLocalValue: theirs,
      workspaceValue: { booking: true },
      effective: { notes: true, booking: true },
    },
    own: theirs,
  },
};

describe.each(Object.entries(cases))("%s", (_name, { values, profile, own, inProfile }) => {
  it(profile === true ? "gives a profile away" : "may be found in the default profile", () => {
    expect(showsProfile(values)).toBe(profile === true);
  });
  it("is read in the default profile", () => {
    expect(personsOwn(values, false)).toEqual(own);
  });
  it("is read in another profile", () => {
    expect(personsOwn(values, true)).toEqual(inProfile);
  });
});
