// node clients.mjs NODE_MODULES v1|v2 SERVERS: what the SDK's client saw of each server, as JSON.
// SERVERS is {name: {command, args} or {url, token}, each with calls: [[tool, arguments], …]}.
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, version, given] = process.argv.slice(2);
const judge = createRequire(join(modules, "client.js"));
const sdk = {
  v1: () => ({
    ...judge("@modelcontextprotocol/sdk/client/index.js"),
    ...judge("@modelcontextprotocol/sdk/client/stdio.js"),
    ...judge("@modelcontextprotocol/sdk/client/streamableHttp.js"),
  }),
  v2: () => ({ ...judge("@modelcontextprotocol/client"), ...judge("@modelcontextprotocol/client/stdio") }),
}[version]();

const transport = ({ command, args, url, token }) =>
  url
    ? new sdk.StreamableHTTPClientTransport(new URL(url), {
        requestInit: { headers: { Authorization: `Bearer ${token}` } },
      })
    : new sdk.StdioClientTransport({ command, args, env: process.env });

const driven = async (server) => {
  const client = new sdk.Client({ name: "judge", version: "1" }, { versionNegotiation: { mode: "auto" } });
  await client.connect(transport(server));
  // Once the tools are listed, the client holds every result against the tool's output schema, and throws.
  const { tools } = await client.listTools();
  const results = [];
  for (const [name, input] of server.calls) results.push(await client.callTool({ name, arguments: input }));
  await client.close();
  return { tools: tools.length, results };
};

const servers = Object.entries(JSON.parse(given));
const seen = await Promise.all(servers.map(async ([name, server]) => [name, await driven(server)]));
console.log(JSON.stringify(Object.fromEntries(seen)));
