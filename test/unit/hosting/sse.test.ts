import { describe, expect, it } from "vitest";
import { readSse } from "../../../src/hosting/sse.ts";

async function read(...chunks: (string | Buffer)[]): Promise<unknown[]> {
  const seen: unknown[] = [];

  const body = async function* () {
    for (const chunk of chunks) yield Buffer.from(chunk);
  };
  await readSse(body(), { event: (event) => seen.push(event), retry: (ms) => seen.push(ms) });
  return seen;
}

describe("an event stream", () => {
  it("gives id, type, data and retry, in order", async () => {
    expect(
      await read("id: 1\nretry: 500\ndata:\n\n", ": keep-alive\n\n", "event: endpoint\ndata: /m\n\n", "data: a\ndata: b\n\n"),
    ).toEqual([500, { type: "message", data: "", id: "1" }, { type: "endpoint", data: "/m" }, { type: "message", data: "a\nb" }]);
  });

  it("may be cut anywhere, inside a character too", async () => {
    const bytes = Buffer.from('id: é1\r\ndata: {"text":"世界"}\r\n\r\n');
    const chunks = [...bytes].map((byte) => Buffer.from([byte]));
    expect(await read(...chunks)).toEqual([{ type: "message", data: '{"text":"世界"}', id: "é1" }]);
  });

  it("that is cut off before an event's end gives its data but never half an id", async () => {
    expect(await read("id: e-1\ndata: {}\n\n", 'data: {"a":1}\nid: e-1')).toEqual([
      { type: "message", data: "{}", id: "e-1" },
      { type: "message", data: '{"a":1}' },
    ]);
  });

  it("with a retry that is no number says nothing", async () => {
    expect(await read("retry: soon\ndata: x\n\n")).toEqual([{ type: "message", data: "x" }]);
  });
});
