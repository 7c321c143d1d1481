"""How somebody comes to a page, and how a page comes to have an effect.

`page` is a GET for a signed-in person; `effect` is a POST of one of our own forms. There is no third way in.
"""

import asyncio
import hmac
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive

from deskhand.audit import Result
from deskhand.errors import AuthRequired, Denied, DeskError, TooLarge
from deskhand.gate import passkeys, passwords, webauthn
from deskhand.gate.fields import BODY_LIMIT
from deskhand.store import Transaction
from deskhand.web import sessions
from deskhand.web.address import own_origin
from deskhand.web.render import render
from deskhand.web.request import desk_of, text_in
from deskhand.web.sessions import Session, Way
from deskhand.web.signing import (
    demand_assertion,
    keys_here,
    offer,
    signing_origin,
)

Page = Callable[[Request], Awaitable[Response]]
Effect = Callable[[Request, FormData], Awaitable[Response]]
FORM_BYTES = 4 * BODY_LIMIT + 1_000_000
"""The longest mail that may leave, were each of its characters one of four bytes, and the other fields."""
SIGN_IN_BYTES = 10_000
"""The largest form that somebody may send who is not signed in."""
FORM_FIELDS = 500
_MINUTE = timedelta(minutes=1)
_SIGN_IN = "sign in"
"""The place for which a nonce is made before there is a session."""
_LONGEST_PLACE = 3000
_PLACE_LIFE = 900
"""Seconds in which somebody who signs in comes to the page that they had asked for."""


def page(path: str, handler: Page, *, linked: bool = False) -> Route:
    """A page; to one that is `linked` from elsewhere whoever had to sign in first comes back."""

    async def answer(request: Request) -> Response:
        if await find_session(request) is not None:
            return await handler(request)
        if linked and request.headers.get("sec-fetch-site") == "cross-site":
            # A browser that came by a link elsewhere has withheld its cookie; coming from our own page it shows it.
            return await render(
                request, "entered.html", title="One moment", place=_place(request)
            )
        away = _to_sign_in(request)
        if linked and len(_place(request)) <= _LONGEST_PLACE:
            limits = _cookie_limits(request)
            away.set_cookie(
                _place_cookie(request),
                quote(_place(request)),
                max_age=_PLACE_LIFE,
                **limits,
            )
        return away

    return Route(path, answer, methods=["GET"])


def effect(path: str, handler: Effect) -> Route:
    async def answer(request: Request) -> Response:
        session = await find_session(request)
        if session is None:
            return _to_sign_in(request)
        demand_own_origin(request)
        async with read_form(request, FORM_BYTES) as form:
            given = text_in(form, "form_token") or request.headers.get("x-form-token", "")
            if not hmac.compare_digest(given.encode(), session.form_token.encode()):
                raise Denied(
                    "this form is not of this session",
                    reason="form",
                    hint="reload the page and try again",
                )
            return await handler(request, form)

    return Route(path, answer, methods=["POST"])


def entry_routes() -> list[Route]:
    return [
        Route("/enter", _sign_in, methods=["GET"]),
        Route("/enter", _enter_by_password, methods=["POST"]),
        Route("/enter/challenge", _challenge, methods=["POST"]),
        Route("/enter/passkey", _enter_by_passkey, methods=["POST"]),
        Route("/enter/code", _enter_by_code, methods=["POST"]),
        Route("/enter/{link}", _enter_by_link, methods=["GET"]),
        Route("/pair/{link}", _show_pairing, methods=["GET"]),
        Route("/pair/{link}", _pair, methods=["POST"]),
        effect("/leave", _leave),
    ]


def cookie_name(request: Request) -> str:
    """Browsers share cookies between the ports of a host: two desks must not sign each other out."""
    if request.url.scheme == "https":
        return f"__Host-deskhand-{request.url.port or 443}"
    return f"deskhand-{request.url.port}"


def _cookie_limits(request: Request) -> dict[str, Any]:
    return {"httponly": True, "samesite": "strict", "secure": request.url.scheme == "https"}


def demand_own_origin(request: Request) -> None:
    """Refuse a form of another page. To a browser another port of this machine is the same
    site; to us it is not."""
    own = own_origin(request)
    # No origin at all is what a program sends that is no browser; it has nobody's cookie but its own.
    origins = set(request.headers.getlist("origin"))
    sites = set(request.headers.getlist("sec-fetch-site"))
    if origins - {own} or sites - {"same-origin"}:
        raise Denied("this form was not sent from the desk's own page", reason="origin")


