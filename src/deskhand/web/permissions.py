"""Standing permissions on the page: made from a card, listed with what they let through, ended, all turned off."""

from datetime import date, datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from markupsafe import Markup
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand.app import Desk
from deskhand.askers import PERSON
from deskhand.clock import local, natural_end
from deskhand.errors import Denied, DeskError, FieldProblem, InvalidInput
from deskhand.gate.cards import Card
from deskhand.gate.permissions import LOOKED_BACK, MOST_A_DAY, Terms, may_permit
from deskhand.gate.permitting import Standing, describe
from deskhand.web.entry import effect, page
from deskhand.web.proving import claim_in
from deskhand.web.render import render
from deskhand.web.request import desk_of, done_in, read_number, text_in
from deskhand.web.times import shown_time

USUAL = timedelta(days=30)
SHOWN = 10
"""Of the cards that a proposed permission would have let through."""
DONE = {
    "made": "From now on what it covers leaves without a question.",
    "revoked": "That permission lets nothing through any more.",
    "off": "No permission counts now. Everything waits for you again, what was resting too.",
    "on": "Your permissions count again.",
}


def routes() -> list[Route]:
    return [
        page("/permissions", _show),
        effect("/permissions/revoke", _revoke),
        effect("/permissions/off", _turn_off),
        effect("/permissions/on", _turn_on),
        effect("/approvals/{id}/permit", _permit),
    ]


async def offer(desk: Desk, card: Card) -> dict[str, Any] | None:
    """What the card's form for a permission says; None where there is none for such a card."""
    request = await desk.waiting.find(card.id)
    if not may_permit(request.action, card):
        return None
    alike = await desk.permitting.suggest(request, card)
    return {
        "alike": alike,
        # What the person did not want comes first: it would have left.
        "shown": sorted(alike, key=_was_wanted)[:SHOWN],
        "days": LOOKED_BACK.days,
        "most": MOST_A_DAY,
        "ends": f"{local(desk.now() + USUAL, desk.settings.timezone):%Y-%m-%d}",
    }


def _was_wanted(card: Card) -> bool:
    return card.state not in ("rejected", "expired")


async def _show(request: Request, problem: DeskError | None = None) -> Response:
    desk = desk_of(request)
    found = await desk.permitting.list_all()
    say = partial(natural_end, now=desk.now(), zone=desk.settings.timezone)
    return await render(
        request,
        "permissions.html",
        title="Permissions",
        here="/checkup",
        standing=[
            (
                each,
                describe(each.permission, say(each.permission.ends)),
                _show_uses(desk, each),
            )
            for each in found
        ],
        made={each.permission.id: shown_time(desk, each.permission.made) for each in found},
        off=await desk.permitting.is_off(),
        problem=problem,
        done=done_in(request, DONE),
    )


def _show_uses(desk: Desk, standing: Standing) -> list[tuple[str, Markup]]:
    return [(name, shown_time(desk, at)) for name, at in standing.uses[:20]]


async def _permit(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    card_id = request.path_params["id"]
    terms = read_terms(form, desk)
    try:
        await desk.answers.permit(
            card_id, text_in(form, "digest"), terms, PERSON, claim_in(request, form)
        )
    except (Denied, InvalidInput) as failure:
        return await _show(request, failure)
    return RedirectResponse("/permissions?done=made", 303)


def read_terms(form: FormData, desk: Desk) -> Terms:
    given = text_in(form, "per_day").strip()
    often = read_number(given, digits=4)
    if often is None:
        problem = FieldProblem("per_day", "is no number", given[:20], f"1 to {MOST_A_DAY}")
        raise InvalidInput("say how often a day", fields=[problem])
    given = text_in(form, "ends").strip()
    try:
        day = date.fromisoformat(given) + timedelta(days=1)
    except (ValueError, OverflowError):
        problem = FieldProblem("ends", "is no date", given[:20], "2027-01-31")
        raise InvalidInput("say until which day", fields=[problem]) from None
    midnight = datetime.combine(day, datetime.min.time(), ZoneInfo(desk.settings.timezone))
    return Terms(often, midnight)


async def _revoke(request: Request, form: FormData) -> Response:
    await desk_of(request).permitting.revoke(text_in(form, "permission"), PERSON)
    return RedirectResponse("/permissions?done=revoked", 303)


async def _turn_off(request: Request, form: FormData) -> Response:
    del form
    await desk_of(request).permitting.turn(PERSON, on=False)
    return RedirectResponse("/permissions?done=off", 303)


async def _turn_on(request: Request, form: FormData) -> Response:
    try:
        await desk_of(request).answers.permit_again(PERSON, claim_in(request, form))
    except Denied as failure:
        return await _show(request, failure)
    return RedirectResponse("/permissions?done=on", 303)
