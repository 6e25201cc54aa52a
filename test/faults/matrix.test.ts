/**
 * Owns: running the fault matrix (support/rows.ts) and printing it: every row on every transport it happens on, most by both ways in.
 */
import { afterAll, describe, it } from "vitest";
import { paths } from "./support/lab.ts";
import { transports } from "./support/peers.ts";
import { MatrixReport } from "./support/report.ts";
import { rows } from "./support/rows.ts";
import { Run } from "./support/run.ts";

const report = new MatrixReport(rows);
afterAll(() => {
  report.write();
  console.log(report.text);
});

/** Only an end to a test that hangs. */
const limitMs = 120_000;

for (const row of rows.filter(({ checks }) => checks.length > 0)) {
  describe.concurrent(`row ${row.number}: ${row.title}`, () => {
    for (const transport of transports) {
      const checks = row.checks.filter((check) => check.on.includes(transport));
      if (checks.length === 0) continue;
      for (const path of row.bothPaths ? paths : (["agent"] as const)) {
        it(
          `${transport}, ${path}`,
          async () => {
            const run = new Run(transport, path);
            let ok = false;
            try {
              for (const check of checks) await check.cell(run);
              ok = true;
            } finally {
              report.add(row, transport, path, ok, run.times);
              await run.close();
            }
          },
          limitMs,
        );
      }
    }
  });
}
