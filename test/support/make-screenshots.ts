// Owns: the pictures of the README, taken from a real VS Code in which a booking really loses its answer: media/screenshots/*.png.
// Leaves to others: packaging the extension (`npm run package` first), the steps themselves (test/e2e/stage.ts).
//
// Usage: node test/support/make-screenshots.ts

import { mkdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { Stage } from "../e2e/stage.ts";
import { repositoryRoot } from "./paths.ts";

const folder = join(repositoryRoot, "media", "screenshots");
const LIMIT_BYTES = 150 * 1024;
/** Width of activity bar and side bar together. */
const WIDTH = 450;
const HEIGHT = 430;

async function main(): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const stage = await Stage.start({ servers: ["booking", "notes"], open: false });
  try {
    const { page } = await stage.open({ theme: "dark", scale: 2, viewport: { width: 1000, height: HEIGHT + 30 } });
    const { views } = stage;
    await views.open();
    await views.untilConnected("booking", "notes");
    const room = { hotel: "Hotel Astoria", night: "2026-12-24", guest: "Ada Lovelace" };
    await stage.loseCall("booking", "create_booking", room);
    await stage.callTool("booking", "create_booking", room);
    await stage.window.waitForNotification("was not sent");
    await stage.window.clearNotifications();

    const bar = await page.locator(".part.sidebar").boundingBox();
    if (bar === null) throw new Error("The side bar is not there.");
    const edge = bar.x + bar.width;
    await page.mouse.move(edge + 2, 200);
    await page.mouse.down();
    await page.mouse.move(WIDTH, 200, { steps: 5 });
    await page.mouse.up();
    await stage.trust("notes");
    await views.expand("Servers", /^notes$/);
    await views.untilBadge("1");
    await views.expand("Unresolved", "create_booking · booking");
    // Away from everything that shows more under the mouse.
    await page.mouse.move(WIDTH + 200, HEIGHT / 2);

    const path = join(folder, "unresolved.png");
    await page.screenshot({ path, animations: "disabled", clip: { x: 0, y: 30, width: WIDTH, height: HEIGHT - 30 } });
    const { size } = statSync(path);
    if (size > LIMIT_BYTES) throw new Error(`${path} has ${size} bytes; at most ${LIMIT_BYTES} are wanted.`);
    console.log(`${path}: ${size} bytes`);
  } finally {
    await stage.end();
  }
}

try {
  await main();
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
