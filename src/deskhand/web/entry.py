"""How somebody comes to a page, and how a page comes to have an effect.

`page` is a GET for a signed-in person; `effect` is a POST of one of our own forms. There is no third way in.
"""

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Literal

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive

from deskhand.app import Desk
from deskhand.errors import AuthRequired, Denied, DeskError, TooLarge
from deskhand.gate.actions import BODY_LIMIT
from deskhand.web import passwords, sessions
from deskhand.web.render import render
from deskhand.web.sessions import Session

Page = Callable[[Request], Awaitable[Response]]
Effect = Callable[[Request, FormData], Awaitable[Response]]
Way = Literal["link", "password"]
FORM_BYTES = 4 * BODY_LIMIT + 1_000_000
"""The longest mail that may leave, were each of its characters one of four bytes, and the other fields."""
DOOR_BYTES = 10_000
"""Of somebody who is not signed in."""
FORM_FIELDS = 500
_MINUTE = timedelta(minutes=1)


def page(path: str, handler: Page) -> Route:
    async def shown(request: Request) -> Response:
        if await _signed_in(request) is None:
            return _to_the_door(request)
        return await handler(request)

    return Route(path, shown, methods=["GET"])


def effect(path: str, handler: Effect) -> Route:
    async def done(request: Request) -> Response:
        session = await _signed_in(request)
        if session is None:
            return _to_the_door(request)
        demand_own_origin(request)
        async with _form(request, FORM_BYTES) as form:
            given = form.get("form_token") or request.headers.get("x-form-token") or ""
            if not isinstance(given, str) or not hmac.compare_digest(given.encode(), session.form_token.encode()):
                raise Denied("this form is not of this session", reason="form", hint="reload the page and try again")
            return await handler(request, form)

    return Route(path, done, methods=["POST"])


def entry_routes() -> list[Route]:
    return [
        Route("/enter", _door, methods=["GET"]),
        Route("/enter", _enter_by_password, methods=["POST"]),
        Route("/enter/{link}", _enter_by_link, methods=["GET"]),
        effect("/leave", _leave),
    ]


def cookie_name(request: Request) -> str:
    """Browsers share cookies between the ports of a host: two desks must not sign each other out."""
    return f"deskhand-{request.url.port}"


def demand_own_origin(request: Request) -> None:
    """Another port of this machine is the same site to a browser, and still not us."""
    own = f"{request.url.scheme}://{request.url.netloc}"
    came_from, sites = request.headers.getlist("origin"), request.headers.getlist("sec-fetch-site")
    # No origin at all is what a program sends that is no browser; it has nobody's cookie but its own.
    if {*came_from} - {own} or {*sites} - {"same-origin"}:
        raise Denied("this form was not sent from the desk's own page", reason="origin")


@asynccontextmanager
async def _form(request: Request, most: int) -> AsyncIterator[FormData]:
    small = Request(request.scope, _at_most(most, request.receive))
    async with small.form(max_files=0, max_fields=FORM_FIELDS, max_part_size=most) as form:
        yield form


def _at_most(limit: int, receive: Receive) -> Receive:
    taken = 0

    async def limited() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > limit:
            raise TooLarge("the form is too large", hint=f"at most {limit:,} bytes")
        return message

    return limited


async def _signed_in(request: Request) -> Session | None:
    """The session of this request, kept awake; also in `request.state.session`, where the templates look."""
    desk: Desk = request.app.state.desk
    key, now = request.cookies.get(cookie_name(request)), desk.now()
    session = await desk.store.read_one(lambda tx: sessions.find(tx, key, now)) if key else None
    if session is not None and now - session.seen > _MINUTE:
        found = session
        await desk.store.write(lambda tx: sessions.touch(tx, found, now))
    request.state.session = session
    return session


def _to_the_door(request: Request) -> Response:
    if "hx-request" in request.headers:
        # Followed in the background, the redirect would put the sign-in page into a corner of this one.
        return Response(status_code=401, headers={"HX-Redirect": "/enter"})
    return RedirectResponse("/enter", 303)


async def _door(request: Request) -> Response:
    if await _signed_in(request) is not None:
        return RedirectResponse("/", 303)
    return await _closed_door(request, status=200)


async def _closed_door(request: Request, wrong: Way | None = None, status: int = 401) -> Response:
    desk: Desk = request.app.state.desk
    has_password = await desk.store.read(passwords.is_set)
    return render(request, "enter.html", title="Sign in", status=status, wrong=wrong, has_password=has_password)


async def _enter_by_link(request: Request) -> Response:
    desk: Desk = request.app.state.desk
    # A program that looks ahead must not use the link up before the person opens it.
    if request.method != "GET" or "prefetch" in request.headers.get("sec-purpose", request.headers.get("purpose", "")):
        return await _closed_door(request)
    link, browser, now = request.path_params["link"], _browser(request), desk.now()
    session = await desk.store.write(lambda tx: sessions.redeem(tx, link, browser, now))
    if session is not None:
        return await _welcomed(request, session, "link")
    if await desk.store.write(lambda tx: passwords.is_news(tx, now)):
        await _on_record(request, "link", AuthRequired("the link was used before, is too old, or never was one"))
    return await _closed_door(request, "link")


async def _enter_by_password(request: Request) -> Response:
    desk: Desk = request.app.state.desk
    demand_own_origin(request)
    async with _form(request, DOOR_BYTES) as form:
        given = str(form.get("password", ""))
    now, browser = desk.now(), _browser(request)
    kept = await desk.store.write(lambda tx: passwords.attempt(tx, now))
    if kept is None:
        return await _closed_door(request)
    if not await asyncio.to_thread(passwords.matches, given, kept):
        await _on_record(request, "password", AuthRequired("wrong password"))
        return await _closed_door(request, "password")
    await desk.store.write(passwords.forgive)
    return await _welcomed(request, await desk.store.write(lambda tx: sessions.begin(tx, browser, now)), "password")


async def _welcomed(request: Request, session: Session, way: Way) -> Response:
    """With a key that nobody knew before; the one that this browser came with ends."""
    desk: Desk = request.app.state.desk
    if before := request.cookies.get(cookie_name(request)):
        await desk.store.write(lambda tx: sessions.end(tx, before))
    await _on_record(request, way, None)
    answer = RedirectResponse("/", 303)
    life = int(sessions.LIFE.total_seconds())
    answer.set_cookie(cookie_name(request), session.key, max_age=life, httponly=True, samesite="strict")
    return answer


async def _on_record(request: Request, way: Way, error: DeskError | None) -> None:
    desk: Desk = request.app.state.desk
    details = {"way": way, "browser": _browser(request)}
    await desk.record("person", "sign_in", "page", details, error, 0, result="rejected" if error else "success")


async def _leave(request: Request, form: FormData) -> Response:
    del form
    desk: Desk = request.app.state.desk
    session: Session = request.state.session
    await desk.store.write(lambda tx: sessions.end(tx, session.key))
    await desk.record("person", "sign_out", "page", {}, None, 0)
    answer = RedirectResponse("/enter", 303)
    answer.delete_cookie(cookie_name(request), httponly=True, samesite="strict")
    return answer


def _browser(request: Request) -> str:
    return request.headers.get("user-agent", "")[:200]
