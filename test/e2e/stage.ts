/**
 * Owns: what everything that runs in a real VS Code shares: one profile with the packaged extension, the demo servers and their ledgers, its journal
 * read by the command line program, and what a person does in the extension's own views.
 * Leaves to others: VS Code itself (test/support), the frame of the tests (support.ts).
 */
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { inspect, promisify } from "node:util";
import type { Browser, Locator, Page } from "playwright-core";
import { setModes } from "../servers/demo/control.ts";
import { LedgerReader } from "../servers/ledger.ts";
import { launchChromium, openWorkbench, type OpenOptions, type Workbench } from "../support/chromium.ts";
import { demoProfile, type DemoProfile } from "../support/demo-profile.ts";
import type { ListedOperation } from "../support/headless.ts";
import { newRunFolder, removeFolder, repositoryRoot } from "../support/paths.ts";
import { packageScriptedModel, readModelLog, type ModelRequest } from "../support/scripted-model.ts";
import {
  chatSettings,
  installVsix,
  profileFolders,
  startVsCode,
  writeMachineSettings,
  writeUserSettings,
  type ProfileFolders,
  type RunningVsCode,
} from "../support/vscode-server.ts";

/** How long a state may take to come. */
const STATE_MS = 20_000;

/** Looks again and again until what is seen fits. Rejects after a while, with what was seen last. */
async function until<T>(what: string, look: () => Promise<T>, fits: (seen: T) => boolean, wanted: unknown): Promise<void> {
  const deadline = Date.now() + STATE_MS;
  for (;;) {
    const seen = await look();
    if (fits(seen)) return;
    if (Date.now() > deadline)
      throw new Error(`Waited in vain for ${what}.\nwanted: ${inspect(wanted)}\nseen:   ${inspect(seen)}`);
    await delay(50);
  }
}

/** A text that is the same, or that the expression finds something in. */
function matches(text: string, wanted: string | RegExp): boolean {
  return typeof wanted === "string" ? text === wanted : wanted.test(text);
}

type DemoName = "booking" | "notes" | "inventory" | "everything";

export interface StageOptions {
  /** Demo servers to host. */
  readonly servers: readonly DemoName[];
  /** Further servers, or wrong ones. */
  readonly otherServers?: Readonly<Record<string, unknown>>;
  /** User settings over the demo's. */
  readonly settings?: Readonly<Record<string, unknown>>;
  readonly workspaceSettings?: Readonly<Record<string, unknown>>;
  /** Settings of the remote machine. */
  readonly machineSettings?: Readonly<Record<string, unknown>>;
  /** True opens the workspace in Restricted Mode; false (default) trusts every workspace. */
  readonly restricted?: boolean;
  /** Brings the scripted model for agent mode. */
  readonly model?: boolean;
  /** Opens the first window. Default true. */
  readonly open?: boolean;
  /** How the first window is opened. */
  readonly window?: OpenOptions;
}

/** One VS Code server with its own profile, journal and ledgers, seen by one browser. */
export class Stage {
  readonly run: string;
  readonly profile: ProfileFolders;
  readonly workspaceFolder: string;
  readonly #vscode: RunningVsCode;
  readonly #browser: Browser;
  readonly #demo: DemoProfile;
  #window: Workbench | undefined;

  private constructor(run: string, vscode: RunningVsCode, browser: Browser, demo: DemoProfile) {
    this.run = run;
    this.profile = profileFolders(run);
    this.workspaceFolder = join(run, "workspace");
    this.#vscode = vscode;
    this.#browser = browser;
    this.#demo = demo;
  }

