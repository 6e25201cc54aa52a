/**
 * Owns: the demo server `notes`, whose tools are safe to repeat and say so. The first request with the same arguments loses its answer,
 * a further one is answered: with trust a replay mends it, without trust the caller is told.
 * `mode.json`: `save_note`, `read_note`: an answer mode (control.ts).
 */
import type { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import * as z from "zod";
import { errorResult, runWhenProgram, textResult, type DemoConnection, type DemoServer } from "./demo-server.ts";

function register(server: McpServer, { ledger, answer }: DemoConnection): void {
  const title = z.string().min(1).describe("Title of the note");

  server.registerTool(
    "save_note",
    {
      title: "Save a note",
      description:
        "Saves a note under its title, in place of an earlier one: saving the same note again changes nothing. " +
        "Demo: the answer to the first request for each note is lost after the note has been saved.",
      inputSchema: { title, text: z.string().describe("Text of the note") },
      annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: false },
    },
    (args, extra) => {
      ledger.recordEffect({ tool: "save_note", key: args.title, arguments: args, rpcId: extra.requestId });
      return answer("save_note", "lose-first", extra, textResult(`Saved "${args.title}".`, { title: args.title, saved: true }));
    },
  );

  server.registerTool(
    "read_note",
    {
      title: "Read a note",
      description: "Reads the note with a title. Demo: the answer to the first request for each title is lost.",
      inputSchema: { title },
      annotations: { readOnlyHint: true, openWorldHint: false },
    },
    (args, extra) => {
      const note = ledger.effects({ tool: "save_note", key: args.title }).at(-1)?.arguments;
      const result =
        note === undefined
          ? errorResult("There is no note with this title.")
          : textResult(String(note["text"]), { title: args.title, text: String(note["text"]) });
      return answer("read_note", "lose-first", extra, result);
    },
  );
}

export const notesDemo: DemoServer = {
  name: "notes",
  title: "Notes (demo)",
  version: "1.0.0",
  instructions: "Keeps notes by title. Demo: the first answer to each distinct call is lost.",
  httpAnswers: "json",
  register,
};

runWhenProgram(notesDemo, import.meta.url);
