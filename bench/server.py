"""What DeskServer costs over the bare SDK, and what a server on stdio costs that joins the running desk.

Both sides run interleaved in one go; the ratio of the medians counts. Goals: start-up 1.3, calls 1.15.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

from deskhand.app import Desk
from deskhand.config import load
from deskhand.servers.obsidian import obsidian_server

BARE = """
import sys, anyio
from mcp.server import MCPServer
from pydantic import BaseModel

class Answer(BaseModel):
    text: str

def echo(text: str) -> Answer:
    "Give it back."
    return Answer(text=text)

server = MCPServer("bare")
for name in ("echo", "two", "three", "four", "five"):
    server.add_tool(echo, name=name)
"""
OURS = """
import sys, anyio
from deskhand.servers.server import DeskServer
from deskhand.servers.tool import READS, tool
from pydantic import BaseModel

class Answer(BaseModel):
    text: str

def echo(text: str) -> Answer:
    "Give it back."
    return Answer(text=text)

names = ("echo", "two", "three", "four", "five")
server = DeskServer("ours", [tool(echo, name=name, title="Echo", annotations=READS) for name in names])
"""
STDIO = "anyio.run(server.run_stdio_async)"
HTTP = """
import socket, uvicorn
listener = socket.create_server(("127.0.0.1", 0))
listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
print(listener.getsockname()[1], file=sys.stderr, flush=True)
config = uvicorn.Config(server.streamable_http_app(), log_config=None, access_log=False)
anyio.run(uvicorn.Server(config).serve, [listener])
"""
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}


@contextmanager
def listed(command: list[str], environment: dict[str, str]):
    """A server process that has answered tools/list."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(f"{json.dumps(INITIALIZE)}\n{json.dumps(LIST)}\n")
        process.stdin.flush()
        while "tools" not in json.loads(process.stdout.readline()).get("result", {}):
            pass
        yield process
        process.kill()


def start_up(command: list[str], environment: dict[str, str]) -> float:
    """Seconds from the start of the process to its answer to tools/list."""
    began = time.perf_counter()
    with listed(command, environment):
        return time.perf_counter() - began


def start_ups(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "vault").mkdir()
        environment = os.environ | {
            "VAULT_PATH": f"{place}/vault",
            "DESKHAND_HOME": f"{place}/home",
        }
        bare = [sys.executable, "-c", BARE + STDIO]
        notes = [sys.executable, "-m", "deskhand", "mcp", "obsidian"]
        times = [
            (start_up(bare, environment), start_up(notes, environment))
            for _ in range(rounds)
        ]
    return compared("start-up to tools/list, stdio", times[1:], goal=1.3)


