"""The whole page as one application: who it answers, which pages there are, how a failure looks."""

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deskhand.app import Desk
from deskhand.errors import DeskError, Internal
from deskhand.web import agents, approvals, checkup, mail, notes, tasks, timeline
from deskhand.web.entry import entry_routes
from deskhand.web.events import Events
from deskhand.web.render import HEADERS, HERE, render

log = logging.getLogger("deskhand.web")
_OWN_HOSTS = re.compile(rb"(?:127\.0\.0\.1|localhost|\[::1\])(?::(\d{1,5}))?")


def site(desk: Desk, *, beside: Sequence[BaseRoute] = (), demo: bool = False) -> Starlette:
    """The page of this desk; `beside` are routes that are not the page's, such as MCP endpoints.

    `state.stopping` is set before the desk ends: what streams to a browser ends with it.
    """
    routes: list[BaseRoute] = [
        Route("/health", _health, methods=["GET"]),
        Mount("/static", StaticFiles(directory=HERE / "static")),
        *entry_routes(),
        *_pages(),
        *beside,
    ]
    failures: dict[object, Callable[[Request, Exception], Awaitable[Response]]] = {
        DeskError: _refused,
        HTTPException: _no_such_page,
        Exception: _crashed,
    }
    around = [Middleware(_Headed), Middleware(_OwnHost)]
    made = Starlette(routes=routes, middleware=around, exception_handlers=failures)
    made.state.desk = desk
    made.state.demo = demo
    made.state.stopping = asyncio.Event()
    made.state.events = Events(desk, made.state.stopping)
    return made


def _pages() -> list[Route]:
    parts = (approvals, mail, notes, tasks, agents, timeline, checkup)
    return [route for part in parts for route in part.routes()]


class _Headed:
    """Gives every answer the page's headers, also a redirect, a refusal and a file."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Our own files are asked for again each time and sent only when their ETag is another.
        own = HEADERS | ({"Cache-Control": "no-cache"} if scope["path"].startswith("/static/") else {})

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in own.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, headed)


class _OwnHost:
    """Refuses whoever reached us under another name: a page of theirs that points its name at this machine."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            found = _OWN_HOSTS.fullmatch(hosts[0]) if len(hosts) == 1 else None
            if found is None or int(found[1] or 80) > 65535:
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
    code = 413 if failure.details.get("reason") == "too_large" else status.get(failure.code, 500)
    return render(request, "failure.html", title="Not done", status=code, failure=failure)


async def _no_such_page(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, HTTPException)  # noqa: S101 - registered for these alone
    missing = failure.status_code == HTTPStatus.NOT_FOUND
    wrong_way = DeskError("there is no page at this address" if missing else failure.detail)
    return render(request, "failure.html", title="Not here", status=failure.status_code, failure=wrong_way)


async def _crashed(request: Request, failure: Exception) -> Response:
    reference = secrets.token_hex(4)
    log.error("crash", extra={"path": request.url.path, "reference": reference}, exc_info=failure)
    hint = f"search the desk's log for the reference {reference}"
    masked = Internal("an unexpected error", reference=reference, reason="crash", hint=hint)
    return render(request, "failure.html", title="Not done", status=500, failure=masked)
