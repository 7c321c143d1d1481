"""Timeline: the record, newest first, whether it is whole, and what it adds up to.

Every view reads a bounded number of rows: counters by day for the plots, and for a search at most `search.SCAN` lines
of the days that have such entries at all; "older" goes on from there.
"""

import re
from collections.abc import Mapping
from datetime import date, timedelta
from functools import lru_cache
from typing import Any

from markupsafe import Markup
from starlette.background import BackgroundTask
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand.app import Desk
from deskhand.askers import describe_actor
from deskhand.audit import Entry, search
from deskhand.audit.search import EntryFilter
from deskhand.clock import length, local
from deskhand.gate import lists, sends
from deskhand.store import Transaction
from deskhand.web import plots
from deskhand.web.entry import effect, page
from deskhand.web.render import render_short, templates
from deskhand.web.request import desk_of, next_page, number_in
from deskhand.web.rows import draw_entries
from deskhand.web.times import shown_time
from deskhand.web.unavailable import or_unavailable
from deskhand.web.verification import Followed, Verification
from deskhand.wording import RESULTS, name_action, name_actor, name_choices

PAGE = 50
DAYS = 30
NAMES = timedelta(days=90)
"""How far back the names reach that a search offers."""
DECISIONS = 500
_FIELDS = ("actor", "action", "result", "day", "text", "request")


def routes() -> list[Route]:
    return [
        page("/timeline", or_unavailable("Timeline", _timeline)),
        effect("/timeline/verify", _verify),
    ]


async def _timeline(request: Request) -> Response:
    desk = desk_of(request)
    wanted = _filter(request)
    before = number_in(request, "before", digits=17)

    verification: Verification = request.app.state.verification
    step, collected = await desk.store.read(_collect, verification, desk, wanted, before)
    verification.note(step)
    found, askers, first, days, waits = (
        collected.pop(name) for name in ("found", "askers", "first", "days", "waits")
    )
    given = {name: getattr(wanted, name) for name in _FIELDS if getattr(wanted, name)}
    lines = [(seq, entry, _who(entry, askers)) for seq, entry in found.entries]
    answer = await render_short(
        request,
        "timeline.html",
        title="Timeline",
        entries=await draw_entries(desk, lines),
        older=next_page("/timeline", given, "before", found.older),
        partly=len(found.entries) < PAGE and found.older,
        wanted=wanted,
        before=before,
        results=RESULTS,
        verification=verification,
        verified=verification.since and shown_time(desk, verification.since),
        limit=desk.settings.max_sends,
        window=length(desk.settings.window_seconds).removeprefix("1 "),
        days=_draw_days(tuple(days), first),
        waits=_draw_waits(tuple(waits)),
        **collected,
    )
    if not verification.is_whole and verification.broken is None:
        answer.background = BackgroundTask(verification.check_all)
    return answer


def _collect(
    tx: Transaction,
    verification: Verification,
    desk: Desk,
    wanted: EntryFilter,
    before: int | None,
) -> tuple[Followed, dict[str, Any]]:
    """All of it by one look: each would take a turn through a thread."""
    now = desk.now()
    zone = desk.settings.timezone
    first = local(now, zone).date() - timedelta(days=DAYS - 1)
    since = now - timedelta(days=DAYS)
    window = timedelta(seconds=desk.settings.window_seconds)
    actors, actions = search.names(tx, str((now - NAMES).date()))
    found = search.find(tx, wanted, before=before, limit=PAGE)
    return verification.read_new(tx), {
        "found": found,
        "askers": lists.name_askers(
            tx,
            [(entry.parameters or {}).get("action_id") for _, entry in found.entries],
        ),
        "actors": name_choices(actors, name_actor),
        "actions": name_choices(actions, name_action),
        "first": first,
        "days": search.by_day(tx, first, DAYS, zone),
        "waits": lists.waits_of(tx, since, DECISIONS),
        "sent": sends.count_since(tx, now - window),
    }


@lru_cache(maxsize=8)
def _draw_days(counts: tuple[tuple[date, str, int], ...], first: date) -> Markup:
    about = f"One stack for each of the last {DAYS} days."
    plot = plots.by_day(counts, first, DAYS)
    return _draw("days", "Actions per day by result", about, plot)


@lru_cache(maxsize=8)
def _draw_waits(waits: tuple[timedelta, ...]) -> Markup:
    about = f"How many requests of the last {DAYS} days were decided after which time."
    return _draw("waits", "Waiting time until a decision", about, plots.by_wait(waits))


def _draw(name: str, title: str, about: str, plot: plots.Plot) -> Markup:
    module: Any = templates().get_template("plot.html").module
    drawn: Markup = module.plot(name, title, about, plot, plots.WIDTH, plots.HEIGHT)
    return drawn


async def _verify(request: Request, form: FormData) -> Response:
    del form
    await request.app.state.verification.check_all(again=True)
    return RedirectResponse("/timeline#proof", 303)


def _filter(request: Request) -> EntryFilter:
    given = {
        name: request.query_params.get(name, "").strip()[:200] or None for name in _FIELDS
    }
    if given["day"] and not re.fullmatch(r"\d{4}-\d\d-\d\d", given["day"]):
        given["day"] = None
    return EntryFilter(**given, zone=desk_of(request).settings.timezone)


def _who(entry: Entry, askers: Mapping[str, str]) -> str:
    return describe_actor(entry.actor, entry.parameters or {}, askers)
