/**
 * Owns: what every command of the command line program needs: its options, its mistakes, its output and its log lines.
 * Leaves to others: what the commands do.
 */
import { parseArgs } from "node:util";

/** Bad usage or configuration: one line, exit 2. */
export class UsageError extends Error {}

type OptionSpec = Record<string, { type: "string" | "boolean"; default?: string | boolean }>;

export function parse(argv: readonly string[], options: OptionSpec, positionals = false) {
  try {
    return parseArgs({ args: [...argv], options, allowPositionals: positionals, strict: true });
  } catch (error) {
    throw new UsageError(error instanceof Error ? (error.message.split("\n")[0] ?? "bad usage") : "bad usage");
  }
}

export function required(value: unknown, name: string): string {
  if (typeof value !== "string" || value === "") throw new UsageError(`${name} is needed`);
  return value;
}

/** Waits when the reader is slower than we are, so that memory stays bounded. */
export function write(text: string): Promise<void> {
  return new Promise((done) => {
    if (process.stdout.write(text)) done();
    else process.stdout.once("drain", done);
  });
}

let logFormat: "text" | "json" = "text";

export function setLogFormat(format: "text" | "json"): void {
  logFormat = format;
}

export function log(level: string, server: string | undefined, text: string): void {
  if (logFormat === "json") {
    const line = { time: new Date().toISOString(), level, ...(server === undefined ? {} : { server }), text };
    process.stderr.write(`${JSON.stringify(line)}\n`);
    return;
  }
  process.stderr.write(
    `${new Date().toISOString()} ${level}${server === undefined ? "" : ` [${server}]`} ${text.replace(/\s*\n\s*/g, " | ")}\n`,
  );
}
