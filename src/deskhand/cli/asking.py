"""What the person sees of a request at a terminal, and how they are asked for their answer."""

import math
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from deskhand.cli.command import one_line, plain, say_time
from deskhand.cli.editing import write_letter
from deskhand.clock import utc_now
from deskhand.errors import InvalidInput
from deskhand.gate import follow_ups
from deskhand.gate.cards import TARGETS, Card, Original
from deskhand.gate.links import read_html

if TYPE_CHECKING:
    from deskhand.app import Desk

_NOT_LEAVING = ("rejected", "expired", "withdrawn", "failed")
_OVER = ("sent", *_NOT_LEAVING)


@dataclass(frozen=True, slots=True)
class Presented:
    """A card with what stands beside it."""

    card: Card
    original: Original | None
    told: datetime | None
    """When the person is told that nobody has answered it; None where they are not."""


async def present(desk: "Desk", card: Card, *, alone: bool = False) -> Presented:
    """The card with what stands beside it; `alone` without the mail that it answers."""
    awaited = await desk.store.read(follow_ups.find_awaited, card.id)
    told = awaited.due if awaited and awaited.state == "open" else None
    original = None if alone else await desk.waiting.original(card)
    return Presented(card, original, told)


def ask_for_yes(presented: Presented, hold: float) -> bool:
    """Whether the person says yes to what they are shown, after the time in which they can think better of it."""
    show_card(presented)
    card = presented.card
    if not _confirm(card):
        return False
    _count_down(hold, "counts" if leaves_later(card) else card.acts)
    return True


def ask_for_choice(presented: Presented) -> str | None:
    """Which of the choices the person takes, by its number or its words; None for none of them."""
    show_card(presented)
    card = presented.card
    _ask(f"Your answer, 1 to {len(card.choices)} (nothing: no answer yet): ")
    said = sys.stdin.readline().strip()
    if not said:
        return None
    for number, choice in enumerate(card.choices, 1):
        if said in (str(number), choice):
            return choice
    raise InvalidInput(
        f"“{said[:40]}” is none of the choices", hint="nothing was answered; ask again"
    )


def show_card(presented: Presented) -> None:
    """What would leave, and what there is to know of it."""
    print(plain(write_card(presented)), file=sys.stderr)
    for line in describe_card(presented):
        print(one_line(line), file=sys.stderr)


def write_card(presented: Presented) -> str:
    """What would leave, how a reader sees it, what the person changed in it, and the mail that it answers."""
    card = presented.card
    parts = [_write_letter(card)]
    if seen := read_html(card.body, card.html, as_text=card.as_text):
        how = "It leaves as HTML too" if card.html else "It leaves as HTML"
        parts.append(
            f"## What a reader sees\n\n{how}. A reader sees this text:\n\n{seen.text}"
        )
    if card.difference:
        parts.append(f"## What was changed\n\n{card.difference}")
    if presented.original is not None:
        parts.append(_write_original(presented.original))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _write_letter(card: Card) -> str:
    """Its text below its heading, which would say of a question how it begins, and no more."""
    if card.kind == "ask_person":
        listed = "".join(f"\n- {each}" for each in card.choices)
        numbered = "".join(
            f"\n  {number}  {one_line(each)}" for number, each in enumerate(card.choices, 1)
        )
        return f"{card.body.removesuffix(listed)}\n{numbered}"
    heading, _, body = write_letter(card).partition("\n\n")
    if card.kind in TARGETS:
        heading = heading.replace("To:", f"{TARGETS[card.kind].capitalize()}:", 1)
    return f"{heading}\n\n{body}"


def _write_original(mail: Original) -> str:
    date = f"Date: {say_time(datetime.fromisoformat(mail.date))}" if mail.date else ""
    lines = (
        f"From: {one_line(mail.sender)}" if mail.sender else "",
        date,
        f"Subject: {one_line(mail.subject)}" if mail.subject else "",
        *(f"Warning: {one_line(each)}" for each in mail.warnings),
    )
    heading = "\n".join(filter(None, lines))
    return f"## The mail that it answers\n\n{heading}\n\n{mail.text}"


def describe_card(presented: Presented) -> list[str]:
    """What its text does not say: what it is, from where, to whom and when it goes, with
    which files, and what is odd."""
    card = presented.card
    named = (("to", card.to), ("cc", card.cc), ("bcc", card.bcc))
    people = [
        f"{name}: {each.address} ({each.badge}: {each.since})"
        for name, several in named
        for each in several
    ]
    if card.kind in TARGETS:
        people = [f"{TARGETS[card.kind]}: {each.address}" for each in card.to]
    sender = [f"from: {card.account}"] if card.account else []
    return [
        f"what: {card.what}",
        *(_describe_leaving(card) if card.kind == "unsubscribe" else []),
        *sender,
        *people,
        *(f"file: {each.describe()}" for each in card.attachments),
        *_describe_times(presented),
        f"risk: {card.risk.level}",
        *(f"  {each}" for each in card.risk.reasons),
    ]


def leaves_later(card: Card) -> bool:
    """Whether it has a time of its own, which is still to come."""
    return card.send_at is not None and card.send_at > utc_now() and card.state not in _OVER


def _describe_times(presented: Presented) -> list[str]:
    """When a mail with a time of its own leaves, or that it did; and when the person hears
    that nobody has answered."""
    card = presented.card
    is_open = card.state in ("waiting", "snoozed", "unknown")
    lines: list[str] = []
    if card.left and card.send_at:
        lines.append(f"left: {say_time(card.left)}")
    if card.send_at and leaves_later(card):
        otherwise = ", or at your yes where that comes later" if is_open else ""
        lines.append(f"leaves: {say_time(card.send_at)}{otherwise}")
    elif card.send_at:
        otherwise = "; now it leaves at your yes" if is_open else ""
        lines.append(f"was to leave: {say_time(card.send_at)}{otherwise}")
    if presented.told and card.state not in _NOT_LEAVING:
        lines.append(
            f"follow-up: you are told {say_time(presented.told)} if nobody has answered by then"
        )
    return lines


def _describe_leaving(card: Card) -> list[str]:
    return [f"{name}: {text}" for name, text in card.rows]


def _confirm(card: Card) -> bool:
    """Whether the person says yes; at high risk with the whole word, or the digest's beginning."""
    if card.risk.level != "high":
        _ask("Approve exactly this? [y/N] ")
        return sys.stdin.readline().strip().casefold() in ("y", "yes")
    _ask(f"High risk. Type yes, or the digest {card.digest[:8]}, to approve it: ")
    return sys.stdin.readline().strip().casefold() in ("yes", card.digest[:8], card.seen)


def _ask(question: str) -> None:
    print(question, end="", file=sys.stderr, flush=True)


def _count_down(seconds: float, acts: str) -> None:
    """Let a yes rest: whoever presses Ctrl-C meanwhile has approved nothing."""
    until = time.monotonic() + seconds
    try:
        while (left := until - time.monotonic()) > 0:
            _ask(f"\rIt {acts} in {math.ceil(left)} s; Ctrl-C takes it back. ")
            time.sleep(min(left, 1))
    except KeyboardInterrupt:
        print("\nTaken back: it still waits for you.", file=sys.stderr)
        raise
    if seconds:
        print(file=sys.stderr)
