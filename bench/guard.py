"""What the gate costs a call that passes, and what servers cost that nobody asks.

    python3 run.py bench guard

The same call on stdio to the server itself and through the running desk, in turns: to a server of a few lines, which
answers at once, and to one from npm. By a client that does nothing but read lines, and by the SDK's.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

from mcp import Client, StdioServerParameters

from tests.foreign.place import STRANGER
from tests.home import TOKEN
from tests.judges.node import NODE
from tests.resident.test_up import start
from torture.servers import PLACE, install

CALLS = 600
WARM = 50
IDLE = 20
SECONDS = 30
EVERYTHING = [
    str(NODE),
    str(
        PLACE
        / "node_modules"
        / "@modelcontextprotocol"
        / "server-everything"
        / "dist"
        / "index.js"
    ),
]
GREETING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


class Lines:
    """A client that reads and writes lines."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        )
        self.number = 0
        self.ask("initialize", GREETING)
        self.send({"method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> None:
        assert self.process.stdout
        self.number += 1
        self.send({"id": self.number, "method": method, "params": params})
        while json.loads(self.process.stdout.readline()).get("id") != self.number:
            pass

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def tell(what: str, itself: list[float], guarded: list[float]) -> None:
    direct = median(itself[WARM:]) * 1000
    through = median(guarded[WARM:]) * 1000
    pairs = median(b / a for a, b in zip(itself[WARM:], guarded[WARM:], strict=True))
    print(
        f"{what:44} {direct:7.2f} {through:7.2f} {through / direct:6.2f} {pairs:6.2f}",
        flush=True,
    )


def measure_lines(
    name: str, command: list[str], call: dict[str, Any], environment: dict[str, str]
) -> None:
    sides = [
        Lines(command, environment),
        Lines([sys.executable, "-m", "deskhand", "mcp", name], environment),
    ]
    taken: list[list[float]] = [[], []]
    for _ in range(CALLS + WARM):
        for side, times in zip(sides, taken, strict=True):
            began = time.perf_counter()
            side.ask("tools/call", call)
            times.append(time.perf_counter() - began)
    for side in sides:
        side.close()
    tell(f"{name}, plain lines", *taken)


async def measure_sdk(
    name: str, command: list[str], call: dict[str, Any], environment: dict[str, str]
) -> None:
    guarded = [sys.executable, "-m", "deskhand", "mcp", name]
    for mode in ("legacy", "auto"):
        taken: list[list[float]] = [[], []]
        async with AsyncExitStack() as stack:
            clients = []
            for words in (command, guarded):
                server = StdioServerParameters(
                    command=words[0], args=words[1:], env=environment
                )
                clients.append(await stack.enter_async_context(Client(server, mode=mode)))
            for _ in range(CALLS + WARM):
                for client, times in zip(clients, taken, strict=True):
                    began = time.perf_counter()
                    await client.call_tool(call["name"], call["arguments"])
                    times.append(time.perf_counter() - began)
        tell(f"{name}, the SDK's client, {mode}", *taken)


def cpu_of(processes: list[int]) -> float:
    """Seconds of CPU that they have used."""
    ticks = 0
    for each in processes:
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def find_children(process: int) -> list[int]:
    return [
        int(each)
        for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]


def measure_idle(folder: Path, environment: dict[str, str]) -> None:
    """A desk with none of them beside one with all of them, each left alone."""
    used = {}
    for count in (0, IDLE):
        home = folder / f"idle-{count}"
        home.mkdir()
        names = [f"s{number}" for number in range(count)]
        write_rules(
            home, {name: [sys.executable, str(STRANGER), str(folder)] for name in names}
        )
        desk = start(folder, environment | {"DESKHAND_HOME": str(home)}, "--port", "0")
        while len(children := find_children(desk.process.pid)) < count:
            time.sleep(0.2)
        time.sleep(5)
        processes = [desk.process.pid, *children[:count]]
        before = cpu_of(processes)
        time.sleep(SECONDS)
        used[count] = (cpu_of(processes) - before) / SECONDS * 100
        desk.close()
    print(
        f"idle, % of a core: the desk alone {used[0]:.2f}, with {IDLE} servers {used[IDLE]:.2f}",
        flush=True,
    )


def write_rules(home: Path, commands: dict[str, list[str]]) -> None:
    rule = 'tool = "*"\ndo = "pass"'
    text = ""
    for name, command in commands.items():
        text += f"[servers.{name}]\ncommand = {json.dumps(command)}\n[[servers.{name}.rules]]\n{rule}\n"
    (home / "guard.toml").write_text(text)


def main(argv: list[str]) -> int:
    if argv:
        sys.exit(__doc__)
    install()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home = folder / "home"
        home.mkdir()
        around = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        environment = around | {
            "DESKHAND_HOME": str(home),
            "SERVICE_AUTH_TOKEN": TOKEN,
            "TZ": "UTC",
        }
        echo = {"name": "echo", "arguments": {"text": "hello", "message": "hello"}}
        commands = {
            "stranger": [sys.executable, str(STRANGER), name],
            "everything": EVERYTHING,
        }
        write_rules(home, commands)
        desk = start(folder, environment, "--port", "0")
        print(
            f"{'a call that passes, p50 ms':44} {'itself':>7} {'guarded':>7} {'ratio':>6} {'pairs':>6}",
            flush=True,
        )
        for each, command in commands.items():
            measure_lines(each, command, echo, environment)
            asyncio.run(measure_sdk(each, command, echo, environment))
        desk.close()
        measure_idle(folder, environment)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
