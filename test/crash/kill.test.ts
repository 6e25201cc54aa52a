import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, describe, expect, it } from "vitest";
import { temporaryFolder } from "../support/temp.ts";
import { mustHold } from "./invariants.ts";
import type { Ordered } from "./program.ts";
import type { Line } from "./workload.ts";

type Said = Line | { readonly count: number };

// Hundreds of programs are started: what one has compiled the next need not.
const compiled = temporaryFolder();
afterAll(() => compiled.remove());

function start(order: Ordered): { child: ChildProcess; said: Promise<Said[]>; heard: Said[] } {
  const child = spawn(process.execPath, [join(import.meta.dirname, "program.ts"), JSON.stringify(order)], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, NODE_COMPILE_CACHE: compiled.path },
  });
  const heard: Said[] = [];
  const lines = createInterface({ input: child.stdout });
  lines.on("line", (line) => heard.push(JSON.parse(line) as Said));
  const said = Promise.all([once(child, "exit"), once(lines, "close")]).then(() => heard);
  return { child, said, heard };
}

async function inFolder<T>(run: (directory: string) => Promise<T>): Promise<T> {
  const folder = temporaryFolder();
  try {
    return await run(join(folder.path, "journal"));
  } finally {
    folder.remove();
  }
}

/** Runs them all, as many at a time as there are processors. */
async function each(count: number, run: (number: number) => Promise<void>): Promise<void> {
  let next = 1;
  const worker = async (): Promise<void> => {
    while (next <= count) await run(next++);
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
}

/** Kills the program at every step there is, each time in a fresh journal. @returns how many */
async function killedAtEvery(mode: "statements" | "writes", calls: number): Promise<number> {
  const last = await inFolder(async (directory) => {
    const said = await start({ mode, directory, calls }).said;
    await mustHold(directory, said as Line[]);
    return said.at(-1);
  });
  const total = last !== undefined && "count" in last ? last.count : 0;
  expect(total).toBeGreaterThan(100);
  await each(total, (dieAt) =>
    inFolder(async (directory) => {
      const { child, said } = start({ mode, directory, calls, dieAt });
      const lines = await said;
      expect([dieAt, child.signalCode]).toEqual([dieAt, "SIGKILL"]);
      await mustHold(directory, lines as Line[]);
    }),
  );
  return total;
}

describe("a program with the journal that is killed", () => {
  it("at every write, sync, truncation or removal loses nothing that was acknowledged", { timeout: 600_000 }, async () => {
    const points = await killedAtEvery("writes", 6);
    console.log(`killed at every write: ${points} kill points, nothing lost`);
  });

  it("at every statement of node:sqlite loses nothing that was acknowledged", { timeout: 600_000 }, async () => {
    const points = await killedAtEvery("statements", 6);
    console.log(`killed at every statement: ${points} kill points, nothing lost`);
  });

  it("at any moment, journal thread and all, loses nothing that was acknowledged", { timeout: 600_000 }, async () => {
    const kills = 60;
    let acknowledged = 0;
    await each(kills, (number) =>
      inFolder(async (directory) => {
        const { child, said, heard } = start({ mode: "thread", directory, calls: 12 });
        // At another moment each time: after so many lines, wherever the thread is by then.
        createInterface({ input: child.stdout! }).on("line", () => {
          if (heard.length >= number * 5) child.kill("SIGKILL");
        });
        const lines = (await said) as Line[];
        expect(child.signalCode).toBe("SIGKILL");
        acknowledged += lines.filter((line) => "acked" in line).length;
        await mustHold(directory, lines);
      }),
    );
    expect(acknowledged).toBeGreaterThan(kills);
    console.log(`killed at any moment: ${kills} kills, ${acknowledged} acknowledged appends, nothing lost`);
  });
});
