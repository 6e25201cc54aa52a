/**
 * Owns: a second connection, of the older era, to a remote server that speaks both eras, for agents of the older versions that can be asked
 * something.
 * Leaves to others: making and judging connections (src/hosting), who is served by which (gateway.ts).
 *
 * Why: a server may put a request of its own (sampling, elicitation) in the middle of a call in the older era only. A tool written that way
 * fails on a 2026-07-28 connection, while the agent, at the server itself, would have been asked.
 *
 * A program (stdio) speaks one era in its one process, and a second process would be a second server with a state of its own: it has no twin.
 * What can be done without one: a process that is started for such an agent is opened in the older era, which also serves agents of the newer
 * one (modern-face.ts turns the server's questions into rounds). A process that runs already is left as it is; the next one is opened so.
 */
import type { HostedServer } from "../hosting/hosted-server.ts";

interface Twin {
  readonly server: HostedServer;
  readonly stopFollowing: () => void;
}

/** Which programs are to be opened in the older era first. */
export class LegacyPrograms {
  /** For each definition (by its fingerprint): the connection that was open when the wish was made, `undefined` for none. */
  readonly #wishes = new Map<string, string | undefined>();
  /** Opened under a wish, and spoke the newer era all the same: it has no other. */
  readonly #modernOnly = new Set<string>();

  wished(fingerprint: string): boolean {
    return this.#wishes.has(fingerprint) && !this.#modernOnly.has(fingerprint);
  }

  /** A legacy agent that can be asked is about to use this program. @returns whether it speaks the newer era now, and may not the next time */
  wish({ fingerprint, connection }: HostedServer): "next-time" | "now" | "nothing" {
    if (this.#modernOnly.has(fingerprint)) return "nothing";
    const open = connection?.open === true ? connection : undefined;
    if (open?.facts.era === "2025-11-25") return "nothing";
    if (this.#wishes.has(fingerprint)) {
      if (open !== undefined && open.connectionId !== this.#wishes.get(fingerprint)) this.#modernOnly.add(fingerprint);
      return "nothing";
    }
    this.#wishes.set(fingerprint, open?.connectionId);
    return open === undefined ? "now" : "next-time";
  }
}

export class LegacyTwins {
  readonly programs = new LegacyPrograms();
  readonly #log: (server: string, text: string) => void;
  readonly #make: (server: HostedServer) => HostedServer;
  /** `none`: this server refused the older era. */
  readonly #twins = new Map<HostedServer, Twin | "none">();

  /** @param make a hosted server of the same definition that tries the older era first */
  constructor(make: (server: HostedServer) => HostedServer, log: (server: string, text: string) => void) {
    this.#make = make;
    this.#log = log;
  }

  /** The server to use for a legacy agent that can be asked: its twin, or the server itself. Never rejects. */
  async of(server: HostedServer): Promise<HostedServer> {
    if (server.definition.type === "stdio" && this.programs.wish(server) === "next-time")
      this.#log(
        server.name,
        "it was opened in the 2026-07-28 era, in which it cannot ask this agent anything in the middle of a call; when it is started again, the older era is tried first",
      );
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