@asynccontextmanager
async def read_form(request: Request, most: int) -> AsyncIterator[FormData]:
    small = Request(request.scope, _at_most(most, request.receive))
    async with small.form(max_files=0, max_fields=FORM_FIELDS, max_part_size=most) as form:
        yield form


def _at_most(limit: int, receive: Receive) -> Receive:
    taken = 0

    async def receive_some() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > limit:
            raise TooLarge("the form is too large", hint=f"at most {limit:,} bytes")
        return message

    return receive_some


async def find_session(request: Request) -> Session | None:
    """The session of this request, which counts as seen now; also put where the templates look for it."""
    desk = desk_of(request)
    now = desk.now()
    session = None
    if key := request.cookies.get(cookie_name(request)):
        session = await desk.store.glance(sessions.find, key, now)
    if session is not None and now - session.seen > _MINUTE:
        await desk.store.write(partial(sessions.touch, session=session, now=now))
    request.state.session = session
    return session


def _to_sign_in(request: Request) -> Response:
    if "hx-request" in request.headers:
        # Followed in the background, the redirect would put the sign-in page into a corner of this one.
        return Response(status_code=401, headers={"HX-Redirect": "/enter"})
    return RedirectResponse("/enter", 303)


def _place(request: Request) -> str:
    return str(request.url.replace(scheme="", netloc=""))


def _place_cookie(request: Request) -> str:
    return f"{cookie_name(request)}-place"


def _place_before(request: Request, otherwise: str) -> str:
    """The page that the person asked for before signing in. Another port of this machine
    can write this cookie, too."""
    place = unquote(request.cookies.get(_place_cookie(request), ""))
    if re.fullmatch(r"/(?![/\\])[!-~]*", place):
        return place
    return otherwise


async def _sign_in(request: Request) -> Response:
    if await find_session(request) is not None:
        return RedirectResponse("/", 303)
    return await _show_sign_in(request, status=200)


async def _show_sign_in(
    request: Request, wrong: Way | None = None, status: int = 401
) -> Response:
    desk = desk_of(request)
    known = {
        "wrong": wrong,
        "has_password": await desk.store.read(passwords.is_set),
        "has_codes": await desk.store.read(passkeys.count_codes),
        "has_passkeys": await keys_here(request),
        "came_for_a_page": status == 200 and _place_before(request, "") != "",
    }
    return await render(request, "enter.html", title="Sign in", status=status, **known)


async def _enter_by_link(request: Request) -> Response:
    desk = desk_of(request)
    now = desk.now()
    # A program that looks ahead must not use the link up before the person opens it.
    purpose = request.headers.get("sec-purpose", request.headers.get("purpose", ""))
    if request.method != "GET" or "prefetch" in purpose:
        return await _show_sign_in(request)
    link = request.path_params["link"]
    redeem = partial(
        sessions.redeem,
        link=link,
        browser=_browser(request),
        now=now,
        place=_came_from(request),
    )
    session = await desk.store.write(redeem)
    if session is not None:
        return await _let_in(request, session, "link")
    wrong = AuthRequired("the link was used before, is too old, or never was one")
    return await _turn_away(request, "link", wrong)


async def _show_pairing(request: Request) -> Response:
    """Only a button: a camera that looks ahead must not use the code up."""
    return await render(request, "pair.html", title="Pair this device")


async def _pair(request: Request) -> Response:
    desk = desk_of(request)
    demand_own_origin(request)
    given = {
        "link": request.path_params["link"],
        "browser": _browser(request),
        "place": _came_from(request),
    }

    def redeem(tx: Transaction) -> Session | None:
        passwords.demand_few_codes(tx, given["place"], desk.now())
        session = sessions.redeem(tx, now=desk.now(), way="pairing", **given)
        if session is None:
            passwords.count_wrong_code(tx, given["place"], desk.now())
        return session

    session = await desk.store.write(redeem)
    if session is not None:
        return await _let_in(request, session, "pairing")
    wrong = AuthRequired("the code was used before, is too old, or never was one")
    return await _turn_away(request, "pairing", wrong)


