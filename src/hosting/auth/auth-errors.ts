/**
 * Owns: why an authorisation failed, as a class and one plain sentence for a person.
 * Leaves to others: what is done about it. Nothing here carries what a server or an authorisation server wrote.
 */

export type AuthFailure =
  | "no-metadata" // nothing says how to authorise
  | "insecure-address" // plain http, or an address that a remote server has no business naming
  | "unreachable" // no answer, too large, too slow, or a failure of the server's own
  | "unreadable" // an answer that is not what the specification says
  | "wrong-resource" // the metadata is about another server (RFC 9728, 3.3)
  | "wrong-issuer" // RFC 8414, 3.3, or RFC 9207, 2.4
  | "no-pkce" // no S256, or not said so
  | "no-registration" // neither a client id of ours nor a way to get one
  | "registration-refused"
  | "denied" // the person, or the authorisation server on their behalf, said no
  | "redirect-failed" // the redirect said something else than yes or no
  | "code-refused"
  | "grant-refused" // a refresh token, or the client's own credentials
  | "timeout"
  | "cancelled";

const texts: Readonly<Record<AuthFailure, string>> = {
  "no-metadata": "The server does not say where to authorise (no protected resource or authorisation server metadata).",
  "insecure-address":
    "The server names an address for the authorisation that is not secure (https, or this machine for a local server).",
  unreachable: "The authorisation server could not be reached, or did not answer as it should.",
  unreadable: "What the authorisation server answered could not be read.",
  "wrong-resource": "The server's metadata is about another server: nothing was sent.",
  "wrong-issuer": "The answer came from another authorisation server than the one that was asked: nothing was sent to it.",
  "no-pkce": "The authorisation server does not support PKCE with S256, without which an authorisation is not safe.",
  "no-registration":
    "The authorisation server does not let clients register themselves: put a client id into the server's definition (`oauth.clientId`).",
  "registration-refused":
    "The authorisation server refused to register this client: put a client id into the server's definition (`oauth.clientId`).",
  denied: "The authorisation was denied.",
  "redirect-failed": "The authorisation server ended the authorisation with an error.",
  "code-refused": "The authorisation server did not give a token for this authorisation.",
  "grant-refused": "The authorisation server no longer accepts what was kept from the last authorisation.",
  timeout: "The authorisation was not finished in time.",
  cancelled: "The authorisation was given up.",
};

/** `message` is ours and safe to show, log and return. */
export class AuthorisationError extends Error {
  readonly failure: AuthFailure;
  constructor(failure: AuthFailure) {
    super(texts[failure]);
    this.name = "AuthorisationError";
    this.failure = failure;
  }
}
