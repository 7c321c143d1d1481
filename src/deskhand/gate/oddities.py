"""What is odd about a mail: whom it goes to, where its links lead, what its text hides. Pure."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from deskhand import unseen
from deskhand.gate.enclosures import Enclosure
from deskhand.gate.links import LOOKED_AT, UNREAD, linked_hosts, read_html
from deskhand.mail import html
from deskhand.mail.lookalikes import (
    count_scripts,
    domain_of,
    is_twin,
    looks_like,
    poses_as_latin,
    readable,
    skeleton,
)

Level = Literal["low", "medium", "high"]
LONG = 20_000
"""A text that nobody reads to its end before saying yes."""
MANY_RECIPIENTS = 10
SHOWN = 10
"""How many of a kind are named; the others are counted."""

_DELICATE = re.compile(
    r"\b(?:passwords?|passcodes?|passwort|credentials?|2fa|one-time code|verification code|pin code|api key"
    r"|invoices?|iban|bic|swift|wire|bank (?:account|details|transfer)|account number|credit card|payments?|refund"
    r"|gift cards?|bitcoin|rechnung|überweisung|kontonummer)\b"
    r"|\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the desk itself knows about a mail that would leave; nothing of it is anybody's claim."""

    account: str
    everybody: tuple[str, ...]
    """Each address that it goes to."""
    subject: str
    body: str
    new: frozenset[str] = frozenset()
    """Those of them whom the desk does not know, see `recipients`."""
    alike: tuple[tuple[str, str], ...] = ()
    """Each of those who looks like somebody the desk knows, and whom."""
    attachments: tuple[Enclosure, ...] = ()
    blind: tuple[str, ...] = ()
    """Those of them whom the others do not see."""
    sender: str | None = None
    """Whose mail it answers."""
    participants: tuple[str, ...] = ()
    """All whom that mail names."""
    domains: frozenset[str] = frozenset()
    """Of the addresses that this desk has written to."""
    warnings: tuple[str, ...] = ()
    """What is odd about the mail it answers."""
    html: str = ""
    """The same text as HTML, which leaves beside it."""
    as_text: bool = False
    """It leaves as plain text, though it is written as a page."""
    sent_before: str | None = None
    """That the very same mail has left already."""


Reasons = Iterator[tuple[Level, str]]
Checks = tuple[Callable[[Facts], Reasons], ...]


def _recipients(facts: Facts) -> Reasons:
    new = [each for each in facts.everybody if each in facts.new]
    if new:
        yield (
            "medium",
            f"New recipient{'s' if len(new) > 1 else ''}: this desk has never written to {_few(new)}.",
        )
    for address, other in facts.alike:
        yield "high", f"{address} is new and looks like {other}."
    outside = [each for each in facts.everybody if _is_outside(each, facts)]
    if len(facts.everybody) == 1 and outside:
        yield "low", "The recipient is outside your own domain."
    elif outside:
        yield (
            "low",
            f"{len(outside)} of {len(facts.everybody)} recipients are outside your own domain: {_few(outside)}.",
        )
    if len(facts.everybody) > MANY_RECIPIENTS:
        yield "medium", f"It goes to {len(facts.everybody)} recipients at once."
    if facts.blind:
        yield "medium", f"Blind copies, which the others do not see: {_few(facts.blind)}."


def _thread(facts: Facts) -> Reasons:
    if facts.sender is None:
        return
    first = facts.everybody[0]
    if facts.sender.lower() not in map(str.lower, facts.everybody):
        more = f" and {len(facts.everybody) - 1} more" if len(facts.everybody) > 1 else ""
        yield (
            "high",
            f"The answer goes to {first}{more}, not to {facts.sender}, who wrote the mail.",
        )
    there = {facts.sender.lower(), facts.account.lower(), *facts.participants}
    added = [each for each in facts.everybody if each.lower() not in there]
    if added and len(facts.everybody) > 1:
        level: Level = (
            "high" if any(_is_outside(each, facts) for each in added) else "medium"
        )
        yield level, f"The mail that it answers does not name {_few(added)}."


def _is_outside(address: str, facts: Facts) -> bool:
    return domain_of(address) != domain_of(facts.account)


def _spelling(facts: Facts) -> Reasons:
    for domain in dict.fromkeys(map(domain_of, facts.everybody)):
        yield from _spelling_of(domain, facts)


def _spelling_of(domain: str, facts: Facts) -> Reasons:
    shown = readable(domain)
    if count_scripts(shown) > 1:
        yield (
            "high",
            f"The domain {domain} reads as {shown}: letters of several alphabets that look alike.",
        )
    elif shown != domain and poses_as_latin(shown):
        yield (
            "high",
            f"The domain {domain} reads as {shown}, in foreign letters: it only looks like {skeleton(shown)}.",
        )
    elif shown != domain:
        yield "medium", f"The domain {domain} reads as {shown}."
    others = (facts.account, facts.sender or "", *facts.participants, *facts.everybody)
    trusted = facts.domains | set(map(domain_of, others))
    if domain not in facts.domains and domain != domain_of(facts.account):
        for other in sorted(trusted - {domain, ""}):
            if looks_like(shown, readable(other)):
                yield "high", f"The domain {domain} looks like {other}, but is another."


