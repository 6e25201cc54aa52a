import { expect, it } from "vitest";
import { soakHealth } from "../../../faults/health-soak.ts";

it(
  "flapping servers: every call is answered, none takes effect twice, all are connected afterwards",
  { timeout: 180_000 },
  async () => {
    const { text, broken, hung, doubled, calls, reconnects } = await soakHealth({ seed: 20_261_130, ms: 8_000 });
    expect(broken, text).toEqual([]);
    expect([hung, doubled]).toEqual([0, 0]);
    expect(calls).toBeGreaterThan(0);
    expect(reconnects).toBeGreaterThan(0);
  },
);
