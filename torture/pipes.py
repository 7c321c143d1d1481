"""Kill pipes and desks under load: what was answered is there, nothing is there twice, and nothing is left over.

python3 run.py torture pipes [--pipes 1000] [--desks 50] [--clients 6] [--seed N]

Each client starts `deskhand mcp NAME`, asks for a task, a note or a mail, and is killed at a random moment of most
calls. Meanwhile the desk is killed and started again; every third time it is asked to end. A mail that was not
answered is asked for again: one request for it waits in the end. A task that was not answered is not asked for again.
"""

import argparse
import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

DESKHAND = Path(sys.executable).with_name("deskhand")
PATIENCE = 90
"""Seconds after which an answer is called lost."""
INITIALIZE = {
    "method": "initialize",
    "id": 0,
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "torture", "version": "1"},
    },
}
SERVERS = {"tasks": "create_task", "obsidian": "write_note", "email": "send_email"}


class Ended(Exception):
    """The pipe has ended before it answered."""


@dataclass
class Seen:
    """What the clients saw, and what was done to them."""

    answered: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str) -> int:
        with self.lock:
            self.counts[what] += 1
            return self.counts[what]


class Desk:
    """A desk that is killed and started again."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "DESKHAND_HOME": str(place / "home"),
            "VAULT_PATH": str(place / "vault"),
            "DESKHAND_ADDRESS": "me@example.org",
            "DESKHAND_USER": "me",
            "MCP_LOG_LEVEL": "ERROR",
        }
        (place / "vault").mkdir()
        self.generation = 0
        self.start()

    def start(self) -> None:
        command = [str(DESKHAND), "up", "--no-browser", "--json", "--port", "0"]
        with (self.place / "said").open("a") as said:
            self.process = subprocess.Popen(
                command,
                env=self.environment,
                cwd=self.place,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
        assert self.process.stdout
        if not self.process.stdout.readline():
            raise RuntimeError((self.place / "said").read_text()[-2000:])

    def end(self, by: signal.Signals) -> int:
        self.generation += 1
        self.process.send_signal(by)
        code = self.process.wait(timeout=60)
        assert self.process.stdout
        self.process.stdout.close()
        return code

    @property
    def open_files(self) -> Counter[str]:
        """What kinds of file the desk has open."""
        kinds: Counter[str] = Counter()
        for each in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(OSError):
                kinds[str(each.readlink()).partition(":")[0]] += 1
        return kinds


class PipeClient:
    """A client of `deskhand mcp NAME`, with nothing between it and the bytes."""

    def __init__(self, desk: Desk, server: str) -> None:
        self.process = subprocess.Popen(
            [str(DESKHAND), "mcp", server],
            env=desk.environment,
            cwd=desk.place,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._rest = b""

    def ask(self, message: dict[str, object]) -> None:
        assert self.process.stdin
        try:
            self.process.stdin.write(
                json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n"
            )
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Ended from None

    def answer(self, within: float = PATIENCE) -> dict[str, object] | None:
        """The next answer; None where none came in that time."""
        assert self.process.stdout
        until = time.monotonic() + within
        while b"\n" not in self._rest:
            ready, _, _ = select.select(
                [self.process.stdout], [], [], max(0, until - time.monotonic())
            )
            if not ready:
                return None
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise Ended
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def close(self, *, kill: bool) -> str:
        """What it said on stderr."""
        if kill:
            self.process.kill()
        with suppress(BrokenPipeError):
            _, said = self.process.communicate(timeout=PATIENCE)
            return said.decode()
        return ""


def arguments_of(server: str, name: str) -> dict[str, object]:
    match server:
        case "tasks":
            return {"title": name}
        case "obsidian":
            return {"path": f"{name}.md", "frontmatter": {}, "body": name * 50}
        case _:
            return {"to": "ann@example.org", "subject": name, "body": name}


def make_calls(desk: Desk, seen: Seen, options: argparse.Namespace, number: int) -> None:
    """One client after the other, until enough of them were killed and the desk was killed often enough."""
    chance = random.Random(options.seed * 100 + number)
    made = 0
    again: list[str] = []
    while not (
        seen.counts["pipes killed"] >= options.pipes
        and seen.counts["desks ended"] >= options.desks
    ):
        server = chance.choice(list(SERVERS))
        names = [f"{server}-{number}-{made + each}" for each in range(3)]
        made += 3
        if server == "email" and again:
            names = [again.pop()]
        missed = run_client(desk, seen, chance, server, names)
        if server == "email":
            again += missed
    for name in again:
        while run_client(desk, seen, chance, "email", [name], may_kill=False):
            pass


def run_client(
    desk: Desk,
    seen: Seen,
    chance: random.Random,
    server: str,
    names: list[str],
    *,
    may_kill: bool = True,
) -> list[str]:
    """Ask for each of these at once, and be killed at a random moment; those that were not answered."""
    generation = desk.generation
    doomed = may_kill and chance.random() < 0.85
    client = PipeClient(desk, server)
    open_calls = dict(enumerate(names, 1))
    killed = False
    try:
        client.ask(INITIALIZE)
        if doomed and chance.random() < 0.1:
            killed = True  # before it has heard a word
            return names
        client.answer()
        client.ask({"method": "notifications/initialized"})
        for each, name in open_calls.items():
            with seen.lock:
                seen.asked.add(name)
            call = {"name": SERVERS[server], "arguments": arguments_of(server, name)}
            client.ask({"method": "tools/call", "id": each, "params": call})
        hear_answers(
            client,
            seen,
            server,
            open_calls,
            chance.uniform(0, 0.06) if doomed else PATIENCE,
        )
        killed = doomed and bool(open_calls)
        if open_calls and not doomed:
            seen.faults.append(
                f"no answer to {sorted(open_calls.values())} in {PATIENCE} s"
            )
    except Ended:
        seen.count("ended by the desk's end")
        if generation == desk.generation:
            seen.faults.append(f"a pipe to {server} ended although nobody ended the desk")
    finally:
        said = client.close(kill=killed)
        seen.count(
            "joined" if said.startswith("joined") else "not joined, or killed before"
        )
        if killed:
            seen.count("pipes killed")
        if "Traceback" in said:
            seen.faults.append(said[-500:])
    return list(open_calls.values())


def hear_answers(
    client: PipeClient, seen: Seen, server: str, open_calls: dict[int, str], seconds: float
) -> None:
    """Take the answers that come in this time off the open calls."""
    until = time.monotonic() + seconds
    while open_calls:
        answer = client.answer(max(0, until - time.monotonic()))
        if answer is None:
            return
        name = open_calls.pop(int(str(answer["id"])))
        if "result" in answer and is_done(server, answer["result"]):
            with seen.lock:
                seen.answered.add(name)
        else:
            seen.count(f"refused: {json.dumps(answer)[:300]}")


def is_done(server: str, result: object) -> bool:
    """A mail is done when it waits: the tool then says that it was not approved."""
    assert isinstance(result, dict)
    if server == "email":
        return "Pending_Approval" in json.dumps(result)
    return not result.get("isError")


def end_desks(desk: Desk, seen: Seen, options: argparse.Namespace) -> None:
    """Kill the desk again and again, evenly over the kills of pipes."""
    chance = random.Random(options.seed)
    for number in range(options.desks):
        while seen.counts["pipes killed"] < options.pipes * number / options.desks:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.5))
        by = signal.SIGKILL if number % 3 else signal.SIGTERM
        code = desk.end(by)
        if by == signal.SIGTERM and code != 0:
            seen.faults.append(f"a desk that was asked to end gave {code}")
        desk.start()
        seen.count("desks ended")
        if seen.count("shown") % 10 == 0:
            print(dict(seen.counts), flush=True)


def judge(desk: Desk, seen: Seen, before: Counter[str]) -> None:
    """Hold what the clients saw against what is there."""
    with closing(sqlite3.connect(desk.place / "home" / "desk.db")) as database:
        tasks = Counter(title for (title,) in database.execute("SELECT title FROM task"))
        requests = [
            json.loads(action)
            for (action,) in database.execute("SELECT action FROM requests")
        ]
        state = database.execute("PRAGMA integrity_check").fetchone()[0]
    mails = Counter(each["subject"] for each in requests)
    notes = Counter(
        {
            each.stem: 1
            for each in (desk.place / "vault").glob("*.md")
            if each.read_text().endswith(each.stem * 50)
        }
    )
    performed = tasks + mails + notes
    lost = sorted(seen.answered - performed.keys())
    twice = sorted(name for name, times in performed.items() if times > 1)
    strange = sorted(performed.keys() - seen.asked)
    print(
        f"asked {len(seen.asked)}, answered {len(seen.answered)}, performed {len(performed)}"
    )
    print(
        f"answered and not there: {len(lost)}; there twice: {len(twice)}; never asked for: {len(strange)}"
    )
    unheard = {name for name in seen.asked if name.startswith("email-")} - mails.keys()
    seen.faults += [f"lost {each}" for each in lost] + [f"twice {each}" for each in twice]
    seen.faults += [f"strange {each}" for each in strange] + [
        f"never waits: {each}" for each in sorted(unheard)
    ]
    if state != "ok":
        seen.faults.append(f"the database: {state}")
    look_for_leftovers(desk, seen, before)


def look_for_leftovers(desk: Desk, seen: Seen, before: Counter[str]) -> None:
    until = time.monotonic() + 30
    while desk.open_files["socket"] > before["socket"] and time.monotonic() < until:
        time.sleep(0.2)
    after = desk.open_files
    print(
        f"files that the desk has open: before {sum(before.values())}, after {sum(after.values())}"
    )
    if after["socket"] > before["socket"]:
        seen.faults.append(
            f"sockets left over: {before['socket']} before, {after['socket']} after"
        )
    if desk.end(signal.SIGTERM) != 0:
        seen.faults.append("the last desk did not end in order")
    if (desk.place / "home" / "desk.sock").exists():
        seen.faults.append("the socket file is left over")
    left = list(processes_of(desk.place))
    print(f"processes left over: {len(left)}")
    seen.faults += [f"left over: {each}" for each in left]
    said = (desk.place / "said").read_text() + (
        desk.place / "home" / "desk.log"
    ).read_text()
    if "Traceback" in said:
        seen.faults.append(said[said.index("Traceback") - 300 :][:2500])


def processes_of(place: Path) -> list[str]:
    """Whatever runs with this desk's folders in its environment."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"DESKHAND_HOME={place}/home".encode() in (each / "environ").read_bytes():
                found.append((each / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def torture(desk: Desk, seen: Seen, options: argparse.Namespace) -> None:
    run_client(desk, seen, random.Random(0), "tasks", ["first"], may_kill=False)
    before = desk.open_files
    clients = [
        threading.Thread(target=make_calls, args=(desk, seen, options, n))
        for n in range(options.clients)
    ]
    for client in clients:
        client.start()
    end_desks(desk, seen, options)
    for client in clients:
        client.join()
    judge(desk, seen, before)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pipes", type=int, default=1000)
    parser.add_argument("--desks", type=int, default=50)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args(argv)
    print(f"seed {options.seed}", flush=True)
    began = time.monotonic()
    seen = Seen()
    with tempfile.TemporaryDirectory(prefix="deskhand-") as place:
        desk = Desk(Path(place))
        try:
            torture(desk, seen, options)
        finally:
            desk.process.kill()
    print(
        ", ".join(
            f"{what}: {count}"
            for what, count in sorted(seen.counts.items())
            if what != "shown"
        )
    )
    print(f"{time.monotonic() - began:.0f} s; {len(seen.faults)} faults")
    for fault in seen.faults[:20]:
        print(f"FAULT {fault}")
    return int(bool(seen.faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
