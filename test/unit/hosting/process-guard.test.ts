import { existsSync, readFileSync } from "node:fs";
import { describe, expect, it, onTestFinished } from "vitest";
import { Headless } from "../../support/headless.ts";
import { child, lives } from "./fixtures/child.ts";
import { connected } from "./fixtures/host.ts";

/** The processes that this one has started and that still run. */
function children(): number[] {
  const file = `/proc/self/task/${process.pid}/children`;
  return existsSync(file) ? readFileSync(file, "utf8").trim().split(" ").filter(Boolean).map(Number) : [];
}

describe.skipIf(process.platform === "win32")("when the program that hosts a server is killed", () => {
  it(
    "the server and its children end, although they mind neither the end of stdin nor SIGTERM",
    { timeout: 60_000 },
    async () => {
      const [stubborn, plain] = [child("stubborn", "grandchild"), child()];
      const headless = new Headless();
      onTestFinished(() => headless.remove());
      await headless.serve({
        servers: {
          stubborn: { ...stubborn.definition, start: "onStartup" },
          plain: { ...plain.definition, start: "onStartup" },
        },
      });
      await expect
        .poll(() => [...stubborn.received("tools/list"), ...plain.received("tools/list")].length, { timeout: 20_000 })
        .toBe(2);
      const grandchild = stubborn.entries().find((entry) => "grandchild" in entry)?.["grandchild"] as number;
      const pids = [...stubborn.pids(), ...plain.pids(), grandchild];
      expect(pids.map(lives)).toEqual([true, true, true]);
      await headless.end("SIGKILL");
      await expect.poll(() => pids.map(lives), { timeout: 20_000 }).toEqual([false, false, false]);
      expect(stubborn.entries().some((entry) => "signal" in entry)).toBe(true);
    },
  );
});

describe("the guard", () => {
  it("is there only while a server runs", async () => {
    const before = children();
    const { server } = await connected(child().definition);
    if (process.platform === "linux") expect(children().length).toBe(before.length + 2);
    await server.stop();
    await expect.poll(children).toEqual(before);
  });

  it("does not touch what was ended here", async () => {
    const program = child();
    const { server } = await connected(program.definition);
    const other = await connected(child().definition);
    await server.stop();
    expect(program.pids().map(lives)).toEqual([false]);
    expect((await other.connection.request("ping", undefined)).kind).toBe("answer");
  });
});
