// node oauth.mjs NODE_MODULES v1|v2 URL: the SDK's client connects by OAuth, and says in lines of JSON how it goes.
// It writes {authorize}, reads the address to which the browser came back, then lists the tools for each further line.
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const [modules, version, address] = process.argv.slice(2);
const judge = createRequire(join(modules, "client.js"));
const sdk = {
  v1: () => ({
    ...judge("@modelcontextprotocol/sdk/client/index.js"),
    ...judge("@modelcontextprotocol/sdk/client/streamableHttp.js"),
  }),
  v2: () => judge("@modelcontextprotocol/client"),
}[version]();
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const hear = async () => (await lines.next()).value;
const tell = (said) => console.log(JSON.stringify(said));

const redirectUrl = "http://127.0.0.1:33418/callback";
const kept = { saved: 0 };
const authProvider = {
  redirectUrl,
  clientMetadata: { client_name: `TypeScript ${version}`, redirect_uris: [redirectUrl] },
  state: () => "a state",
  clientInformation: () => kept.client,
  saveClientInformation: (client) => (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => Object.assign(kept, { tokens, saved: kept.saved + 1 }),
  redirectToAuthorization: (asked) => (kept.asked = String(asked)),
  saveCodeVerifier: (verifier) => (kept.verifier = verifier),
  codeVerifier: () => kept.verifier,
  invalidateCredentials: () => (kept.tokens = undefined),
};
const connect = async () => {
  const client = new sdk.Client({ name: "judge", version: "1" }, { versionNegotiation: { mode: "auto" } });
  const transport = new sdk.StreamableHTTPClientTransport(new URL(address), { authProvider });
  const failure = await client.connect(transport).then(() => null, (error) => error);
  return { client, transport, failure };
};

const turnedAway = await connect();
if (!kept.asked) throw turnedAway.failure;
tell({ authorize: kept.asked });
const { searchParams } = new URL(await hear());
await turnedAway.transport.finishAuth(version === "v1" ? searchParams.get("code") : searchParams);
const { client, failure } = await connect();
if (failure) throw failure;
do {
  kept.asked = undefined;
  const listed = await client.listTools().catch(() => ({ tools: [] }));
  tell({ tools: listed.tools.map(({ name }) => name), saved: kept.saved, asks: Boolean(kept.asked) });
} while (await hear());
process.exit();
