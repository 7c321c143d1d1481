"""Others on this machine who only take up room: the desk answers all the same."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate.actions import SendEmail
from tests.home import Home
from tests.requirements import requirement
from tests.resident.test_up import start

CROWD = 1100
SILENCES = (
    b"",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    b"POST /enter HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000\r\n\r\npassword=",
    b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
)
"""What each says before it falls silent: nothing, half a head, half a body, one whole request."""


@contextmanager
def crowd(address: str, says: bytes) -> Iterator[None]:
    """So many connections of which nobody ever finishes what it begins."""
    host, _, port = address.removeprefix("http://").partition(":")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(CROWD):
            each = opened.enter_context(
                socket.create_connection((host, int(port)), timeout=20)
            )
            with suppress(ConnectionError):  # it has lost its place already
                each.sendall(says)
        yield


@requirement("up:crowd")
@pytest.mark.anyio
async def test_under_heavy_requests_and_a_silent_crowd_health_answers_within_a_second(
    home: Home, tmp_path: Path, scale: int
) -> None:
    own = home.environment | {"DESKHAND_ADDRESS": "me@example.com"}
    desk = Desk(load(own).settings)
    for number in range(2 * scale):
        heavy = SendEmail(
            to=f"friend{number}@example.org", subject="Much", body="ä€𝄞\u200d" * 50_000
        )
        await desk.gate.propose(heavy, "email_mcp")
    desk.close()
    up = start(tmp_path, own, "--port", "0")
    try:
        for says in SILENCES:
            with (
                crowd(up.address, says),
                httpx2.Client(base_url=up.address, timeout=60) as http,
            ):
                assert min(seconds_of_health(http) for _ in range(3)) < 1
                assert http.get("/enter").status_code == 200
        # There is no proxy before a desk: nobody's header says by which scheme it was asked.
        claimed = {
            "Origin": up.address,
            "X-Forwarded-Proto": "https",
            "X-Forwarded-For": "10.0.0.1",
        }
        entry = httpx2.post(
            f"{up.address}/enter", headers=claimed, data={"password": "x"}, timeout=60
        )
        assert entry.status_code == 401
    finally:
        up.close()


def seconds_of_health(http: httpx2.Client) -> float:
    """How long the desk takes to answer; of a few answers, the quickest says what the desk itself needs."""
    began = time.perf_counter()
    assert http.get("/health").status_code == 200
    return time.perf_counter() - began
