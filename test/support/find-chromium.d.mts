// Owns: the types of find-chromium.mjs, which stays plain JavaScript because it runs before the dependencies are there.

export declare const CHROMIUM_MEND: string;
export declare function findChromium(env?: NodeJS.ProcessEnv): string | undefined;
