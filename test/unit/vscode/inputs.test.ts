import { beforeEach, describe, expect, it, vi } from "vitest";
import type { InputDefinition } from "../../../src/vscode/sources/input-definitions.ts";

const asked: { title: string | undefined; password: boolean | undefined }[] = [];
let answers: (string | undefined)[] = [];

vi.mock("vscode", () => ({
  EventEmitter: class {
    readonly #listeners = new Set<() => void>();
    event = (listener: () => void): { dispose(): void } => {
      this.#listeners.add(listener);
      return { dispose: () => this.#listeners.delete(listener) };
    };
    fire(): void {
      for (const listener of this.#listeners) listener();
    }
    dispose(): void {}
  },
  window: {
    showInputBox: (options: { title?: string; password?: boolean }) => {
      asked.push({ title: options.title, password: options.password });
      return Promise.resolve(answers.shift());
    },
    showQuickPick: (items: { value: string }[]) => Promise.resolve(items.at(-1)),
  },
}));

const { Inputs } = await import("../../../src/vscode/sources/inputs.ts");

/** VS Code's secret storage, as far as it matters here. */
function storage() {
  const kept = new Map<string, string>();
  return {
    kept,
    onDidChange: () => ({ dispose: () => undefined }),
    keys: () => Promise.resolve([...kept.keys()]),
    get: (key: string) => Promise.resolve(kept.get(key)),
    store: (key: string, value: string) => Promise.resolve(void kept.set(key, value)),
    delete: (key: string) => Promise.resolve(void kept.delete(key)),
  };
}

const token: InputDefinition = { type: "promptString", id: "token", description: "Token", password: true };
const region: InputDefinition = { type: "promptString", id: "region", description: "Region", password: false };
const declared = new Map([
  ["token", token],
  ["region", region],
]);

let secrets: ReturnType<typeof storage>;
let inputs: InstanceType<typeof Inputs>;

beforeEach(() => {
  asked.length = 0;
  secrets = storage();
  inputs = new Inputs(secrets);
});

describe("the values that a person entered", () => {
  it("are kept for the source that asked, and for no other", async () => {
    await inputs.set("user", "token", "mine");
    const theirs = await inputs.valuesOf("file:///workspace", declared);
    expect(theirs("token")).toEqual({ value: undefined, secret: true });
    await inputs.set("file:///workspace", "token", "theirs");
    expect((await inputs.valuesOf("user", declared))("token")).toEqual({ value: "mine", secret: true });
    expect((await inputs.valuesOf("file:///workspace", declared))("token")).toEqual({ value: "theirs", secret: true });
    expect((await inputs.valuesOf("file:///work", declared))("token")?.value).toBeUndefined();
  });

  it("are given to no input that is not declared", async () => {
    await inputs.set("user", "other", "x");
    expect((await inputs.valuesOf("user", declared))("other")).toBeUndefined();
  });

  it("are asked for one after the other, a password hidden; giving up keeps what was entered before", async () => {
    answers = ["eu", undefined];
    expect(await inputs.ask("user", "shop", [region, token])).toBe(false);
    expect(asked).toEqual([
      { title: 'Value for "shop"', password: false },
      { title: 'Value for "shop"', password: true },
    ]);
    const values = await inputs.valuesOf("user", declared);
    expect([values("region")?.value, values("token")?.value]).toEqual(["eu", undefined]);
  });

  it("are forgotten all at once; what else the extension keeps stays", async () => {
    await inputs.set("user", "token", "a");
    await inputs.set("file:///w", "token", "b");
    secrets.kept.set("something else", "c");
    expect(await inputs.forget()).toBe(2);
    expect([...secrets.kept.keys()]).toEqual(["something else"]);
  });
});
