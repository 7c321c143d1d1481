"""Files that go with a mail. Their bytes are kept from the proposal on: what was approved is what is sent."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from operator import not_

from pydantic import BaseModel, ConfigDict, Field

from deskhand import clock
from deskhand.config import Settings
from deskhand.errors import DeskError, FieldProblem, InvalidInput, SendFailed
from deskhand.mail import SLOW_LINE
from deskhand.mail.inspection import UNKNOWN, inspect
from deskhand.mail.mime import MAIL_TYPE, attachment_name, can_enclose
from deskhand.notes.attached import read_again
from deskhand.store import Transaction

LARGEST = 20_000_000
LARGEST_TOGETHER = 25_000_000
MOST = 20
_CODED = 1.4
"""How much longer a file is in a mail, where 57 of its bytes are a line of 78."""
_TYPE = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,60}")


class Enclosure(BaseModel):
    """A file as the person sees it before it leaves, bound to its bytes."""

    model_config = ConfigDict(frozen=True)

    name: str
    content_type: str
    size: int
    sha256: str
    path: str = Field("", exclude_if=not_)
    """In the vault; a file of a mail that is passed on has none."""
    alarming: tuple[str, ...] = Field((), exclude_if=not_)
    odd: tuple[str, ...] = Field((), exclude_if=not_)

    def describe(self) -> str:
        return (
            f"{self.name} ({self.content_type}, {self.size:,} bytes, SHA-256 {self.sha256})"
        )


def enclose(
    name: str, content: bytes, path: str = "", content_type: str | None = None
) -> Enclosure:
    shown = attachment_name(name)
    found = inspect(shown, content)
    return Enclosure(
        name=shown,
        content_type=_sound_type(content_type, content) or found.content_type,
        size=len(content),
        sha256=sha256(content).hexdigest(),
        path=path,
        alarming=found.alarming,
        odd=found.odd,
    )


def _sound_type(given: str | None, content: bytes) -> str | None:
    """The type that somebody else wrote, where it can be written again; a mail inside must
    be one that can travel."""
    if given is None or not _TYPE.fullmatch(given):
        return None
    if given.startswith(("message/", "multipart/")) and (
        given != MAIL_TYPE or not can_enclose(content)
    ):
        return UNKNOWN
    return given


def demand_bounded(sizes: Sequence[int]) -> None:
    """Refuse what no provider takes."""
    problem = None
    if len(sizes) > MOST:
        problem = f"A mail takes at most {MOST} attachments."
    elif max(sizes, default=0) > LARGEST:
        problem = f"An attachment has at most {LARGEST:,} bytes."
    elif sum(sizes) > LARGEST_TOGETHER:
        problem = (
            f"All attachments of a mail have at most {LARGEST_TOGETHER:,} bytes together."
        )
    if problem:
        hint = "put it where the recipient can fetch it, and send the link; or send several mails"
        raise InvalidInput(
            problem, fields=[FieldProblem("attachments", problem)], hint=hint
        )


def time_to_hand_over(enclosures: Sequence[Enclosure]) -> timedelta:
    """How much longer their mail may take on a slow line than one without them."""
    size = sum(each.size for each in enclosures)
    return timedelta(seconds=_CODED * size / SLOW_LINE)


def keep(tx: Transaction, contents: Iterable[bytes], now: datetime) -> None:
    for content in contents:
        tx.execute(
            "INSERT INTO enclosures (sha256, content, kept) VALUES (?, ?, ?)"
            " ON CONFLICT (sha256) DO UPDATE SET kept = excluded.kept",
            *(sha256(content).hexdigest(), content, clock.to_ms(now)),
        )


def find(tx: Transaction, enclosure: Enclosure) -> bytes | None:
    row = tx.one("SELECT content FROM enclosures WHERE sha256 = ?", enclosure.sha256)
    return bytes(row[0]) if row else None


def load(tx: Transaction, enclosures: Sequence[Enclosure]) -> list[bytes]:
    """The bytes that were approved, all of them."""
    found = [find(tx, each) for each in enclosures]
    for enclosure, content in zip(enclosures, found, strict=True):
        if content is None or sha256(content).hexdigest() != enclosure.sha256:
            raise SendFailed(
                f"the bytes of {enclosure.name} are no longer kept; nothing was sent"
            )
    return [content for content in found if content is not None]


def sweep(tx: Transaction, before: datetime) -> int:
    """Forget what no open request needs, once it is older than that."""
    rows = tx.all("SELECT sha256 FROM enclosures WHERE kept < ?", clock.to_ms(before))
    open_ones = tx.all(
        "SELECT action FROM requests WHERE state IN ('waiting', 'held', 'approved', 'sending', 'unknown', 'failed')"
        " AND action LIKE ?",
        '%"attachments":%',
    )
    gone = [name for (name,) in rows if not any(name in action for (action,) in open_ones)]
    for name in gone:
        tx.execute("DELETE FROM enclosures WHERE sha256 = ?", name)
    return len(gone)


def find_changed(settings: Settings, enclosures: Iterable[Enclosure]) -> str | None:
    """What became of the first file of a vault that is no longer what was proposed."""
    for each in enclosures:
        if not each.path or settings.vault_path is None:
            continue
        try:
            vault, path = settings.locate(each.path)
            _, content = read_again(vault.path, path, LARGEST)
        except (DeskError, OSError):
            return f"{each.path} is no longer there as it was"
        if sha256(content).hexdigest() != each.sha256:
            return f"{each.path} has changed"
    return None
