/**
 * Owns: the demo provider `booking`: rooms booked for real in the ledger, and an answer that is lost on the way back.
 * By default the first request for each distinct booking loses its answer; a further identical one is answered.
 * `mode.json`: `create_booking`, `cancel_booking`: an answer mode (control.ts); `find_booking`: an answer mode, or `none`, `ambiguous` or
 * `forbidden` (what an authoritative lookup may say instead of the record).
 */
import type { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import * as z from "zod";
import { canonicalArguments, type Ledger } from "../ledger.ts";
import { readMode } from "./control.ts";
import { errorResult, runWhenProgram, textResult, type DemoConnection, type DemoServer } from "./demo-server.ts";

interface Booking {
  readonly [field: string]: unknown;
  readonly reference: string;
  readonly hotel: string;
  readonly night: string;
  readonly guest: string;
  readonly idempotencyKey: string | null;
  readonly cancelled: boolean;
}

/** Every booking ever made, in order; the n-th has the reference `R-n`. */
export function bookings(ledger: Pick<Ledger, "effects">): Booking[] {
  const cancelled = new Set(ledger.effects({ tool: "cancel_booking" }).map((effect) => effect.arguments["reference"]));
  return ledger.effects({ tool: "create_booking" }).map((effect, index) => {
    const reference = `R-${index + 1}`;
    const { hotel, night, guest, idempotencyKey } = effect.arguments as Record<string, string>;
    return {
      reference,
      hotel: hotel ?? "",
      night: night ?? "",
      guest: guest ?? "",
      idempotencyKey: idempotencyKey ?? null,
      cancelled: cancelled.has(reference),
    };
  });
}

const room = {
  hotel: z.string().min(1).describe("Name of the hotel"),
  night: z.string().min(1).describe("The night, for example 2026-12-24"),
  guest: z.string().min(1).describe("Name of the guest"),
};

const record = z.object({
  reference: z.string(),
  hotel: z.string(),
  night: z.string(),
  guest: z.string(),
  idempotencyKey: z.string().nullable(),
  cancelled: z.boolean(),
});

function register(server: McpServer, { ledger, answer }: DemoConnection): void {
  server.registerTool(
    "create_booking",
    {
      title: "Book a room",
      description:
        "Books one room for one night. Demo: the answer to the first request for each booking is lost after the room has been booked. " +
        "With an idempotencyKey the provider makes the same booking only once and answers a repeat with the first booking.",
      inputSchema: {
        ...room,
        idempotencyKey: z
          .string()
          .min(1)
          .optional()
          .describe("Key by which the provider recognises a repeat of the same booking"),
      },
      annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
    },
    (args, extra) => {
      const { idempotencyKey, ...wanted } = args;
      const earlier =
        idempotencyKey === undefined ? undefined : bookings(ledger).find((booking) => booking.idempotencyKey === idempotencyKey);
      if (earlier !== undefined) {
        const { hotel, night, guest } = earlier;
        if (canonicalArguments({ hotel, night, guest }) !== canonicalArguments(wanted)) {
          const text = "This idempotency key was used with another booking.";
          return errorResult(text, { status: 422, reference: earlier.reference });
        }
        return answer(
          "create_booking",
          "lose-first",
          extra,
          textResult(`Booked. Reference ${earlier.reference}.`, { booking: earlier }),
        );
      }
      ledger.recordEffect({
        tool: "create_booking",
        arguments: args,
        rpcId: extra.requestId,
        ...(idempotencyKey === undefined ? {} : { key: idempotencyKey }),
      });
      const booking = bookings(ledger).at(-1);
      return answer("create_booking", "lose-first", extra, textResult(`Booked. Reference ${booking?.reference}.`, { booking }));
    },
  );

  server.registerTool(
    "find_booking",
    {
      title: "Find a booking",
      description: "Looks a booking up in the hotel's books, by reference or idempotency key, or by hotel, night and guest.",
      inputSchema: {
        hotel: room.hotel.optional(),
        night: room.night.optional(),
        guest: room.guest.optional(),
        reference: z.string().min(1).optional().describe("Booking reference or idempotency key"),
      },
      outputSchema: {
        found: z.boolean(),
        status: z.enum(["found", "none", "ambiguous"]),
        booking: record.optional(),
        candidates: z.number().int().optional(),
      },
      annotations: { readOnlyHint: true, openWorldHint: false },
    },
    (args, extra) => {
      const told = readMode(ledger.directory, "find_booking");
      if (told === "forbidden") return errorResult("Access to the hotel's books was refused.");
      const { reference, ...fields } = args;
      let matches = bookings(ledger).filter(
        (booking) =>
          (reference === undefined || booking.reference === reference || booking.idempotencyKey === reference) &&
          Object.entries(fields).every(([name, value]) => value === undefined || booking[name] === value),
      );
      const active = matches.filter((booking) => !booking.cancelled);
      if (active.length > 0) matches = active;
      const [booking] = matches;
      const result =
        booking === undefined || told === "none"
          ? textResult("There is no such booking.", { found: false, status: "none" })
          : matches.length > 1 || told === "ambiguous"
            ? textResult("More than one booking may be meant.", {
                found: false,
                status: "ambiguous",
                candidates: Math.max(2, matches.length),
              })
            : textResult(
                `${booking.reference}: ${booking.hotel}, ${booking.night}, ${booking.guest}${booking.cancelled ? ", cancelled" : ""}.`,
                { found: true, status: "found", booking },
              );
      return answer("find_booking", "answer", extra, result);
    },
  );

  server.registerTool(
    "cancel_booking",
    {
      title: "Cancel a booking",
      description: "Cancels one booking for good.",
      inputSchema: { reference: z.string().min(1).describe("Booking reference, for example R-1") },
      annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
    },
    ({ reference }, extra) => {
      const booking = bookings(ledger).find((candidate) => candidate.reference === reference);
      if (booking === undefined) return errorResult("There is no such booking.");
      if (booking.cancelled) return errorResult("The booking was cancelled before.");
      ledger.recordEffect({ tool: "cancel_booking", key: reference, arguments: { reference }, rpcId: extra.requestId });
      return answer(
        "cancel_booking",
        "answer",
        extra,
        textResult(`Cancelled ${reference}.`, { booking: { ...booking, cancelled: true } }),
      );
    },
  );
}

export const bookingDemo: DemoServer = {
  name: "booking",
  title: "Hotel booking (demo)",
  version: "1.0.0",
  instructions: "Books hotel rooms. Demo: answers to create_booking may be lost after the room has been booked.",
  httpAnswers: "json",
  register,
};

runWhenProgram(bookingDemo, import.meta.url);
