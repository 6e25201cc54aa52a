/**
 * Owns: a person in a browser: follows the authorisation page and its redirect, as a browser would.
 * Leaves to others: whether they agree (authorisation-server.ts).
 */
import type { Interaction } from "../../../src/hosting/auth/flow.ts";
import { loopbackReceiver } from "../../../src/hosting/auth/loopback.ts";

export interface Person extends Interaction {
  /** The pages that were opened. */
  readonly opened: URL[];
  /** What the browser was shown at the end, one for each page. */
  readonly shown: string[];
}

/** @param before is done with each redirect before it is followed, and may give another one */
export function person(before: (redirect: URL) => Promise<URL> = (redirect) => Promise.resolve(redirect)): Person {
  const opened: URL[] = [];
  const shown: string[] = [];
  return {
    opened,
    shown,
    receive: loopbackReceiver,
    async open(page) {
      opened.push(page);
      const answer = await fetch(page, { redirect: "manual" });
      const location = answer.headers.get("location");
      if (location === null) throw new Error(`The authorisation page does not lead anywhere: ${answer.status}`);
      const redirect = await before(new URL(location, page));
      shown.push(await (await fetch(redirect)).text());
      return true;
    },
  };
}
