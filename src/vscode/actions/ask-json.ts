/**
 * Owns: asking a person for a tool's arguments, as JSON in one line.
 * Leaves to others: what stands there at first (prefill.ts, read-prefill.ts), checking it against the schema (engine.ts).
 */
import { window } from "vscode";
import type { ListedTool } from "../../hosting/connection.ts";
import type { Running } from "../core-host.ts";
import { isRecord } from "../settings.ts";

/** Arguments for a tool, as JSON in one line; checked against its schema. Undefined when the person gave up. */
export async function askJson(
  { engine }: Running,
  tool: ListedTool,
  given: Record<string, unknown>,
  words: { readonly title: string; readonly prompt: string },
): Promise<Record<string, unknown> | undefined> {
  const value = JSON.stringify(given);
  const blank = value.indexOf('""');
  const entered = await window.showInputBox({
    ...words,
    value,
    valueSelection: blank >= 0 ? [blank + 1, blank + 1] : [value.length - 1, value.length - 1],
    ignoreFocusOut: true,
    validateInput: (text) => {
      const read = parse(text);
      return typeof read === "string" ? read : engine.argumentsMistake(tool.inputSchema, read);
    },
  });
  if (entered === undefined) return undefined;
  const args = parse(entered);
  return typeof args === "string" ? undefined : args;
}

/** The object, or what is wrong with the text. */
function parse(text: string): Record<string, unknown> | string {
  try {
    const value: unknown = JSON.parse(text);
    return isRecord(value) ? value : "Arguments must be a JSON object: {…}";
  } catch (error) {
    return `Not JSON: ${error instanceof Error ? error.message : "unreadable"}`;
  }
}
