"""`deskhand approvals`, `show`, `approve`, `edit`, …: what waits for the person, and the person's answer."""

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from deskhand.cli.command import (
    NO_TERMINAL,
    ask_secret,
    command,
    flag,
    one_line,
    opened_desk,
    plain,
    say_time,
)
from deskhand.errors import InvalidInput

if TYPE_CHECKING:
    from deskhand.app import Desk
    from deskhand.cli.asking import Presented
    from deskhand.gate.cards import Card
    from deskhand.gate.claims import Claim
    from deskhand.gate.letters import Letter

T = TypeVar("T")
_MOMENT = timedelta(seconds=1)
_NOT_APPROVED = 2
"""What a yes that the person did not give ends with: whatever follows on it is not to follow."""
_TAKE_YES = ("waiting", "snoozed", "unknown", "rejected")
"""States of a card to which a yes says something new."""


def add_to(commands: Any) -> None:
    listing = command(
        commands, "approvals", _list, "list what waits for your answer", json=True
    )
    listing.add_argument(
        "--snoozed", action="store_true", help="list what you snoozed instead"
    )
    show = command(
        commands, "show", _show, "show one request, exactly as it would be sent", json=True
    )
    approve = command(
        commands,
        "approve",
        _approve,
        "say yes: on a terminal after you saw it, elsewhere at once; high risk wants --digest or --yes there",
        json=True,
    )
    flag(approve, "--yes", "do not ask")
    reject = command(commands, "reject", _reject, "say no", json=True)
    reject.add_argument("--reason", help="what the assistant is told")
    edit = _add_edit(commands)
    respond = command(
        commands, "respond", _respond, "say no and how to do it instead", json=True
    )
    snooze = command(
        commands,
        "snooze",
        _snooze,
        "snooze a request: out of sight until then, or until shortly before it expires",
        json=True,
    )
    for each in (show, approve, reject, edit, respond, snooze):
        each.add_argument(
            "id",
            help="the request's id, as `deskhand approvals` lists it, or its beginning",
        )
    for each in (approve, reject, edit, respond):
        each.add_argument(
            "--digest",
            help="the digest of what you saw; what has changed since is not answered",
        )
    respond.add_argument("words", help="how to do it: what the assistant is told")
    snooze.add_argument(
        "until",
        help="30m, 2h, 3d, 1w, tomorrow, friday, an ISO time, or now to bring it back",
    )


def _add_edit(commands: Any) -> argparse.ArgumentParser:
    edit = command(
        commands,
        "edit",
        _edit,
        "change what would be sent, in your editor or by options",
        json=True,
    )
    edit.add_argument("--to", help="the new recipient; several with commas between them")
    edit.add_argument("--cc", help="who gets a copy")
    edit.add_argument("--bcc", help="who gets a copy that the others do not see")
    edit.add_argument("--subject", help="the new subject")
    edit.add_argument(
        "--body-file", type=Path, metavar="FILE", help="a file with the new text"
    )
    edit.add_argument(
        "--approve", action="store_true", help="say yes to it as edited, without asking"
    )
    return edit


def _list(options: argparse.Namespace) -> None:
    cards, told = _at_the_desk(lambda desk: _waiting(desk, snoozed=options.snoozed))
    for card in cards:
        _print(card, options, told.get(card.id))
    if not cards and not options.json:
        print("Nothing is snoozed." if options.snoozed else "Nothing waits.")


async def _waiting(
    desk: "Desk", *, snoozed: bool
) -> "tuple[list[Card], dict[str, datetime]]":
    """The cards, and when the person is told that nobody has answered one."""
    from deskhand.gate import follow_ups

    cards, more = await desk.waiting.cards(limit=200, snoozed=snoozed)
    while more is not None:
        following, more = await desk.waiting.cards(limit=200, after=more, snoozed=snoozed)
        cards += following
    awaited = await desk.store.read(follow_ups.list_awaited)
    return cards, {each.request.id: each.due for each in awaited}


def _show(options: argparse.Namespace) -> None:
    from deskhand.cli.asking import describe_card, present, write_card
    from deskhand.wording import name_state

    async def work(desk: "Desk") -> "tuple[Presented, str, str | None]":
        request = await desk.waiting.find(options.id)
        text = desk.door.show(request)
        file = None
        if place := desk.settings.own_place:
            file = str(place.absolute() / request.place / request.file)
        card = await desk.waiting.card_as_answered(options.id)
        return await present(desk, card, alone=options.json), text, file

    presented, text, file = _at_request(options, work)
    card = presented.card
    if options.json:
        print(json.dumps(_fields(card) | {"filepath": file, "text": text}))
        return
    print(plain(write_card(presented)))
    lines = [
        f"state: {name_state(card.state, card.kind)}",
        *describe_card(presented),
        f"asked: {say_time(card.created)}, by {card.asker}",
        f"expires: {say_time(card.expires)}" if card.expires else "",
        f"digest: {card.seen}",
        f"{_name_note(card)}: {card.note}" if card.note else "",
        f"tried again: {say_time(card.retry)}" if card.retry else "",
    ]
    print(*(one_line(line) for line in lines if line), sep="\n", file=sys.stderr)


