/**
 * Owns: establishing what happened to an unresolved operation without a person's guess: the contract's lookup, after a loss, when the
 * server comes back, and on demand; and fetching a lost answer later.
 * Leaves to others: what a lookup's answer proves (lookup.ts), a person's word (settle.ts).
 * Sources: DESIGN.md section 4, step 4; the second source document, steps 5 and 6.
 */
import type { HostedConnection } from "../hosting/connection.ts";
import type { Ending } from "../hosting/evidence.ts";
import type { HostedServer } from "../hosting/hosted-server.ts";
import { JournalError } from "../operations/journal.ts";
import { keepsArguments, type Operation } from "../operations/model.ts";
import { isTied, judgeLookup, lookupArguments, type LookupFinding } from "./lookup.ts";
import { kindOf, observationOf, toolNamed, type Desk } from "./desk.ts";
import { isProvenRead } from "./gate.ts";
import { recover, recoverable } from "./recovery.ts";

/** A lookup tool gets this long to answer, in milliseconds. */
const lookupTimeoutMs = 10_000;
/**
 * Whether it was we who stopped waiting: then the call may still be under way, and what is not there yet can still come. A process of our
 * own ends with us; a server elsewhere does not.
 */
function mayStillRun(operation: Operation): boolean {
  const { reason, attempts } = operation;
  if (reason === "timeout" || reason === "cancelled") return true;
  return (reason === "process-ended" || reason === "server-stopped") && attempts.at(-1)?.transport !== "stdio";
}

/** Whether an operation provably left no record. A person who said so may have been wrong. */
function leftNothing({ state, attempts, settlement }: Operation): boolean {
  return attempts.length === 0 || state === "not-executed" || (state === "no-effect" && settlement?.actor === "server");
}

/** When a server comes back, at most so many of its unresolved operations are looked at. */
const revisitLimit = 100;

/** Calls a reading tool; one that takes too long is given up, and nobody waits for it any more. Rejects when it does. */
export async function askTool(
  desk: Desk,
  connection: HostedConnection,
  name: string,
  args: Record<string, unknown>,
): Promise<Ending> {
  const call = connection.prepareCall({ name, arguments: args }, {});
  try {
    return await desk.within(lookupTimeoutMs, call.send());
  } catch (error) {
    call.cancel("timeout");
    throw error;
  }
}

export class Reconciliation {
  readonly #desk: Desk;
  /** Lookups that are due later, by operation. */
  readonly #later = new Map<string, () => void>();
  readonly #revisiting = new Set<string>();

  constructor(desk: Desk) {
    this.#desk = desk;
  }

  /** Whether the contract names a lookup for this operation. */
  hasLookup(operation: Operation): boolean {
    return this.#desk.contract(operation.intention.server, operation.intention.tool)?.lookup !== undefined;
  }

