/**
 * Owns: where the gateway of this window listens: a unix socket in a folder that only the person can enter, or on Windows a named
 * pipe with a name that cannot be guessed; and the address that VS Code's own MCP client understands.
 * Leaves to others: listening (src/gateway).
 */
import { randomBytes } from "node:crypto";
import { lstat, mkdtemp, readdir, rm } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Uri } from "vscode";
import { UserError } from "./user-error.ts";

/** A unix socket's path has 108 bytes on Linux and 104 on macOS, its end included. */
const pathLimit = 100;
const folderPrefix = "mcp-safe-replay-";
const socketName = "gateway.sock";

export interface Endpoint {
  readonly path: string;
  /** The address of one hosted server for `McpHttpServerDefinition`: the socket as path, the path of its URL as fragment. */
  uriOf(urlPath: string): Uri;
  /** Removes the folder. */
  remove(): Promise<void>;
}

/** @throws UserError when no private folder with a short path can be made */
export async function makeEndpoint(): Promise<Endpoint> {
  if (process.platform === "win32") {
    const path = `\\\\.\\pipe\\${folderPrefix}${randomBytes(24).toString("hex")}`;
    return { path, uriOf: (urlPath) => Uri.from({ scheme: "pipe", path, fragment: urlPath }), remove: () => Promise.resolve() };
  }
  const bases = [process.env["XDG_RUNTIME_DIR"] ?? "", tmpdir(), "/tmp"].filter((base) => base.startsWith("/"));
  for (const base of new Set(bases)) {
    if (Buffer.byteLength(join(base, `${folderPrefix}XXXXXX`, socketName)) > pathLimit) continue;
    try {
      await sweep(base);
      const folder = await mkdtemp(join(base, folderPrefix)); // mode 0700
      const path = join(folder, socketName);
      return {
        path,
        uriOf: (urlPath) => Uri.from({ scheme: "unix", path, fragment: urlPath }),
        remove: () => rm(folder, { recursive: true, force: true }),
      };
    } catch {
      continue;
    }
  }
  throw new UserError(
    "MCP Safe Replay cannot make a private folder for its socket. Make the temporary folder writable (TMPDIR, or /tmp), then try again.",
  );
}

/** Removes what a crashed window left behind: our own folders whose socket nobody answers. */
async function sweep(base: string): Promise<void> {
  const names = await readdir(base).catch(() => []);
  await Promise.all(
    names
      .filter((name) => name.startsWith(folderPrefix))
      .map(async (name) => {
        const folder = join(base, name);
        const facts = await lstat(folder).catch(() => undefined);
        if (facts?.isDirectory() !== true || facts.uid !== process.getuid?.()) return;
        if (await isDead(join(folder, socketName))) await rm(folder, { recursive: true, force: true }).catch(() => undefined);
      }),
  );
}

/** Only a refused connection proves it; a folder without a socket may belong to a window that is just starting. */
function isDead(path: string): Promise<boolean> {
  return new Promise((done) => {
    const socket = connect(path);
    socket.setTimeout(500, () => socket.destroy());
    socket.once("connect", () => socket.destroy());
    socket.once("error", (error: NodeJS.ErrnoException) => done(error.code === "ECONNREFUSED"));
    socket.once("close", () => done(false));
  });
}
