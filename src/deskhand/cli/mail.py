"""`deskhand mail`: the mailbox from the command line."""

import argparse
import json
import sys
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deskhand.cli import discovery, login
from deskhand.cli.command import (
    at_desk,
    command,
    end_progress,
    group,
    one_line,
    plain,
    say_time,
    show_progress,
    tell,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deskhand.app import Desk
    from deskhand.mail import FullMessage, MailSummary
    from deskhand.mail.importing import ImportedMail, Source
    from deskhand.orchestrator.first_look import FirstLook

BATCH_BYTES = 8_000_000
BATCH_MAILS = 500
"""Many mails share one commit; few enough that the bar moves and memory stays small."""


def add_to(commands: Any) -> None:
    mail = group(
        commands, "mail", "look into the mailbox, or bring mail into the local one"
    )
    taken = command(
        mail,
        "import",
        _import,
        "take a Maildir, an mbox or .eml files into the local mailbox",
        json=True,
    )
    taken.add_argument(
        "--account", help="into this local account (default: the default account)"
    )
    taken.add_argument(
        "path",
        type=Path,
        nargs="+",
        help="a Maildir, an mbox, an .eml file, or a folder with any of them",
    )
    listing = command(mail, "list", _list, "list the newest mails of the inbox", json=True)
    reading = command(
        mail, "read", _read, "show one mail as plain text; it stays unread", json=True
    )
    reading.add_argument("id", help="the mail's id, as `deskhand mail list` shows it")
    search = command(
        mail, "search", _search, "find mails, in Gmail's search syntax", json=True
    )
    search.add_argument(
        "query",
        nargs="?",
        default="",
        help="such as 'from:alice is:unread' (default: everything)",
    )
    for each in (listing, search):
        each.add_argument("--account", help="in this account alone (default: in all)")
        each.add_argument(
            "--limit", type=int, default=20, help="at most so many (default 20)"
        )
    text = "say whether the unread mail that the desk found at its first look is brought in"
    bringing = command(mail, "bring-in", _bring_in, text, json=True)
    bringing.add_argument(
        "answer",
        nargs="?",
        choices=("all", "new", "none"),
        help="without one, show the question",
    )
    discovery.add_to(mail)
    login.add_to(mail)


def _import(options: argparse.Namespace) -> None:
    seen, new, left_out = at_desk(
        partial(_import_all, paths=options.path, account=options.account)
    )
    for file, why in left_out:
        print(one_line(f"left out: {file}: {why}"), file=sys.stderr)
    facts = {"imported": new, "already_there": seen - new, "left_out": len(left_out)}
    tell(options, facts, f"{new:,} mails imported, {seen - new:,} were already there.")


async def _import_all(
    desk: "Desk", paths: list[Path], account: str | None
) -> tuple[int, int, list[tuple[Path, str]]]:
    from deskhand.errors import InvalidInput
    from deskhand.mail.importing import sources
    from deskhand.mail.local import LocalMailbox

    into = desk.settings.find_account(account)
    mailbox = desk.account_mailbox(into.name)
    if not isinstance(mailbox, LocalMailbox):
        raise InvalidInput(
            f"mail cannot be imported into the {into.kind} mailbox",
            hint="DESKHAND_MAIL=local",
        )
    found: list[Source] = []
    left_out: list[tuple[Path, str]] = []
    for path in paths:  # all are looked at before the first is taken in
        there, not_there = sources(path)
        found += there
        left_out += not_there
    total = sum(source.size for source in found)
    done = 0
    seen = 0
    new = 0
    for batch in _batches(found):
        new += await mailbox.receive([each.mail for each in batch])
        seen += len(batch)
        done += sum(each.size for each in batch)
        show_progress(done, total, f"{seen:,} mails")
    end_progress()
    return seen, new, left_out


def _batches(found: "list[Source]") -> "Iterator[list[ImportedMail]]":
    from deskhand.mail.importing import mails

    batch: list[ImportedMail] = []
    size = 0
    for mail in chain.from_iterable(map(mails, found)):
        batch.append(mail)
        size += mail.size
        if len(batch) == BATCH_MAILS or size > BATCH_BYTES:
            yield batch
            batch = []
            size = 0
    if batch:
        yield batch


def _list(options: argparse.Namespace) -> None:
    options.query = "in:inbox"
    _search(options)


def _read(options: argparse.Namespace) -> None:
    async def get(desk: "Desk") -> "FullMessage":
        return await desk.mailbox.get(options.id)

    mail = at_desk(get)
    if options.json:
        shown = asdict(mail) | {"summary": mail.summary._asdict()}
        print(json.dumps(shown, default=str))
        return
    head = {
        "From": mail.summary.sender,
        "To": mail.summary.to,
        "Cc": mail.cc,
        "Date": say_time(mail.summary.date),
        "Subject": mail.summary.subject,
    }
    for name, value in head.items():
        if value:
            print(one_line(f"{name}: {value}"))
    for each in mail.attachments:
        print(
            one_line(f"Attachment: {each.name} ({each.content_type}, {each.size:,} bytes)")
        )
    for warning in mail.warnings:
        print(one_line(f"Careful: {warning}"), file=sys.stderr)
    print(plain(f"\n{mail.body}"))


def _bring_in(options: argparse.Namespace) -> None:
    async def ask_or_answer(desk: "Desk") -> "list[FirstLook]":
        from deskhand.orchestrator import first_look

        looks, silent = await first_look.ask_everywhere(desk)
        for name, error in silent.items():
            said = f"The mail account {name} did not answer, so nothing is asked about it: {error.message}"
            print(one_line(said), file=sys.stderr)
        if options.answer is None:
            return looks
        looks += await desk.store.read(first_look.list_declined)
        return [
            await first_look.answer(desk, look.mailbox, options.answer) for look in looks
        ]

    looks = at_desk(ask_or_answer)
    lines = [one_line(_describe_look(look)) for look in looks]
    if any(look.answer is None for look in looks):
        lines.append("`deskhand mail bring-in all | new | none` answers.")
    facts = [
        {
            "mailbox": each.mailbox,
            "unread": each.found,
            "days": each.days,
            "answer": each.answer,
        }
        for each in looks
    ]
    tell(
        options,
        facts,
        "\n".join(lines) or "There is nothing to answer: mail is brought in as it comes.",
    )


def _describe_look(look: "FirstLook") -> str:
    """The question, or what becomes of the mail by its answer."""
    mails = "1 unread mail" if look.found == 1 else f"{look.found:,} unread mails"
    come = "comes" if look.found == 1 else "come"
    match look.answer:
        case None:
            return look.question
        case "all":
            return f"{mails} of {look.address} {come} in now, and what comes from now on."
        case "new":
            return f"What comes to {look.address} from now on is brought in; the {mails} before stay."
        case "none":
            return f"Nothing of {look.address} is brought in until you say so."


def _search(options: argparse.Namespace) -> None:
    async def find(desk: "Desk") -> "tuple[list[MailSummary], list[str]]":
        from deskhand.mail.mailboxes import MailView, viewing

        names = None
        if options.account:
            names = frozenset({desk.settings.find_account(options.account).name})
        with viewing(MailView(names)) as view:
            return await desk.mailbox.search(
                options.query, options.limit
            ), view.describe_silent()

    found, silent = at_desk(find)
    for line in silent:
        print(one_line(line), file=sys.stderr)
    if not found and options.query:
        print("No mail matches.", file=sys.stderr)
    elif not found:
        print("There is no mail here.", file=sys.stderr)
    for mail in found:
        if options.json:
            print(json.dumps(mail._asdict(), default=str))
        else:
            print(_lines(mail))


def _lines(mail: "MailSummary") -> str:
    unread = "●" if "UNREAD" in mail.labels else " "
    who = mail.sender
    if "SENT" in mail.labels:
        who = f"to {mail.to}"
    first = one_line(f"{say_time(mail.date):<18} {unread} {who}  {mail.subject}")
    return f"{first}\n    {one_line(f'{mail.id}  {mail.snippet[:100]}')}"
