"""One contract for the files, SQLite and PostgreSQL."""

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from deskhand.agents.cleanup import clean_up, copy_mail
from deskhand.agents.files import FilesRoom
from deskhand.agents.mail import AgentMessage, Mailroom, instant, timestamp
from deskhand.agents.sql import SqlRoom
from deskhand.store import open_store
from tests.requirements import requirement

NOW = instant("2026-11-15T10:00:00.5Z") or 0
HOUR = 3_600_000_000_000
Make = Callable[[str], Mailroom]


def database(postgresql: str) -> str:
    name = f"desk_{uuid.uuid4().hex}"
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgresql.replace("/postgres?", f"/{name}?")


@pytest.fixture(params=["files", "sqlite", "postgresql"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Opens the mailroom of a name, again and again."""
    if request.param == "files":
        yield lambda name: FilesRoom(str(tmp_path / name))
        return
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    store = open_store(
        url
        if request.param == "sqlite"
        else database(request.getfixturevalue("postgresql"))
    )
    yield lambda name: SqlRoom(store, name)
    store.close()


@pytest.fixture
def room(make: Make) -> Mailroom:
    return make("room")


def letter(number: int, to: str = "b", text: str = "hello", **more: Any) -> AgentMessage:
    return AgentMessage(f"id{number:06}", "a", to, text, timestamp(NOW + number), **more)


@requirement("agents:one-contract")
def test_messages_come_in_the_order_in_which_they_were_put_each_once(
    room: Mailroom,
) -> None:
    texts = [
        "first",
        "<b> & é \u2028 東京 \0 \x7f",
        'quotes " and \\ "read_flag":false',
        "x" * 70_000,
        "\n",
    ]
    for number, text in enumerate(texts):
        room.append(letter(number, text=text))

    assert room.has_unread("b")
    counted = [asyncio.run(room.count_unread(name)) for name in ("b", "nobody")]
    assert counted == [len(texts), 0]
    assert [room.take("b") for _ in texts] == [
        letter(number, text=text, read=True) for number, text in enumerate(texts)
    ]
    assert room.take("b") is None
    assert not room.has_unread("b")
    assert asyncio.run(room.count_unread("b")) == 0
    assert [message.read for message in room.messages("b")] == [True] * len(texts)


@requirement("agents:one-contract")
def test_a_message_that_is_given_back_is_taken_again_and_no_other(room: Mailroom) -> None:
    for number in range(3):
        room.append(letter(number, text='"read_flag":true '))
    first, second = room.take("b"), room.take("b")
    assert first is not None
    assert second is not None

    room.give_back(second)

    assert room.has_unread("b")
    assert [room.take("b") for _ in range(3)] == [
        second,
        letter(2, text='"read_flag":true ', read=True),
        None,
    ]
    room.give_back(letter(9))
    assert room.take("b") is None


@requirement("agents:one-contract")
def test_mailboxes_are_apart_and_so_are_rooms(make: Make) -> None:
    make("one").append(letter(1, to="b"))
    make("one").append(letter(2, to="x/y"))
    make("two").append(letter(1, to="b"))

    assert make("one").mailboxes() == ["b", "x/y"]
    assert make("two").mailboxes() == ["b"]
    assert make("one").take("c") is None
    assert make("one").take("x/y") == letter(2, to="x/y", read=True)
    assert make("two").take("b") == letter(1, to="b", read=True)
    assert make("one").take("b") == letter(1, to="b", read=True)


@requirement("agents:once")
def test_many_callers_get_each_message_once(room: Mailroom) -> None:
    for number in range(60):
        room.append(letter(number))

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda _: room.take("b"), range(64)))

    assert sorted(message.id for message in got if message) == [
        f"id{number:06}" for number in range(60)
    ]


@requirement("agents:one-contract")
def test_states_follow_the_seed(room: Mailroom) -> None:
    now, later = timestamp(NOW), timestamp(NOW + HOUR)
    room.set_status("b", "ready", now)
    room.set_notified("b", now)
    room.set_status("b", "ready", later)
    kept = room.states()[0]
    room.set_status("b", "work", later)
    room.set_last_read("c", 17, now)

    assert (kept.status, kept.updated_at, kept.notified_at) == ("ready", later, now)
    first, second = sorted(room.states(), key=lambda entry: entry.name)
    assert (first.name, first.status, first.notified_at) == (
        "b",
        "work",
        "0001-01-01T00:00:00Z",
    )
    assert (second.name, second.status, second.last_read_at) == ("c", "ready", 17)


@requirement("agents:one-contract")
def test_cleaning_up_never_takes_what_was_not_read(room: Mailroom) -> None:
    room.append(letter(1))
    room.append(
        AgentMessage("old-read", "a", "b", "x", timestamp(NOW - 3 * HOUR), read=True)
    )
    room.append(AgentMessage("no-time", "a", "b", "x", read=True))
    room.append(AgentMessage("old-unread", "a", "b", "x", timestamp(NOW - 99 * HOUR)))
    room.append(AgentMessage("only", "a", "c", "x", timestamp(NOW - 3 * HOUR), read=True))
    room.set_status("b", "ready", timestamp(NOW - 49 * HOUR))
    room.set_status("gone", "ready", timestamp(NOW))
    room.register("far", timestamp(NOW))

    preview = clean_up(room, ["b"], NOW, 48, 2, dry_run=True)
    done = clean_up(room, ["b"], NOW, 48, 2, dry_run=False)

    assert preview[:3] == done[:3] == (1, 1, 2)
    assert done.mailboxes == 1
    assert room.mailboxes() == ["b"]
    assert [message.id for message in room.messages("b")] == [
        "id000001",
        "no-time",
        "old-unread",
    ]
    assert room.states() == []
    assert list(room.registrations()) == ["far"]
    assert [room.take("b").id, room.take("b").id, room.take("b")] == [
        "id000001",
        "old-unread",
        None,
    ]


@requirement("agents:waiting")
def test_the_bell_rings_for_mail_and_not_before(room: Mailroom) -> None:
    room.append(letter(1))
    with room.bell("b") as bell:
        assert not bell.wait(0)
        room.append(letter(2))
        assert bell.wait(20)
    with room.bell(None) as bell:
        room.append(letter(3, to="c"))
        assert bell.wait(20)


@requirement("agents:copies")
def test_copying_twice_copies_once_and_keeps_order_and_flags(
    room: Mailroom, tmp_path: Path
) -> None:
    files = FilesRoom(str(tmp_path / "source"))
    for number in range(5):
        files.append(letter(number, to="x/y"))
    files.take("x/y")
    files.append(AgentMessage("", "a", "x/y", "without an id"))
    files.append(AgentMessage("", "a", "x/y", "another"))

    assert copy_mail(files, room) == (7, 0)
    assert copy_mail(files, room) == (0, 7)
    files.append(letter(9, to="x/y"))
    assert copy_mail(files, room) == (1, 7)
    back = FilesRoom(str(tmp_path / "back"))
    assert copy_mail(room, back) == (8, 0)

    assert [(m.text, m.read, m.created_at) for m in back.messages("x/y")] == [
        (m.text, m.read, m.created_at) for m in files.messages("x/y")
    ]


CLIENT = """
import sys
from deskhand.agents.mail import AgentMessage, timestamp
from deskhand.agents.sql import SqlRoom
from deskhand.store import open_store
role, url = sys.argv[1:]
store = open_store(url)
room = SqlRoom(store, "project")
if role == "sender":
    for number in range(200):
        room.append(AgentMessage(f"{number:08}", "a", "b", "hello", timestamp(number)))
else:
    with room.bell("b") as bell:
        for _ in range(100):
            while (message := room.take("b")) is None:
                bell.wait(20)
            print(message.id)
store.close()
"""


@requirement("agents:one-contract")
@requirement("agents:once")
def test_machines_that_share_only_postgresql_share_mail(
    postgresql: str, tmp_path: Path
) -> None:
    url = database(postgresql)
    open_store(url).close()
    roles = ["receiver", "receiver", "sender"]
    machines = []
    for number, role in enumerate(roles):
        (folder := tmp_path / f"machine{number}").mkdir()
        command = [sys.executable, "-c", CLIENT, role, url]
        machines.append(
            subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
        )

    got = [machine.communicate(timeout=60)[0].split() for machine in machines]

    assert sorted(got[0] + got[1]) == [f"{number:08}" for number in range(200)]
    assert len(got[0]) == len(got[1]) == 100
