/**
 * Owns: where authorisations are kept (VS Code's secret storage), the way to the person's browser and back, and telling the person when a
 * server needs them.
 * Leaves to others: the authorisation itself (src/hosting/auth), the commands (actions/authorise.ts).
 */
import { EventEmitter, UIKind, Uri, commands, env, window } from "vscode";
import type { Disposable, ExtensionContext, LogOutputChannel, UriHandler } from "vscode";
import type { Interaction, RedirectAnswer, RedirectReceiver } from "../hosting/auth/flow.ts";
import type { GrantStore } from "../hosting/auth/grant-store.ts";
import { loopbackReceiver, readAnswer, sameState } from "../hosting/auth/loopback.ts";
import type { CoreHost } from "./core-host.ts";
import { DisposableList } from "./disposables.ts";

const prefix = "grant:";
const redirectPath = "/authorised";

export class Authorisations implements Disposable {
  readonly #context: ExtensionContext;
  readonly #log: LogOutputChannel;
  readonly #disposables = new DisposableList();
  readonly #redirected = this.#disposables.add(new EventEmitter<Uri>());
  /** Servers whose person has been told, and of what. */
  readonly #told = new Map<string, string>();
  readonly grants: GrantStore;

  constructor(context: ExtensionContext, log: LogOutputChannel) {
    this.#context = context;
    this.#log = log;
    const { secrets } = context;
    this.grants = {
      read: async (key) => secrets.get(prefix + key),
      write: async (key, text) => secrets.store(prefix + key, text),
      remove: async (key) => secrets.delete(prefix + key),
      onDidChange: (listener) => {
        const subscription = secrets.onDidChange(({ key }) => {
          if (key.startsWith(prefix)) listener(key.slice(prefix.length));
        });
        return () => {
          subscription.dispose();
        };
      },
    };
    const handler: UriHandler = { handleUri: (uri) => this.#redirected.fire(uri) };
    this.#disposables.add(window.registerUriHandler(handler));
  }

  /** The way to this window's person. */
  readonly interaction: Interaction = {
    receive: () => this.#receiver(),
    // As a text: an address that was taken apart and put together again is not always the same.
    open: async (url) => env.openExternal(url.href as unknown as Uri),
  };

  /** Tells the person of servers that need them, once for each need. */
  follow(host: CoreHost): void {
    this.#disposables.add(
      host.onDidChangeServers(() => {
        for (const [name, server] of host.running?.core.servers ?? []) {
          const need = server.authorisation?.need;
          if (need === undefined) this.#told.delete(name);
          else if (this.#told.get(name) !== need) {
            this.#told.set(name, need);
            this.#tell(name, need);
          }
        }
      }),
    );
  }

  /** Forgets every authorisation. @returns how many there were */
  async forget(): Promise<number> {
    const { secrets } = this.#context;
    const keys = (await secrets.keys()).filter((key) => key.startsWith(prefix));
    for (const key of keys) await secrets.delete(key);
    return keys.length;
  }

  #tell(server: string, need: "sign-in" | "more-scopes"): void {
    const text =
      need === "sign-in"
        ? `The MCP server "${server}" needs your authorisation before it can be used.`
        : `The MCP server "${server}" wants more rights for a tool call than you gave it. The call was not executed.`;
    this.#log.info(text);
    void window.showWarningMessage(text, "Authorise…").then((choice) => {
      if (choice !== undefined) void commands.executeCommand("mcpSafeReplay.authorise", server);
    });
  }

  /**
   * Beside the browser: a port of this machine. On another machine than the browser: that port as VS Code makes it reachable. In a browser's
   * own window, which reaches no port here: VS Code's address for this extension.
   */
  async #receiver(): Promise<RedirectReceiver> {
    if (env.uiKind === UIKind.Web) return this.#addressReceiver();
    const receiver = await loopbackReceiver();
    if (env.remoteName === undefined) return receiver;
    const external = await env.asExternalUri(Uri.parse(receiver.redirectUri));
    return { ...receiver, redirectUri: external.toString(true) };
  }

  async #addressReceiver(): Promise<RedirectReceiver> {
    const address = Uri.parse(`${env.uriScheme}://${this.#context.extension.id}${redirectPath}`);
    const external = await env.asExternalUri(address);
    const answered = Promise.withResolvers<RedirectAnswer>();
    let expected: string | undefined;
    const subscription = this.#redirected.event((uri) => {
      const parameters = new URLSearchParams(uri.query);
      if (uri.path !== redirectPath || expected === undefined || !sameState(parameters.get("state"), expected)) return;
      // One use.
      expected = undefined;
      answered.resolve(readAnswer(parameters));
    });
    return {
      redirectUri: external.toString(true),
      wait(state) {
        expected = state;
        return answered.promise;
      },
      close() {
        subscription.dispose();
      },
    };
  }

  dispose(): void {
    this.#disposables.dispose();
  }
}
