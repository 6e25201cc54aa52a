import { describe, expect, it } from "vitest";
import {
  fingerprintOf,
  readDefinitions,
  sameDefinition,
  withSecrets,
  type ServerDefinition,
  type Variables,
} from "../../../src/hosting/definitions.ts";

const read = (input: unknown, variables: Partial<Variables> = {}) =>
  readDefinitions(input, "mcpSafeReplay.servers", { env: {}, ...variables });

describe("server definitions", () => {
  it("are read in mcp.json's shape", () => {
    const { definitions, problems } = read({
      a: { command: "node", args: ["x.js"], env: { A: "1" }, cwd: "/tmp" },
      b: { type: "http", url: "https://example.com/mcp", headers: { X: "y" } },
      c: { url: "http://127.0.0.1:1/mcp" },
      d: { type: "sse", url: "http://127.0.0.1:1/sse" },
    });
    expect(problems).toEqual([]);
    expect(Object.fromEntries(definitions)).toEqual({
      a: { type: "stdio", command: "node", args: ["x.js"], env: { A: "1" }, cwd: "/tmp" },
      b: { type: "http", url: "https://example.com/mcp", headers: { X: "y" } },
      c: { type: "http", url: "http://127.0.0.1:1/mcp", headers: {} },
      d: { type: "sse", url: "http://127.0.0.1:1/sse", headers: {} },
    });
  });

  it.each<[string, unknown, string, string]>([
    ["no command and no url", {}, "s", "needs 'command'"],
    ["an unknown type", { type: "pipe", command: "x" }, "s.type", "must be 'stdio', 'http' or 'sse'"],
    ["an empty command", { command: "" }, "s.command", "must name a program"],
    ["args that are no list", { command: "x", args: "y" }, "s.args", "array"],
    ["an argument that is no text", { command: "x", args: ["a", 1] }, "s.args.1", "string"],
    ["an environment value that is no text", { command: "x", env: { A: 1 } }, "s.env.A", "string"],
    ["an unknown key", { command: "x", argz: [] }, "s", "does not know 'argz'"],
    ["a url that is none", { url: "nonsense" }, "s.url", "http:// or https://"],
    ["an authorisation with an unknown key", { url: "https://x.example/", oauth: { client: "x" } }, "s.oauth", "'client'"],
    [
      "a metadata document over plain http",
      { url: "https://x.example/", oauth: { clientMetadataUrl: "http://x.example/c" } },
      "s.oauth.clientMetadataUrl",
      "https:// URL",
    ],
    ["a scope with a blank", { url: "https://x.example/", oauth: { scopes: ["a b"] } }, "s.oauth.scopes.0", "without blanks"],
    [
      "an account without credentials",
      { url: "https://x.example/", oauth: { grant: "client-credentials", clientId: "x" } },
      "s.oauth",
      "needs 'clientId' and 'clientSecret'",
    ],
    ["a url of another scheme", { url: "file:///etc/passwd" }, "s.url", "http:// or https://"],
    ["text instead of an object", "node x.js", "s", "must be an object"],
    ["an unknown variable", { command: "${nonsense}" }, "s.command", "does not know the variable ${nonsense}"],
    ["an unset environment variable", { command: "x", env: { A: "${env:NOT_SET}" } }, "s.env.A", "NOT_SET is not set"],
    ["a workspace folder without a workspace", { command: "${workspaceFolder}/x" }, "s.command", "needs an open folder"],
  ])("with %s are refused with the place and the mend", (_, definition, place, message) => {
    const { definitions, problems } = read({ s: definition, good: { command: "x" } });
    expect([...definitions.keys()]).toEqual(["good"]);
    expect(problems).toHaveLength(1);
    expect(problems[0]?.place).toBe(`mcpSafeReplay.servers.${place}`);
    expect(problems[0]?.message).toContain(message);
  });

  it("are refused under a name that could not be part of a URL or a tool id", () => {
    for (const name of ["", ".x", "a/b", "a b", "ä", "x".repeat(65)])
      expect(read({ [name]: { command: "x" } }).problems).toHaveLength(1);
    expect(read(JSON.parse('{"__proto__":{"command":"x"}}')).definitions.size).toBe(1);
    expect(read([]).problems[0]?.message).toContain("must be an object");
  });

  it("resolve ${workspaceFolder} and ${env:NAME} everywhere", () => {
    const { definitions } = read(
      { s: { command: "${workspaceFolder}/bin", args: ["--x=${env:X}"], env: { Y: "${env:X}" } } },
      { workspaceFolder: "/w", env: { X: "1" } },
    );
    expect(definitions.get("s")).toEqual({ type: "stdio", command: "/w/bin", args: ["--x=1"], env: { Y: "1" } });
  });

  it("have a fingerprint that any change changes, and the order of keys does not", () => {
    const one: ServerDefinition = { type: "stdio", command: "a", args: ["b"], env: { X: "1", Y: "2" } };
    const variants: ServerDefinition[] = [
      { ...one, command: "c" },
      { ...one, args: ["b", "c"] },
      { ...one, env: { X: "1", Y: "3" } },
      { ...one, cwd: "/x" },
      { type: "http", url: "http://a/", headers: {} },
      { type: "sse", url: "http://a/", headers: {} },
      { type: "http", url: "http://a/", headers: { A: "b" } },
    ];
    expect(new Set([one, ...variants].map(fingerprintOf)).size).toBe(variants.length + 1);
    expect(fingerprintOf({ env: { Y: "2", X: "1" }, args: ["b"], command: "a", type: "stdio" })).toBe(fingerprintOf(one));
  });

  it("resolve ${userHome}", () => {
    const { definitions } = read({ s: { command: "${userHome}/bin/s" } }, { userHome: "/home/ada" });
    expect(definitions.get("s")).toMatchObject({ command: "/home/ada/bin/s" });
  });

  it("take variables from an env file; their own come before it", () => {
    const files: Record<string, string> = { "/w/.env": "# ours\nA=1\nexport B='two words'\nC=3\n" };
    const { definitions, problems } = read(
      {
        s: { command: "x", envFile: "${workspaceFolder}/.env", env: { C: "own" } },
        t: { command: "x", envFile: "/w/missing" },
      },
      { workspaceFolder: "/w", readFile: (path) => files[path] },
    );
    expect(definitions.get("s")).toEqual({ type: "stdio", command: "x", args: [], env: { A: "1", B: "two words", C: "own" } });
    expect(problems).toEqual([
      { place: "mcpSafeReplay.servers.t.envFile", message: "names a file that cannot be read (/w/missing)" },
    ]);
  });

  it("read no env file that is not a plain file", () => {
    expect(read({ s: { command: "x", envFile: "/dev/zero" } }).problems).toHaveLength(1);
    expect(read({ s: { command: "x", envFile: "/" } }).problems).toHaveLength(1);
  });
});

