"""Pages from templates. Everything that comes from outside is escaped; nothing on a page is inline."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from anyio import to_thread
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from deskhand.app import Desk
from deskhand.errors import DeskError, as_sentence
from deskhand.gate import passkeys, passwords
from deskhand.gate.mailchange import say_change
from deskhand.gate.undo import find_last
from deskhand.gate.waiting import Counts, count_waiting
from deskhand.gate.webauthn import Passkey
from deskhand.orchestrator.steps import count_left
from deskhand.orchestrator.undeciding import Decided
from deskhand.store import Transaction
from deskhand.unseen import spell_out_line
from deskhand.web.changed import find_newest
from deskhand.web.last import Undoable, describe_decided, describe_last
from deskhand.web.linked import linked
from deskhand.web.signing import describe_signing
from deskhand.web.visible import coded, visible
from deskhand.wording import name_label, name_state

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
MORE = (
    ("/decided", "Decided"),
    ("/permissions", "Permissions"),
    ("/follow-ups", "Follow-ups"),
    ("/passkeys", "Passkeys"),
    ("/phone", "Phone"),
)
"""Pages that others lead to, and the palette."""
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


_WITH_KEYS = ("/", "/decide", "/decided")
"""Pages that have keys of their own."""


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
    made.filters["spelled"] = spell_out_line
    made.filters["coded"] = coded
    made.filters["sentence"] = as_sentence
    made.globals["name_label"] = name_label
    made.globals["name_state"] = name_state
    made.globals["say_change"] = say_change
    return made


class _Look(NamedTuple):
    """What every page shows and keeps up with."""

    counts: Counts | None = None
    """How many wait; none for whoever is not signed in."""
    deciding: int = 0
    last: Undoable | None = None
    """The last answer, while it can be undone."""
    keys: Sequence[Passkey] = ()
    has_password: bool = True


async def _look_around(desk: Desk, decided: Decided | None, *, signed_in: bool) -> _Look:
    with suppress(DeskError, OSError):
        return await desk.store.glance(_look, desk, decided, signed_in=signed_in)
    return _Look()  # a page that says what is wrong is shown all the same


def _look(
    tx: Transaction, desk: Desk, decided: Decided | None, *, signed_in: bool
) -> _Look:
    """All of it by one look: each would take a turn through a thread."""
    found = _Look(
        keys=passkeys.list_keys(tx, desk.policy.seal), has_password=passwords.is_set(tx)
    )
    if not signed_in:
        return found
    now = desk.now()
    last = _find_undoable(tx, desk, decided)
    found = found._replace(last=last)
    return found._replace(counts=count_waiting(tx, now), deciding=count_left(tx, now))


def _find_undoable(tx: Transaction, desk: Desk, decided: Decided | None) -> Undoable | None:
    """What the person said last, to a card or about a mail, while it can be taken back."""
    now = desk.now()
    zone = desk.settings.timezone
    hold = timedelta(seconds=desk.settings.hold_seconds)
    answer = find_last(tx, now, hold)
    said = None
    if answer is not None:
        alone = desk.settings.reaches_nobody
        said = describe_last(answer, now, zone, reaches_nobody=alone)
    about = describe_decided(decided, now, hold, zone) if decided else None
    if said is None or (about is not None and about.at > said.at):
        return about
    return said


def _show_keys(here: str) -> Markup:
    """What each key does on the page at this place."""
    if here not in _WITH_KEYS:
        here = ""
    return _draw_keys(here)


@cache
def _draw_keys(here: str) -> Markup:
    shown = templates().get_template("keys.html").render(here=here, more_places=MORE)
    return Markup(shown)  # noqa: S704 - a template escapes


async def render(
    request: Request, template: str, *, status: int = 200, **context: Any
) -> HTMLResponse:
    """A whole page, or with a template of its own a piece of one; a `problem` is one of what the person typed.

    A text of two million characters takes a moment, which is not the event loop's.
    """
    shown = await _find_known(request) | context
    text = await to_thread.run_sync(templates().get_template(template).render, shown)
    return _answer(text, status, context)


async def render_short(request: Request, template: str, **context: Any) -> HTMLResponse:
    """The same, on the event loop: of a page on which nothing is long, a turn through a thread is a tenth."""
    shown = await _find_known(request) | context
    text = templates().get_template(template).render(shown)
    return _answer(text, 200, context)


def _answer(text: str, status: int, context: Mapping[str, Any]) -> HTMLResponse:
    if context.get("problem"):
        status = 422
    return HTMLResponse(text, status, headers=HEADERS)


async def _find_known(request: Request) -> dict[str, Any]:
    """What every page may say."""
    session = getattr(request.state, "session", None)
    desk = request.app.state.desk
    asks = desk.settings.proof == "passkey"
    decided = request.app.state.last_decision
    seen = await _look_around(desk, decided, signed_in=session is not None)
    unread = 0
    if session is not None:
        unread = await desk.count_messages()
    return {
        "form_token": session and session.form_token,
        "here": request.url.path,
        "places": PLACES,
        "shortcuts": _show_keys,
        "demo": request.app.state.demo,
        "down": desk.parts.down,
        "asks_password": asks,
        "counts": seen.counts,
        "deciding": seen.deciding,
        "unread_messages": unread,
        "last": seen.last,
        "changed": find_newest(request) if session is not None else None,
        **describe_signing(request, seen.keys, has_password=seen.has_password, asks=asks),
    }
