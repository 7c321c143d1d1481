"""Whom this desk knows: counted in the ledger, never claimed by anybody."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from deskhand.store import Transaction

_MOST_DOMAINS = 2000


@dataclass(frozen=True, slots=True)
class Recipient:
    address: str
    known: bool
    """Whether this desk has written to the address before, or it is the sender of a mail that is answered."""
    since: str
    """One phrase for the badge: "3 mails sent, last on 2026-11-02" or "never written to"."""


@dataclass(frozen=True, slots=True)
class Acquaintance:
    sent: dict[str, tuple[int, datetime]]
    """How many mails left for an address, and when the last one did."""
    domains: frozenset[str]

    def recipient(self, address: str, sender: str | None) -> Recipient:
        """`sender` wrote the mail that is answered."""
        count, last = self.sent.get(address.casefold(), (0, None))
        if last is not None:
            return Recipient(address, True, f"{count} mail{'s' if count > 1 else ''} sent, last on {last:%Y-%m-%d}")
        if sender is not None and sender.casefold() == address.casefold():
            return Recipient(address, True, "wrote the mail that this answers; never written to")
        return Recipient(address, False, "never written to")


def look(tx: Transaction, addresses: Iterable[str]) -> Acquaintance:
    """Two queries, however many the addresses are."""
    folded = sorted({address.casefold() for address in addresses})
    marks = ", ".join("?" for _ in folded) or "NULL"
    counted = tx.all(
        "SELECT recipient, COUNT(*), MAX(COALESCE(frozen, created)) FROM actions"
        f" WHERE state = 'sent' AND recipient IN ({marks}) GROUP BY recipient",
        *folded,
    )
    written = tx.all(
        "SELECT DISTINCT recipient FROM actions WHERE state = 'sent' AND recipient IS NOT NULL LIMIT ?", _MOST_DOMAINS
    )
    return Acquaintance(
        {address: (count, datetime.fromtimestamp(last / 1000, UTC)) for address, count, last in counted},
        frozenset(address.rpartition("@")[2] for (address,) in written),
    )
