// node waiting.mjs NODE_MODULES first|new URL TOKEN ARGUMENTS [TOOL]: calls the tool, else send_email, as a task, and
// waits for its end. It says "task ID" when it has the handle, and then what came of it, as JSON. `first` is the
// client 1.x with the tasks of 2025-11-25, `new` the package of the extension over the client 2.x.
// Then "leave": it goes away with the handle; or the handle: it is back, and waits for that one.
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, kind, url, token, letter, tool = "send_email", then] = process.argv.slice(2);
const load = (...path) => import(pathToFileURL(join(modules, "@modelcontextprotocol", ...path)));
const headers = { Authorization: `Bearer ${token}` };
const input = JSON.parse(letter);
const said = (task) => {
  console.log(`task ${task}`);
  if (then === "leave") process.exit();
};

const waitWithSdk = async () => {
  const { Client } = await load("sdk", "dist", "esm", "client", "index.js");
  const { StreamableHTTPClientTransport } = await load("sdk", "dist", "esm", "client", "streamableHttp.js");
  const client = new Client({ name: "judge", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  await client.listTools();
  const { CallToolResultSchema: shape } = await load("sdk", "dist", "esm", "types.js");
  let ended = then && then !== "leave" && await client.experimental.tasks.getTaskResult(then, shape);
  if (!ended) for await (const each of client.experimental.tasks.callToolStream({ name: tool, arguments: input })) {
    if (each.type === "taskCreated") said(each.task.taskId);
    ended = each.result ?? { error: each.error?.message };
  }
  const { tasks } = await client.experimental.tasks.listTasks();
  await client.close();
  return { ...ended, listed: tasks.length };
};

const waitWithExtension = async () => {
  const { Client, StreamableHTTPClientTransport } = await load("client", "dist", "index.mjs");
  const tasks = await load("ext-tasks", "dist", "client", "index.js");
  const capabilities = { extensions: { "io.modelcontextprotocol/tasks": {} } };
  const me = { name: "judge", version: "1" };
  const client = new Client(me, { capabilities, versionNegotiation: { mode: "auto" } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  const framing = { protocolVersion: "2026-07-28", clientInfo: me, clientCapabilities: capabilities };
  const dispatch = async (request) => {
    const sent = {
      ...headers,
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": request.method,
      "mcp-name": request.params.taskId ?? request.params.name ?? "",
    };
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, ...request });
    const text = await (await fetch(url, { method: "POST", headers: sent, body })).text();
    return JSON.parse(text.slice(text.indexOf("{")));
  };
  const raw = { rawDispatch: dispatch, v2RequestFraming: framing };
  const session = tasks.createTaskSessionFromClient(client, { endpointId: "desk", ...raw });
  const kept = { endpointId: "desk", generation: "v2", taskId: then, originalOperation: "tools/call" };
  const execution = await (then && then !== "leave" ? session.resumeTask(kept) : session.callTool(tool, input));
  said(execution.handle.taskId);
  const { outcome } = await execution.settle();
  await session.close();
  await client.close();
  return tasks.resultFromTaskOutcome(outcome);
};

console.log(JSON.stringify(await (kind === "first" ? waitWithSdk() : waitWithExtension())));
