/** Owns: how parts of the hosting layer write to a server's log. Lines hold no arguments, no headers, no answers. */
import type { ServerLogLine } from "./hosted-server.ts";

export type Log = (level: ServerLogLine["level"], text: string) => void;