  /**
   * Calls the documented lookup tool once and notes what it proves; only its two definitive answers settle the operation.
   * Never rejects: whatever goes wrong decides nothing.
   */
  async lookUp(operation: Operation, server: HostedServer): Promise<LookupFinding> {
    const finding = await this.#ask(operation, server);
    const { found, evidence } = finding;
    const seen = this.#desk.event(operation.id, "looked-up", "server", { found, evidence });
    if (found === "undecided") {
      await this.#desk.note(seen);
      return finding;
    }
    // In one write with what was seen, and only for the attempts that there were when the question was put.
    const settled = this.#desk.event(operation.id, "settled", "server", {
      as: found === "effect" ? "effect-confirmed" : "no-effect",
      evidence,
      attempts: operation.attempts.length,
    });
    if (await this.#desk.noteNow(seen, settled)) return finding;
    return { found: "undecided", evidence: `${evidence}; but in the meantime its operation went another way` };
  }

  async #ask(operation: Operation, server: HostedServer): Promise<LookupFinding> {
    const { intention } = operation;
    const desk = this.#desk;
    const undecided = (evidence: string): LookupFinding => ({ found: "undecided", evidence });
    const lookup = desk.contract(intention.server, intention.tool)?.lookup;
    if (lookup === undefined) return undecided("no contract names a lookup for this tool");
    if (!keepsArguments(operation)) return undecided("the journal kept only a part of the arguments: nothing can be compared");
    // Another definition may mean another account: what is found there, or not, says nothing.
    if (intention.fingerprint !== server.fingerprint) return undecided("its server is defined differently now");
    const { key, keyArgument } = intention;
    const subject = { id: operation.id, key, keyArgument, arguments: intention.arguments };
    const args = lookupArguments(lookup, subject);
    if (args === undefined) return undecided("the lookup needs something that this operation does not have");
    try {
      const connection = await desk.within(lookupTimeoutMs, server.connect());
      const tool = toolNamed(server.tools, lookup.tool) ?? toolNamed(await connection.listTools(), lookup.tool);
      if (tool === undefined) return undecided("the server does not list the lookup tool");
      if (!isProvenRead(tool, desk.trustNow(server), desk.contract(server.name, lookup.tool))) {
        return undecided("the lookup tool is not a proven read of a trusted server in a trusted workspace");
      }
      // The time at which the question was put: an answer can know nothing later.
      const now = desk.clock.now();
      const ending = await askTool(desk, connection, lookup.tool, args);
      if (ending.kind === "loss") return undecided("the lookup got no answer");
      if ("error" in ending.answer) return undecided("the lookup tool reported an error");
      const finding = judgeLookup(lookup, subject, ending.answer.result, {
        firstSentAt: operation.createdAt,
        lostAt: operation.lostAt ?? operation.updatedAt,
        now,
      });
      if (finding.found === "effect" && !isTied(lookup, subject)) {
        const other = await this.#couldBeTheirs(operation);
        if (other !== undefined)
          return undecided(`a record with these arguments was found, but it may be that of the identical operation ${other}`);
      }
      return finding.found === "no-effect" && mayStillRun(operation)
        ? undecided("the lookup found nothing, but the call may still be under way")
        : finding;
    } catch (error) {
      desk.log(server.name, `lookup for ${operation.id} failed (${kindOf(error)})`);
      return undecided("the server could not be reached for the lookup");
    }
  }

  /** An identical operation that may have left the same record, when the lookup asks for no identity of this very one. */
  async #couldBeTheirs(operation: Operation): Promise<string | undefined> {
    const { digest, server } = operation.intention;
    const identical = await this.#desk.journal.operations({ digest, server });
    return identical.find((one) => one.id !== operation.id && !leftNothing(one))?.id;
  }

  /** Looks again after `ms`, when the answer can mean more; settles, and never sends the call by itself: nobody waits for it any more. */
  lookUpLater(id: string, server: HostedServer, ms: number): void {
    this.#later.get(id)?.();
    this.#later.set(
      id,
      this.#desk.clock.after(ms, () => {
        this.#later.delete(id);
        void this.#lookUpIfUnresolved(id, server);
      }),
    );
  }

  async #lookUpIfUnresolved(id: string, server: HostedServer): Promise<void> {
    const operation = await this.#desk.journal.operation(id).catch(() => undefined);
    if (operation?.state !== "unresolved" || this.#desk.closing) return;
    const finding = await this.lookUp(operation, server);
    if (finding.found === "undecided" && finding.againMs !== undefined) this.lookUpLater(id, server, finding.againMs);
  }

  /**
   * Fetches the lost answer of an operation, if its cursor or task still lives.
   * @throws JournalError when the operation is not unresolved
   */
  async recoverNow(operation: Operation, connection: HostedConnection): Promise<boolean> {
    if (operation.state !== "unresolved")
      throw new JournalError("not-unresolved", `Operation ${operation.id} is not unresolved.`);
    const found = await recover(this.#desk, operation, connection, {});
    if (found === undefined) return false;
    const { attempt, how, answer } = found;
    return this.#desk.note(this.#desk.event(operation.id, "recovered", "server", { attempt, how, ...observationOf(answer) }));
  }

  /**
   * After a restart or a reconnect: what can be recovered or looked up for this server's unresolved operations. One run at a time.
   * @param underWay whether somebody still waits for this operation here: its own course does all of this itself
   */
  async revisit(server: HostedServer, underWay: (id: string) => boolean): Promise<void> {
    if (this.#revisiting.has(server.name) || this.#desk.closing) return;
    this.#revisiting.add(server.name);
    try {
      const open = await this.#desk.journal.operations({ states: ["unresolved"], server: server.name, limit: revisitLimit });
      for (const operation of open) {
        if (this.#desk.closing || operation.intention.fingerprint !== server.fingerprint || underWay(operation.id)) continue;
        if (recoverable(operation).length > 0) {
          const connection = server.connection ?? (await server.connect());
          if (await this.recoverNow(operation, connection)) continue;
        }
        if (this.hasLookup(operation)) await this.#lookUpIfUnresolved(operation.id, server);
      }
    } catch (error) {
      this.#desk.log(server.name, `unresolved operations could not be revisited (${kindOf(error)})`);
    } finally {
      this.#revisiting.delete(server.name);
    }
  }

  /** The servers that have something to recover or to look up, which is worth a connection. */
  async serversToRevisit(): Promise<ReadonlySet<string>> {
    const open = await this.#desk.journal.operations({ states: ["unresolved"] }).catch(() => []);
    const worth = open.filter((operation) => recoverable(operation).length > 0 || this.hasLookup(operation));
    return new Set(worth.map((operation) => operation.intention.server));
  }

  dispose(): void {
    for (const cancel of this.#later.values()) cancel();
    this.#later.clear();
  }
}
