import { request as httpRequest } from "node:http";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { prevention, ProviderLab } from "./provider-lab.ts";

/** What an agent at the gateway sees of a tool whose key the gateway supplies, in both eras. */

type Fields = Record<string, unknown>;

let lab: ProviderLab;
beforeEach(async () => {
  lab = await ProviderLab.http();
});
afterEach(() => lab.close());

async function post(headers: Record<string, string>, body: Fields): Promise<{ session: string | undefined; body: string }> {
  const { promise, resolve, reject } = Promise.withResolvers<{ session: string | undefined; body: string }>();
  const request = httpRequest(
    {
      socketPath: lab.core.gateway.listening.replace(/^unix:/, ""),
      path: lab.core.gateway.urlOf("hotel"),
      method: "POST",
      headers: { "content-type": "application/json", accept: "application/json, text/event-stream", ...headers },
    },
    (response) => {
      const session = response.headers["mcp-session-id"] as string | undefined;
      text(response).then((read) => resolve({ session, body: read }), reject);
    },
  );
  request.once("error", reject);
  request.end(JSON.stringify({ jsonrpc: "2.0", ...body }));
  return promise;
}

/** The JSON-RPC message of a JSON body or of the last event of a stream. */
function messageOf(body: string): { result: Fields } {
  const data = body.startsWith("{")
    ? body
    : (body
        .match(/^data: (\{.*)$/gm)
        ?.at(-1)
        ?.slice(6) ?? "");
  return JSON.parse(data) as { result: Fields };
}

const version = "io.modelcontextprotocol/protocolVersion";
const capabilities = "io.modelcontextprotocol/clientCapabilities";

const eras: Record<string, (method: string, params: Fields) => Promise<Fields>> = {
  "2025-11-25": async (method, params) => {
    const clientInfo = { name: "agent", version: "1" };
    const { session } = await post(
      {},
      { id: 1, method: "initialize", params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo } },
    );
    const headers = { "mcp-protocol-version": "2025-11-25", ...(session === undefined ? {} : { "mcp-session-id": session }) };
    return messageOf((await post(headers, { id: 2, method, params })).body).result;
  },
  "2026-07-28": async (method, params) => {
    const headers = {
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": method,
      ...(typeof params["name"] === "string" ? { "mcp-name": params["name"] } : {}),
    };
    const _meta = { [version]: "2026-07-28", [capabilities]: {} };
    return messageOf((await post(headers, { id: 2, method, params: { ...params, _meta } })).body).result;
  },
};

describe.each(Object.keys(eras))("an agent of %s", (era) => {
  const ask = (method: string, params: Fields): Promise<Fields> => eras[era]!(method, params);
  const create = async (): Promise<Fields> => {
    const { tools } = (await ask("tools/list", {})) as { tools: Fields[] };
    return tools.find((tool) => tool["name"] === "create_booking") ?? {};
  };
  const names = async (): Promise<string[]> =>
    Object.keys(((await create())["inputSchema"] as { properties: Fields }).properties).sort();

  it("does not see the argument that the gateway fills in, and everything else as the server lists it", async () => {
    expect(await names()).toEqual(["guest", "hotel", "night", "requestKey"]);
    lab.contractIs({ duplicatePrevention: prevention });
    expect(await names()).toEqual(["guest", "hotel", "night"]);
    const listed = lab.core.servers.get("hotel")?.tools.find((tool) => tool.name === "create_booking");
    expect(await create()).toMatchObject({ description: listed?.description, annotations: listed?.annotations });
    expect(listed?.inputSchema).toMatchObject({ properties: { requestKey: {} } });
  });

  it("sees it when the caller is to supply the key", async () => {
    lab.contractIs({ duplicatePrevention: { ...prevention, suppliedBy: "caller" } });
    expect(await names()).toContain("requestKey");
  });

  it("books under a key of the gateway's, whatever key it makes up", async () => {
    lab.contractIs({ duplicatePrevention: prevention });
    const args = { hotel: "Grand", night: "2026-12-24", guest: "Ada", requestKey: "fresh-each-time" };
    await ask("tools/call", { name: "create_booking", arguments: args });
    const [made] = lab.provider.bookings;
    expect(made?.requestKey).toMatch(/^[0-9a-f-]{36}$/);
  });
});
