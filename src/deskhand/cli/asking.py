"""What the person sees of a request at a terminal, and how they are asked for their answer."""

import math
import sys
import time
from datetime import datetime

from deskhand.cli.command import one_line, plain, say_time
from deskhand.cli.editing import write_letter
from deskhand.errors import InvalidInput
from deskhand.gate.cards import TARGETS, Card, Original
from deskhand.gate.links import read_html


def ask_for_yes(card: Card, hold: float, original: Original | None = None) -> bool:
    """Whether the person says yes to what they are shown, after the time in which they can think better of it."""
    show_card(card, original)
    if not _confirm(card):
        return False
    _count_down(hold, card.acts)
    return True


def ask_for_choice(card: Card) -> str | None:
    """Which of the choices the person takes, by its number or its words; None for none of them."""
    show_card(card)
    for number, choice in enumerate(card.choices, 1):
        print(one_line(f"  {number}  {choice}"), file=sys.stderr)
    _ask(f"Your answer, 1 to {len(card.choices)} (nothing: no answer yet): ")
    said = sys.stdin.readline().strip()
    if not said:
        return None
    for number, choice in enumerate(card.choices, 1):
        if said in (str(number), choice):
            return choice
    raise InvalidInput(
        f"{said[:40]} is none of the choices", hint="nothing was answered; ask again"
    )


def show_card(card: Card, original: Original | None = None) -> None:
    """What would leave, and what there is to know of it."""
    print(plain(write_card(card, original)), file=sys.stderr)
    for line in describe_card(card):
        print(one_line(line), file=sys.stderr)


def write_card(card: Card, original: Original | None) -> str:
    """What would leave, how a reader sees it, what the person changed in it, and the mail that it answers."""
    heading, _, body = write_letter(card).partition("\n\n")
    if card.kind in TARGETS:
        heading = heading.replace("To:", f"{TARGETS[card.kind].capitalize()}:", 1)
    parts = [f"{heading}\n\n{body}"]
    if seen := read_html(card.body, card.html, as_text=card.as_text):
        how = "It leaves as HTML too" if card.html else "It leaves as HTML"
        parts.append(
            f"## What a reader sees\n\n{how}. A reader sees this text:\n\n{seen.text}"
        )
    if card.difference:
        parts.append(f"## What was changed\n\n{card.difference}")
    if original is not None:
        parts.append(_write_original(original))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


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


def describe_card(card: Card) -> list[str]:
    """What its text does not say: what it is, from where and to whom it goes, with which
    files, and what is odd."""
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
        f"risk: {card.risk.level}",
        *(f"  {each}" for each in card.risk.reasons),
    ]


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
    while (left := until - time.monotonic()) > 0:
        _ask(f"\rIt {acts} in {math.ceil(left)} s; Ctrl-C takes it back. ")
        time.sleep(min(left, 1))
    if seconds:
        print(file=sys.stderr)
