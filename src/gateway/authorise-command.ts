/**
 * Owns: authorising one server from the command line: what is printed, and when it is done.
 * Leaves to others: the program's arguments (src/headless.ts), the authorisation itself (src/hosting/auth).
 */
import { join } from "node:path";
import { systemClock } from "../clock.ts";
import { AuthorisationError } from "../hosting/auth/auth-errors.ts";
import { grantFile } from "../hosting/auth/grant-file.ts";
import type { GrantStore } from "../hosting/auth/grant-store.ts";
import { loopbackReceiver } from "../hosting/auth/loopback.ts";
import { authorisationFor } from "../hosting/auth/server-authorisation.ts";
import { HostingError } from "../hosting/connection.ts";
import type { ServerDefinition } from "../hosting/definitions.ts";
import { createHostedServer } from "../hosting/server-host.ts";

export interface AuthoriseCommand {
  readonly name: string;
  readonly definition: ServerDefinition;
  readonly journalDir: string;
  readonly forget: boolean;
  readonly clientInfo: { readonly name: string; readonly version: string };
  /** Plain lines: `say` for what was asked for, `tell` for the person who has to do something. */
  readonly say: (line: string) => void;
  readonly tell: (line: string) => void;
  readonly signal: AbortSignal;
}

/** Where the command line program keeps its authorisations: beside the journal. */
export function grantsIn(journalDir: string): GrantStore {
  return grantFile(join(journalDir, "grants.json"));
}

/** @returns the exit code */
export async function authoriseByCommand(command: AuthoriseCommand): Promise<0 | 1> {
  const { name, definition, say, tell, clientInfo } = command;
  const authorisation = authorisationFor(definition, grantsIn(command.journalDir), systemClock, (_level, text) => tell(text));
  if (authorisation === undefined) {
    tell(`${name}: there is nothing to authorise: it is a program, or its definition has an Authorization header of its own.`);
    return 1;
  }
  if (command.forget) {
    await authorisation.signOut();
    say(`${name}: the authorisation was forgotten.`);
    return 0;
  }
  const server = createHostedServer({ name, definition, clientInfo, authorisation });
  try {
    // Its challenge says where and for what.
    const refusal = await server.connect().then(() => undefined, hostingError);
    if (refusal !== undefined && refusal.kind !== "unauthorised") {
      tell(`${name}: ${refusal.message}`);
      return 1;
    }
    if (refusal === undefined && authorisation.need === undefined) {
      say(`${name}: ${authorisation.authorised ? "it is authorised." : "it needs no authorisation."}`);
      return 0;
    }
    const interaction = {
      receive: loopbackReceiver,
      open: async (url: URL): Promise<boolean> => {
        tell(`Open this page in a browser on this machine to authorise ${name}:\n  ${url.href}`);
        return true;
      },
    };
    await authorisation.authorise(interaction, command.signal);
    await server.start();
    say(`${name}: it is authorised.`);
    return 0;
  } catch (error) {
    const known = error instanceof AuthorisationError || error instanceof HostingError;
    tell(`${name}: ${known ? error.message : "The authorisation failed."}`);
    return 1;
  } finally {
    await server.dispose();
    authorisation.dispose();
  }
}

function hostingError(error: unknown): HostingError {
  return error instanceof HostingError ? error : new HostingError("protocol", "The connection could not be made.");
}
