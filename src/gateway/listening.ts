/**
 * Owns: opening a socket, pipe or port for the gateway: a private folder, a stale socket removed, one gateway at a time, and what is said
 * when it cannot be had.
 * Leaves to others: who may use it and what comes in (gateway.ts, incoming.ts).
 */
import { chmod, lstat, mkdir, rm } from "node:fs/promises";
import type { Server } from "node:http";
import { connect, type AddressInfo } from "node:net";
import { dirname } from "node:path";

export interface UnixListen {
  readonly kind: "unix";
  /** The socket's path in a folder of its own (made with mode 0700), or a Windows pipe `\\.\pipe\…`. */
  readonly path: string;
}
export interface TcpListen {
  readonly kind: "tcp";
  readonly host: "127.0.0.1";
  /** 0: a free one. */
  readonly port: number;
  /** Further origins of web pages that may use it, for example `http://localhost:6274`. */
  readonly allowedOrigins?: readonly string[];
}
export type Listen = UnixListen | TcpListen;

export class GatewayError extends Error {
  readonly code:
    "socket-taken" | "socket-path" | "folder-not-private" | "port-taken" | "no-permission" | "no-token" | "listen-failed";

  constructor(code: GatewayError["code"], message: string) {
    super(message);
    this.name = "GatewayError";
    this.code = code;
  }
}

/** sockaddr_un has 104 bytes on macOS, 108 on Linux, with the final zero. */
const maxSocketPath = 103;

/**
 * Listens there.
 * @returns `http://127.0.0.1:PORT` or `unix:PATH`
 * @throws GatewayError
 */
export async function listenAt(http: Server, listen: Listen): Promise<string> {
  if (listen.kind === "tcp") {
    const { host, port } = listen;
    await listenOn(http, { host, port });
    return `http://${host}:${(http.address() as AddressInfo).port}`;
  }
  const { path } = listen;
  if (isPipe(path)) {
    await listenOn(http, { path });
    return `unix:${path}`;
  }
  if (Buffer.byteLength(path) > maxSocketPath) {
    throw new GatewayError("socket-path", `The socket's path is longer than ${maxSocketPath} bytes.`);
  }
  await makePrivateFolder(dirname(path));
  await oneAtATime(path, async () => {
    await clearStaleSocket(path);
    await listenOn(http, { path });
    await chmod(path, 0o600);
  });
  return `unix:${path}`;
}

function isPipe(path: string): boolean {
  return /^\\\\[.?]\\pipe\\/i.test(path);
}

function listenOn(server: Server, where: { host: string; port: number } | { path: string }): Promise<void> {
  return new Promise((resolve, reject) => {
    const failed = (error: NodeJS.ErrnoException) => {
      server.off("listening", ready);
      reject(listenError(error, where));
    };
    const ready = () => {
      server.off("error", failed);
      resolve();
    };
    server.once("error", failed).once("listening", ready);
    server.listen(where);
  });
}

function listenError(error: NodeJS.ErrnoException, where: { port: number } | { path: string }): GatewayError {
  const place = "port" in where ? `port ${where.port}` : "the socket";
  if (error.code === "EADDRINUSE") {
    return "port" in where
      ? new GatewayError("port-taken", `The gateway cannot listen on ${place}: another program uses it.`)
      : new GatewayError("socket-taken", "Another running gateway uses this socket.");
  }
  if (error.code === "EACCES" || error.code === "EPERM" || error.code === "EROFS") {
    return new GatewayError("no-permission", `The gateway may not listen on ${place}: permission denied.`);
  }
  return new GatewayError("listen-failed", `The gateway cannot listen on ${place} (${error.code ?? "unknown error"}).`);
}

/** Makes the socket's folder, readable by its owner only; a folder that others can enter is refused, not changed. */
async function makePrivateFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const found = await lstat(folder);
    const mine = process.getuid === undefined || found.uid === process.getuid();
    if (found.isDirectory() && mine && (found.mode & 0o077) === 0) return;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new GatewayError("no-permission", `The folder of the gateway's socket cannot be made (${code ?? "unknown error"}).`);
  }
  throw new GatewayError(
    "folder-not-private",
    "The folder of the gateway's socket must belong to you and be closed to others (mode 0700).",
  );
}

/** A starting gateway holds the place for milliseconds only; what is older was left by one that died. */
const staleLockMs = 10_000;

/**
 * Lets one gateway at a time look at the socket's path and listen there: two that start at once over a stale socket would otherwise remove
 * each other's fresh one.
 */
async function oneAtATime(path: string, run: () => Promise<void>): Promise<void> {
  const lock = `${path}.lock`;
  for (let attempt = 0; ; attempt += 1) {
    try {
      await mkdir(lock, { mode: 0o700 });
      break;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code !== "EEXIST") {
        throw new GatewayError(
          "no-permission",
          `The folder of the gateway's socket cannot be written (${code ?? "unknown error"}).`,
        );
      }
    }
    const found = await lstat(lock).catch(() => undefined);
    if (found !== undefined && Date.now() - found.mtimeMs > staleLockMs) await rm(lock, { recursive: true, force: true });
    else if (attempt > 250) throw new GatewayError("socket-taken", "Another gateway is just starting on this socket.");
    else await new Promise((resolve) => setTimeout(resolve, 20));
  }
  try {
    await run();
  } finally {
    await rm(lock, { recursive: true, force: true });
  }
}

/** Removes what a dead process left at the socket's path. Only a refused connection proves it dead. */
async function clearStaleSocket(path: string): Promise<void> {
  const found = await lstat(path).catch(() => undefined);
  if (found === undefined) return;
  if (!found.isSocket()) throw new GatewayError("socket-path", "Something that is not a socket lies at the socket's path.");
  if (await isAlive(path)) throw new GatewayError("socket-taken", "Another running gateway uses this socket.");
  await rm(path, { force: true });
}

function isAlive(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", (error: NodeJS.ErrnoException) => {
      resolve(error.code !== "ECONNREFUSED" && error.code !== "ENOENT");
    });
  });
}
