"""Agents: who is there, what they write to each other, and the person's own word among them.

The person writes as `person`, under no agent's name. What agents write is data: shown as it is, never acted on.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
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
from deskhand.errors import InvalidInput, NotFound
from deskhand.web.entry import effect, page
from deskhand.web.presence import moment, present
from deskhand.web.render import render

THREADS = 100
MESSAGES = 200
DONE = {"sent": "The message was stored for the agent.", "read": "Your messages are marked as read."}


@dataclass(frozen=True, slots=True)
class Agent:
    name: str
    here: bool
    """Has a window in the tmux session around the desk."""
    status: str | None
    seen: str | None


@dataclass(frozen=True, slots=True)
class Thread:
    """What two of them wrote to each other."""

    one: str
    other: str
    count: int
    unread: int
    last: AgentMessage


def routes() -> list[Route]:
    return [
        page("/agents", present("Agents", _overview)),
        page("/agents/thread", present("Agents", _thread)),
        effect("/agents/send", _send),
        effect("/agents/read", _read),
    ]


async def _overview(request: Request) -> Response:
    desk: Desk = request.app.state.desk
    post = desk.person_post
    try:
        messages = await to_thread.run_sync(lambda: _messages(post))
        agents = await to_thread.run_sync(lambda: _agents(desk, post))
    except NotFound as failure:
        return render(request, "absent.html", status=503, title="Agents", failure=failure)
    threads = _threads(messages)
    me = post.me()
    return render(
        request,
        "agents.html",
        title="Agents",
        me=me,
        agents=agents,
        threads=[(thread, _when(desk, thread.last)) for thread in threads[:THREADS]],
        more=len(threads) - THREADS,
        unread=sum(message.to == me and not message.read for message in messages),
        done=DONE.get(request.query_params.get("done", "")),
    )


async def _thread(request: Request) -> Response:
    desk: Desk = request.app.state.desk
    post = desk.person_post
    pair = [request.query_params.get("one", ""), request.query_params.get("other", "")]
    messages = await to_thread.run_sync(lambda: _messages(post))
    between = [each for each in messages if sorted((each.sender, each.to)) == sorted(pair)]
    return render(
        request,
        "agents_thread.html",
        title=" and ".join(pair),
        me=post.me(),
        pair=pair,
        others=[name for name in dict.fromkeys(pair) if name != post.me()],
        messages=[(each, _when(desk, each)) for each in between[-MESSAGES:]],
        earlier=max(0, len(between) - MESSAGES),
        done=DONE.get(request.query_params.get("done", "")),
    )


async def _send(request: Request, form: FormData) -> Response:
    desk: Desk = request.app.state.desk
    to, text = form.get("to"), form.get("text")
    if not isinstance(to, str) or not isinstance(text, str) or not text.strip():
        raise InvalidInput("a message needs somebody to go to and a text", hint="go back and fill in both")
    post, words = desk.person_post, text.replace("\r\n", "\n")

    def send() -> str:
        wrote = {message.sender for message in post.mailroom.messages(post.me())}
        return post.send(to, words, known=wrote)

    sent = await to_thread.run_sync(send)
    await desk.record("person", "send_message", to, {"id": sent}, None, 0)
    return RedirectResponse(f"/agents/thread?{urlencode({'one': post.me(), 'other': to, 'done': 'sent'})}", 303)


async def _read(request: Request, form: FormData) -> Response:
    del form
    desk: Desk = request.app.state.desk

    def read_all() -> None:
        while desk.person_post.receive() is not None:
            pass

    await to_thread.run_sync(read_all)
    return RedirectResponse("/agents?done=read", 303)


def _messages(post: Post) -> list[AgentMessage]:
    """Everything in all mailboxes, oldest first."""
    room = post.mailroom
    found = (replace(message, to=name) for name in room.mailboxes() for message in room.messages(name))
    return sorted(found, key=lambda message: (instant(message.created_at) or 0, message.id))


def _threads(messages: Iterable[AgentMessage]) -> list[Thread]:
    """By pair, the liveliest first."""
    found: dict[tuple[str, str], Thread] = {}
    for message in messages:
        one, other = sorted((message.sender, message.to))
        known = found.get((one, other))
        count, unread = (known.count, known.unread) if known else (0, 0)
        found[one, other] = Thread(one, other, count + 1, unread + (not message.read), message)
    return sorted(found.values(), key=lambda thread: instant(thread.last.created_at) or 0, reverse=True)


def _agents(desk: Desk, post: Post) -> list[Agent]:
    room = post.mailroom
    try:
        here = {window.address for window in post.roster.windows()}
    except tmux.TmuxFailed:
        here = set()  # the session that the desk was started in has ended
    entries = {entry.name: entry for entry in room.states()}
    seen = room.registrations()
    for name, entry in entries.items():
        latest = max(instant(entry.updated_at) or 0, entry.last_read_at * 1_000_000)
        seen[name] = max(seen.get(name, 0), latest)
    names = sorted((here | seen.keys() | set(room.mailboxes())) - {post.me()})
    return [
        Agent(
            name,
            name in here,
            entries[name].status if name in entries else None,
            _shown(desk, seen[name]) if seen.get(name) else None,
        )
        for name in names
    ]


def _when(desk: Desk, message: AgentMessage) -> str:
    at = instant(message.created_at)
    return _shown(desk, at) if at else "at no known time"


def _shown(desk: Desk, nanoseconds: int) -> str:
    try:
        return moment(desk, datetime.fromtimestamp(nanoseconds / 1_000_000_000, UTC))
    except (ValueError, OverflowError, OSError):
        return "at no known time"  # the files are anybody's, and so are the numbers in them
