"""`deskhand mail`: the mailbox from the command line."""

import argparse
import json
import sys
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deskhand.cli import login
from deskhand.cli.parts import command, group, opened_desk, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deskhand.app import Desk
    from deskhand.mail.importing import Imported, Source

BATCH_BYTES = 8_000_000
BATCH_MAILS = 500


def add_to(commands: Any) -> None:
    mail = group(commands, "mail", "look into the mailbox, or bring mail into the local one")
    taken = command(mail, "import", _import, "take a Maildir, an mbox or .eml files into the local mailbox", json=True)
    taken.add_argument("path", type=Path, help="a Maildir, an mbox, an .eml file, or a folder with any of them")
    search = command(mail, "search", _search, "find mails, in Gmail's search syntax", json=True)
    search.add_argument("query", nargs="?", default="", help="such as 'from:alice is:unread' (default: everything)")
    search.add_argument("--limit", type=int, default=20, help="at most so many (default 20)")
    login.add_to(mail)


def _import(options: argparse.Namespace) -> None:
    import anyio

    with opened_desk() as desk:
        seen, new, left_out = anyio.run(_imported, desk, options.path)
    for file, why in left_out:
        print(f"left out: {file}: {why}", file=sys.stderr)
    if options.json:
        print(json.dumps({"imported": new, "already_there": seen - new, "left_out": len(left_out)}))
    else:
        print(f"{new:,} mails imported, {seen - new:,} were already there")


async def _imported(desk: "Desk", path: Path) -> tuple[int, int, list[tuple[Path, str]]]:
    from deskhand.errors import InvalidInput
    from deskhand.mail.importing import sources
    from deskhand.mail.local import LocalMailbox

    if not isinstance(desk.mailbox, LocalMailbox):
        raise InvalidInput(f"mail cannot be imported into the {desk.settings.mail} mailbox", hint="DESKHAND_MAIL=local")
    found, left_out = sources(path)
    total, done, seen, new = sum(source.size for source in found), 0, 0, 0
    for batch in _batches(found):
        new += await desk.mailbox.receive([each.mail for each in batch])
        seen += len(batch)
        done += sum(each.size for each in batch)
        if sys.stderr.isatty():
            _progress(done, total, seen)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    await desk.close_mailbox()
    return seen, new, left_out


def _batches(found: "list[Source]") -> "Iterator[list[Imported]]":
    """Many mails share one commit; few enough that the bar moves and memory stays small."""
    from deskhand.mail.importing import mails

    batch: list[Imported] = []
    size = 0
    for mail in chain.from_iterable(map(mails, found)):
        batch.append(mail)
        size += mail.size
        if len(batch) == BATCH_MAILS or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _progress(done: int, total: int, mails: int) -> None:
    width = 30
    filled = min(width, width * done // total) if total else width
    bar = f"[{'#' * filled}{'·' * (width - filled)}]"
    print(f"\r{bar} {mails:,} mails", end="", file=sys.stderr, flush=True)


def _search(options: argparse.Namespace) -> None:
    import anyio

    with opened_desk() as desk:
        found = anyio.run(_found, desk, options.query, options.limit)
    if not found:
        print("no mail matches" if options.query else "there is no mail here", file=sys.stderr)
    for mail in found:
        if options.json:
            print(json.dumps(asdict(mail), default=str))
        else:
            unread = "●" if "UNREAD" in mail.labels else " "
            who = f"to {mail.to}" if "SENT" in mail.labels else mail.sender
            print(plain(f"{mail.date:%Y-%m-%d %H:%M} {unread} {who}  {mail.subject}"))
            print(plain(f"    {mail.id}  {mail.snippet[:100]}"))


async def _found(desk: "Desk", query: str, limit: int) -> Any:
    try:
        return await desk.mailbox.search(query, limit)
    finally:
        await desk.close_mailbox()
