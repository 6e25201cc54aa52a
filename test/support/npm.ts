// Owns: running npm from a script, with the npm and the Node that run this script. Leaves to others: what is run.

import { spawn } from "node:child_process";

/** The environment without the variables whose name matches. */
export function environmentWithout(pattern: RegExp, env: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(env).filter(([name]) => !pattern.test(name)));
}

/**
 * Runs npm in a folder. Rejects with the end of its output and the mend when it fails.
 * What `npm run` of this repository has set does not steer it in another one.
 */
export function runNpm(args: readonly string[], cwd: string, mend: string): Promise<void> {
  const env = environmentWithout(/^npm_(package_|lifecycle_|config_local_prefix$|config_workspace|config_global$)|^NODE_ENV$/i);
  const cli = process.env.npm_execpath;
  const isScript = cli !== undefined && /\.c?js$/.test(cli);
  // Without npm_execpath npm is found on the PATH; on Windows it is a .cmd file, which only a shell runs.
  const [command, first] = isScript ? [process.execPath, [cli]] : ["npm", []];
  return new Promise((done, failed) => {
    const shell = !isScript && process.platform === "win32";
    const child = spawn(command, [...first, ...args], { cwd, env, shell, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    const keep = (data: Buffer): void => {
      output = (output + data.toString()).slice(-6_000);
    };
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    const fail = (why: string): void =>
      failed(new Error(`\`npm ${args.join(" ")}\` ${why} in ${cwd}.\n${output}\n${mend} Then run the command again.`));
    child.once("error", (error) => fail(`could not be started (${error.message})`));
    child.once("close", (code, signal) => (code === 0 ? done() : fail(`ended with ${code ?? signal}`)));
  });
}
