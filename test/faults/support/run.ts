/**
 * Owns: one run of one cell: where it runs, the labs it opened (closed afterwards), the times it measured.
 */
import { expectOutcome, type Expected } from "./checks.ts";
import { Lab, type Class, type LabOptions, type Path, type Subject } from "./lab.ts";
import { lossTime } from "./loss-time.ts";
import { plainLoss, type Transport } from "./peers.ts";
import type { Step } from "../../servers/fault/steps.ts";

export type Cell = (run: Run) => Promise<void>;

export class Run {
  readonly transport: Transport;
  readonly path: Path;
  /** Milliseconds from the loss to the caller's answer, of calls for which nothing could be done. */
  readonly times: number[] = [];
  readonly #labs: Lab[] = [];

  constructor(transport: Transport, path: Path) {
    this.transport = transport;
    this.path = path;
  }

  get loss(): Step {
    return plainLoss(this.transport);
  }

  async open(options: LabOptions = {}): Promise<Lab> {
    const lab = await Lab.open(this.transport, options);
    this.#labs.push(lab);
    return lab;
  }

  /** One call of this class whose next requests take these steps, and what must come of it. */
  async lose(
    lab: Lab,
    cls: Class,
    steps: readonly Step[],
    expected: Expected,
    more: Record<string, unknown> = {},
  ): Promise<Subject> {
    const subject = lab.subject(cls, more);
    lab.peer.script(...steps);
    const answer = await lab.call(this.path, subject).answer;
    await expectOutcome(lab, subject, answer, expected);
    if (cls === "C" && (expected.state === "unresolved" || expected.state === "not-executed")) {
      this.timed(lossTime(lab.peer, lab.requests(subject).at(-1), answer.at), answer.at);
    }
    return subject;
  }

  timed(lossAt: number | undefined, answeredAt: number): void {
    if (lossAt !== undefined) this.times.push(Math.max(0, answeredAt - lossAt));
  }

  async close(): Promise<void> {
    await Promise.all(this.#labs.map((lab) => lab.close()));
  }
}
