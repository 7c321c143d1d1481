"""The card in the chat, in a host of MCP Apps that others wrote: it shows the request, opens its page, answers nothing.

    python3 run.py torture apps

The host is the kit of those who made MCP Apps (npm `@modelcontextprotocol/ext-apps`), in a real Chromium. From inside
the App every tool of the desk is called that there is.
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.servers.chat import CARD
from deskhand.servers.desk import desk_server
from tests.judges.conftest import judged_home
from tests.test_chat import HELLO, ORIGIN
from tests.web.browser import chromium

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".judges" / "apps"
PACKAGES = ("@modelcontextprotocol/ext-apps@2.0.4", "esbuild@0.25.12")
HOST = ROOT / "tests" / "judges" / "host.mjs"
FAILED: list[str] = []
CALL = """async ([name, given]) => {
  const id = Math.floor(Math.random() * 1e9);
  const answered = new Promise((resolve) => {
    const hear = ({ data }) => data.id === id && (removeEventListener("message", hear), resolve(data));
    addEventListener("message", hear);
  });
  parent.postMessage({ jsonrpc: "2.0", id, method: "tools/call", params: { name, arguments: given } }, "*");
  return answered;
}"""


def report(what: str, *, works: bool, why: object = "") -> None:
    print(f"{'ok  ' if works else 'FAIL'}  {what}", flush=True)
    if not works:
        FAILED.append(what)
        print(str(why)[-1500:], flush=True)


def bundle_host() -> Path:
    """The host as one script, made once."""
    made = PLACE / "host.js"
    PLACE.mkdir(parents=True, exist_ok=True)
    if not (PLACE / "node_modules" / "esbuild").is_dir():
        quiet = (
            "--silent",
            "--no-audit",
            "--no-fund",
            "--no-package-lock",
            "--prefix",
            PLACE,
        )
        subprocess.run(["npm", "install", *quiet, *PACKAGES], check=True, timeout=300)
    source = shutil.copy(HOST, PLACE)
    bundler = PLACE / "node_modules" / ".bin" / "esbuild"
    subprocess.run(
        [
            bundler,
            source,
            "--bundle",
            "--format=iife",
            "--log-level=error",
            f"--outfile={made}",
        ],
        check=True,
    )
    return made


def guess_arguments(schema: dict[str, Any], waits: str) -> dict[str, Any]:
    """Something for each argument that a tool needs; what may name a request names the one that waits."""
    kinds: dict[str, Any] = {
        "string": waits,
        "integer": 1,
        "number": 1,
        "boolean": True,
        "array": [waits],
        "object": {},
    }
    needed = set(schema.get("required", ())) | {"id", "request"} & set(
        schema.get("properties", {})
    )
    return {
        name: kinds.get(str(schema["properties"][name].get("type")), waits)
        for name in needed
    }


async def judge(desk: Desk, host: Path) -> None:
    server = desk_server(desk)
    async with Client(server, mode="2026-07-28") as client, chromium() as browser:
        (card,) = (await client.read_resource(CARD)).contents
        refused = (await client.call_tool("send_email", HELLO)).model_dump(
            mode="json", by_alias=True
        )
        ((request, *_), _) = await desk.waiting.requests(limit=5)
        page = await browser.new_page()

        async def ask_desk(given: dict[str, Any]) -> dict[str, Any]:
            answered = await client.call_tool(given["name"], given.get("arguments") or {})
            return answered.model_dump(mode="json", by_alias=True, exclude_none=True)

        await page.expose_function("desk", ask_desk)
        await page.add_script_tag(path=host)
        await page.evaluate("html => window.show(html)", card.text)
        await page.evaluate(
            "given => window.bridge.sendToolInput({ arguments: given })", HELLO
        )
        await page.evaluate("given => window.bridge.sendToolResult(given)", refused)
        frame = page.frame_locator("iframe")
        await frame.get_by_text("It waits for your answer on your desk.").wait_for()
        shown = await frame.locator("dd").all_text_contents()
        report(
            "the request is shown as it is", works=shown == list(HELLO.values()), why=shown
        )
        await frame.get_by_role("button", name="Open it on your desk").click()
        await page.wait_for_function("window.heard.length > 0")
        heard = await page.evaluate("window.heard")
        report(
            "it opens the card",
            works=heard == [["open", f"{ORIGIN}/requests/{request.id}"]],
            why=heard,
        )
        tools = (await client.list_tools()).tools
        for each in tools:
            given = guess_arguments(each.input_schema, request.id)
            await page.frames[1].evaluate(CALL, [each.name, given])
        found = await desk.waiting.find(request.id)
        called = [
            name for what, name in await page.evaluate("window.heard") if what == "call"
        ]
        kept = (found.state, found.digest, found.revision) == (
            "waiting",
            request.digest,
            request.revision,
        )
        report(
            f"{len(called)} of {len(tools)} tools called from the App answer nothing",
            works=kept,
            why=found,
        )
        sent = await desk.mailbox.search("in:sent", 5)
        report("and nothing left", works=len(called) == len(tools) and not sent, why=sent)


def main(argv: list[str]) -> int:
    if argv:
        sys.exit(__doc__)
    host = bundle_host()
    with tempfile.TemporaryDirectory() as folder:
        home = judged_home(Path(folder))
        desk = Desk(load(home.environment | {"DESKHAND_ORIGIN": ORIGIN}).settings)
        asyncio.run(judge(desk, host))
        desk.close()
    print(f"{len(FAILED)} failed")
    return int(bool(FAILED))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
