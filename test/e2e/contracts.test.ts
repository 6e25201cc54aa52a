/**
 * Owns: proof in a real VS Code that contracts turn "unknown" into a decision on evidence: the two worked decisions of the source document
 * (the lost inventory read, the lost booking: looked up, ambiguous, and with a key), a person's reading and settling of several at once, a
 * rehearsal, and an agent that proposes while a person decides.
 */
import { describe, expect, it } from "vitest";
import { TEST_MS, useStage, type Stage } from "./support.ts";

const documentation = "https://hotel.example/docs/idempotency";
const promises = {
  scopedToAccountAndOperation: true,
  boundToPayload: true,
  atomicUnderConcurrency: true,
  retainedForWholeWindow: true,
  reachesProvider: true,
};
const duplicatePrevention = {
  keyArgument: "/idempotencyKey",
  suppliedBy: "gateway",
  retentionSeconds: 86_400,
  promises,
  otherPayload: "status == `422`",
};
const sameAs = { "/hotel": "booking.hotel", "/night": "booking.night", "/guest": "booking.guest" };
const lookup = {
  tool: "find_booking",
  arguments: { hotel: "{{arguments/hotel}}", night: "{{arguments/night}}", guest: "{{arguments/guest}}" },
  effect: "status == 'found'",
  noEffect: "status == 'none'",
  sameAs,
  consistentAfterSeconds: 1,
  recordsKeptSeconds: 2_592_000,
  count: "candidates || (found && `1` || `0`)",
};
const contracts = (server: string, tool: string, contract: Record<string, unknown>) => ({
  "mcpSafeReplay.contracts": { [server]: { [tool]: { documentation, ...contract } } },
});
const stay = { hotel: "Hotel Astoria", night: "2026-12-24", guest: "Ada Lovelace" };
const row = "create_booking · booking";

/** Trusts a server, and leaves the tree: VS Code gives the focus back to a tree that is drawn anew, and that would close a quick pick. */
async function trust(stage: Stage, server: string): Promise<void> {
  await stage.trust(server);
  await stage.page.locator(".part.editor > .content").click();
}

/** Takes an item of the open context menu, by the keyboard: VS Code ignores a click that comes too soon. */
async function choose(stage: Stage, item: string): Promise<void> {
  const menu = stage.page.locator(".context-view .monaco-menu");
  await menu.getByRole("menuitem", { name: item }).hover();
  await menu.locator(".action-item.focused", { hasText: item }).waitFor();
  await stage.page.keyboard.press("Enter");
}

const creates = (stage: Stage) => stage.ledger("booking").calls("create_booking");
const bookings = (stage: Stage): number => stage.ledger("booking").countEffects({ tool: "create_booking" });

describe("a lost inventory read, with a contract that it changes nothing", { timeout: TEST_MS }, () => {
  const stage = useStage(
    {
      servers: ["inventory"],
      settings: contracts("inventory", "check_inventory", { nonMutating: { freshDataAcceptable: true } }),
    },
    async (current) => {
      await current.views.open();
      await current.views.untilConnected("inventory");
      await trust(current, "inventory");
    },
  );

  it("is read again under a new RPC id, and its answer is a new observation", async () => {
    stage().setModes("inventory", { check_inventory: "lose-once" });
    await stage().callTool("inventory", "check_inventory", { item: "chairs" });
    const text = await stage().documentText("check_inventory · inventory: completed");
    expect(text).toContain("120 chairs in stock.");
    expect(text).toContain("the answer is a new observation, of that later moment");
    expect(text).toContain("It changes nothing; fresh data will do");
    const calls = stage().ledger("inventory").calls("check_inventory");
    expect(calls).toHaveLength(2);
    expect(new Set(calls.map((call) => call.rpcId)).size).toBe(2);
    expect(stage().ledger("inventory").countEffects()).toBe(0);
    const operation = await stage().latestOperation();
    expect(operation).toMatchObject({
      state: "completed",
      reason: "replayed",
      attempts: [{ outcome: "unknown" }, { outcome: "observed" }],
    });
    await stage().window.screenshot("contracts-1-read-again");
  });
});

