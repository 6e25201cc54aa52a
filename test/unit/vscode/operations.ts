/**
 * Owns: operations as the texts of the extension see them, made from events as the journal would.
 */
import {
  apply,
  type Actor,
  type EventData,
  type EventType,
  type Operation,
  type OperationEvent,
} from "../../../src/operations/model.ts";

export const now = Date.parse("2026-11-30T12:00:00Z");
export const minute = 60_000;

export function event<T extends EventType>(type: T, actor: Actor, data: EventData[T], at: number): OperationEvent {
  return { operationId: "op-1", type, actor, at, data } as OperationEvent;
}

export const prepared = (fields: Partial<EventData["prepared"]> = {}): OperationEvent =>
  event(
    "prepared",
    "agent",
    {
      server: "booking",
      tool: "create_booking",
      arguments: { hotel: "Grand", guest: "Ada" },
      digest: "d".repeat(64),
      caller: { client: "agent" },
      fingerprint: "f",
      provenRead: false,
      declaredRead: false,
      ...fields,
    },
    now - 5 * minute,
  );

export const sent = (number: number): OperationEvent =>
  event(
    "sent",
    "gateway",
    {
      number,
      rpcId: `rpc-${number}`,
      era: "2025-11-25",
      transport: "http",
      connectionId: "c1",
      protocolVersion: "2025-11-25",
      cause: number === 1 ? "call" : "repeat",
    },
    now - 5 * minute,
  );

export const lost = (attempt: number): OperationEvent =>
  event("lost", "gateway", { attempt, stage: "sent", reason: "connection-lost", kind: "reset" }, now - 4 * minute);

/** The operation that these events make. */
export function operationOf(events: readonly OperationEvent[]): Operation {
  const made = events.reduce<Operation | undefined>((operation, one) => apply(operation, one), undefined);
  if (made === undefined) throw new Error("no events");
  return made;
}
