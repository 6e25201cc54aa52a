// Owns: what the tests inside the extension host share: the extension and its commands, hosted servers in the person's settings, calls
// by VS Code's own MCP client and by our command, the journal read by the command line program, ledgers.
// Leaves to others: what is expected of them (*.test.ts).

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import * as vscode from "vscode";
import type { CallOutcome, CommandMap } from "../../src/vscode/commands.ts";
import { bookingDemo } from "../servers/demo/booking.ts";
import { startHttpDemo } from "../servers/demo/demo-server.ts";
import { notesDemo } from "../servers/demo/notes.ts";
import { startHttpFaultServer, type HttpFaultOptions, type HttpFaultServer } from "../servers/fault/http-fault-server.ts";
import { stdioFaults, type StdioFaults, type StdioScript } from "../servers/fault/stdio-faults.ts";
import { Ledger, LedgerReader } from "../servers/ledger.ts";

const SECTION = "mcpSafeReplay";
const LIMIT_MS = 30_000;

export function extension(): vscode.Extension<unknown> {
  const found = vscode.extensions.getExtension("mcp-safe-replay.mcp-safe-replay");
  assert.ok(found, "the extension under test is not there");
  return found;
}

/** Settles with the first value that is not undefined; errors count as "not yet". Rejects with the last one after 30 s. */
export async function eventually<T>(what: string, look: () => Promise<T | undefined> | T | undefined): Promise<T> {
  const deadline = Date.now() + LIMIT_MS;
  let last: unknown;
  for (;;) {
    try {
      const found = await look();
      if (found !== undefined) return found;
      last = undefined;
    } catch (error) {
      last = error;
    }
    if (Date.now() > deadline) throw new Error(`Waited in vain for ${what}.`, { cause: last });
    await new Promise((done) => setTimeout(done, 20));
  }
}

/** Runs one of our commands as a script does: a failure is thrown. */
export async function run<Name extends keyof CommandMap>(
  name: Name,
  argument: NonNullable<Parameters<CommandMap[Name]>[0]> & object,
): Promise<Awaited<ReturnType<CommandMap[Name]>>> {
  return vscode.commands.executeCommand<Awaited<ReturnType<CommandMap[Name]>>>(name, argument);
}

// ---- settings ---------------------------------------------------------------------------------------------------------------------

/** The person's own value of an object setting. */
export function userSetting(key: "servers" | "serverTrust"): Readonly<Record<string, unknown>> {
  const inspected = vscode.workspace.getConfiguration(SECTION).inspect<Record<string, unknown>>(key);
  // `globalValue` alone may be a remote machine's word; VS Code's typings leave the person's own out.
  return (
    (inspected as { globalLocalValue?: Record<string, unknown> } | undefined)?.globalLocalValue ?? inspected?.globalValue ?? {}
  );
}

/** Adds entries to an object setting of the person's, or takes those away that are undefined. One change after the other. */
export async function changeSetting(key: "servers" | "serverTrust", entries: Readonly<Record<string, unknown>>): Promise<void> {
  const merged = Object.entries({ ...userSetting(key), ...entries }).filter(([, value]) => value !== undefined);
  await vscode.workspace.getConfiguration(SECTION).update(key, Object.fromEntries(merged), vscode.ConfigurationTarget.Global);
}

/** Hosts servers and waits until the extension has taken them: it then lists each of them in `serverTrust`. */
export async function host(servers: Readonly<Record<string, Readonly<Record<string, unknown>>>>): Promise<void> {
  await changeSetting("servers", servers);
  for (const name of Object.keys(servers)) {
    await eventually(`"${name}" to be hosted`, () => (Object.hasOwn(userSetting("serverTrust"), name) ? true : undefined));
  }
}

let markers = 0;

/** Waits until the extension has applied every change of the settings made so far: it applies one after the other. */
export async function settingsApplied(): Promise<void> {
  markers += 1;
  const marker = `marker-${process.pid}-${markers}`;
  await host({ [marker]: { url: "http://127.0.0.1:9/mcp" } });
  await changeSetting("servers", { [marker]: undefined });
}

/** Switches a server's trust as the Settings UI does: by the setting alone. Returns when the extension has seen it. */
export async function setTrust(server: string, trusted: boolean): Promise<void> {
  await changeSetting("serverTrust", { [server]: trusted });
  await settingsApplied();
}

// ---- servers ----------------------------------------------------------------------------------------------------------------------

/** The pinned Node; the extension host itself may run on another one. */
export function nodeProgram(): string {
  return process.env.MSR_HOST_NODE ?? process.execPath;
}

/** A new empty folder for a ledger. */
export function newFolder(): string {
  return mkdtempSync(join(tmpdir(), "msr-host-"));
}

export interface Hosted {
  /** Its name in our settings. */
  readonly name: string;
  /** What it calls itself. */
  readonly title: string;
  readonly ledger: LedgerReader;
}

const demos = { booking: bookingDemo, notes: notesDemo };

/**
 * Hosts a demo server (test/servers/demo): booking as a program over stdio, notes over HTTP (a program that ends again and again is not
 * started any more). VS Code tells tools apart by the server's title: host each demo once.
 */
export async function hostDemo(demo: keyof typeof demos, name: string): Promise<Hosted> {
  const folder = newFolder();
  if (demo === "booking") {
    const program = join(extension().extensionPath, "test", "servers", "demo", "booking.ts");
    await host({ [name]: { type: "stdio", command: nodeProgram(), args: [program, "--ledger", folder] } });
  } else {
    const { url } = await startHttpDemo(notesDemo, { ledger: new Ledger(folder, { server: name }), port: 0 });
    await host({ [name]: { type: "http", url } });
  }
  return { name, title: demos[demo].title, ledger: new LedgerReader(folder) };
}

