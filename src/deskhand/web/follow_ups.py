"""Answers that the person waits for: set from a card, listed with what is awaited still, and cancelled."""

from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand.app import Desk
from deskhand.gate import follow_ups
from deskhand.gate.cards import Card
from deskhand.tasks.due import read_wait
from deskhand.web.entry import effect, page
from deskhand.web.proving import demand_person
from deskhand.web.render import render
from deskhand.web.request import desk_of, done_in, text_in
from deskhand.web.times import shown_time

DONE = {
    "cancelled": "You are not told of it.",
    "set": "You are told then, if nobody has answered.",
}
_MAILS = ("send_email", "reply_email", "forward_email", "draft")
_GONE = ("rejected", "expired", "withdrawn", "failed")


@dataclass(frozen=True, slots=True)
class FollowUpForm:
    """What the card's form says."""

    due: datetime | None
    state: str


def routes() -> list[Route]:
    return [
        page("/follow-ups", _show),
        effect("/follow-ups/cancel", _cancel),
        effect("/approvals/{id}/follow-up", _set),
    ]


async def find(desk: Desk, card: Card) -> FollowUpForm | None:
    """What is said of it on the card; None where nobody could answer."""
    if card.kind not in _MAILS or card.state in _GONE:
        return None
    found = await desk.store.read(follow_ups.find_awaited, card.id)
    if found is None:
        return FollowUpForm(None, "none")
    return FollowUpForm(found.due, found.state)


async def _show(request: Request) -> Response:
    desk = desk_of(request)
    found = await desk.store.read(follow_ups.list_awaited)
    shown = [
        (each.request, shown_time(desk, each.due), _describe_left(desk, each))
        for each in found
    ]
    title = "Answers that you wait for"
    return await render(
        request,
        "follow_ups.html",
        title=title,
        here="/mail",
        awaited=shown,
        done=done_in(request, DONE),
    )


def _describe_left(desk: Desk, awaited: follow_ups.AwaitedAnswer) -> Markup:
    if awaited.request.state == "sent":
        return Markup("sent {}").format(shown_time(desk, awaited.request.left))
    return Markup("not sent yet")


async def _set(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    name = request.path_params["id"]
    await demand_person(request, form)
    wanted = read_wait(text_in(form, "when"), desk.now(), desk.settings.timezone, "when")
    due = await desk.store.write(
        follow_ups.await_answer, await desk.waiting.find(name), wanted, desk.now()
    )
    await desk.record("person", "follow_up", name, {"due": due})
    return RedirectResponse(f"/approvals/{name}", 303)


async def _cancel(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    name = text_in(form, "request")
    await demand_person(request, form)
    await desk.store.write(follow_ups.cancel, name)
    await desk.record("person", "cancel_follow_up", name, {})
    return RedirectResponse("/follow-ups?done=cancelled", 303)
