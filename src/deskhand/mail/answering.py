"""Whom an answer to all goes to."""

from collections.abc import Collection, Iterator, Sequence

from deskhand.errors import InvalidInput
from deskhand.mail import FullMessage
from deskhand.mail.addresses import once_each, people, recipient

_DOTLESS = ("gmail.com", "googlemail.com")


def address_all(mail: FullMessage, own: Collection[str]) -> tuple[str, str]:
    """The lines To and Cc: the author before all others, nobody twice, never oneself.

    Mail-Followup-To says it all. Where Reply-To is the list's doing the author is kept, and the list is never left out.
    """
    mine = set(map(_mailbox_of, own))

    def others(*lines: str) -> list[str]:
        return [each for line in lines for each in _addresses(line) if _mailbox_of(each) not in mine]

    summary = mail.summary
    if followup := others(mail.followup_to):
        return _lines(followup, [])
    author = others(mail.reply_to) or others(summary.sender) or others(summary.to)  # of a mail of one's own
    if {each.casefold() for each in author} == {each.casefold() for each in others(mail.list_post)}:
        author = others(summary.sender) or author
    named = others(summary.to, mail.cc, mail.list_post)
    return _lines(author or named, named)


def _lines(to: Sequence[str], cc: Sequence[str]) -> tuple[str, str]:
    if not to:
        raise InvalidInput("This mail names nobody whom one could answer.", hint="Send a new mail instead.")
    first, second = once_each(", ".join(to), ", ".join(cc))
    return first, second


def _addresses(line: str) -> Iterator[str]:
    """The bare addresses of a field; what is none is left out."""
    for person in people(line):
        try:
            yield recipient(person.address)
        except InvalidInput:
            continue


def _mailbox_of(address: str) -> str:
    """By what an address is known to be one's own: without what follows a plus, and Gmail counts no dots."""
    local, _, domain = address.casefold().rpartition("@")
    local = local.partition("+")[0] or local
    if domain in _DOTLESS:
        return f"{local.replace('.', '')}@{_DOTLESS[0]}"
    return f"{local}@{domain}"
