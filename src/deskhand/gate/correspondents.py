"""Whom the person has written to and heard from, as the mailbox has it: sent mail teaches whom the desk knows."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import anyio

from deskhand import clock
from deskhand.errors import DeskError
from deskhand.mail import Mailbox, MailSummary, lookalikes, mime
from deskhand.mail.addresses import people
from deskhand.store import Store, Transaction, marks

log = logging.getLogger("deskhand.correspondents")

_PATIENCE = 5.0
"""Seconds after which nobody waits for a slow mailbox: the card then says less."""
_LOOKED_AT = 20
_OPENED = 3
"""Mails that are opened, because a list of mails does not tell who got a copy."""
_MOST = 5
"""Recipients that are looked for; who writes to more is shown a card that says so anyway."""


@dataclass(frozen=True, slots=True)
class Correspondence:
    """What the mailbox says about an address."""

    sent: int
    """Mails of the person to it, of those that were looked at."""
    last_sent: datetime | None
    last_heard: datetime | None


async def learn_about(store: Store, mailbox: Mailbox, addresses: Sequence[str]) -> None:
    """Look up what the mailbox has of these addresses. Where it cannot say, nothing changes."""
    try:
        with anyio.move_on_after(_PATIENCE):
            for address in addresses[:_MOST]:
                await _look_up(store, mailbox, address)
    except DeskError as error:
        log.info("not_met", extra={"why": error.message})


async def _look_up(store: Store, mailbox: Mailbox, address: str) -> None:
    name = address.rpartition("@")[0]
    # By the name alone: whoever is called the same elsewhere is found too, and a look-alike of theirs is noticed.
    sent = await mailbox.search(f'in:sent to:"{name}"', _LOOKED_AT)
    heard = await mailbox.search(f'from:"{address}"', 1)
    counted, last = _count(await _find_reached(mailbox, name.lower(), sent))
    if heard or address.lower() in counted:
        counted.setdefault(address.lower(), 0)
    moment = clock.to_ms(heard[0].date) if heard and _wrote(heard[0], address) else None

    def remember(tx: Transaction) -> None:
        for each, count in counted.items():
            own = moment if each == address.lower() else None
            tx.execute(
                "INSERT INTO met (address, sent, last_sent, last_heard) VALUES (?, ?, ?, ?) ON CONFLICT (address)"
                " DO UPDATE SET sent = excluded.sent, last_sent = excluded.last_sent,"
                " last_heard = COALESCE(excluded.last_heard, met.last_heard)",
                *(each, count, last.get(each), own),
            )

    if counted:
        await store.write(remember)
    if not counted[address.lower()] and (alike := await _find_alike(mailbox, address)):
        await store.write(_note_heard, alike)


async def _find_alike(mailbox: Mailbox, address: str) -> dict[str, int]:
    """Who looks like this address and wrote to the person, and when; among the newest mails of the same name, and of
    the same domain.
    """
    name, _, domain = address.rpartition("@")
    found: dict[str, int] = {}
    for part in (name, domain):
        for mail in await mailbox.search(f'from:"{part}"', _LOOKED_AT):
            for each in _addresses(mail.sender):
                if lookalikes.is_alike(address, each):
                    found[each] = max(found.get(each, 0), clock.to_ms(mail.date))
    return found


def _note_heard(tx: Transaction, heard: Mapping[str, int]) -> None:
    for address, moment in heard.items():
        tx.execute(
            "INSERT INTO met (address, sent, last_heard) VALUES (?, 0, ?)"
            " ON CONFLICT (address) DO UPDATE SET last_heard = excluded.last_heard",
            *(address, moment),
        )


async def _find_reached(
    mailbox: Mailbox, name: str, sent: Sequence[MailSummary]
) -> list[tuple[datetime, set[str]]]:
    """When each of these mails left, and whom it reached. What is found though nobody of that name is in its To was
    found by a copy: in every mailbox `to:` finds Cc and Bcc too.
    """
    reached = []
    opened = 0
    for mail in sent:
        found = _addresses(mail.to)
        if name not in {each.rpartition("@")[0] for each in found} and opened < _OPENED:
            found |= await _find_copied(mailbox, mail.id)
            opened += 1
        reached.append((mail.date, found))
    return reached


async def _find_copied(mailbox: Mailbox, message_id: str) -> set[str]:
    raw = await mailbox.read_raw(message_id)
    copied = await asyncio.to_thread(mime.find_copied, raw)
    return {person.address.lower() for person in copied}


def _addresses(line: str) -> set[str]:
    return {person.address.lower() for person in people(line)}


def _count(
    reached: Sequence[tuple[datetime, set[str]]],
) -> tuple[Counter[str], dict[str, int]]:
    """How many mails reached whom, and when the last one did."""
    counted: Counter[str] = Counter()
    last: dict[str, int] = {}
    for at, addresses in reached:
        for address in addresses:
            counted[address] += 1
            last[address] = max(last.get(address, 0), clock.to_ms(at))
    return counted, last


def _wrote(mail: MailSummary, address: str) -> bool:
    return address.lower() in _addresses(mail.sender)


def find_met(tx: Transaction, addresses: Sequence[str]) -> dict[str, Correspondence]:
    rows = tx.all(
        f"SELECT address, sent, last_sent, last_heard FROM met WHERE address IN ({marks(addresses) or 'NULL'})",
        *addresses,
    )
    return {
        address: Correspondence(sent, _moment(last), _moment(heard))
        for address, sent, last, heard in rows
    }


def list_written_to(tx: Transaction, limit: int) -> list[str]:
    """Addresses that the person has written to by whichever program."""
    return [
        address
        for (address,) in tx.all("SELECT address FROM met WHERE sent > 0 LIMIT ?", limit)
    ]


def list_heard_from(tx: Transaction, limit: int) -> list[str]:
    """Addresses that wrote to the person, as far as anybody looked; the latest first."""
    sql = "SELECT address FROM met WHERE last_heard IS NOT NULL ORDER BY last_heard DESC LIMIT ?"
    return [address for (address,) in tx.all(sql, limit)]


def _moment(at: int | None) -> datetime | None:
    return None if at is None else clock.from_ms(at)
