/**
 * Owns: how a client that was configured once finds the gateway of a window that runs now: a private folder with one small file for each
 * window, which names its socket. No secret is in it.
 * Leaves to others: the socket (gateway.ts), who may use it (tokens).
 */
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { isObject } from "./messages.ts";

/** Says that this process has a gateway at this socket or pipe. @returns takes it back */
export async function announceGateway(folder: string, socketPath: string): Promise<() => Promise<void>> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const file = join(folder, `${process.pid}.json`);
  const fresh = `${file}.new`;
  await writeFile(fresh, JSON.stringify({ socket: socketPath }), { mode: 0o600 });
  await rename(fresh, file);
  return () => rm(file, { force: true });
}

/** The socket of the window that started last among those whose gateway answers. What dead windows left behind is removed. */
export async function livingGateway(folder: string): Promise<string | undefined> {
  const names = (await readdir(folder).catch(() => [])).filter((name) => /^\d+\.json$/.test(name));
  const found = await Promise.all(
    names.map(async (name) => {
      const file = join(folder, name);
      try {
        const value: unknown = JSON.parse(await readFile(file, "utf8"));
        const socket = isObject(value) ? value["socket"] : undefined;
        return typeof socket === "string" ? { file, socket, at: (await stat(file)).mtimeMs } : undefined;
      } catch {
        return undefined;
      }
    }),
  );
  for (const one of found.filter((place) => place !== undefined).sort((a, b) => b.at - a.at)) {
    if (await answers(one.socket)) return one.socket;
    await rm(one.file, { force: true }).catch(() => undefined);
  }
  return undefined;
}

function answers(path: string): Promise<boolean> {
  return new Promise((done) => {
    const socket = connect(path);
    socket.once("connect", () => {
      socket.destroy();
      done(true);
    });
    socket.once("error", () => done(false));
  });
}