def _name_note(card: "Card") -> str:
    """What the line with its note is called: of what the person rejected it is their reason."""
    is_no = card.state == "rejected" and card.words is None
    return "your reason" if is_no else "note"


def _approve(options: argparse.Namespace) -> int:
    if options.digest is None and not options.yes and sys.stdin.isatty():
        answered = _approve_seen(options)
        if answered is None:
            return _NOT_APPROVED
        _print(answered, options)
        _say_who_sends(answered, options)
        return 0

    async def work(desk: "Desk") -> "Card":
        if options.digest is None and not options.yes:
            await _demand_harmless(desk, options.id)
        return await desk.answers.approve_now(
            options.id, options.digest, "person", claim(desk)
        )

    answered = _at_request(options, work, unseen=options.digest is None)
    _print(answered, options)
    _say_who_sends(answered, options)
    return 0


def _say_who_sends(card: "Card", options: argparse.Namespace) -> None:
    """Where nobody works at this desk, a yes waits: say so."""
    from deskhand.cli.orchestrate import NOBODY, is_at_work
    from deskhand.config import load
    from deskhand.orchestrator.status import read_state

    settings = load().settings
    if options.json or card.state not in ("held", "approved"):
        return
    health = read_state(settings.own_place) if settings.own_place else {}
    if not is_at_work(settings.home, health):
        print(NOBODY, file=sys.stderr)


def _approve_seen(options: argparse.Namespace) -> "Card | None":
    """Show it first; a question with choices is answered by one of them, for a yes is none.
    None where the person leaves it as it is."""
    from deskhand.cli import asking

    async def look(desk: "Desk") -> "tuple[Presented, float]":
        card = await desk.waiting.card(options.id)
        return await asking.present(desk, card), desk.settings.hold_seconds

    presented, hold = _at_request(options, look)
    card = presented.card
    if card.choices and card.state in _TAKE_YES:
        choice = asking.ask_for_choice(presented)
        if choice is None:
            _say_left("Nothing was answered", card)
            return None
        return _at_the_desk(
            lambda desk: desk.answers.respond(
                card.id, card.seen, choice, "person", claim(desk)
            )
        )
    if not asking.ask_for_yes(presented, hold):
        _say_left("Nothing was approved", card)
        return None
    return _at_the_desk(
        lambda desk: desk.answers.approve_now(card.id, card.seen, "person", claim(desk))
    )


def _say_left(what: str, card: "Card") -> None:
    print(
        f"{what}: it still waits. `deskhand reject {card.id}` says no to it.",
        file=sys.stderr,
    )


async def _demand_harmless(desk: "Desk", request_id: str) -> None:
    """Where nobody can be asked, what is of high risk or may have left wants a word that says it was looked at."""
    card = await desk.waiting.card(request_id)
    hint = f"look at it with `deskhand show {request_id}`, then add its --digest, or --yes"
    if card.state == "unknown":
        raise InvalidInput(
            f"{NO_TERMINAL}, and nobody knows whether this was done already", hint=hint
        )
    if card.risk.level == "high" and card.state in _TAKE_YES:
        raise InvalidInput(
            f"{NO_TERMINAL}, and this is of high risk: {card.risk.reasons[0]}",
            hint=hint,
        )


def _reject(options: argparse.Namespace) -> None:
    async def work(desk: "Desk") -> "tuple[Card, Card]":
        before = await desk.waiting.card(options.id)
        return before, await desk.answers.reject(
            options.id, options.digest, options.reason, "person", claim(desk)
        )

    before, card = _at_request(options, work)
    if before.state == "rejected":
        what = "your reason is another one now" if options.reason else "nothing was changed"
        print(f"It is rejected already; {what}.", file=sys.stderr)
    _print(card, options)


def _respond(options: argparse.Namespace) -> None:
    async def work(desk: "Desk") -> "Card":
        digest = options.digest or (await desk.waiting.card(options.id)).seen
        return await desk.answers.respond(
            options.id, digest, options.words, "person", claim(desk)
        )

    _print(_at_request(options, work), options)


def _snooze(options: argparse.Namespace) -> None:
    async def work(desk: "Desk") -> "Card":
        from deskhand.tasks import due

        if options.until == "now":
            return await desk.answers.wake(options.id, "person", claim(desk))
        until = due.read_later(options.until, desk.now(), desk.settings.timezone)
        words = f"until {options.until}"
        card = await desk.answers.snooze(options.id, until, "person", claim(desk), words)
        if card.until and card.expires and card.until < until - _MOMENT:
            end = say_time(card.expires)
            print(f"It expires {end}, so it comes back before that.", file=sys.stderr)
        return card

    _print(_at_request(options, work), options)


