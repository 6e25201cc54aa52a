/**
 * A thousand calls at once through the real program, at servers of every kind that lose answers in different ways, some always, some now and
 * then: each is answered exactly once, and no intention had two effects.
 */
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { canonicalArguments, type LedgerReader } from "../servers/ledger.ts";
import { startV1Http, startV1Sse, startV2Http, type Cut, type Losing, type SdkServer } from "../servers/fault/sdk-servers.ts";
import { startHttpFaultServer, type HttpFaultServer } from "../servers/fault/http-fault-server.ts";
import type { Step } from "../servers/fault/steps.ts";
import { Headless } from "../support/headless.ts";

let program: Headless;
const ledgers = new Map<string, LedgerReader>();
const sdkServers = new Map<string, SdkServer>();
let scripted: HttpFaultServer;

const total = 1000;
/** Which answers a scripted server gives, in turn. */
const steps: readonly Step[] = [
  { do: "answer" },
  { do: "reset" },
  { do: "answer" },
  { do: "truncated" },
  { do: "status", status: 500, body: "json" },
  { do: "answer" },
  { do: "status", status: 429, body: "json" },
  { do: "accepted" },
  { do: "fin" },
  { do: "headers-then-reset" },
];

beforeAll(async () => {
  program = new Headless();
  const ledger = (name: string) => join(program.folder.path, name);
  const start = async (name: string, server: Promise<SdkServer>, losing: Losing, cut: Cut = "reset") => {
    const started = await server;
    started.lose(losing, cut);
    sdkServers.set(name, started);
    ledgers.set(name, started.ledger);
  };
  await start("v1-json", startV1Http({ ledger: ledger("v1-json"), json: true }), "never");
  await start("v1-lost", startV1Http({ ledger: ledger("v1-lost") }), "always");
  await start("v1-recovers", startV1Http({ ledger: ledger("v1-recovers"), eventStore: true, retryMs: 10 }), "always", "stream");
  await start("v1-sse", startV1Sse({ ledger: ledger("v1-sse") }), "once");
  await start("v2", startV2Http({ ledger: ledger("v2") }), "never");
  await start("v2-lost", startV2Http({ ledger: ledger("v2-lost") }), "always", "fin");
  scripted = await startHttpFaultServer({ binding: "http-json", ledger: ledger("scripted") });
  ledgers.set("scripted", scripted.ledger);
  scripted.script(...Array.from({ length: total }, (_, index) => steps[index % steps.length]!));
  const servers = Object.fromEntries(
    [...sdkServers].map(([name, { url }]): [string, unknown] => [name, { type: name === "v1-sse" ? "sse" : "http", url }]),
  );
  // Nothing is trusted: every call counts as one that may change something.
  await program.serve({ servers: { ...servers, scripted: { type: "http", url: scripted.url } }, workspaceTrusted: true });
}, 120_000);
afterAll(async () => {
  await program.remove();
  for (const server of sdkServers.values()) await server.close();
  await scripted.close();
});

/** Every answer with this id that came for one POST. */
async function call(server: string, index: number): Promise<Record<string, unknown>[]> {
  const id = `call-${index}`;
  const response = await fetch(program.urls[server]!, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
    body: JSON.stringify({ jsonrpc: "2.0", id, method: "tools/call", params: { name: "charge", arguments: { amount: index } } }),
  });
  const body = await response.text();
  const messages = response.headers.get("content-type")?.startsWith("text/event-stream")
    ? [...body.matchAll(/^data: (.*)$/gm)].map((line) => JSON.parse(line[1]!) as Record<string, unknown>)
    : [JSON.parse(body) as Record<string, unknown>];
  return messages.filter((message) => message["id"] === id && !("method" in message));
}

it("answers each of a thousand calls exactly once, and no call has two effects", async () => {
  const names = [...ledgers.keys()];
  const answers = await Promise.all(Array.from({ length: total }, (_, index) => call(names[index % names.length]!, index)));
  expect(answers.filter((one) => one.length !== 1)).toEqual([]);

  const counts = new Map<string, number>();
  const operations = new Map((await program.operations()).map((operation) => [operation.id, operation]));
  expect(operations.size).toBe(total);
  for (const [index, [answer]] of answers.entries()) {
    const result = answer!["result"] as { content: { text: string }[]; _meta?: Record<string, { id: string; state: string }> };
    const server = names[index % names.length]!;
    const effects = ledgers
      .get(server)!
      .effects({ tool: "charge" })
      .filter((effect) => canonicalArguments(effect.arguments) === canonicalArguments({ amount: index }));
    const mark = result._meta?.["mcp-safe-replay/operation"];
    const state = mark?.state ?? "completed";
    expect(effects.length).toBeLessThanOrEqual(1);
    if (state === "completed" && !(result as { isError?: boolean }).isError) expect(effects).toHaveLength(1);
    if (state === "not-executed") expect(effects).toHaveLength(0);
    if (mark !== undefined) expect(operations.get(mark.id)?.state).toBe(state);
    counts.set(`${server}: ${state}`, (counts.get(`${server}: ${state}`) ?? 0) + 1);
  }
  console.log(
    [`${total} calls at once:`, ...[...counts].sort().map(([what, count]) => `  ${what.padEnd(30)} ${count}`)].join("\n"),
  );
});
