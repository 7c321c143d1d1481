"""What the person answered, and what ended without an answer: when, and what came of it."""

from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from deskhand.app import Desk
from deskhand.askers import describe_asker
from deskhand.gate import decided
from deskhand.gate.cards import WORDS, describe_kind, kind_of
from deskhand.gate.requests import Request
from deskhand.store import Transaction
from deskhand.web.entry import page
from deskhand.web.render import render
from deskhand.web.request import desk_of, next_page, read_number
from deskhand.web.times import shown_time
from deskhand.wording import name_state

PAGE = 50
_FIELDS = ("q", "outcome", "kind", "asker")
_TONES = {"sent": "good", "unknown": "bad", "failed": "bad", "rejected": "warn"}


@dataclass(frozen=True, slots=True)
class _Row:
    id: str
    subject: str
    what: str
    to: str
    others: int
    asker: str
    state: str
    tone: str
    said: str
    when: Markup


def routes() -> list[Route]:
    return [page("/decided", _show)]


async def _show(request: HttpRequest) -> Response:
    desk = desk_of(request)
    given = {name: request.query_params.get(name, "").strip()[:200] for name in _FIELDS}
    outcome = next((each for each in decided.UPSHOTS if each == given["outcome"]), None)
    wanted = decided.Wanted(given["q"], outcome, given["kind"], given["asker"])
    before = _read_place(request.query_params.get("before", ""))
    await desk.waiting.notice()
    found, askers = await desk.store.read(partial(_collect, wanted=wanted, before=before))
    kept = {name: value for name, value in given.items() if value}
    older = found.older and f"{found.older[0]}-{found.older[1]}"
    return await render(
        request,
        "decided.html",
        title="Decided",
        here="/",
        keys_of="/decided",
        rows=[_row_of(desk, each) for each in found.requests],
        partly=found.partly,
        older=next_page("/decided", kept, "before", older),
        newest=before and f"/decided?{urlencode(kept)}",
        given=given,
        kept=kept,
        filters=[
            ("outcome", "What came of it", list(decided.UPSHOTS.items())),
            ("kind", "Kind", list(WORDS.items())),
            ("asker", "Asked by", [(name, name) for name in askers]),
        ],
    )


def _collect(
    tx: Transaction, wanted: decided.Wanted, before: decided.Place | None
) -> tuple[decided.Page, list[str]]:
    return decided.find(tx, wanted, before, PAGE), decided.list_askers(tx)


def _read_place(text: str) -> decided.Place | None:
    """Where the page before this one ended; None where the address does not say it."""
    at, dash, name = text.partition("-")
    when = read_number(at, digits=15)
    if dash and when is not None:
        return when, name[:100]
    return None


def _name_end(request: Request) -> str:
    """Its state; what was sent back is no plain no, and has a filter of its own."""
    if request.state == "rejected" and request.words is not None:
        return "sent back"
    return name_state(request.state, request.action.kind)


def _row_of(desk: Desk, request: Request) -> _Row:
    action = request.action
    first, *others = action.everybody or (action.to,)
    return _Row(
        id=request.id,
        subject=action.subject,
        what=describe_kind(kind_of(request), action.reply_to_message_id),
        to=first,
        others=len(others),
        asker=describe_asker(request.asker, request.asked_by),
        state=_name_end(request),
        tone=_TONES.get(request.state, "soft"),
        said=decided.describe_answer(request),
        when=shown_time(desk, decided.ended(request)),
    )
