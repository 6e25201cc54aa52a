/**
 * Owns: that no server process outlives this program, however it ends: a small shell beside it that knows the groups of the running
 * servers and ends them when this program is gone without having done so itself (killed, crashed).
 * Leaves to others: starting and ending servers (child-process.ts), which is the usual way.
 *
 * How: the guard reads its stdin, whose other end only this program holds. The end of it, without a word before, means that this program
 * is gone. It runs only while servers do. On Windows there is none: there a server ends when its stdin is closed.
 */
import { spawn, type ChildProcess } from "node:child_process";

/** Between SIGTERM and SIGKILL, in seconds. */
const graceSeconds = 2;

/** `+ID` and `-ID` add and remove a group, `.` ends the guard. Group ids are numbers: nothing else ever gets in here. */
const script = `
groups=" "
while IFS= read -r line; do
  case "$line" in
    +*) groups="$groups\${line#+} " ;;
    -*) id="\${line#-}"; case "$groups" in *" $id "*) groups="\${groups%% $id *} \${groups#* $id }" ;; esac ;;
    .) exit 0 ;;
  esac
done
for id in $groups; do kill -TERM "-$id" 2>/dev/null; done
[ "$groups" = " " ] || sleep ${graceSeconds}
for id in $groups; do kill -KILL "-$id" 2>/dev/null; done
`;

let guard: ChildProcess | undefined;
const guarded = new Set<number>();

/** From now on the process group `pid` is ended when this program is gone. */
export function guardGroup(pid: number): void {
  if (process.platform === "win32") return;
  guarded.add(pid);
  guard ??= startGuard();
  guard?.stdin?.write(`+${pid}\n`);
}

/** The group ended by itself, or was ended here. */
export function releaseGroup(pid: number): void {
  if (!guarded.delete(pid) || guard === undefined) return;
  if (guarded.size > 0) {
    guard.stdin?.write(`-${pid}\n`);
    return;
  }
  guard.stdin?.end(".\n");
  guard = undefined;
}

function startGuard(): ChildProcess | undefined {
  // In a group of its own: what ends this program's group must not end the guard.
  const child = spawn("/bin/sh", ["-c", script], {
    stdio: ["pipe", "ignore", "ignore"],
    detached: true,
    env: { PATH: process.env["PATH"] },
  });
  child.on("error", () => {
    // Without a shell servers still end with their stdin.
    if (guard === child) guard = undefined;
  });
  child.on("exit", () => {
    if (guard === child) guard = undefined;
  });
  child.stdin.on("error", () => undefined);
  child.unref();
  const pipe = child.stdin as typeof child.stdin & { unref?(): void };
  pipe.unref?.();
  for (const pid of guarded) child.stdin.write(`+${pid}\n`);
  return child;
}
