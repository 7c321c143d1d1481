"""Judges that connect by OAuth to a running desk: each prints where the person shall go, and waits for the answer."""

import json
import re
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path

import httpx2

from tests.judges.node import CONFORMANCE, INSPECTOR, NODE
from tests.judges.test_conformance import statuses
from tests.resident.test_up import Running
from tests.web.test_oauth import FIELD

_ASKED = re.compile(r"https?://\S+/oauth/authorize\?[^\s\"']+")


@contextmanager
def person_at(desk: Running) -> Iterator[httpx2.Client]:
    """A browser that signed in by a link from the terminal."""
    told = json.loads(desk.command("link", "--json").stdout)
    with httpx2.Client(base_url=told["address"], timeout=60) as browser:
        assert browser.get(told["link"]).status_code == 303
        yield browser


def say_yes(browser: httpx2.Client, asked: str) -> str:
    """Connect whoever asks; where the browser is sent then."""
    page = browser.get(asked)
    found = [(name, unescape(value)) for _, name, value in FIELD.findall(page.text)]
    fields = dict(found) | {
        "allow": [value for name, value in found if name == "allow"],
        "answer": "allow",
    }
    return browser.post("/oauth/authorize", data=fields).headers["location"]


def run_judge(browser: httpx2.Client, home: Path, *command: str | Path) -> tuple[int, str]:
    """How the judge ended and what it said, when the person did what it asked for."""
    # The Inspector asks nobody who sits at no terminal, unless it may open a browser; there is none in this PATH.
    environment = {
        "PATH": str(NODE.parent),
        "HOME": str(home),
        "MCP_AUTO_OPEN_ENABLED": "true",
    }
    said = []
    with subprocess.Popen(
        [NODE, *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as judge:
        assert judge.stdout is not None
        for line in judge.stdout:
            said.append(line)
            if asked := _ASKED.search(line):
                httpx2.get(say_yes(browser, asked[0]), timeout=60)
    return judge.returncode, "".join(said)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def inspect(
    browser: httpx2.Client, desk: Running, home: Path, era: str
) -> tuple[bool, str]:
    """Whether the Inspector connects by OAuth and lists the tools."""
    back = f"http://127.0.0.1:{free_port()}/oauth/callback"
    wanted = (
        "--protocol-era",
        era,
        "--method",
        "tools/list",
        "--strict",
        "--format",
        "json",
        "--callback-url",
        back,
    )
    code, said = run_judge(
        browser,
        home,
        INSPECTOR,
        "--cli",
        f"{desk.address}/mcp",
        "--transport",
        "http",
        *wanted,
    )
    return code == 0 and "pending_actions" in said, said


def judge_server(browser: httpx2.Client, desk: Running, home: Path) -> tuple[bool, str]:
    """Whether, in each of its two scenarios, the conformance suite is content with the desk as authorization server."""
    port = free_port()
    about = {
        "client_name": "conformance",
        "redirect_uris": [f"http://127.0.0.1:{port}/callback"],
    }
    client = browser.post("/oauth/register", json=about).json()["client_id"]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        named = (
            "--url",
            desk.address,
            "--client-id",
            client,
            "--resource",
            f"{desk.address}/mcp",
            "--port",
            str(port),
        )
        wanted = ("authorization", *named, "--output-dir", place)
        _, said = run_judge(browser, home, CONFORMANCE, *wanted)
        found = statuses(place)
    return list(found.values()) == [{"SUCCESS"}, {"SUCCESS"}], f"{found}\n{said}"
