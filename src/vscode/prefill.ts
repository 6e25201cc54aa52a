/**
 * Owns: arguments to begin with, made from a tool's input schema: everything required, and whatever has a default. Pure.
 * Leaves to others: checking them (engine.ts).
 */

type Schema = Record<string, unknown>;

const isObject = (value: unknown): value is Schema => typeof value === "object" && value !== null && !Array.isArray(value);

const isFilled = (value: unknown): value is readonly unknown[] => Array.isArray(value) && value.length > 0;

/** Deep enough for real schemas, and an end for those that refer to themselves. */
const depthLimit = 6;

export function prefill(inputSchema: Schema | undefined): Record<string, unknown> {
  const value = inputSchema === undefined ? {} : example(inputSchema, inputSchema, 0);
  return isObject(value) ? value : {};
}

function example(schema: unknown, root: Schema, depth: number): unknown {
  if (!isObject(schema) || depth > depthLimit) return null;
  for (const key of ["default", "const"]) if (key in schema) return schema[key];
  if (isFilled(schema["enum"])) return schema["enum"][0];
  if (isFilled(schema["examples"])) return schema["examples"][0];
  if (typeof schema["$ref"] === "string") return example(referred(schema["$ref"], root), root, depth + 1);
  for (const key of ["oneOf", "anyOf", "allOf"]) {
    const choices = schema[key];
    if (isFilled(choices) && schema["type"] === undefined) return example(choices[0], root, depth + 1);
  }
  const types: unknown = schema["type"];
  const type: unknown = isFilled(types) ? types.find((one) => one !== "null") : types;
  switch (type ?? ("properties" in schema ? "object" : undefined)) {
    case "object":
      return exampleObject(schema, root, depth);
    case "array":
      return Array.from({ length: atLeast(schema["minItems"], 0) }, () => example(schema["items"], root, depth + 1));
    case "string":
      return "";
    case "number":
    case "integer":
      return atLeast(schema["minimum"], 0);
    case "boolean":
      return false;
    default:
      return null;
  }
}

function exampleObject(schema: Schema, root: Schema, depth: number): Schema {
  const properties = isObject(schema["properties"]) ? schema["properties"] : {};
  const required: readonly unknown[] = Array.isArray(schema["required"]) ? schema["required"] : [];
  const wanted = Object.entries(properties).filter(
    ([name, property]) => required.includes(name) || (isObject(property) && "default" in property),
  );
  return Object.fromEntries(wanted.map(([name, property]) => [name, example(property, root, depth + 1)]));
}

function referred(pointer: string, root: Schema): unknown {
  if (!pointer.startsWith("#/")) return undefined;
  let value: unknown = root;
  for (const part of pointer.slice(2).split("/")) {
    const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
    value = isObject(value) && Object.hasOwn(value, key) ? value[key] : undefined;
  }
  return value;
}

function atLeast(value: unknown, otherwise: number): number {
  return typeof value === "number" && value > otherwise ? Math.min(value, 1_000_000) : otherwise;
}
