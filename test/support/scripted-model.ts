// Owns: the scripted language model as a test sees it: its VSIX and what it was asked. Leaves to others: its behaviour
// (scripted-model/extension.js), the Chat view (chromium.ts).

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createVSIX } from "@vscode/vsce";
import { repositoryRoot } from "./paths.ts";

/** One request to the model, as it writes them to the file `SCRIPTED_MODEL_LOG`. */
export interface ModelRequest {
  /** What the person typed. */
  readonly prompt: string;
  /** Texts of the tool results that came with it, exactly as the model gets them. */
  readonly results: readonly string[];
  /** Names of the offered tools. */
  readonly tools: readonly string[];
}

/** Packages the scripted model as a VSIX into `folder` and returns its path. */
export async function packageScriptedModel(folder: string): Promise<string> {
  const packagePath = join(folder, "scripted-model.vsix");
  const cwd = join(repositoryRoot, "test", "support", "scripted-model");
  await createVSIX({ cwd, packagePath, dependencies: false, allowMissingRepository: true, skipLicense: true });
  return packagePath;
}

/** The model's requests so far, from the file that `SCRIPTED_MODEL_LOG` named in `startVsCode({env})`. */
export function readModelLog(file: string): ModelRequest[] {
  if (!existsSync(file)) return [];
  return readFileSync(file, "utf8")
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line) as ModelRequest);
}
