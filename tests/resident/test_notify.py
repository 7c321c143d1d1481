import json
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue

import anyio
import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.config import load
from deskhand.errors import BadConfig
from deskhand.resident import notify
from deskhand.servers.email import email_server
from deskhand.setup.messenger import messenger
from tests.home import Home
from tests.requirements import requirement

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
PACE = notify.Pace(gather=0.05, quiet=0.3, glance=0.05, rest=0.1)


class Post:
    """Whoever gets Apprise's json:// messages."""

    def __init__(self) -> None:
        self.messages: Queue[dict[str, str]] = Queue()
        self.refuse = False
        post = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["content-length"]))
                post.messages.put(json.loads(text))
                self.send_response(500 if post.refuse else 200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self.server.server_address[1]}/"

    async def next(self) -> dict[str, str]:
        return await anyio.to_thread.run_sync(lambda: self.messages.get(timeout=20))


@contextmanager
def listening() -> Iterator[Post]:
    post = Post()
    thread = threading.Thread(target=post.server.serve_forever)
    thread.start()
    try:
        yield post
    finally:
        post.server.shutdown()
        thread.join()
        post.server.server_close()


@asynccontextmanager
async def notified(home: Home, urls: str, waiting: int) -> AsyncIterator[Desk]:
    more = {"DESKHAND_ADDRESS": "me@example.com", "DESKHAND_NOTIFY": urls}
    desk = Desk(load(home.environment | more).settings)
    try:
        for number in range(waiting):
            await propose(desk, number)
        async with anyio.create_task_group() as group:
            group.start_soon(
                notify.run, desk, "http://127.0.0.1:8642/enter/a-secret-link", PACE
            )
            yield desk
            group.cancel_scope.cancel()
    finally:
        desk.close()


async def propose(desk: Desk, number: int) -> None:
    mail = {
        "to": f"friend{number}@example.org",
        "subject": "a private subject",
        "body": "a private body",
    }
    async with Client(email_server(desk)) as client:
        await client.call_tool("send_email", mail)


@pytest.mark.anyio
@requirement("notify:links")
async def test_a_message_says_how_many_wait_and_where_and_nothing_else(home: Home) -> None:
    with listening() as post:
        async with notified(home, post.url, waiting=3) as desk:
            first = await post.next()
            await propose(desk, 4)
            second = await post.next()

        assert (first["title"], first["message"]) == (
            "Deskhand: 3 things wait",
            "3 things wait for your answer.\nhttp://127.0.0.1:8642/",
        )
        assert second["title"] == "Deskhand: 4 things wait"
        assert post.messages.empty()
        told = json.dumps([first, second])
        assert [
            word for word in ("private", "friend", "secret-link", "approve") if word in told
        ] == []


@pytest.mark.anyio
@requirement("notify:links")
async def test_a_message_that_was_refused_is_sent_again_later(home: Home) -> None:
    with listening() as post:
        post.refuse = True
        async with notified(home, post.url, waiting=1):
            refused = await post.next()
            post.refuse = False
            again = await post.next()

        assert refused["title"] == again["title"]


@requirement("notify:missing")
def test_a_bad_address_and_a_missing_apprise_are_said_without_the_secret(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = load(
        home.environment | {"DESKHAND_NOTIFY": "nonsense://hunter2"}
    ).settings.notify

    with pytest.raises(BadConfig) as bad:
        messenger(urls)
    # As on a machine where the extra was not installed.
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(BadConfig) as missing:
        messenger(urls)

    assert "hunter2" not in bad.value.message
    assert missing.value.hint == "pip install 'deskhand[notify]'"
