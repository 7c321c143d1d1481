"""What waits for the person: each card as it would leave, and the person's answers to it.

Every answer names the digest of what was shown. Where that is no longer what is there, the card is shown anew and
nothing is answered.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

from anyio import to_thread
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from deskhand import unseen
from deskhand.app import Desk
from deskhand.askers import PERSON
from deskhand.errors import Changed, Denied, DeskError, InvalidInput, NotFound
from deskhand.gate.cards import TARGETS, WORDS, Card, CardFilter, Original
from deskhand.gate.claims import Claim
from deskhand.gate.letters import Letter
from deskhand.gate.links import linked_hosts, read_html
from deskhand.gate.lists import count_limited, list_askers
from deskhand.gate.requests import OPEN
from deskhand.mail.answering import left_out
from deskhand.mail.mailboxes import find_kind, find_own
from deskhand.orchestrator import first_look, status
from deskhand.orchestrator.steps import count_left
from deskhand.store import Transaction
from deskhand.web import as_sent, decide, follow_ups, permissions, snoozing, times
from deskhand.web.attachments import show_attachments
from deskhand.web.entry import effect, page
from deskhand.web.events import FIRST, events, state, word
from deskhand.web.proving import claim_in
from deskhand.web.render import render
from deskhand.web.request import desk_of, number_in, read_number, text_in
from deskhand.web.snoozing import read_until, words_in
from deskhand.web.visible import lines
from deskhand.wording import STAYS_HERE

_SAID = {
    "approved": "Approved.",
    "rejected": "Rejected. Nothing leaves; whoever asked is told so.",
    "answered": "Answered. Whoever asked is told.",
    "responded": "Your note goes back to whoever asked. Nothing leaves.",
    "snoozed": "Snoozed. It comes back by itself.",
    "woken": "It waits again.",
    "undone": "Undone. Nothing was sent or changed; it waits again.",
    "batch": "Approved.",
}
_MOST_ROWS = 1000
_BEFORE = 10
"""Rows before an open card that is far down the list."""
_FILTERS = ("text", "asker", "risk", "kind", "account")
_RISKS = (("low", "low"), ("medium", "medium"), ("high", "high"))
_STALE = "This has changed since it was shown to you. Nothing was answered. This is how it is now."
_KEPT = "It has changed since it was shown to you, and nothing was approved. Your own text is kept below; compare both."


def routes() -> list[Route]:
    one = "/approvals/{id}"
    return [
        page("/", _inbox),
        page("/snoozed", _inbox),
        page("/waiting", _waiting),
        page("/events", events),
        page("/live", _live),
        effect("/undo", _undo_last),
        page("/approvals/batch", _review),
        effect("/approvals/batch", _approve_all),
        page(one, _whole, linked=True),
        page("/requests/{id}", _whole, linked=True),
        page(f"{one}/call.json", _download),
        page(f"{one}/as-sent", _as_sent),
        page(f"{one}/edit", _edit),
        effect(f"{one}/edit", _approve_edited),
        effect(f"{one}/approve", _answer("approved", _approve)),
        effect(f"{one}/reject", _answer("rejected", _reject)),
        effect(f"{one}/respond", _answer("responded", _respond)),
        effect(f"{one}/snooze", _answer("snoozed", _snooze)),
        effect(f"{one}/wake", _answer("woken", _wake)),
        effect(f"{one}/undo", _answer("undone", _undo)),
    ]


# Showing.


async def _inbox(request: Request) -> Response:
    """What waits, and the oldest of it whole."""
    context = await _listing(request, snoozed=request.url.path == "/snoozed")
    waits = [
        card for card in context["cards"] if card.state in ("waiting", "unknown", "snoozed")
    ]
    first = next(iter(waits or context["cards"]), None)
    return await _show(request, first, context, alone=False)


async def _whole(request: Request) -> Response:
    desk = desk_of(request)
    card = await desk.waiting.card_as_answered(request.path_params["id"])
    return await _show(request, card, await _listing_of(request, card), alone=True)


async def _download(request: Request) -> Response:
    """All arguments of a call, as they would be given."""
    card = await desk_of(request).waiting.card(request.path_params["id"])
    if card.kind != "call_tool":
        raise NotFound("this is no call of a tool")
    name = f'attachment; filename="call-{card.id}.json"'
    return Response(
        card.body, media_type="application/json", headers={"Content-Disposition": name}
    )


async def _as_sent(request: Request) -> Response:
    """The HTML that would leave, for the frame on its card."""
    card = await desk_of(request).waiting.card(request.path_params["id"])
    sheet = await to_thread.run_sync(as_sent.make_sheet, card.html, {})
    return HTMLResponse(sheet.document, headers=as_sent.HEADERS)


async def _live(request: Request) -> Response:
    """What every page keeps up with, alone."""
    return await render(request, "live.html")


async def _waiting(request: Request) -> Response:
    """The list alone, for a page that heard that something changed; says also whether its open card did."""
    desk = desk_of(request)
    query = request.query_params
    context = await _listing(request, snoozed=query.get("snoozed") == "1")
    context["card"] = await desk.waiting.card(query["open"]) if query.get("open") else None
    context["stale"] = context["card"] is not None and _shape(context["card"]) != query.get(
        "shape"
    )
    return await render(request, "waiting.html", **context)


async def _listing_of(request: Request, card: Card) -> dict[str, Any]:
    """The list in which an open card stands; of a long one the page around it."""
    snoozed = card.state == "snoozed"
    listing = await _listing(request, snoozed=snoozed)
    if card.state not in (*OPEN, "snoozed") or any(
        each.id == card.id for each in listing["cards"]
    ):
        return listing
    start = await _find_start(request, card, snoozed=snoozed)
    return await _listing(request, snoozed=snoozed, start=start) if start else listing


async def _find_start(request: Request, card: Card, *, snoozed: bool) -> str | None:
    """Where a page begins that has this card, with some of those before it."""
    cards, _ = await desk_of(request).waiting.cards(
        limit=_MOST_ROWS, snoozed=snoozed, wanted=_wanted(request)
    )
    place = next((at for at, each in enumerate(cards) if each.id == card.id), 0)
    if place <= _BEFORE:
        return None
    return cards[place - _BEFORE - 1].cursor


def _count_others(tx: Transaction, now: datetime) -> tuple[int, int]:
    """How many mails wait for a decision, and how many requests for the limit."""
    return count_left(tx, now), count_limited(tx)


async def _listing(
    request: Request, *, snoozed: bool, start: str | None = None
) -> dict[str, Any]:
    """Everything that the list of cards shows."""
    desk = desk_of(request)
    after = start or request.query_params.get("after") or None
    limit = min(max(number_in(request, "count", digits=4) or 0, FIRST), _MOST_ROWS)
    wanted = _wanted(request)
    kept = _kept(wanted)
    cards, following = await desk.waiting.cards(
        limit=limit, after=after, snoozed=snoozed, wanted=wanted
    )
    counts = await desk.waiting.counts()
    left, limited = await desk.store.read(_count_others, desk.now())
    path = "/snoozed" if snoozed else "/"
    return {
        "seen": await state(desk)
        if after or snoozed or kept or limit > FIRST
        else word(counts, cards, left, await desk.count_messages()),
        "after": after,
        "cards": cards,
        "list": path,
        "following": following
        and f"{path}?{urlencode(_fields(wanted) | {'after': following})}",
        "wanted": wanted,
        "kept": f"?{kept}" if kept else "",
        "filters": await _filters(desk, cards),
        "counts": counts,
        "approved": counts.held + limited,
        "looks": await desk.store.read(first_look.list_open),
        "idle": await status.list_idle(desk),
        "not_triaged": await to_thread.run_sync(status.read_not_triaged, desk.settings),
        "snoozed": snoozed,
        "moment": _moment(desk),
        "stale": False,
    }


def _wanted(request: Request) -> CardFilter:
    given = request.query_params
    asked = {name: given.get(name, "").strip()[:200] for name in _FILTERS[1:]}
    return CardFilter(text=given.get("q", "").strip()[:200], **asked)


def _fields(wanted: CardFilter) -> dict[str, str]:
    """What an address carries of the filter."""
    given = {"q" if name == "text" else name: getattr(wanted, name) for name in _FILTERS}
    return {name: value for name, value in given.items() if value}


def _kept(wanted: CardFilter) -> str:
    return urlencode(_fields(wanted))


async def _filters(
    desk: Desk, cards: list[Card]
) -> list[tuple[str, str, Sequence[tuple[str, str]]]]:
    """What can be chosen from; an account only where there is more than one."""
    askers = await desk.store.read(list_askers)
    offered: list[tuple[str, str, Sequence[tuple[str, str]]]] = [
        ("risk", "Risk", _RISKS),
        ("kind", "Kind", tuple(WORDS.items())),
        ("asker", "Asked by", [(name, name) for name in askers]),
    ]
    accounts = sorted({card.account for card in cards if card.account})
    if len(accounts) > 1:
        offered.append(("account", "Account", [(name, name) for name in accounts]))
    return offered


async def _show(
    request: Request,
    card: Card | None,
    listing: dict[str, Any],
    *,
    alone: bool,
    failure: DeskError | None = None,
    typed: FormData | None = None,
    status: int = 200,
) -> Response:
    desk = desk_of(request)
    beside = {}
    if card:
        permit = await permissions.offer(desk, await desk.waiting.card(card.id))
        beside = await _beside(desk, card) | {"permit": permit}
    done = request.query_params.get("done", "")
    said = _SAID.get(done)
    title = card.subject if alone and card else "Approvals"
    known = {
        "card": card,
        "alone": alone,
        "failure": failure,
        "said": said,
        "shape": _shape(card) if card else None,
        "rests": card.id if card and card.state == "held" else "",
    }
    known["told_below"] = done not in ("woken", "undone")  # beside the undo of that answer
    context = {
        "title": title,
        "here": "/",
        **listing,
        **known,
        **beside,
        "typed": typed or {},
    }
    return await render(request, "approvals.html", status=status, **context)


async def _beside(desk: Desk, card: Card) -> dict[str, Any]:
    """What a card is shown with: the mail that it answers, where its links lead, what was changed."""
    original, unread = None, None
    try:
        original = await desk.waiting.original(card)
    except DeskError as error:
        # The mailbox may be away; the person sees that something is missing.
        unread = error.message
    return {
        "original": original,
        "arrived": _moment(desk)(datetime.fromisoformat(original.date))
        if original and original.date
        else None,
        "unread": unread,
        "left_out": await _left_out(desk, card, original) if original else [],
        "snoozes": _snoozes(card, desk.now(), desk.settings.timezone),
        "record": f"/timeline?{urlencode({'request': card.id})}",
        "stays_here": await _say_where(desk, card),
        "awaited": await follow_ups.find(desk, card),
        **await show_attachments(desk, card),
        **await to_thread.run_sync(_read_card, card),
    }


async def _say_where(desk: Desk, card: Card) -> str | None:
    """What is to be said of a mail that reaches nobody."""
    if card.kind in TARGETS or card.kind == "ask_person":
        return None
    kind = None
    with suppress(DeskError):  # the mailbox may be away
        kind = await find_kind(desk.mailbox, desk.settings, card.account)
    return STAYS_HERE if kind == "local" else None


async def _left_out(desk: Desk, card: Card, original: Original) -> list[str]:
    """Whom the mail that it answers names, and who would not get the answer."""
    own = {card.account, *await find_own(desk.mailbox, desk.settings)}
    answered = {each.address for each in card.everybody}
    return await to_thread.run_sync(left_out, original.named, own, answered)


_YES_OR_NO = re.compile(
    r"(?:are|can|could|did|do|does|has|have|is|may|might|must|shall|should|was|were|will|would|am i)\b"
    r"[^.!?\n]*\?",
    re.IGNORECASE,
)


def _takes_yes(card: Card) -> bool:
    """Whether a plain yes answers it: a question that gives no choices and does not ask what, which or when."""
    if card.kind != "ask_person" or card.rows:
        return False
    *_, last = re.findall(r"[^.!?\n]+[.!?\n]*", card.body.strip()) or [""]
    return _YES_OR_NO.match(last.strip()) is not None


def _read_card(card: Card) -> dict[str, Any]:
    """What is read from the text itself, which for a long one takes a moment."""
    seen = read_html(card.body, card.html, as_text=card.as_text)
    return {
        "as_read": seen.text if seen and not card.html else None,
        "hosts": linked_hosts(f"{card.subject}\n{card.body}", seen)[0],
        "changes": lines(card.difference) if card.difference else [],
        "edits": [
            {"place": each.place, "lines": lines(each.difference)} for each in card.edits
        ],
        "can_yes": _takes_yes(card),
        "hidden_characters": unseen.count(card.subject + card.body),
    }


def _moment(desk: Desk) -> Callable[[datetime], times.Moment]:
    return partial(times.moment, now=desk.now(), zone=desk.settings.timezone)


def _shape(card: Card) -> str:
    """What of a card makes an open page of it out of date."""
    return f"{card.digest[:16]}.{card.state}"


# Answering.

_Named = tuple[str, str]
"""The card's id and the digest of what was shown."""


