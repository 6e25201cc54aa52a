/**
 * Owns: reading the text of a workspace's `.vscode/mcp-safe-replay.json`: JSON with comments, and where in it each server stands. Pure.
 * Leaves to others: finding the files (workspace-files.ts), what a definition may be (src/hosting/definitions.ts).
 */
import { findNodeAtLocation, parse, parseTree, printParseErrorCode } from "jsonc-parser";
import type { ParseError } from "jsonc-parser";
import type { Problem } from "../../hosting/definitions.ts";

export interface ServersFile {
  readonly servers: unknown;
  readonly inputs: unknown;
  readonly problems: readonly Problem[];
}

const known: ReadonlySet<string> = new Set(["servers", "inputs", "$schema"]);

/** @param place what to call the file in messages */
export function readServersFile(text: string, place: string): ServersFile {
  const errors: ParseError[] = [];
  const value: unknown = parse(text, errors, { allowTrailingComma: true });
  const [error] = errors;
  const nothing = { servers: undefined, inputs: undefined };
  if (error !== undefined) {
    const line = text.slice(0, error.offset).split("\n").length;
    const what = printParseErrorCode(error.error).replace(/(?<=[a-z])(?=[A-Z])/g, " ");
    return { ...nothing, problems: [{ place: `${place}, line ${line}`, message: `is not JSON (${what.toLowerCase()})` }] };
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return { ...nothing, problems: [{ place, message: "must be an object with 'servers'" }] };
  const { servers, inputs } = value as Record<string, unknown>;
  const problems = Object.keys(value)
    .filter((key) => !known.has(key))
    .map((key) => ({ place, message: `does not know '${key}' (known: servers, inputs)` }));
  return { servers, inputs, problems };
}

/** Where each server's name stands: offset and length in the text. Whatever is readable of a text that is being typed. */
export function serverPlaces(text: string): { readonly name: string; readonly offset: number; readonly length: number }[] {
  const root = parseTree(text, [], { allowTrailingComma: true });
  const servers = root === undefined ? undefined : findNodeAtLocation(root, ["servers"]);
  if (servers?.type !== "object") return [];
  return (servers.children ?? []).flatMap(({ children }) => {
    const key = children?.[0];
    return key === undefined ? [] : [{ name: String(key.value), offset: key.offset, length: key.length }];
  });
}
