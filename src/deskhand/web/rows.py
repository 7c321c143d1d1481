"""Rows of long lists as HTML. A row says the same whenever it is shown, so it is made once for many views."""

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from typing import Any
from urllib.parse import quote

from anyio import to_thread
from markupsafe import Markup

from deskhand.app import Desk
from deskhand.audit import Entry
from deskhand.mail import MailSummary
from deskhand.web.render import templates
from deskhand.web.times import shown_on, today_of
from deskhand.wording import (
    find_mail,
    name_deed,
    name_result,
    name_target,
    plain_error,
    spaced,
)

KEPT = 500
LONGEST = 3000
"""Characters of a row that is kept: a stranger's may have a hundred thousand."""


class _Rows:
    """Rows by everything that they are made of."""

    def __init__(self, make: Callable[..., Markup]) -> None:
        self._make = make
        self._made: dict[tuple[Any, ...], Markup] = {}

    async def draw(self, each: Sequence[tuple[Any, ...]]) -> Markup:
        rows = [self._made.get(what) for what in each]
        if None in rows:
            # Strangers' texts may be long, and what is made of them is not the event loop's.
            rows = await to_thread.run_sync(self._make_all, each)
        # `Markup.join` would look at each row once more.
        return Markup("".join(row for row in rows if row))  # noqa: S704 - each is markup

    def _make_all(self, each: Sequence[tuple[Any, ...]]) -> list[Markup | None]:
        if len(self._made) > KEPT:
            self._made.clear()
        rows: list[Markup | None] = []
        for what in each:
            row = self._made.get(what) or self._make(*what)
            if len(row) <= LONGEST:
                self._made[what] = row
            rows.append(row)
        return rows


def make_mail(today: date, zone: str, mail: MailSummary) -> Markup:
    pieces: Any = templates().get_template("mail_row.html").module
    row: Markup = pieces.row(mail, shown_on(today, mail.date, zone))
    return row


def make_entry(today: date, zone: str, seq: int, entry: Entry, who: str) -> Markup:
    pieces: Any = templates().get_template("timeline_row.html").module
    when = shown_on(today, datetime.fromisoformat(entry.timestamp), zone)
    names = (
        name_deed(entry.action_type, entry.parameters or {}),
        name_result(entry.result),
        name_target(entry.target),
    )
    error = plain_error(entry.error or "")
    row: Markup = pieces.row(
        seq, entry, *names, lead_to(entry.target), error, who, when, _details(entry)
    )
    return row


def lead_to(target: str) -> str | None:
    """The page of the mail or the thread that a line is about."""
    found = find_mail(target)
    return f"/{found[0]}/{quote(found[1], safe='')}" if found else None


def _details(entry: Entry) -> list[tuple[str, str]]:
    rows = [("written as", f"{entry.actor}, {entry.action_type}, {entry.result}")]
    if name_target(entry.target) != entry.target:
        rows.append(("about", entry.target))
    for key, value in (entry.parameters or {}).items():
        if key == "asker":
            continue  # it stands before the line
        if isinstance(value, str):
            rows.append((spaced(key), value))
        elif value is not None:
            rows.append((spaced(key), json.dumps(value)))
    return [*rows, ("reference", entry.correlation_id)]


_mails = _Rows(make_mail)
_entries = _Rows(make_entry)


async def draw_mails(desk: Desk, mails: Iterable[MailSummary]) -> Markup:
    today = today_of(desk)
    zone = desk.settings.timezone
    return await _mails.draw([(today, zone, mail) for mail in mails])


async def draw_entries(desk: Desk, lines: Iterable[tuple[int, Entry, str]]) -> Markup:
    """Of lines of the record, each with its number and who it speaks of."""
    today = today_of(desk)
    zone = desk.settings.timezone
    return await _entries.draw([(today, zone, *line) for line in lines])
