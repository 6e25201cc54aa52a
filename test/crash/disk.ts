/**
 * Owns: a model of a disk that loses its power: what it surely holds, and what it may hold besides.
 */
import type { DiskOperation } from "./wasm-disk.ts";

/** A disk's files: what is safely on it, and what it was told since the last sync and may have done or not. */
export class Disk {
  readonly #safe = new Map<string, Buffer>();
  readonly #pending = new Map<string, DiskOperation[]>();

  do(operation: DiskOperation): void {
    if (operation.kind === "sync" && operation.file === ".") {
      for (const [file, pending] of this.#pending) {
        const removed = pending.findLastIndex((one) => one.kind === "remove");
        this.#settle(file, pending.splice(0, removed + 1));
      }
      return;
    }
    const pending = this.#pending.get(operation.file) ?? [];
    this.#pending.set(operation.file, pending);
    if (operation.kind === "sync") this.#settle(operation.file, pending.splice(0));
    else pending.push(operation);
  }

  /** What was not synced by now never will be. */
  forget(file: string): void {
    this.#pending.delete(file);
  }

  #settle(file: string, operations: readonly DiskOperation[]): void {
    const content = apply(this.#safe.get(file), operations);
    if (content === undefined) this.#safe.delete(file);
    else this.#safe.set(file, content);
  }

  /** @param survives which of the unsynced operations were done, and of a write how much */
  content(survives: (operation: DiskOperation) => number): ReadonlyMap<string, Buffer> {
    const files = new Map<string, Buffer>();
    for (const file of new Set([...this.#safe.keys(), ...this.#pending.keys()])) {
      const done = (this.#pending.get(file) ?? []).flatMap((operation) => {
        const share = survives(operation);
        if (share <= 0) return [];
        if (operation.kind !== "write" || share >= 1) return [operation];
        // A torn write: whole sectors of 512 bytes, from its beginning.
        return [{ ...operation, bytes: operation.bytes.subarray(0, Math.floor((operation.bytes.length * share) / 512) * 512) }];
      });
      const content = apply(this.#safe.get(file), done);
      if (content !== undefined) files.set(file, content);
    }
    return files;
  }
}

function apply(content: Buffer | undefined, operations: readonly DiskOperation[]): Buffer | undefined {
  let now = content;
  for (const operation of operations) {
    if (operation.kind === "remove") now = undefined;
    else if (operation.kind === "truncate") now = resized(now, operation.size);
    else if (operation.kind === "write") {
      const { offset, bytes } = operation;
      now = resized(now, Math.max(now?.length ?? 0, offset + bytes.length));
      bytes.copy(now, offset);
    }
  }
  return now;
}

function resized(content: Buffer | undefined, size: number): Buffer {
  const buffer = Buffer.alloc(size);
  content?.copy(buffer, 0, 0, Math.min(size, content.length));
  return buffer;
}
