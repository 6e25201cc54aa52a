/**
 * Owns: an error whose message is written for the person at the screen, and how any other error becomes such a message.
 */

/** `message` is plain, says what to do, and holds no arguments, secrets or transport text. */
export class UserError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "UserError";
  }
}

/**
 * What to show of an error. The heart's own errors (`JournalError`, `HostingError`, `GatewayError`, `RehearsalError`, `AuthorisationError`) carry texts that are safe to show; they are known by
 * name because the heart is bundled apart and `instanceof` does not reach across. Everything else goes to the log only.
 */
export function messageFor(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  return shown.has(error.name) ? error.message : undefined;
}

const shown: ReadonlySet<string> = new Set([
  "UserError",
  "JournalError",
  "HostingError",
  "GatewayError",
  "RehearsalError",
  "AuthorisationError",
]);

/** The code of a `JournalError`, if it is one. */
export function journalCode(error: unknown): string | undefined {
  return error instanceof Error && error.name === "JournalError" && "code" in error ? String(error.code) : undefined;
}