describe("a lost booking, with a contract that names a lookup", { timeout: TEST_MS }, () => {
  const stage = useStage(
    { servers: ["booking"], settings: contracts("booking", "create_booking", { lookup }) },
    async (current) => {
      await current.views.open();
      await current.views.untilConnected("booking");
      await trust(current, "booking");
    },
  );

  it("is reconciled by the lookup, without a second create", async () => {
    await stage().callTool("booking", "create_booking", stay);
    const text = await stage().documentText("create_booking · booking: it happened");
    expect(text).toMatch(/Settled by the lookup, .*: it happened: the lookup tool 'find_booking' found the record/);
    expect(text).toContain("Documentation: https://hotel.example/docs/idempotency");
    expect(creates(stage())).toHaveLength(1);
    expect(bookings(stage())).toBe(1);
    expect(await stage().latestOperation()).toMatchObject({ state: "effect-confirmed", reason: "lookup" });
    await stage().views.untilBadge("");
    await stage().window.screenshot("contracts-2-looked-up");
    await stage().window.runCommand("View: Close All Editors");
  });

  it("stays unresolved when the lookup's answer is ambiguous, and the identical call stays held", async () => {
    stage().setModes("booking", { find_booking: "ambiguous" });
    await stage().loseCall("booking", "create_booking", { ...stay, guest: "Grace Hopper" });
    await stage().views.untilBadge("1");
    await stage().callTool("booking", "create_booking", { ...stay, guest: "Grace Hopper" });
    await stage().window.waitForNotification("was not sent");
    await stage().window.clearNotifications();
    expect(creates(stage())).toHaveLength(2);
    expect(await stage().latestOperation()).toMatchObject({ state: "unresolved" });
  });

  it("shows what is known and offers what can still be found out; an ambiguous lookup decides nothing again", async () => {
    await stage().views.act("Unresolved", row, "Reconcile…");
    await stage().window.page.locator(".quick-input-widget:visible .label-name", { hasText: "It happened" }).waitFor();
    const labels = (await stage().window.quickPickLabels()).join("\n");
    expect(labels).toMatch(/1 attempt, the last: first call, the whole request was sent, no answer/);
    for (const label of [
      "Run lookup",
      "Read with a tool…",
      "It happened",
      "It did not happen",
      "Dismiss",
      "Keep",
      "Let one through",
    ])
      expect(labels).toContain(label);
    expect(labels).not.toContain("Recover the answer");
    await stage().window.screenshot("contracts-3-reconcile");
    await stage().window.pick(/Run lookup/);
    const asked = stage().page.locator(".quick-input-widget:visible .quick-input-box input");
    await expect
      .poll(() => asked.getAttribute("placeholder"))
      .toBe("The lookup decides nothing: the lookup's answer is neither of the two that the contract names.");
    await stage().window.screenshot("contracts-4-ambiguous");
    expect(await stage().latestOperation()).toMatchObject({ state: "unresolved" });
    await stage().window.clearNotifications();
  });

  it("lets the person ask a reading tool, with the call's own arguments, and keeps what was observed and what they say apart", async () => {
    stage().setModes("booking", { find_booking: "answer" });
    await stage().views.act("Unresolved", row, "Reconcile…");
    await stage().window.pick(/Read with a tool…/);
    await stage().window.pick("find_booking");
    expect(JSON.parse(await stage().window.inputValue())).toEqual({ ...stay, guest: "Grace Hopper" });
    await stage().window.screenshot("contracts-5-read");
    await stage().window.answerInput();
    await stage().window.page.locator(".quick-input-widget:visible .label-name", { hasText: "It happened" }).waitFor();
    await stage()
      .window.page.locator(".editor-group-container.active .view-line", { hasText: "R-2: Hotel Astoria" })
      .first()
      .waitFor();
    await stage().window.screenshot("contracts-6-read-answered");
    await stage().window.pick(/It happened/);
    await stage().window.answerInput("R-2 is in the hotel's books");
    await stage().views.untilBadge("");
    expect(creates(stage())).toHaveLength(2);

    const [, operation, read] = await stage().operations();
    expect(read).toMatchObject({ tool: "find_booking", state: "completed" });
    const evidence = operation?.events.filter(({ type }) => type === "looked-up" || type === "settled");
    expect(evidence?.map(({ type, actor }) => `${type} by ${actor}`)).toEqual([
      "looked-up by server",
      "looked-up by server",
      "looked-up by person",
      "settled by person",
    ]);
    expect(evidence?.[2]?.data["evidence"]).toContain(`'find_booking' (operation ${read?.id})`);
    expect(evidence?.[3]?.data).toMatchObject({ as: "effect-confirmed", evidence: "R-2 is in the hotel's books" });
    await stage().window.runCommand("View: Close All Editors");
  });

  it("is settled together with others, by one word and one note", async () => {
    stage().setModes("booking", { find_booking: "forbidden" });
    for (const guest of ["Mary Somerville", "Emmy Noether"])
      await stage().loseCall("booking", "create_booking", { ...stay, guest });
    await stage().views.untilBadge("2");
    const rows = stage().views.pane("Unresolved").locator(".monaco-list-row", { hasText: row });
    await rows.nth(0).click();
    await rows.nth(1).click({ modifiers: ["ControlOrMeta"] });
    await rows.nth(1).click({ button: "right" });
    await choose(stage(), "Reconcile…");
    expect(await stage().window.quickInputText()).toContain("Reconcile 2 calls");
    await stage().window.screenshot("contracts-7-several");
    await stage().window.pick(/It did not happen/);
    await stage().window.answerInput("The hotel was closed that night");
    await stage().window.waitForNotification("2 calls settled: it did not happen.");
    await stage().views.untilBadge("");
    const settled = (await stage().operations()).filter(({ state }) => state === "no-effect");
    expect(settled).toHaveLength(2);
    for (const { events } of settled)
      expect(events.at(-1)).toMatchObject({
        type: "settled",
        actor: "person",
        data: { evidence: "The hotel was closed that night" },
      });
    await stage().window.screenshot("contracts-8-settled");
  });
});