  static async start(options: StageOptions): Promise<Stage> {
    const run = newRunFolder("e2e");
    const profile = profileFolders(run);
    const workspaceFolder = join(run, "workspace");
    mkdirSync(workspaceFolder);
    const demo = await demoProfile({ workspaceFolder, runFolder: run });
    const hosted = demo.settings["mcpSafeReplay.servers"] as Record<string, unknown>;
    const servers = Object.fromEntries(options.servers.map((name) => [name, hosted[name]]));
    writeUserSettings(profile, {
      ...demo.settings,
      "mcpSafeReplay.servers": { ...servers, ...options.otherServers },
      "security.workspace.trust.startupPrompt": "never",
      // The Chat view takes room and time where no agent is at work.
      ...(options.model === true ? chatSettings : { "workbench.secondarySideBar.defaultVisibility": "hidden" }),
      ...options.settings,
    });
    if (options.machineSettings !== undefined) writeMachineSettings(profile, options.machineSettings);
    if (options.workspaceSettings !== undefined) {
      const file = join(workspaceFolder, ".vscode", "settings.json");
      mkdirSync(dirname(file));
      writeFileSync(file, JSON.stringify(options.workspaceSettings));
    }
    await installVsix({ ...profile, vsix: process.env.MSR_VSIX ?? join(repositoryRoot, "dist", "mcp-safe-replay.vsix") });
    if (options.model === true) await installVsix({ ...profile, vsix: await packageScriptedModel(run) });
    const vscode = await startVsCode({
      ...profile,
      folder: workspaceFolder,
      smokeTest: false,
      workspaceTrust: options.restricted === true,
      env: { SCRIPTED_MODEL_LOG: join(run, "model.jsonl") },
    });
    const browser = await launchChromium();
    const stage = new Stage(run, vscode, browser, demo);
    if (options.open !== false) await stage.open(options.window);
    return stage;
  }

  /** Opens a window in place of the one before. */
  async open(options: OpenOptions = {}): Promise<Workbench> {
    await this.#window?.close();
    this.#window = await openWorkbench(this.#browser, this.#vscode.url, options);
    return this.#window;
  }

  /** Closes the window, and with it its extension host. */
  async close(): Promise<void> {
    await this.#window?.close();
    this.#window = undefined;
  }

  get isOpen(): boolean {
    return this.#window !== undefined;
  }

