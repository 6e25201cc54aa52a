/**
 * Owns: the values that a person entered for inputs, and asking for them. They lie in VS Code's secret storage, apart for each source:
 * a workspace that names an input of the person's never gets its value.
 * Leaves to others: what an input may be (input-definitions.ts), where its value goes (src/hosting/definitions.ts).
 */
import { EventEmitter, window } from "vscode";
import type { Disposable, Event, SecretStorage } from "vscode";
import type { InputValue } from "../../hosting/definitions.ts";
import { DisposableList } from "../disposables.ts";
import { isSecret } from "./input-definitions.ts";
import type { InputDefinition } from "./input-definitions.ts";

const prefix = "input:";

export class Inputs implements Disposable {
  readonly #secrets: SecretStorage;
  readonly #disposables = new DisposableList();
  readonly #changed = this.#disposables.add(new EventEmitter<void>());
  /** A value was entered or forgotten, in this window or another. */
  readonly onDidChange: Event<void> = this.#changed.event;

  constructor(secrets: SecretStorage) {
    this.#secrets = secrets;
    this.#disposables.add(
      secrets.onDidChange(({ key }) => {
        if (key.startsWith(prefix)) this.#changed.fire();
      }),
    );
  }

  /** The values of these inputs as they are now, for `readDefinitions`. @param source "user", or the URI of the folder that declares them */
  async valuesOf(source: string, inputs: ReadonlyMap<string, InputDefinition>): Promise<(id: string) => InputValue | undefined> {
    const values = new Map<string, InputValue>();
    await Promise.all(
      [...inputs.values()].map(async (input) => {
        values.set(input.id, { value: await this.#secrets.get(keyOf(source, input.id)), secret: isSecret(input) });
      }),
    );
    return (id) => values.get(id);
  }

  /** Asks for each; false when the person gave up. What was entered before that is kept. */
  async ask(source: string, server: string, inputs: readonly InputDefinition[]): Promise<boolean> {
    for (const input of inputs) {
      const value = await askFor(server, input);
      if (value === undefined) return false;
      await this.set(source, input.id, value);
    }
    return true;
  }

  async set(source: string, id: string, value: string): Promise<void> {
    await this.#secrets.store(keyOf(source, id), value);
  }

  /** Forgets every value. @returns how many there were */
  async forget(): Promise<number> {
    const keys = (await this.#secrets.keys()).filter((key) => key.startsWith(prefix));
    for (const key of keys) await this.#secrets.delete(key);
    return keys.length;
  }

  dispose(): void {
    this.#disposables.dispose();
  }
}

function keyOf(source: string, id: string): string {
  return `${prefix}${JSON.stringify([source, id])}`;
}

async function askFor(server: string, input: InputDefinition): Promise<string | undefined> {
  const title = `Value for "${server}"`;
  if (input.type === "pickString") {
    const items = input.options.map(({ label, value }) => ({ label, value }));
    const chosen = await window.showQuickPick(items, { title, placeHolder: input.description, ignoreFocusOut: true });
    return chosen?.value;
  }
  const kept = input.password ? " It is kept in VS Code's secret storage." : "";
  return window.showInputBox({
    title,
    prompt: `${input.description}.${kept}`,
    password: input.password,
    ignoreFocusOut: true,
    ...(input.default === undefined || input.password ? {} : { value: input.default }),
  });
}
