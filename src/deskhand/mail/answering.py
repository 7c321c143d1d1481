"""Whom an answer goes to: the author alone, or all."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from deskhand.errors import InvalidInput
from deskhand.mail import FullMessage
from deskhand.mail.addresses import addresses_in, once_each

_DOTLESS = ("gmail.com", "googlemail.com")


def address_author(mail: FullMessage, own: Collection[str]) -> str:
    """The one who is answered, never oneself."""
    first, *_ = _demand(_authors(mail, own))
    return first


def name_author(mail: FullMessage, own: Collection[str]) -> str | None:
    """The one whom an answer goes to where the mail asks for no other address."""
    return next(iter(_authors(replace(mail, reply_to=""), own)), None)


def find_astray(mail: FullMessage) -> str:
    """The address that the mail wants its answer at, where that is not its sender's; else empty."""
    asked = next(iter(addresses_in(mail.reply_to)), "")
    senders = set(map(mailbox_of, addresses_in(mail.summary.sender)))
    return "" if mailbox_of(asked) in senders else asked


def address_all(mail: FullMessage, own: Collection[str]) -> tuple[str, str]:
    """The lines To and Cc: the author before all others, nobody twice, never oneself.

    Mail-Followup-To says it all. Where Reply-To is the list's doing the author is kept, and the list is never left out.
    """
    summary = mail.summary
    if followup := _others(own, mail.followup_to):
        return _lines(followup, [])
    author = _authors(mail, own)
    if {each.lower() for each in author} == {
        each.lower() for each in _others(own, mail.list_post)
    }:
        author = _others(own, summary.sender) or author
    named = _others(own, summary.to, mail.cc, mail.list_post)
    return _lines(author or named, named)


def left_out(
    named: Collection[str], own: Collection[str], answered: Collection[str]
) -> list[str]:
    """Those whom a mail names and to whom an answer does not go; oneself is not counted."""
    return _others({*own, *answered}, *named)


def _authors(mail: FullMessage, own: Collection[str]) -> list[str]:
    """Reply-To before From; of a mail of one's own those whom it went to."""
    sender = _others(own, mail.summary.sender)
    addressed = _others(own, mail.summary.to)
    if addressed and not sender and any(addresses_in(mail.summary.sender)):
        return addressed
    return _others(own, mail.reply_to) or sender or addressed


def _others(own: Collection[str], *lines: str) -> list[str]:
    mine = set(map(mailbox_of, own))
    return [
        each
        for line in lines
        for each in addresses_in(line)
        if mailbox_of(each) not in mine
    ]


def _demand(answered: Sequence[str]) -> Sequence[str]:
    if not answered:
        raise InvalidInput(
            "This mail names nobody whom one could answer.", hint="Send a new mail instead."
        )
    return answered


def _lines(to: Sequence[str], cc: Sequence[str]) -> tuple[str, str]:
    first, second = once_each(", ".join(_demand(to)), ", ".join(cc))
    return first, second


def mailbox_of(address: str) -> str:
    """By what an address is known to be one's own: without what follows a plus, and Gmail counts no dots."""
    plain, *_ = *addresses_in(address), address
    local, _, domain = plain.lower().rpartition("@")
    local = local.partition("+")[0] or local
    if domain in _DOTLESS:
        return f"{local.replace('.', '')}@{_DOTLESS[0]}"
    return f"{local}@{domain}"