  get window(): Workbench {
    if (this.#window === undefined) throw new Error("No window is open.");
    return this.#window;
  }

  get page(): Page {
    return this.window.page;
  }

  get views(): Views {
    return new Views(this.page);
  }

  /** Ends everything and removes the run's folder. */
  async end(options: { readonly keep?: boolean } = {}): Promise<void> {
    await this.#browser.close();
    await this.#vscode.stop();
    await this.#demo.stop?.();
    if (options.keep === true) console.log(`The files of this run: ${this.run}`);
    else removeFolder(this.run);
  }

  // ---- ground truth -------------------------------------------------------------------------------------------------------------

  ledger(server: DemoName): LedgerReader {
    return new LedgerReader(this.#ledgerFolder(server));
  }

  /** Changes what a demo server does with answers (test/servers/demo/control.ts). */
  setModes(server: DemoName, modes: Readonly<Record<string, string>>): void {
    setModes(this.#ledgerFolder(server), modes);
  }

  #ledgerFolder(server: DemoName): string {
    return join(this.workspaceFolder, "ledger", server);
  }

  /** The extension's own storage, where its journal is. */
  get journalFolder(): string {
    return join(this.profile.userDataDir, "User", "globalStorage", "mcp-safe-replay.mcp-safe-replay", "journal");
  }

  /** All operations in the journal on disk, the oldest first, read by the packaged command line program. */
  async operations(): Promise<ListedOperation[]> {
    const all = JSON.parse(await this.headless("operations", "--json")) as ListedOperation[];
    return all.toSorted((a, b) => (a.id < b.id ? -1 : 1));
  }

  async latestOperation(): Promise<ListedOperation> {
    const operation = (await this.operations()).at(-1);
    if (operation === undefined) throw new Error("The journal is empty.");
    return operation;
  }

  /** What the command line program prints about this journal. */
  async headless(command: string, ...args: readonly string[]): Promise<string> {
    const [extension] = existsSync(this.profile.extensionsDir)
      ? (JSON.parse(readFileSync(join(this.profile.extensionsDir, "extensions.json"), "utf8")) as InstalledExtension[]).filter(
          ({ identifier }) => identifier.id === "mcp-safe-replay.mcp-safe-replay",
        )
      : [];
    if (extension === undefined) throw new Error("The extension is not installed.");
    const program = join(this.profile.extensionsDir, extension.relativeLocation, "dist", "headless.js");
    const all = [program, command, "--journal-dir", this.journalFolder, ...args];
    return (await promisify(execFile)(process.execPath, all, { maxBuffer: 64 * 1024 * 1024 })).stdout;
  }

  /** What the scripted model was asked so far. */
  modelLog(): ModelRequest[] {
    return readModelLog(join(this.run, "model.jsonl"));
  }

  /** The person's settings as they are on disk. */
  userSettings(): Record<string, unknown> {
    const text = readFileSync(join(this.profile.userDataDir, "User", "settings.json"), "utf8");
    // VS Code empties the file before it writes it anew.
    return text === "" ? {} : (JSON.parse(text) as Record<string, unknown>);
  }

  // ---- what a person does -------------------------------------------------------------------------------------------------------

  /** `Call Tool…` by the command palette, up to the box with the arguments; what stands in it. */
  async chooseTool(server: string, tool: string): Promise<string> {
    await this.window.runCommand("MCP Safe Replay: Call Tool…");
    await this.window.pick(server);
    await this.window.pick(tool);
    return this.window.inputValue();
  }

  /** Calls a tool by the command palette and sends it off. Returns before the answer. */
  async callTool(server: string, tool: string, args: Readonly<Record<string, unknown>>): Promise<void> {
    await this.chooseTool(server, tool);
    await this.window.answerInput(JSON.stringify(args));
  }

  /** The same for a tool that may be lost; returns when the message about it is there, and clears it away. */
  async loseCall(server: string, tool: string, args: Readonly<Record<string, unknown>>): Promise<void> {
    await this.callTool(server, tool, args);
    await this.window.waitForNotification(`"${tool}" lost its answer`);
    await this.window.clearNotifications();
  }

  /** All messages of the notification centre, from top to bottom, whether they can be seen or not. Closes it again. */
  async allNotifications(): Promise<string[]> {
    const center = this.page.locator(".notifications-center.visible");
    const bell = this.page.locator('[id="status.notifications"]');
    await bell.click();
    const rows = center.locator(".monaco-list-row");
    const messages = new Map<number, string>();
    // Its list draws only what can be seen.
    for (;;) {
      const seen = await rows.evaluateAll((elements) =>
        elements.map((row) => ({
          index: Number(row.getAttribute("data-index")),
          last: row.getAttribute("data-last-element") === "true",
          text: row.querySelector(".notification-list-item-message")?.textContent ?? "",
        })),
      );
      for (const { index, text } of seen) messages.set(index, text);
      if (seen.length === 0 || seen.some(({ last }) => last)) break;
      await this.page.keyboard.press("ArrowDown");
    }
    await bell.click();
    await center.waitFor({ state: "hidden" });
    return [...messages].toSorted(([a], [b]) => a - b).map(([, text]) => text);
  }

  /** Trusts a server by its checkbox; returns when that is in the person's settings. (The box alone shows the click at once.) */
  async trust(server: string): Promise<void> {
    await this.views.checkbox(server).click();
    const written = async (): Promise<unknown> =>
      (this.userSettings()["mcpSafeReplay.serverTrust"] as Record<string, unknown> | undefined)?.[server];
    await until(`trust of ${server} in settings.json`, written, (value) => value === true, true);
    await this.views.untilChecked(server, true);
  }

  /** Waits for a notification with this text and presses a button of it. */
  async press(notification: string | RegExp, button: string): Promise<void> {
    const toast = this.page.locator(".notifications-toasts .notification-list-item", { hasText: notification }).first();
    await toast.getByRole("button", { name: button, exact: true }).click();
  }

  /** The text of the editor in front, all of it. */
  async editorText(): Promise<string> {
    const editor = this.page.locator(".editor-group-container.active .monaco-editor").first();
    await editor.locator(".view-lines").click();
    await this.page.keyboard.press("ControlOrMeta+A");
    await this.page.keyboard.press("ControlOrMeta+C");
    await this.page.keyboard.press("ControlOrMeta+Home");
    return this.page.evaluate<string>("navigator.clipboard.readText()");
  }

  /** Waits for the document of an operation with this heading, in front; its text. */
  async documentText(heading: string): Promise<string> {
    const line = this.page.locator(".editor-group-container.active .view-line").filter({ hasText: heading }).first();
    await line.waitFor({ timeout: STATE_MS });
    return this.editorText();
  }
}

interface InstalledExtension {
  readonly identifier: { readonly id: string };
  readonly relativeLocation: string;
}

export type ViewName = "Unresolved" | "Servers";

/** The extension's own views in the side bar. */
export class Views {
  readonly #page: Page;

  constructor(page: Page) {
    this.#page = page;
  }

  get #tab(): Locator {
    return this.#page.locator('.activitybar .action-item:has(.action-label[aria-label^="MCP Safe Replay"])');
  }

  /** Opens the container by a click in the activity bar, if it is not open. */
  async open(): Promise<void> {
    await this.#tab.waitFor({ timeout: STATE_MS });
    if ((await this.#tab.getAttribute("aria-expanded")) !== "true") await this.#tab.click({ position: { x: 8, y: 8 } });
    await this.pane("Unresolved").waitFor();
  }

  pane(view: ViewName): Locator {
    return this.#page.locator(".part.sidebar .pane", {
      has: this.#page.locator(`.pane-header[aria-label="${view} Section"]`),
    });
  }

  /** The number on the container's icon; "" without one. */
  async badge(): Promise<string> {
    const [text] = await this.#tab.locator(".badge-content:visible").allInnerTexts();
    return text ?? "";
  }

  /** Waits until the badge shows this; "" waits until it is gone. */
  async untilBadge(text: string): Promise<void> {
    await until(
      "the badge",
      () => this.badge(),
      (badge) => badge === text,
      text,
    );
  }

  /** A row by its label. */
  row(view: ViewName, label: string | RegExp): Locator {
    const name = this.#page.locator(".label-name").filter({ hasText: label });
    return this.pane(view).locator(".monaco-list-row").filter({ has: name }).first();
  }

  /** Labels with their descriptions, from top to bottom. */
  async rows(view: ViewName): Promise<string[]> {
    const labels = this.pane(view).locator(".monaco-list-row .monaco-icon-label-container");
    const rows = await labels.evaluateAll((elements) =>
      elements.map((element) => [...element.querySelectorAll(".label-name, .label-description")].map((part) => part.textContent)),
    );
    return rows.map((parts) => parts.join(" ").trim());
  }

  /** Waits until the rows, as `rows` gives them, fit. */
  async untilRows(view: ViewName, rows: readonly (string | RegExp)[]): Promise<void> {
    const fits = (shown: readonly string[]): boolean =>
      shown.length === rows.length && rows.every((row, index) => matches(shown[index] ?? "", row));
    await until(`the rows of ${view}`, () => this.rows(view), fits, rows);
  }

  /** The line above the rows, or the text in place of rows. */
  async text(view: ViewName): Promise<string> {
    const shown = this.pane(view).locator(".message:visible, .welcome-view-content:visible");
    return (await shown.allInnerTexts()).join("\n").trim();
  }

  async untilText(view: ViewName, text: string | RegExp): Promise<void> {
    await until(
      `the text of ${view}`,
      () => this.text(view),
      (shown) => (text instanceof RegExp ? text.test(shown) : shown.includes(text)),
      text,
    );
  }

  async expand(view: ViewName, label: string | RegExp): Promise<void> {
    const row = this.row(view, label);
    if ((await row.getAttribute("aria-expanded")) === "false") await row.locator(".monaco-tl-twistie").click();
    await until(
      `"${String(label)}" to open`,
      () => row.getAttribute("aria-expanded"),
      (open) => open === "true",
      "true",
    );
  }

  /** Presses one of the buttons that a row shows under the mouse. */
  async act(view: ViewName, label: string | RegExp, action: string): Promise<void> {
    const row = this.row(view, label);
    await row.hover();
    await row.getByRole("button", { name: action, exact: true }).click();
  }

  /** The trust checkbox of a server. */
  checkbox(server: string): Locator {
    return this.row("Servers", new RegExp(`^${server}$`)).getByRole("checkbox");
  }

  async untilChecked(server: string, checked: boolean): Promise<void> {
    const wanted = String(checked);
    await until(
      `the checkbox of ${server}`,
      () => this.checkbox(server).getAttribute("aria-checked"),
      (is) => is === wanted,
      wanted,
    );
  }

  /** Waits until a server of the Servers view is connected. */
  async untilConnected(...servers: readonly string[]): Promise<void> {
    for (const server of servers) {
      await this.row("Servers", new RegExp(`^${server}$`))
        .locator(".label-description", { hasText: /^connected/ })
        .waitFor({ timeout: STATE_MS });
    }
  }
}
