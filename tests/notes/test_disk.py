"""Kills, full disks, broken disks and other writers, through the notes server on real files."""

import json
import os
import random
import signal
import sqlite3
import sys
import threading
import traceback
from contextlib import closing, suppress
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp import Client, StdioServerParameters

from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import Changed
from deskhand.notes import disk
from deskhand.servers.obsidian import obsidian_server
from tests.home import Home
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


def sealed(text: str) -> str:
    """A body that proves itself whole."""
    return f"{text}\n{sha256(text.encode()).hexdigest()}\n"


def is_whole(body: str) -> bool:
    text, _, digest = body.rstrip("\n").rpartition("\n")
    return digest == sha256(text.encode()).hexdigest()


def in_child(work: Any) -> int:
    """Run `work` in a forked process; its process id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - a forked child has nobody else to tell
            traceback.print_exc()
        finally:
            os._exit(1)
    return child


def write_and_move_for_ever(environment: dict[str, str], seed: int, ready: int) -> None:
    async def calls() -> None:
        async with Client(obsidian_server(Desk(load(environment).settings))) as client:
            for turn in range(10**9):
                body = sealed(f"{seed} {turn} " + "x" * 5000)
                await client.call_tool(
                    "write_note",
                    {"path": "a.md", "frontmatter": {"turn": turn}, "body": body},
                )
                await client.call_tool(
                    "move_note", {"source": "m/1.md", "destination": "m/2.md"}
                )
                await client.call_tool(
                    "move_note", {"source": "m/2.md", "destination": "m/1.md"}
                )
                os.write(ready, b"!")

    anyio.run(calls)


@requirement("notes:atomic")
def test_a_killed_server_leaves_each_note_old_or_new_and_whole(
    home: Home, scale: int
) -> None:
    kills = 40 * scale
    chance = random.Random(7)
    (home.vault / "a.md").write_text(sealed("first"))
    (home.vault / "m").mkdir()
    (home.vault / "m" / "1.md").write_text(sealed("moved"))
    bodies = set()
    for seed in range(kills):
        told, ready = os.pipe()
        child = in_child(
            lambda seed=seed, ready=ready: write_and_move_for_ever(
                home.environment, seed, ready
            )
        )
        os.close(ready)
        for _ in range(chance.randint(0, 2)):  # turns that are done
            assert os.read(told, 1)
        # The kill must fall anywhere in the work; the pause is what is being varied, not waited for.
        threading.Event().wait(chance.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(told)

        body = (home.vault / "a.md").read_text().rpartition("---\n")[2]
        assert is_whole(body)
        bodies.add(body)
        moved = [
            path for path in (home.vault / "m").iterdir() if not path.name.startswith(".")
        ]
        assert [is_whole(path.read_text()) for path in moved] == [True]
    assert len(bodies) > kills / 4, "the kills came before any work was done"


def deleted_files() -> list[str]:
    """The files that this process has open and that have no name any more."""
    files = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists them is gone
            files.append(str(each.readlink()))
    return [file for file in files if file.endswith(".tmp (deleted)")]


@requirement("notes:edits")
@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
async def test_the_room_of_what_a_note_said_before_is_freed_a_moment_after_the_answer(
    home: Home,
) -> None:
    (home.vault / "a.md").write_text("# A\n")
    async with Client(obsidian_server(Desk(load(home.environment).settings))) as client:
        for number in range(20):
            given = {"path": "a.md", "text": f"- {number}"}
            assert not (await client.call_tool("append_note", given)).is_error

        with anyio.fail_after(30):
            while deleted_files():
                await anyio.lowlevel.checkpoint()


@requirement("notes:disk-trouble")
async def test_a_note_that_may_not_be_written_down_as_a_tools_gets_no_place(
    home: Home,
) -> None:
    (home.vault / "a.md").write_text("# A\n")
    folder = os.open(home.vault, os.O_RDONLY)

    def refuse() -> None:
        raise Changed("no")

    with pytest.raises(Changed):
        disk.replace(
            folder, "a.md", b"new", b"# A\n", disk.Meanwhile(refuse, b"new".decode)
        )

    os.close(folder)
    assert [path.name for path in home.vault.glob("*.*")] == ["a.md"]
    assert (home.vault / "a.md").read_text() == "# A\n"


def temporary_of(path: Path) -> Path:
    return path.with_name(
        f".deskhand-{blake2b(path.name.encode(), digest_size=8).hexdigest()}.tmp"
    )


@requirement("notes:disk-trouble")
@pytest.mark.parametrize(
    ("call", "trouble", "reason"),
    [("write", "ENOSPC", "disk_full"), ("fsync", "EIO", "io_error")],
)
async def test_disk_trouble_is_a_clear_error_and_changes_nothing(
    home: Home, strace: str, call: str, trouble: str, reason: str
) -> None:
    note = home.vault / "a.md"
    note.write_text("---\nstatus: old\n---\nold\n")
    arguments = [
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-P",
        str(temporary_of(note)),
        "-e",
        f"trace={call}",
    ]
    server = [sys.executable, "-m", "deskhand", "mcp", "obsidian"]
    command = [*arguments, "-e", f"inject={call}:error={trouble}", *server]
    environment = home.environment | {"MCP_LOG_LEVEL": "ERROR"}

    async with Client(
        StdioServerParameters(command=strace, args=command, env=environment)
    ) as client:
        written = {"path": "a.md", "frontmatter": {"status": "new"}, "body": "new\n"}
        result = await client.call_tool("write_note", written)
        alive = await client.call_tool("read_note", {"path": "a.md"})

    error = json.loads(result.content[0].text)
    assert error["error"] == "internal_error"
    assert error["details"]["reason"] == reason
    assert error["details"]["reference"]
    assert alive.structured_content["body"] == "old\n"
    assert note.read_text() == "---\nstatus: old\n---\nold\n"
    assert [entry.name for entry in home.vault.iterdir()] == ["a.md"]


def append_lines(environment: dict[str, str], name: str, count: int) -> None:
    """Read, add a line, write with if_match; on a conflict again, as a careful assistant does."""

    async def calls() -> None:
        async with Client(obsidian_server(Desk(load(environment).settings))) as client:
            for number in range(count):
                while True:
                    note = (
                        await client.call_tool("read_note", {"path": "a.md"})
                    ).structured_content
                    arguments = {
                        "path": "a.md",
                        "frontmatter": {},
                        "body": f"{note['body']}{name} {number}\n",
                        "if_match": note["etag"],
                    }
                    result = await client.call_tool("write_note", arguments)
                    if not result.is_error:
                        break
                    assert (
                        json.loads(result.content[0].text)["details"]["reason"] == "changed"
                    )

    anyio.run(calls)
    os._exit(0)


@requirement("notes:no-lost-edit")
def test_two_servers_and_an_editor_that_writes_in_place_lose_no_line(
    home: Home, scale: int
) -> None:
    each = 150 * scale
    note = home.vault / "a.md"
    note.write_text("")
    children = [
        in_child(lambda name=name: append_lines(home.environment, name, each))
        for name in ("one", "two")
    ]

    for number in range(each):
        # In place and without a lock, as `echo >> note` does.
        with note.open("a") as editor:
            editor.write(f"editor {number}\n")
            editor.flush()
            os.sched_yield()
    statuses = [os.waitpid(child, 0)[1] for child in children]

    everything = [
        line for path in home.vault.glob("*.md") for line in path.read_text().splitlines()
    ]
    assert statuses == [0, 0]
    assert set(everything) == {
        f"{name} {number}" for name in ("one", "two", "editor") for number in range(each)
    }
    assert len(note.read_text().splitlines()) == len(set(note.read_text().splitlines()))


@requirement("notes:atomic")
def test_two_servers_and_an_editor_that_saves_by_rename_never_tear_a_note(
    home: Home, scale: int
) -> None:
    note = home.vault / "a.md"
    note.write_text(sealed("first"))
    stop = threading.Event()
    torn: list[str] = []

    def watch() -> None:
        while not stop.is_set():
            body = note.read_text().rpartition("---\n")[2]
            if not is_whole(body):
                torn.append(body)

    def write(seed: int) -> None:
        async def calls() -> None:
            async with Client(
                obsidian_server(Desk(load(home.environment).settings))
            ) as client:
                for number in range(250 * scale):
                    arguments = {
                        "path": "a.md",
                        "frontmatter": {"n": number},
                        "body": sealed(f"{seed} {number}" * 500),
                    }
                    assert not (await client.call_tool("write_note", arguments)).is_error

        anyio.run(calls)
        os._exit(0)

    reader = threading.Thread(target=watch)
    reader.start()
    children = [in_child(lambda seed=seed: write(seed)) for seed in (1, 2)]
    for number in range(500 * scale):
        beside = home.vault / "editor.tmp"
        beside.write_text(sealed(f"editor {number}" * 500))
        beside.rename(note)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    stop.set()
    reader.join()

    assert statuses == [0, 0]
    assert torn == []
    assert is_whole(note.read_text().rpartition("---\n")[2])


@requirement("notes:no-lost-edit")
def test_an_editor_that_has_the_note_open_for_writing_wins(desk: Desk, home: Home) -> None:
    note = home.vault / "a.md"
    note.write_text("old")
    seen = desk.vault.read("a.md").etag

    with note.open("r+") as editor:
        with pytest.raises(Changed):
            desk.vault.write("a.md", {}, "ours", if_match=seen)
        editor.write("the editor's")

    assert note.read_text() == "the editor's"


def test_a_written_note_keeps_its_mode(desk: Desk, home: Home) -> None:
    note = home.vault / "a.md"
    note.write_text("old")
    note.chmod(0o640)

    desk.vault.write("a.md", {}, "new")
    desk.vault.write("a.md", {}, "newer", if_match=desk.vault.read("a.md").etag)

    assert note.stat().st_mode & 0o777 == 0o640
    assert note.read_text() == "newer"


def test_what_a_killed_server_left_behind_is_replaced_by_the_next_write(
    desk: Desk, home: Home
) -> None:
    temporary_of(home.vault / "a.md").write_text("half of someth")

    desk.vault.write("a.md", {}, "whole")

    assert [entry.name for entry in home.vault.iterdir()] == ["a.md"]


TO_ANN = {"type": "email_send", "to": "ann@example.org"}
CHANGES: dict[str, dict[str, Any]] = {
    "write_note": {"path": "a.md", "frontmatter": TO_ANN, "body": "new\n"},
    "append_note": {"path": "a.md", "text": "new"},
    "edit_note": {"path": "a.md", "edits": [{"do": "delete", "key": "subject"}]},
}


@requirement("notes:disk-trouble")
@pytest.mark.parametrize("tool", CHANGES)
async def test_what_cannot_be_known_again_as_a_tools_is_not_put_into_the_vault(
    notes: Client, home: Home, tool: str
) -> None:
    """A tool's note is marked while the disk is waited for: without the mark none of it may lie there."""
    note = home.vault / "a.md"
    old = "---\ntype: email_send\nto: ann@example.org\nsubject: Hi\n---\nold\n"
    note.write_text(old)
    with closing(sqlite3.connect(home.path / "desk.db")) as db:
        db.execute(
            "CREATE TRIGGER full BEFORE INSERT ON tool_notes BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
        db.commit()

    result = await notes.call_tool(tool, CHANGES[tool])
    assert result.is_error
    made = {"path": "b.md", "frontmatter": TO_ANN, "body": "new\n"}
    assert (await notes.call_tool("write_note", made)).is_error

    assert note.read_text() == old
    assert [entry.name for entry in home.vault.iterdir()] == ["a.md"]
