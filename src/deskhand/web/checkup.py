"""Health: what the doctor finds and how to mend it, who is signed in, and which doors there are for assistants."""

from functools import partial
from typing import TYPE_CHECKING

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand import tokens
from deskhand.app import Desk
from deskhand.errors import InvalidInput
from deskhand.servers import SERVERS
from deskhand.web import sessions
from deskhand.web.address import own_origin
from deskhand.web.entry import effect, page
from deskhand.web.render import render
from deskhand.web.request import desk_of, done_in, text_in
from deskhand.web.times import shown_time

if TYPE_CHECKING:
    from deskhand.setup.checks.findings import Finding

DONE = {
    "ended": "That session has ended.",
    "others": "All other sessions have ended.",
    "revoked": "The token opens nothing any more.",
}
_CHECKS = {
    "ledger": "unfinished sends",
    "parts": "what runs",
    "approvals": "sending",
    "port": "address",
    "model": "language model",
    "index": "search of notes",
    "secrets": "place of the keys",
}
"""What the page calls a check whose name in `deskhand doctor` says little."""


def routes() -> list[Route]:
    return [
        page("/checkup", _checkup),
        effect("/checkup/sessions/end", _end),
        effect("/checkup/sessions/end-others", _end_others),
        effect("/checkup/tokens/revoke", _revoke),
    ]


async def _checkup(request: Request) -> Response:
    desk = desk_of(request)
    own = request.state.session
    signed_in = await desk.store.read(partial(sessions.signed_in, own=own, now=desk.now()))
    kept = await desk.store.read(tokens.list_tokens)
    return await render(
        request,
        "checkup.html",
        title="Health",
        findings=await _findings(desk),
        check_names=_CHECKS,
        sessions=[
            (each, shown_time(desk, each.created), shown_time(desk, each.seen))
            for each in signed_in
        ],
        tokens=[
            (
                each,
                shown_time(desk, each.created),
                each.used and shown_time(desk, each.used),
            )
            for each in kept
        ],
        doors=[(kind.path, kind.title) for kind in SERVERS.values()],
        address=own_origin(request),
        done=done_in(request, DONE),
    )


async def _findings(desk: Desk) -> "list[Finding]":
    """What the doctor finds, the worst first."""
    from deskhand.setup.doctor import checkup

    found = await checkup(desk)
    return [
        each
        for state in ("bad", "warning", "good")
        for each in found
        if each.state == state
    ]


async def _end(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    name = _demand_text(form, "session")
    await desk.store.write(partial(sessions.end_named, name=name))
    await desk.record("person", "end_session", name[:12], {})
    return RedirectResponse("/checkup?done=ended", 303)


async def _end_others(request: Request, form: FormData) -> Response:
    del form
    desk = desk_of(request)
    ended = await desk.store.write(partial(sessions.end_others, own=request.state.session))
    await desk.record("person", "end_session", "all others", {"ended": ended})
    return RedirectResponse("/checkup?done=others", 303)


async def _revoke(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    name = _demand_text(form, "name")
    await desk.store.write(partial(tokens.revoke, name=name))
    await desk.record("person", "revoke_token", name, {})
    return RedirectResponse("/checkup?done=revoked", 303)


def _demand_text(form: FormData, name: str) -> str:
    given = text_in(form, name)
    if not given:
        raise InvalidInput(
            f"the form names no {name}", hint="reload the page and try again"
        )
    return given
