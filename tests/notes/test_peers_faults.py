"""The faults that were found in other servers for notes, each as a test."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.errors import Changed
from tests.home import Home
from tests.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("notes:peers-faults")]


async def test_a_link_to_a_folder_that_does_not_exist_yet_is_no_way_out(
    notes: Client, home: Home, tmp_path: Path
) -> None:
    (home.vault / "later").symlink_to(tmp_path / "outside" / "deep")

    result = await notes.call_tool(
        "write_note", {"path": "later/x.md", "frontmatter": {}, "body": "x"}
    )

    assert result.is_error
    assert not (tmp_path / "outside").exists()


async def test_search_does_not_look_through_a_linked_note(
    notes: Client, home: Home, tmp_path: Path
) -> None:
    (tmp_path / "private.md").write_text("salary")
    (home.vault / "link.md").symlink_to(tmp_path / "private.md")

    assert (
        await notes.call_tool("search_notes", {"query": "salary"})
    ).structured_content == {"notes": []}


def test_twenty_concurrent_updates_of_one_note_all_survive(desk: Desk, home: Home) -> None:
    (home.vault / "a.md").write_text("---\n{}\n---\n")
    desk.vault.write("a.md", {}, "")

    def update(number: int) -> None:
        while True:
            note = desk.vault.read("a.md")
            try:
                desk.vault.write(
                    "a.md",
                    note.frontmatter | {f"key{number}": number},
                    "",
                    if_match=note.etag,
                )
            except Changed:
                continue
            return

    in_parallel(update, 20)

    assert desk.vault.read("a.md").frontmatter == {
        f"key{number}": number for number in range(20)
    }


def in_parallel(work: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=work, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_note_is_never_seen_half_written(desk: Desk, home: Home) -> None:
    bodies = {letter * 300_000 for letter in "ab"}
    desk.vault.write("a.md", {}, "a" * 300_000)
    seen = set()

    def write_or_read(number: int) -> None:
        for turn in range(20):
            if number:
                seen.add((home.vault / "a.md").read_text())
            else:
                desk.vault.write("a.md", {}, "ab"[turn % 2] * 300_000)

    in_parallel(write_or_read, 3)

    assert seen <= bodies


async def test_a_move_keeps_every_byte_of_a_note_that_is_not_utf_8(
    notes: Client, home: Home
) -> None:
    data = b"\xff\xfe latin caf\xe9 \x00\r\n"
    (home.vault / "odd.md").write_bytes(data)
    (home.vault / "plain.md").write_text("plain")

    moved = await notes.call_tool(
        "move_note", {"source": "odd.md", "destination": "Sub/odd.md"}
    )
    other = await notes.call_tool(
        "move_note",
        {"source": "plain.md", "destination": "Sub/plain.md", "update_links": True},
    )

    assert not moved.is_error
    assert not other.is_error
    assert (home.vault / "Sub" / "odd.md").read_bytes() == data


async def test_line_ends_and_byte_order_mark_survive_an_edit(
    notes: Client, home: Home
) -> None:
    note = home.vault / "windows.md"
    note.write_bytes(b"\xef\xbb\xbf---\r\nstatus: open\r\n---\r\none\r\ntwo\r\n")

    await notes.call_tool(
        "write_note",
        {
            "path": "windows.md",
            "frontmatter": {"status": "done"},
            "body": "one\ntwo\nthree\n",
        },
    )

    assert (
        note.read_bytes()
        == b"\xef\xbb\xbf---\r\nstatus: done\r\n---\r\none\r\ntwo\r\nthree\r\n"
    )


async def test_what_obsidian_keeps_for_itself_is_not_served(
    notes: Client, home: Home
) -> None:
    (home.vault / ".obsidian").mkdir()
    (home.vault / ".obsidian" / "secret.md").write_text("secret")

    assert (await notes.call_tool("read_note", {"path": ".obsidian/secret.md"})).is_error
    assert (await notes.call_tool("list_notes", {"directory": ".obsidian"})).is_error
    assert (await notes.call_tool("list_notes", {"directory": ""})).structured_content == {
        "notes": []
    }


async def test_broken_frontmatter_is_reported_and_never_overwritten(
    notes: Client, home: Home
) -> None:
    text = "---\nstatus: [open\n---\nbody\n"
    (home.vault / "broken.md").write_text(text)

    read = await notes.call_tool("read_note", {"path": "broken.md"})
    written = await notes.call_tool(
        "write_note", {"path": "broken.md", "frontmatter": {"status": "x"}, "body": "new"}
    )

    assert read.is_error
    assert written.is_error
    assert (home.vault / "broken.md").read_text() == text


async def test_listing_and_searching_change_no_note(notes: Client, home: Home) -> None:
    for number in range(50):
        (home.vault / f"{number}.md").write_text(
            f"---\n# a comment\nn:   {number}\n---\ntext\n"
        )
    before = {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in home.vault.iterdir()
    }

    await notes.call_tool("search_notes", {"query": "text"})
    await notes.call_tool("list_notes", {"directory": "", "filter": "n:3"})

    assert {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in home.vault.iterdir()
    } == before