def _names(facts: Facts) -> Reasons:
    for address in facts.everybody:
        name = address.rpartition("@")[0]
        if count_scripts(name) > 1:
            yield (
                "high",
                f"The name {name} mixes letters of several alphabets that look alike.",
            )
        elif not name.isascii():
            yield "medium", f"The name {name} is not written in plain letters."
        twins = [
            each
            for each in (*facts.everybody, *facts.participants)
            if is_twin(each, address)
        ]
        if twins:
            yield "high", f"{address} looks like {twins[0]}, but is another."


def _links(facts: Facts) -> Reasons:
    hosts, masked = linked_hosts(
        _words_of(facts), read_html(facts.body, facts.html, as_text=facts.as_text)
    )
    if UNREAD in hosts:
        yield "high", f"There are {UNREAD}."
    if hosts:
        yield "medium", f"Links lead to: {_few(hosts)}."
    if masked:
        yield (
            "high",
            f"A link shows another name before the host that it leads to: {', '.join(masked[:SHOWN])}.",
        )


def _words_of(facts: Facts) -> str:
    """All that somebody may read: the text as it is written, and as a page shows it."""
    seen = read_html(facts.body, facts.html, as_text=facts.as_text)
    shown = seen.text[:LOOKED_AT] if seen else ""
    return f"{facts.subject}\n{facts.body[:LOOKED_AT]}\n{shown}"


def _few(names: Sequence[str], most: int = SHOWN) -> str:
    """The first of them, and whether there are others: a permission is only for what was named."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _html(facts: Facts) -> Reasons:
    seen = read_html(facts.body, facts.html, as_text=facts.as_text)
    if seen is None:
        return
    if facts.html:
        yield "low", "It leaves as HTML too: most readers see the page, not the text."
    else:
        shown = (
            f"a reader sees {len(seen.text):,} characters, not these {len(facts.body):,}"
        )
        yield "medium", f"It leaves as HTML: {shown}."
    if seen.hidden_parts:
        yield "high", f"Its HTML hides {seen.hidden_characters:,} characters from a reader."
    if seen.doubts or seen.elsewhere:
        named = [*seen.doubts[: html.MOST_DOUBTS], *(where for where, _ in seen.elsewhere)]
        yield (
            "high",
            f"Its HTML may hide text by what was not understood: {'; '.join(named)}.",
        )
    for shown, real in seen.misleading[:SHOWN]:
        yield "high", f"A link shows {shown} but leads to {real}."
    for host in seen.forms[:SHOWN]:
        yield "high", f"A form sends what is typed into it to {host}."


def _characters(facts: Facts) -> Reasons:
    for problem in unseen.describe(_words_of(facts)):
        yield "high", f"The text holds {problem}."


def _topic(facts: Facts) -> Reasons:
    words: dict[str, str] = {}
    for found in _DELICATE.finditer(_words_of(facts)):
        words.setdefault(found[0].casefold(), found[0])
    if words:
        named = [words[each] for each in sorted(words)]
        yield "medium", f"It speaks of money or secrets: {_few(named, 5)}."


def _attachments(facts: Facts) -> Reasons:
    for each in facts.attachments:
        for why in each.alarming:
            yield "high", f"The attachment {each.name} {why}."
        for why in each.odd:
            yield "medium", f"The attachment {each.name} {why}."
    if facts.attachments:
        files = (
            "a file" if len(facts.attachments) == 1 else f"{len(facts.attachments)} files"
        )
        yield "medium", f"It takes {files} along: read what is inside."


def _weight(facts: Facts) -> Reasons:
    if len(facts.body) > LOOKED_AT:
        yield (
            "high",
            f"The text has {len(facts.body):,} characters; only {LOOKED_AT:,} of them were looked at.",
        )
    elif len(facts.body) > LONG:
        yield "medium", f"The text is long: {len(facts.body):,} characters."


def _repetition(facts: Facts) -> Reasons:
    if facts.sent_before is not None:
        yield "high", facts.sent_before


def _original(facts: Facts) -> Reasons:
    for warning in facts.warnings:
        yield "medium", f"The mail it answers: {warning.removesuffix('.')}."


MAIL_CHECKS: Checks = (
    _repetition,
    _recipients,
    _thread,
    _spelling,
    _names,
    _links,
    _html,
    _characters,
    _topic,
    _attachments,
    _weight,
    _original,
)


TEXT_CHECKS: Checks = (_repetition, _links, _characters, _topic, _weight)
"""Those that look at nothing but a text."""
QUESTION_CHECKS: Checks = (_links, _characters, _weight)


def find_oddities(facts: Facts, checks: Checks) -> list[tuple[Level, str]]:
    return [each for check in checks for each in check(facts)]
