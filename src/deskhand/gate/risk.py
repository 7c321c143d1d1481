"""How carefully the person should look at an action before saying yes, and at what. Pure."""

from dataclasses import dataclass
from typing import Any

from deskhand import unseen
from deskhand.foreign.arguments import shorten_rows
from deskhand.gate.actions import Action, Mail, addresses_of
from deskhand.gate.leaving import LeaveList
from deskhand.gate.mailchange import MailChange
from deskhand.gate.oddities import (
    MAIL_CHECKS,
    QUESTION_CHECKS,
    TEXT_CHECKS,
    Facts,
    Level,
    Reasons,
    find_oddities,
)
from deskhand.gate.places import find_touched
from deskhand.gate.question import Question
from deskhand.gate.toolcall import ToolCall
from deskhand.mail.lookalikes import count_scripts

_LEVELS: tuple[Level, ...] = ("low", "medium", "high")
MANY = 50
"""More mails than these are changed only where the person says yes."""


@dataclass(frozen=True, slots=True)
class Risk:
    level: Level
    reasons: tuple[str, ...]
    """The gravest first."""


def assess(facts: Facts) -> Risk:
    """How carefully the person should look before saying yes, and at what."""
    return _weigh(find_oddities(facts, MAIL_CHECKS))


def _weigh(found: list[tuple[Level, str]]) -> Risk:
    found.sort(key=lambda each: -_LEVELS.index(each[0]))
    if not found:
        return Risk("low", ())
    return Risk(found[0][0], tuple(text for _, text in found))


def assess_change(change: MailChange) -> Risk:
    """What is odd about a change of many mails: the trash holds what nobody has read."""
    reasons: list[tuple[Level, str]] = []
    if change.do == "trash" and change.unread:
        several = change.unread > 1
        mails = f"{change.unread} mails" if several else "1 mail"
        said = f"{mails} that nobody has read {'go' if several else 'goes'} into the trash."
        reasons.append(("high", said))
    if len(change.mails) > MANY:
        reasons.append(("medium", f"It concerns {len(change.mails)} mails at once."))
    return _weigh(reasons)


def assess_call(call: ToolCall, made_before: str | None) -> Risk:
    """What is odd about a call: all that its arguments say is looked at as the text of a mail is."""
    rows = call.rows
    names = {part for path, _ in rows for part in path.split(".")}
    odd = [
        name
        for name in (call.tool, *sorted(names))
        if count_scripts(name) > 1 or unseen.describe(name)
    ]
    text = "\n".join(value for _, value in rows)
    if call.at is not None:
        made_before = None  # a program's own commands are run again and again
    facts = Facts(
        call.server, (), call.subject, text, as_text=True, sent_before=made_before
    )
    found = find_oddities(facts, TEXT_CHECKS)
    if unshown := shorten_rows(rows)[1]:
        what = f"{unshown:,} of {len(rows):,} arguments are not on the card"
        found.append(("high", f"{what}: read the whole call first."))
    found += _effects(call)
    folder = None
    if call.at is not None:
        folder = call.at.folder
    found += [("high", each) for each in find_touched(call.tool, folder, rows)]
    found += [
        ("high", f"A name in it mixes alphabets or hides something: {name}.")
        for name in odd[:10]
    ]
    return _weigh(found)


def _effects(call: ToolCall) -> Reasons:
    """What the call does, as far as anybody says. A server's hint may be a lie: it can alarm, but calm nobody.

    Of a program's own tool its arguments tell.
    """
    if call.at is not None:
        return
    reads = call.hints.get("readOnlyHint") is True
    destroys = call.hints.get("destructiveHint")
    if destroys is True and not reads:
        yield "medium", "Its server says that it may destroy something."
    elif call.template:
        return
    elif reads or destroys is False:
        yield (
            "medium",
            "Only its server says that it does no harm, and no rule of yours gives it a title.",
        )
    else:
        yield (
            "medium",
            "Nobody says what it does: its server gives no hint, and no rule of yours a title.",
        )


def assess_action(action: Action, **known: Any) -> Risk:
    """What is odd about an action of any kind; `known` is what the desk knows beside it, as in `Facts`."""
    match action:
        case Mail(account=account, subject=subject, body=body, as_text=as_text):
            blind = tuple(addresses_of(action.bcc))
            known |= {
                "blind": blind,
                "attachments": action.attachments,
                "as_text": as_text,
                "html": action.html,
            }
            return assess(Facts(account, action.everybody, subject, body, **known))
        case MailChange() as change:
            return assess_change(change)
        case ToolCall() as call:
            return assess_call(call, known.get("sent_before"))
        case LeaveList(subject=subject, address=address, signed_by=signed_by):
            facts = Facts(
                "", (), subject, address, as_text=True, sent_before=known.get("sent_before")
            )
            found = find_oddities(facts, TEXT_CHECKS)
            claim = f"That {signed_by} signed it is what the mail says"
            found.append(("low", f"{claim}; nobody has checked it here."))
            return _weigh(found)
        case Question(subject=subject, body=body):
            facts = Facts("", (), subject, body, as_text=True)
            return _weigh(find_oddities(facts, QUESTION_CHECKS))


def assess_text(action: Action) -> list[str]:
    """What the action alone says, for the request's file; the first line names the level.

    The file is sealed once, so it says nothing that may change later, such as whether the recipient is known.
    """
    found = assess_action(action)
    level = found.level
    if level == "low" and found.reasons:
        level = "medium"
    first, *others = action.caution
    return [f"Level: {level}. {first}", *others, *found.reasons]
