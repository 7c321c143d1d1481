"""Other people's servers, as npm and PyPI have them, behind the gate: what they say through the desk is their own.

`python3 run.py torture servers` brings them, and calls every tool of more of them.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.foreign.place import Guarded, LineClient, guarded, without_own
from tests.judges.node import MODULES, NODE
from tests.requirements import requirement

pytestmark = pytest.mark.anyio
PLACE = MODULES.parent / "foreign"
NPM = PLACE / "node_modules" / "@modelcontextprotocol" / "server-filesystem" / "dist"
PYTHON = PLACE / "python" / "bin" / "python"
TIME = PLACE / "mcp-server-time==2026.10.19"
"""Is there where that server from PyPI is installed."""
TOKYO = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}


def needs(*files: Path) -> pytest.MarkDecorator:
    missing = [str(each) for each in files if not each.exists()]
    why = f"no {', no '.join(missing)}: `run.py torture servers` brings it"
    return pytest.mark.skipif(bool(missing), reason=why)


def guard(place: Guarded, command: list[str], passed: str) -> None:
    text = f"[servers.stranger]\ncommand = {json.dumps(command)}\n"
    rule = f'[[servers.stranger.rules]]\ntool = "{passed}"\ndo = "pass"\n'
    (place.home / "guard.toml").write_text(text + rule)


async def ask_both(
    place: Guarded, command: list[str], *calls: tuple[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """What came of each request through the desk, which is what the server itself answers."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    direct = LineClient(process.stdout, process.stdin, "legacy")
    await direct.greet()
    async with place.line("legacy") as client:
        answers = [await client.ask(method, **params) for method, params in calls]
        for answer, (method, params) in zip(answers, calls, strict=True):
            assert without_own(answer) == await direct.ask(method, **params), method
    await direct.close()
    await process.wait()
    return answers


@requirement("guard:real")
@needs(NODE, NPM)
async def test_a_server_from_npm_answers_through_the_desk_as_by_itself(
    tmp_path: Path,
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.txt").write_text("hello\n")
    command = [str(NODE), str(NPM / "index.js"), str(files)]
    read = {"name": "read_text_file", "arguments": {"path": str(files / "a.txt")}}
    outside = {"name": "read_text_file", "arguments": {"path": "/etc/passwd"}}
    written = {"path": str(files / "b.txt"), "content": "new"}
    async with guarded(tmp_path) as place:
        guard(place, command, "read_*")
        calls = [("tools/list", {}), ("tools/call", read), ("tools/call", outside)]
        listed, found, refused = await ask_both(place, command, *calls)
        async with place.line("legacy") as client:
            waits = await client.ask("tools/call", name="write_file", arguments=written)
            assert not (files / "b.txt").exists()
            await place.approve()
            done = await client.ask("tools/call", name="write_file", arguments=written)
    assert {"read_text_file", "write_file"} <= {
        each["name"] for each in listed["result"]["tools"]
    }
    assert found["result"]["content"][0]["text"] == "hello\n"
    assert refused["result"]["isError"]
    assert waits["result"]["isError"]
    assert not done["result"].get("isError")
    assert (files / "b.txt").read_text() == "new"


@requirement("guard:real")
@needs(PYTHON, TIME)
async def test_a_server_from_pypi_answers_through_the_desk_as_by_itself(
    tmp_path: Path,
) -> None:
    command = [str(PYTHON), "-m", "mcp_server_time", "--local-timezone", "UTC"]
    converted = {"name": "convert_time", "arguments": TOKYO}
    wrong = {"name": "convert_time", "arguments": TOKYO | {"time": "noon"}}
    async with guarded(tmp_path) as place:
        guard(place, command, "*")
        calls = [("tools/list", {}), ("tools/call", converted), ("tools/call", wrong)]
        listed, found, refused = await ask_both(place, command, *calls)
    assert "convert_time" in {each["name"] for each in listed["result"]["tools"]}
    assert "T21:00:00+09:00" in found["result"]["content"][0]["text"]
    assert refused["result"]["isError"]
