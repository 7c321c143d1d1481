"""What to do with a mail: the person's rules first, then a model if there is one, else the rules' default.

Whoever decides, the decision is one of five, and none of them sends anything.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from deskhand.mail import FullMessage, MailSummary
from deskhand.mail.addresses import first_person

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
        needed = {
            "draft_reply": "reply_body",
            "delegate": "delegation_target",
            "needs_info": "info_needed",
        }
        field = needed.get(self.decision)
        if field is not None and getattr(self, field) is None:
            raise ValueError(f"{self.decision} needs {field}")
        return self


@dataclass(frozen=True, slots=True)
class Ruling:
    """A decision, and who made it."""

    by: str
    decision: Decision
    leaves_inbox: bool = False
    """Whether the rule takes the mail out of the inbox of its mailbox as well."""


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
    return sender_of(mail.summary)


def sender_of(mail: MailSummary) -> str:
    found = first_person(mail.sender)
    return (found.address if found else mail.sender).lower()


# What holds for every model.

_DELICATE = {
    "money": r"invoice|payment|iban|bank|refund|tax|salary|payroll|wire|overdue|rechnung|zahlung|konto|mahnung|steuer"
    r"|facture|paiement|factura|pago|fattura|[€$£]\s?\d|\d\s?(?:€|eur|usd|gbp)\b",
    "law": r"legal|lawyer|attorney|court|lawsuit|subpoena|contract|liab|gdpr|settlement|deadline to respond|anwalt"
    r"|gericht|klage|vertrag|kündigung|frist|avocat|tribunal|abogado|contrato",
    "security": r"password|passcode|security|breach|phish|2fa|verification code|one-time|sign-?in|log-?in|suspicious"
    r"|unauthori[sz]ed|account (?:locked|suspended)|passwort|sicherheit|anmeldung|mot de passe|contraseña",
}
_PATTERNS = {
    subject: re.compile(pattern, re.IGNORECASE) for subject, pattern in _DELICATE.items()
}


def delicate(mail: FullMessage) -> str | None:
    """Whether it is about money, law or security, as far as words tell. Rather too often than not."""
    text = f"{mail.summary.sender} {mail.summary.subject} {mail.body}"
    return next(
        (subject for subject, pattern in _PATTERNS.items() if pattern.search(text)), None
    )


def restrain(decision: Decision, mail: FullMessage) -> Decision:
    """What a model may decide by itself: it archives nothing about money, law or security."""
    subject = delicate(mail) if decision.decision == "archive" else None
    if subject is None:
        return decision
    return ask(
        f"It is about {subject}, which no model archives (it said: {decision.reasoning})"[
            :2000
        ],
        "your decision",
    )


def ask(reasoning: str, info_needed: str) -> Decision:
    """The person has to say something first."""
    return Decision(
        decision="needs_info",
        confidence=0,
        reasoning=reasoning[:2000],
        info_needed=info_needed,
    )


def follow_words(words: str) -> Decision:
    """The person said how to answer, and there is no model to write it: no text is invented."""
    return ask(
        f"The person said: do it this way: {words}",
        f"a reply, done this way: {words}"[:2000],
    )


def give_up(problem: str) -> Decision:
    """The model could not be brought to a decision: visible, with the reason, for the person."""
    return ask(
        f"The model gave no usable decision: {problem}",
        "your decision; the model gave none",
    )


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
            {
                "from": each.sender,
                "received": each.date.isoformat(),
                "beginning": each.snippet,
            }
            for each in letter.thread
        ],
        "what_the_person_corrected_before": [
            {"was": kind, "how": text} for kind, text in letter.corrections
        ],
    }
