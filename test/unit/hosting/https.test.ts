import { once } from "node:events";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import tls from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { systemClock } from "../../../src/clock.ts";
import { HttpTransport } from "../../../src/hosting/http-transport.ts";
import { selfSigned } from "./fixtures/self-signed.ts";

async function started() {
  const { key, cert } = selfSigned();
  let requests = 0;
  let connections = 0;
  const server = createServer({ key, cert }, (request, response) => {
    requests++;
    let body = "";
    request.on("data", (chunk: Buffer) => (body += chunk.toString()));
    request.on("end", () => {
      const { id } = JSON.parse(body) as { id: string };
      if (id === "reset") return void request.socket.destroy();
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ jsonrpc: "2.0", id, result: {} }));
    });
  });
  server.on("secureConnection", () => connections++);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const transport = new HttpTransport({
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    headers: {},
    capabilities: {},
    clock: systemClock,
    random: Math.random,
    log: () => undefined,
  });
  onTestFinished(() => transport.close());
  const send = (id: string) => transport.exchange({ jsonrpc: "2.0", id, method: "tools/call" }, {}).ending;
  return { cert, send, requests: () => requests, connections: () => connections };
}

describe("over HTTPS", () => {
  it("a certificate that nobody vouches for stops the call before it leaves", async () => {
    const { send, requests } = await started();
    expect(await send("a")).toEqual({ kind: "loss", loss: { kind: "tls", stage: "not-sent" } });
    expect(requests()).toBe(0);
  });

  it("a call is answered when the host trusts the certificate, and the connection is kept", async () => {
    const { cert, send, requests, connections } = await started();
    const usual = tls.getCACertificates("default");
    tls.setDefaultCACertificates([...usual, cert]);
    onTestFinished(() => tls.setDefaultCACertificates(usual));
    expect(await send("a")).toMatchObject({ kind: "answer", httpStatus: 200 });
    expect(await send("b")).toMatchObject({ kind: "answer", httpStatus: 200 });
    expect(requests()).toBe(2);
    expect(connections()).toBe(1);
    expect(await send("reset")).toEqual({ kind: "loss", loss: { kind: "reset", stage: "sent" } });
    expect(requests()).toBe(3);
  });
});
