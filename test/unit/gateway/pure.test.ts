/** Owns: the gateway's pure parts: the fair queue, honest tools, reading messages, texts, Accept. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FairQueue } from "../../../src/gateway/fair-queue.ts";
import { contradictory, honestTools } from "../../../src/gateway/honest-tools.ts";
import { accepted } from "../../../src/gateway/legacy-face.ts";
import { maxDepth, readMessages } from "../../../src/gateway/messages.ts";
import { faults, shown } from "../../../src/gateway/texts.ts";

describe("FairQueue", () => {
  it("never lets more in than it may, never loses a waiting one, whatever the order", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 0, max: 5 }),
        fc.array(fc.tuple(fc.constantFrom("a", "b", "c"), fc.constantFrom("stay", "cancel")), { maxLength: 20 }),
        async (running, waiting, arrivals) => {
          const queue = new FairQueue(running, waiting);
          const inside: (() => void)[] = [];
          const outcomes = { entered: 0, full: 0, cancelled: 0 };
          const controllers: AbortController[] = [];
          const all = arrivals.map(async ([client, fate]) => {
            const controller = new AbortController();
            if (fate === "cancel") controllers.push(controller);
            const entry = await queue.enter(client, controller.signal);
            if (!entry.entered) {
              outcomes[entry.why] += 1;
              return;
            }
            outcomes.entered += 1;
            expect(queue.active).toBeLessThanOrEqual(running);
            inside.push(() => entry.leave());
          });
          expect(queue.waiting).toBeLessThanOrEqual(waiting);
          for (const controller of controllers) controller.abort();
          await Promise.resolve();
          for (let rounds = 0; rounds < 100 && (inside.length > 0 || queue.active > 0); rounds += 1) {
            inside.shift()?.();
            await Promise.resolve();
            await Promise.resolve();
          }
          await Promise.all(all);
          expect(outcomes.entered + outcomes.full + outcomes.cancelled).toBe(arrivals.length);
          expect([queue.active, queue.waiting]).toEqual([0, 0]);
        },
      ),
    );
  });

  it("counts a place that is left twice once", async () => {
    const queue = new FairQueue(1, 1);
    const entry = await queue.enter("a");
    if (entry.entered) {
      entry.leave();
      entry.leave();
    }
    expect(queue.active).toBe(0);
  });
});

describe("honest tools", () => {
  const both = { workspace: true, server: true };

  it.each([
    [{ readOnlyHint: true }, false],
    [{ readOnlyHint: true, destructiveHint: false, idempotentHint: true }, false],
    [{ readOnlyHint: true, destructiveHint: true }, true],
    [{ readOnlyHint: true, idempotentHint: false }, true],
    [{ readOnlyHint: true, destructiveHint: "true" }, false],
    [{ readOnlyHint: false, destructiveHint: true }, false],
    [{ destructiveHint: true, idempotentHint: false }, false],
  ])("%j is contradictory: %s", (annotations, expected) => {
    expect(contradictory(annotations)).toBe(expected);
  });

  it("leave everything else alone, and what is no tool too", () => {
    const odd = {
      tools: [
        null,
        1,
        "x",
        [],
        { name: "a" },
        { name: "b", annotations: null },
        { name: "c", annotations: { readOnlyHint: false } },
      ],
      more: 1,
    };
    expect(honestTools(odd, { workspace: false, server: false })).toEqual(odd);
    expect(honestTools({ tools: "no" }, both)).toEqual({ tools: "no" });
  });

  it("believe no readOnlyHint but true behind both gates", () => {
    for (const trust of [
      { workspace: true, server: false },
      { workspace: false, server: true },
    ]) {
      expect(honestTools({ tools: [{ annotations: { readOnlyHint: "yes", x: 1 } }] }, trust)).toEqual({
        tools: [{ annotations: { x: 1 } }],
      });
    }
  });
});

describe("readMessages", () => {
  const encode = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));

  it("never throws, whatever the bytes", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        const read = readMessages(bytes);
        expect(typeof read.ok).toBe("boolean");
      }),
      { numRuns: 2000 },
    );
  });

  it("never throws, whatever the JSON, and gives only messages it has checked", () => {
    const id = fc.oneof(fc.string(), fc.integer(), fc.double(), fc.constant(null), fc.boolean());
    const member = fc.oneof(fc.jsonValue(), fc.string(), id);
    const message = fc.record(
      { jsonrpc: fc.constantFrom("2.0", "1.0"), id: member, method: member, params: member, result: member, error: member },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(fc.oneof(message, fc.array(message), fc.jsonValue()), (value) => {
        const read = readMessages(encode(value));
        if (!read.ok) return;
        for (const one of read.messages) {
          if (one.kind !== "notification") expect(typeof one.id === "string" || Number.isSafeInteger(one.id)).toBe(true);
          if (one.kind !== "response") expect(one.params === undefined || typeof one.params === "object").toBe(true);
        }
      }),
      { numRuns: 3000 },
    );
  });

  it("gives back a well-formed message as it was", () => {
    fc.assert(
      fc.property(
        fc.oneof(fc.string({ maxLength: 100 }), fc.maxSafeInteger()),
        fc.dictionary(
          fc.string().filter((key) => !["__proto__", "_meta"].includes(key)),
          fc.jsonValue({ maxDepth: 5 }),
        ),
        (id, params) => {
          const wire = JSON.parse(JSON.stringify({ jsonrpc: "2.0", id, method: "x/y", params })) as {
            id: string | number;
            params: Record<string, unknown>;
          };
          if (JSON.stringify(wire).includes("__proto__")) return;
          expect(readMessages(encode(wire))).toEqual({
            ok: true,
            batch: false,
            messages: [{ kind: "request", id: wire.id, method: "x/y", params: wire.params }],
          });
        },
      ),
    );
  });

  it("counts depth outside strings only, exactly", () => {
    const nested = (levels: number) =>
      `{"jsonrpc":"2.0","id":1,"method":"m","params":{"s":"[[[[\\"[[[","a":${"[".repeat(levels)}${"]".repeat(levels)}}}`;
    expect(readMessages(new TextEncoder().encode(nested(maxDepth - 2))).ok).toBe(true);
    expect(readMessages(new TextEncoder().encode(nested(maxDepth - 1)))).toMatchObject({ ok: false, fault: { reason: "depth" } });
  });
});

describe("texts", () => {
  it("show names from outside harmlessly", () => {
    expect(shown('a"\n<b>\u202e')).toBe("a???b??");
    expect(shown("x".repeat(500))).toHaveLength(80);
    expect(faults.serverUnreachable("one", "dns").message).toBe(
      "The server 'one' cannot be reached now: its host name could not be resolved. Nothing was sent; asking again later is safe.",
    );
  });
});

describe("Accept", () => {
  it.each([
    ["application/json, text/event-stream", { json: true, stream: true }],
    ["TEXT/EVENT-STREAM;q=0.9 , application/json", { json: true, stream: true }],
    ["*/*", { json: true, stream: false }],
    ["text/event-stream;q=0", undefined],
    ["text/event-stream; q=0.000, application/json", { json: true, stream: false }],
    ["text/html", undefined],
    [undefined, { json: true, stream: false }],
  ])("%s", (header, expected) => {
    expect(accepted(header)).toEqual(expected);
  });
});
