/**
 * Owns: putting a contract's promises to the test: the same key twice in a row, twice at once, after a lost answer, after a restart and
 * with another payload, on a server of its own; then the lookup counts the effects. Every call is journaled before it is sent, like any
 * other; the calls of one scenario are attempts of one operation.
 * Leaves to others: what will be called and what it says (rehearsal-plan.ts), the person's consent, remembering the report.
 */
import { uuidv7 } from "uuidv7";
import canonicalize from "canonicalize";
import type { HostedConnection, ListedTool } from "../hosting/connection.ts";
import type { Ending } from "../hosting/evidence.ts";
import type { HostedServer } from "../hosting/hosted-server.ts";
import type { Intention } from "../operations/model.ts";
import { journal, type Course, type Journaled } from "./attempt.ts";
import { patience } from "./backoff.ts";
import { classify } from "./classify.ts";
import { contractFingerprint, dataOf, evaluate, marginMs, withKey, type Contract, type Lookup } from "./contracts.ts";
import { kindOf, observationOf, toolNamed, type Desk } from "./desk.ts";
import { isProvenRead } from "./gate.ts";
import { digestOf } from "./intention.ts";
import { judgeLookup, lookupArguments, type LookupFinding } from "./lookup.ts";
import { askTool } from "./reconciliation.ts";
import {
  judgeRehearsal,
  nothingTestable,
  planRehearsal,
  seenIn,
  subjectOf,
  type NoRehearsal,
  type OtherPayload,
  type Ran,
  type RehearsalPlan,
  type RehearsalReport,
  type RehearsalRequest,
  type Scenario,
  type Seen,
} from "./rehearsal-plan.ts";
import { recordActing, rehearsalClient } from "./rehearsal-record.ts";

export interface RehearsalHooks {
  /** What is being done, for a person who waits. */
  progress?(text: string): void;
  /** Aborted when the person ends it; what was begun is still journaled. */
  readonly signal?: AbortSignal;
}

/** A call that lost its answer by itself, or is still running, is asked again so often at most. */
const askLimit = 6;

/** Why it cannot begin; nothing was called. `message` is for a person. */
export class RehearsalError extends Error {
  readonly code: "unknown-server" | "unknown-tool" | "no-contract" | "unreachable" | "not-trusted" | "not-agreed";
  constructor(code: RehearsalError["code"], message: string) {
    super(message);
    this.name = "RehearsalError";
    this.code = code;
  }
}

/** What stands before a rehearsal: its plan, or why nothing can be tested. */
export interface Prepared {
  readonly contract: Contract;
  readonly plan: RehearsalPlan | NoRehearsal;
}

/**
 * Looks at contract, trust and tool list; calls nothing.
 * @throws RehearsalError
 */
export async function prepareRehearsal(desk: Desk, server: HostedServer, request: RehearsalRequest): Promise<Prepared> {
  const contract = desk.contract(request.server, request.tool);
  if (contract === undefined)
    throw new RehearsalError("no-contract", `There is no contract for the tool '${request.tool}' of '${request.server}'.`);
  let tool: ListedTool | undefined;
  try {
    await server.connect();
    tool = toolNamed(server.tools, request.tool);
  } catch (error) {
    desk.log(server.name, `no connection for a rehearsal (${kindOf(error)})`);
    throw new RehearsalError("unreachable", `The server '${server.name}' cannot be reached.`);
  }
  if (tool === undefined)
    throw new RehearsalError("unknown-tool", `The server '${server.name}' lists no tool named '${request.tool}'.`);
  const { lookup } = contract;
  if (lookup !== undefined && !isReadable(desk, server, lookup)) {
    throw new RehearsalError(
      "not-trusted",
      `The lookup tool '${lookup.tool}' is not a proven read of a trusted server in a trusted workspace: nothing that it says would count.`,
    );
  }
  return { contract, plan: planRehearsal(contract, request, tool.inputSchema) };
}

