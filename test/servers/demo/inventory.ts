/**
 * Owns: the demo server `inventory`: a plain read, a tool whose annotations contradict each other, a tool without annotations, and a slow
 * one that reports progress. Nothing is lost by default.
 * `mode.json`: any of its tools: an answer mode (control.ts).
 */
import { setTimeout as delay } from "node:timers/promises";
import type { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import * as z from "zod";
import { runWhenProgram, textResult, type DemoConnection, type DemoServer } from "./demo-server.ts";

const startingStock: Readonly<Record<string, number>> = { chairs: 120, desks: 40, lamps: 75 };

function register(server: McpServer, { ledger, answer }: DemoConnection): void {
  const item = z.string().min(1).describe("Item, for example chairs");

  function stock(name: string): number {
    let count = startingStock[name] ?? 0;
    for (const effect of ledger.effects()) {
      if (effect.arguments["item"] !== name) continue;
      if (effect.tool === "restock") count += Number(effect.arguments["count"]);
      if (effect.tool === "write_off") count = Math.max(0, count - Number(effect.arguments["count"]));
    }
    return count;
  }

  server.registerTool(
    "check_inventory",
    {
      title: "Check the inventory",
      description: "Says how many of an item are in stock.",
      inputSchema: { item },
      outputSchema: { item: z.string(), count: z.number().int() },
      annotations: { readOnlyHint: true, openWorldHint: false },
    },
    (args, extra) => {
      const count = stock(args.item);
      return answer(
        "check_inventory",
        "answer",
        extra,
        textResult(`${count} ${args.item} in stock.`, { item: args.item, count }),
      );
    },
  );

  server.registerTool(
    "write_off",
    {
      title: "Write items off",
      description:
        "Takes damaged items out of the books. Demo: its annotations contradict each other (read-only and destructive).",
      inputSchema: { item, count: z.number().int().positive().describe("How many") },
      annotations: { readOnlyHint: true, destructiveHint: true },
    },
    (args, extra) => {
      ledger.recordEffect({ tool: "write_off", arguments: args, rpcId: extra.requestId });
      return answer(
        "write_off",
        "answer",
        extra,
        textResult(`Wrote off ${args.count} ${args.item}.`, { item: args.item, count: stock(args.item) }),
      );
    },
  );

  server.registerTool(
    "restock",
    {
      title: "Order items",
      description: "Orders items for the stock. Demo: it has no annotations.",
      inputSchema: { item, count: z.number().int().positive().describe("How many") },
    },
    (args, extra) => {
      ledger.recordEffect({ tool: "restock", arguments: args, rpcId: extra.requestId });
      return answer(
        "restock",
        "answer",
        extra,
        textResult(`Ordered ${args.count} ${args.item}.`, { item: args.item, count: stock(args.item) }),
      );
    },
  );

  server.registerTool(
    "slow_count",
    {
      title: "Count slowly",
      description: "Counts the stock step by step and reports progress. Changes nothing.",
      inputSchema: {
        seconds: z.number().min(0).max(3600).default(10).describe("How long it takes"),
        steps: z.number().int().min(1).max(1000).default(10).describe("How many times it reports progress"),
      },
      annotations: { readOnlyHint: true, openWorldHint: false },
    },
    async ({ seconds, steps }, extra) => {
      const progressToken = extra._meta?.progressToken;
      for (let step = 1; step <= steps; step += 1) {
        await delay((seconds * 1000) / steps, undefined, { signal: extra.signal });
        if (progressToken === undefined) continue;
        await extra.sendNotification({
          method: "notifications/progress",
          params: { progressToken, progress: step, total: steps, message: `Counted shelf ${step} of ${steps}` },
        });
      }
      return answer("slow_count", "answer", extra, textResult(`Counted ${steps} shelves.`, { steps }));
    },
  );
}

export const inventoryDemo: DemoServer = {
  name: "inventory",
  title: "Inventory (demo)",
  version: "1.0.0",
  instructions: "Knows the stock of a small warehouse.",
  httpAnswers: "sse",
  register,
};

runWhenProgram(inventoryDemo, import.meta.url);
