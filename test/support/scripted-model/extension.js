// Owns: a language model whose answers the prompt dictates (README.md says how), for tests of VS Code's own agent mode.
// Leaves to others: the chat view that asks it (chromium.ts), the tools that it calls.

"use strict";

const { appendFileSync } = require("node:fs");
const vscode = require("vscode");

const MODEL = {
  id: "scripted-1",
  name: "Scripted",
  family: "scripted",
  version: "1",
  maxInputTokens: 1_000_000,
  maxOutputTokens: 100_000,
  capabilities: { toolCalling: true, imageInput: false },
};

let calls = 0;

/** The text of a part, or of the parts inside a tool's result. */
function textOf(part) {
  if (typeof part === "string") return part;
  if (part instanceof vscode.LanguageModelToolResultPart) return part.content.map(textOf).join("");
  return typeof part?.value === "string" ? part.value : "";
}

/** What the person typed last: the text inside `<userRequest>`, or all of it when there is no such tag. */
function lastRequest(messages) {
  for (const message of messages.toReversed()) {
    if (message.role !== vscode.LanguageModelChatMessageRole.User) continue;
    const text = message.content
      .filter((part) => !(part instanceof vscode.LanguageModelToolResultPart))
      .map(textOf)
      .join("\n");
    const tagged = [...text.matchAll(/<userRequest>([\s\S]*?)<\/userRequest>/g)].at(-1);
    if (tagged) return tagged[1].trim();
  }
  const last = messages.findLast((message) => message.role === vscode.LanguageModelChatMessageRole.User);
  return last ? last.content.map(textOf).join("\n").trim() : "";
}

/** Results of tools that came after the last thing the model said; with one, this is the second half of a turn. */
function freshResults(messages) {
  const results = [];
  for (const message of messages.toReversed()) {
    if (message.role === vscode.LanguageModelChatMessageRole.Assistant) break;
    results.unshift(...message.content.filter((part) => part instanceof vscode.LanguageModelToolResultPart));
  }
  return results;
}

/** How many tools the model has called in this turn: its own messages since the last one with text of the person's. */
function callsInTurn(messages) {
  let count = 0;
  for (const message of messages.toReversed()) {
    if (message.role === vscode.LanguageModelChatMessageRole.Assistant)
      count += message.content.filter((part) => part instanceof vscode.LanguageModelToolCallPart).length;
    else if (message.content.some((part) => !(part instanceof vscode.LanguageModelToolResultPart))) break;
  }
  return count;
}

/** One answer: the parts to report. */
function answer(messages, tools) {
  const results = freshResults(messages);
  const prompt = lastRequest(messages);
  const insists = prompt.startsWith("insist ") && callsInTurn(messages) < 2;
  if (results.length > 0 && !insists) return new vscode.LanguageModelTextPart(`RESULT: ${results.map(textOf).join("\n")}`);
  if (prompt === "tools") return new vscode.LanguageModelTextPart(`TOOLS: ${tools.map((tool) => tool.name).join(" ")}`);
  const call = /^(?:call|insist)\s+(\S+)\s*([\s\S]*)$/.exec(prompt);
  if (!call) return new vscode.LanguageModelTextPart(`ECHO: ${prompt.slice(0, 200)}`);
  const tool = tools.find((offered) => new RegExp(call[1]).test(offered.name));
  if (!tool) return new vscode.LanguageModelTextPart(`NO TOOL: none of ${tools.length} offered tools matches ${call[1]}`);
  let input;
  try {
    input = call[2] ? JSON.parse(call[2]) : {};
  } catch (error) {
    return new vscode.LanguageModelTextPart(`BAD JSON: ${error.message}`);
  }
  calls += 1;
  return new vscode.LanguageModelToolCallPart(`scripted-call-${calls}`, tool.name, input);
}

function record(entry) {
  const file = process.env.SCRIPTED_MODEL_LOG;
  if (file) appendFileSync(file, `${JSON.stringify(entry)}\n`);
}

exports.activate = (context) => {
  context.subscriptions.push(
    vscode.lm.registerLanguageModelChatProvider("scripted", {
      provideLanguageModelChatInformation: () => [{ ...MODEL, isUserSelectable: true, isDefault: true }],
      provideLanguageModelChatResponse: async (_model, messages, options, progress) => {
        const tools = options.tools ?? [];
        const part = answer(messages, tools);
        record({
          prompt: lastRequest(messages),
          results: freshResults(messages).map(textOf),
          tools: tools.map((tool) => tool.name),
        });
        progress.report(part);
      },
      provideTokenCount: async (_model, text) =>
        Math.ceil((typeof text === "string" ? text : text.content.map(textOf).join("")).length / 4),
    }),
  );
};
