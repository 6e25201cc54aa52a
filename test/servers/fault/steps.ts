/**
 * Owns: the words of a fault script: what a fault server does with one request.
 * Leaves to others: doing it (http-fault-server.ts, stdio-fault-server.ts), and what an effect is (world.ts).
 *
 * Unless a step says otherwise with `effect`, the effect of a tools/call is in the ledger before anything else happens. Steps that
 * refuse the call (see `hasEffect`) make none by default.
 */

interface Common {
  /** Whether the tool's effect is made. */
  readonly effect?: boolean;
  /** So many progress notifications first (SSE, HTTP+SSE and stdio; log messages when the caller gave no progress token). */
  readonly progress?: number;
}

/** What a resuming GET with `Last-Event-ID` gets (2025-11-25 with event ids). */
export type ResumeStep =
  /** The missed events, then the answer. The default. */
  | { readonly do: "answer" }
  /** The missed events, `events` new ones (default 0), then the stream ends again without the answer. */
  | { readonly do: "end"; readonly events?: number; readonly how?: "end" | "reset"; readonly retryMs?: number }
  /** The connection is reset before the headers. */
  | { readonly do: "reset" }
  | { readonly do: "status"; readonly status: number; readonly body?: BodyKind; readonly retryAfter?: string | number }
  /** 400 with a JSON-RPC error: the event is no longer known. */
  | { readonly do: "expired" }
  /** The missed events, then nothing until `release()`, then the answer. */
  | { readonly do: "hang" };

export type BodyKind = "json" | "html" | "empty" | "text" | "half-json" | "other-id";

type Action =
  // ---- an answer comes (every transport) ----
  /** The tool's own result, or this one. */
  | { readonly do: "answer"; readonly result?: Readonly<Record<string, unknown>> }
  /** The whole answer; right after it the connection breaks (JSON: the body was announced longer; stdio: the process ends). */
  | { readonly do: "answer-then-break" }
  /** A result with `isError: true`. */
  | { readonly do: "tool-error"; readonly text?: string; readonly structuredContent?: Readonly<Record<string, unknown>> }
  /** A JSON-RPC error; `status` is its HTTP status (default 200). */
  | { readonly do: "error"; readonly code: number; readonly message?: string; readonly data?: unknown; readonly status?: number }
  /** A result that violates the tool's output schema and has an unknown content type. */
  | { readonly do: "bad-output" }
  /** The answer twice, the second with another text. As one JSON body: a batch of both. */
  | { readonly do: "two-answers" }
  /** An answer with an id that nobody asked for, then the right one (default) or the end of the exchange. */
  | { readonly do: "unknown-id"; readonly then?: "answer" | "end" }
  /** 2026-07-28: a result of type `input_required`. The next round is a new tools/call and takes the next step. */
  | {
      readonly do: "input-required";
      readonly inputRequests?: Readonly<Record<string, unknown>>;
      readonly requestState?: string;
    }
  /** 2025-11-25: the server asks the client (`elicitation/create`) and answers after the client's response. */
  | { readonly do: "elicit"; readonly message?: string }
  /**
   * The call becomes a task, in the era's form. `working` polls (default 1) say working, then the task has ended. `forget`: the task is
   * not known when asked for. `deliver`: how the answer with the task id goes out; `{ do: "reset" }` loses it.
   */
  | {
      readonly do: "task";
      readonly working?: number;
      readonly ends?: "completed" | "failed" | "cancelled";
      readonly pollIntervalMs?: number;
      readonly ttlMs?: number;
      readonly forget?: boolean;
      readonly deliver?: Step;
    }
  /**
   * Nothing until the test calls `release()`, then `then` (default: the answer). SSE headers go out first. `late: "get-stream"`
   * (2025-11-25 HTTP): the POST is answered 202 at once, the answer comes on the session's open GET stream.
   */
  | { readonly do: "hang"; readonly then?: Step; readonly late?: "get-stream" }

  // ---- HTTP: the answer is lost ----
  /**
   * Connection reset, or closed, before the response headers (with `progress`: after that much of the stream). HTTP+SSE: the POST's
   * connection.
   */
  | { readonly do: "reset" }
  | { readonly do: "fin" }
  /** Response headers, then reset (default) or closed. */
  | { readonly do: "headers-then-reset"; readonly how?: "reset" | "fin" }
  /** Part of the body (JSON: shorter than announced; SSE: half of the event with the answer), then the connection is closed. */
  | { readonly do: "truncated" }
  /** 202 and no answer. */
  | { readonly do: "accepted" }
  /**
   * An SSE stream without the answer. With event ids: a priming event, unless `after` is "headers", and the answer is kept for `resume`
   * (one step for each GET, the last one again; default: answer). `events`: so many events first. `retryMs`: announced as `retry`.
   * `ids`: event ids or not, whatever the binding does otherwise. HTTP+SSE: the session's event stream ends.
   */
  | {
      readonly do: "stream-end";
      readonly after?: "headers" | "priming";
      readonly events?: number;
      readonly how?: "end" | "reset";
      readonly retryMs?: number;
      readonly ids?: boolean;
      readonly resume?: readonly ResumeStep[];
    }
  /** Any HTTP status with a body that is no answer. */
  | {
      readonly do: "status";
      readonly status: number;
      readonly body?: BodyKind;
      readonly retryAfter?: string | number;
      readonly headers?: Readonly<Record<string, string>>;
    }
  /** A redirect. Whoever follows it makes a further request (and effect), seen in the log with its `origin`. */
  | { readonly do: "redirect"; readonly status?: 301 | 302 | 303 | 307 | 308; readonly to?: "same-origin" | "other-origin" }
  /** 404, and the session is gone (2025-11-25); with a JSON-RPC error that names this request (`json`), or none, or an empty body. */
  | { readonly do: "session-gone"; readonly body?: "json" | "json-without-id" | "empty" }
  /** 401 or 403 with a `WWW-Authenticate` challenge. */
  | { readonly do: "unauthorised"; readonly status?: 401 | 403; readonly challenge?: string }
  /** 2026-07-28: -32020 and -32022 with HTTP 400. */
  | { readonly do: "header-mismatch" }
  | { readonly do: "unsupported-version"; readonly supported?: readonly string[] }
  /** A request on a socket that served an earlier one is reset unread; on a new socket it is answered. */
  | { readonly do: "stale-socket" }
  /** The connection is reset after the first part of the request's body. */
  | { readonly do: "reset-while-reading" }

  // ---- stdio: the answer is lost ----
  /** The process ends before the answer. */
  | { readonly do: "exit"; readonly code?: number }
  /** SIGKILL to itself. */
  | { readonly do: "kill" }
  /** Half of the line with the answer, then the process ends. */
  | { readonly do: "partial-line" }
  /** stdout is closed, the process lives on until its stdin ends. */
  | { readonly do: "close-stdout" }
  /** stdin is closed (the client's next write gets EPIPE), the process lives on; no answer. */
  | { readonly do: "close-stdin" }
  /** Lines that are no JSON-RPC, then the answer. */
  | { readonly do: "garbage"; readonly lines?: readonly string[] };

