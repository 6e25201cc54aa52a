/**
 * Owns: how much memory the command line gateway needs for large results: peak above its resting size while results of 64 MiB pass through
 * it one after the other, to an agent that reads at once and to one that takes its time.
 * Run: node test/bench/large-results.ts [--mib 64] [--times 6]      (Linux; not part of `npm test`). Exit code 1 beyond the bounds.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startHttpFaultServer } from "../servers/fault/http-fault-server.ts";
import { Headless } from "../support/headless.ts";
import { temporaryFolder } from "../support/temp.ts";

const { values } = parseArgs({ options: { mib: { type: "string", default: "64" }, times: { type: "string", default: "6" } } });
const mib = Number(values.mib);
const times = Number(values.times);
/** Peak above the resting size, in sizes of one result: its bytes, its text, its value, the journal's copy and the agent's bytes. */
const bound = 12;

const folder = temporaryFolder();
const gateway = new Headless();
const http = await startHttpFaultServer({ ledger: join(folder.path, "http"), binding: "http-json", sync: false });

function status(field: "VmRSS" | "VmHWM"): number {
  const found = new RegExp(`${field}:\\s+(\\d+) kB`).exec(readFileSync(`/proc/${gateway.pid}/status`, "utf8"));
  return Number(found?.[1]) / 1024;
}

/** Makes the high-water mark start anew (Linux, proc(5), clear_refs). */
const resetPeak = (): void => writeFileSync(`/proc/${gateway.pid}/clear_refs`, "5");

/** @param pauseMs between reads @returns bytes of the answer */
function call(id: number, meta: Record<string, unknown>, pauseMs: number): Promise<number> {
  const body = JSON.stringify({
    jsonrpc: "2.0",
    id,
    method: "tools/call",
    params: { name: "charge", arguments: { amount: id }, _meta: meta },
  });
  return new Promise((resolve, reject) => {
    const outgoing = request(
      gateway.urls["http"] ?? "",
      { method: "POST", headers: { "content-type": "application/json", accept: "application/json, text/event-stream" } },
      (response) => {
        let bytes = 0;
        response.on("data", (chunk: Buffer) => {
          bytes += chunk.length;
          if (pauseMs === 0) return;
          response.pause();
          setTimeout(() => response.resume(), pauseMs);
        });
        response.on("end", () => resolve(bytes));
        response.on("error", reject);
      },
    );
    outgoing.on("error", reject).end(body);
  });
}

let wrong = 0;
try {
  await gateway.serve({ servers: { http: { type: "http", url: http.url } } });
  await call(0, {}, 0);
  const text = "x".repeat(mib * 1024 * 1024);
  http.byDefault({ do: "answer", result: { content: [{ type: "text", text }] } });
  for (const [reader, pauseMs] of [
    ["an agent that reads at once", 0],
    ["an agent that takes its time", 2],
  ] as const) {
    const peaks: number[] = [];
    for (let time = 0; time < times; time += 1) {
      const rest = status("VmRSS");
      resetPeak();
      const bytes = await call(100 + peaks.length + (pauseMs === 0 ? 0 : 1000), {}, pauseMs);
      if (bytes < text.length) throw new Error(`the answer has ${bytes} bytes`);
      peaks.push(status("VmHWM") - rest);
    }
    const worst = Math.max(...peaks) / mib;
    if (worst > bound) wrong += 1;
    console.log(
      `${times} results of ${mib} MiB to ${reader}: peak above rest ${peaks.map((peak) => Math.round(peak)).join(", ")} MiB (${worst.toFixed(1)} results at most, bound ${bound}); resting now ${Math.round(status("VmRSS"))} MiB`,
    );
  }
} finally {
  await http.close();
  await gateway.remove();
  folder.remove();
}
process.exitCode = wrong === 0 ? 0 : 1;
