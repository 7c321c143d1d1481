// A host of MCP Apps as the kit of those who made them has it, bundled for a page: it shows an App in a sandboxed frame.
// What the App asks for goes to `window.desk`, which is the test; what it asked for is in `window.heard`.
import { AppBridge, PostMessageTransport } from "@modelcontextprotocol/ext-apps/app-bridge";

window.heard = [];
window.show = async (html) => {
  const frame = document.createElement("iframe");
  frame.sandbox = "allow-scripts";
  frame.title = "App";
  document.body.append(frame);
  const bridge = new AppBridge(null, { name: "host", version: "1" }, { openLinks: {}, serverTools: {}, logging: {} });
  bridge.onopenlink = async ({ url }) => (window.heard.push(["open", url]), {});
  bridge.oncalltool = async (params) => (window.heard.push(["call", params.name]), window.desk(params));
  bridge.onmessage = async (params) => (window.heard.push(["message", params]), {});
  const ready = new Promise((resolve) => (bridge.oninitialized = resolve));
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  frame.srcdoc = html;
  await ready;
  window.bridge = bridge;
};
