"""Whom this desk knows: counted in the ledger and in the mailbox's own Sent folder, never claimed by anybody."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Literal

from deskhand import clock
from deskhand.gate import lists
from deskhand.gate.correspondents import (
    Correspondence,
    find_met,
    list_heard_from,
    list_written_to,
)
from deskhand.mail import lookalikes
from deskhand.store import Transaction

_MOST_WRITTEN_TO = 2000
_MOST_HEARD_FROM = 2000
Badge = Literal["known", "replying", "new"]


@dataclass(frozen=True, slots=True)
class Recipient:
    address: str
    known: bool
    """Whether the person has written to the address before, or it is the sender of a mail that is answered."""
    since: str
    """One phrase for the badge: "3 mails sent, last on 2 Nov 2026" or "first email to this address"."""
    answered: bool = False
    """Known by nothing but the mail that is answered."""
    alike: str | None = None
    """Whom a new one looks like: "ann@example.org, whom you know"."""

    @property
    def badge(self) -> Badge:
        if self.answered:
            return "replying"
        return "known" if self.known else "new"


@dataclass(frozen=True, slots=True)
class Acquaintance:
    sent: dict[str, tuple[int, datetime]]
    """How many mails left for an address, and when the last one did."""
    domains: frozenset[str]
    zone: str
    """The person's own: a day begins there."""
    met: Mapping[str, Correspondence] = field(default_factory=dict)
    """What the mailbox has of an address."""
    written: frozenset[str] = frozenset()
    """Everybody whom the person has written to."""
    heard: frozenset[str] = frozenset()
    """Who wrote to the person, as far as anybody looked."""

    def recipient(
        self, address: str, sender: str | None, participants: Collection[str] = ()
    ) -> Recipient:
        """`sender` wrote the mail that is answered, and `participants` are all whom it names."""
        if found := self.sent.get(address.lower()):
            count, last = found
            plural = "s" if count > 1 else ""
            return Recipient(
                address,
                True,
                f"{count} mail{plural} sent, last on {clock.day(last, self.zone)}",
            )
        met = self.met.get(address.lower())
        if met and met.sent and met.last_sent:
            return Recipient(
                address,
                True,
                f"you wrote to them before, last on {clock.day(met.last_sent, self.zone)}",
            )
        if sender is not None and sender.lower() == address.lower():
            return Recipient(address, True, "your first email to them", answered=True)
        alike = self._find_alike(address)
        since = self._describe_new(address, alike, participants)
        return Recipient(address, False, since, alike=alike)

    def _find_alike(self, address: str) -> str | None:
        if twin := _find_twin(address, self.written):
            return f"{twin}, whom you know"
        if twin := _find_twin(address, self.heard):
            return f"{twin}, who wrote to you"
        return None

    def _describe_new(
        self, address: str, alike: str | None, participants: Collection[str]
    ) -> str:
        if alike is not None:
            return f"first email to this address; it looks like {alike}"
        if address.lower() in participants:
            return "in this thread; your first email to them"
        met = self.met.get(address.lower())
        if met and met.last_heard:
            return f"wrote to you before, on {clock.day(met.last_heard, self.zone)}; your first email to them"
        return "first email to this address"


def _find_twin(address: str, people: frozenset[str]) -> str | None:
    """The first of these that the address could pass for."""
    groups = _group_alike(people)
    near = [each for key in _keys_of(address) for each in groups.get(key, ())]
    return min((each for each in near if lookalikes.is_alike(address, each)), default=None)


@lru_cache(maxsize=4)
def _group_alike(people: frozenset[str]) -> Mapping[str, Sequence[str]]:
    """Once for all cards and each look at them: to hold a new address against thousands takes 50 ms."""
    groups: dict[str, list[str]] = defaultdict(list)
    for each in people:
        for key in _keys_of(each):
            groups[key].append(each)
    return groups


def _keys_of(address: str) -> tuple[str, str]:
    """What addresses that could pass for each other have in common, one of the two at least."""
    return lookalikes.skeleton(address), address.rpartition("@")[0].casefold()


def find(tx: Transaction, addresses: Iterable[str], zone: str) -> Acquaintance:
    """A few queries, however many the addresses are."""
    folded = sorted({address.lower() for address in addresses})
    written = find_written_to(tx, _MOST_WRITTEN_TO)
    domains = frozenset(address.rpartition("@")[2] for address in written)
    return Acquaintance(
        lists.mails_sent_to(tx, folded),
        domains,
        zone,
        find_met(tx, folded),
        written,
        frozenset(list_heard_from(tx, _MOST_HEARD_FROM)),
    )


def find_written_to(tx: Transaction, limit: int) -> frozenset[str]:
    """Addresses that the person has written to, from this desk or by another program; at most `limit` of each."""
    here = lists.addresses_written_to(tx, limit)
    return frozenset(here + list_written_to(tx, limit))