function isReadable(desk: Desk, server: HostedServer, lookup: Lookup): boolean {
  return isProvenRead(toolNamed(server.tools, lookup.tool), desk.trustNow(server), desk.contract(server.name, lookup.tool));
}

/**
 * Rehearses. The person has agreed to the plan's phrase.
 * @param server one of its own, made for this and disposed of by the caller: it is restarted and its connections are cut
 * @throws RehearsalError before anything was called
 */
export async function rehearse(
  desk: Desk,
  server: HostedServer,
  request: RehearsalRequest,
  hooks: RehearsalHooks,
): Promise<RehearsalReport> {
  const { contract, plan } = await prepareRehearsal(desk, server, request);
  const report = {
    server: request.server,
    tool: request.tool,
    at: desk.clock.now(),
    contract: contractFingerprint(contract, request.tool, server.fingerprint),
  };
  if ("why" in plan || contract.lookup === undefined) {
    const why = "why" in plan ? plan.why : "the contract names no lookup";
    return { ...report, findings: nothingTestable(contract, why), operations: [] };
  }
  return { ...report, ...(await new Rehearsal(desk, server, contract, contract.lookup, request, plan, hooks).run()) };
}

/** How one call with a key ended, asked again where the server said that it is still running or the answer was lost by itself. */
type Said =
  | { readonly kind: "answered"; readonly result: unknown }
  | { readonly kind: "refused"; readonly otherPayload: boolean }
  | { readonly kind: "no-answer" };

/** A scenario under way: one operation, and what its calls brought. */
interface Acting {
  readonly name: Scenario;
  readonly course: Course;
  readonly intention: Intention;
  readonly endings: Map<number, Ending>;
  readonly said: Said[];
  before: Seen;
  spoilt?: string;
  firstSentAt: number;
  lastEndedAt: number;
  /** One attempt after the other is put on record, also when they are sent at once. */
  turn: Promise<unknown>;
}

/** An attempt on record; undefined when there is no connection, no journal, or the rehearsal was ended. */
type Ready = Extract<Journaled, { kind: "journaled" }> | undefined;

class Rehearsal {
  readonly #desk: Desk;
  readonly #server: HostedServer;
  readonly #contract: Contract;
  readonly #lookup: Lookup;
  readonly #request: RehearsalRequest;
  readonly #plan: RehearsalPlan;
  readonly #hooks: RehearsalHooks;

  constructor(
    desk: Desk,
    server: HostedServer,
    contract: Contract,
    lookup: Lookup,
    request: RehearsalRequest,
    plan: RehearsalPlan,
    hooks: RehearsalHooks,
  ) {
    this.#desk = desk;
    this.#server = server;
    this.#contract = contract;
    this.#lookup = lookup;
    this.#request = request;
    this.#plan = plan;
    this.#hooks = hooks;
  }

