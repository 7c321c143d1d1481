"""Pages from templates. Everything that comes from outside is escaped; nothing on a page is inline."""

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from anyio import to_thread
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from deskhand.app import Desk
from deskhand.errors import DeskError
from deskhand.orchestrator.steps import count_left
from deskhand.web.last import describe_last
from deskhand.web.linked import linked
from deskhand.web.signing import (
    find_localhost,
    has_name,
    is_unproven,
    keys_here,
    names_elsewhere,
)
from deskhand.web.visible import visible

HERE = Path(__file__).parent
PLACES = (
    ("/", "Approvals"),
    ("/decide", "To decide"),
    ("/mail", "Mail"),
    ("/notes", "Notes"),
    ("/tasks", "Tasks"),
    ("/agents", "Agents"),
    ("/timeline", "Timeline"),
    ("/checkup", "Health"),
)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " manifest-src 'self'; form-action 'self'; frame-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not `no-referrer`: with that a browser calls the origin of our own forms "null".
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@cache
def templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters["visible"] = visible
    made.filters["linked"] = linked
    return made


async def _follow_live(desk: Desk, *, signed_in: bool) -> dict[str, Any]:
    """What every page shows and keeps up with: how many wait, and the last answer while it can be undone."""
    found: dict[str, Any] = {"counts": None, "last": None, "deciding": 0}
    if signed_in:
        with suppress(
            DeskError, OSError
        ):  # a page that says what is wrong is shown all the same
            found["counts"] = await desk.waiting.counts()
            found["deciding"] = await desk.store.read(count_left, desk.now())
            last = await desk.answers.last()
            found["last"] = last and describe_last(last, desk.now(), desk.settings.timezone)
    return found


async def render(
    request: Request, template: str, *, status: int = 200, **context: Any
) -> HTMLResponse:
    """A whole page, or with a template of its own a piece of one; a `problem` is one of what the person typed.

    A text of two million characters takes a moment, which is not the event loop's.
    """
    session = getattr(request.state, "session", None)
    desk = request.app.state.desk
    asks = desk.settings.proof == "passkey"
    known = {
        "form_token": session and session.form_token,
        "here": request.url.path,
        "places": PLACES,
        "demo": request.app.state.demo,
        "down": desk.parts.down,
        "asks_password": asks,
        "signs": asks and bool(await keys_here(request)),
        "unproven": session and asks and await is_unproven(request),
        "elsewhere": await names_elsewhere(request),
        "at_localhost": await find_localhost(request),
        "has_name": has_name(request),
        **await _follow_live(desk, signed_in=session is not None),
    }
    if context.get("problem"):
        status = 422
    text = await to_thread.run_sync(
        templates().get_template(template).render, known | context
    )
    return HTMLResponse(text, status, headers=HEADERS)
