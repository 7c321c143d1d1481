"""Health: what the doctor finds and how to mend it, who is signed in, and which doors there are for assistants."""

from typing import TYPE_CHECKING

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand import tokens
from deskhand.app import Desk
from deskhand.errors import InvalidInput
from deskhand.web import sessions
from deskhand.web.entry import effect, page
from deskhand.web.presence import moment
from deskhand.web.render import render

if TYPE_CHECKING:
    from deskhand.setup.findings import Finding

DOORS = (
    ("/mcp", "the whole desk"),
    ("/email/mcp", "mail: search, draft, ask to send"),
    ("/gmail/mcp", "mail: list, read, label, ask to send"),
    ("/obsidian/mcp", "notes"),
    ("/tasks/mcp", "tasks"),
    ("/agentmail/mcp", "messages between agents"),
)
DONE = {
    "ended": "That session has ended.",
    "others": "All other sessions have ended.",
    "revoked": "The token opens nothing any more.",
}
_WORST_FIRST = ("bad", "warning", "good")


def routes() -> list[Route]:
    return [
        page("/checkup", _checkup),
        effect("/checkup/sessions/end", _end),
        effect("/checkup/sessions/end-others", _end_others),
        effect("/checkup/tokens/revoke", _revoke),
    ]


async def _checkup(request: Request) -> Response:
    desk: Desk = request.app.state.desk
    now, own = desk.now(), request.state.session
    kept, opened = await desk.store.read(lambda tx: (tokens.list_tokens(tx), sessions.opened(tx, own, now)))
    return render(
        request,
        "checkup.html",
        title="Health",
        findings=await _findings(desk),
        sessions=[(each, moment(desk, each.created), moment(desk, each.seen)) for each in opened],
        tokens=[(each, moment(desk, each.created), moment(desk, each.used) if each.used else None) for each in kept],
        doors=DOORS,
        address=f"{request.url.scheme}://{request.url.netloc}",
        done=DONE.get(request.query_params.get("done", "")),
    )


async def _findings(desk: Desk) -> "list[Finding]":
    from deskhand.setup.doctor import checkup

    return sorted(await checkup(desk), key=lambda finding: _WORST_FIRST.index(finding.state))


async def _end(request: Request, form: FormData) -> Response:
    desk: Desk = request.app.state.desk
    name = _text(form, "session")
    await desk.store.write(lambda tx: sessions.end_named(tx, name))
    await desk.record("person", "end_session", name[:12], {}, None, 0)
    return RedirectResponse("/checkup?done=ended", 303)


async def _end_others(request: Request, form: FormData) -> Response:
    del form
    desk: Desk = request.app.state.desk
    own = request.state.session
    ended = await desk.store.write(lambda tx: sessions.end_others(tx, own))
    await desk.record("person", "end_session", "all others", {"ended": ended}, None, 0)
    return RedirectResponse("/checkup?done=others", 303)


async def _revoke(request: Request, form: FormData) -> Response:
    desk: Desk = request.app.state.desk
    name = _text(form, "name")
    await desk.store.write(lambda tx: tokens.revoke(tx, name))
    await desk.record("person", "revoke_token", name, {}, None, 0)
    return RedirectResponse("/checkup?done=revoked", 303)


def _text(form: FormData, name: str) -> str:
    given = form.get(name)
    if not isinstance(given, str) or not given:
        raise InvalidInput(f"the form names no {name}", hint="reload the page and try again")
    return given
