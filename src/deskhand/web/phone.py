"""The desk as an app on a phone: paired by a code, told by push, with a page for when it cannot be reached."""

import asyncio
import json
from functools import cache, partial
from hashlib import sha256
from typing import Any

from markupsafe import Markup
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand import __version__
from deskhand.abroad import WrongPlace
from deskhand.app import Desk
from deskhand.errors import Denied, DeskError, InvalidInput
from deskhand.gate.webauthn import encode
from deskhand.web import sessions, subscriptions
from deskhand.web.entry import SIGN_IN_BYTES, demand_own_origin, effect, page, read_form
from deskhand.web.pairing import pair
from deskhand.web.proving import demand_person
from deskhand.web.render import HERE, render, templates
from deskhand.web.request import desk_of, done_in, text_in
from deskhand.web.sessions import describe_device
from deskhand.web.subscriptions import Subscription
from deskhand.web.times import local_time
from deskhand.web.webpush import are_keys, make_key, public_point, reach_of

OFFLINE = "/offline"
SHELL = (OFFLINE, "/static/desk.css", "/static/icon.svg")
"""All that a browser keeps: the frame of a page, and nothing that stands in one."""
DONE = {
    "told": "This browser is told from now on.",
    "ended": "That browser is told nothing more.",
}
_LONGEST = 2000
_SECONDS = 5
"""In which a push service has to be found."""


def routes() -> list[Route]:
    return [
        page("/phone", _phone),
        effect("/phone/pair", _show_code),
        effect("/phone/subscribe", _subscribe),
        effect("/phone/end", _end),
        Route("/phone/renew", _renew, methods=["POST"]),
        page("/notified", _open_notified, linked=True),
        Route("/worker.js", _worker, methods=["GET"]),
        Route(OFFLINE, _offline, methods=["GET"]),
    ]


async def _phone(request: Request) -> Response:
    return await _show(request)


async def _show(request: Request, *, status: int = 200, **more: Any) -> Response:
    desk = desk_of(request)
    kept = await desk.store.read_one(subscriptions.list_subscriptions)
    known = {
        "told": [
            (each, describe_device(each.browser), local_time(desk, each.created))
            for each in kept
        ],
        "origin": desk.settings.inbox_origin,
        "quiet": desk.settings.quiet,
        "server_key": encode(public_point(make_key(desk.secret("push.key")))),
        "done": done_in(request, DONE),
        "problem": None,
        "pairing": None,
        "here": "/checkup",
    }
    return await render(request, "phone.html", title="Phone", status=status, **known | more)


async def _show_code(request: Request, form: FormData) -> Response:
    try:
        await demand_person(request, form)
        pairing = await pair(desk_of(request), "page")
    except DeskError as error:
        return await _show(request, problem=error)
    return await _show(request, pairing=pairing, code=Markup(pairing.draw_svg()))  # noqa: S704 - drawn by us


async def _open_notified(request: Request) -> Response:
    """Where a notification leads, which does not say what waits: to the card, where it is
    one, else to all of them."""
    waiting = await desk_of(request).waiting.ids()
    if len(waiting) == 1:
        return RedirectResponse(f"/requests/{next(iter(waiting))}", 303)
    return RedirectResponse("/", 303)


# Being told.


async def _subscribe(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    session = request.state.session
    try:
        await demand_person(request, form)
        given = await _read_subscription(request, text_in(form, "subscription"))
        await desk.store.write(subscriptions.add, given, sessions.name_of(session))
    except DeskError as error:
        return await _show(request, problem=error)
    about = {"browser": given.browser, "name": given.name}
    await desk.record("person", "begin_notifications", given.name[:12], about)
    return RedirectResponse("/phone?done=told", 303)


async def _renew(request: Request) -> Response:
    """A browser has another address now. No session is asked for, which may be over: only the browser and the desk know
    the address and the secret from before."""
    desk = desk_of(request)
    demand_own_origin(request)
    async with read_form(request, SIGN_IN_BYTES) as form:
        before = _parse_subscription(request, text_in(form, "before"))
        after = _parse_subscription(request, text_in(form, "subscription"))
    if not await desk.store.read_one(partial(subscriptions.is_told, given=before)):
        raise Denied("this browser is told nothing", reason="subscription")
    await _demand_reachable(desk, after)
    if await desk.store.write(subscriptions.renew, before, after):
        about = {"browser": after.browser, "before": before.name[:12], "name": after.name}
        await desk.record("person", "renew_notifications", after.name[:12], about)
    return Response(status_code=204)


async def _read_subscription(request: Request, text: str) -> Subscription:
    """What the browser gave, if messages can be sent to it; a browser could name any address."""
    given = _parse_subscription(request, text)
    await _demand_reachable(desk_of(request), given)
    return given


def _parse_subscription(request: Request, text: str) -> Subscription:
    try:
        said = json.loads(text[:_LONGEST])
        given = (said["endpoint"], said["keys"]["p256dh"], said["keys"]["auth"])
        is_whole = all(isinstance(each, str) for each in given)
    except (ValueError, KeyError, TypeError, RecursionError):
        is_whole = False
    if not is_whole or not are_keys(*given[1:]):
        raise InvalidInput(
            "the browser gave no address for messages",
            hint="it needs JavaScript and your permission",
        )
    browser = request.headers.get("user-agent", "")[:200]
    return Subscription(*given, browser, desk_of(request).now())


async def _demand_reachable(desk: Desk, given: Subscription) -> None:
    try:
        async with asyncio.timeout(_SECONDS):
            await reach_of(desk).find(given.endpoint)
    except (WrongPlace, OSError, UnicodeError) as error:
        why = str(error) if isinstance(error, WrongPlace) else "it cannot be found"
        raise InvalidInput(
            f"the push service of this browser is not asked: {why}"
        ) from None


async def _end(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    name = text_in(form, "name")
    try:
        await demand_person(request, form)
    except DeskError as error:
        return await _show(request, problem=error)
    if await desk.store.write(partial(subscriptions.end, name=name)):
        await desk.record("person", "end_notifications", name[:12], {})
    return RedirectResponse("/phone?done=ended", 303)


# The app.


async def _offline(request: Request) -> Response:
    """For anybody, and the same for all: browsers keep it."""
    return await render(request, "offline.html", title="Not reached")


async def _worker(request: Request) -> Response:
    del request
    return Response(_read_worker(), media_type="text/javascript")


@cache
def _read_worker() -> str:
    """The service worker. With another version of the desk it is another text, which
    browsers notice by themselves."""
    template = templates().get_template("worker.js")
    files = [HERE / "templates" / "offline.html", HERE / "templates" / "base.html"]
    files += [HERE / path[1:] for path in SHELL if path != OFFLINE]
    version = sha256(
        __version__.encode() + b"".join(file.read_bytes() for file in files)
    ).hexdigest()[:12]
    return template.render(version=f"{__version__}-{version}", shell=SHELL, offline=OFFLINE)
