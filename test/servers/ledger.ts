/**
 * Owns: the append-only ledger of a demo or fault server: every effect (`effects.jsonl`) and every request that arrived
 * (`requests.jsonl`), on disk before the server does anything else. It is the ground truth of every test.
 * Leaves to others: what counts as an effect, and when an answer is lost.
 */
import { closeSync, existsSync, fstatSync, fsyncSync, mkdirSync, openSync, readSync, watch, writeSync } from "node:fs";
import { join } from "node:path";
import canonicalize from "canonicalize";

/** One execution of a tool that changes something. */
export interface EffectEntry {
  /** Milliseconds since the epoch. */
  readonly at: number;
  readonly pid: number;
  readonly server: string;
  readonly tool: string;
  /** What the effect is the same as: a provider's key, a resource's name, or the canonical arguments. */
  readonly key: string;
  /** 1 for the first execution with this tool and key in this ledger, 2 for the second … */
  readonly attempt: number;
  readonly rpcId?: string | number | undefined;
  readonly arguments: Readonly<Record<string, unknown>>;
}

/** One request that reached the server. */
export interface RequestEntry {
  readonly at: number;
  readonly pid: number;
  readonly server: string;
  /** The JSON-RPC method, or `HTTP GET` / `HTTP DELETE` for requests without a message. */
  readonly method: string;
  /** tools/call only. */
  readonly tool?: string | undefined;
  /** tools/call only: 1 for the first request with this tool and these arguments in this ledger, 2 for the second … */
  readonly attempt?: number | undefined;
  readonly rpcId?: string | number | undefined;
  readonly params?: Readonly<Record<string, unknown>> | undefined;
  /** HTTP only; header names in lower case. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

export type NewEffect = Pick<EffectEntry, "tool" | "arguments"> & Partial<Pick<EffectEntry, "key" | "rpcId">>;
export type NewRequest = Pick<RequestEntry, "method" | "rpcId" | "params" | "headers">;

/** Selects effects; every field given must match. */
export interface EffectFilter {
  readonly tool?: string;
  readonly key?: string;
  readonly attempt?: number;
  readonly server?: string;
}

/** Canonical JSON (RFC 8785): equal arguments have equal texts. */
export function canonicalArguments(value: unknown): string {
  return canonicalize(value) ?? "null";
}

function submission(tool: string, params: Readonly<Record<string, unknown>> | undefined): string {
  return `${tool}\n${canonicalArguments(params?.["arguments"] ?? {})}`;
}

/** One JSONL file, read from where the last reading ended. An unfinished last line is not there yet. */
class JsonLines<Entry> {
  readonly path: string;
  readonly entries: Entry[] = [];
  readonly #onEntry: (entry: Entry) => void;
  #offset = 0;
  #rest: Buffer = Buffer.alloc(0);

  constructor(path: string, onEntry: (entry: Entry) => void) {
    this.path = path;
    this.#onEntry = onEntry;
  }

