/**
 * Owns: a deterministic death for the command line program: loaded with `node --import`, it kills its own process (SIGKILL) right after the
 * transaction in which the first journal event of the type `MSR_TEST_KILL_AFTER` was committed: between the write and whatever follows it.
 */
import { DatabaseSync, StatementSync } from "node:sqlite";

const type = process.env["MSR_TEST_KILL_AFTER"];
if (type !== undefined) {
  let seen = false;
  const run = StatementSync.prototype.run;
  StatementSync.prototype.run = function (...values) {
    if (values.includes(type)) seen = true;
    return run.apply(this, values);
  };
  const exec = DatabaseSync.prototype.exec;
  DatabaseSync.prototype.exec = function (sql) {
    exec.call(this, sql);
    if (seen && sql === "COMMIT") process.kill(process.pid, "SIGKILL");
  };
}
