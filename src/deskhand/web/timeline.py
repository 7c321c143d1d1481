"""Timeline: the record, newest first, with the state of its proof and what it adds up to.

Every view reads a bounded number of rows: counters by day for the plots, and for a search at most `search.SCAN` lines
of the days that have such entries at all; "older" goes on from there.
"""

import json
import re
from dataclasses import asdict
from datetime import timedelta
from typing import Any, get_args
from urllib.parse import urlencode

from starlette.background import BackgroundTask
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand.app import Desk
from deskhand.audit import Entry, Result, search
from deskhand.audit.search import EntryFilter
from deskhand.gate import ledger
from deskhand.store import Transaction
from deskhand.web import plots
from deskhand.web.entry import effect, page
from deskhand.web.presence import moment, present
from deskhand.web.proof import Proof, proof_of
from deskhand.web.render import render

PAGE = 50
DAYS = 30
NAMES = timedelta(days=90)
DECISIONS = 500


def routes() -> list[Route]:
    return [page("/timeline", present("Timeline", _timeline)), effect("/timeline/verify", _verify)]


async def _timeline(request: Request) -> Response:
    desk: Desk = request.app.state.desk
    wanted, before = _wanted(request), _number(request.query_params.get("before", ""))
    now, proof = desk.now(), proof_of(request.app)

    def look(tx: Transaction) -> dict[str, Any]:
        since = now - timedelta(days=DAYS)
        actors, actions = search.names(tx, str((now - NAMES).date()))
        return {
            "found": search.find(tx, wanted, before=before, limit=PAGE),
            "actors": actors,
            "actions": actions,
            "days": plots.by_day(search.by_day(tx, str(since.date())), now.date(), DAYS),
            "waits": plots.by_wait(ledger.decisions(tx, since, DECISIONS)),
            "sent": len(ledger.sent_since(tx, now - timedelta(seconds=desk.settings.window_seconds))),
        }

    seen = await desk.store.read(look)
    await proof.glance()
    found = seen.pop("found")
    given = {name: value for name, value in asdict(wanted).items() if value is not None}
    answer = render(
        request,
        "timeline.html",
        title="Timeline",
        entries=[(seq, entry, _details(entry)) for seq, entry in found.entries],
        older=f"/timeline?{urlencode(given | {'before': found.older})}" if found.older else None,
        partly=found.older if found.older and len(found.entries) < PAGE else None,
        wanted=wanted,
        before=before,
        results=get_args(Result),
        proof=proof,
        proved=moment(desk, proof.since) if proof.since else None,
        limit=desk.settings.max_sends,
        window=desk.settings.window_seconds,
        plotted=DAYS,
        height=plots.HEIGHT,
        width=plots.WIDTH,
        **seen,
    )
    if not proof.is_whole and proof.broken is None:
        answer.background = BackgroundTask(proof.walk)
    return answer


async def _verify(request: Request, form: FormData) -> Response:
    del form
    proof: Proof = proof_of(request.app)
    await proof.walk(anew=True)
    return RedirectResponse("/timeline#proof", 303)


def _wanted(request: Request) -> EntryFilter:
    given = {name: request.query_params.get(name, "").strip()[:200] or None for name in EntryFilter.__slots__}
    if given["day"] and not re.fullmatch(r"\d{4}-\d\d-\d\d", given["day"]):
        given["day"] = None
    return EntryFilter(**given)


def _details(entry: Entry) -> list[tuple[str, str]]:
    shown = {key: value for key, value in (entry.parameters or {}).items() if value is not None}
    rows = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in shown.items()]
    return [*rows, ("reference", entry.correlation_id)]


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None