  refresh(): readonly Entry[] {
    if (!existsSync(this.path)) return this.entries;
    const file = openSync(this.path, "r");
    try {
      const size = fstatSync(file).size;
      if (size <= this.#offset) return this.entries;
      const chunk = Buffer.alloc(size - this.#offset);
      const read = readSync(file, chunk, 0, chunk.length, this.#offset);
      this.#offset += read;
      let text = Buffer.concat([this.#rest, chunk.subarray(0, read)]);
      for (let end = text.indexOf(10); end >= 0; end = text.indexOf(10)) {
        const entry = JSON.parse(text.subarray(0, end).toString("utf8")) as Entry;
        this.entries.push(entry);
        this.#onEntry(entry);
        text = text.subarray(end + 1);
      }
      this.#rest = text;
      return this.entries;
    } finally {
      closeSync(file);
    }
  }
}

function append(path: string, entry: EffectEntry | RequestEntry, sync: boolean): void {
  const file = openSync(path, "a");
  try {
    writeSync(file, `${JSON.stringify(entry)}\n`);
    if (sync) fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

function effectMatches(effect: EffectEntry, filter: EffectFilter): boolean {
  return (
    (filter.tool === undefined || effect.tool === filter.tool) &&
    (filter.key === undefined || effect.key === filter.key) &&
    (filter.attempt === undefined || effect.attempt === filter.attempt) &&
    (filter.server === undefined || effect.server === filter.server)
  );
}

/** What a test reads. Any number of readers, in any process; every call reads what is on disk now. */
export class LedgerReader {
  readonly directory: string;
  readonly #effects: JsonLines<EffectEntry>;
  readonly #requests: JsonLines<RequestEntry>;
  readonly #executions = new Map<string, number>();
  readonly #submissions = new Map<string, number>();

  constructor(directory: string) {
    this.directory = directory;
    const count = (counts: Map<string, number>, name: string): void => void counts.set(name, (counts.get(name) ?? 0) + 1);
    this.#effects = new JsonLines(join(directory, "effects.jsonl"), (effect) =>
      count(this.#executions, `${effect.tool}\n${effect.key}`),
    );
    this.#requests = new JsonLines(join(directory, "requests.jsonl"), (request) => {
      if (request.tool !== undefined) count(this.#submissions, submission(request.tool, request.params));
    });
  }

  effects(filter: EffectFilter = {}): EffectEntry[] {
    return this.#effects.refresh().filter((effect) => effectMatches(effect, filter));
  }

  countEffects(filter: EffectFilter = {}): number {
    return this.effects(filter).length;
  }

  /** Effects that really differ: executions with the same tool and key count once (for idempotent tools). */
  countDistinctEffects(filter: EffectFilter = {}): number {
    return new Set(this.effects(filter).map((effect) => `${effect.tool}\n${effect.key}`)).size;
  }

  requests(filter: { readonly method?: string; readonly tool?: string } = {}): RequestEntry[] {
    return this.#requests
      .refresh()
      .filter(
        (request) =>
          (filter.method === undefined || request.method === filter.method) &&
          (filter.tool === undefined || request.tool === filter.tool),
      );
  }

  /** How often a tool was executed with this key. */
  executions(tool: string, key: string): number {
    this.#effects.refresh();
    return this.#executions.get(`${tool}\n${key}`) ?? 0;
  }

  /** How many tools/call requests with these arguments reached the server. */
  submissions(tool: string, callArguments: unknown): number {
    this.#requests.refresh();
    return this.#submissions.get(submission(tool, { arguments: callArguments })) ?? 0;
  }

  /** tools/call requests that reached the server, those of one tool when it is given. */
  calls(tool?: string): RequestEntry[] {
    return this.requests({ method: "tools/call", ...(tool === undefined ? {} : { tool }) });
  }

  countCalls(tool?: string): number {
    return this.calls(tool).length;
  }

  /**
   * Settles when `condition` holds, woken by changes in the directory.
   * @param limitMs rejects after this many milliseconds
   */
  async until(condition: (ledger: LedgerReader) => boolean, limitMs = 10_000): Promise<void> {
    mkdirSync(this.directory, { recursive: true });
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const check = (): void => {
      try {
        if (condition(this)) resolve();
      } catch (error) {
        reject(error);
      }
    };
    const watcher = watch(this.directory, check);
    const limit = setTimeout(() => {
      check();
      reject(
        new Error(
          `The ledger did not get there within ${limitMs} ms: ${this.effects().length} effects, ${this.calls().length} calls`,
        ),
      );
    }, limitMs);
    try {
      check();
      await promise;
    } finally {
      clearTimeout(limit);
      watcher.close();
    }
  }

  /** Settles when at least `count` effects that match are on disk. */
  untilEffects(count: number, filter: EffectFilter = {}, limitMs?: number): Promise<void> {
    return this.until((ledger) => ledger.countEffects(filter) >= count, limitMs);
  }

  /** Settles when at least `count` tools/call requests have arrived. */
  untilCalls(count: number, tool?: string, limitMs?: number): Promise<void> {
    return this.until((ledger) => ledger.countCalls(tool) >= count, limitMs);
  }
}

export interface LedgerOptions {
  /** The name that goes into every line. */
  readonly server: string;
  /** False leaves the lines to the operating system: they survive a killed process, not a power cut. Default true. */
  readonly sync?: boolean;
}

/** The ledger as its server writes it. */
export class Ledger extends LedgerReader {
  readonly server: string;
  readonly #sync: boolean;

  constructor(directory: string, options: LedgerOptions) {
    super(directory);
    mkdirSync(directory, { recursive: true });
    this.server = options.server;
    this.#sync = options.sync ?? true;
  }

  /** Returns when the effect is on disk. */
  recordEffect(effect: NewEffect): EffectEntry {
    const key = effect.key ?? canonicalArguments(effect.arguments);
    const entry: EffectEntry = {
      at: Date.now(),
      pid: process.pid,
      server: this.server,
      tool: effect.tool,
      key,
      attempt: this.executions(effect.tool, key) + 1,
      rpcId: effect.rpcId,
      arguments: effect.arguments,
    };
    append(join(this.directory, "effects.jsonl"), entry, this.#sync);
    return entry;
  }

  /** Returns when the request is on disk. */
  recordRequest(request: NewRequest): RequestEntry {
    const tool = request.method === "tools/call" ? String(request.params?.["name"]) : undefined;
    const entry: RequestEntry = {
      at: Date.now(),
      pid: process.pid,
      server: this.server,
      method: request.method,
      ...(tool === undefined ? {} : { tool, attempt: this.submissions(tool, request.params?.["arguments"]) + 1 }),
      rpcId: request.rpcId,
      params: request.params,
      headers: request.headers,
    };
    append(join(this.directory, "requests.jsonl"), entry, this.#sync);
    return entry;
  }
}
