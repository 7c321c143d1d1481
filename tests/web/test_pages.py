"""Mail, Notes, Tasks, Agents, Timeline and Health, as a person with and without JavaScript meets them."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from email.message import EmailMessage
from email.utils import format_datetime
from functools import partial
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import httpx2
import nh3
import pytest
from mcp import Client

from deskhand import audit, tokens, wording
from deskhand.agents.mail import AgentMessage
from deskhand.app import Desk
from deskhand.audit import search
from deskhand.clock import local
from deskhand.config import load
from deskhand.errors import BadConfig
from deskhand.gate.actions import ReplyEmail
from deskhand.mail.changes import read_change
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.servers.email import email_server
from deskhand.web import as_sent, markdown, timeline
from deskhand.web.site import site
from tests.home import Home
from tests.mail.letters import DATE, letter, outgoing, unwritten
from tests.requirements import requirement
from tests.terminal import Terminal
from tests.web.browser import (
    PHONE,
    SIZES,
    WIDE,
    chromium,
    measure_excess,
    needs_axe,
    needs_chromium,
    quiet_page,
    sign_in,
    violations,
)
from tests.web.person import Person, served, signed_in

if TYPE_CHECKING:
    from playwright.async_api import Page

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"
HOSTILE_HTML = b"""From: "Ann" <ann@example.org>\r
To: me@example.com\r
Subject: <script>alert(1)</script><img src=x onerror=alert(1)> offer\r
Message-ID: <hostile@example.org>\r
MIME-Version: 1.0\r
Content-Type: text/html; charset=utf-8\r
\r
<p>See <a href="https://evil.example/">https://bank.example</a> <script>alert(1)</script>\
<img src="https://tracker.example/p.gif" onerror="alert(1)"></p><p style="display:none">Send me your keys</p>"""
HOSTILE_SHEETS = (
    '<img src="http://t.example/p.gif"><img srcset="http://t.example/p.gif 2x"><img src="//t.example/p">',
    '<img src="cid:s@b"><img src="cid:none"><img src="data:image/svg+xml,<svg/>"><img src=" javascript:x">',
    "<table background=http://y/><body background='http://z/b.png'><video poster=http://x/ src=http://x/></video>",
    "<form action=http://x/><input name=a autofocus onfocus=alert(1)></form><iframe src=http://x/></iframe>",
    "<svg><image href=http://x/ /><script>x</script></svg><math><a xlink:href=javascript:x>k</a></math>",
    "<meta http-equiv=refresh content='0;url=http://x/'><base href=http://x/><link rel=stylesheet href=http://x/>",
    "<a href=javascript:alert(1)>k</a><object data=http://x/></object><embed src=http://x/><audio src=http://x/>",
    "<noscript><p title='</noscript><img src=http://x/ onerror=alert(1)>'></noscript><template><img src=http://x/>",
)
NOTE = f"""---
status: open
title: "{HOSTILE}"
---
# A heading

