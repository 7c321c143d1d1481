"""How somebody comes to a page, and how a page comes to have an effect.

`page` is a GET for a signed-in person; `effect` is a POST of one of our own forms. There is no third way in.
"""

import hmac
from collections.abc import Awaitable, Callable
from datetime import timedelta

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand.app import Desk
from deskhand.errors import Denied
from deskhand.web import sessions
from deskhand.web.render import render
from deskhand.web.sessions import Session

Page = Callable[[Request], Awaitable[Response]]
Effect = Callable[[Request, FormData], Awaitable[Response]]
_MINUTE = timedelta(minutes=1)


def page(path: str, handler: Page) -> Route:
    async def shown(request: Request) -> Response:
        if await _signed_in(request) is None:
            return RedirectResponse("/enter", 303)
        return await handler(request)

    return Route(path, shown, methods=["GET"])


def effect(path: str, handler: Effect) -> Route:
    async def done(request: Request) -> Response:
        session = await _signed_in(request)
        if session is None:
            return RedirectResponse("/enter", 303)
        demand_own_origin(request)
        async with request.form() as form:
            given = form.get("form_token") or request.headers.get("x-form-token") or ""
            if not isinstance(given, str) or not hmac.compare_digest(given.encode(), session.form_token.encode()):
                raise Denied("this form is not of this session", reason="form", hint="reload the page and try again")
            return await handler(request, form)

    return Route(path, done, methods=["POST"])


def entry_routes() -> list[Route]:
    return [
        Route("/enter", _door, methods=["GET"]),
        Route("/enter/{link}", _enter, methods=["GET"]),
        effect("/leave", _leave),
    ]


def cookie_name(request: Request) -> str:
    """Browsers share cookies between the ports of a host: two desks must not sign each other out."""
    return f"deskhand-{request.url.port}"


def demand_own_origin(request: Request) -> None:
    own = f"{request.url.scheme}://{request.url.netloc}"
    came_from = request.headers.get("origin")
    if (came_from is not None and came_from != own) or request.headers.get("sec-fetch-site") == "cross-site":
        raise Denied("this form was not sent from the desk's own page", reason="origin")


async def _signed_in(request: Request) -> Session | None:
    """The session of this request, kept awake; also in `request.state.session`, where the templates look."""
    desk: Desk = request.app.state.desk
    key, now = request.cookies.get(cookie_name(request)), desk.now()
    session = await desk.store.read(lambda tx: sessions.find(tx, key, now)) if key else None
    if session is not None and now - session.seen > _MINUTE:
        found = session
        await desk.store.write(lambda tx: sessions.touch(tx, found, now))
    request.state.session = session
    return session


async def _door(request: Request) -> Response:
    return render(request, "enter.html", title="Sign in", status=401)


async def _enter(request: Request) -> Response:
    desk: Desk = request.app.state.desk
    link, browser = request.path_params["link"], request.headers.get("user-agent", "")
    session = await desk.store.write(lambda tx: sessions.redeem(tx, link, browser, desk.now()))
    if session is None:
        return render(request, "enter.html", title="Sign in", status=401, used=True)
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        cookie_name(request), session.key, max_age=int(sessions.LIFE.total_seconds()), httponly=True, samesite="strict"
    )
    return answer


async def _leave(request: Request, form: FormData) -> Response:
    del form
    desk: Desk = request.app.state.desk
    session: Session = request.state.session
    await desk.store.write(lambda tx: sessions.end(tx, session))
    answer = RedirectResponse("/enter", 303)
    answer.delete_cookie(cookie_name(request))
    return answer
