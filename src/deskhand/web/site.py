"""The whole page as one application: who it answers, which pages there are, how a failure looks."""

import logging
import re
import secrets
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from deskhand.app import Desk
from deskhand.errors import DeskError, Internal
from deskhand.web import agents, checkup, mail, notes, tasks, timeline
from deskhand.web.entry import entry_routes
from deskhand.web.render import HERE, render

log = logging.getLogger("deskhand.web")
_OWN_HOSTS = re.compile(rb"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?")


def site(desk: Desk, *, doors: "list[BaseRoute] | None" = None) -> Starlette:
    """The page of this desk; `doors` are the MCP and REST endpoints that live beside it."""
    routes: list[BaseRoute] = [
        Route("/health", _health),
        Mount("/static", StaticFiles(directory=HERE / "static")),
        *entry_routes(),
        *_pages(),
        *(doors or []),
    ]
    failures: dict[object, Callable[[Request, Exception], Awaitable[Response]]] = {
        DeskError: _refused,
        HTTPException: _no_such_page,
        Exception: _crashed,
    }
    made = Starlette(routes=routes, middleware=[Middleware(_OwnHost)], exception_handlers=failures)
    made.state.desk = desk
    return made


def _pages() -> list[Route]:
    parts = (mail, notes, tasks, agents, timeline, checkup)
    return [route for part in parts for route in part.routes()]


class _OwnHost:
    """Refuses whoever reached us under another name: a page of theirs that points its name at this machine."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            if len(hosts) != 1 or not _OWN_HOSTS.fullmatch(hosts[0]):
                await PlainTextResponse("This desk answers to 127.0.0.1 only.\n", 421)(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _health(request: Request) -> Response:
    del request
    return JSONResponse({"status": "ok"})


async def _refused(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, DeskError)  # noqa: S101 - registered for these alone
    status = {"not_found": 404, "permission_denied": 403, "parse_error": 422, "rate_limited": 429}
    status |= {"mcp_unavailable": 503, "send_failed": 502}
    return render(request, "failure.html", title="Not done", status=status.get(failure.code, 500), failure=failure)


async def _no_such_page(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, HTTPException)  # noqa: S101 - registered for these alone
    wrong_way = DeskError(failure.detail)
    return render(request, "failure.html", title=failure.detail, status=failure.status_code, failure=wrong_way)


async def _crashed(request: Request, failure: Exception) -> Response:
    reference = secrets.token_hex(4)
    log.error("crash", extra={"path": request.url.path, "reference": reference}, exc_info=failure)
    hint = f"search the desk's log for the reference {reference}"
    masked = Internal("an unexpected error", reference=reference, reason="crash", hint=hint)
    return render(request, "failure.html", title="Not done", status=500, failure=masked)
