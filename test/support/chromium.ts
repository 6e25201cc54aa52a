// Owns: the browser that shows VS Code to the tests, and what a person does there: command palette, quick inputs, dialogs,
// workspace trust, notifications, agent mode in the Chat view. The one place that knows VS Code's class names.
// Leaves to others: the server behind it (vscode-server.ts), the extension's own views (the tests that look at them).

import { randomBytes } from "node:crypto";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { chromium, type Browser, type BrowserContext, type Locator, type Page } from "playwright-core";
import { CHROMIUM_MEND, findChromium } from "./find-chromium.mjs";
import { screenshotsFolder } from "./paths.ts";

const READY_MS = 60_000;
const ACTION_MS = 20_000;
const PALETTE_TRY_MS = 3_000;
const CHAT_MS = 60_000;

/** Starts a Chromium that reaches nothing but this computer. Throws with what to do when none is installed. */
export async function launchChromium(options: { readonly headless?: boolean } = {}): Promise<Browser> {
  const executablePath = findChromium();
  if (executablePath === undefined) throw new Error(`The tests need a Chromium and there is none. ${CHROMIUM_MEND}`);
  return chromium.launch({
    executablePath,
    headless: options.headless ?? true,
    args: [
      ...["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"],
      ...["--disable-component-update", "--disable-sync", "--no-proxy-server", "--lang=en-US"],
      "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    ],
  });
}

export interface OpenOptions {
  /** Folder to open; the one in the URL without it. */
  readonly folder?: string;
  /** Workspace file (`*.code-workspace`) to open in place of a folder. */
  readonly workspaceFile?: string;
  /** Colour theme, by the browser's preference (`quietSettings` makes VS Code follow it). */
  readonly theme?: "light" | "dark" | "high-contrast";
  readonly viewport?: { readonly width: number; readonly height: number };
  /** Pixels of a picture for each pixel of the viewport; 1 without it. */
  readonly scale?: number;
  /** Answer to the prompt at start-up whether to trust the folder, where `security.workspace.trust.startupPrompt` shows it. */
  readonly trustPrompt?: "trust" | "refuse";
  /** What a window is told when it is opened by another, e.g. `[["profile", "Work"]]`. */
  readonly payload?: readonly (readonly [string, string])[];
  /** Runs before the page is opened, e.g. to expose functions to it. */
  readonly prepare?: (page: Page) => Promise<void>;
}

/**
 * Opens VS Code in a new browser context and returns when its workbench is there, the remote extension host is
 * connected and the extensions are known (not: activated). Rejects after 60 s.
 */
export async function openWorkbench(browser: Browser, url: string, options: OpenOptions = {}): Promise<Workbench> {
  const context = await browser.newContext({
    viewport: options.viewport ?? { width: 1280, height: 800 },
    deviceScaleFactor: options.scale ?? 1,
    colorScheme: options.theme === "light" ? "light" : "dark",
    forcedColors: options.theme === "high-contrast" ? "active" : "none",
    reducedMotion: "reduce",
    locale: "en-US",
    permissions: ["clipboard-read", "clipboard-write"],
  });
  const page = await context.newPage();
  page.setDefaultTimeout(ACTION_MS);
  const workbench = new Workbench(context, page);
  // The half of the key of VS Code's secret storage that code-server's front door would give. Without it secrets are lost
  // by a reload of the window.
  const key = randomBytes(32);
  await page.route("**/mint-key", (route) => route.fulfill({ body: key, contentType: "application/octet-stream" }));
  await options.prepare?.(page);
  const target = new URL(url);
  if (options.folder !== undefined) target.searchParams.set("folder", options.folder);
  if (options.workspaceFile !== undefined) {
    target.searchParams.delete("folder");
    target.searchParams.set("workspace", options.workspaceFile);
  }
  if (options.payload !== undefined) target.searchParams.set("payload", JSON.stringify(options.payload));
  await page.goto(target.href);
  await workbench.ready();
  if (options.trustPrompt !== undefined) await workbench.answerTrustPrompt(options.trustPrompt);
  return workbench;
}

function exactly(text: string | RegExp): RegExp {
  return typeof text === "string" ? new RegExp(`^\\s*${text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}\\s*$`) : text;
}

/** One VS Code window in the browser. */
export class Workbench {
  readonly context: BrowserContext;
  readonly page: Page;
  readonly chat: Chat;
  /** What the page wrote to its console, and its uncaught errors. */
  readonly consoleLines: string[] = [];

  constructor(context: BrowserContext, page: Page) {
    this.context = context;
    this.page = page;
    this.chat = new Chat(this);
    page.on("console", (message) => this.consoleLines.push(`${message.type()}: ${message.text()}`));
    page.on("pageerror", (error) => this.consoleLines.push(`uncaught: ${error.message}`));
  }

  /** Waits until workbench and remote extension host are ready. */
  async ready(): Promise<void> {
    await this.page.waitForSelector(".monaco-workbench", { timeout: READY_MS });
    await this.waitForMarks([
      "code/didCreateSocketOK/ExtensionHost",
      "code/didLoadExtensions",
      "code/didCreateWorkbenchContributions/3",
    ]);
  }

  /** Waits until VS Code has set these performance marks. */
  async waitForMarks(marks: readonly string[]): Promise<void> {
    await this.page.waitForFunction((names) => names.every((name) => performance.getEntriesByName(name).length > 0), marks, {
      timeout: READY_MS,
    });
  }

  /** Reloads the window, which restarts the extension host, and waits until it is ready again. */
  async reload(): Promise<void> {
    await this.page.reload();
    await this.ready();
  }

  /** Closes the window and its browser context. */
  async close(): Promise<void> {
    await this.context.close();
  }

  private get quickInput(): Locator {
    return this.page.locator(".quick-input-widget:visible");
  }

  private quickRow(label: string | RegExp): Locator {
    const name = this.page.locator(".label-name", { hasText: exactly(label) });
    return this.quickInput.locator(".quick-input-list .monaco-list-row").filter({ has: name });
  }

  /**
   * Runs a command by the palette, e.g. `Developer: Reload Window`: the title as the palette shows it, category included.
   * Waits for a command that is not there yet (its extension still being activated, its `when` not yet true).
   */
  async runCommand(title: string, timeoutMs: number = READY_MS): Promise<void> {
    const deadline = Date.now() + timeoutMs;
    for (;;) {
      await this.closeQuickInput();
      await this.page.keyboard.press("F1");
      const input = this.quickInput.locator("input");
      await input.fill(`>${title}`);
      const row = this.quickRow(title).first();
      if (await appears(row, PALETTE_TRY_MS)) {
        await row.click();
        return;
      }
      if (Date.now() > deadline)
        throw new Error(`The command palette does not offer "${title}"; it shows: ${(await this.quickPickLabels()).join(" | ")}`);
    }
  }

  /** True when the palette offers the command within `timeoutMs` milliseconds. Runs nothing. */
  async hasCommand(title: string, timeoutMs: number = PALETTE_TRY_MS): Promise<boolean> {
    await this.closeQuickInput();
    await this.page.keyboard.press("F1");
    await this.quickInput.locator("input").fill(`>${title}`);
    const found = await appears(this.quickRow(title).first(), timeoutMs);
    await this.closeQuickInput();
    return found;
  }

  /** Labels of the rows that the open quick pick shows now. */
  async quickPickLabels(): Promise<string[]> {
    // The first line of each row: the second is the detail, or what is left of an earlier row's.
    return this.quickInput.locator(".quick-input-list-rows > :first-child .label-name").allTextContents();
  }

  /** Title, prompt or message of the open quick input. */
  async quickInputText(): Promise<string> {
    await this.quickInput.waitFor();
    const texts = await this.quickInput.locator(".quick-input-title, .quick-input-message").allInnerTexts();
    return texts.filter(Boolean).join("\n");
  }

  /** Waits for a quick pick with this row and takes it. */
  async pick(label: string | RegExp): Promise<void> {
    const row = this.quickRow(label).first();
    if (!(await appears(row, ACTION_MS))) {
      throw new Error(`No quick pick row "${String(label)}"; shown: ${(await this.quickPickLabels()).join(" | ") || "nothing"}`);
    }
    await row.click();
  }

  /** Waits for an input box; its current value. */
  async inputValue(): Promise<string> {
    return this.quickInput.locator(".quick-input-box input").inputValue();
  }

  /** Waits for an input box, replaces its value (kept when undefined) and accepts it. */
  async answerInput(value?: string): Promise<void> {
    const input = this.quickInput.locator(".quick-input-box input");
    await input.waitFor();
    if (value !== undefined) await input.fill(value);
    await input.press("Enter");
  }

  /** Closes an open quick input, if there is one. */
  async closeQuickInput(): Promise<void> {
    while ((await this.quickInput.count()) > 0) {
      await this.page.keyboard.press("Escape");
      if (
        await this.quickInput
          .first()
          .waitFor({ state: "hidden", timeout: 1_000 })
          .then(
            () => true,
            () => false,
          )
      )
        return;
    }
  }

  /** Waits for a modal dialog; its text. */
  async dialogText(): Promise<string> {
    const box = this.page.locator(".monaco-dialog-box").last();
    await box.waitFor();
    return box.locator(".dialog-message-container").innerText();
  }

  /** Waits for a modal dialog, presses the button and waits until the dialog is gone. */
  async answerDialog(button: string | RegExp): Promise<void> {
    const box = this.page.locator(".monaco-dialog-box").last();
    await box.waitFor();
    const handle = await box.elementHandle();
    await box.locator(".dialog-buttons .monaco-button", { hasText: exactly(button) }).click();
    await handle?.waitForElementState("hidden").catch(() => undefined);
  }

  /** Answers the dialog at start-up that asks for trust in the folder. */
  async answerTrustPrompt(answer: "trust" | "refuse"): Promise<void> {
    await this.answerDialog(answer === "trust" ? /Yes, I trust/ : /No, I don't trust/);
  }

  /** True in Restricted Mode, by the status bar. */
  async isRestricted(): Promise<boolean> {
    return (await this.page.locator('[id="status.workspaceTrust"]').count()) > 0;
  }

  /** Trusts the open folder in the trust editor and waits until Restricted Mode is over. */
  async trustWorkspace(): Promise<void> {
    if (!(await this.isRestricted())) return;
    await this.runCommand("Workspaces: Manage Workspace Trust");
    await this.page.locator(".workspace-trust-editor .monaco-button", { hasText: exactly("Trust") }).click();
    await this.page.locator('[id="status.workspaceTrust"]').waitFor({ state: "detached" });
    await this.runCommand("View: Close Editor");
  }

  private get toasts(): Locator {
    return this.page.locator(".notifications-toasts .notification-list-item");
  }

  /** Messages of the notification toasts that are shown now. */
  async notifications(): Promise<string[]> {
    return this.toasts.locator(".notification-list-item-message").allInnerTexts();
  }

  /** Waits for a notification toast with this text and returns its message. */
  async waitForNotification(text: string | RegExp): Promise<string> {
    const toast = this.toasts.filter({ hasText: text }).first();
    await toast.waitFor();
    return toast.locator(".notification-list-item-message").innerText();
  }

  /** Waits for a notification toast with this text and presses one of its buttons. */
  async answerNotification(text: string | RegExp, button: string | RegExp): Promise<void> {
    await this.toasts
      .filter({ hasText: text })
      .first()
      .locator(".monaco-button", { hasText: exactly(button) })
      .click();
  }

  /** Takes away all notifications. */
  async clearNotifications(): Promise<void> {
    if ((await this.toasts.count()) > 0) await this.runCommand("Notifications: Clear All Notifications");
  }

  /** Waits for a webview that holds this text and returns the element inside it. */
  async webviewText(text: string | RegExp): Promise<Locator> {
    const found = this.page.frameLocator("iframe.webview.ready").frameLocator("iframe#active-frame").getByText(text).first();
    await found.waitFor();
    return found;
  }

  /** Writes `test/e2e/screenshots/<name>.png` and returns its path. */
  async screenshot(name: string): Promise<string> {
    mkdirSync(screenshotsFolder, { recursive: true });
    const path = join(screenshotsFolder, `${name}.png`);
    await this.page.screenshot({ path, animations: "disabled" });
    return path;
  }
}

/** True when the element is visible within the time. */
async function appears(locator: Locator, timeout: number): Promise<boolean> {
  return locator.waitFor({ timeout }).then(
    () => true,
    () => false,
  );
}

/**
 * Agent mode in the Chat view. Needs a model (test/support/scripted-model) and `chatSettings` in the profile.
 */
export class Chat {
  private readonly workbench: Workbench;

  constructor(workbench: Workbench) {
    this.workbench = workbench;
  }

  private get view(): Locator {
    return this.workbench.page.locator(".interactive-session:visible").first();
  }

  private get lastRow(): Locator {
    return this.view.locator('.monaco-list-row[data-last-element="true"]');
  }

  /** Opens the Chat view if it is not open, and waits for its input. */
  async open(): Promise<void> {
    await this.workbench.waitForMarks(["code/didCreateWorkbenchContributions/4"]);
    const editor = this.view.locator(".chat-editor-container");
    if (!(await editor.isVisible())) await this.workbench.page.keyboard.press("Control+Alt+I");
    await editor.waitFor();
  }

  /** Opens the Chat view with a new, empty conversation. */
  async startNew(): Promise<void> {
    await this.open();
    await this.workbench.page.locator('.part.auxiliarybar .title .action-label[aria-label^="New Chat"]').first().click();
    await this.lastRow.waitFor({ state: "detached" });
  }

  /** Types a prompt, sends it and waits until the agent has begun its turn. */
  async send(prompt: string): Promise<void> {
    await this.open();
    // The list keeps only visible rows in the page; a row's index says how many there are.
    const before = Number((await this.lastRow.count()) > 0 ? await this.lastRow.getAttribute("data-index") : -1);
    await this.view.locator(".chat-editor-container").click();
    await this.workbench.page.keyboard.press("ControlOrMeta+A");
    await this.workbench.page.keyboard.insertText(prompt);
    await this.workbench.page.keyboard.press("Enter");
    const rows = ".interactive-session .monaco-list-row.response";
    const began = `[...document.querySelectorAll('${rows}')].some((row) => Number(row.getAttribute('data-index')) > ${before})`;
    await this.workbench.page.waitForFunction(began, undefined, { timeout: CHAT_MS });
  }

  private get confirmation(): Locator {
    return this.view.locator(".chat-confirmation-widget2:visible").last();
  }

  /** Waits for the card that asks for leave to run a tool; its text. */
  async confirmationText(): Promise<string> {
    await this.confirmation.waitFor({ timeout: CHAT_MS });
    // VS Code writes JSON with no-break spaces.
    return (await this.confirmation.innerText()).replaceAll("\u00a0", " ");
  }

  /** Waits for the card that asks for leave to run a tool and presses its Allow button. */
  async allowTool(button: string | RegExp = /^Allow/): Promise<void> {
    await this.view.locator(".monaco-button:visible", { hasText: button }).first().click({ timeout: CHAT_MS });
  }

  /** Waits until the agent has finished its turn. Rejects after `timeoutMs` milliseconds. */
  async waitUntilIdle(timeoutMs: number = CHAT_MS): Promise<void> {
    await this.lastRow
      .locator(".interactive-response:not(.chat-response-loading) .chat-response-completed-at")
      .waitFor({ timeout: timeoutMs, state: "attached" });
  }

  /** Text of the last answer as it is shown now, with the titles of its tool calls. */
  async lastResponse(): Promise<string> {
    return (await this.lastRow.locator(".interactive-response > .value").innerText()).trim();
  }

  /** Sends a prompt, waits for the end of the turn and returns the answer. For turns that ask for no leave. */
  async ask(prompt: string): Promise<string> {
    await this.send(prompt);
    await this.waitUntilIdle();
    return this.lastResponse();
  }
}
