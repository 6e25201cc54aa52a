/**
 * Owns: the provider's tools as an MCP server shows them, and what a call of them answers.
 * Leaves to others: what is booked (provider.ts), the wire.
 */
import type { Created, Provider } from "./provider.ts";

export type Fields = Record<string, unknown>;

const texts = (names: readonly string[]): Fields => Object.fromEntries(names.map((name) => [name, { type: "string" }]));

export const tools: readonly Fields[] = [
  {
    name: "create_booking",
    description: "Books a room. With a requestKey, the same booking is made once.",
    inputSchema: {
      type: "object",
      properties: texts(["hotel", "night", "guest", "requestKey"]),
      required: ["hotel", "night", "guest"],
    },
    annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false },
  },
  {
    name: "find_booking",
    description: "Looks bookings up.",
    inputSchema: { type: "object", properties: texts(["hotel", "night", "guest", "requestKey", "reference"]) },
    annotations: { readOnlyHint: true },
  },
];

/** How a provider's 409 and 422 reach the caller: as the HTTP status of the MCP endpoint, or inside the result. */
export type Said = "status" | "result";

export function result(data: Fields, isError = false): Fields {
  return { content: [{ type: "text", text: JSON.stringify(data) }], structuredContent: data, ...(isError ? { isError } : {}) };
}

/** The result of a create, or the status that the endpoint answers with. */
export function createdResult(created: Created, said: Said): Fields | 409 | 422 {
  if (created.status === 200) return result({ status: "booked", booking: created.booking });
  if (said === "status") return created.status;
  return result({ status: created.status === 409 ? "running" : "other-payload" }, true);
}

export function foundResult(provider: Provider, wanted: Readonly<Record<string, string>>): Fields {
  const bookings = provider.find(wanted);
  const status = bookings.length === 0 ? "none" : bookings.length === 1 ? "found" : "several";
  return result({ status, bookings, ...(bookings.length === 1 ? { booking: bookings[0] } : {}) });
}
