/**
 * Owns: the frame of the tests in a real VS Code: its start and end around a suite, and what a failed test leaves behind.
 * Leaves to others: what happens in it (stage.ts), what is expected (*.test.ts).
 */
import { afterAll, afterEach, beforeAll, beforeEach } from "vitest";
import { Stage, type StageOptions } from "./stage.ts";

export { Stage, Views, type StageOptions, type ViewName } from "./stage.ts";

/** Generous, because the computer may be busy: these only end what hangs. */
const START_MS = 120_000;
export const TEST_MS = 90_000;
/** For `expect.poll`: how long a state may take to come. */
export const SOON = { timeout: 20_000 };

/**
 * A stage for all tests of the suite in which this is called; `prepare` brings it to where they begin. A test that fails leaves a
 * screenshot and the run's folder for a look.
 * @returns the stage, for use inside tests
 */
export function useStage(options: StageOptions, prepare?: (stage: Stage) => Promise<void>): () => Stage {
  let stage: Stage | undefined;
  let failed = false;
  const current = (): Stage => {
    if (stage === undefined) throw new Error("VS Code is not there.");
    return stage;
  };
  const look = async (name: string): Promise<void> => {
    failed = true;
    if (stage?.isOpen === true) await stage.window.screenshot(`FAILED ${name.replace(/[^\w ]+/g, "-")}`);
  };
  beforeAll(async () => {
    stage = await Stage.start(options);
    try {
      await prepare?.(stage);
    } catch (error) {
      await look("before the tests");
      throw error;
    }
  }, START_MS);
  // The tests of a suite are the steps of one story.
  beforeEach(({ skip }) => skip(failed, "an earlier step failed"));
  afterEach(async ({ task }) => {
    if (task.result?.state === "fail") await look(task.name);
  });
  afterAll(() => stage?.end({ keep: failed }), START_MS);
  return current;
}