def _answer(
    done: str, act: Callable[[Desk, _Named, FormData, Claim], Awaitable[Card]]
) -> Callable[[Request, FormData], Awaitable[Response]]:
    """An effect that answers one card and then shows it. What was refused is shown with the reason."""

    async def answer(request: Request, form: FormData) -> Response:
        desk = desk_of(request)
        card_id = request.path_params["id"]
        before = await desk.waiting.card(card_id)
        try:
            await act(desk, (card_id, _digest(form)), form, claim_in(request, form))
        except (Denied, InvalidInput) as failure:
            return await _show_refusal(request, failure, form)
        if done in ("woken", "undone"):
            return RedirectResponse(
                f"/approvals/{card_id}?{urlencode({'done': done})}", 303
            )
        answered = before.kind == "ask_person" and done in ("approved", "responded")
        return await _go_to_next(request, before, "answered" if answered else done)

    return answer


async def _go_to_next(request: Request, answered: Card, done: str) -> Response:
    """The next card of the list in which this one was answered; where nothing else waits,
    this one, as it is now."""
    wanted = _wanted(request)
    snoozed = answered.state == "snoozed"
    following = await desk_of(request).waiting.find_next(
        answered, snoozed=snoozed, wanted=wanted
    )
    query = urlencode(_fields(wanted) | {"done": done})
    shown = following or answered
    return RedirectResponse(f"/approvals/{shown.id}?{query}", 303)