  async run(): Promise<Pick<RehearsalReport, "findings" | "operations">> {
    this.#tell("asking the lookup about keys that were never used");
    const acts: Acting[] = [];
    for (const { name, arguments: args } of this.#plan.scenarios) {
      const act = this.#begin(name, args);
      act.before = await this.#look(act, "before");
      acts.push(act);
    }
    const other: { said: OtherPayload; act?: Acting } = { said: "not-called" };
    for (const act of acts) {
      if (this.#ended) {
        act.spoilt = "the rehearsal was ended before";
        continue;
      }
      this.#tell(act.name);
      await this.#act(act);
      if (act.name === "twice in a row" && this.#contract.duplicatePrevention !== undefined) await this.#callOther(act, other);
    }
    const waited = await this.#waitForWindow(acts[0]);
    await this.#count(acts);
    const scenarios = await Promise.all(acts.map((act) => this.#conclude(act)));
    if (other.act !== undefined) await recordActing(this.#desk, this.#lookup, other.act, undefined);
    const [first] = acts;
    const { duplicatePrevention: prevention } = this.#contract;
    const findings = judgeRehearsal(this.#contract, {
      scenarios,
      other: other.said,
      processRestarted: this.#server.definition.type === "stdio",
      lastUseMs: first === undefined ? 0 : first.lastEndedAt - first.firstSentAt,
      windowMs: prevention === undefined ? 0 : prevention.retentionSeconds * 1000 - marginMs(prevention.retentionSeconds),
      waited: waited ? scenarios[0] : undefined,
    });
    const made = [...acts, ...(other.act === undefined ? [] : [other.act])].filter((act) => act.course.attempts > 0);
    return { findings, operations: made.map((act) => act.course.id) };
  }

  get #ended(): boolean {
    return this.#hooks.signal?.aborted === true || this.#desk.closing;
  }

  #tell(text: string): void {
    this.#hooks.progress?.(text);
  }

  // ---- acting -------------------------------------------------------------------------------------------------------------------

  #begin(name: Scenario, args: Record<string, unknown>, key = uuidv7()): Acting {
    const id = uuidv7();
    const { tool } = this.#request;
    const keyArgument = this.#contract.duplicatePrevention?.keyArgument;
    const intention: Intention = {
      server: this.#server.name,
      tool,
      arguments: args,
      digest: digestOf(this.#server.name, tool, args),
      caller: { client: rehearsalClient },
      fingerprint: this.#server.fingerprint,
      provenRead: false,
      declaredRead: false,
      ...(keyArgument === undefined ? {} : { key, keyArgument }),
    };
    const sent = keyArgument === undefined ? args : (withKey(args, keyArgument, key) ?? args);
    const course: Course = {
      id,
      server: this.#server,
      tool: { name: tool },
      intention,
      contract: this.#contract,
      params: { name: tool, arguments: sent },
      hooks: this.#hooks.signal === undefined ? {} : { signal: this.#hooks.signal },
      provenRead: false,
      attempts: 0,
      unsent: 0,
      firstSentAt: undefined,
      doubt: undefined,
    };
    const now = this.#desk.clock.now();
    const act: Acting = {
      name,
      course,
      intention,
      endings: new Map(),
      said: [],
      before: { kind: "unclear", why: "the lookup was not asked" },
      firstSentAt: now,
      lastEndedAt: now,
      turn: Promise.resolve(),
    };
    return act;
  }

  async #act(act: Acting): Promise<void> {
    if (this.#contract.duplicatePrevention === undefined) {
      act.said.push(await this.#say(act));
      return;
    }
    switch (act.name) {
      case "twice in a row":
        act.said.push(await this.#say(act), await this.#say(act));
        return;
      case "twice at once": {
        const ready = [await this.#ready(act, false), await this.#ready(act, false)];
        const said = await Promise.all(ready.map((first) => this.#say(act, { persist: false, first })));
        act.said.push(...said);
        if (said.some(({ kind }) => kind === "no-answer"))
          act.spoilt = "one of the two calls lost its answer by itself: it is not known whether they met";
        return;
      }
      case "after a lost answer": {
        const first = await this.#submit(act, await this.#ready(act, true));
        if (first?.kind !== "loss") act.spoilt = "the answer was quicker than the cut";
        act.said.push(await this.#say(act));
        return;
      }
      case "after a restart":
        act.said.push(await this.#say(act));
        try {
          await this.#server.restart();
        } catch (error) {
          this.#desk.log(this.#server.name, `the restart for a rehearsal failed (${kindOf(error)})`);
          act.spoilt = "the server could not be restarted";
          return;
        }
        act.said.push(await this.#say(act));
    }
  }

  /** The key of `act` with other arguments. It is another intention, and an operation of its own. */
  async #callOther(act: Acting, other: { said: OtherPayload; act?: Acting }): Promise<void> {
    const args = this.#plan.otherArguments;
    if (args === undefined || this.#ended) return;
    this.#tell("the same key with another payload");
    other.act = this.#begin("twice in a row", args, act.intention.key);
    const said = await this.#say(other.act);
    other.said =
      said.kind === "answered"
        ? "answered"
        : said.kind === "no-answer"
          ? "no-answer"
          : said.otherPayload
            ? "refused-as-said"
            : "refused-otherwise";
  }

  /** Uses the first key once more after the wait that was asked for. @returns whether it did */
  async #waitForWindow(act: Acting | undefined): Promise<boolean> {
    const { waitMs = 0 } = this.#request;
    if (act === undefined || waitMs <= 0 || this.#ended || this.#contract.duplicatePrevention === undefined) return false;
    this.#tell(`waiting ${Math.round(waitMs / 1000)} s before the first key is used for the last time`);
    await this.#pause(waitMs);
    if (this.#ended) return false;
    act.said.push(await this.#say(act));
    return true;
  }

  /** One call, until it is answered or refused. */
  async #say(act: Acting, { persist = true, first }: { persist?: boolean; first?: Ready } = {}): Promise<Said> {
    const prevention = this.#contract.duplicatePrevention;
    for (let asked = 1; asked <= askLimit; asked++) {
      const ending = await this.#submit(act, asked === 1 && first !== undefined ? first : await this.#ready(act, false));
      if (ending === undefined) return { kind: "no-answer" };
      let running: boolean;
      if (ending.kind === "answer") {
        const { isError, result, error } = observationOf(ending.answer);
        const data = dataOf(result ?? error);
        running = prevention?.running !== undefined && evaluate(prevention.running, data) === true;
        const otherPayload = prevention?.otherPayload !== undefined && evaluate(prevention.otherPayload, data) === true;
        if (otherPayload) return { kind: "refused", otherPayload };
        if (!running) return isError ? { kind: "refused", otherPayload: false } : { kind: "answered", result };
      } else {
        const { httpStatus } = ending.loss;
        running = httpStatus === 409;
        if (httpStatus === 422) return { kind: "refused", otherPayload: true };
        if (!running && classify(ending.loss).outcome === "not-executed" && ending.loss.stage !== "not-sent")
          return { kind: "refused", otherPayload: false };
      }
      if (!running && !persist) return { kind: "no-answer" };
      await this.#pause(patience(asked, this.#desk.random));
      if (this.#ended) return { kind: "no-answer" };
    }
    return { kind: "no-answer" };
  }

  /** Puts the next attempt on record. @param cut whether our side of the connection is dropped as soon as the request is out */
  #ready(act: Acting, cut: boolean): Promise<Ready> {
    const ready = act.turn.then(async (): Promise<Ready> => {
      const { course } = act;
      let connection: HostedConnection;
      try {
        connection = await this.#server.connect();
      } catch (error) {
        this.#desk.log(this.#server.name, `no connection for a rehearsal (${kindOf(error)})`);
        return undefined;
      }
      const first = course.attempts === 0;
      const lead = first ? [this.#desk.event(course.id, "prepared", "person", act.intention)] : [];
      if (first) act.firstSentAt = this.#desk.clock.now();
      const made = await journal(this.#desk, course, apart(connection, cut), first ? "call" : "replay", lead);
      return made.kind === "journaled" ? made : undefined;
    });
    act.turn = ready;
    return ready;
  }

  /** Sends an attempt that is on record. @returns undefined when there is none */
  async #submit(act: Acting, ready: Ready): Promise<Ending | undefined> {
    if (ready === undefined) return undefined;
    const waited = await ready.send();
    act.lastEndedAt = this.#desk.clock.now();
    const stage = waited.kind === "ended" || waited.stage === "answered" ? "answering" : waited.stage;
    const ending: Ending = waited.kind === "ended" ? waited.ending : { kind: "loss", loss: { kind: "no-answer", stage } };
    act.endings.set(ready.number, ending);
    return ending;
  }

  // ---- counting -----------------------------------------------------------------------------------------------------------------

  /** Waits until the lookup's word can mean something. */
  async #count(acts: readonly Acting[]): Promise<void> {
    const ended = Math.max(...acts.map((act) => act.lastEndedAt));
    const wait = ended + this.#lookup.consistentAfterSeconds * 1000 - this.#desk.clock.now();
    if (wait <= 0 || this.#ended) return;
    this.#tell(`waiting ${Math.ceil(wait / 1000)} s, until the lookup has to know`);
    await this.#pause(wait);
  }

  async #conclude(act: Acting): Promise<Ran> {
    const after: Seen = this.#ended
      ? { kind: "unclear", why: "the rehearsal was ended before the count" }
      : await this.#look(act, "after");
    await recordActing(this.#desk, this.#lookup, act, after);
    const answers = act.said.flatMap((said) => (said.kind === "answered" ? [canonicalize(said.result) ?? ""] : []));
    const calls = act.name === "after a lost answer" ? act.said.length + 1 : act.said.length;
    const spoilt = act.spoilt ?? (answers.length === 0 ? "no call was answered without an error" : undefined);
    return {
      name: act.name,
      before: act.before,
      after,
      calls,
      answered: answers.length,
      sameAnswers: new Set(answers).size === 1,
      ...(spoilt === undefined ? {} : { spoilt }),
    };
  }

  async #look(act: Acting, when: "before" | "after"): Promise<Seen> {
    const { intention, course } = act;
    const subject = subjectOf(intention.arguments, this.#contract, intention.key ?? "", course.id);
    const args = lookupArguments(this.#lookup, subject);
    if (args === undefined) return { kind: "unclear", why: "the lookup needs something that these arguments do not have" };
    try {
      const connection = await this.#server.connect();
      const now = this.#desk.clock.now();
      const ending = await askTool(this.#desk, connection, this.#lookup.tool, args);
      if (ending.kind === "loss" || "error" in ending.answer)
        return {
          kind: "unclear",
          why: ending.kind === "loss" ? "the lookup got no answer" : "the lookup tool reported an error",
        };
      // Nothing was sent before: then "none" can be said at any time.
      const never = now - this.#lookup.consistentAfterSeconds * 1000;
      const times =
        when === "before"
          ? { firstSentAt: never, lostAt: never, now }
          : { firstSentAt: act.firstSentAt, lostAt: act.lastEndedAt, now };
      const { result } = ending.answer;
      const finding: LookupFinding = judgeLookup(this.#lookup, subject, result, times);
      return seenIn(this.#lookup, result["isError"] === true ? undefined : result, finding);
    } catch (error) {
      this.#desk.log(this.#server.name, `a lookup of a rehearsal failed (${kindOf(error)})`);
      return { kind: "unclear", why: "the server could not be reached for the lookup" };
    }
  }

  async #pause(ms: number): Promise<void> {
    const { signal } = this.#hooks;
    if (signal?.aborted === true) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const stop = this.#desk.clock.after(ms, resolve);
    const done = (): void => resolve();
    signal?.addEventListener("abort", done, { once: true });
    await promise;
    stop();
    signal?.removeEventListener("abort", done);
  }
}

/**
 * The connection as a rehearsal uses it: an answer that comes after the end of its attempt is not heard, because what the attempts brought
 * is put on record when all of them are over.
 * @param cut drops our side of the connection the moment the request is out
 */
function apart(connection: HostedConnection, cut: boolean): Pick<HostedConnection, "connectionId" | "facts" | "prepareCall"> {
  return {
    connectionId: connection.connectionId,
    facts: connection.facts,
    prepareCall: (params, observer, rpcId) =>
      connection.prepareCall(
        params,
        {
          ...observer,
          late: () => undefined,
          stage(stage) {
            observer.stage?.(stage);
            if (cut && stage === "sent") void connection.close();
          },
        },
        rpcId,
      ),
  };
}
