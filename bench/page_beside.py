"""What the pages cost this checkout and another one, in CPU time and until the answer is there.

Each version has a process of its own, with a desk that its own bench fills in the same way; they are asked for the same
pages in turns, so that whatever else the machine does meets both. Who asks is a socket, which costs next to nothing.
Each runs on what its own .venv has: another version may need other packages. `python3 run.py --help` there builds it.

python3 run.py bench page --beside CHECKOUT [--rounds N] [--waiting N] [--lines N]
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EACH = 3
"""Requests for one page, before the other side has its turn."""
WARM = 3
MOST = 1.05
"""Of the other version's time."""


class Side:
    """One version's process, with a desk that is served."""

    def __init__(self, checkout: Path, folder: str, lines: int, waiting: int) -> None:
        python = checkout / ".venv" / "bin" / "python"
        if not python.exists():
            sys.exit(
                f"there is no {python}: `python3 run.py --help` in that checkout builds it"
            )
        paths = os.pathsep.join([str(checkout / "src"), str(checkout)])
        self._process = subprocess.Popen(
            [python, __file__, folder, str(lines), str(waiting)],
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> None:
        """Until the desk is filled and served."""
        self._read()

    def ask(self, path: str) -> dict[str, float]:
        assert self._process.stdin
        print(json.dumps(path), file=self._process.stdin, flush=True)
        return self._read()

    def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            sys.exit("a side ended early; what it said stands above")
        return json.loads(line)


def compare(other: Path, paths: tuple[str, ...], rounds: int, given: dict[str, int]) -> int:
    """Print the medians, and their ratios; whether one of them is above the goal."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        sides = [Side(ROOT, one, **given), Side(other.resolve(), two, **given)]
        for side in sides:
            side.wait()
        print(f"{'this, other, ratio':<43}{'ms of CPU':>22}{'ms until it is there':>24}")
        ratios = [ratio for path in paths for ratio in _show(sides, path, rounds)]
        for side in sides:
            side.end()
    print(f"at most {max(ratios):.2f} of the other version's (goal {MOST})")
    return int(max(ratios) > MOST)


def _show(sides: list[Side], path: str, rounds: int) -> list[float]:
    row = f"{path:<43}"
    ratios = []
    for what, (this, that) in take_turns(sides, path, rounds).items():
        width = {"cpu": 10, "wall": 12}[what]
        row += f"{this:>{width}.2f}{that:>6.2f}{this / that:>6.2f}"
        ratios.append(this / that)
    print(row, flush=True)
    return ratios


def take_turns(sides: list[Side], path: str, rounds: int) -> dict[str, list[float]]:
    """The medians of both sides, of CPU and of time."""
    taken: list[list[dict[str, float]]] = [[] for _ in sides]
    for number in range(rounds):
        turn = list(zip(sides, taken, strict=True))
        for side, figures in turn[:: (1, -1)[number % 2]]:
            figures.append(side.ask(path))
    return {
        what: [
            statistics.median(each[what] for each in figures[WARM:]) for figures in taken
        ]
        for what in ("cpu", "wall")
    }


async def serve(folder: Path, lines: int, waiting: int) -> None:
    """Answer the paths that come on stdin with what asking for them cost."""
    # Of the checkout whose side this is, as this file may be of the other.
    from bench.page import filled, served, signed_in, site

    desk = await filled(folder / "desk", lines, waiting)
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        cookies = "; ".join(f"{each.name}={each.value}" for each in person.http.cookies.jar)
        host = address.removeprefix("http://")
        client = Client(host, cookies, *await asyncio.open_connection(*host.split(":")))
        print("{}", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await measure(client, json.loads(line))), flush=True)
        client.end()
    desk.close()


async def measure(client: "Client", path: str) -> dict[str, float]:
    """Milliseconds of CPU and of time for one answer: the mean of some, and their median."""
    walls = []
    began = time.process_time()
    for _ in range(EACH):
        asked = time.perf_counter()
        await client.get(path)
        walls.append(time.perf_counter() - asked)
    cpu = (time.process_time() - began) / EACH
    return {"cpu": cpu * 1000, "wall": statistics.median(walls) * 1000}


class Client:
    """A connection that is kept."""

    def __init__(
        self,
        host: str,
        cookies: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._head = f"Host: {host}\r\nCookie: {cookies}\r\n\r\n"
        self._reader = reader
        self._writer = writer

    async def get(self, path: str) -> None:
        self._writer.write(f"GET {path} HTTP/1.1\r\n{self._head}".encode())
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), (path, head)
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        await self._reader.readexactly(int(length))

    def end(self) -> None:
        self._writer.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
