"""The memory of `deskhand up` over a day's work: it must stop growing.

    python3 run.py torture memory [--rounds N]

A demo desk runs in a process of its own; each round calls every hand a hundred times and opens the pages. Notes, tasks
and mails stay the same in number, so whatever grows from round to round is kept for nothing.
"""

import argparse
import asyncio
import logging
import os
import sys
import tempfile
from pathlib import Path

import httpx2
from mcp import Client

from tests.resident.test_up import entered, start
from tests.transports import http_client

CALLS = 100
PAGES = ("/", "/mail", "/notes", "/tasks", "/agents", "/timeline")
ALLOWED = 1.05
"""How much larger it may be at the end than after half of the rounds."""


async def work(assistant: Client, http: httpx2.AsyncClient, number: int) -> None:
    note = {
        "path": f"torture/{number % 10}.md",
        "frontmatter": {"round": number},
        "body": "word " * 2000,
    }
    await assistant.call_tool("write_note", note)
    await assistant.call_tool("read_note", {"path": note["path"]})
    await assistant.call_tool("search_notes", {"query": "word"})
    await assistant.call_tool("search_email", {"query": "a"})
    made = await assistant.call_tool(
        "create_task", {"title": f"task {number}", "description": "x" * 5000}
    )
    await assistant.call_tool("list_tasks", {})
    await assistant.call_tool(
        "delete_task", {"task_id": (made.structured_content or {})["id"]}
    )
    await http.get(PAGES[number % len(PAGES)])


def resident_megabytes(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


async def measure(rounds: int) -> list[float]:
    found: list[float] = []
    with tempfile.TemporaryDirectory() as place:
        environment = {name: os.environ[name] for name in ("PATH", "HOME")} | {
            "TMPDIR": place
        }
        desk = start(Path(place), environment, "--demo", "--port", "0")
        try:
            token = (desk.home / "token").read_text().strip()
            async with (
                entered(desk) as http,
                http_client(f"{desk.address}/mcp", token, "2026-07-28") as assistant,
            ):
                for turn in range(rounds):
                    for number in range(CALLS):
                        await work(assistant, http, turn * CALLS + number)
                    found.append(resident_megabytes(desk.process.pid))
                    print(
                        f"  {(turn + 1) * CALLS * 8:,} calls: {found[-1]:.0f} MB",
                        flush=True,
                    )
        finally:
            desk.close()
    return found


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--rounds", type=int, default=26)
    logging.disable(logging.WARNING)
    found = asyncio.run(measure(options.parse_args().rounds))
    half = found[len(found) // 2]
    print(f"{half:.0f} MB after half of it, {found[-1]:.0f} MB at the end")
    return found[-1] > half * ALLOWED


if __name__ == "__main__":
    sys.exit(main())