describe("a lost booking whose key the provider says was used with other arguments", { timeout: TEST_MS }, () => {
  const stage = useStage(
    {
      servers: ["booking"],
      settings: contracts("booking", "create_booking", {
        // Whatever it answers to a repeated key is taken for that word.
        duplicatePrevention: { ...duplicatePrevention, otherPayload: "booking != null" },
      }),
    },
    async (current) => {
      await current.views.open();
      await current.views.untilConnected("booking");
    },
  );

  it("is an alarm to the person, stays unresolved, and nothing more is sent", async () => {
    await stage().chooseTool("booking", "create_booking");
    await stage().window.answerInput(JSON.stringify(stay));
    await stage().window.waitForNotification("the provider says that this call's key was used with other arguments");
    await stage().views.untilBadge("1");
    expect(await stage().latestOperation()).toMatchObject({ state: "unresolved", reason: "key-conflict" });
    expect(creates(stage())).toHaveLength(2);
    await stage().window.screenshot("contracts-13-alarm");
  });
});

describe("a lost booking, with a contract for duplicate prevention", { timeout: TEST_MS }, () => {
  const stage = useStage(
    {
      servers: ["booking"],
      settings: contracts("booking", "create_booking", {
        duplicatePrevention,
        lookup: { ...lookup, arguments: { reference: "{{key}}" } },
      }),
    },
    async (current) => {
      await current.views.open();
      await current.views.untilConnected("booking");
    },
  );

  it("is sent again with the same key and a new RPC id: one booking", async () => {
    // The key is not asked for: it is made before the first send.
    expect(JSON.parse(await stage().chooseTool("booking", "create_booking"))).toEqual({ hotel: "", night: "", guest: "" });
    await stage().window.answerInput(JSON.stringify(stay));
    const text = await stage().documentText("create_booking · booking: completed");
    expect(text).toContain("Booked. Reference R-1.");
    const calls = creates(stage());
    const keys = calls.map((call) => (call.params?.["arguments"] as Record<string, string>)["idempotencyKey"]);
    expect(calls).toHaveLength(2);
    expect(new Set(calls.map((call) => call.rpcId)).size).toBe(2);
    expect(new Set(keys).size).toBe(1);
    expect(bookings(stage())).toBe(1);
    expect(text).toContain(`- Key: ${keys[0]}, in /idempotencyKey`);
    expect(text).toContain("Promises: all five");
    expect(text).toContain("Rehearsal: not rehearsed");
    expect(await stage().latestOperation()).toMatchObject({ state: "completed", reason: "replayed" });
    await stage().window.screenshot("contracts-9-same-key");
    await stage().window.runCommand("View: Close All Editors");
  });

  it("shows in the Servers view that its contract was not rehearsed, and rehearses it after a typed agreement", async () => {
    await trust(stage(), "booking");
    stage().setModes("booking", { create_booking: "answer" });
    await stage().views.expand("Servers", "booking");
    const tool = stage().views.row("Servers", "create_booking");
    expect(await tool.innerText()).toContain("contract, not rehearsed");
    await stage().window.screenshot("contracts-10-not-rehearsed");
    await stage().window.runCommand("MCP Safe Replay: Rehearse Contract…");
    await stage().window.pick(row);
    await stage().window.answerInput(JSON.stringify({ ...stay, guest: "Sandbox" }));
    await expect.poll(() => stage().window.quickInputText()).toContain("up to 9 when not");
    await stage().window.answerInput("yes");
    await expect
      .poll(() => stage().window.quickInputText())
      .toContain("To agree, type: create up to 9 effects with create_booking on booking");
    await stage().window.screenshot("contracts-11-agreement");
    expect(bookings(stage())).toBe(1);
    await stage().window.answerInput("create up to 9 effects with create_booking on booking");
    await stage().window.waitForNotification(/Rehearsed "create_booking" on "booking": 5 held, 2 not testable/);
    const report = await stage().documentText("Rehearsal of create_booking · booking");
    expect(report).toMatch(/## Held\s[\s\S]*atomicUnderConcurrency[\s\S]*reachesProvider[\s\S]*## Not testable/);
    expect(bookings(stage())).toBe(1 + 4);
    await expect.poll(() => tool.innerText()).toMatch(/contract, rehearsed on \d{4}-\d\d-\d\d: 5 held, 2 not testable/);
    await stage().window.screenshot("contracts-12-rehearsed");
    // Another contract is another matter.
    const { "mcpSafeReplay.contracts": written } = stage().userSettings() as {
      "mcpSafeReplay.contracts": Record<string, unknown>;
    };
    expect(JSON.stringify(written)).not.toContain("rehearsed");
    await stage().window.clearNotifications();
    await stage().window.runCommand("View: Close All Editors");
  });

  it("is explained where it is written: hover help on a promise, and completion of a whole contract", async () => {
    await stage().window.runCommand("Preferences: Open User Settings (JSON)");
    const page = stage().window.page;
    // The cursor goes to the word, and the hover to the cursor.
    await page.locator(".editor-group-container.active .view-lines").click();
    await page.keyboard.press("ControlOrMeta+F");
    await page.keyboard.insertText("atomicUnderConcurrency");
    await page.keyboard.press("Enter");
    await page.keyboard.press("Escape");
    await page.keyboard.press("ControlOrMeta+K");
    await page.keyboard.press("ControlOrMeta+I");
    const hover = page.locator(".monaco-hover:visible", { hasText: "Two calls with one key at the same moment have one effect" });
    await hover.waitFor();
    await stage().window.screenshot("contracts-13-hover");
    await stage().window.runCommand("View: Close All Editors");
  });
});

describe("an agent and an unresolved booking", { timeout: TEST_MS }, () => {
  const stage = useStage({ servers: ["booking"], model: true }, async (current) => {
    await current.views.open();
    await current.views.untilConnected("booking");
    await current.loseCall("booking", "create_booking", stay);
    await current.views.untilBadge("1");
  });
  const told = (prompt: string): string =>
    stage()
      .modelLog()
      .filter((one) => one.prompt === prompt && one.results.length > 0)
      .map(({ results }) => results.join("\n"))
      .join("\n");

  it("is listed for the agent without its arguments, and without a question", async () => {
    const prompt = "call list_unresolved_operations {}";
    await stage().window.chat.ask(prompt);
    const { id } = await stage().latestOperation();
    const list = JSON.parse(told(prompt)) as { operations: Record<string, unknown>[] };
    expect(list.operations).toMatchObject([{ id, server: "booking", tool: "create_booking", state: "unresolved", attempts: 1 }]);
    for (const secret of Object.values(stay)) expect(told(prompt)).not.toContain(secret);
  });

  it("shows its arguments only to an agent that asks for them, and with the person's leave", async () => {
    const { id } = await stage().latestOperation();
    const prompt = `call list_unresolved_operations ${JSON.stringify({ ids: [id] })}`;
    const { chat } = stage().window;
    await chat.send(prompt);
    expect(await chat.confirmationText()).toContain("The agent asks for the arguments of:");
    await stage()
      .page.getByText("Show the arguments of 1 unresolved call to the agent?")
      .filter({ visible: true })
      .first()
      .waitFor();
    expect(told(prompt)).toBe("");
    await stage().window.screenshot("contracts-14-arguments");
    await chat.allowTool(/^Allow/);
    await chat.waitUntilIdle();
    expect(told(prompt)).toContain("Ada Lovelace");
  });

  it("is settled by an agent's proposal only when the person confirms it, as the person's word with the agent's evidence", async () => {
    const { id } = await stage().latestOperation();
    const proposal = { operation: id, as: "effect-confirmed", evidence: "find_booking shows R-1 for the same guest and night" };
    const prompt = `call propose_reconciliation ${JSON.stringify(proposal)}`;
    const { chat } = stage().window;
    await chat.send(prompt);
    const card = await chat.confirmationText();
    await stage().page.getByText("Record that this unresolved call happened?").filter({ visible: true }).first().waitFor();
    expect(card).toContain("create_booking · booking");
    expect(card).toContain("it is recorded as your word");
    expect(card).toContain(proposal.evidence);
    expect(card).toContain("Ada Lovelace");
    // Never for the whole session: each proposal is a question of its own.
    expect(card).not.toMatch(/Always Allow|in this Session/);
    // Nothing is recorded while it is read: not in the journal, not in its events.
    expect((await stage().latestOperation()).state).toBe("unresolved");
    await stage().window.screenshot("contracts-15-proposal");
    expect((await stage().operations()).flatMap(({ events }) => events.map(({ type }) => type))).not.toContain("settled");
    await chat.allowTool(/^Allow/);
    await chat.waitUntilIdle();
    expect(told(prompt)).toContain(`Recorded: operation ${id} took effect`);
    await stage().views.untilBadge("");
    const operation = await stage().latestOperation();
    expect(operation.events.at(-1)).toMatchObject({
      type: "settled",
      actor: "person",
      data: { as: "effect-confirmed", evidence: `proposed by an agent: "${proposal.evidence}"; a person confirmed it` },
    });
    expect(bookings(stage())).toBe(1);
    await stage().window.screenshot("contracts-16-confirmed");
  });
});

describe("an agent in a session that approves everything", { timeout: TEST_MS }, () => {
  const stage = useStage(
    { servers: ["booking"], model: true, settings: { "chat.permissions.default": "autoApprove" } },
    async (current) => {
      await current.views.open();
      await current.views.untilConnected("booking");
      await current.loseCall("booking", "create_booking", stay);
    },
  );

  it("still cannot speak for the person: the proposal is asked in a dialogue of its own, and declining it records nothing", async () => {
    const { id } = await stage().latestOperation();
    const proposal = { operation: id, as: "no-effect", evidence: "I believe so" };
    const { chat } = stage().window;
    await chat.send(`call propose_reconciliation ${JSON.stringify(proposal)}`);
    const question = await stage().window.dialogText();
    expect(question).toContain("Record that this unresolved call did not happen?");
    expect(question).toContain("The agent's evidence: I believe so");
    expect(question).toContain("Ada Lovelace");
    await stage().window.screenshot("contracts-17-approves-everything");
    await stage().window.answerDialog("Cancel");
    await chat.waitUntilIdle();
    expect(await chat.lastResponse()).toContain("The person did not agree. Nothing was recorded");
    expect((await stage().latestOperation()).state).toBe("unresolved");
  });
});

describe("an unresolved booking, without any contract", { timeout: TEST_MS }, () => {
  const stage = useStage({ servers: ["booking"] }, async (current) => {
    await current.views.open();
    await current.views.untilConnected("booking");
    await current.loseCall("booking", "create_booking", stay);
  });

  it("stands in the way of an identical call until the person sends that one anyway, once, with a note", async () => {
    stage().setModes("booking", { create_booking: "answer" });
    await stage().callTool("booking", "create_booking", stay);
    await stage().press("was not sent: an identical earlier call is still unresolved", "Send Anyway…");
    expect(await stage().window.quickInputText()).toContain("this could do it twice");
    await stage().window.answerInput("Two rooms are wanted");
    const text = await stage().documentText("create_booking · booking: completed");
    const [earlier, sent] = (await stage().operations()).slice(-2);
    expect(text).toContain(`- Possible duplicate of: ${earlier?.id}`);
    expect(creates(stage())).toHaveLength(2);
    expect(earlier).toMatchObject({ state: "unresolved" });
    const permission = earlier?.events
      .filter(({ type }) => type === "let-through")
      .map(({ actor, data }) => ({ actor, ...data }));
    expect(permission).toEqual([
      { actor: "person", note: "Two rooms are wanted" },
      { actor: "gateway", used: sent?.id },
    ]);
    await stage().callTool("booking", "create_booking", stay);
    await stage().window.waitForNotification("was not sent: an identical earlier call is still unresolved");
    expect(creates(stage())).toHaveLength(2);
    await stage().window.screenshot("contracts-18-sent-anyway");
  });
});