def joined(rounds: int, calls: int) -> list[dict[str, Any]]:
    """A server on stdio that joins the running desk: against an empty Python, a bare server, and servers of its own."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        (Path(place) / "vault").mkdir()
        environment = os.environ | {
            "VAULT_PATH": f"{place}/vault",
            "DESKHAND_HOME": f"{place}/home",
        }
        environment |= {"DESKHAND_ADDRESS": "me@example.org", "MCP_LOG_LEVEL": "WARNING"}
        command = [
            sys.executable,
            "-m",
            "deskhand",
            "up",
            "--no-browser",
            "--json",
            "--port",
            "0",
        ]
        desk = stack.enter_context(
            subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        )
        stack.callback(desk.terminate)
        assert desk.stdout
        desk.stdout.readline()
        notes = [str(Path(sys.executable).with_name("deskhand")), "mcp", "obsidian"]
        bare = [sys.executable, "-c", BARE + STDIO]
        times = [
            (run_empty(), start_up(notes, environment), start_up(bare, environment))
            for _ in range(rounds)
        ]
        empty, ours, others = zip(*times[1:], strict=True)
        return [
            compared(
                "joined start-up / empty Python",
                list(zip(empty, ours, strict=True)),
                goal=3,
            ),
            compared(
                "joined start-up / bare server",
                list(zip(others, ours, strict=True)),
                goal=1 / 6,
            ),
            *anyio.run(joined_calls, notes, environment, calls),
            *memories(notes, environment, desk.pid),
        ]


def run_empty() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - began


def memories(
    notes: list[str], environment: dict[str, str], desk: int
) -> list[dict[str, Any]]:
    """One joined server against what it may take, and ten clients with a server each against ten that join."""
    with listed(notes, environment) as process:
        one = megabytes(process.pid, "status", "VmRSS:")
    by_itself = ten_clients([*notes, "--alone"], environment, desk)
    together = ten_clients(notes, environment, desk)
    return [
        {
            "what": "memory of a joined server",
            "peer": 15.0,
            "ours": one,
            "ratio": one / 15,
            "goal": 1,
            "unit": "MB",
        },
        {
            "what": "ten clients joined / by themselves",
            "peer": by_itself,
            "ours": together,
            "ratio": together / by_itself,
            "goal": 0.5,
            "unit": "MB",
        },
    ]


def ten_clients(command: list[str], environment: dict[str, str], desk: int) -> float:
    """Megabytes of ten servers and the desk beside them; what several share counts once."""
    with ExitStack() as stack:
        servers = [stack.enter_context(listed(command, environment)).pid for _ in range(10)]
        return sum(megabytes(each, "smaps_rollup", "Pss:") for each in (desk, *servers))


def megabytes(process: int, file: str, name: str) -> float:
    text = Path(f"/proc/{process}/{file}").read_text()
    return int(text.partition(name)[2].split()[0]) / 1024


async def joined_calls(
    notes: list[str], environment: dict[str, str], rounds: int
) -> list[dict[str, Any]]:
    """Through the pipe, to a process of its own, and to the same server inside this process; in turns."""
    alone = StdioServerParameters(
        command=notes[0], args=[*notes[1:], "--alone"], env=environment
    )
    piped = StdioServerParameters(command=notes[0], args=notes[1:], env=environment)
    desk = Desk(load(environment).settings)
    times = []
    async with (
        Client(obsidian_server(desk)) as inside,
        Client(alone) as itself,
        Client(piped) as joined,
    ):
        await itself.call_tool(
            "write_note", {"path": "a.md", "frontmatter": {}, "body": "hello"}
        )
        sides = (inside, itself, joined)
        for number in range(rounds):
            took = [0.0, 0.0, 0.0]
            for side in (number % 3, (number + 1) % 3, (number + 2) % 3):
                began = time.perf_counter()
                await sides[side].call_tool("read_note", {"path": "a.md"})
                took[side] = time.perf_counter() - began
            times.append(took)
    desk.close()
    kept = times[rounds // 10 :]
    return [
        compared(
            "read_note joined / by no transport",
            [(inside, ours) for inside, _, ours in kept],
            goal=None,
        ),
        compared(
            "read_note joined / by itself",
            [(itself, ours) for _, itself, ours in kept],
            goal=1.3,
        ),
    ]


@asynccontextmanager
async def stdio_client(code: str):
    async with Client(
        StdioServerParameters(command=sys.executable, args=["-c", code + STDIO])
    ) as client:
        yield client


@asynccontextmanager
async def http_client(code: str):
    with ExitStack() as stack:
        command = [sys.executable, "-c", code + HTTP]
        process = stack.enter_context(
            subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        )
        stack.callback(process.terminate)
        assert process.stderr
        port = process.stderr.readline().strip()
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            yield client


async def calls(name: str, connect: Any, rounds: int) -> dict[str, Any]:
    async with connect(BARE) as bare, connect(OURS) as ours:
        times = []
        for number in range(rounds):
            pair = []
            # Turn about, so that neither side always follows the other.
            for client in (bare, ours) if number % 2 else (ours, bare):
                began = time.perf_counter()
                await client.call_tool("echo", {"text": "hello"})
                pair.append(time.perf_counter() - began)
            times.append((pair[0], pair[1]) if number % 2 else (pair[1], pair[0]))
    return compared(f"trivial call, {name}", times[rounds // 10 :], goal=1.15)


def compared(
    name: str, times: list[tuple[float, float]], goal: float | None
) -> dict[str, Any]:
    bare, ours = (statistics.median(side) * 1000 for side in zip(*times, strict=True))
    return {
        "what": name,
        "peer": bare,
        "ours": ours,
        "ratio": ours / bare,
        "goal": goal,
        "unit": "ms",
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    rows = [start_ups(options.rounds), *joined(options.rounds, options.calls // 4)]
    rows += [
        anyio.run(calls, name, way, options.calls)
        for name, way in (("stdio", stdio_client), ("HTTP", http_client))
    ]
    if options.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            figures = (
                f"{row['peer']:9.2f} {row['ours']:9.2f} {row['unit']} {row['ratio']:6.2f}"
            )
            limit = f"  (at most {row['goal']:.2f})" if row["goal"] else ""
            print(f"{row['what']:<36}{figures}{limit}")
    return int(any(row["goal"] and row["ratio"] > row["goal"] for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