async def _undo_last(request: Request, form: FormData) -> Response:
    at = read_number(text_in(form, "at"), digits=15)
    if at is None:
        raise InvalidInput(
            "the form does not name what is undone", hint="reload the page and try again"
        )
    if decided := decide.find_decided(request, form):
        return await decide.undo(request, form, decided)
    cards = await desk_of(request).answers.undo_last(at, PERSON, claim_in(request, form))
    if len(cards) == 1:
        return RedirectResponse(f"/approvals/{cards[0].id}?done=undone", 303)
    return RedirectResponse("/?done=undone", 303)


async def _show_refusal(request: Request, failure: DeskError, typed: FormData) -> Response:
    desk = desk_of(request)
    card = await desk.waiting.card(request.path_params["id"])
    shown = Denied(_STALE, reason="changed") if isinstance(failure, Changed) else failure
    status = 422 if isinstance(failure, InvalidInput) else 409
    listing = await _listing_of(request, card)
    return await _show(
        request, card, listing, alone=True, failure=shown, typed=typed, status=status
    )


async def _approve(desk: Desk, card: _Named, form: FormData, claim: Claim) -> Card:
    del form
    return await desk.answers.approve(*card, PERSON, claim)


async def _wake(desk: Desk, card: _Named, form: FormData, claim: Claim) -> Card:
    del form
    return await desk.answers.wake(card[0], PERSON, claim)


