/**
 * Owns: when two calls are the same intention: server, tool and RFC 8785 canonical arguments.
 * A caller's own ids never count: they change on every try (field case 22).
 */
import { createHash } from "node:crypto";
import canonicalize from "canonicalize";

/** SHA-256 (hex) over the canonical form. `undefined` members are as if absent, like on the wire. */
export function digestOf(server: string, tool: string, args: Record<string, unknown>): string {
  return createHash("sha256")
    .update(canonicalize([server, tool, args]) ?? "")
    .digest("hex");
}
