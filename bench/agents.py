"""Measure agent mail: what history costs, what durability costs, what MCP costs, and what a hook costs.

Rates of the disk vary from minute to minute on a shared machine, so each is taken in turns with the one it is held
against, and ratios are what counts.
"""

import argparse
import asyncio
import fcntl
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from mcp import Client, StdioServerParameters

from deskhand.agents.files import FilesRoom
from deskhand.agents.lines import encode_message
from deskhand.agents.mail import AgentMessage, timestamp

AGENTMAIL = str(Path(sys.executable).with_name("agentmail"))
HISTORIES = (0, 1_000, 10_000, 100_000)
TIME = timestamp(1_700_000_000_000_000_000)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--pairs", type=int, default=200)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="dh") as folder:
        root = Path(folder)
        checks = {
            "receive behind 100,000 read messages takes at most 1.5 times as long": history(
                root, options.rounds
            ),
            "the store reaches at least 0.5 of flock + append + fdatasync": limit(
                root, options.rounds
            ),
            "a hook without mail takes at most 3 times as long as python -c pass": hook(
                root
            ),
            "every message over MCP came exactly once": asyncio.run(
                over_mcp(root, options.pairs)
            ),
        }
    for name, held in checks.items():
        print(f"{'ok    ' if held else 'FAILED'} {name}")
    return 0 if all(checks.values()) else 1


def history(root: Path, rounds: int) -> bool:
    """Receive, in turns, from mailboxes with ever more history."""
    rooms = {}
    for size in HISTORIES:
        box = root / f"history{size}" / ".agentmail" / "mailboxes" / "b.jsonl"
        box.parent.mkdir(parents=True)
        box.write_bytes(
            encode_message(AgentMessage("read0000", "a", "b", "x" * 100, TIME, read=True))
            * size
        )
        rooms[size] = FilesRoom(str(root / f"history{size}"))
        rooms[size].take("b")
    times: dict[int, list[float]] = {size: [] for size in HISTORIES}
    for number in range(rounds):
        for size, room in rooms.items():
            room.append(AgentMessage(f"new{number:05}", "a", "b", "hello", TIME))
            times[size].append(timed(lambda room=room: room.take("b")))
    medians = {size: statistics.median(values) for size, values in times.items()}
    for size in HISTORIES:
        ratio = medians[size] / medians[0]
        print(
            f"receive with {size:>7,} read messages: p50 {1000 * medians[size]:.3f} ms, {ratio:.2f} of none"
        )
    return medians[HISTORIES[-1]] <= 1.5 * medians[0]


def limit(root: Path, rounds: int) -> bool:
    """Send and receive in turns with the bare loop that is the limit of one durable append."""
    room, bare = FilesRoom(str(root / "limit")), root / "bare"
    line = encode_message(AgentMessage("id000000", "a", "b", "x" * 100, TIME))

    def append() -> None:
        fd = os.open(bare, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(fd, line)
        os.fdatasync(fd)
        os.close(fd)

    def send() -> None:
        room.append(AgentMessage("id000000", "a", "b", "x" * 100, TIME))

    work: dict[str, Callable[[], object]] = {
        "bare": append,
        "send": send,
        "receive": lambda: room.take("b"),
    }
    spent = dict.fromkeys(work, 0.0)
    for _ in range(rounds):
        for name, step in work.items():
            spent[name] += timed(step)
    rates = {name: rounds / seconds for name, seconds in spent.items()}
    for name, rate in rates.items():
        print(f"{name}: {rate:,.0f}/s, {rate / rates['bare']:.2f} of the limit")
    return min(rates["send"], rates["receive"]) >= 0.5 * rates["bare"]


def hook(root: Path) -> bool:
    repository, variables = workplace(root / "hook")
    calls = [[AGENTMAIL, "receive", "--hook"], [sys.executable, "-c", "pass"]]

    def seconds(call: list[str]) -> float:
        return timed(
            lambda: subprocess.run(call, env=variables, cwd=repository, check=True)
        )

    pairs = [[seconds(call) for call in calls] for _ in range(30)]
    hooked, bare = (statistics.median(times) for times in zip(*pairs, strict=True))
    print(
        f"hook without mail: {1000 * hooked:.1f} ms, python -c pass: {1000 * bare:.1f} ms, {hooked / bare:.2f} times"
    )
    return hooked <= 3 * bare


async def over_mcp(root: Path, pairs: int) -> bool:
    """Two agents outside tmux, each with its own server on stdio."""
    repository, variables = workplace(root / "mcp")
    servers = [
        StdioServerParameters(
            command=AGENTMAIL,
            args=["mcp"],
            env=variables | {"DESKHAND_AGENT": name},
            cwd=repository,
        )
        for name in ("ann", "bob")
    ]
    async with Client(servers[0]) as ann, Client(servers[1]) as bob:
        await bob.call_tool("receive", {})
        sent: list[str] = []
        got: list[str] = []

        async def send(number: int) -> None:
            answer = await ann.call_tool(
                "send", {"recipient": "bob", "message": f"message {number}"}
            )
            sent.append(json.loads(answer.content[0].text)["message_id"])

        async def receive() -> None:
            answer = await bob.call_tool("receive", {})
            got.append(json.loads(answer.content[0].text)["id"])

        started = time.perf_counter()
        for number in range(pairs):
            await send(number)
            await receive()
        told(f"{pairs} pairs, one after the other", pairs, started)

        async def some(first: int) -> None:
            for number in range(first, first + pairs // 4):
                await send(number)

        started = time.perf_counter()
        await asyncio.gather(*(some(sender * pairs) for sender in range(4)))
        told("sends by four at once", pairs // 4 * 4, started)
        started = time.perf_counter()
        waiting = len(sent) - len(got)
        for _ in range(waiting):
            await receive()
        told("receives that drain the mailbox", waiting, started)
    return sorted(sent) == sorted(got) and len(set(got)) == len(got)


def workplace(root: Path) -> tuple[Path, dict[str, str]]:
    root.mkdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    plain = {
        "PATH": os.environ["PATH"],
        "HOME": str(root),
        "DESKHAND_HOME": str(root / "home"),
    }
    return root, plain | {"MCP_LOG_LEVEL": "WARNING", "DESKHAND_AGENT": "bob"}


def told(what: str, count: int, started: float) -> None:
    print(f"MCP on stdio, {what}: {count / (time.perf_counter() - started):,.0f}/s")


def timed(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
