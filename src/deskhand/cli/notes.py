"""`deskhand notes`: the vault from the command line."""

import argparse
import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from deskhand.cli.command import (
    at_desk,
    command,
    end_progress,
    flag,
    group,
    one_line,
    opened_desk,
    show_progress,
    tell,
)
from deskhand.errors import NotFound, as_sentence

if TYPE_CHECKING:
    from deskhand.app import Desk
    from deskhand.notes.index import NoteList
    from deskhand.notes.vault import EditedNote


def add_to(commands: Any) -> None:
    notes = group(commands, "notes", "look into the vault from the command line")
    index = command(
        notes, "index", _index, "bring the search index up to date, with a progress bar"
    )
    flag(index, "--rebuild", "throw the index away first")
    search = command(notes, "search", _search, "find notes by text", json=True)
    search.add_argument("query")
    search.add_argument(
        "--limit", type=int, default=20, help="at most so many (default 20)"
    )
    search.add_argument(
        "--by",
        choices=("words", "meaning", "both"),
        default="words",
        help="meaning needs a model",
    )
    listing = command(notes, "list", _list, "list notes", json=True)
    listing.add_argument(
        "directory", nargs="?", default="", help="folder (default: the whole vault)"
    )
    listing.add_argument("--filter", help="frontmatter filter field:value")
    listing.add_argument(
        "--limit", type=int, default=200, help="at most so many (default 200)"
    )
    append = command(notes, "append", _append, "add text at the end of a note", json=True)
    append.add_argument("path", help="vault-relative path of the note")
    append.add_argument("text", help="the text; - reads it from standard input")
    append.add_argument("--heading", help="under this heading; 'A > B' for a B below an A")
    flag(append, "--create", "make the note or the heading where it is missing")
    for each in (search, listing, append):
        each.add_argument(
            "--vault",
            metavar="NAME",
            help="one of several vaults (default: the first; search: all)",
        )


def _viewing(desk: "Desk", options: argparse.Namespace) -> AbstractContextManager[None]:
    """See the one vault that is named."""
    from deskhand.notes.view import VaultView, viewing

    if options.vault is not None:
        desk.settings.find_vault(options.vault)
    return viewing(VaultView(asked=options.vault))


def _index(options: argparse.Namespace) -> None:
    with opened_desk() as desk:
        for name in desk.vaults.names:
            if options.rebuild:
                desk.index_file(desk.settings.find_vault(name).path).unlink(missing_ok=True)
            desk.vaults.vault(name).index.build(_progress)
    end_progress()
    print("The index is up to date.")


def _progress(done: int, total: int) -> None:
    show_progress(done, total, f"{done:,} of {total:,} notes")


def _search(options: argparse.Namespace) -> None:
    with opened_desk() as desk, _viewing(desk, options):
        found = desk.vaults.search(
            options.query, options.limit, None, options.by, desk.is_own_note
        )
        _show(found, options)


def _list(options: argparse.Namespace) -> None:
    with opened_desk() as desk, _viewing(desk, options):
        _show(
            desk.vaults.list_notes(options.directory, options.filter, options.limit, None),
            options,
        )


def _append(options: argparse.Namespace) -> None:
    text = options.text
    if text == "-":
        text = sys.stdin.read()

    async def append(desk: "Desk") -> "EditedNote":
        await desk.settle_record()
        with _viewing(desk, options):
            added = _append_to(desk, options, text)
        await desk.record("person", "append_note", added.path, {"path": added.path})
        return added

    added = at_desk(append)
    tell(
        options,
        added.model_dump(),
        f"Added to {one_line(added.path)}, line {', '.join(added.lines)}.",
    )


def _append_to(desk: "Desk", options: argparse.Namespace, text: str) -> "EditedNote":
    try:
        return desk.vaults.append(
            options.path, text, options.heading, create=options.create
        )
    except NotFound as error:
        if error.to_person and not options.create:
            message, hint = error.to_person
            error.to_person = (message, f"--create makes it; {hint}")
        raise


def _show(found: "NoteList", options: argparse.Namespace) -> None:
    if options.json:
        print(found.model_dump_json())
        return
    for note in found.notes:
        print(one_line(note.path))
        if note.snippet is not None:
            print(one_line(f"    {note.snippet}"))
    if not found.notes:
        print("No note matches.", file=sys.stderr)
    for name, why in (found.missing or {}).items():
        print(
            one_line(f"The vault {name} is missing here: {as_sentence(why)}"),
            file=sys.stderr,
        )
    if found.next_cursor:
        print(f"… {len(found.notes)} of {found.total}; --limit shows more", file=sys.stderr)
