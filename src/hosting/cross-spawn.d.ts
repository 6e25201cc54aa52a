/** Owns: the one call of cross-spawn that is used here. The package carries no types of its own. */
declare module "cross-spawn" {
  import type { ChildProcess, SpawnOptions } from "node:child_process";
  export default function spawn(command: string, args: readonly string[], options: SpawnOptions): ChildProcess;
}
