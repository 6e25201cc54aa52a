import { describe, expect, it } from "vitest";
import { serverTrust, trustNow, type TrustSource } from "../../src/trust/trust.ts";

const source = (setting: unknown, consent: string | undefined, workspace: unknown = true): TrustSource => ({
  workspaceTrusted: () => workspace as boolean,
  serverTrustSetting: () => setting as boolean,
  consentFingerprint: () => consent,
});

describe("server trust", () => {
  it("needs the person's setting and a consent record for exactly this definition", () => {
    expect(serverTrust(source(true, "f"), "s", "f")).toEqual({ trusted: true });
    expect(serverTrust(source(false, "f"), "s", "f")).toEqual({ trusted: false, why: "not-granted" });
    expect(serverTrust(source(true, undefined), "s", "f")).toEqual({ trusted: false, why: "no-consent" });
    expect(serverTrust(source(true, "before"), "s", "f")).toEqual({ trusted: false, why: "definition-changed" });
  });

  it.each(["true", 1, {}, []])("is not granted by %o: only by literal true", (value) => {
    expect(serverTrust(source(value, "f"), "s", "f").trusted).toBe(false);
    expect(trustNow(source(true, "f", value), "s", "f").workspace).toBe(false);
  });
});
