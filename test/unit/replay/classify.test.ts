import { describe, expect, it } from "vitest";
import type { Loss, LossKind } from "../../../src/hosting/evidence.ts";
import { classify, refusals, unknowns } from "../../../src/replay/classify.ts";

const loss = (kind: LossKind, fields: Partial<Loss> = {}): Loss => ({ kind, stage: "sent", ...fields });

describe("classification", () => {
  it.each<[Loss, string, string]>([
    [loss("connect-refused", { stage: "not-sent" }), "not-executed", "not-sent"],
    [loss("spawn-failed", { stage: "not-sent" }), "not-executed", "not-sent"],
    [loss("dns", { stage: "not-sent" }), "not-executed", "not-sent"],
    [loss("tls", { stage: "not-sent" }), "not-executed", "not-sent"],
    [loss("not-connected", { stage: "not-sent" }), "not-executed", "not-sent"],
    [loss("stdin-closed", { stage: "not-sent" }), "not-executed", "not-sent"],
    [loss("session-gone", { stage: "answering", httpStatus: 404, bodyIsJsonOrEmpty: true }), "not-executed", "session-gone"],
    [loss("reset", { stage: "sending" }), "unknown", "connection-lost"],
    [loss("reset"), "unknown", "connection-lost"],
    [loss("truncated", { stage: "answering", httpStatus: 200 }), "unknown", "answer-unreadable"],
    [loss("not-json", { stage: "answering", httpStatus: 200 }), "unknown", "answer-unreadable"],
    [loss("no-answer", { stage: "answering", httpStatus: 202 }), "unknown", "no-answer"],
    [loss("stream-ended", { stage: "answering", httpStatus: 200 }), "unknown", "connection-lost"],
    [loss("redirected", { stage: "answering", httpStatus: 307 }), "unknown", "redirected"],
    [loss("process-exit"), "unknown", "process-exit"],
    [loss("stdin-closed", { stage: "sending" }), "unknown", "connection-lost"],
    [loss("stdout-closed"), "unknown", "connection-lost"],
    [loss("closed-here"), "unknown", "server-stopped"],
  ])("%o → %s (%s)", (input, outcome, reason) => {
    expect(classify(input)).toMatchObject({ outcome, reason });
  });

  it.each([...refusals])(
    "HTTP %i from the MCP endpoint is a refusal; from a page in front of it, it proves nothing",
    (httpStatus) => {
      expect(classify(loss("http-status", { stage: "answering", httpStatus, bodyIsJsonOrEmpty: true }))).toMatchObject({
        outcome: "not-executed",
        sendable: false,
      });
      expect(classify(loss("http-status", { stage: "answering", httpStatus, bodyIsJsonOrEmpty: false })).outcome).toBe("unknown");
      expect(classify(loss("http-status", { stage: "answering", httpStatus })).outcome).toBe("unknown");
    },
  );

  it.each([408, 421, 500, 502, 503, 504])("HTTP %i is unknown, JSON body or not", (httpStatus) => {
    expect(classify(loss("http-status", { stage: "answering", httpStatus, bodyIsJsonOrEmpty: true }))).toMatchObject({
      outcome: "unknown",
      connectionLoss: true,
    });
  });

  it("never sends again by itself what was stopped or cancelled here", () => {
    expect(classify(loss("closed-here", { stage: "not-sent" }))).toMatchObject({ outcome: "not-executed", sendable: false });
    expect(classify(loss("cancelled-here", { stage: "not-sent" }))).toMatchObject({ outcome: "not-executed", sendable: false });
    expect(unknowns["closed-here"].connectionLoss).toBe(false);
    expect(unknowns["cancelled-here"].connectionLoss).toBe(false);
    expect(unknowns.redirected.connectionLoss).toBe(false);
  });
});
