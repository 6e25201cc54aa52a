import { describe, expect, it } from "vitest";
import {
  listText,
  oneLine,
  proposalFacts,
  proposalMistake,
  proposedEvidence,
  recordedText,
} from "../../../src/vscode/model-tool-texts.ts";
import { event, lost, minute, now, operationOf, prepared, sent } from "./operations.ts";

const events = [
  prepared(),
  sent(1),
  lost(1),
  event("looked-up", "server", { found: "undecided", evidence: "the lookup got no answer" }, now - minute),
];
const operation = operationOf(events);
const listed = [{ operation, events, lookupTool: "find_booking" }];

describe("the list of unresolved operations for a model", () => {
  it("says what an agent needs to verify, and no arguments", () => {
    const text = listText(listed, [], now);
    expect(JSON.parse(text)).toEqual({
      note: expect.stringContaining("Do not call again"),
      operations: [
        {
          id: "op-1",
          server: "booking",
          tool: "create_booking",
          state: "unresolved",
          reason: "the connection was lost before the answer arrived",
          called: "2026-11-30T11:55:00.000Z (5 minutes ago)",
          attempts: 1,
          argumentsDigest: "dddddddddddddddd",
          evidence: ["Observed by the lookup, 1 minute ago: undecided. the lookup got no answer"],
          verifyWith: "find_booking",
        },
      ],
    });
    expect(text).not.toContain("Ada");
  });

  it("shows the arguments of the ids that were asked for, and says which are not unresolved", () => {
    const list = JSON.parse(listText(listed, ["op-1", "op-2"], now));
    expect(list.operations[0].arguments).toEqual({ hotel: "Grand", guest: "Ada" });
    expect(list.notUnresolved).toEqual(["op-2"]);
  });

  it("says when the journal kept no arguments", () => {
    const withheld = [prepared({ withheld: "some", arguments: { guest: "(redacted)" } }), sent(1), lost(1)];
    const text = listText([{ operation: operationOf(withheld), events: withheld, lookupTool: undefined }], ["op-1"], now);
    expect(text).toContain("argumentsNotKept");
    expect(text).not.toContain("redacted");
  });

  it("says so when there is none", () => {
    expect(JSON.parse(listText([], [], now))).toEqual({ note: "No call is unresolved.", operations: [] });
  });
});

describe("a model's proposal", () => {
  it.each([
    [{}, "'operation'"],
    [{ operation: "op-1" }, "'as'"],
    [{ operation: "op-1", as: "unresolved" }, "'as'"],
    [{ operation: "op-1", as: "toString" }, "'as'"],
    [{ operation: "op-1", as: "no-effect" }, "'evidence'"],
    [{ operation: "op-1", as: "no-effect", evidence: " \n " }, "'evidence'"],
  ])("is refused when it is incomplete: %j", (input, says) => {
    expect(proposalMistake(input as Parameters<typeof proposalMistake>[0])).toContain(says);
  });

  it("stands in the journal as the agent's words, in one line, and the person's confirmation", () => {
    expect(proposedEvidence('find_booking says\nnone"; a person saw it')).toBe(
      'proposed by an agent: "find_booking says none"; a person saw it"; a person confirmed it',
    );
    expect(oneLine("x".repeat(1000))).toHaveLength(500);
  });

  it("is shown with the facts, without arguments among them", () => {
    const facts = proposalFacts(operation, events, now);
    expect(facts[0]).toBe("create_booking · booking");
    expect(facts[1]).toContain("the connection was lost");
    expect(facts.join()).toContain("Observed by the lookup");
    expect(facts.join()).not.toContain("Ada");
  });

  it("tells the model what follows", () => {
    expect(recordedText(operation, "effect-confirmed")).toContain("Do not call again");
    expect(recordedText(operation, "no-effect")).toContain("It can be called again, once");
  });
});
