/**
 * Owns: proof that a person can lose a call, see it, and settle it in every way, in the sidebar of a real VS Code: screen, ledger and
 * journal agree at every step.
 */
import { describe, expect, it } from "vitest";
import { SOON, TEST_MS, useStage } from "./support.ts";

describe("a call whose answer is lost", { timeout: TEST_MS }, () => {
  const stay = { hotel: "Hotel Astoria", night: "2026-12-24", guest: "Ada Lovelace" };
  const row = "create_booking · booking";
  const stage = useStage({ servers: ["booking"] }, async ({ views }) => {
    await views.open();
    await views.untilConnected("booking");
  });

  const requests = (): number => stage().ledger("booking").countCalls("create_booking");
  const bookings = (): number => stage().ledger("booking").countEffects({ tool: "create_booking" });

  it("is not there at first", async () => {
    await stage().views.untilText("Unresolved", /^Nothing is unresolved\. A call whose answer is lost/);
    expect(await stage().views.badge()).toBe("");
  });

  it("is made by the palette, with arguments prefilled from the schema, and kept as unresolved", async () => {
    const prefilled = await stage().chooseTool("booking", "create_booking");
    expect(JSON.parse(prefilled)).toEqual({ hotel: "", night: "", guest: "" });
    await stage().window.screenshot("unresolved-1-arguments");
    await stage().window.answerInput(JSON.stringify(stay));

    const message = await stage().window.waitForNotification("lost its answer");
    expect(message).toBe('"create_booking" lost its answer: it may have taken effect, and it was not repeated.');
    await stage().views.untilRows("Unresolved", [
      /^create_booking · booking now: the server's process ended before the answer arrived$/,
    ]);
    await stage().views.untilBadge("1");
    expect(bookings()).toBe(1);
    expect(requests()).toBe(1);
    await stage().window.screenshot("unresolved-2-lost");
    const screen = await stage().page.locator(".monaco-workbench").innerText();
    for (const secret of Object.values(stay)) expect(screen).not.toContain(secret);
  });

  it("holds back the identical call", async () => {
    await stage().window.clearNotifications();
    await stage().callTool("booking", "create_booking", stay);
    const message = await stage().window.waitForNotification("was not sent");
    expect(message).toBe('"create_booking" was not sent: an identical earlier call is still unresolved.');
    expect(requests()).toBe(1);
    await stage().views.untilBadge("1");
    await stage().views.expand("Unresolved", row);
    await stage().views.untilRows("Unresolved", [
      /^create_booking · booking/,
      "Attempt 1: first call, the whole request was sent, no answer",
      /^Not repeated: the server is not trusted for replay/,
      "A later, identical call was held back",
    ]);
    await stage().window.screenshot("unresolved-3-held");
    await stage().window.clearNotifications();
  });

  it("is settled by its inline button as not having happened, on evidence, and leaves the view", async () => {
    await stage().views.act("Unresolved", row, "Reconcile…");
    await stage().window.pick(/It did not happen/);
    await stage().window.answerInput("");
    await expect.poll(() => stage().window.quickInputText(), SOON).toContain("A line of evidence is needed.");
    await stage().window.screenshot("unresolved-4-evidence");
    await stage().window.answerInput("Asked the hotel: no such booking");

    await stage().views.untilBadge("");
    await stage().views.untilText("Unresolved", /^Nothing is unresolved\.$/);
    await stage().views.untilRows("Unresolved", ["Recently settled 1"]);
    await stage().window.waitForNotification('Recorded: "create_booking" did not happen. Nothing was sent.');
    expect(requests()).toBe(1);
    await stage().window.screenshot("unresolved-5-settled");
  });

  it("is then repeated once, on a person's order, as a new attempt of the same operation", async () => {
    await stage().press("did not happen", "Repeat Call…");
    const question = await stage().window.dialogText();
    expect(question).toContain('Repeat "create_booking" on "booking"?');
    expect(question).toContain("Asked the hotel: no such booking");
    expect(question).toContain("Ada Lovelace");
    await stage().window.screenshot("unresolved-6-repeat");
    await stage().window.answerDialog("Repeat Call");

    const text = await stage().documentText("create_booking · booking: completed");
    expect(text).toContain("Booked. Reference R-2.");
    expect(requests()).toBe(2);
    const [operation, ...others] = await stage().operations();
    expect(others).toEqual([]);
    expect(operation).toMatchObject({ state: "completed", attempts: [{ outcome: "unknown" }, { outcome: "observed" }] });
    await stage().window.screenshot("unresolved-7-repeated");
    await stage().window.runCommand("View: Close All Editors");
  });

  it("is settled as having happened from its notification; the next identical call is answered from the record", async () => {
    const other = { ...stay, guest: "Grace Hopper" };
    await stage().callTool("booking", "create_booking", other);
    await stage().press("lost its answer", "Reconcile…");
    await stage().window.pick(/It happened/);
    await stage().window.answerInput("Seen in the list of bookings");
    await stage().views.untilBadge("");
    expect(requests()).toBe(3);

    await stage().callTool("booking", "create_booking", other);
    const text = await stage().documentText("create_booking · booking: it happened");
    expect(text).toContain("Seen in the list of bookings");
    expect(requests()).toBe(3);
    await stage().window.screenshot("unresolved-8-happened");
    await stage().window.runCommand("View: Close All Editors");
  });

  it("stays when it is kept, and goes without evidence when it is dismissed", async () => {
    await stage().loseCall("booking", "create_booking", { ...stay, guest: "Mary Somerville" });
    await stage().views.act("Unresolved", row, "Reconcile…");
    await stage().window.pick(/Keep/);
    await stage().views.untilBadge("1");
    expect((await stage().latestOperation()).state).toBe("unresolved");

    await stage().window.runCommand("MCP Safe Replay: Reconcile…");
    await stage().window.pick(row);
    await stage().window.pick(/Dismiss/);
    await stage().window.answerInput("");
    await stage().views.untilBadge("");
    expect((await stage().latestOperation()).state).toBe("dismissed");
    expect(requests()).toBe(4);
  });

  it("may be one that the person cancels: the server is told, and whether it happened stays open", async () => {
    stage().setModes("booking", { create_booking: "hang" });
    await stage().callTool("booking", "create_booking", { ...stay, guest: "Emmy Noether" });
    await stage().ledger("booking").untilEffects(5);
    await stage().window.screenshot("unresolved-9-progress");
    await stage().press('Calling "create_booking"', "Cancel");
    await stage().window.waitForNotification("lost its answer");
    await stage().views.untilRows("Unresolved", [/^create_booking · booking now: the call was cancelled$/, "Recently settled 2"]);
    await stage()
      .ledger("booking")
      .until((ledger) => ledger.requests({ method: "notifications/cancelled" }).length === 1);
    expect(await stage().latestOperation()).toMatchObject({ state: "unresolved", reason: "cancelled" });
    stage().setModes("booking", { create_booking: "lose-first" });
    await stage().window.clearNotifications();
  });

  it("keeps its whole story in the journal and in its document", async () => {
    const operations = await stage().operations();
    expect(operations.map(({ state }) => state)).toEqual(["completed", "effect-confirmed", "dismissed", "unresolved"]);
    const types = operations.map(({ events }) => events.map(({ type }) => type).filter((type) => type !== "delivered"));
    expect(types).toEqual([
      ["prepared", "sent", "lost", "held", "held", "settled", "repeated", "sent", "answered"],
      ["prepared", "sent", "lost", "held", "settled"],
      ["prepared", "sent", "lost", "held", "settled"],
      ["prepared", "sent", "lost", "held"],
    ]);
    const exported = (await stage().headless("export", "--format", "jsonl")).trim().split("\n");
    expect(exported.filter((line) => line.includes('"type":"settled"'))).toHaveLength(3);

    await stage().views.expand("Unresolved", "Recently settled");
    const settled = stage().views.pane("Unresolved").locator(".monaco-list-row", { hasText: "dismissed" });
    await settled.hover();
    await settled.getByRole("button", { name: "Show Operation…", exact: true }).click();
    const text = await stage().documentText("create_booking · booking: dismissed");
    expect(text).toContain("Mary Somerville");
    for (const type of ["prepared", "sent", "lost", "held", "settled"]) expect(text).toMatch(new RegExp(`\\d  ${type} `));
    expect(text).toContain(operations[2]?.id);
    await stage().window.screenshot("unresolved-10-document");
  });
});
