"""What listing and searching the local mailbox cost this checkout and another one, in CPU time.

Each version has a process and a mailbox of its own with the same mails; they are asked the same queries in turns,
so that whatever else the machine does meets both.

python3 run.py bench mail --beside CHECKOUT [--small]
"""

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

from bench.vaults import WORDS, vocabulary

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 30
MOST = 1.05
"""Of the other version's CPU time."""


class Side:
    """One version's process."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        paths = os.pathsep.join([str(checkout / "src"), str(ROOT)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.beside", str(folder / "mail.db")],
            env=os.environ | {"PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **what: Any) -> float:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(what), file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def compare(other: Path, sizes: tuple[int, ...]) -> int:
    """Print the medians, and their ratio; whether one of them is above the goal."""
    from bench.mail import questions

    words = vocabulary(random.Random(1))
    chance = random.Random(2)
    worst = 0.0
    print(
        f"{'µs of CPU: this, other, ratio':<24}" + "".join(f"{size:>22,}" for size in sizes)
    )
    rows: dict[str, str] = {}
    with both(other) as sides:
        for size in sizes:
            for side in sides:
                side.ask(fill=size)
            for name, queries in questions(chance, words).items():
                this, that = take_turns(sides, queries)
                worst = max(worst, this / that)
                rows[name] = (
                    rows.get(name, "") + f"{this:>9.0f}{that:>7.0f}{this / that:>6.2f}"
                )
    for name, row in rows.items():
        print(f"{name:<24}{row}")
    print(f"at most {worst:.2f} of the other version's (goal {MOST})")
    return worst > MOST


@contextmanager
def both(other: Path) -> Iterator[list[Side]]:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        sides = [Side(ROOT, Path(one)), Side(other, Path(two))]
        yield sides
        for side in sides:
            side.end()


def take_turns(sides: list[Side], queries: list[str]) -> list[float]:
    """The median of each side's rounds."""
    taken: list[list[float]] = [[] for _ in sides]
    for number in range(ROUNDS):
        turn = list(zip(sides, taken, strict=True))
        for side, figures in turn[:: (1, -1)[number % 2]]:
            figures.append(side.ask(search=queries))
    return [statistics.median(each) for each in taken]


async def serve(file: Path) -> None:
    """Do what the lines on stdin ask, and tell how many µs of CPU each query took."""
    from bench.mail import BATCH, NOW, letter
    from deskhand.mail.local import LocalMailbox

    mailbox = LocalMailbox(file, "me@example.com", lambda: NOW)
    chance = random.Random(1)
    words = vocabulary(chance)
    weights = list(accumulate(1 / (rank + 2.7) for rank in range(WORDS)))
    filled = 0
    for line in sys.stdin:
        asked = json.loads(line)
        began = time.process_time()
        for query in asked.get("search", []):
            await mailbox.search(query, 50)
        taken = time.process_time() - began
        while filled < asked.get("fill", 0):
            numbers = range(filled, filled + BATCH)
            await mailbox.receive(
                [letter(chance, words, weights, each) for each in numbers]
            )
            filled += BATCH
        print(taken * 1_000_000 / max(1, len(asked.get("search", []))), flush=True)
    await mailbox.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
