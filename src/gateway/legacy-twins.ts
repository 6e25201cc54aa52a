/**
 * Owns: a second connection, of the older era, to a remote server that speaks both eras, for agents of the older versions that can be asked
 * something.
 * Leaves to others: making and judging connections (src/hosting), who is served by which (gateway.ts).
 *
 * Why: a server may put a request of its own (sampling, elicitation) in the middle of a call in the older era only. A tool written that way
 * fails on a 2026-07-28 connection, while the agent, at the server itself, would have been asked. A program (stdio) speaks one era in its one
 * process and has no twin.
 */
import type { HostedServer } from "../hosting/hosted-server.ts";

interface Twin {
  readonly server: HostedServer;
  readonly stopFollowing: () => void;
}

export class LegacyTwins {
  readonly #make: (server: HostedServer) => HostedServer;
  /** `none`: this server refused the older era. */
  readonly #twins = new Map<HostedServer, Twin | "none">();

  /** @param make a hosted server of the same definition that tries the older era first */
  constructor(make: (server: HostedServer) => HostedServer) {
    this.#make = make;
  }

  /** The server to use for a legacy agent that can be asked: its twin, or the server itself. Never rejects. */
  async of(server: HostedServer): Promise<HostedServer> {
    if (server.definition.type !== "http") return server;
    const connection = await server.connect().catch(() => undefined);
    if (connection?.facts.era !== "2026-07-28") return server;
    const known = this.#twins.get(server);
    if (known === "none") return server;
    const twin = known ?? this.#add(server);
    const found = await twin.server.connect().catch(() => undefined);
    if (found === undefined || this.#twins.get(server) !== twin) return server;
    if (found.facts.era === "2025-11-25") return twin.server;
    await this.drop(server);
    this.#twins.set(server, "none");
    return server;
  }

  /** Ends the twin of a server that is no longer hosted. */
  async drop(server: HostedServer): Promise<void> {
    const twin = this.#twins.get(server);
    this.#twins.delete(server);
    if (twin === undefined || twin === "none") return;
    twin.stopFollowing();
    await twin.server.dispose();
  }

  async dispose(): Promise<void> {
    await Promise.all([...this.#twins.keys()].map((server) => this.drop(server)));
  }

  #add(server: HostedServer): Twin {
    const made = this.#make(server);
    const twin: Twin = {
      server: made,
      // A person who stops the server stops all of it.
      stopFollowing: server.onDidChange(() => {
        if (server.status.state === "stopped") void made.stop();
      }),
    };
    this.#twins.set(server, twin);
    return twin;
  }
}
