import { describe, expect, it } from "vitest";
import type { EventData } from "../../../src/operations/model.ts";
import { alarmText, isAlarm } from "../../../src/vscode/alarm-text.ts";
import { eventText } from "../../../src/vscode/words.ts";
import { event, lost, now, operationOf, prepared, sent } from "./operations.ts";

const conflict: EventData["lost"] = {
  attempt: 2,
  stage: "answering",
  reason: "key-conflict",
  kind: "key-conflict",
  outcome: "not-executed",
};
const story = [prepared({ key: "secret-key" }), sent(1), lost(1), sent(2), event("lost", "server", conflict, now)];

describe("an alarm", () => {
  it("is a call whose key the provider says was used with other arguments, until it is settled", () => {
    expect(isAlarm(operationOf(story))).toBe(true);
    expect(isAlarm(operationOf(story.slice(0, 3)))).toBe(false);
    const settled = event("settled", "person", { as: "no-effect", evidence: "asked" }, now);
    expect(isAlarm(operationOf([...story, settled]))).toBe(false);
  });

  it("names the call and what to do, and neither key nor arguments", () => {
    const text = alarmText(operationOf(story));
    expect(text).toContain('"create_booking" on "booking"');
    expect(text).toContain("Nothing more is sent for it");
    expect(text).not.toMatch(/secret-key|Grand|Ada/);
  });

  it("and every other reason for not repeating is told in words", () => {
    const held = (verdict: string[]) => eventText(event("held", "gateway", { verdict }, now));
    expect(held(["key-conflict"])).toBe(
      "not repeated: the provider says that this operation's key was used with other arguments",
    );
    expect(held(["promises-missing"])).toBe("not repeated: the contract does not declare all five promises");
  });
});