/** Hosts a scriptable server of this process over HTTP (2025-11-25). VS Code and we call it by the same name. */
export async function hostHttpFaults(
  name: string,
  options: Partial<HttpFaultOptions> = {},
): Promise<Hosted & { readonly faults: HttpFaultServer }> {
  const faults = await startHttpFaultServer({
    binding: "http-json",
    ledger: newFolder(),
    serverInfo: { name, version: "1.0.0" },
    ...options,
  });
  await host({ [name]: { type: "http", url: faults.url } });
  return { name, title: name, ledger: faults.ledger, faults };
}

/** Hosts a scriptable program over stdio. VS Code and we call it by the same name. */
export async function hostStdioFaults(
  name: string,
  script: StdioScript = {},
): Promise<Hosted & { readonly faults: StdioFaults }> {
  const faults = stdioFaults(newFolder(), { serverInfo: { name, version: "1.0.0" }, ...script });
  await host({ [name]: { type: "stdio", command: nodeProgram(), args: [...faults.args] } });
  return { name, title: name, ledger: faults.ledger, faults };
}

// ---- calls ------------------------------------------------------------------------------------------------------------------------

/** What a caller got: the text of the result, or of the error. */
export interface Answer {
  readonly kind: "result" | "error" | "cancelled";
  readonly text: string;
}

export type CallPath = (
  server: Hosted,
  tool: string,
  input: Record<string, unknown>,
  token?: vscode.CancellationToken,
) => Promise<Answer>;

/** VS Code tells of changed tools after a quiet time, which every start of a server begins anew. */
const START_AGAIN_MS = 3_000;

/** The tool as VS Code's own MCP client offers it to agents; starts the server there and waits until it is listed. */
export function agentTool(server: Hosted, tool: string): Promise<vscode.LanguageModelToolInformation> {
  // VS Code's rule: the title that the server gives itself, 13 characters of it.
  const name = `mcp_${server.title
    .toLowerCase()
    .replace(/[^a-z0-9_.-]+/g, "_")
    .slice(0, 13)}_${tool}`;
  let startedAt = 0;
  return eventually(`the tool ${name} in VS Code's MCP client`, async () => {
    const listed = vscode.lm.tools.find((one) => one.name === name);
    if (listed === undefined && Date.now() - startedAt > START_AGAIN_MS) {
      startedAt = Date.now();
      const how = { waitForLiveTools: true, promptType: "all-untrusted" };
      await vscode.commands.executeCommand("workbench.mcp.startServer", `${extension().id}/${server.name}`, how);
    }
    return listed;
  });
}

/** Calls a tool as an agent does: through VS Code's own MCP client and our gateway. */
export const callAsAgent: CallPath = async (server, tool, input, token) => {
  const { name } = await agentTool(server, tool);
  try {
    const result = await vscode.lm.invokeTool(name, { input, toolInvocationToken: undefined }, token);
    const texts = result.content.map((part) => (part instanceof vscode.LanguageModelTextPart ? part.value : ""));
    return { kind: "result", text: texts.join("") };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return { kind: token?.isCancellationRequested === true ? "cancelled" : "error", text: message };
  }
};

/** Calls a tool by our own command. */
export const callByCommand: CallPath = async (server, tool, input) =>
  answerOf(await run("mcpSafeReplay.callTool", { server: server.name, tool, arguments: input }));

export function answerOf(outcome: CallOutcome): Answer {
  assert.ok(outcome, "the call gave no outcome");
  if ("error" in outcome) return { kind: "error", text: (outcome.error as { message: string }).message };
  const content = outcome["content"] as readonly { text?: string }[];
  return { kind: "result", text: content.map((part) => part.text ?? "").join("") };
}

// ---- the journal ------------------------------------------------------------------------------------------------------------------

/** One operation as `dist/headless.js operations --json` lists it. */
export interface ListedOperation {
  readonly id: string;
  readonly server: string;
  readonly tool: string;
  readonly state: string;
  readonly reason: string | null;
  readonly attempts: readonly { readonly rpcId: string; readonly stage: string; readonly outcome: string | null }[];
  readonly events: readonly { readonly type: string; readonly actor: string; readonly data: Record<string, unknown> }[];
}

function journalFolder(): string {
  const result = process.env.MSR_HOST_RESULT;
  assert.ok(result, "MSR_HOST_RESULT names the run's folder");
  return join(dirname(result), "user", "User", "globalStorage", extension().id, "journal");
}

/** The operations of one server in the journal on disk, the oldest first, read by the command line program. */
export async function operationsOf(server: string): Promise<ListedOperation[]> {
  const program = join(extension().extensionPath, "dist", "headless.js");
  const { stdout } = await promisify(execFile)(nodeProgram(), [
    program,
    "operations",
    "--journal-dir",
    journalFolder(),
    "--json",
  ]);
  const all = JSON.parse(stdout) as ListedOperation[];
  return all.filter((operation) => operation.server === server).toSorted((a, b) => (a.id < b.id ? -1 : 1));
}

/** The latest operation of a server. */
export async function latestOperationOf(server: string): Promise<ListedOperation> {
  const operation = (await operationsOf(server)).at(-1);
  assert.ok(operation, `the journal has no operation of "${server}"`);
  return operation;
}
