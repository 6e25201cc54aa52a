/**
 * Owns: the two changes the gateway makes to a server's tool list: `readOnlyHint` goes where it may not be believed, and each tool is shown
 * as `shown` says (an argument that the gateway supplies is not there).
 * Leaves to others: trust itself (src/trust), what the hint means for a replay (src/replay/gate.ts), contracts (src/replay/contracts.ts).
 * Source: DESIGN.md section 6 (VS Code skips its confirmation on that hint) and section 4 (contradiction). Pure.
 */
import type { ListedTool } from "../hosting/connection.ts";
import type { TrustNow } from "../trust/trust.ts";
import { isObject } from "./messages.ts";

/** `readOnlyHint: true` together with `destructiveHint: true` or `idempotentHint: false`. Only literal `true`/`false` count. */
export function contradictory(annotations: Readonly<Record<string, unknown>>): boolean {
  return (
    annotations["readOnlyHint"] === true && (annotations["destructiveHint"] === true || annotations["idempotentHint"] === false)
  );
}

/** A tools/list result with dishonest hints taken out; everything else, unknown fields included, stays as it is. */
export function honestTools(
  result: Readonly<Record<string, unknown>>,
  trust: TrustNow,
  shown: (tool: ListedTool) => ListedTool = (tool) => tool,
): Record<string, unknown> {
  const tools = result["tools"];
  if (!Array.isArray(tools)) return { ...result };
  const trusted = trust.workspace && trust.server;
  return { ...result, tools: tools.map((tool: unknown) => honestTool(isListed(tool) ? shown(tool) : tool, trusted)) };
}

function isListed(tool: unknown): tool is ListedTool {
  return isObject(tool) && typeof tool["name"] === "string";
}

function honestTool(tool: unknown, trusted: boolean): unknown {
  if (!isObject(tool)) return tool;
  const annotations = tool["annotations"];
  if (!isObject(annotations) || !Object.hasOwn(annotations, "readOnlyHint")) return tool;
  // A literal false asks for the confirmation; anything else might switch it off.
  if (annotations["readOnlyHint"] === false) return tool;
  if (trusted && !contradictory(annotations)) return tool;
  const { readOnlyHint: _, ...honest } = annotations;
  return { ...tool, annotations: honest };
}
