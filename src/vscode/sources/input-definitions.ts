/**
 * Owns: what an input may be (mcp.json's shape): a question to the person whose answer stands in place of `${input:ID}`. Pure.
 * Leaves to others: asking, and keeping the answers (inputs.ts).
 */
import type { Problem } from "../../hosting/definitions.ts";

export interface TextInput {
  readonly type: "promptString";
  readonly id: string;
  readonly description: string;
  readonly default?: string;
  /** A secret: shown, logged and compared nowhere. */
  readonly password: boolean;
}
export interface ChoiceInput {
  readonly type: "pickString";
  readonly id: string;
  readonly description: string;
  readonly default?: string;
  readonly options: readonly { readonly label: string; readonly value: string }[];
}
export type InputDefinition = TextInput | ChoiceInput;

export function isSecret(input: InputDefinition): boolean {
  return input.type === "promptString" && input.password;
}

/** Reads a list of inputs. A mistake in one never touches the others. */
export function readInputs(value: unknown, place: string): { inputs: ReadonlyMap<string, InputDefinition>; problems: Problem[] } {
  const inputs = new Map<string, InputDefinition>();
  const problems: Problem[] = [];
  if (value === undefined) return { inputs, problems };
  if (!Array.isArray(value)) return { inputs, problems: [{ place, message: "must be a list of inputs" }] };
  for (const [index, one] of value.entries()) {
    const here = `${place}.${index}`;
    const read = readInput(one);
    if (typeof read === "string") problems.push({ place: here, message: read });
    else if (inputs.has(read.id)) problems.push({ place: here, message: `has the id '${read.id}', which is taken already` });
    else inputs.set(read.id, read);
  }
  return { inputs, problems };
}

function readInput(value: unknown): InputDefinition | string {
  if (typeof value !== "object" || value === null) return "must be an object with 'id' and 'type'";
  const { id, type, description, default: preset, password, options } = value as Record<string, unknown>;
  if (typeof id !== "string" || !/^[^{}\s]{1,100}$/.test(id)) return "needs an 'id' without blanks and braces";
  if (type !== "promptString" && type !== "pickString") return "must have the type 'promptString' or 'pickString'";
  const common = {
    id,
    description: typeof description === "string" && description.trim() !== "" ? description.trim() : id,
    ...(typeof preset === "string" ? { default: preset } : {}),
  };
  if (type === "promptString") return { type, ...common, password: password === true };
  const choices = Array.isArray(options) ? options.map(choiceOf).filter((choice) => choice !== undefined) : [];
  return choices.length === 0 ? "needs 'options', a list of texts" : { type, ...common, options: choices };
}

function choiceOf(option: unknown): { label: string; value: string } | undefined {
  if (typeof option === "string") return { label: option, value: option };
  if (typeof option !== "object" || option === null) return undefined;
  const { label, value } = option as Record<string, unknown>;
  return typeof label === "string" && typeof value === "string" ? { label, value } : undefined;
}
