/**
 * Owns: a set of listeners that cannot harm each other.
 */
export class Emitter<A extends unknown[]> {
  readonly #listeners = new Set<(...args: A) => void>();

  get size(): number {
    return this.#listeners.size;
  }

  /** @returns a function that takes the listener off again */
  on(listener: (...args: A) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  emit(...args: A): void {
    for (const listener of [...this.#listeners]) {
      try {
        listener(...args);
      } catch {
        // The next listener is not to blame.
      }
    }
  }

  clear(): void {
    this.#listeners.clear();
  }
}
