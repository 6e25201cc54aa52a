/**
 * Owns: the one way in for every call, whoever makes it, and for settling, repeating and reconciling: it prepares the operation and
 * hands it to its course.
 * Leaves to others: the duplicate guard (duplicates.ts), the course of attempts (course.ts), reconciliation (reconciliation.ts).
 * Sources: DESIGN.md sections 2 to 5.
 */
import { uuidv7 } from "uuidv7";
import type { HostedConnection, ListedTool } from "../hosting/connection.ts";
import type { HostedServer } from "../hosting/hosted-server.ts";
import { JournalError } from "../operations/journal.ts";
import {
  contradicts,
  IllegalTransition,
  keepsArguments,
  type Actor,
  type Intention,
  type Operation,
  type OperationEvent,
  type Settlement,
} from "../operations/model.ts";
import { heldInFlightAnswer, invalidCallAnswer, notExecutedAnswer, notJournaledAnswer } from "./answers.ts";
import type { Course } from "./attempt.ts";
import { ReplayBudget } from "./backoff.ts";
import { ourAnswer, type CallAnswer, type CallHooks, type CallRequest, type Calls, type ReconcileOptions } from "./calls.ts";
import { keyIn, withKey, withoutKey, type Contract } from "./contracts.ts";
import { CourseRunner } from "./course.ts";
import { Desk, kindOf, toolNamed, type DeskOptions } from "./desk.ts";
import { guard } from "./duplicates.ts";
import { declaresRead, isProvenRead } from "./gate.ts";
import { digestOf } from "./intention.ts";
import type { LookupFinding } from "./lookup.ts";
import { Reconciliation } from "./reconciliation.ts";
import { recoverable } from "./recovery.ts";
import { acknowledgeConflict, settleOperation } from "./settle.ts";

export class CallManager implements Calls {
  readonly #desk: Desk;
  readonly #runner: CourseRunner;
  readonly #reconciliation: Reconciliation;
  /** The operation under way here for each digest, to mark possible duplicates. */
  readonly #underWay = new Map<string, string>();
  /** Every operation that has an attempt out. */
  readonly #out = new Set<string>();

  constructor(options: DeskOptions) {
    this.#desk = new Desk(options);
    this.#reconciliation = new Reconciliation(this.#desk);
    this.#runner = new CourseRunner(this.#desk, new ReplayBudget(), this.#reconciliation);
  }

  async call(request: CallRequest, hooks: CallHooks): Promise<CallAnswer> {
    const desk = this.#desk;
    const server = request.hosted ?? desk.server(request.server);
    if (server === undefined)
      return ourAnswer(undefined, invalidCallAnswer(`There is no hosted server named '${request.server}'.`));
    const contract = desk.contract(request.server, request.tool);
    const keyed = keyFor(contract, request.arguments);
    if (keyed === "no-place")
      return ourAnswer(
        undefined,
        invalidCallAnswer("The argument that takes this call's key, or one on the way to it, is not what the contract says."),
      );
    const { arguments: args, ...key } = keyed;
    const digest = digestOf(request.server, request.tool, args);

    // What became of earlier calls counts here, also when it could not be written at once.
    await desk.pay();
    // A call that must not be sent is answered before anything is started for it.
    const before = await guard(desk, server, digest, request);
    if (!before.send) return before.answer;
    const found = await this.#find(server, request.tool);
    if (found === "unreachable") return this.#neverSent(server, digest, request, args);
    if (found.tool === undefined)
      return ourAnswer(undefined, invalidCallAnswer(`The server '${server.name}' lists no tool named '${request.tool}'.`));
    // An identical call may have become unresolved while this one waited for the connection.
    await desk.pay();
    const guarded = await guard(desk, server, digest, request);
    if (!guarded.send) return guarded.answer;

    const { tool, connection } = found;
    // From here to the sending nothing waits, so that of two identical calls one sees the other.
    const { inFlight } = desk.settings.duplicateGuard;
    const twin = inFlight === "off" ? undefined : this.#underWay.get(digest);
    if (twin !== undefined && inFlight === "hold" && !declaresRead(tool)) return ourAnswer(undefined, heldInFlightAnswer(twin));
    const duplicateOf = guarded.duplicateOf ?? twin;
    const id = uuidv7();
    const intention: Intention = {
      server: server.name,
      tool: request.tool,
      arguments: args,
      digest,
      caller: request.caller,
      fingerprint: server.fingerprint,
      provenRead: isProvenRead(tool, desk.trustNow(server), contract),
      declaredRead: declaresRead(tool),
      ...key,
      ...(duplicateOf === undefined ? {} : { possibleDuplicateOf: duplicateOf }),
    };
    // An identical call may be among those whose end is not on record.
    if (desk.owes && !intention.provenRead) return ourAnswer(undefined, notJournaledAnswer(undefined, desk.failure, 0));
    const lead = [desk.event(id, "prepared", "agent", intention)];
    if (guarded.letThroughBy !== undefined) lead.push(desk.event(guarded.letThroughBy, "let-through", "gateway", { used: id }));
    const params = { ...request.params, arguments: sentArguments(intention) };
    return this.#run(this.#course(id, server, tool, intention, contract, params, hooks), connection, "call", lead);
  }