async def _undo(desk: Desk, card: _Named, form: FormData, claim: Claim) -> Card:
    del form
    return await desk.answers.undo(card[0], PERSON, claim)


async def _reject(desk: Desk, card: _Named, form: FormData, claim: Claim) -> Card:
    return await desk.answers.reject(
        *card, text_in(form, "reason").strip() or None, PERSON, claim
    )


async def _respond(desk: Desk, card: _Named, form: FormData, claim: Claim) -> Card:
    words = text_in(form, "words").strip()
    if not words:
        raise InvalidInput(
            "Say how it should be done: the words were empty, and nothing was answered."
        )
    return await desk.answers.respond(*card, words, PERSON, claim)


async def _snooze(desk: Desk, card: _Named, form: FormData, claim: Claim) -> Card:
    until = read_until(form, desk.now(), desk.settings.timezone)
    return await desk.answers.snooze(card[0], until, PERSON, claim, words_in(form))


def _snoozes(card: Card, now: datetime, zone: str) -> list[tuple[str, str, datetime]]:
    """The choices that end before the card expires."""
    offered = [
        (value, label, at) for value, (label, at) in snoozing.offered(now, zone).items()
    ]
    return [each for each in offered if card.expires is None or each[2] < card.expires]


# Editing.


async def _edit(request: Request) -> Response:
    desk = desk_of(request)
    card = await desk.waiting.card(request.path_params["id"])
    if card.state not in ("waiting", "snoozed"):
        return RedirectResponse(f"/approvals/{card.id}", 303)
    to, cc, bcc = (
        ", ".join(each.address for each in several)
        for several in (card.to, card.cc, card.bcc)
    )
    letter = Letter(to, card.subject, card.body, cc, bcc)
    return await _form(request, card, letter)


