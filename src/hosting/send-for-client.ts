/**
 * Owns: `Transport.send` as the SDK's client expects it, on top of a wire's exchanges.
 * Leaves to others: everything that needs evidence; that goes through `Wire.exchange`.
 */
import type { JSONRPCMessage, TransportSendOptions } from "@modelcontextprotocol/client";
import type { JsonRpcAnswer } from "./evidence.ts";
import { LossError } from "./hosting-errors.ts";
import type { RpcNotification, RpcRequest } from "./json-rpc.ts";
import type { Wire } from "./wire.ts";

/**
 * Settles when the request's answer has been handed to `onmessage`; rejects with `LossError` when there will be none.
 * Notifications and answers settle when they were handed over.
 */
export async function sendForClient(wire: Wire, message: JSONRPCMessage, options: TransportSendOptions = {}): Promise<void> {
  if (!("method" in message) || !("id" in message)) return wire.post(message as RpcNotification | JsonRpcAnswer);
  const exchange = wire.exchange(message as RpcRequest, {}, options.headers === undefined ? {} : { headers: options.headers });
  const signal = wire.hasPerRequestStream === true ? options.requestSignal : undefined;
  const onAbort = (): void => exchange.abort("cancelled-here");
  if (signal?.aborted === true) onAbort();
  signal?.addEventListener("abort", onAbort, { once: true });
  const ending = await exchange.ending;
  signal?.removeEventListener("abort", onAbort);
  if (ending.kind === "answer") return wire.onmessage?.(ending.answer);
  if (ending.loss.kind !== "cancelled-here") options.onRequestStreamEnd?.();
  throw new LossError(ending.loss);
}
