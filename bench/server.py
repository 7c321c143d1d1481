"""What DeskServer costs over the bare SDK: start-up of a stdio server, and one trivial call on stdio and HTTP.

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
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

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
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}


def start_up(command: list[str], environment: dict[str, str]) -> float:
    """Seconds from the start of the process to its answer to tools/list."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(f"{json.dumps(INITIALIZE)}\n{json.dumps(LIST)}\n")
        process.stdin.flush()
        while "tools" not in json.loads(process.stdout.readline()).get("result", {}):
            pass
        took = time.perf_counter() - began
        process.kill()
    return took


def start_ups(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "vault").mkdir()
        environment = os.environ | {"VAULT_PATH": f"{place}/vault", "DESKHAND_HOME": f"{place}/home"}
        bare = [sys.executable, "-c", BARE + STDIO]
        notes = [sys.executable, "-m", "deskhand", "mcp", "obsidian"]
        times = [(start_up(bare, environment), start_up(notes, environment)) for _ in range(rounds)]
    return compared("start-up to tools/list, stdio", times[1:], goal=1.3)


def joined(rounds: int, calls: int) -> list[dict[str, Any]]:
    """A server on stdio that joins the running desk: against an empty Python, a bare server, and itself alone."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        (Path(place) / "vault").mkdir()
        environment = os.environ | {"VAULT_PATH": f"{place}/vault", "DESKHAND_HOME": f"{place}/home"}
        environment |= {"DESKHAND_ADDRESS": "me@example.org"}
        command = [sys.executable, "-m", "deskhand", "up", "--no-browser", "--json", "--port", "0"]
        desk = stack.enter_context(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        )
        stack.callback(desk.terminate)
        assert desk.stdout
        desk.stdout.readline()
        notes = [str(Path(sys.executable).with_name("deskhand")), "mcp", "obsidian"]
        bare = [sys.executable, "-c", BARE + STDIO]
        times = [(run_empty(), start_up(notes, environment), start_up(bare, environment)) for _ in range(rounds)]
        empty, ours, others = (statistics.median(side) * 1000 for side in zip(*times[1:], strict=True))
        found = [
            {
                "what": "joined start-up / empty Python",
                "bare_ms": empty,
                "ours_ms": ours,
                "ratio": ours / empty,
                "goal": 3,
            },
            {
                "what": "joined start-up / bare server",
                "bare_ms": others,
                "ours_ms": ours,
                "ratio": ours / others,
                "goal": 1 / 6,
            },
        ]
        found.append(anyio.run(joined_calls, notes, environment, calls))
        print(f"memory: a joined server {memory(notes, environment):.1f} MB", file=sys.stderr)
        print(f"        one by itself {memory([*notes, '--alone'], environment):.1f} MB", file=sys.stderr)
    return found


def run_empty() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - began


def memory(command: list[str], environment: dict[str, str]) -> float:
    """Megabytes that the process has for itself when it has answered tools/list."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(f"{json.dumps(INITIALIZE)}\n{json.dumps(LIST)}\n")
        process.stdin.flush()
        while "tools" not in json.loads(process.stdout.readline()).get("result", {}):
            pass
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.kill()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


async def joined_calls(notes: list[str], environment: dict[str, str], rounds: int) -> dict[str, Any]:
    alone = StdioServerParameters(command=notes[0], args=[*notes[1:], "--alone"], env=environment)
    piped = StdioServerParameters(command=notes[0], args=notes[1:], env=environment)
    times = []
    async with Client(alone) as itself, Client(piped) as joined:
        await itself.call_tool("write_note", {"path": "a.md", "frontmatter": {}, "body": "hello"})
        for _ in range(rounds):
            pair = []
            for client in (itself, joined):
                began = time.perf_counter()
                await client.call_tool("read_note", {"path": "a.md"})
                pair.append(time.perf_counter() - began)
            times.append((pair[0], pair[1]))
    return compared("read_note joined / by itself", times[rounds // 10 :], goal=1.3)


@asynccontextmanager
async def stdio_client(code: str):
    async with Client(StdioServerParameters(command=sys.executable, args=["-c", code + STDIO])) as client:
        yield client


@asynccontextmanager
async def http_client(code: str):
    with ExitStack() as stack:
        command = [sys.executable, "-c", code + HTTP]
        process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
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


def compared(name: str, times: list[tuple[float, float]], goal: float) -> dict[str, Any]:
    bare, ours = (statistics.median(side) * 1000 for side in zip(*times, strict=True))
    return {"what": name, "bare_ms": bare, "ours_ms": ours, "ratio": ours / bare, "goal": goal}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    rows = [start_ups(options.rounds), *joined(options.rounds, options.calls // 4)]
    rows += [
        anyio.run(calls, name, way, options.calls) for name, way in (("stdio", stdio_client), ("HTTP", http_client))
    ]
    if options.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            figures = f"{row['bare_ms']:9.2f} {row['ours_ms']:9.2f} {row['ratio']:6.2f}  (at most {row['goal']})"
            print(f"{row['what']:<32}{figures}")
    return int(any(row["ratio"] > row["goal"] for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