def read_letter(form: FormData) -> Letter:
    # A browser sends each line of a text field with CR LF, whatever it showed.
    body = text_in(form, "body").replace("\r\n", "\n")
    to, cc, bcc = (text_in(form, name).strip() for name in ("to", "cc", "bcc"))
    return Letter(to, text_in(form, "subject"), body, cc, bcc)


async def _approve_edited(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    card_id = request.path_params["id"]
    before = await desk.waiting.card(card_id)
    letter = read_letter(form)
    try:
        await desk.answers.approve_edited(
            card_id, _digest(form), letter, PERSON, claim_in(request, form)
        )
    except (Denied, InvalidInput) as failure:
        shown = Denied(_KEPT, reason="changed") if isinstance(failure, Changed) else failure
        status = 422 if isinstance(failure, InvalidInput) else 409
        return await _form(request, await desk.waiting.card(card_id), letter, shown, status)
    return await _go_to_next(request, before, "approved")


async def _form(
    request: Request,
    card: Card,
    letter: Letter,
    failure: DeskError | None = None,
    status: int = 200,
) -> Response:
    desk = desk_of(request)
    fields = (
        {each["field"]: each["message"] for each in failure.details.get("fields", ())}
        if failure
        else {}
    )
    known = {
        "here": "/",
        "card": card,
        "letter": letter,
        "failure": failure,
        "wrong": fields,
        "moment": _moment(desk),
    }
    kept = _kept(_wanted(request))
    known["kept"] = f"?{kept}" if kept else ""
    title = f"Edit: {card.subject}"
    return await render(
        request,
        "edit.html",
        status=status,
        title=title,
        **known,
        **await _beside(desk, card),
    )


# Several at once.


async def _review(request: Request) -> Response:
    return await _show_batch(request, request.query_params.getlist("card"))


async def _show_batch(
    request: Request, names: list[str], failure: DeskError | None = None, status: int = 200
) -> Response:
    """The chosen cards, each whole: nobody says yes to a subject line."""
    desk = desk_of(request)
    chosen = [await desk.waiting.card(name) for name in dict.fromkeys(names[:FIRST])]
    shown = [(card, await _beside(desk, card)) for card in chosen]
    known = {"here": "/", "shown": shown, "failure": failure, "moment": _moment(desk)}
    return await render(
        request, "batch.html", status=status, title="Approve together", **known
    )


async def _approve_all(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    answers = [
        (name, digest)
        for name, _, digest in (str(each).partition(":") for each in form.getlist("card"))
    ]
    if not answers:
        return RedirectResponse("/", 303)
    try:
        await desk.answers.approve_all(answers, PERSON, claim_in(request, form))
    except Denied as failure:
        shown = (
            Denied(_STALE, reason="changed") if isinstance(failure, Changed) else failure
        )
        return await _show_batch(request, [name for name, _ in answers], shown, 409)
    return RedirectResponse("/?done=batch", 303)


def _digest(form: FormData) -> str:
    """What the person saw; a form that does not say it answers nothing, rather than whatever is there."""
    if not (given := text_in(form, "digest")):
        raise Changed("the form does not name what was shown")
    return given
