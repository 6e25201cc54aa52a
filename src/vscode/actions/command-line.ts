/**
 * Owns: taking a command line apart into a program and its arguments: blanks separate, single and double quotes hold together, a
 * backslash inside double quotes protects a quote or a backslash. Pure; nothing is expanded, and no shell is ever involved.
 */
export function splitCommandLine(line: string): string[] {
  const words: string[] = [];
  let word: string | undefined;
  let quote: string | undefined;
  for (let index = 0; index < line.length; index += 1) {
    const char = line.charAt(index);
    if (quote !== undefined) {
      const next = line.charAt(index + 1);
      if (char === quote) quote = undefined;
      else if (quote === '"' && char === "\\" && (next === '"' || next === "\\")) {
        word = (word ?? "") + next;
        index += 1;
      } else word = (word ?? "") + char;
    } else if (char === '"' || char === "'") {
      quote = char;
      word ??= "";
    } else if (/\s/.test(char)) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else {
      word = (word ?? "") + char;
    }
  }
  if (word !== undefined) words.push(word);
  return words;
}
