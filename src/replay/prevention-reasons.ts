/**
 * Owns: every reason for which a duplicate-prevention contract does not cover a further attempt, in words. Nothing else, so that a view
 * can show them without the reader of contracts.
 */
export const preventionReasons = {
  "no-contract": "no duplicate-prevention contract covers this tool",
  "promises-missing": "the contract does not declare all five promises",
  "no-key": "the first attempt carried no key in the argument that the contract names",
  "window-over": "the provider may have forgotten the key by now",
  "clock-moved": "the clock went back since the first attempt",
  "not-a-connection-loss": "the loss was a timeout, a cancellation, a stop or a redirect",
  "workspace-not-trusted": "the workspace is not trusted",
  "attempts-used-up": "all attempts are used up",
  "tool-gone": "the server no longer lists the tool",
  "schema-changed": "the tool's input schema changed",
  "server-changed": "another server answers there now",
} as const;
export type PreventionReason = keyof typeof preventionReasons;
