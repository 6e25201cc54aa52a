/**
 * Owns: how a transport uses an authorisation: the header of a request, and telling how the server took it.
 * Leaves to others: what comes of that (server-authorisation.ts). A transport sends to its server's own origin only.
 */
import type { ServerAuthorisation } from "./server-authorisation.ts";

export class Bearer {
  readonly #authorisation: ServerAuthorisation | undefined;

  constructor(authorisation: ServerAuthorisation | undefined) {
    this.#authorisation = authorisation;
  }

  /** Before a request that somebody waits for. Never rejects. @returns undefined when there is nothing to wait for */
  ready(): Promise<void> | undefined {
    return this.#authorisation?.ready();
  }

  header(): { readonly authorization?: string } {
    const token = this.#authorisation?.token;
    return token === undefined ? {} : { authorization: `Bearer ${token}` };
  }

  /** Just before the request leaves. @returns what to tell its status and challenge; that returns the number of the challenge, if it is one */
  watch(): (status: number, challenge: string | undefined) => number | undefined {
    const authorisation = this.#authorisation;
    const token = authorisation?.token;
    return (status, challenge) => {
      if (status === 401 || status === 403) return authorisation?.refused({ status, challenge, token });
      authorisation?.accepted(token);
      return undefined;
    };
  }
}
