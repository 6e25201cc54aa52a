/**
 * Owns: what servers said of themselves and their tools when they were last connected, across starts, in one small private file, by the
 * fingerprint of their definition.
 * Leaves to others: whether it may be shown (server-host.ts), to whom (src/gateway). Nothing that is called or replayed rests on it: a
 * call connects first, and what is listed then counts.
 */
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import * as z from "zod";
import type { RememberedServer, RememberedServers } from "./hosted-server.ts";

const object = z.record(z.string(), z.unknown());
const tool = z.looseObject({
  name: z.string().min(1).max(1024),
  title: z.string().optional(),
  description: z.string().optional(),
  inputSchema: object.optional(),
  outputSchema: object.optional(),
  annotations: object.optional(),
});
const server = z.strictObject({
  facts: z.strictObject({
    era: z.enum(["2025-11-25", "2026-07-28"]),
    protocolVersion: z.string().max(32),
    transport: z.enum(["stdio", "http", "sse"]),
    serverInfo: z.looseObject({ name: z.string(), version: z.string() }),
    capabilities: object,
    instructions: z.string().optional(),
  }),
  tools: z.array(tool).max(1_000),
});
/** One server that is no good does not cost the others. */
const contents = z.record(z.string(), z.unknown());

/** Servers that are kept, the latest; and characters of one of them as JSON, beyond which it is not kept. */
export const rememberedLimits = { servers: 100, characters: 500_000 } as const;

/** A file that cannot be read is as if empty; one that cannot be written is not written: the server is asked instead. */
export function rememberedFile(path: string): RememberedServers {
  let servers: Map<string, RememberedServer> | undefined;
  const read = (): Map<string, RememberedServer> => {
    const found = new Map<string, RememberedServer>();
    try {
      for (const [fingerprint, value] of Object.entries(contents.parse(JSON.parse(readFileSync(path, "utf8"))))) {
        const parsed = server.safeParse(value);
        // What zod gives back is typed more widely where a field may be absent; the shape is the same.
        if (parsed.success) found.set(fingerprint, parsed.data as unknown as RememberedServer);
      }
    } catch {
      // There is none, or it is no JSON.
    }
    return found;
  };
  return {
    get: (fingerprint) => (servers ??= read()).get(fingerprint),
    set: (fingerprint, { facts, tools }) => {
      const { sessionId: _, ...kept } = facts;
      const parsed = server.safeParse({ facts: kept, tools });
      const text = JSON.stringify(parsed.data);
      const fits = parsed.success && text.length <= rememberedLimits.characters;
      // Another window may have written meanwhile.
      servers = read();
      if (fits && JSON.stringify(servers.get(fingerprint)) === text) return;
      servers.delete(fingerprint);
      if (fits) servers.set(fingerprint, parsed.data as unknown as RememberedServer);
      servers = new Map([...servers].slice(-rememberedLimits.servers));
      try {
        const temporary = `${path}.${process.pid}`;
        writeFileSync(temporary, JSON.stringify(Object.fromEntries(servers)), { mode: 0o600 });
        renameSync(temporary, path);
      } catch {
        // Asked again at the next start.
      }
    },
  };
}
