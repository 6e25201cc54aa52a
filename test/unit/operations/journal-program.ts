/**
 * Owns: a program of its own with the journal open, for tests: `journal-support.ts` starts it and asks it.
 */
import type { Journal } from "../../../src/operations/journal.ts";
import { openSqliteJournal } from "../../../src/operations/sqlite-journal.ts";
import { openJournal } from "../../../src/operations/worker-journal.ts";
import type { ProgramOptions } from "./journal-support.ts";

const { inProcess, asNobody, ...options } = JSON.parse(process.argv[2] ?? "{}") as ProgramOptions;
if (asNobody === true && process.getuid?.() === 0) {
  process.setegid?.(65_534);
  process.seteuid?.(65_534);
}
const journal: Journal = inProcess === true ? openSqliteJournal(options) : await openJournal(options);
const say = (message: unknown): void => {
  process.send?.(message);
};

journal.onDidChange(() => say({ changed: true }));
process.on("message", ({ id, method, args }: { id: number; method: string; args: unknown[] }) => {
  const { problem } = journal;
  const asked =
    method === "problem"
      ? Promise.resolve(problem && { code: problem.code, message: problem.message })
      : (journal as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>)[method]?.(...args);
  asked?.then(
    (value) => say({ id, value }),
    (error: unknown) => say({ id, error: wordsOf(error) }),
  );
});
say({ id: 0 });

/** An error's class does not cross between processes, its fields do. */
function wordsOf(error: unknown): { name: string; message: string } {
  if (!(error instanceof Error)) return { name: "Error", message: String(error) };
  return Object.assign({ name: error.name, message: error.message }, error as object);
}
