/**
 * Owns: which unresolved call is an alarm, and the words for it: a provider that says that an operation's key was used with other arguments.
 * Something is badly wrong then: a key made for one operation was used for another one, or the provider mixes its records up. Pure.
 * Leaves to others: showing it (alarms.ts, views/unresolved-view.ts).
 */
import type { Operation } from "../operations/model.ts";

export function isAlarm(operation: Operation): boolean {
  return operation.state === "unresolved" && operation.reason === "key-conflict";
}

export function alarmText({ intention }: Operation): string {
  return (
    `"${intention.tool}" on "${intention.server}": the provider says that this call's key was used with other arguments. ` +
    "Nothing more is sent for it. Look at the provider's own records before you say what happened."
  );
}
