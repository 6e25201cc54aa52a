/**
 * Owns: proof on the real thing: VS Code's own agent mode, in the Chat view, books a room, loses the answer, reads our text, and is not
 * let through with the identical call. Only the model is scripted.
 */
import { describe, expect, it } from "vitest";
import { TEST_MS, useStage } from "./support.ts";

describe("VS Code's own agent", { timeout: TEST_MS }, () => {
  const room = { hotel: "Hotel Astoria", night: "2026-12-24", guest: "Ada Lovelace" };
  const request = `create_booking ${JSON.stringify(room)}`;
  // A server that cannot be reached must not stand in the agent's way.
  const stage = useStage(
    { servers: ["booking"], otherServers: { unreachable: { url: "http://127.0.0.1:9/mcp" } }, model: true },
    ({ views }) => views.open(),
  );

  const requests = (): number => stage().ledger("booking").countCalls("create_booking");
  const bookings = (): number => stage().ledger("booking").countEffects({ tool: "create_booking" });
  /** What the model was told by tools in answer to a prompt, in order. */
  const told = (prompt: string): string[] =>
    stage()
      .modelLog()
      .filter((one) => one.prompt === prompt && one.results.length > 0)
      .map(({ results }) => results.join("\n"));

  it("asks for leave before it books, and shows the person what it will send", async () => {
    const { chat } = stage().window;
    await chat.send(`insist ${request}`);
    const card = await chat.confirmationText();
    expect(card).toContain("Book a room");
    expect(card).toContain("booking (MCP Server)");
    expect(card).toContain("Ada Lovelace");
    expect(requests()).toBe(0);
    await stage().window.screenshot("agent-1-leave");
    await chat.allowTool("Allow in this Session");
  });

  it("loses the answer, tries the same call again in the same turn, and is not let through", async () => {
    const { chat } = stage().window;
    // The tool talks to the world outside: VS Code lets the person see what comes back first.
    await chat.allowTool("Allow Without Review in this Session");
    await chat.waitUntilIdle();

    const operation = await stage().latestOperation();
    const [first, second, ...more] = told(`insist ${request}`);
    expect(more).toEqual([]);
    expect(first).toMatch(
      /^UNRESOLVED: this tool call may have completed before its answer was lost .* Do not repeat it automatically/,
    );
    expect(second).toMatch(new RegExp(`^HELD: an identical earlier call is still unresolved \\(operation ${operation.id}\\)`));
    for (const secret of Object.values(room)) expect(`${first}${second}`).not.toContain(secret);
    expect(await chat.lastResponse()).toContain("HELD: an identical earlier call is still unresolved");
    expect(bookings()).toBe(1);
    expect(requests()).toBe(1);
    expect(operation.state).toBe("unresolved");
    await stage().views.untilBadge("1");
    await stage().window.screenshot("agent-2-held");
  });

  it("is answered from the record once the person has found that it happened", async () => {
    await stage().views.act("Unresolved", "create_booking · booking", "Reconcile…");
    await stage().window.pick(/It happened/);
    await stage().window.answerInput("Seen in the list of bookings");
    await stage().views.untilBadge("");

    const answer = await stage().window.chat.ask(`call ${request}`);
    expect(answer).toContain("ALREADY DONE: an identical earlier call took effect");
    const [fact] = told(`call ${request}`);
    expect(fact).toContain(
      "It has been established that it happened: Seen in the list of bookings. This call was not sent again.",
    );
    expect(bookings()).toBe(1);
    expect(requests()).toBe(1);
    expect(await stage().operations()).toMatchObject([{ state: "effect-confirmed", attempts: [{ outcome: "unknown" }] }]);
    await stage().window.screenshot("agent-3-answered");
  });

  it("reads with leave of its own, and gets the server's answer", async () => {
    const { chat } = stage().window;
    await chat.send('call find_booking {"guest":"Ada Lovelace"}');
    await chat.allowTool("Allow in this Session");
    await chat.waitUntilIdle();
    expect(await chat.lastResponse()).toContain("R-1");
    expect(stage().ledger("booking").countCalls("find_booking")).toBe(1);
  });
});
