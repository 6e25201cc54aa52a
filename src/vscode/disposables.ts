/**
 * Owns: a list of things to dispose, in reverse order. What is added after the list was disposed is disposed at once, so that
 * nothing that finishes late leaks.
 */
import type { Disposable } from "vscode";

export class DisposableList implements Disposable {
  readonly #items: Disposable[] = [];
  #disposed = false;

  add<T extends Disposable>(item: T): T {
    if (this.#disposed) item.dispose();
    else this.#items.push(item);
    return item;
  }

  /** Adds the function that the heart's listeners return for unsubscribing. */
  addCallback(unsubscribe: () => void): void {
    this.add({ dispose: unsubscribe });
  }

  dispose(): void {
    this.#disposed = true;
    for (const item of this.#items.splice(0).reverse()) item.dispose();
  }
}
