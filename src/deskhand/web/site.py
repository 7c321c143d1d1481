"""The whole page as one application: who it answers, which pages there are, how a failure looks."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deskhand.app import Desk
from deskhand.errors import DeskError, Internal, NotFound, speak_to_person
from deskhand.oauth.documents import Documents
from deskhand.web import (
    agents,
    approvals,
    attachments,
    checkup,
    decide,
    decided,
    follow_ups,
    mail,
    notes,
    oauth,
    passkeys,
    permissions,
    phone,
    tasks,
    timeline,
    writing,
)
from deskhand.web.address import HSTS, OwnAddress
from deskhand.web.entry import entry_routes, find_session
from deskhand.web.events import Events
from deskhand.web.render import HEADERS, HERE, PLACES, render
from deskhand.web.request import desk_of
from deskhand.web.verification import Verification

log = logging.getLogger("deskhand.web")
PAGES = (
    approvals,
    decide,
    decided,
    attachments,
    follow_ups,
    permissions,
    writing,
    mail,
    notes,
    tasks,
    agents,
    timeline,
    checkup,
    oauth,
    passkeys,
    phone,
)


def site(desk: Desk, *, beside: Sequence[BaseRoute] = (), demo: bool = False) -> Starlette:
    """The page of this desk; `beside` are routes that are not the page's, such as MCP endpoints.

    `state.stopping` is set before the desk ends: what streams to a browser ends with it.
    """
    routes: list[BaseRoute] = [
        Route("/health", _health, methods=["GET"]),
        Mount("/static", StaticFiles(directory=HERE / "static")),
        *entry_routes(),
        *(route for part in PAGES for route in part.routes()),
        *beside,
    ]
    # Each address is held against one route after the other, and these pages are opened most.
    often = {path for path, _ in PLACES}
    routes.sort(key=lambda route: getattr(route, "path", None) not in often)
    failures: dict[object, Callable[[Request, Exception], Awaitable[Response]]] = {
        DeskError: _show_refusal,
        HTTPException: _show_wrong_address,
        Exception: _show_crash,
    }
    around = [
        Middleware(_AddHeaders),
        Middleware(OwnAddress, origin=desk.settings.inbox_origin),
    ]
    app = Starlette(routes=routes, middleware=around, exception_handlers=failures)
    app.state.desk = desk
    app.state.demo = demo
    app.state.last_changes = {}
    app.state.changed = {}
    app.state.last_decision = None
    app.state.taken_back = None
    app.state.stopping = asyncio.Event()
    app.state.events = Events(desk, app.state.stopping)
    app.state.verification = Verification(desk)
    app.state.documents = Documents()
    return app


_PAGE = {name.lower().encode(): value.encode() for name, value in HEADERS.items()}


class _AddHeaders:
    """Gives every answer the page's headers, also a redirect, a refusal and a file."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        own = _PAGE
        if scope["path"].startswith("/static/"):
            # Our own files are asked for again each time and sent only when their ETag is another.
            own = own | {b"cache-control": b"no-cache"}
        if scope["scheme"] == "https":
            own = own | {b"strict-transport-security": HSTS.encode()}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                said = {name for name, _ in message["headers"]}
                unsaid = [each for each in own.items() if each[0] not in said]
                message["headers"] = [*message["headers"], *unsaid]
            await send(message)

        await self._app(scope, receive, send_with_headers)


async def _health(request: Request) -> Response:
    """Which parts do not run; why, the person reads on the page: whoever asks here is anybody."""
    down = [part.name for part in desk_of(request).parts.down]
    if down:
        return JSONResponse({"status": "degraded", "down": down}, 503)
    return JSONResponse({"status": "ok"})


async def _show_refusal(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, DeskError)  # noqa: S101 - registered for these alone
    return await render(
        request,
        "failure.html",
        title="Not found" if isinstance(failure, NotFound) else "Not done",
        status=failure.http_status,
        failure=speak_to_person(failure),
        back=_find_way_back(request),
    )


def _find_way_back(request: Request) -> tuple[str, str]:
    """The page of the navigation to which this address belongs."""
    for path, name in reversed(PLACES):
        if f"{request.url.path}/".startswith(f"{path.rstrip('/')}/") and path != "/":
            return path, name
    return "/", "the approvals"


async def _show_wrong_address(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, HTTPException)  # noqa: S101 - registered for these alone
    why = failure.detail
    with suppress(DeskError, OSError):  # whoever is signed in keeps the navigation
        await find_session(request)
    if failure.status_code == HTTPStatus.NOT_FOUND:
        why = "There is no page at this address."
    return await render(
        request,
        "failure.html",
        title="Not found",
        status=failure.status_code,
        failure=DeskError(why),
        back=_find_way_back(request),
    )


async def _show_crash(request: Request, failure: Exception) -> Response:
    reference = secrets.token_hex(4)
    log.error(
        "crash", extra={"path": request.url.path, "reference": reference}, exc_info=failure
    )
    hint = f"search the desk's log for the reference {reference}"
    masked = Internal("an unexpected error", reference=reference, reason="crash", hint=hint)
    return await render(
        request,
        "failure.html",
        title="Not done",
        status=500,
        failure=masked,
        back=_find_way_back(request),
    )
