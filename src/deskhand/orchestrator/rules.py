"""The person's rules for mail, in `rules.toml`: read, explained where they are wrong, tried out, and added to.

The first rule that holds decides. Without the file, known newsletters are archived and the rest asks.
"""

import asyncio
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from deskhand import files
from deskhand.app import Desk
from deskhand.config import MAIN
from deskhand.errors import BadConfig, InvalidInput
from deskhand.mail import FullMessage, MailSummary
from deskhand.mail.mailboxes import split
from deskhand.orchestrator.triage import (
    Choice,
    Decision,
    MailToDecide,
    Reply,
    Ruling,
    Words,
    ask,
    sender_of,
)

FILE = "rules.toml"
TRIED = 100
"""How many of the newest mails a rule is tried against before it counts."""
MOST_NAMED = 20
"""So many errors of the file are named, each with its line."""
NEWSLETTERS = (
    "substack.com",
    "beehiiv.com",
    "mailchimpapp.net",
    "mcsv.net",
    "buttondown.email",
    "ghost.io",
)
"""Hosts that send newsletters and nothing else."""
_HINT = "correct the file or move it away"
_AT_ONCE = 8


class _Then(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    decision: Choice
    reply_body: Reply | None = None
    delegation_target: Words | None = None
    info_needed: Words | None = None
    reason: Words | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        self.decide("rule")
        return self

    def decide(self, name: str) -> Decision:
        chosen = self.model_dump(exclude={"reason"}, include=set(_Then.model_fields))
        return Decision(confidence=1, reasoning=self.reason or name, **chosen)


class Rule(_Then):
    """All of what is given must hold; a rule that gives nothing would hold for everything, so it is refused."""

    name: Words
    account: Words | None = None
    sender: Words | None = None
    domain: Words | None = None
    subject: Words | None = None
    list_id: Words | None = None
    list_mail: bool | None = None
    newsletter: bool | None = None
    leave_inbox: bool | None = None
    """Whether a mail that it archives leaves the inbox of its mailbox too, and not its note alone."""

    @model_validator(mode="after")
    def _leaves_what_it_archives(self) -> Self:
        if self.leave_inbox and self.decision != "archive":
            raise ValueError("leave_inbox is for the decision archive alone")
        return self

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        asked = (
            "account",
            "sender",
            "domain",
            "subject",
            "list_id",
            "list_mail",
            "newsletter",
        )
        if all(getattr(self, name) is None for name in asked):
            raise ValueError(f"needs at least one of {', '.join(asked)}")
        return self

    def holds(self, mail: FullMessage) -> bool:
        domain = sender_of(mail.summary).rpartition("@")[2]
        known = mail.list_mail and any(_is_below(domain, host) for host in NEWSLETTERS)
        return (
            self.may_hold(mail.summary)
            and (self.list_id is None or self.list_id.casefold() == mail.list_id.casefold())
            and self.list_mail in (None, mail.list_mail)
            and self.newsletter in (None, known)
        )

    def may_hold(self, mail: MailSummary) -> bool:
        """As far as a list of mails tells."""
        address = sender_of(mail)
        domain = address.rpartition("@")[2]
        return (
            (self.account is None or self.account in _accounts_of(mail))
            and (self.sender is None or self.sender.lower() == address)
            and (self.domain is None or _is_below(domain, self.domain.lower()))
            and (self.subject is None or self.subject.casefold() in mail.subject.casefold())
        )


def _accounts_of(mail: MailSummary) -> tuple[str, str]:
    """The account that has the mail, by its name and by its address."""
    return split(mail.id)[0] or MAIN, mail.account


def _is_below(domain: str, host: str) -> bool:
    return domain == host or domain.endswith(f".{host}")


class Rules(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    default: _Then = _Then(
        decision="needs_info",
        info_needed="No rule covers this mail and no model is configured. Decide here, or let an assistant propose.",
        reason="no rule covers it",
    )
    rule: tuple[Rule, ...] = (
        Rule(name="known newsletters", newsletter=True, decision="archive"),
    )

    def match(self, letter: MailToDecide) -> Ruling | None:
        for rule in self.rule:
            if rule.holds(letter.mail):
                decision = _heeding(rule.decide(f"the rule {rule.name!r}"), letter)
                return Ruling(f"rule:{rule.name}", decision, bool(rule.leave_inbox))
        return None


def _heeding(decision: Decision, letter: MailToDecide) -> Decision:
    """A ready-made reply that the person rejected for this sender is not drafted again."""
    last = next(iter(letter.corrections), None)
    if decision.reply_body is None or last is None or last[0] != "rejected":
        return decision
    return ask(
        f"The last draft to this sender was rejected: {last[1]}", "what to answer this time"
    )


# Reading.


def load_rules(home: Path) -> Rules:
    file = home / FILE
    try:
        return _parse(file, file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Rules()
    except (OSError, ValueError) as error:
        raise BadConfig(f"cannot read {file}: {error}", hint=_HINT) from error
    except RecursionError as error:
        raise BadConfig(
            f"cannot read {file}: its values are nested too deeply", hint=_HINT
        ) from error


def _parse(file: Path, text: str) -> Rules:
    given = tomllib.loads(text)
    try:
        return Rules.model_validate(given)
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        problems = [
            _describe(text, each["loc"], _say_problem(each)) for each in wrong[:MOST_NAMED]
        ]
        if len(wrong) > MOST_NAMED:
            problems.append(f"and {len(wrong) - MOST_NAMED:,} more")
        raise BadConfig(f"{file} has errors: {'; '.join(problems)}", hint=_HINT) from error


_NOT_SO = {
    "missing": "is missing",
    "extra_forbidden": "there is no such word here",
    "string_type": "is no text",
    "bool_type": "is neither true nor false",
    "bool_parsing": "is neither true nor false",
    "list_type": "is no list of [[rule]] tables",
    "model_type": "is no table",
}
"""What pydantic calls its findings, for whoever wrote the file."""


def _say_problem(found: Mapping[str, Any]) -> str:
    if found["type"] == "literal_error":
        return f"is none of {found['ctx']['expected']}"
    return _NOT_SO.get(found["type"]) or str(found["msg"])


def _describe(text: str, where: Sequence[int | str], problem: str) -> str:
    """The problem with its line, as far as the file tells: `line 7: rule 2, sender: must not be empty`."""
    named = [str(each + 1) if isinstance(each, int) else each for each in where]
    name = " ".join(named[:2]) + "".join(f", {each}" for each in named[2:])
    line = _find_line(text, where)
    place = f"line {line}: " if line else ""
    return f"{place}{name}: {problem.removeprefix('Value error, ')}"


def _find_line(text: str, where: Sequence[int | str]) -> int | None:
    """Of the key itself, else of the table that it belongs to."""
    match where:
        case ["rule", int(number), *keys]:
            heads = re.compile(r"^[ \t]*\[\[\s*rule\s*\]\]", re.MULTILINE)
        case [str(table), *keys]:
            number = 0
            heads = re.compile(rf"^[ \t]*\[?\s*[\"']?{re.escape(table)}\b", re.MULTILINE)
        case _:
            return None
    starts = [found.start() for found in heads.finditer(text)]
    if number >= len(starts):
        return None
    start, *following = starts[number:]
    for key in keys[:1]:
        line = re.compile(rf"^[ \t]*[\"']?{re.escape(str(key))}\b", re.MULTILINE)
        if found := line.search(text, start, following[0] if following else len(text)):
            start = found.start()
    return text.count("\n", 0, start) + 1


class RulesFile:
    """The person's rules as they stand: read again whenever their file was changed."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._read: tuple[int, Rules] | None = None

    def read(self) -> Rules:
        """BadConfig while the file has errors: nobody decides by rules that the person has changed since."""
        stamp = 0
        with suppress(OSError):
            stamp = (self._home / FILE).stat().st_mtime_ns
        if self._read is None or self._read[0] != stamp:
            self._read = None
            self._read = (stamp, load_rules(self._home))
        return self._read[1]


# Trying and adding.


async def find_touched(desk: Desk, rule: Rule) -> tuple[list[MailSummary], int]:
    """Which of the newest mails that came in the rule would have decided, and how many were looked at.

    A mail that an earlier rule decides is not this one's.
    """
    earlier = load_rules(desk.settings.home).rule
    mails = await desk.mailbox.search("-in:sent -in:drafts", TRIED)
    turns = asyncio.Semaphore(_AT_ONCE)

    async def touches(mail: MailSummary) -> bool:
        async with turns:
            full = await desk.mailbox.get(mail.id)
        return rule.holds(full) and not any(each.holds(full) for each in earlier)

    chosen = [mail for mail in mails if rule.may_hold(mail)]
    verdicts = await asyncio.gather(*map(touches, chosen))
    return [
        mail for mail, is_touched in zip(chosen, verdicts, strict=True) if is_touched
    ], len(mails)


def add_rule(home: Path, rule: Rule) -> None:
    """Write the rule behind those that are there; every byte of these stays, and what
    would not be read is refused."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    file = home / FILE
    known: dict[str, Any] = {}
    text = ""
    try:
        load_rules(home)
        if file.exists():
            text = file.read_bytes().decode()
        else:  # as long as there is no file these hold, and they go on
            known["rule"] = [each.model_dump(exclude_none=True) for each in Rules().rule]
        if text and not text.endswith("\n"):  # what is added would go on in the last line
            text += "\n"
        document = tomlkit.parse(text)
        document.update(known)
        made = rule.model_dump(exclude_none=True)
        if isinstance(document.get("rule"), tomlkit.items.Array):
            document["rule"].append(made)
        else:
            document.setdefault("rule", tomlkit.aot()).append(tomlkit.item(made))
        new = tomlkit.dumps(document)
        _parse(file, new)
        written = new.encode()
    except (TOMLKitError, ValueError, BadConfig) as error:
        raise InvalidInput(
            f"the rule could not be added: {error}", hint=f"write it into {file} by hand"
        ) from error
    files.write_atomically(file, written)