export type Step = Common & Action;

/** Statuses by which an MCP endpoint refuses a request before it runs (DESIGN.md section 3). */
export const refusingStatuses: ReadonlySet<number> = new Set([400, 401, 403, 404, 405, 406, 413, 415, 422, 429, 431]);

/** Whether a step makes the tool's effect. */
export function hasEffect(step: Step): boolean {
  if (step.effect !== undefined) return step.effect;
  switch (step.do) {
    case "error":
    case "input-required":
    case "session-gone":
    case "unauthorised":
    case "header-mismatch":
    case "unsupported-version":
    case "redirect":
    case "stale-socket":
    case "reset-while-reading":
      return false;
    case "status":
      return !refusingStatuses.has(step.status);
    default:
      return true;
  }
}

export const answer: Step = { do: "answer" };

/** A list of steps for each method, one taken for each request; a default when the list is used up. */
export class Script {
  readonly #steps = new Map<string, Step[]>();
  readonly #defaults = new Map<string, Step>();

  add(method: string, steps: readonly Step[]): void {
    this.#steps.set(method, [...(this.#steps.get(method) ?? []), ...steps]);
  }

  setDefault(method: string, step: Step): void {
    this.#defaults.set(method, step);
  }

  peek(method: string): Step {
    return this.#steps.get(method)?.[0] ?? this.#defaults.get(method) ?? answer;
  }

  take(method: string): Step {
    const step = this.peek(method);
    this.#steps.get(method)?.shift();
    return step;
  }

  left(method: string): number {
    return this.#steps.get(method)?.length ?? 0;
  }
}