describe("inputs in a definition", () => {
  const remote = { s: { url: "https://x.example/${input:region}", headers: { Authorization: "Bearer ${input:token}" } } };
  const withValues = (values: Record<string, string>) => ({
    input: (id: string) => (["token", "region"].includes(id) ? { value: values[id], secret: id === "token" } : undefined),
  });

  it("without a value let the server wait, without a complaint", () => {
    const { definitions, waiting, problems } = read(remote, withValues({ region: "eu" }));
    expect([definitions.size, problems, [...waiting]]).toEqual([0, [], [["s", ["token"]]]]);
  });

  it("that are secrets stay apart until the server is started or reached", () => {
    const definition = read(remote, withValues({ region: "eu", token: "s3cret" })).definitions.get("s")!;
    const { secrets, ...open } = definition;
    expect(JSON.stringify(open)).not.toContain("s3cret");
    expect(open).toMatchObject({ url: "https://x.example/eu", headers: { Authorization: "Bearer ${input:token}" } });
    expect(secrets).toEqual({ "${input:token}": "s3cret" });
    expect(withSecrets(definition)).toEqual({
      type: "http",
      url: "https://x.example/eu",
      headers: { Authorization: "Bearer s3cret" },
    });
  });

  it("keep a client secret apart, wherever it comes from", () => {
    const at = (clientSecret: string): ServerDefinition | undefined =>
      read(
        { a: { url: "https://x.example/mcp", oauth: { clientId: "us", clientSecret } } },
        { input: (id) => (id === "secret" ? { value: "hush", secret: true } : undefined), env: { SECRET: "hush" } },
      ).definitions.get("a");
    for (const written of ["hush", "${env:SECRET}", "${input:secret}"]) {
      const definition = at(written);
      const { secrets: _, ...open } = definition ?? {};
      expect(JSON.stringify(open)).not.toContain("hush");
      expect(definition && withSecrets(definition)).toMatchObject({ oauth: { clientId: "us", clientSecret: "hush" } });
    }
  });

  it("a new secret is another connection, but no other server to be trusted; any other value is", () => {
    const one = read(remote, withValues({ region: "eu", token: "a" })).definitions.get("s")!;
    const other = read(remote, withValues({ region: "eu", token: "b" })).definitions.get("s")!;
    const elsewhere = read(remote, withValues({ region: "us", token: "a" })).definitions.get("s")!;
    expect(sameDefinition(one, other)).toBe(false);
    expect(fingerprintOf(one)).toBe(fingerprintOf(other));
    expect(fingerprintOf(one)).not.toBe(fingerprintOf(elsewhere));
  });

  it("that are secrets may not choose the program, its folder or a file", () => {
    for (const field of ["command", "cwd", "envFile"]) {
      const { problems } = read({ s: { command: "x", [field]: "${input:token}" } }, withValues({ token: "/bin/sh" }));
      expect(problems).toEqual([
        { place: `mcpSafeReplay.servers.s.${field}`, message: "must not use an input that is a password" },
      ]);
    }
  });

  it("that nobody declared are a mistake", () => {
    expect(read({ s: { command: "${input:nobody}" } }, withValues({})).problems[0]?.message).toBe("there is no input 'nobody'");
    expect(read({ s: { command: "${input:token}" } }).problems[0]?.message).toContain(
      "does not know the variable ${input:token}",
    );
  });
});
