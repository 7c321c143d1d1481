"""What to do with a mail: the person's rules first, then a model if there is one, else the rules' default.

Whoever decides, the decision is one of five, and none of them sends anything.
"""

import re
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from deskhand.config import MAIN
from deskhand.errors import BadConfig, FieldProblem, printable
from deskhand.mail import FullMessage, MailSummary
from deskhand.mail.addresses import people
from deskhand.mail.mailboxes import split

Choice = Literal["draft_reply", "archive", "needs_info", "urgent", "delegate"]
LONGEST_REPLY = 50_000


def _demand_words(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


Words = Annotated[str, AfterValidator(_demand_words), Field(max_length=2000)]
Reply = Annotated[str, AfterValidator(_demand_words), Field(max_length=LONGEST_REPLY)]


class Decision(BaseModel):
    """The contract's triage. There is no field for a recipient: code sets it from the mail's headers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    decision: Choice
    confidence: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
    reasoning: Words
    reply_body: Reply | None = None
    delegation_target: Words | None = None
    info_needed: Words | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        needed = {"draft_reply": "reply_body", "delegate": "delegation_target", "needs_info": "info_needed"}
        field = needed.get(self.decision)
        if field is not None and getattr(self, field) is None:
            raise ValueError(f"{self.decision} needs {field}")
        return self


@dataclass(frozen=True, slots=True)
class MailToDecide:
    """All that whoever decides gets to see: one mail, its thread, and what the person corrected before."""

    mail: FullMessage
    thread: Sequence[MailSummary]
    corrections: Sequence[tuple[str, str]]
    words: str | None = None
    """What the person said to the last draft: do it this way."""

    @property
    def sender(self) -> str:
        return sender(self.mail)


def sender(mail: FullMessage) -> str:
    """The address in From, or as much of it as there is."""
    found = people(mail.summary.sender)
    return (found[0].address if found else mail.summary.sender).casefold()


# Rules.

NEWSLETTERS = ("substack.com", "beehiiv.com", "mailchimpapp.net", "mcsv.net", "buttondown.email", "ghost.io")
"""Hosts that send newsletters and nothing else."""


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
    list_mail: bool | None = None
    newsletter: bool | None = None

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        asked = ("account", "sender", "domain", "subject", "list_mail", "newsletter")
        if all(getattr(self, name) is None for name in asked):
            raise ValueError(f"needs at least one of {', '.join(asked)}")
        return self

    def holds(self, mail: FullMessage) -> bool:
        address = sender(mail)
        domain = address.rpartition("@")[2]
        known = mail.list_mail and any(_is_below(domain, host) for host in NEWSLETTERS)
        return (
            (self.account is None or self.account in _accounts_of(mail.summary))
            and (self.sender is None or self.sender.casefold() == address)
            and (self.domain is None or _is_below(domain, self.domain.casefold()))
            and (self.subject is None or self.subject.casefold() in mail.summary.subject.casefold())
            and self.list_mail in (None, mail.list_mail)
            and self.newsletter in (None, known)
        )


def _accounts_of(mail: MailSummary) -> tuple[str, str]:
    """The account that has the mail, by its name and by its address."""
    return split(mail.id)[0] or MAIN, mail.account


class Rules(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    default: _Then = _Then(
        decision="needs_info",
        info_needed="No rule covers this mail and no model is configured. Decide here, or let an assistant propose.",
        reason="no rule covers it",
    )
    rule: tuple[Rule, ...] = (Rule(name="known newsletters", newsletter=True, decision="archive"),)

    def match(self, letter: MailToDecide) -> tuple[str, Decision] | None:
        for rule in self.rule:
            if rule.holds(letter.mail):
                return f"rule:{rule.name}", _heeding(rule.decide(f"the rule {rule.name!r}"), letter)
        return None


def load_rules(home: Path) -> Rules:
    """`rules.toml` in the desk's home; without one, known newsletters are archived and the rest asks."""
    file = home / "rules.toml"
    try:
        return Rules.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Rules()
    except ValidationError as error:
        problems = [
            FieldProblem(".".join(map(str, each["loc"])), each["msg"], printable(each["input"]))
            for each in error.errors(include_url=False)
        ]
        raise BadConfig(f"{file} has errors", hint="correct the file or move it away", fields=problems) from error
    except (OSError, ValueError) as error:
        raise BadConfig(f"cannot read {file}: {error}", hint="correct the file or move it away") from error


class RulesFile:
    """The person's rules as they stand: read again whenever their file was changed."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._read: tuple[int, Rules] | None = None

    def read(self) -> Rules:
        """BadConfig while the file has errors: nobody decides by rules that the person has changed since."""
        stamp = 0
        with suppress(OSError):
            stamp = (self._home / "rules.toml").stat().st_mtime_ns
        if self._read is None or self._read[0] != stamp:
            self._read = None
            self._read = (stamp, load_rules(self._home))
        return self._read[1]


def _heeding(decision: Decision, letter: MailToDecide) -> Decision:
    """A ready-made reply that the person rejected for this sender is not drafted again."""
    last = next(iter(letter.corrections), None)
    if decision.reply_body is None or last is None or last[0] != "rejected":
        return decision
    return ask(f"The last draft to this sender was rejected: {last[1]}", "what to answer this time")


# What holds for every model.

_DELICATE = {
    "money": r"invoice|payment|iban|bank|refund|tax|salary|payroll|wire|overdue|rechnung|zahlung|konto|mahnung|steuer"
    r"|facture|paiement|factura|pago|fattura|[€$£]\s?\d|\d\s?(?:€|eur|usd|gbp)\b",
    "law": r"legal|lawyer|attorney|court|lawsuit|subpoena|contract|liab|gdpr|settlement|deadline to respond|anwalt"
    r"|gericht|klage|vertrag|kündigung|frist|avocat|tribunal|abogado|contrato",
    "security": r"password|passcode|security|breach|phish|2fa|verification code|one-time|sign-?in|log-?in|suspicious"
    r"|unauthori[sz]ed|account (?:locked|suspended)|passwort|sicherheit|anmeldung|mot de passe|contraseña",
}
_PATTERNS = {subject: re.compile(pattern, re.IGNORECASE) for subject, pattern in _DELICATE.items()}


def delicate(mail: FullMessage) -> str | None:
    """Whether it is about money, law or security, as far as words tell. Rather too often than not."""
    text = f"{mail.summary.sender} {mail.summary.subject} {mail.body}"
    return next((subject for subject, pattern in _PATTERNS.items() if pattern.search(text)), None)


def restrain(decision: Decision, mail: FullMessage) -> Decision:
    """What a model may decide by itself: it archives nothing about money, law or security."""
    subject = delicate(mail) if decision.decision == "archive" else None
    if subject is None:
        return decision
    return ask(
        f"It is about {subject}, which no model archives (it said: {decision.reasoning})"[:2000], "your decision"
    )


def ask(reasoning: str, info_needed: str) -> Decision:
    """The person has to say something first."""
    return Decision(decision="needs_info", confidence=0, reasoning=reasoning[:2000], info_needed=info_needed)


def follow_words(words: str) -> Decision:
    """The person said how to answer, and there is no model to write it: no text is invented."""
    return ask(f"The person said: do it this way: {words}", f"a reply, done this way: {words}"[:2000])


def give_up(problem: str) -> Decision:
    """The model could not be brought to a decision: visible, with the reason, for the person."""
    return ask(f"The model gave no usable decision: {problem}", "your decision; the model gave none")


def as_data(letter: MailToDecide) -> dict[str, Any]:
    """What a model is shown, as JSON: mail text stays inside its strings."""
    mail = letter.mail
    return {
        "mail": {
            "from": mail.summary.sender,
            "to": mail.summary.to,
            "cc": mail.cc,
            "subject": mail.summary.subject,
            "received": mail.summary.date.isoformat(),
            "text": mail.body[:20_000],
            "attachments": [attachment.name for attachment in mail.attachments],
            "list_mail": mail.list_mail,
            "warnings": list(mail.warnings),
        },
        "earlier_in_this_thread": [
            {"from": each.sender, "received": each.date.isoformat(), "beginning": each.snippet}
            for each in letter.thread
        ],
        "what_the_person_corrected_before": [{"was": kind, "how": text} for kind, text in letter.corrections],
    }


def _is_below(domain: str, host: str) -> bool:
    return domain == host or domain.endswith(f".{host}")
