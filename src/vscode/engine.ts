/**
 * Owns: what the extension takes from the heart at run time. It is bundled apart (dist/core.js) and loaded after activation, because
 * the SDKs are heavy; everything else in src/vscode takes only types and small pure functions from the heart.
 * Leaves to others: when it is loaded (core-host.ts). Imports nothing of VS Code.
 */
import { AjvJsonSchemaValidator } from "@modelcontextprotocol/client/validators/ajv";

export { createCore } from "../gateway/core.ts";
export { fingerprintOf, readDefinitions } from "../hosting/definitions.ts";
export { readInputs } from "./sources/input-definitions.ts";
export { importPlan, readClientFile, switchedOff, switchOffWords } from "./sources/import-formats.ts";
export { readServersFile, serverPlaces } from "./sources/servers-file.ts";
export { announceGateway } from "../gateway/meeting-place.ts";
export { exportCsv, exportJsonl } from "../operations/export.ts";
export { verdictText } from "../operations/verify.ts";
export { verifyInThread } from "../operations/worker-journal.ts";
export { contractFingerprint, marginMs, missingPromises, readContracts, withoutKeyArgument } from "../replay/contracts.ts";
export { lookupArguments } from "../replay/lookup.ts";
export { whatIfLost } from "../replay/what-if-lost.ts";
export { defaultReplaySettings } from "../replay/settings.ts";

const validator = new AjvJsonSchemaValidator();

/**
 * Why the arguments do not fit the tool's input schema, in one line; undefined when they do. A schema that is itself no good judges
 * nothing: the server has the last word.
 */
export function argumentsMistake(
  inputSchema: Record<string, unknown> | undefined,
  args: Record<string, unknown>,
): string | undefined {
  if (inputSchema === undefined) return undefined;
  try {
    const verdict = validator.getValidator(inputSchema)(args);
    return verdict.valid ? undefined : verdict.errorMessage.replace(/\bdata(?=[/ ])/g, "arguments");
  } catch {
    return undefined;
  }
}
