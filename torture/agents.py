"""Kill senders, receivers and cleaners of one mailbox, and race many of them; count what was lost or came twice.

Each worker says on its stdout what was acknowledged to it, and is killed by SIGKILL at a random moment while it works.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deskhand.agents.files import FilesRoom
from deskhand.agents.lines import encode_message
from deskhand.agents.mail import AgentMessage, timestamp

OLD = timestamp(1_600_000_000_000_000_000)
WORKER = """
import sys, time
from deskhand.agents.files import FilesRoom
from deskhand.agents.mail import AgentMessage, timestamp
root, role, run = sys.argv[1:]
room, number = FilesRoom(root), 0
print("ready", flush=True)
while True:
    number += 1
    if role == "send":
        identifier = f"{run}-{number}"
        room.append(AgentMessage(identifier, "a", "b", "x" * (number * 37 % 500), timestamp(time.time_ns())))
        print("sent", identifier, flush=True)
    elif role == "receive":
        message = room.take("b")
        if message is not None:
            print("read", message.id, flush=True)
    else:
        room.remove_read("b", timestamp(time.time_ns()), dry_run=False)
        room.remove_if_empty("b", dry_run=False)
"""


class Book:
    """What was acknowledged, and whether it holds."""

    def __init__(self, sent: set[str]) -> None:
        self.sent = sent
        self.read: set[str] = set()
        self.twice: list[str] = []

    def note(self, said: str) -> None:
        for line in said.splitlines(keepends=True):
            match line.split():
                case ["sent", identifier] if line.endswith("\n"):
                    self.sent.add(identifier)
                case ["read", identifier] if line.endswith("\n"):
                    self.twice += [identifier] if identifier in self.read else []
                    self.read.add(identifier)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        good = kill(
            Path(folder) / "kill",
            options.kills,
            options.messages,
            random.Random(options.seed),
        )
        good &= race(Path(folder) / "race")
        good &= long_line(Path(folder) / "long")
    return 0 if good else 1


def kill(root: Path, kills: int, messages: int, chance: random.Random) -> bool:
    box = root / ".agentmail" / "mailboxes" / "b.jsonl"
    box.parent.mkdir(parents=True)
    first = [
        AgentMessage(f"first-{number}", "a", "b", "x" * 100, OLD)
        for number in range(messages)
    ]
    box.write_bytes(b"".join(map(encode_message, first)))
    book = Book({message.id for message in first})
    unparseable = lost = 0
    unsaid: set[str] = set()
    for run in range(kills):
        workers = [start(root, role, f"{run}") for role in ("send", "receive", "clean")]
        time.sleep(chance.uniform(0.005, 0.12))
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
        for worker in workers:
            book.note(worker.communicate()[0])
        unread = {
            message.id for message in FilesRoom(str(root)).messages("b") if not message.read
        }
        # The receiver may have been killed after it marked a message and before it could say so.
        gone = book.sent - book.read - unread - unsaid
        lost += max(0, len(gone) - 1)
        unsaid |= gone
        unparseable += not parseable(box)
    rest = drain(FilesRoom(str(root)), book)
    lost += len(book.sent - book.read - unsaid)
    damaged = root / ".agentmail" / "damaged" / "b.jsonl"
    torn = (
        [line for line in damaged.read_bytes().splitlines() if line.strip()]
        if damaged.exists()
        else []
    )
    print(f"killed {3 * kills} processes in {kills} rounds on a mailbox of {messages}")
    print(
        f"acknowledged sends {len(book.sent)}, acknowledged reads {len(book.read)}, of these {rest} at the end"
    )
    print(
        f"lost {lost}, read twice {len(book.twice)}; marked by a receiver that could not say so any more {len(unsaid)}"
    )
    print(f"file unparseable {unparseable} times, torn lines put aside {len(torn)}")
    return not lost and not book.twice and not unparseable


def start(root: Path, role: str, run: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WORKER, str(root), role, run]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    worker.stdout.readline()
    return worker


def parseable(box: Path) -> bool:
    """Whether, once the next caller has looked at it, every line is JSON for any other program."""
    if not box.exists():
        return True
    for line in box.read_bytes().split(b"\n"):
        try:
            json.loads(line or b"{}")
        except ValueError:
            return False
    return True


def drain(room: FilesRoom, book: Book) -> int:
    count = 0
    while (message := room.take("b")) is not None:
        book.note(f"read {message.id}\n")
        count += 1
    return count


RACER = """
import sys
from deskhand.agents.files import FilesRoom
from deskhand.agents.mail import AgentMessage
root, role, number, count = sys.argv[1:]
room = FilesRoom(root)
with room.bell("b") as bell:
    for done in range(int(count)):
        if role == "send":
            room.append(AgentMessage(f"{number}-{done}", "a", "b", "hello"))
        else:
            while (message := room.take("b")) is None:
                bell.wait(20)
            print("read", message.id)
"""


def race(root: Path, pairs: int = 8, each: int = 500) -> bool:
    started = time.perf_counter()
    roles = [(role, number) for number in range(pairs) for role in ("send", "receive")]
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(root), role, str(number), str(each)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for role, number in roles
    ]
    book = Book({f"{number}-{done}" for number in range(pairs) for done in range(each)})
    for racer in racers:
        book.note(racer.communicate()[0])
    seconds = time.perf_counter() - started
    exactly = book.sent == book.read and not book.twice
    print(
        f"{pairs} senders and {pairs} receivers, {each} messages each, {seconds:.1f} s: ",
        end="",
    )
    print(f"{len(book.read)} of {len(book.sent)} delivered, {len(book.twice)} twice")
    return exactly


def long_line(root: Path, size: int = 100_000_000) -> bool:
    box = root / ".agentmail" / "mailboxes" / "b.jsonl"
    box.parent.mkdir(parents=True)
    box.write_bytes(b"y" * size + b"\n")
    room = FilesRoom(str(root))
    room.append(AgentMessage("long", "a", "b", "x" * size))
    room.append(AgentMessage("after", "a", "b", "after"))
    got = [
        (message.id, len(message.text))
        for message in (room.take("b"), room.take("b"))
        if message
    ]
    kept = (root / ".agentmail" / "damaged" / "b.jsonl").stat().st_size
    print(f"a damaged line of {size} bytes: {kept} kept aside; after it {got}")
    return got == [("long", size), ("after", 5)] and kept == size + 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
