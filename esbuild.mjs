// Builds what is shipped: dist/extension.js (small, quick to activate), dist/core.js (the heart, loaded after activation),
// dist/headless.js (the command line program) and dist/journal-worker.js (the journal's thread, started by the last two).
// With --watch it builds again on every change.
import * as esbuild from "esbuild";

const watch = process.argv.includes("--watch");

/** The extension takes its engine from the bundle beside it, at run time. */
const engineApart = {
  name: "engine-apart",
  setup(build) {
    build.onResolve({ filter: /\/engine\.ts$/ }, ({ kind }) =>
      kind === "dynamic-import" ? { path: "./core.js", external: true } : undefined,
    );
  },
};

const common = {
  bundle: true,
  platform: "node",
  target: "node22",
  format: "cjs",
  outdir: "dist",
  minify: !watch,
  sourcemap: watch,
  // Its entry for CommonJS loads its parts in a way that no bundler sees.
  alias: { "jsonc-parser": "jsonc-parser/lib/esm/main.js" },
  legalComments: "none",
  logLevel: "warning",
};

/** CommonJS has no import.meta: where the bundle lies is where the journal's thread is found. */
const besideBundle = { define: { "import.meta.dirname": "__dirname" } };

const builds = [
  { ...common, entryPoints: { extension: "src/extension.ts" }, external: ["vscode"], plugins: [engineApart] },
  { ...common, ...besideBundle, entryPoints: { core: "src/vscode/engine.ts" } },
  { ...common, ...besideBundle, entryPoints: { headless: "src/headless.ts" }, banner: { js: "#!/usr/bin/env node" } },
  { ...common, entryPoints: { "journal-worker": "src/operations/journal-worker.ts" } },
];

if (watch) {
  for (const build of builds) await (await esbuild.context(build)).watch();
} else {
  await Promise.all(builds.map((build) => esbuild.build(build)));
}
