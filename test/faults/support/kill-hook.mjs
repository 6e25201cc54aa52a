/**
 * Owns: a deterministic death for the command line program: loaded with `node --import`, it kills its own process (SIGKILL) right after the
 * first journal event of the type `MSR_TEST_KILL_AFTER` was committed: between the write and whatever follows it. Appends that came later
 * and would share its transaction are not in it.
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
    if (!seen || !sql.startsWith("RELEASE")) return;
    exec.call(this, "COMMIT");
    process.kill(process.pid, "SIGKILL");
  };
}