def _edit(options: argparse.Namespace) -> None:
    from deskhand.cli import asking, editing

    async def look(desk: "Desk") -> "tuple[Card, float]":
        return await desk.waiting.card(options.id), desk.settings.hold_seconds

    unseen = options.approve and options.digest is None
    card, hold = _at_request(options, look, unseen=unseen)
    digest = options.digest or card.seen

    def edit(letter: "Letter") -> "Presented":
        async def work(desk: "Desk") -> "Presented":
            new = await desk.answers.edit(card.id, digest, letter, "person", claim(desk))
            return await asking.present(desk, new, alone=True)

        return _at_the_desk(work)

    letter = editing.letter(card)
    given = {name: getattr(options, name) for name in ("to", "cc", "bcc", "subject")}
    if options.body_file is not None or any(each is not None for each in given.values()):
        presented = edit(editing.apply_options(letter, given, options.body_file))
    else:
        with editing.open_editor(letter) as written:
            presented = edit(written)
    edited = presented.card
    if options.approve or (sys.stdin.isatty() and asking.ask_for_yes(presented, hold)):
        edited = _at_the_desk(
            lambda desk: desk.answers.approve_now(
                card.id, edited.seen, "person", claim(desk)
            )
        )
    elif not options.json:
        print(
            f"It waits for your yes: deskhand approve {edited.id} --digest {edited.seen}",
            file=sys.stderr,
        )
    _print(edited, options)


def claim(desk: "Desk") -> "Claim":
    """What proves that the person answers: that it is their terminal, or their password for this one answer."""
    from deskhand.gate.claims import Typed

    if desk.settings.proof == "passkey":
        # Whoever guesses from a script makes nobody wait who sits at a terminal.
        place = "terminal" if sys.stdin.isatty() else "terminal, by a script"
        return Typed(ask_secret("Your password, for this answer: "), place)
    return "terminal"


def _at_request(
    options: argparse.Namespace,
    work: "Callable[[Desk], Awaitable[T]]",
    *,
    unseen: bool = False,
) -> T:
    """Work with the request that is named by its id, or by the beginning of one; not `unseen` by the latter."""

    async def with_whole_id(desk: "Desk") -> T:
        name = await desk.waiting.complete_id(options.id)
        if unseen and name != options.id:
            raise InvalidInput(
                "a yes to what was not shown wants the whole id",
                hint=f"look at it with `deskhand show {name}`, then name it so, or add its --digest",
            )
        options.id = name
        return await work(desk)

    return _at_the_desk(with_whole_id)


def _at_the_desk(work: "Callable[[Desk], Awaitable[T]]") -> T:
    async def whole(desk: "Desk") -> T:
        try:
            return await work(desk)
        finally:
            await desk.close_mailbox()

    with opened_desk() as desk:
        return asyncio.run(whole(desk))


def _print(card: "Card", options: argparse.Namespace, told: datetime | None = None) -> None:
    from deskhand.cli.asking import leaves_later
    from deskhand.wording import name_state

    to = ", ".join(
        f"{each.address}{'' if each.known else ' (new)'}" for each in card.everybody
    )
    until = ""
    if card.until:
        what = "until" if card.state == "snoozed" else card.acts
        until = f"  {what} {say_time(card.until)}"
    if card.send_at and leaves_later(card) and card.until != card.send_at:
        until += f"  leaves {say_time(card.send_at)}"
    if told:
        until += f"  you are told {say_time(told)} if unanswered"
    asked = f"  asked by {card.asker}, {say_time(card.created)}"
    state = name_state(card.state, card.kind)
    what = f"{card.what}  {to}  {card.subject}"
    line = f"{card.id}  {state:<8}  {card.risk.level:<6}  {what}{until}{asked}"
    print(json.dumps(_fields(card)) if options.json else one_line(line))


def _fields(card: "Card") -> dict[str, Any]:
    return {
        "id": card.id,
        "state": card.state,
        "digest": card.seen,
        "revision": card.revision,
        "action": {
            "kind": card.kind,
            "account": card.account,
            "to": [each.address for each in card.to],
            "cc": [each.address for each in card.cc],
            "bcc": [each.address for each in card.bcc],
            "subject": card.subject,
            "body": card.body,
            "attachments": [each.model_dump() for each in card.attachments],
            "send_at": card.send_at.isoformat() if card.send_at else None,
            "answers": card.answers,
        },
        "known": all(each.known for each in card.everybody),
        "new": [each.address for each in card.everybody if not each.known],
        "risk": {"level": card.risk.level, "reasons": card.risk.reasons},
        "asked_by": card.asked_by,
        "asker": card.asker,
        "created": card.created.isoformat(),
        "expires": card.expires.isoformat() if card.expires else None,
        "until": card.until.isoformat() if card.until else None,
        "note": card.note,
    }
