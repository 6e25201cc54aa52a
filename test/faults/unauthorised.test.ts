/**
 * Owns: row 19 of the fault matrix where the server's challenge can be met: a refused call did not run, so after the authorisation was
 * renewed it is made once more, as a new attempt that was journaled before it left; never twice.
 * Leaves to others: refusals without an authorisation (support/cells/refusals.ts), the authorisation itself (test/unit/hosting/auth).
 */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Step } from "../servers/fault/steps.ts";
import { AuthorisationServer } from "../servers/auth/authorisation-server.ts";
import { person } from "../servers/auth/person.ts";
import { completed, expectOutcome, notExecuted, unresolved, type Expected } from "./support/checks.ts";
import { Lab, paths, type Answer, type Class, type Path, type Subject } from "./support/lab.ts";
import type { Transport } from "./support/peers.ts";

const transports = ["http-json", "http-sse-ids", "modern-json", "modern-sse", "sse-2024"] as const satisfies Transport[];

let as: AuthorisationServer;
let lab: Lab;
beforeEach(async () => {
  as = await AuthorisationServer.start();
});
afterEach(async () => {
  await lab.close();
  await as.close();
});

/** A lab whose server was authorised by a person and is connected. */
async function open(transport: Transport): Promise<void> {
  lab = await Lab.open(transport, { connect: false });
  const { http } = lab.peer;
  as.onToken = (token) => http?.setToken(token);
  http?.setToken("none yet");
  lab.server.authorisation?.refused({ status: 401, challenge: as.protects(http?.url ?? ""), token: undefined });
  await lab.server.authorisation?.authorise(person());
  await lab.server.start();
}

const refused = (status: 401 | 403 = 401): Step => ({
  do: "unauthorised",
  status,
  ...(status === 401 ? { challenge: as.challenge("/prm") } : {}),
});

async function call(path: Path, cls: Class, steps: readonly Step[], expected: Expected): Promise<[Subject, Answer]> {
  const subject = lab.subject(cls);
  lab.peer.script(...steps);
  const answer = await lab.call(path, subject).answer;
  await expectOutcome(lab, subject, answer, expected);
  // Nothing of the authorisation gets to the caller, the journal or the log.
  const events = await lab.core.journal.events((await lab.operation(subject)).id);
  expect(JSON.stringify([answer.result, events, lab.log])).not.toMatch(/as-(token|refresh|code|client)/);
  return [subject, answer];
}

const twice = { requests: 2, via: "resent" } as const;

describe.each(transports)("over %s", (transport) => {
  it.each(paths)("a refused call (%s) is made once more with a new token", async (path) => {
    await open(transport);
    for (const cls of ["C", "R", "S"] as const) {
      const [subject] = await call(path, cls, [refused()], completed(twice));
      const { attempts } = await lab.operation(subject);
      expect(attempts.map(({ cause, outcome }) => [cause, outcome])).toEqual([
        ["call", "not-executed"],
        ["authorised", "observed"],
      ]);
      // As they came: each with the id and the token of its own attempt.
      const requests = lab.requests(subject);
      expect(requests.map(({ rpcId }) => rpcId)).toEqual(attempts.map(({ rpcId }) => rpcId));
      expect(new Set(requests.map(({ headers }) => headers?.["authorization"])).size).toBe(2);
    }
    expect(as.tokenRequests("refresh_token").length).toBe(3);
  });

  it("a call that is refused again did not run, and is not made a third time", async () => {
    await open(transport);
    await call("agent", "C", [refused(), refused()], notExecuted("refused", { requests: 2 }));
    // Another one is made as before.
    await call("agent", "C", [], completed());
  });
});

describe("when a person is needed", () => {
  it.each([
    ["the refresh is refused", 401],
    ["more scopes are wanted", 403],
  ] as const)("because %s, the call is answered at once and the person asked", async (_why, status) => {
    await open("modern-json");
    as.behaviour.refresh = "refused";
    if (status === 401) as.onToken("revoked");
    const steps = status === 401 ? [] : [refused(status)];
    const [, answer] = await call("agent", "C", steps, notExecuted("refused"));
    expect(answer.text).toContain("a person has to give");
    expect(lab.server.authorisation?.need).toBe(status === 401 ? "sign-in" : "more-scopes");
    if (status === 401) await lab.untilServer("needs-authorisation");
    await lab.server.authorisation?.authorise(person());
    await lab.server.connect();
    await call("agent", "C", [], completed());
  });
});

describe("what authorisation does not change", () => {
  it("there is one further attempt, whatever the authorisation says", async () => {
    await open("modern-json");
    const { authorisation } = lab.server;
    if (authorisation !== undefined) authorisation.settle = () => Promise.resolve("retry");
    await call("agent", "C", [refused(), refused(), refused()], notExecuted("refused", { requests: 2 }));
  });

  it("a lost call is not made again because a later one was authorised", async () => {
    await open("http-json");
    await call("agent", "C", [{ do: "reset" }], unresolved("connection-lost"));
    await call("agent", "C", [refused()], completed(twice));
  });

  it("a replay that is refused stays a matter of the gate", async () => {
    await open("http-json");
    // Idempotent and trusted: replayed, refused, and replayed again with the new token; one effect in all.
    await call("agent", "S", [{ do: "reset" }, refused()], completed({ requests: 3, reason: "replayed", via: "replayed" }));
    // Not idempotent: it never comes to that.
    await call("agent", "C", [{ do: "reset" }, refused()], unresolved("connection-lost"));
  });

  it("a web page instead of a refusal proves nothing", async () => {
    await open("modern-json");
    await call("agent", "C", [{ do: "status", status: 401, body: "html" }], unresolved("http-status", { effects: 0 }));
  });

  it("an authorisation server that cannot be reached is waited for by nobody", async () => {
    await open("modern-json");
    as.behaviour.refresh = "down";
    await call("agent", "C", [refused()], notExecuted("refused"));
    expect(lab.server.authorisation?.need).toBeUndefined();
  });
});