  async repeat(id: string, evidence: string, hooks: CallHooks): Promise<CallAnswer> {
    const desk = this.#desk;
    const operation = await this.#operation(id);
    if (operation.state !== "no-effect") {
      throw new JournalError(
        "not-unresolved",
        `Operation ${id} is '${operation.state}'. Only an operation that was settled as 'no-effect' can be repeated.`,
      );
    }
    if (!keepsArguments(operation)) {
      throw new JournalError(
        "arguments-withheld",
        `Operation ${id} cannot be repeated: the journal kept only a part of its arguments, as mcpSafeReplay.journal.arguments says.`,
      );
    }
    const { intention, answer } = operation;
    if (answer !== undefined && contradicts("no-effect", answer)) {
      throw new JournalError(
        "not-unresolved",
        `Operation ${id} cannot be repeated: an answer that came later says that it took effect. Once more could do it twice.`,
      );
    }
    const server = desk.server(intention.server);
    if (server === undefined)
      return ourAnswer(undefined, invalidCallAnswer(`There is no hosted server named '${intention.server}'.`));
    const found = await this.#find(server, intention.tool);
    if (found === "unreachable") return ourAnswer(id, notExecutedAnswer(id, "not-sent", operation.attempts.length));
    if (found.tool === undefined)
      return ourAnswer(undefined, invalidCallAnswer(`The server '${server.name}' lists no tool named '${intention.tool}'.`));
    const params = { name: intention.tool, arguments: sentArguments(intention) };
    const contract = desk.contract(intention.server, intention.tool);
    const course = this.#course(id, server, found.tool, intention, contract, params, hooks, operation);
    return this.#run(course, found.connection, "repeat", [
      desk.event(id, "repeated", "person", { attempt: course.attempts + 1, evidence }),
    ]);
  }

  settle(id: string, as: Settlement, evidence: string, actor: Actor, attempts?: number): Promise<Operation> {
    return settleOperation(this.#desk.journal, id, as, evidence, actor, this.#desk.clock.now(), attempts);
  }

  async reconcileOptions(id: string): Promise<ReconcileOptions> {
    const operation = await this.#operation(id);
    return {
      recover: operation.state === "unresolved" && recoverable(operation).length > 0,
      lookUp: operation.state === "unresolved" && this.#reconciliation.hasLookup(operation) && keepsArguments(operation),
    };
  }

  async recoverAnswer(id: string): Promise<boolean> {
    const operation = await this.#operation(id);
    const server = this.#desk.server(operation.intention.server);
    // A server that is defined differently now knows nothing of that call, whatever it says of its session or task.
    if (server === undefined || server.fingerprint !== operation.intention.fingerprint) return false;
    try {
      return await this.#reconciliation.recoverNow(operation, await server.connect());
    } catch (error) {
      if (error instanceof JournalError) throw error;
      this.#desk.log(server.name, `no connection to recover an answer on (${kindOf(error)})`);
      return false;
    }
  }

  async lookUp(id: string): Promise<LookupFinding> {
    const operation = await this.#operation(id);
    if (operation.state !== "unresolved")
      throw new JournalError("not-unresolved", `Operation ${id} is not unresolved: there is nothing to look up.`);
    const server = this.#desk.server(operation.intention.server);
    if (server === undefined) return { found: "undecided", evidence: "its server is not hosted any more" };
    return this.#reconciliation.lookUp(operation, server);
  }

  acknowledge(id: string, note: string): Promise<Operation> {
    return acknowledgeConflict(this.#desk.journal, id, note, this.#desk.clock.now());
  }

  letThrough(id: string, note: string): Promise<Operation> {
    return this.#noteOnUnresolved(this.#desk.event(id, "let-through", "person", { note }), "nothing is held because of it");
  }

  noteRead(id: string, tool: string, read: string | undefined, answered: boolean): Promise<Operation> {
    const where = read === undefined ? "" : ` (operation ${read})`;
    const evidence = answered
      ? `a person asked the reading tool '${tool}'${where}; what it answered is kept there`
      : `a person asked the reading tool '${tool}'${where}; it gave no answer`;
    return this.#noteOnUnresolved(
      this.#desk.event(id, "looked-up", "person", { found: "undecided", evidence }),
      "there is nothing to establish",
    );
  }

  async #noteOnUnresolved(event: OperationEvent, otherwise: string): Promise<Operation> {
    const id = event.operationId;
    await this.#operation(id);
    try {
      const [operation] = await this.#desk.journal.append([event], { durable: true });
      return operation ?? (await this.#operation(id));
    } catch (error) {
      if (error instanceof IllegalTransition)
        throw new JournalError("not-unresolved", `Operation ${id} is not unresolved: ${otherwise}.`);
      throw error;
    }
  }

  /** A server came back (or was there from the start): what can be recovered or looked up for its unresolved operations. */
  revisit(server: HostedServer): Promise<void> {
    return this.#reconciliation.revisit(server, (id) => this.#out.has(id));
  }

  /** The servers whose unresolved operations are worth a connection after a start. */
  serversToRevisit(): Promise<ReadonlySet<string>> {
    return this.#reconciliation.serversToRevisit();
  }

  /** From now on nothing is sent again: the program is about to end. */
  stopFurtherAttempts(): void {
    this.#desk.closing = true;
  }

  /** Ends the keeping of books: calls still out are recorded as lost by this process's end. */
  async dispose(): Promise<void> {
    const desk = this.#desk;
    await desk.end();
    this.#reconciliation.dispose();
    for (const id of this.#out) {
      const operation = await desk.journal.operation(id).catch(() => undefined);
      const attempt = operation?.attempts.at(-1);
      if (operation?.state !== "in-flight" || attempt === undefined) continue;
      await desk.note(
        desk.event(id, "lost", "gateway", {
          attempt: attempt.number,
          stage: attempt.stage,
          reason: "process-ended",
          kind: "closed-here",
        }),
      );
    }
  }

  // ---- preparing ----------------------------------------------------------------------------------------------------------------

  async #run(
    course: Course,
    connection: HostedConnection,
    cause: "call" | "repeat",
    lead: Parameters<CourseRunner["run"]>[1]["lead"],
  ): Promise<CallAnswer> {
    const { digest } = course.intention;
    this.#underWay.set(digest, course.id);
    this.#out.add(course.id);
    try {
      return await this.#runner.run(course, { connection, cause, via: "direct", lead });
    } finally {
      this.#out.delete(course.id);
      this.#desk.over(course.id);
      if (this.#underWay.get(digest) === course.id) this.#underWay.delete(digest);
    }
  }

  #course(
    id: string,
    server: HostedServer,
    tool: ListedTool,
    intention: Intention,
    contract: Contract | undefined,
    params: Record<string, unknown>,
    hooks: CallHooks,
    operation?: Operation,
  ): Course {
    return {
      id,
      server,
      tool,
      intention,
      contract,
      params,
      hooks,
      provenRead: isProvenRead(tool, this.#desk.trustNow(server), contract),
      attempts: operation?.attempts.length ?? 0,
      unsent: 0,
      firstSentAt: operation?.createdAt,
      doubt: undefined,
    };
  }

  /** A connection and the tool as listed now (asked again when the last list does not have it). */
  async #find(
    server: HostedServer,
    name: string,
  ): Promise<"unreachable" | { connection: HostedConnection; tool: ListedTool | undefined }> {
    try {
      const connection = await server.connect();
      return { connection, tool: toolNamed(server.tools, name) ?? toolNamed(await connection.listTools(), name) };
    } catch (error) {
      this.#desk.log(server.name, `not sent: no connection (${kindOf(error)})`);
      return "unreachable";
    }
  }

  async #neverSent(
    server: HostedServer,
    digest: string,
    request: CallRequest,
    args: Record<string, unknown>,
  ): Promise<CallAnswer> {
    const desk = this.#desk;
    const id = uuidv7();
    await desk.note(
      desk.event(id, "prepared", "agent", {
        server: server.name,
        tool: request.tool,
        arguments: args,
        digest,
        caller: request.caller,
        fingerprint: server.fingerprint,
        provenRead: false,
        declaredRead: declaresRead(toolNamed(server.tools, request.tool)),
      }),
      desk.event(id, "refused", "gateway", { reason: "not-sent" }),
    );
    return ourAnswer(id, notExecutedAnswer(id, "not-sent", 0));
  }

  async #operation(id: string): Promise<Operation> {
    const operation = await this.#desk.journal.operation(id);
    if (operation === undefined) throw new JournalError("unknown-operation", `There is no operation ${id}.`);
    return operation;
  }
}