async def _enter_by_password(request: Request) -> Response:
    desk = desk_of(request)
    demand_own_origin(request)
    async with read_form(request, SIGN_IN_BYTES) as form:
        given = str(form.get("password", ""))
    now = desk.now()
    kept = await desk.store.write(
        partial(passwords.attempt, now=now, place=_came_from(request))
    )
    if kept is None:
        return await _show_sign_in(request)
    desk.policy.demand_own_password(kept)
    if not await asyncio.to_thread(passwords.matches, given, kept):
        await _record(request, "password", AuthRequired("wrong password"))
        return await _show_sign_in(request, "password")
    await desk.store.write(passwords.forget_wrong_passwords, _came_from(request))
    return await _let_in(request, await _begin(request, "password"), "password")


async def _challenge(request: Request) -> Response:
    """What a passkey has to sign to sign in; the browser shows the person which ones it has."""
    demand_own_origin(request)
    return JSONResponse(await offer(request, webauthn.SIGN_IN, _SIGN_IN, named=False))


async def _enter_by_passkey(request: Request) -> Response:
    desk = desk_of(request)
    demand_own_origin(request)
    async with read_form(request, SIGN_IN_BYTES) as form:
        given = text_in(form, "assertion")
    origin = signing_origin(request)

    def accept(tx: Transaction) -> None:
        signed = demand_assertion(given)
        passkeys.accept(
            tx,
            desk.policy.seal,
            webauthn.SIGN_IN,
            signed,
            origin=origin,
            place=_SIGN_IN,
            now=desk.now(),
        )

    try:
        await desk.store.write(accept)
    except Denied as error:
        return await _turn_away(request, "passkey", error)
    return await _let_in(request, await _begin(request, "passkey"), "passkey")


async def _enter_by_code(request: Request) -> Response:
    desk = desk_of(request)
    demand_own_origin(request)
    async with read_form(request, SIGN_IN_BYTES) as form:
        code = text_in(form, "code")
    if not await desk.store.write(passkeys.use_code, desk.policy.seal, code):
        wrong = AuthRequired("no recovery code, or one that was used")
        return await _turn_away(request, "code", wrong)
    return await _let_in(request, await _begin(request, "code"), "code")


async def _begin(request: Request, way: Way) -> Session:
    desk = desk_of(request)
    await desk.store.write(passwords.know_place, _came_from(request), desk.now())
    begin = partial(
        sessions.begin,
        browser=_browser(request),
        now=desk.now(),
        way=way,
        place=_came_from(request),
    )
    return await desk.store.write(begin)


async def _turn_away(request: Request, way: Way, error: DeskError) -> Response:
    """Put a wrong sign-in on the record, of many the first few, and ask once more."""
    desk = desk_of(request)
    if await desk.store.write(passwords.count_wrong_link, desk.now()):
        await _record(request, way, error)
    return await _show_sign_in(request, way)


async def _let_in(request: Request, session: Session, way: Way) -> Response:
    """Sign the browser in with a key that nobody knew before; the session that it came with ends."""
    desk = desk_of(request)
    if before := request.cookies.get(cookie_name(request)):
        await desk.store.write(sessions.replace, before, session)
    await _record(request, way, None)
    place = _place_before(request, "/phone" if way == "pairing" else "/")
    answer: Response = RedirectResponse(place, 303)
    if request.headers.get("sec-fetch-site") == "cross-site":
        # A browser that came by a link elsewhere withholds the new cookie from the redirect, but not from our own page.
        answer = await render(request, "entered.html", title="Signed in", place=place)
    life = int(sessions.LIFE.total_seconds())
    answer.set_cookie(
        cookie_name(request), session.key, max_age=life, **_cookie_limits(request)
    )
    answer.delete_cookie(_place_cookie(request), **_cookie_limits(request))
    return answer


async def _record(request: Request, way: Way, error: DeskError | None) -> None:
    details = {"way": way, "browser": _browser(request), "place": _came_from(request)}
    result: Result = "rejected" if error else "success"
    await desk_of(request).record(
        "person", "sign_in", "page", details, error, result=result
    )


async def _leave(request: Request, form: FormData) -> Response:
    del form
    desk = desk_of(request)
    await desk.store.write(partial(sessions.end, key=request.state.session.key))
    await desk.record("person", "sign_out", "page", {})
    answer = RedirectResponse("/enter", 303)
    answer.delete_cookie(cookie_name(request), **_cookie_limits(request))
    return answer


def _came_from(request: Request) -> str:
    """Where the browser is; behind a proxy the address that it named."""
    if request.client is None:
        return ""
    return request.client.host[:100]


def _browser(request: Request) -> str:
    return request.headers.get("user-agent", "")[:200]
