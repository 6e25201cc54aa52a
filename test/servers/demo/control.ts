/**
 * Owns: what a demo server does with an answer after the effect, told by the control file `mode.json` in its ledger's directory:
 * a map from tool name to mode. The file is read at every call, so a mode can change while the server runs.
 * Leaves to others: how an answer is lost on a transport (demo-server.ts).
 */
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/**
 * `answer`: every call is answered. `lose-first`: the first request with these arguments (in this ledger) gets no answer, a further
 * one does. `lose-once`: the next call gets no answer, then the mode becomes `answer`. `lose-always`: no call is answered.
 * `hang`: the effect is made, nothing is answered until the server is ended.
 */
export const answerModes = ["answer", "lose-first", "lose-once", "lose-always", "hang"] as const;
export type AnswerMode = (typeof answerModes)[number];

export function isAnswerMode(value: unknown): value is AnswerMode {
  return answerModes.includes(value as AnswerMode);
}

const fileName = "mode.json";

function readModes(directory: string): Record<string, unknown> {
  try {
    const modes: unknown = JSON.parse(readFileSync(join(directory, fileName), "utf8"));
    return typeof modes === "object" && modes !== null ? (modes as Record<string, unknown>) : {};
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return {};
    throw new Error(`${fileName} in the ledger's directory is not readable as JSON`, { cause: error });
  }
}

/** The mode that the control file gives a tool, or undefined. */
export function readMode(directory: string, tool: string): unknown {
  const modes = readModes(directory);
  return Object.hasOwn(modes, tool) ? modes[tool] : undefined;
}

/** Changes modes; the others stay. The file is replaced in one step, so a server never reads half of it. */
export function setModes(directory: string, modes: Readonly<Record<string, string>>): void {
  const temporary = join(directory, `${fileName}.${process.pid}.tmp`);
  writeFileSync(temporary, `${JSON.stringify({ ...readModes(directory), ...modes })}\n`);
  renameSync(temporary, join(directory, fileName));
}

/**
 * Decides one call.
 * @param attempt 1 for the first request with these arguments in this ledger
 */
export function decideAnswer(
  directory: string,
  tool: string,
  byDefault: AnswerMode,
  attempt: number,
): "answer" | "lose" | "hang" {
  const told = readMode(directory, tool);
  const mode = isAnswerMode(told) ? told : byDefault;
  switch (mode) {
    case "answer":
      return "answer";
    case "hang":
      return "hang";
    case "lose-always":
      return "lose";
    case "lose-first":
      return attempt === 1 ? "lose" : "answer";
    case "lose-once":
      setModes(directory, { [tool]: "answer" });
      return "lose";
  }
}