interface Keyed {
  /** Without the key: what makes the intention. */
  readonly arguments: Record<string, unknown>;
  readonly key?: string;
  readonly keyArgument?: string;
}

/**
 * The key that goes out with an operation: made here, or the caller's own, as the contract says; never one that was made for another.
 * @returns "no-place" when the key cannot be put where the contract says
 */
function keyFor(contract: Contract | undefined, args: Record<string, unknown>): Keyed | "no-place" {
  const prevention = contract?.duplicatePrevention;
  if (prevention === undefined) return { arguments: args };
  const { keyArgument, suppliedBy } = prevention;
  const key = suppliedBy === "gateway" ? uuidv7() : keyIn(args, keyArgument);
  // A caller that gave no usable key keeps its arguments as they are; nothing is replayed for it.
  if (key === undefined) return { arguments: args };
  const bare = withoutKey(args, keyArgument);
  return withKey(bare, keyArgument, key) === undefined ? "no-place" : { arguments: bare, key, keyArgument };
}

function sentArguments({ arguments: args, key, keyArgument }: Intention): Record<string, unknown> {
  if (key === undefined || keyArgument === undefined) return args;
  const keyed = withKey(args, keyArgument, key);
  if (keyed === undefined) throw new Error("the key of an operation has no place in its arguments");
  return keyed;
}
