/**
 * Owns: the journal's thread: the entry that worker-journal.ts starts (bundled as dist/journal-worker.js); or one that verifies and ends.
 */
import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { openSqliteJournal } from "./sqlite-journal.ts";
import { verifyJournal } from "./verify.ts";
import {
  pack,
  type Asked,
  type FromWorker,
  type ToWorker,
  type VerifyAnswer,
  type VerifyOptions,
  type WorkerOptions,
} from "./worker-protocol.ts";

if (parentPort === null) throw new Error("this file is started as a thread of the journal");
const port = parentPort;
const given = workerData as WorkerOptions | VerifyOptions;

if ("verify" in given) {
  verifyJournal(given.verify).then(
    (verdict) => port.postMessage({ verdict } satisfies VerifyAnswer),
    (error: unknown) => port.postMessage({ error: pack(error) } satisfies VerifyAnswer),
  );
} else {
  serve(given);
}

function serve(options: WorkerOptions): void {
  const journal = openSqliteJournal(options);
  const say = (message: FromWorker): void => port.postMessage(message);

  const sayState = (): void => {
    const problem = journal.problem && pack(journal.problem);
    say({ state: { problem, notice: journal.notice } });
  };
  journal.onDidChange(() => {
    sayState();
    say({ changed: true });
  });
  sayState();

  function handle(message: ToWorker): void {
    if ("configure" in message) {
      journal.configure(message.configure);
      return;
    }
    const { ask, id, args } = message;
    const methods: Record<Asked, (...args: never[]) => Promise<unknown>> = journal;
    methods[ask](...(args as never[]))
      .then(
        (value) => say({ id, value }),
        (error: unknown) => say({ id, error: pack(error) }),
      )
      .finally(() => {
        if (ask === "close") port.close();
      });
  }

  port.on("message", (first: ToWorker) => {
    // All that has come while the disk was busy is taken together: it shares the next sync.
    for (let next: { message: unknown } | undefined = { message: first }; next !== undefined; next = receiveMessageOnPort(port)) {
      handle(next.message as ToWorker);
    }
  });
}
