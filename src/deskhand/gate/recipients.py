"""Whom this desk knows: counted in the ledger, never claimed by anybody."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from deskhand.gate import ledger
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

    def recipient(self, address: str, sender: str | None, participants: Collection[str] = ()) -> Recipient:
        """`sender` wrote the mail that is answered, and `participants` are all whom it names."""
        if found := self.sent.get(address.casefold()):
            count, last = found
            plural = "s" if count > 1 else ""
            return Recipient(address, True, f"{count} mail{plural} sent, last on {last:%Y-%m-%d}")
        if sender is not None and sender.casefold() == address.casefold():
            return Recipient(address, True, "wrote the mail that this answers; never written to")
        if address.casefold() in participants:
            return Recipient(address, False, "is named in the mail that this answers; never written to")
        return Recipient(address, False, "never written to")


def find(tx: Transaction, addresses: Iterable[str]) -> Acquaintance:
    """Two queries, however many the addresses are."""
    folded = sorted({address.casefold() for address in addresses})
    written = ledger.addresses_written_to(tx, _MOST_DOMAINS)
    domains = frozenset(address.rpartition("@")[2] for address in written)
    return Acquaintance(ledger.mails_sent_to(tx, folded), domains)
