// node client.mjs NODE_MODULES COMMAND ARGS…: a note that is missing, then one written and read, as JSON.
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, command, ...args] = process.argv.slice(2);
const judge = createRequire(join(modules, "client.js"));
const { Client } = judge("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = judge("@modelcontextprotocol/sdk/client/stdio.js");

const client = new Client({ name: "judge", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
const call = (name, input) => client.callTool({ name, arguments: input });

// Once the tools are listed, the client holds every result against the tool's output schema.
const { tools } = await client.listTools();
const missing = await call("read_note", { path: "Inbox/none.md" });
const note = { path: "Inbox/a.md", frontmatter: { status: "new" }, body: "Grüße, 世界\n" };
const written = await call("write_note", note);
const read = await call("read_note", { path: note.path });
await client.close();
console.log(JSON.stringify({ tools: tools.length, missing, note, written, read }));
