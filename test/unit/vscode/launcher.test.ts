import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { onTestFinished, describe, expect, it } from "vitest";
import { launcherName, writeLauncher } from "../../../src/vscode/launcher.ts";
import { temporaryFolder } from "../../support/temp.ts";

describe("the program that other clients start", () => {
  it("runs the newest version's program with its arguments, from a place that an update does not move", async () => {
    const folder = temporaryFolder();
    onTestFinished(() => folder.remove());
    const place = join(folder.path, "storage with blanks");
    const program = (version: number) => {
      const path = join(folder.path, `headless-${version}.js`);
      writeFileSync(path, `process.stdout.write(JSON.stringify([${version}, ...process.argv.slice(2)]));`);
      return path;
    };
    const run = (path: string): unknown =>
      JSON.parse(execFileSync(process.execPath, [path, "connect", "a b"], { encoding: "utf8" }));
    const path = await writeLauncher(place, program(1));
    expect(run(path)).toEqual([1, "connect", "a b"]);
    // Updated: the old folder goes, the configuration stays what it is.
    expect(await writeLauncher(place, program(2))).toBe(path);
    rmSync(join(folder.path, "headless-1.js"));
    expect(run(path)).toEqual([2, "connect", "a b"]);
    expect(readdirSync(place)).toEqual([launcherName]);
    // Written once: a client that reads it now sees it whole.
    const before = readFileSync(path, "utf8");
    await writeLauncher(place, program(2));
    expect(readFileSync(path, "utf8")).toBe(before);
    // Removed altogether.
    rmSync(join(folder.path, "headless-2.js"));
    const { status, stderr } = spawnSync(process.execPath, [path], { encoding: "utf8" });
    expect(status).toBe(1);
    expect(stderr).toBe(
      "mcp-safe-replay: the extension was updated or removed since VS Code ran last. Start VS Code once, then try again.\n",
    );
  });
});
