"""Agents: who is there, what they write to each other, and what the person writes to them.

The person writes as `person`, under no agent's name. What agents write is data: shown as it is, never acted on.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from anyio import to_thread
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deskhand.agents import tmux
from deskhand.agents.mail import AgentMessage, instant
from deskhand.agents.post import Post
from deskhand.app import Desk
from deskhand.errors import Denied, InvalidInput, NotFound
from deskhand.web.entry import effect, page
from deskhand.web.proving import demand_person
from deskhand.web.render import render
from deskhand.web.request import desk_of, done_in, text_in
from deskhand.web.times import shown_time
from deskhand.web.unavailable import or_unavailable

THREADS = 100
MESSAGES = 200
DONE = {
    "sent": "The message was stored for the agent.",
    "read": "Your messages are marked as read.",
}


@dataclass(frozen=True, slots=True)
class Agent:
    name: str
    here: bool
    """Has a window in the tmux session around the desk."""
    status: str | None
    seen: str | None


@dataclass(slots=True)
class Thread:
    """What two of them wrote to each other."""

    one: str
    other: str
    last: AgentMessage
    count: int = 0
    unread: int = 0


def routes() -> list[Route]:
    return [
        page("/agents", or_unavailable("Agents", _overview)),
        page("/agents/thread", or_unavailable("Agents", _thread)),
        effect("/agents/send", _send),
        effect("/agents/read", _read),
    ]


async def _overview(request: Request) -> Response:
    return await _show(request)


async def _show(request: Request, **refused: Any) -> Response:
    """Who is there and what they wrote; with what the person wrote, where that was refused."""
    desk = desk_of(request)
    post = desk.person_post
    try:
        messages = await to_thread.run_sync(_messages, post)
        agents = await to_thread.run_sync(_agents, desk, post)
    except NotFound as failure:
        return await render(
            request, "absent.html", status=503, title="Agents", failure=failure
        )
    threads = _threads(messages)
    me = post.me()
    known: dict[str, Any] = {
        "me": me,
        "agents": agents,
        "threads": [
            (thread, _when(desk, instant(thread.last.created_at)))
            for thread in threads[:THREADS]
        ],
        "more": len(threads) - THREADS,
        "unread": sum(message.to == me and not message.read for message in messages),
        "done": done_in(request, DONE),
        "problem": None,
        "typed": {"to": "", "text": ""},
    }
    return await render(request, "agents.html", title="Agents", **known | refused)


async def _thread(request: Request) -> Response:
    desk = desk_of(request)
    post = desk.person_post
    me = post.me()
    pair = [request.query_params.get("one", ""), request.query_params.get("other", "")]
    messages = await to_thread.run_sync(_messages, post)
    between = [each for each in messages if sorted((each.sender, each.to)) == sorted(pair)]
    return await render(
        request,
        "agents_thread.html",
        title=" and ".join("you" if name == me else name for name in pair),
        me=me,
        pair=pair,
        others=[name for name in dict.fromkeys(pair) if name != me],
        messages=[
            (each, _when(desk, instant(each.created_at))) for each in between[-MESSAGES:]
        ],
        earlier=max(0, len(between) - MESSAGES),
        done=done_in(request, DONE),
    )


async def _send(request: Request, form: FormData) -> Response:
    desk = desk_of(request)
    post = desk.person_post
    to = text_in(form, "to")
    text = text_in(form, "text").replace("\r\n", "\n")
    if "to" not in form or not text.strip():
        raise InvalidInput(
            "a message needs somebody to go to and a text", hint="go back and fill in both"
        )

    def send() -> str:
        wrote = {message.sender for message in post.mailroom.messages(post.me())}
        return post.send(to, text, known=wrote)

    try:
        await demand_person(request, form)
    except Denied as refused:
        return await _show(request, problem=refused, typed={"to": to, "text": text})
    sent = await to_thread.run_sync(send)
    await desk.record("person", "send_message", to, {"id": sent})
    thread = urlencode({"one": post.me(), "other": to, "done": "sent"})
    return RedirectResponse(f"/agents/thread?{thread}", 303)


async def _read(request: Request, form: FormData) -> Response:
    del form
    post = desk_of(request).person_post

    def read_all() -> None:
        while post.receive() is not None:
            pass

    await to_thread.run_sync(read_all)
    return RedirectResponse("/agents?done=read", 303)


def _messages(post: Post) -> list[AgentMessage]:
    """Everything in all mailboxes, oldest first."""
    room = post.mailroom
    found = (
        replace(message, to=name)
        for name in room.mailboxes()
        for message in room.messages(name)
    )
    return sorted(found, key=_age)


def _age(message: AgentMessage) -> tuple[int, str]:
    return instant(message.created_at) or 0, message.id


def _threads(messages: Iterable[AgentMessage]) -> list[Thread]:
    """By pair, the one written to last first; `messages` begin with the oldest."""
    found: dict[tuple[str, str], Thread] = {}
    for message in messages:
        one, other = sorted((message.sender, message.to))
        # The pair of the newest message goes to the end.
        thread = found.pop((one, other), None) or Thread(one, other, message)
        thread.last = message
        thread.count += 1
        thread.unread += not message.read
        found[one, other] = thread
    return list(reversed(found.values()))


def _agents(desk: Desk, post: Post) -> list[Agent]:
    room = post.mailroom
    try:
        here = {window.address for window in desk.person_seat.beside_the_desk()}
    except tmux.TmuxFailed:
        here = set()  # the session that the desk was started in has ended
    statuses: dict[str, str | None] = {}
    seen = room.registrations()
    for entry in room.states():
        statuses[entry.name] = entry.status
        latest = max(instant(entry.updated_at) or 0, entry.last_read_at * 1_000_000)
        seen[entry.name] = max(seen.get(entry.name, 0), latest)
    times = {name: _when(desk, at) for name, at in seen.items() if at}
    names = sorted((here | seen.keys() | set(room.mailboxes())) - {post.me()})
    return [
        Agent(name, name in here, statuses.get(name), times.get(name)) for name in names
    ]


def _when(desk: Desk, nanoseconds: int | None) -> str:
    # The files are anybody's, and so are the numbers in them.
    with suppress(ValueError, OverflowError, OSError):
        if nanoseconds:
            return shown_time(
                desk, datetime.fromtimestamp(nanoseconds / 1_000_000_000, UTC)
            )
    return "at no known time"
