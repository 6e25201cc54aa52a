/**
 * Owns: the SDK v2 conformance server (server.mjs) as a program over stdio, which speaks both eras: the first message after a
 * `server/discover` decides, as its authors serve it (`serveStdio`).
 * Leaves to others: its features (server.mjs).
 *
 * `node stdio.ts [--modern]`; `--modern`: 2026-07-28 only
 */
import type { McpServer } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { createMcpServer } from "./server.mjs";

let current: McpServer | undefined;
const notify = {
  toolsChanged: () => current?.sendToolListChanged(),
  promptsChanged: () => current?.sendPromptListChanged(),
  resourcesChanged: () => current?.sendResourceListChanged(),
  resourceUpdated: (uri: string) => void current?.server.sendResourceUpdated({ uri }),
};

serveStdio(
  () => {
    current = createMcpServer(notify, new Map());
    return current;
  },
  { legacy: process.argv.includes("--modern") ? "reject" : "serve" },
);
process.stdin.once("end", () => process.exit(0));