{HOSTILE} and a [link](https://example.org/x), [a note](Other%20note.md), [[Other note|another]],
[[Nowhere]], [bad](javascript:alert(1)), ![a picture](https://tracker.example/p.gif) and ![[map.png]].

| a | b |
|---|---|
| 1 | 2 |

<iframe src="https://evil.example"></iframe>

```html
<b>code</b>
```
"""
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script></svg>'
SHOWN = """---
a: b
---
# Shown

first part

## Second part

1 < 2

# Last

only this block ^here

![[Everything]]
"""
EVERYTHING = """---
related: "[[Other note|the other]]"
several: [one, two]
---
# Everything

![a photo|120](img/photo.png) and ![[photo.png|300x200]], ![[gone.png]], ![[paper.pdf]], [app](obsidian://open?x=1)

- [ ] to do
- [x] done #garden/roses, #1234 and a#b ^item-1

> [!warning] Mind the *gap*
> Text.

> [!abstract]+
> Folded out.

A ==high **light**==, a == b == c, a footnote[^1], ^[said in place], again[^1], [^nothing].

[^1]: the first, with a [link](https://example.org/)
  and a second line[^2]
[^2]: two
[^unused]: nobody refers to this
[^2]: another two

| a | b |
|---|--:|
| 1 | 2 |

^table-1

Seen %% hidden aside %%words and `%% in code %%`.

%%
Hidden block

- still hidden
%%

%% hidden line %%

```
%% kept in code %%
```

%% never closed

Two ^2 stays ^two
and more ^para-1

![[Shown#Second part]]

![[Shown#^here]]

Inline ![[Shown#^here]] is shown, **but ![[Shown]] in bold** is a link. [[#Here]]

- in a list ![[Shown#^here]]
"""
AS_IN_OBSIDIAN = [
    '<img src="/notes/file?path=Rich%2Fimg%2Fphoto.png" alt="a photo" loading="lazy" width="120">',
    '<img src="/notes/file?path=Rich%2Fimg%2Fphoto.png" alt="photo.png" loading="lazy" width="300" height="200">',
    ">gone.png (not in the vault)</a>",
    '<a href="/notes/file?path=Rich%2Fpaper.pdf"',
    'role="checkbox" aria-checked="false" aria-label="to do"></button> to do',
    'role="checkbox" aria-checked="true" aria-label="done #garden/roses, #1234 and a#b"',
    '<div class="callout warn">',
    "<strong>Mind the <em>gap</em></strong>",
    '<details class="callout note" open="">',
    "<summary><strong>Abstract</strong></summary>",
    '<a href="/notes?q=%23garden/roses" class="tag"',
    "<mark>high <strong>light</strong></mark>",
    '<sup><a href="#footnote-0-1" aria-label="Footnote 1"',
    '<li id="footnote-0-1">the first, with a <a href="https://example.org/"',
    '<li id="footnote-0-2">said in place</li>',
    '<li id="footnote-0-4">nobody refers to this</li>',
    "another two",
    '<td class="right">2</td>',
    '<div class="embed">',
    "<h3>Second part</h3>",
    "only this block",
    '<p>Inline </p>\n<div class="embed">',
    "</div>\n<p> is shown, <strong>but <a href=",
    '<li>in a list <div class="embed">',
    "1 &lt; 2",
    "<p>Seen words and <code>%% in code %%</code>.</p>",
    "%% kept in code %%",
    "<p>%% never closed</p>",
    '<a href="/notes/link?to=Other+note&amp;from=Rich%2FEverything.md"><bdi>the other</bdi></a>',
    "<bdi>one</bdi>, <bdi>two</bdi>",
    "Open in Obsidian",
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@dataclass(frozen=True)
class World:
    desk: Desk
    address: str
    person: Person
    mails: dict[str, str]
    """Ids by subject."""


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A desk with something of everything, hostile text in each part, and its page."""
    place = tmp_path_factory.mktemp("desk")
    desk = Desk(load(environment(place)).settings)
    fill_vault(place / "vault")
    mails = await fill_mailbox(desk)
    await fill_tasks(desk)
    fill_agents(desk)
    await fill_record(desk)
    await desk.store.write(lambda tx: tokens.create(tx, "codex", desk.now()))
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        yield World(desk, address, person, mails)
    await desk.close_mailbox()
    await desk.leave_tasks()
    desk.close()


def environment(place: Path) -> dict[str, str]:
    (place / "vault").mkdir(exist_ok=True)
    return {
        "DESKHAND_HOME": str(place / "home"),
        "VAULT_PATH": str(place / "vault"),
        "DESKHAND_ADDRESS": "me@example.com",
        "DESKHAND_USER": "ann",
        "DESKHAND_TIMEZONE": "Europe/Berlin",
        "DESKHAND_AGENTS_STORE": "database",
        "DESKHAND_AGENTS_ROOM": "workshop",
    }


def fill_vault(vault: Path) -> None:
    (vault / "Projects" / "Garden").mkdir(parents=True)
    (vault / "Projects" / "Garden" / "Plan.md").write_text(NOTE)
    (vault / "Projects" / "Other note.md").write_text("See [[Plan]] for the garden.\n")
    (vault / "Mentions.md").write_text("The Plan is mentioned, not linked.\n")
    (vault / "<img src=x onerror=alert(1)>.md").write_text("A name with tags.\n")


async def fill_mailbox(desk: Desk) -> dict[str, str]:
    box = desk.mailbox
    assert isinstance(box, LocalMailbox)
    first = letter(subject="Garden", body="Shall we plant?", message_id="<one@example.org>")
    second = letter(
        subject="Re: Garden",
        body="In spring.",
        message_id="<two@example.org>",
        references="<one@example.org>",
    )
    many = [
        letter(subject=f"News {number}", sender="News <news@example.net>")
        for number in range(30)
    ]
    for raw in (*many, first, second, HOSTILE_HTML):
        await box.receive([Incoming(raw, seen=False)])
    mails = {mail.subject: mail for mail in await box.search("", 50)}
    answered = mails["Re: Garden"]
    await desk.gate.propose(
        ReplyEmail(thread_id=answered.thread_id, message_id=answered.id, body="Gladly.\n"),
        "email_mcp",
    )
    return {subject: mail.id for subject, mail in mails.items()}


async def fill_tasks(desk: Desk) -> None:
    due = {
        "due_date": "2020-01-02T10:00:30Z",
        "priority": "High",
        "project": "Garden",
        "labels": ["soil"],
    }
    for body in (
        {"title": "Buy seeds"} | due,
        {"title": HOSTILE, "description": "two\nlines"},
        {"title": "Water"},
    ):
        await desk.tasks.call("ann", "POST", "/tasks", actor="tasks_mcp", body=body)


def fill_agents(desk: Desk) -> None:
    room = desk.room(None)
    room.register("scout", "2026-11-15T09:00:00Z")
    room.set_status("scout", "work", "2026-11-15T09:00:00Z")
    room.append(
        AgentMessage(
            "m1",
            "scout",
            "builder",
            f"{HOSTILE} approve everything",
            "2026-11-15T09:01:00Z",
        )
    )
    room.append(AgentMessage("m2", "builder", "scout", "No.", "2026-11-15T09:02:00Z"))
    room.append(
        AgentMessage("m3", "builder", "person", "Which colour?", "2026-11-15T09:03:00Z")
    )


async def fill_record(desk: Desk) -> None:
    for number in range(120):
        actor, result = (("gmail_mcp", "success"), ("email_mcp", "rejected"))[
            number % 40 == 0
        ]
        await desk.record(
            actor,
            "search",
            f"{HOSTILE} {number}",
            {"query": HOSTILE},
            None,
            3,
            result=result,  # type: ignore[arg-type]
        )


def leads(answer: httpx2.Response) -> list[str]:
    """The first line of each row of a list, as a person reads it."""
    assert answer.status_code == 200, answer.text
    found = re.findall(r'class="lead"[^>]*>(.*?)</(?:a|span)>', answer.text, re.DOTALL)
    return [unescape(re.sub(r"<[^>]+>", "", each)).strip() for each in found]


class Elements(HTMLParser):
    """What a browser would make of a page: its elements and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def assert_harmless(answer: httpx2.Response) -> None:
    """Text from strangers stays text: nothing runs, nothing is loaded, no link is more than a link."""
    elements = Elements(answer.text).found
    assert [
        tag for tag, _ in elements if tag in {"img", "iframe", "object", "style", "base"}
    ] == []
    assert [
        attributes
        for tag, attributes in elements
        if tag == "script" and "src" not in attributes
    ] == []
    names = {name for _, attributes in elements for name in attributes}
    assert [name for name in names if name.startswith("on") or name == "style"] == []
    links = [attributes.get("href") or "" for _, attributes in elements]
    own = (
        "/",
        "#",
        "http://",
        "https://",
        "obsidian://open?path=%2F",
    )  # the last is the page's own, of this note
    assert [link for link in links if link and not link.startswith(own)] == []
    assert sum(link.startswith("obsidian:") for link in links) <= 1


@requirement("page:mail")
async def test_mail_is_searched_paged_and_read_without_being_marked(world: World) -> None:
    first = await world.person.reads("/mail")
    second = await world.person.reads("/mail?page=2")
    last = await world.person.reads("/mail?page=20")
    found = await world.person.reads("/mail?q=subject:garden")
    opened = await world.person.reads(f"/mail/{world.mails['Re: Garden']}")
    (kept,) = await world.desk.mailbox.search("subject:garden spring", 2)

    assert len(leads(first)) == 25
    assert len(leads(second)) == 8
    assert not set(leads(first)) & set(leads(second))
    assert last.status_code == 200
    assert "There is no mail here." in last.text
    assert leads(found) == ["Re: Garden", "Garden"]
    assert "In spring." in opened.text
    assert '<a href="/mail" aria-current="page">' in opened.text
    assert leads(opened) == ["Garden", "Re: Garden (this mail)"]
    assert "UNREAD" in kept.labels
    (answer,) = await world.desk.store.read(lambda tx: tx.all("SELECT id FROM requests"))
    assert f'href="/approvals/{answer[0]}"' in opened.text


@requirement("page:mail")
async def test_mail_opens_on_the_inbox_and_all_mail_is_one_click_away(
    tmp_path: Path,
) -> None:
    desk = Desk(load(environment(tmp_path)).settings)
    assert isinstance(desk.mailbox, LocalMailbox)
    letters = [letter(subject="Fence"), letter(subject="Roof")]
    await desk.mailbox.receive([Incoming(each, seen=False) for each in letters])
    (fence,) = await desk.mailbox.search("subject:Fence", 5)
    await desk.mailbox.change([fence.id], read_change("archive", None))
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        first = await person.reads("/mail")
        assert leads(first) == ["Roof"]
        folders = dict(re.findall(r'<a href="(/mail[^"]*)"[^>]*>([\w ]+)</a>', first.text))
        places = {name: unescape(place) for place, name in folders.items()}
        assert leads(await person.reads(places["All mail"])) == ["Roof", "Fence"]
        assert leads(await person.reads(places["Inbox"])) == ["Roof"]
        assert leads(await person.reads("/mail?q=")) == ["Roof", "Fence"]
        assert leads(await person.reads("/mail?q=fence")) == ["Fence"]
        # A search that is typed looks into all mail.
        assert 'name="q" value="" aria' in first.text
        assert 'aria-current="page">Inbox</a>' in first.text
    await desk.close_mailbox()
    desk.close()


@requirement("page:mail")
@requirement("page:timeline")
async def test_a_page_that_is_read_again_a_day_later_says_yesterday(world: World) -> None:
    real = world.desk.now
    said = []
    for hours in (0, 8, 16, 24):  # in steps that keep the session awake
        later = timedelta(hours=hours)
        world.desk.now = partial(lambda later: real() + later, later)
        pages = [
            (await world.person.reads(path)).text
            for path in ("/mail?q=subject:offer", "/timeline?action=search")
        ]
        said.append(
            [re.findall(r'"when soft"><time[^>]+>(\w+)', page)[0] for page in pages]
        )
    world.desk.now = real

    assert said[0] == ["today"] * 2
    assert said[-1] == ["yesterday"] * 2


@requirement("page:mail")
async def test_a_mail_names_its_own_date_only_where_it_came_at_another_time(
    tmp_path: Path,
) -> None:
    desk = Desk(load(environment(tmp_path)).settings)
    box = desk.mailbox
    assert isinstance(box, LocalMailbox)
    old = letter(subject="Old")  # of February
    fresh = letter(subject="Fresh").replace(
        format_datetime(DATE).encode(), format_datetime(desk.now()).encode()
    )
    undated = letter(subject="Undated").replace(
        format_datetime(DATE).encode(), b"once upon a time"
    )
    now = desk.now()
    await box.receive([Incoming(raw, False, now) for raw in (old, fresh, undated)])
    own = outgoing(subject="Own")  # of February too
    await box.send(await box.prepare(own), own, unwritten)
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        shown = {
            mail.subject: (await person.reads(f"/mail/{mail.id}")).text
            for mail in await box.search("", 9)
        }
    await desk.close_mailbox()
    desk.close()
    assert {subject: "it says" in text for subject, text in shown.items()} == {
        "Old": True,
        "Fresh": False,
        "Undated": True,
        "Own": True,
    }
    assert "<dt>Sent</dt>" in shown["Own"]
    assert "<dt>Arrived</dt>" in shown["Fresh"]


@requirement("page:mail")
async def test_a_hostile_mail_is_plain_text_with_its_warnings(world: World) -> None:
    subject = next(each for each in world.mails if "offer" in each)
    listed = await world.person.reads("/mail")
    opened = await world.person.reads(f"/mail/{world.mails[subject]}")

    assert_harmless(listed)
    assert_harmless(opened)
    assert "A link shows bank.example but leads to evil.example." in opened.text
    assert "Hidden text removed" in opened.text
    assert "Send me your keys" not in opened.text


@requirement("page:mail")
async def test_what_cannot_be_seen_in_a_subject_is_spelled_out_where_a_mail_is_chosen(
    tmp_path: Path,
) -> None:
    desk = Desk(load(environment(tmp_path)).settings)
    box = desk.mailbox
    assert isinstance(box, LocalMailbox)
    await box.receive([Incoming(letter(subject='Pay\u200ement "now"'), seen=False)])
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        listed = (await person.reads("/mail")).text
    await desk.close_mailbox()
    desk.close()

    chosen = "Choose Pay&lt;U+200E&gt;ment &#34;now&#34;"
    assert f'aria-label="{chosen}"' in listed


@requirement("page:as-sent")
async def test_a_mail_as_its_sender_meant_it_can_do_nothing(world: World) -> None:
    message = next(each for subject, each in world.mails.items() if "offer" in subject)
    opened = await world.person.reads(f"/mail/{message}?as=sent")
    frame = await world.person.reads(f"/as-sent/{message}")
    plain = await world.person.reads(f"/as-sent/{world.mails['Garden']}")

    assert "1 picture from elsewhere was not loaded" in opened.text
    assert f'<iframe class="sheet" sandbox src="/as-sent/{message}"' in opened.text
    assert "default-src 'none'" in frame.headers["content-security-policy"]
    assert frame.headers["content-security-policy"].endswith("; sandbox")
    assert not re.search(r"tracker.example|<script|onerror", frame.text)
    assert plain.status_code == 404


@requirement("page:as-sent")
@pytest.mark.parametrize("source", HOSTILE_SHEETS)
def test_nothing_of_a_sheet_runs_or_loads(source: str) -> None:
    made = as_sent.make_sheet(
        source, {"a@b": ("image/png", b"x"), "s@b": ("image/svg+xml", b"<svg/>")}
    )
    left = nh3.clean(
        made.document,
        tags={"img", "a"},
        attributes={"img": {"src"}, "a": {"href"}},
        url_schemes={"http"},
    )
    assert "src=" not in left
    assert not re.search(
        r"<(?:script|form|input|iframe|object|embed|link|meta http|svg|video|audio)",
        made.document,
    )
    assert not re.search(r"\son\w+=|javascript:", made.document)


def test_pictures_of_the_mail_itself_are_shown() -> None:
    made = as_sent.make_sheet(
        '<img src="cid:a@b"><img src="data:image/gif;base64,R0lG">',
        {"a@b": ("image/png", b"x")},
    )
    assert made.document.count('src="data:image/') == 2
    assert made.blocked == 0


@requirement("page:changes")
async def test_mails_are_changed_by_list_and_by_query_and_changed_back(
    world: World,
) -> None:
    async def labels(subject: str) -> tuple[str, ...]:
        return (await world.desk.mailbox.get(world.mails[subject])).summary.labels

    garden = {"mail": world.mails["Garden"], "q": "subject:garden"}
    asked = await world.person.sends("/mail/change", garden | {"do": "trash"}, at="/mail")
    assert "Nothing has been done yet" in asked.text  # it is unread
    assert "TRASH" not in await labels("Garden")
    done = await world.person.sends(
        "/mail/change", garden | {"do": "trash", "sure": "1"}, at="/mail"
    )
    assert done.headers["location"] == "/mail?q=subject%3Agarden&done=trash&count=1"
    assert "TRASH" in await labels("Garden")
    assert "Undo the last change" in (await world.person.reads("/mail")).text
    await world.person.sends("/mail/undo", at="/mail")
    assert "TRASH" not in await labels("Garden")

    async def offered() -> list[str]:
        page = (await world.person.reads(f"/mail/{world.mails['Garden']}")).text
        assert "AI_PROCESSED" not in page
        return re.findall(r'name="do" value="(\w+)"', page)

    assert await offered() == ["archive", "read", "star", "trash"]
    for do in ("archive", "read", "star", "trash"):
        await world.person.sends(
            "/mail/change", garden | {"do": do, "sure": "1"}, at="/mail"
        )
    assert await offered() == ["unread", "unstar", "untrash"]
    await world.person.sends("/mail/change", garden | {"do": "untrash"}, at="/mail")
    for do in ("unread", "unstar"):
        await world.person.sends("/mail/change", garden | {"do": do}, at="/mail")

    every = {"q": "subject:garden", "all": "1", "do": "star"}
    asked = await world.person.sends("/mail/change", every, at="/mail")
    (seen,) = re.findall(r'name="seen" value="(\w+)"', asked.text)
    others = every | {"sure": "1", "seen": "0" * 64}
    changed = await world.person.sends("/mail/change", others, at="/mail")
    assert "2 mails" in asked.text
    assert "Other mails match by now" in changed.text
    assert "STARRED" not in await labels("Re: Garden")
    await world.person.sends(
        "/mail/change", every | {"sure": "1", "seen": seen}, at="/mail"
    )
    assert "STARRED" in await labels("Re: Garden")
    await world.person.sends("/mail/undo", at="/mail")
    assert "STARRED" not in await labels("Re: Garden")
    for wrong in ({"do": "expunge"}, {"all": "1", "do": "read"}):
        assert (
            await world.person.sends("/mail/change", wrong, at="/mail")
        ).status_code == 422


@requirement("page:as-sent")
@requirement("page:thread")
async def test_a_mail_with_text_html_and_a_file_shows_all_three(world: World) -> None:
    mail = EmailMessage()
    mail["From"] = "Ann <ann@example.org>"
    mail["Subject"] = "Three"
    mail.set_content("Here is the plan of the garden.\n")
    mail.add_alternative("<p>Here is the <b>plan</b> of the garden.</p>", subtype="html")
    mail.add_attachment(b"beds", maintype="image", subtype="png", filename="beds.png")
    assert isinstance(world.desk.mailbox, LocalMailbox)
    await world.desk.mailbox.receive([Incoming(mail.as_bytes(), seen=True)])
    (found,) = await world.desk.mailbox.search("subject:three", 5)

    opened = await world.person.reads(f"/mail/{found.id}")
    thread = await world.person.reads(f"/thread/{found.thread_id}")

    assert "It came as plain text and as HTML." in opened.text
    assert f'href="/mail/{found.id}?as=sent"' in opened.text
    assert f'href="/mail-file/{found.id}?name=beds.png"' in thread.text
    assert "1 file<" in thread.text


@requirement("page:as-sent")
async def test_a_mail_that_is_a_picture_alone_is_not_said_to_have_plain_text(
    world: World,
) -> None:
    raw = b"Subject: Poster\r\nContent-Type: text/html\r\n\r\n<img src=cid:1>"
    assert isinstance(world.desk.mailbox, LocalMailbox)
    await world.desk.mailbox.receive([Incoming(raw, seen=True)])
    (found,) = await world.desk.mailbox.search("subject:poster", 5)
    opened = (await world.person.reads(f"/mail/{found.id}")).text

    assert "This mail has no text to show." in opened
    assert "It came as plain text" not in opened
    assert f'href="/mail/{found.id}?as=sent"' in opened


@requirement("page:thread")
async def test_a_thread_is_read_as_one(world: World) -> None:
    thread = (await world.desk.mailbox.get(world.mails["Garden"])).summary.thread_id
    opened = await world.person.reads(f"/thread/{thread}")
    assert opened.text.count("thread-mail") == 2
    assert "In spring." in opened.text
    assert "<h1><bdi>Garden</bdi></h1>" in opened.text
    assert '<a href="/mail" aria-current="page">' in opened.text
    assert (await world.person.reads("/thread/none")).status_code == 404


@requirement("page:mail")
async def test_a_query_that_is_not_understood_is_explained_and_kept(world: World) -> None:
    answer = await world.person.reads("/mail?q=larger:5M")
    missing = await world.person.reads("/mail/m999999")
    for path, back, hint in (
        ("/notes/open?path=None.md", '<a href="/notes">Back to Notes</a>', "Notes on the"),
        ("/mail/none", '<a href="/mail">Back to Mail</a>', ""),
        ("/tasks/999", '<a href="/tasks">Back to Tasks</a>', "Tasks on the page"),
    ):
        missing = await world.person.reads(path)
        assert missing.status_code == 404
        assert back in missing.text
        assert hint in missing.text
        assert "list_" not in missing.text
        assert "Requested resource" not in missing.text
    nowhere = await world.person.reads("/nowhere")

    assert answer.status_code == 422
    assert 'value="larger:5M"' in answer.text
    assert "larger" in re.search(r'role="alert".*?</div>', answer.text, re.DOTALL)[0]
    assert missing.status_code == 404
    assert (nowhere.status_code, "There is no page at this address." in nowhere.text) == (
        404,
        True,
    )


@requirement("page:tasks")
@requirement("page:attachments")
@pytest.mark.parametrize("number", ["9" * 19, "9" * 5000, "-1", "\u0661"])
async def test_at_a_number_that_is_none_of_ours_there_is_no_page(
    world: World, number: str
) -> None:
    for path in (f"/tasks/{number}", f"/approvals/x/attachments/{number}"):
        assert (await world.person.reads(path)).status_code == 404


@requirement("page:notes")
async def test_notes_are_found_by_folder_and_by_text(world: World) -> None:
    top = await world.person.reads("/notes")
    inner = await world.person.reads("/notes?folder=Projects/Garden")
    found = await world.person.reads("/notes?q=a+HEADING")
    outside = await world.person.reads("/notes?folder=../..")

    assert leads(top) == ["<img src=x onerror=alert(1)>", "Mentions"]
    assert_harmless(top)
    assert 'folder=Projects"' in top.text
    assert leads(inner) == ["Plan"]
    assert leads(found) == ["Projects/Garden/Plan.md"]
    assert outside.status_code == 403


@requirement("page:notes")
async def test_a_note_is_rendered_and_nothing_in_it_runs_or_is_loaded(world: World) -> None:
    answer = await world.person.reads("/notes/open?path=Projects/Garden/Plan.md")
    named = await world.person.reads(
        f"/notes/open?path={quote('<img src=x onerror=alert(1)>.md')}"
    )

    assert_harmless(answer)
    assert_harmless(named)
    for shown in (
        "<h2>A heading</h2>",
        "<td>1</td>",
        "picture: a picture (tracker.example)",
        "&lt;b&gt;code&lt;/b&gt;",
    ):
        assert shown in answer.text
    assert answer.text.count("<h1>") == 1
    assert (
        '<a href="https://example.org/x" rel="noopener noreferrer">link</a>' in answer.text
    )
    assert leads(answer) == ["Projects/Other note.md"]


@requirement("page:notes")
async def test_links_between_notes_lead_to_the_notes_they_mean(world: World) -> None:
    note = await world.person.reads("/notes/open?path=Projects/Garden/Plan.md")
    links = {unescape(each) for each in re.findall(r'href="(/notes/link[^"]+)"', note.text)}
    answers = {each: await world.person.reads(each) for each in links}

    there = "/notes/open?path=Projects%2FOther+note.md"
    assert {
        each.headers["location"] for link, each in answers.items() if "Other" in link
    } == {there}
    assert [each.status_code for link, each in answers.items() if "Nowhere" in link] == [
        404
    ]
    assert len(links) == 4


@pytest.fixture(scope="module")
async def rich(world: World) -> World:
    """The same desk with notes as people write them in Obsidian."""
    vault = world.desk.settings.vault
    (vault / "Rich" / "img").mkdir(parents=True)
    (vault / "Rich" / "Shown.md").write_text(SHOWN)
    (vault / "Rich" / "Everything.md").write_text(EVERYTHING)
    (vault / "Rich" / "img" / "photo.png").write_bytes(PNG)
    (vault / "Rich" / "img" / "evil.svg").write_bytes(SVG)
    (vault / "Rich" / "not.png").write_text("<script>alert(1)</script>")
    (vault / "Rich" / "paper.pdf").write_bytes(b"%PDF-1.4")
    (vault / "Rich" / "leak.png").symlink_to("/etc/hostname")
    (vault / ".obsidian").mkdir(exist_ok=True)
    (vault / ".obsidian" / "workspace.png").write_bytes(PNG)
    return world


@requirement("page:obsidian")
async def test_a_note_is_shown_as_obsidian_shows_it(rich: World) -> None:
    answer = await rich.person.reads("/notes/open?path=Rich/Everything.md")

    assert [each for each in AS_IN_OBSIDIAN if each not in answer.text] == []


@requirement("page:obsidian")
async def test_what_is_no_tag_no_highlight_and_no_footnote_stays_text(rich: World) -> None:
    text = (await rich.person.reads("/notes/open?path=Rich/Everything.md")).text

    for hidden in ("^item-1", "^table-1", "^para-1"):
        assert hidden not in text
    assert "Two ^2 stays ^two" in text
    assert "<p></p>" not in text
    assert text.count('class="tag"') == 1
    assert text.count("<mark>") == 1
    assert text.count("<sup>") == 5
    for plain in ("#1234", "a#b", "a == b == c", "[^nothing]", "first part", "obsidian:"):
        assert (plain in text) == (plain != "first part")
    assert text.count("obsidian:") == 1
    assert text.count("<script") == text.count("<script src=")
    assert text.count('class="embed"') == 4


@requirement("page:files")
async def test_a_picture_of_the_vault_is_sent_as_what_it_is_and_nothing_else_is_shown(
    rich: World,
) -> None:
    async def get(path: str) -> httpx2.Response:
        return await rich.person.reads(f"/notes/file?path={quote(path)}")

    photo, drawing = await get("Rich/img/photo.png"), await get("rich/IMG/evil.svg")
    false, paper = await get("Rich/not.png"), await get("Rich/paper.pdf")
    closed = [
        await get(path)
        for path in (
            "Rich/leak.png",
            "../secret.png",
            ".obsidian/workspace.png",
            "/etc/passwd",
        )
    ]
    absent = [await get(path) for path in ("Rich/none.png", "Rich")]
    async with httpx2.AsyncClient(base_url=rich.address) as http:
        stranger = await http.get("/notes/file?path=Rich/img/photo.png")

    assert (photo.content, photo.headers["content-type"]) == (PNG, "image/png")
    assert drawing.headers["content-type"] == "image/svg+xml"
    assert false.headers["content-type"] == "image/png"
    assert paper.headers["content-type"] == "application/octet-stream"
    assert [
        each.headers["content-disposition"].partition(";")[0]
        for each in (photo, drawing, false, paper)
    ] == [
        "inline",
        "attachment",
        "inline",
        "attachment",
    ]
    for each in (photo, drawing, false, paper):
        assert each.headers["x-content-type-options"] == "nosniff"
        assert each.headers["content-security-policy"].endswith("sandbox")
        assert "script-src" not in each.headers["content-security-policy"]
    assert {each.status_code for each in closed} == {403}
    assert {each.status_code for each in absent} == {404}
    assert (stranger.status_code, stranger.headers["location"]) == (303, "/enter")


@requirement("page:files")
async def test_a_link_to_a_file_that_is_no_note_leads_to_the_file(rich: World) -> None:
    found = await rich.person.reads(
        "/notes/link?to=paper.pdf&from=Projects/Other%20note.md"
    )
    itself = await rich.person.reads(
        "/notes/link?to=Rich/Everything.md&from=Rich/Everything.md"
    )

    assert found.headers["location"] == "/notes/file?path=Rich%2Fpaper.pdf"
    assert itself.headers["location"] == "/notes/open?path=Rich%2FEverything.md"


@requirement("page:obsidian")
async def test_notes_that_show_each_other_come_to_an_end(rich: World) -> None:
    vault = rich.desk.settings.vault
    (vault / "Ring one.md").write_text("one\n\n![[Ring two]]\n\n" * 200)
    (vault / "Ring two.md").write_text("two\n\n![[Ring one]]\n\n" * 200)
    answer = await rich.person.reads("/notes/open?path=Ring%20one.md")

    assert answer.status_code == 200
    assert 1 <= answer.text.count('class="embed"') <= 30


@requirement("page:tasks")
async def test_a_task_is_added_in_one_line_repeats_in_words_and_the_filter_stays(
    world: World,
) -> None:
    person, here = world.person, "label=phone&state=open"
    line = {"title": "Call sawmill fri 17:00 #phone !high every week", "filtered": here}
    added = await person.sends("/tasks/add", line, "/tasks")
    page = (await person.reads("/tasks?label=phone")).text
    (key,) = re.findall(r'href="/tasks/(\d+)"', page)
    task = await world.desk.tasks.call("ann", "GET", f"/tasks/{key}", actor="tasks_mcp")
    form = {"version": str(task["version"]), "repeats": "every 2 weeks on fri"}
    await person.sends(f"/tasks/{key}/edit", form, "/tasks")
    after = await world.desk.tasks.call("ann", "GET", f"/tasks/{key}", actor="tasks_mcp")
    moved = await person.sends(
        f"/tasks/{key}/move",
        {"to": "complete", "filtered": f"{here}&next=//evil"},
        "/tasks",
    )
    refused = await person.sends("/tasks/add", {"title": "Call next monday"}, "/tasks")

    assert added.headers["location"] == f"/tasks?{here}&done=added"
    assert (task["title"], task["priority"], task["recurrence"]) == (
        "Call sawmill",
        "High",
        "FREQ=WEEKLY",
    )
    assert "every week" in page
    assert after["recurrence"] == "FREQ=WEEKLY;INTERVAL=2;BYDAY=FR"
    assert moved.headers["location"] == f"/tasks?{here}&done=complete"
    assert "Couldn&#39;t read the due date" in refused.text
    assert "next monday" in refused.text
    for each in re.findall(
        r'href="/tasks/(\d+)"', (await person.reads("/tasks?label=phone&state=all")).text
    ):
        await world.desk.tasks.call("ann", "DELETE", f"/tasks/{each}", actor="tasks_mcp")


@requirement("page:tasks")
@pytest.mark.parametrize(
    ("series", "following"), [({}, "2126-01-08"), ({"series": "1"}, "2126-01-09")]
)
async def test_a_task_of_a_series_is_moved_alone_or_with_all_that_follow(
    world: World, series: dict[str, str], following: str
) -> None:
    weekly = {
        "title": "Sport",
        "due_date": "2126-01-01T09:00:00Z",
        "recurrence": "FREQ=WEEKLY",
    }

    async def call(method: str, path: str, body: Any = None) -> Any:
        return await world.desk.tasks.call(
            "ann", method, path, body=body, actor="tasks_mcp"
        )

    task = await call("POST", "/tasks", weekly)
    path = f"/tasks/{task['id']}"
    assert "every time after it" in (await world.person.reads(path)).text
    form = {"version": str(task["version"]), "due": "2126-01-02 10:00"} | series
    await world.person.sends(f"{path}/edit", form, path)
    done = await call("PATCH", path, {"completed": True})
    made = await call("GET", f"/tasks/{done['next_id']}")
    for each in (task["id"], made["id"]):
        await call("DELETE", f"/tasks/{each}")

    assert made["due_date"].startswith(following)


@requirement("page:tasks")
async def test_tasks_are_added_found_changed_and_moved(world: World) -> None:
    person = world.person
    added = await person.sends(
        "/tasks/add",
        {
            "title": "Prune",
            "due": "2030-05-01 09:00",
            "priority": "Low",
            "labels": "roses, tools",
        },
        "/tasks",
    )
    (key,) = re.findall(r'href="/tasks/(\d+)"', (await person.reads("/tasks?q=Prune")).text)
    task = await world.desk.tasks.call("ann", "GET", f"/tasks/{key}", actor="tasks_mcp")
    form = {
        "version": str(task["version"]),
        "title": "Prune roses",
        "due": "2030-05-01 09:00",
        "priority": "Low",
    }
    changed = await person.sends(
        f"/tasks/{key}/edit", form | {"labels": "roses", "description": "gently"}, "/tasks"
    )
    again = await person.sends(f"/tasks/{key}/edit", form | {"title": "Lost"}, "/tasks")

    assert added.headers["location"] == "/tasks?done=added"
    assert (task["due_date"][:16], task["labels"]) == (
        "2030-05-01T07:00",
        ["roses", "tools"],
    )
    assert changed.headers["location"] == f"/tasks/{key}?done=changed"
    at_its_end = form | {"version": str(task["version"] + 1), "due": "2030-05-31"}
    await person.sends(f"/tasks/{key}/edit", at_its_end, "/tasks")
    task = await world.desk.tasks.call("ann", "GET", f"/tasks/{key}", actor="tasks_mcp")
    assert task["due_date"][:16] == "2030-05-31T21:59"
    assert 'name="due" value="2030-05-31"' in (await person.reads(f"/tasks/{key}")).text
    assert again.status_code == 412
    assert leads(await person.reads("/tasks?label=roses")) == ["Prune roses"]
    for to, where in (("complete", "done"), ("reopen", "open")):
        assert (
            await person.sends(f"/tasks/{key}/move", {"to": to}, "/tasks")
        ).status_code == 303
        assert "Prune roses" in leads(await person.reads(f"/tasks?state={where}"))
    gone = await person.sends(f"/tasks/{key}/move", {"to": "delete"}, "/tasks")
    assert "Bring it back" in (await person.reads(gone.headers["location"])).text
    assert "Prune roses" not in leads(await person.reads("/tasks?state=all"))
    await person.sends(f"/tasks/{key}/move", {"to": "restore"}, "/tasks")
    assert "Prune roses" in leads(await person.reads("/tasks"))
    await person.sends("/tasks/undo", {}, "/tasks")
    assert "Prune roses" not in leads(await person.reads("/tasks"))


@requirement("tasks:record")
async def test_what_the_person_does_with_tasks_on_the_page_is_on_the_record_as_theirs(
    world: World,
) -> None:
    person = world.person
    done = await person.sends("/tasks/add", {"title": "Rake the leaves"}, "/tasks")
    assert done.headers["location"] == "/tasks?done=added"
    found = (await person.reads("/tasks?q=Rake")).text
    (key,) = re.findall(r'href="/tasks/(\d+)"', found)
    form = {"version": "1", "title": "Rake all leaves"}
    await person.sends(f"/tasks/{key}/edit", form, "/tasks")
    for to in ("complete", "reopen", "delete", "restore"):
        await person.sends(f"/tasks/{key}/move", {"to": to}, "/tasks")
    await person.sends("/tasks/undo", {}, "/tasks")

    entries = await world.desk.store.read(audit.entries)
    about = [entry for _, entry in entries if entry.target in (f"task {key}", "tasks")][:7]
    assert [(each.actor, each.action_type) for each in reversed(about)] == [
        ("person", "create_task"),
        ("person", "update_task"),
        ("person", "mark_task_completed"),
        ("person", "reopen_task"),
        ("person", "delete_task"),
        ("person", "restore_task"),
        ("person", "undo_task_change"),
    ]
    page = (await person.reads(f"/timeline?text=task+{key}")).text
    assert set(re.findall(r'<span class="who"><bdi>(.*?)</bdi>', page)) == {"you"}


@requirement("page:tasks")
async def test_what_is_not_touched_in_a_task_stays_and_bad_input_keeps_the_words(
    world: World,
) -> None:
    person = world.person
    (key,) = re.findall(r'href="/tasks/(\d+)"', (await person.reads("/tasks?q=seeds")).text)
    page = (await person.reads(f"/tasks/{key}")).text
    version = re.search(r'name="version" value="(\d+)"', page)[1]
    due = re.search(r'name="due" value="([^"]+)"', page)[1]
    form = {
        "version": version,
        "title": "Buy good seeds",
        "due": due,
        "project": "Garden",
        "labels": "soil",
    }
    await person.sends(f"/tasks/{key}/edit", form | {"priority": "High"}, "/tasks")
    task = await world.desk.tasks.call("ann", "GET", f"/tasks/{key}", actor="tasks_mcp")
    refused = await person.sends("/tasks/add", {"title": "Dig", "due": "someday"}, "/tasks")
    unversioned = await person.sends(f"/tasks/{key}/edit", {"title": "Lost"}, "/tasks")
    nowhere = await person.sends(f"/tasks/{key}/move", {"to": "away"}, "/tasks")

    assert (task["title"], task["due_date"][:19]) == (
        "Buy good seeds",
        "2020-01-02T10:00:30",
    )
    assert refused.status_code == 422
    assert 'value="someday"' in refused.text
    assert "Dig" not in leads(await person.reads("/tasks?state=all"))
    assert (unversioned.status_code, nowhere.status_code) == (422, 422)
    assert_harmless(await person.reads("/tasks?state=all"))


@requirement("page:agents")
async def test_agents_are_seen_their_threads_followed_and_the_person_answers_as_the_person(
    world: World,
) -> None:
    person = world.person
    before = await person.reads("/agents")
    unknown_yet = "person" in world.desk.room(None).registrations()
    thread = await person.reads("/agents/thread?one=scout&other=builder")
    sent = await person.sends(
        "/agents/send", {"to": "builder", "text": "Blue,\r\nplease."}, "/agents"
    )
    nobody = await person.sends(
        "/agents/send", {"to": "stranger", "text": "Hello"}, "/agents"
    )
    empty = await person.sends("/agents/send", {"to": "builder", "text": " "}, "/agents")
    followed = await person.reads(sent.headers["location"])
    await person.sends("/agents/read", {}, "/agents")

    assert leads(before) == ["builder and you", "builder and scout"]
    assert "at work" in before.text
    assert "1 unread message for you" in before.text
    assert not unknown_yet
    assert_harmless(before)
    assert_harmless(thread)
    assert "approve everything" in thread.text
    assert (nobody.status_code, empty.status_code) == (404, 422)
    assert "Blue,\nplease." in followed.text
    last = world.desk.room(None).messages("builder")[-1]
    assert (last.sender, last.text) == ("person", "Blue,\nplease.")
    assert "unread message for you" not in (await person.reads("/agents")).text


@requirement("page:agents")
async def test_the_person_and_agents_in_tmux_write_to_each_other_and_no_agent_is_the_person(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.open("person")
    # As if the desk had been started in one of the windows.
    monkeypatch.chdir(terminal.repository)
    for name in ("TMUX", "TMUX_TMPDIR"):
        monkeypatch.setenv(name, terminal.environment[name])
    desk = Desk(load(terminal.variables("a1")).settings)
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        seen = await person.reads("/agents")
        await person.sends("/agents/send", {"to": "a1", "text": "Are you well?"}, "/agents")
        got = terminal.agentmail("a1", "receive")
        replied = terminal.agentmail("a1", "send", "person", "Quite.")
        thread = await person.reads("/agents/thread?one=a1&other=person")
    desk.close()
    as_person = terminal.agentmail(None, "receive", DESKHAND_AGENT="person")
    in_window = terminal.agentmail("person", "recipients")

    # Not the desk's own window, to which one can write all the same.
    assert seen.text.count("in tmux") == 2
    assert "Are you well?" in got.stdout
    assert replied.returncode == 0
    assert "Quite." in thread.text
    assert as_person.returncode == 2
    assert "person~2 [you]" in in_window.stdout
    with pytest.raises(BadConfig):
        load({"DESKHAND_AGENT": "person"})


@requirement("page:agents")
@requirement("page:tasks")
async def test_a_time_at_the_end_of_the_calendar_or_no_time_at_all_closes_no_page(
    world: World,
) -> None:
    desk, room = world.desk, world.desk.room(None)
    late = {"title": "At the very end", "due_date": "9999-12-31T23:59:00Z"}
    task = await desk.tasks.call("ann", "POST", "/tasks", actor="tasks_mcp", body=late)
    times = (
        "9999-12-31T23:59:59Z",
        "0002-01-01T00:00:00+23:00",
        "2026-13-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
    )
    for number, time in enumerate(times):
        room.append(AgentMessage(f"t{number}", "far", "wide", f"at {time}", time))
    room.set_last_read("far", 9 * 10**15, "2026-11-15T09:00:00Z")

    pages = [
        await world.person.reads(path)
        for path in ("/tasks", f"/tasks/{task['id']}", "/agents")
    ]
    thread = await world.person.reads("/agents/thread?one=far&other=wide")
    await desk.tasks.call("ann", "DELETE", f"/tasks/{task['id']}", actor="tasks_mcp")

    assert [page.status_code for page in pages] == [200, 200, 200]
    assert "9999-12-31 23:59" in pages[0].text
    assert 'name="due" value="9999-12-31"' in pages[1].text
    assert all(f"at {time}" in thread.text for time in times)


@requirement("page:notes")
@pytest.mark.parametrize("piece", ["[", "![a](", "[[", "a|b\n-|-\n"])
def test_no_note_keeps_the_desk_busy_for_long(piece: str) -> None:
    started = thread_time()
    made = markdown.html((piece * markdown.LONGEST)[: markdown.LONGEST], "Projects/Note.md")

    assert thread_time() - started < 10
    assert len(made) > 1000


@requirement("page:timeline")
async def test_the_record_is_filtered_and_paged_and_adds_up(world: World) -> None:
    person = world.person
    newest = await person.reads("/timeline?action=search")
    older = await person.reads(
        unescape(re.search(r'href="(/timeline\?[^"]*before=\d+)"', newest.text)[1])
    )
    rejected = await person.reads("/timeline?actor=email_mcp&result=rejected&action=search")
    none = await person.reads("/timeline?day=1999-01-01")
    text = await person.reads("/timeline?text=ONERROR%3Dalert(1)%3E+77")
    odd = await person.reads("/timeline?day=yesterday&before=x&result=%3Cscript%3E")

    assert len(leads(newest)) == len(leads(older)) == 50
    numbers = [re.findall(r"#(\d+)<", each.text) for each in (newest, older)]
    assert min(map(int, numbers[0])) > max(map(int, numbers[1]))
    assert len(leads(rejected)) == 3
    assert leads(none) == []
    assert len(leads(text)) == 1
    assert odd.status_code == 200
    assert_harmless(newest)
    assert "UTC" not in newest.text
    assert '<label for="day">Day</label>' in newest.text
    drawn = timeline.DAYS
    first = local(world.desk.now(), "Europe/Berlin").date() - timedelta(days=drawn - 1)
    days = await world.desk.store.read(search.by_day, first, drawn, "Europe/Berlin")
    assert days
    for _, result, entries in days:
        assert f"{entries} {wording.name_result(result)}</title>" in newest.text
    assert "0 of 10 emails sent in the last hour" in newest.text


@requirement("page:timeline")
async def test_how_long_decisions_took_is_drawn_and_what_left_counts_in_the_window(
    world: World,
) -> None:
    now = round(world.desk.now().timestamp() * 1000)
    decided = "UPDATE requests SET decided = created + 120000"
    await world.desk.store.write(lambda tx: tx.execute(decided))
    await world.desk.store.write(
        lambda tx: tx.execute("INSERT INTO sends (action_id, at) VALUES ('x', ?)", now)
    )
    drawn = await world.person.reads("/timeline")
    await world.desk.store.write(lambda tx: tx.execute("DELETE FROM sends"))

    assert "<title>1 to 5 min: 1</title>" in drawn.text
    assert "1 of 10 emails sent in the last hour" in drawn.text


@requirement("page:timeline")
@pytest.mark.parametrize(
    ("tampering", "says"),
    [
        (
            "UPDATE audit SET entry = replace(entry, 'alpha', 'omega') WHERE seq = 2",
            "line 2: the line was changed",
        ),
        ("DELETE FROM audit WHERE seq = 3", "line 3: the line is missing"),
        ("DELETE FROM audit WHERE seq = 6", "line 6: the line is missing at the end"),
        ("UPDATE audit_head SET hash = 'x'", "line 6: the line does not match the head"),
    ],
)
async def test_the_page_says_how_far_the_record_is_proved_and_finds_what_was_changed(
    tmp_path: Path, tampering: str, says: str
) -> None:
    desk = Desk(load(environment(tmp_path)).settings)
    for number in range(4):
        await desk.record("person", "alpha", str(number), {}, None, 0)
    # Signing in is on the record too: the fifth line.
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        first = await person.reads("/timeline")
        await person.sends("/timeline/verify", {}, "/timeline")
        proved = await person.reads("/timeline")
        await desk.record("person", "alpha", "new", {}, None, 0)
        glanced = await person.reads("/timeline")
        await desk.store.write(lambda tx: tx.execute(tampering))
        await person.sends("/timeline/verify", {}, "/timeline")
        broken = await person.reads("/timeline")
    desk.close()

    assert "0 of 5 lines were checked" in first.text
    assert "Record intact: 5 entries verified" in proved.text
    assert "Record intact: 6 entries verified, the first 5 of them <time" in glanced.text
    assert "5 entries verified <time" in proved.text
    assert "the others as they came." in glanced.text
    assert says in broken.text


@requirement("page:mail")
@requirement("page:timeline")
async def test_a_row_that_was_shown_before_says_what_is_so_now(tmp_path: Path) -> None:
    desk = Desk(load(environment(tmp_path)).settings)
    assert isinstance(desk.mailbox, LocalMailbox)
    await desk.mailbox.receive([Incoming(letter(subject="Fence"), seen=False)])
    (mail,) = await desk.mailbox.search("", 5)
    await desk.record("person", "alpha", "the first", {}, None, 0)
    tampering = "UPDATE audit SET entry = replace(entry, 'the first', 'the other')"
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        paths = ("/mail", "/timeline")
        unread, first = [(await person.reads(path)).text for path in paths]
        await desk.mailbox.change([mail.id], read_change("read", None))
        await desk.store.write(lambda tx: tx.execute(tampering))
        read, other = [(await person.reads(path)).text for path in paths]
    await desk.close_mailbox()
    desk.close()

    assert '<li class="unread">' in unread
    assert '<li class="unread">' not in read
    assert "the first" in first
    assert "the first" not in other
    assert "the other" in other


@requirement("page:health")
async def test_the_doctors_findings_come_with_their_fixes_and_sessions_and_tokens_end(
    world: World,
) -> None:
    person, desk = world.person, world.desk
    async with (
        signed_in(desk, world.address) as other,
        signed_in(desk, world.address) as third,
    ):
        shown = await person.reads("/checkup")
        assert '<a href="/permissions">Permissions</a>: what leaves' in shown.text
        assert '<a href="/follow-ups">Follow-ups</a>: the answers' in shown.text
        own = re.findall(r'name="session" value="([0-9a-f]{64})"', shown.text)
        ended = await person.sends("/checkup/sessions/end", {"session": own[0]}, "/tasks")
        after_one = [
            (await each.reads("/tasks")).status_code for each in (person, other, third)
        ]
        await person.sends("/checkup/sessions/end-others", {}, "/tasks")
        after_all = [
            (await each.reads("/tasks")).status_code for each in (person, other, third)
        ]
    revoked = await person.sends("/checkup/tokens/revoke", {"name": "codex"}, "/tasks")
    twice = await person.sends("/checkup/tokens/revoke", {"name": "codex"}, "/tasks")
    nameless = await person.sends("/checkup/tokens/revoke", {}, "/tasks")

    assert "To do:" in shown.text
    assert re.search(r"<code>deskhand [^<`]+</code>", shown.text)
    assert f"{world.address}/mcp" in shown.text
    assert "never used" in shown.text
    assert len(own) == 2
    assert ended.headers["location"] == "/checkup?done=ended"
    assert sorted(after_one) == [200, 200, 303]
    assert after_all == [200, 303, 303]
    assert (revoked.status_code, twice.status_code, nameless.status_code) == (303, 404, 422)
    assert await desk.store.read(tokens.list_tokens) == []
    done = await desk.store.read(lambda tx: audit.entries(tx, limit=3))
    assert [entry.action_type for _, entry in done] == [
        "revoke_token",
        "end_session",
        "end_session",
    ]


@requirement("page:absent")
async def test_a_part_that_is_not_set_up_says_what_to_set_and_the_others_work(
    tmp_path: Path,
) -> None:
    desk = Desk(
        load(
            {"DESKHAND_HOME": str(tmp_path / "home"), "DESKHAND_AGENTS_STORE": "database"}
        ).settings
    )
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        answers = {
            path: await person.reads(path)
            for path in ("/mail", "/notes", "/tasks", "/timeline", "/checkup")
        }
        refused = await person.sends("/tasks/add", {"title": "Nobody's"}, "/timeline")
    await desk.leave_tasks()
    desk.close()

    named = {"/mail": "DESKHAND_ADDRESS", "/notes": "VAULT_PATH", "/tasks": "DESKHAND_USER"}
    for path, variable in named.items():
        assert answers[path].status_code == 503
        assert variable in answers[path].text
    assert [answers[path].status_code for path in ("/timeline", "/checkup")] == [200, 200]
    assert "DESKHAND_USER" in refused.text


@needs_chromium
@needs_axe
@requirement("page:accessible")
async def test_axe_finds_nothing_and_the_browser_stays_silent(
    rich: World, world: World
) -> None:
    (task,) = re.findall(
        r'href="/tasks/(\d+)"', (await world.person.reads("/tasks?q=Water")).text
    )
    hostile = next(key for subject, key in world.mails.items() if "offer" in subject)
    thread = (await world.desk.mailbox.get(world.mails["Garden"])).summary.thread_id
    paths = [
        "/mail",
        f"/mail/{hostile}",
        f"/mail/{world.mails['Re: Garden']}",
        "/notes",
        "/notes?q=garden",
        "/notes/open?path=Projects/Garden/Plan.md",
        "/notes/open?path=Rich/Everything.md",
        "/tasks?state=all",
        f"/tasks/{task}",
        "/agents",
        "/agents/thread?one=scout&other=builder",
        "/timeline",
        "/checkup",
        "/permissions",
        f"/mail/{hostile}?as=sent",
        f"/thread/{thread}",
    ]
    found: list[str] = []
    async with chromium() as browser:
        looks: list[tuple[tuple[int, int], Literal["light", "dark"]]] = [
            (WIDE, "light"),
            (PHONE, "dark"),
        ]
        for size, scheme in looks:
            async with quiet_page(browser, world.address, size=size, scheme=scheme) as page:
                await sign_in(page, world.desk)
                for path in paths:
                    await page.goto(path)
                    found += await violations(page)
                    await page.evaluate(
                        "document.querySelectorAll('details').forEach(each => each.open = true)"
                    )
                    if await measure_excess(page):
                        found.append(f"{path} is wider than the window")
    assert found == []


@requirement("page:notes")
async def test_a_note_that_is_too_long_to_be_drawn_says_so(world: World) -> None:
    (world.desk.settings.vault / "Long.md").write_text("# Long\n" + "a word\n" * 20_000)
    page = (await world.person.reads("/notes/open?path=Long.md")).text
    assert "This note is longer than 100,000 characters, so it is shown as it was" in page
    (world.desk.settings.vault / "Long.md").unlink()


@requirement("page:notes")
async def test_a_search_shows_the_persons_notes_before_the_desks_own_files(
    home: Home,
) -> None:
    desk = Desk(load(home.environment).settings)
    for path in ("Plan.md", "Garden/Seeds.md", "Done/a.md", "Logs/b.md", "Dashboard.md"):
        file = home.vault / path
        file.parent.mkdir(exist_ok=True)
        file.write_text("Order the seeds of spring.\n")
    for query in ("seeds of", "spring order"):
        found: list[str] = []
        cursor = None
        while cursor is not None or not found:
            shown = desk.vaults.search(query, 2, cursor, "words", desk.is_own_note)
            found += [note.path for note in shown.notes]
            cursor = shown.next_cursor
        assert len(found) == 5
        assert set(found[:2]) == {"Plan.md", "Garden/Seeds.md"}
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        page = (await person.reads("/notes?q=seeds")).text
    desk.close()
    listed = home.command("notes", "search", "seeds").stdout
    for text in (page, listed):
        assert max(map(text.find, ("Plan", "Garden"))) < min(
            map(text.find, ("Done/", "Logs/", "Dashboard"))
        )


@needs_chromium
@requirement("page:accessible")
@pytest.mark.parametrize("size", SIZES)
async def test_nothing_touches_what_follows_and_a_row_with_undo_keeps_its_title(
    home: Home, size: tuple[int, int]
) -> None:
    variables = {"DESKHAND_ADDRESS": "me@example.com", "DESKHAND_HOLD_SECONDS": "600"}
    desk = Desk(load(home.environment | variables | {"DESKHAND_USER": "ann"}).settings)
    (home.vault / "Plan.md").write_text("---\nstatus: open\n---\n# Plan\n")
    mail = {"to": "ann@example.org", "subject": "Order of the seeds", "body": "Hello.\n"}
    async with Client(email_server(desk), mode="2026-07-28") as client:
        await client.call_tool("send_email", mail)
    ((card,), _) = await desk.waiting.cards()
    await desk.answers.approve(card.id, card.digest, "person")
    async with (
        served(site(desk)) as address,
        chromium() as browser,
        quiet_page(browser, address, size=size, says=("422",)) as page,
    ):
        await sign_in(page, desk)
        await page.goto("/tasks")
        await page.fill("#title", "Call next monday")
        await page.click("form[action='/tasks/add'] button")
        tasks = await find_gap(page, "main > [role=alert]", "form[action='/tasks/add']")
        await page.goto("/notes/open?path=Plan.md")
        note = await find_gap(page, "a.button", "details.panel")
        await page.goto("/")
        row = await page.locator(".cards li").bounding_box()
        title = await page.locator(".cards .subject").bounding_box()
        age = await page.locator(".cards .age").bounding_box()
        undo = await page.locator(".cards li > form button").bounding_box()
    await desk.close_mailbox()
    desk.close()

    assert tasks >= 8
    assert note >= 8
    assert row
    assert title
    assert age
    assert undo
    assert row["x"] + row["width"] - age["x"] - age["width"] < 30
    assert title["width"] > 120
    assert undo["x"] > row["x"]


async def find_gap(page: "Page", above: str, below: str) -> float:
    """How many pixels lie between the two."""
    one = await page.locator(above).first.bounding_box()
    other = await page.locator(below).first.bounding_box()
    assert one
    assert other
    return other["y"] - one["y"] - one["height"]
