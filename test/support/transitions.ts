// Owns: printing the hosted servers' table of states from the code, with the test of each row.
// Leaves to others: the table (src/hosting/health/transitions.ts), the tests, one for each row and named after it.
//
// Usage: npm run -s transitions

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { nameOf, transitions } from "../../src/hosting/health/transitions.ts";
import { repositoryRoot } from "./paths.ts";

const file = "test/unit/hosting/health/transitions.test.ts";
const lines = readFileSync(join(repositoryRoot, file), "utf8").split("\n");

const rows = transitions.map((transition) => {
  const name = nameOf(transition);
  const index = lines.findIndex((line) => line.includes(`it("${name}`));
  const title = index === -1 ? "" : (/it\("(.*)", /.exec(lines[index] ?? "")?.[1] ?? "").slice(name.length).replace(/^: /, "");
  return [
    transition.from,
    transition.on,
    transition.to,
    index === -1 ? "NO TEST" : `${file}:${index + 1}${title === "" ? "" : ` ${title}`}`,
  ];
});
const head = ["from", "event", "to", "test"];
const widths = head.map((title, column) => Math.max(title.length, ...rows.slice().map((row) => row[column]?.length ?? 0)));
const print = (row: readonly string[]): void =>
  console.log(row.map((cell, column) => (column === 3 ? cell : cell.padEnd(widths[column] ?? 0))).join("  "));
print(head);
for (const row of rows) print(row);
console.log(`${rows.length} rows`);
if (rows.some((row) => row[3] === "NO TEST")) process.exitCode = 1;
