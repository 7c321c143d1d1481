"""Mails that triage left to the person: decided on the page, with and without JavaScript, and rules made from one."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pytest
from mcp import Client

from deskhand import audit
from deskhand.app import Desk
from deskhand.config import load
from deskhand.gate.actions import SendEmail
from deskhand.mail.local import Incoming, LocalMailbox
from deskhand.notes import frontmatter
from deskhand.orchestrator import status, steps
from deskhand.orchestrator.loop import Orchestrator
from deskhand.servers.server import DeskServer
from deskhand.servers.triage import triage_tools
from deskhand.web.site import site
from tests.mail.letters import letter
from tests.requirements import requirement
from tests.web.browser import (
    PHONE,
    chromium,
    judged,
    measure_excess,
    needs_axe,
    needs_chromium,
    quiet_page,
    sign_in,
)
from tests.web.person import Person, served, signed_in

pytestmark = pytest.mark.anyio
SUBJECTS = (
    "Oak boards",
    "The school trip",
    "Weekly figures 46",
    "Weekly figures 47",
    "Roof quote",
)


def mails() -> list[bytes]:
    made = []
    for number, subject in enumerate(SUBJECTS):
        if subject.startswith("Weekly"):
            mail = letter(
                sender="Figures <robot@figures.example>",
                subject=subject,
                message_id=f"<{number}@figures.example>",
            )
            made.append(b"List-Id: Our figures <weekly.figures.example>\r\n" + mail)
        else:
            made.append(
                letter(
                    subject=subject,
                    message_id=f"<{number}@example.org>",
                    body=f"About {subject}.",
                )
            )
    return made


async def work(desk: Desk, *, asks: bool = False) -> None:
    orchestrator = Orchestrator(desk, asks=asks)
    await orchestrator.once()
    await orchestrator.close()


async def receive(desk: Desk, *letters: bytes) -> None:
    assert isinstance(desk.mailbox, LocalMailbox)
    await desk.mailbox.receive([Incoming(each, seen=False) for each in letters])


@dataclass
class Room:
    desk: Desk
    address: str
    person: Person

    @property
    def rules(self) -> Path:
        return self.desk.settings.home / "rules.toml"

    def notes(self, folder: str = "Needs_Action") -> list[Path]:
        return sorted((self.desk.settings.vault / folder).glob("*.md"))

    async def read(self, path: str = "/decide") -> str:
        answer = await self.person.reads(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    async def listed(self) -> list[str]:
        rows = re.search(r'<ol class="cards pick">(.*?)</ol>', await self.read(), re.DOTALL)
        return re.findall(r'class="subject"><bdi>(.*?)</bdi>', rows[1]) if rows else []

    async def see(self, message_id: str) -> dict[str, str]:
        """What the forms of the opened mail say of it and of those behind it."""
        text = await self.read(f"/decide?mail={quote(message_id)}")
        seen = {*re.findall(r'name="seen" value="(\w+)"', text)} or {""}
        assert len(seen) == 1
        return {"mail": message_id, "seen": seen.pop()}

    async def do(self, what: str, subject: str, **fields: str) -> str:
        (found,) = await self.desk.mailbox.search(f'subject:"{subject}" -in:sent', 5)
        answer = await self.person.sends(f"/decide/{what}", {"mail": found.id} | fields)
        if answer.status_code == 303:
            return str(answer.headers["location"])
        return f"{answer.status_code} {answer.text}"


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    (tmp_path / "vault").mkdir()
    environment = {
        "DESKHAND_HOME": str(tmp_path / "home"),
        "VAULT_PATH": str(tmp_path / "vault"),
        "DESKHAND_ADDRESS": "me@example.com",
        "DESKHAND_TIMEZONE": "Europe/Berlin",
        "DESKHAND_FIRST_DAYS": "3650",
    }
    desk = Desk(load(environment).settings)
    await receive(desk, *mails())
    async with served(site(desk)) as address, signed_in(desk, address) as person:
        yield Room(desk, address, person)
    await desk.close_mailbox()
    desk.close()


@requirement("decide:list")
@requirement("page:mail")
@pytest.mark.parametrize(
    ("reply_to", "says"),
    [
        ("x@evil.example", True),
        ("x@evil.example, service@pay.example", True),
        ("Pay <SERVICE@pay.example>", False),
        (None, False),
    ],
)
async def test_a_mail_whose_answer_goes_elsewhere_says_so_before_it_is_answered(
    room: Room, reply_to: str | None, *, says: bool
) -> None:
    sender = "Pay <service@pay.example>"
    await receive(room.desk, letter(sender=sender, reply_to=reply_to, subject="Odd"))
    await work(room.desk)
    (found,) = await room.desk.mailbox.search("subject:Odd", 1)
    told = [
        unescape(await room.read(place))
        for place in (f"/decide?mail={quote(found.id)}", f"/mail/{quote(found.id)}")
    ]

    line = "An answer goes to <bdi>x@evil.example</bdi>, where the mail asks for it, not to its sender."
    assert [line in page for page in told] == [says, says]


@requirement("orchestrator:status")
async def test_the_numbers_of_the_dashboard_add_up(room: Room) -> None:
    await work(room.desk)
    before = await status.facts(room.desk)
    await room.do("later", SUBJECTS[0], until="tomorrow")
    found = await status.facts(room.desk)
    told = status.page(found, room.desk.now())

    left = found.mails["needs_info"] + found.mails.get("delegated", 0)
    assert left == before.to_decide == len(SUBJECTS)
    assert (found.to_decide, found.mails_put_off) == (left - 1, 1)
    assert (
        f"- {left - 1} mails to decide\n\nNot in this list: 1 mail to decide, put off."
        in told
    )
    assert f"| to decide | {left - 1} |\n" in told
    assert "| put off | 1 |\n" in told
    assert f"<strong>{left - 1}</strong> mails that nobody has decided" in await room.read()


@requirement("decide:list")
@requirement("decide:answers")
async def test_what_triage_left_is_listed_with_the_mail_and_each_way_to_decide_it_does_what_it_says(
    room: Room,
) -> None:
    desk = room.desk
    await work(desk)
    assert await room.listed() == list(SUBJECTS)
    first = await room.read()
    assert "About Oak boards." in first
    assert "<strong>5</strong> mails that nobody has decided" in first
    assert '<a href="/decide">5 mails wait for your decision</a>' in await room.read("/")
    assert "- 5 mails to decide" in status.page(await status.facts(desk), desk.now())

    (oak,) = await desk.mailbox.search("subject:Oak", 5)
    to_decide = f'href="/decide?mail={oak.id}">Reply or decide</a>'
    assert to_decide in await room.read(f"/mail/{oak.id}")

    draft = await room.do("reply", "Oak boards", text="Friday is fine.\r\nMe")
    assert to_decide not in await room.read(f"/mail/{oak.id}")
    assert draft.startswith("/approvals/draft-")
    card = await room.read(draft)
    assert "Friday is fine.\nMe" in card
    assert "<dt>Asked by</dt><dd><bdi>you</bdi></dd>" in card
    assert "unverified" not in card
    assert "ann@example.org" in card
    assert await desk.mailbox.search("in:sent", 5) == []

    archived = await room.do("archive", "school trip")
    assert "mail=" in archived
    (gone,) = await desk.mailbox.search('subject:"school trip"', 5)
    assert f'<a href="/mail/{gone.id}">Open the archived mail</a>' in await room.read(
        archived
    )
    assert "INBOX" not in gone.labels
    assert ["school" in each.name for each in room.notes("Done")] == [True]

    assert "done=later" in await room.do("later", "figures 46", until="tomorrow")
    assert "done=later" in await room.do("later", "figures 47", until="when", when="+3d")
    assert await room.listed() == ["Roof quote"]
    assert "2 put off" in await room.read()
    again = await room.do("later", "figures 46", until="when", when="2099-01-05T14:30")
    assert "Put off until Mon 5 Jan 2099, 14:30." in await room.read(again)
    assert "done=back" in await room.do("back", "figures 47")
    assert await room.listed() == ["Weekly figures 47", "Roof quote"]

    empty = await room.do("reply", "Roof quote", text="  ")
    assert empty.startswith("422")
    assert "Write the reply first" in empty
    wrong = await room.do("later", "Roof quote", until="when", when="sometime")
    assert wrong.startswith("422")
    assert 'value="sometime"' in wrong
    assert "Write 30m, 2h" in wrong
    assert (
        await room.do("later", "Roof quote", until="when", when="2020-01-01T10:00")
    ).startswith("422")
    assert "decided meanwhile" in await room.do("reply", "Oak boards", text="Once more")
    assert (await room.person.reads("/decide?mail=nobody-has-this")).status_code == 200


def find_undo(text: str) -> str:
    """The moment by which the page's one undo names the last answer."""
    found = re.search(
        r'<form method="post" action="/undo">.*?name="at" value="(\d+)"', text, re.DOTALL
    )
    assert found, "no undo is offered"
    return found[1]


@requirement("decide:undo")
async def test_every_decision_can_be_undone_from_any_page_and_the_mail_is_as_before(
    room: Room,
) -> None:
    desk = room.desk
    await work(desk)
    notes = {each.name: each.read_text() for each in room.notes()}
    (oak,) = await desk.mailbox.search("subject:Oak", 5)
    decisions = {
        "archive": ({}, "Archived."),
        "later": ({"until": "when", "when": "+3d"}, "Put off until"),
        "hand": ({"words": "Ask when."}, "Left to an assistant"),
        "reply": ({"text": "Friday is fine."}, "Your reply is drafted."),
    }
    for what, (fields, said) in decisions.items():
        await room.do(what, "Oak boards", **fields)
        assert await room.listed() == [*SUBJECTS[1:]], what
        for page in ("/notes", "/mail", "/timeline"):
            elsewhere = await room.read(page)
            assert 'class="toast"' in elsewhere, page
            toast = elsewhere[elsewhere.index('class="toast"') :]
            assert said in toast, what
            assert "Oak boards" in toast, what
        undone = await room.person.sends("/undo", {"at": find_undo(elsewhere)})
        place = undone.headers["location"]
        again = await room.read(place)
        assert place == f"/decide?done=back&mail={oak.id}", what
        assert "It waits for your decision again." in again, what
        assert await room.listed() == [*SUBJECTS], what
        assert {each.name: each.read_text() for each in room.notes()} == notes, what
        assert "INBOX" in (await desk.mailbox.list_mails([oak.id]))[0].labels, what
    assert ">\nFriday is fine.</textarea>" in again
    assert 'class="toast"' not in await room.read()
    assert room.notes("Drafts") == []
    assert (await desk.waiting.counts()).waiting == 0
    draft = await room.do("reply", "Oak boards", text="Friday is fine.")
    assert "Friday is fine." in await room.read(draft)


@requirement("decide:undo")
async def test_what_went_on_meanwhile_or_is_too_old_is_not_undone(room: Room) -> None:
    desk = room.desk
    await work(desk)
    await room.do("hand", "Oak boards", words="Ask when.")
    at = find_undo(await room.read())
    await room.do("back", "Oak boards")
    late = await room.person.sends("/undo", {"at": at})
    assert late.status_code == 403
    assert "too late to undo that" in late.text

    draft = await room.do("reply", "Roof quote", text="Yes.")
    at = find_undo(await room.read(draft))
    card = await desk.waiting.card(draft.rpartition("/")[2])
    await desk.answers.approve(card.id, card.digest, "person")
    assert (await room.person.sends("/undo", {"at": at})).status_code == 403
    assert (await desk.waiting.card(card.id)).state == "held"

    await room.do("archive", "school trip")
    at = find_undo(await room.read())
    real = desk.now
    desk.now = lambda: real() + timedelta(seconds=desk.settings.hold_seconds + 1)
    assert 'class="toast"' not in await room.read()
    assert (await room.person.sends("/undo", {"at": at})).status_code == 403
    assert "The school trip" not in await room.listed()


@requirement("decide:answers")
async def test_what_was_put_off_comes_back_by_itself(room: Room) -> None:
    desk = room.desk
    await work(desk)
    await room.do("later", "Oak boards", until="hour")
    assert "Oak boards" not in await room.listed()
    await work(desk)
    assert "Oak boards" not in await room.listed()

    real = desk.now
    desk.now = lambda: real() + timedelta(minutes=61)
    assert "Oak boards" in await room.listed()


@requirement("decide:handed")
async def test_an_assistant_finds_what_was_given_to_it_first_and_its_answer_comes_back(
    room: Room,
) -> None:
    desk = room.desk
    await work(desk)
    assert "done=handed" in await room.do(
        "hand", "Roof quote", words="Compare it with last year's."
    )
    assert "Roof quote" not in await room.listed()
    (note,) = [each for each in room.notes() if "roof" in each.name]
    assert "Compare it with last year's." in note.read_text()
    assert frontmatter.parse(note.read_text()).frontmatter["status"] == "needs_info"

    async with Client(DeskServer("desk", triage_tools(desk))) as client:
        listed = (await client.call_tool("list_pending", {"limit": 3})).structured_content[
            "result"
        ]
        assert listed[0]["asked"] == "Compare it with last year's."
        assert ["asked" in each for each in listed] == [True, False, False]
        given = {
            "message_id": listed[0]["message_id"],
            "decision": "needs_info",
            "reasoning": "It is dearer.",
        }
        await client.call_tool(
            "propose_decision", given | {"info_needed": "Take it at 9,400?"}
        )
    await work(desk)
    assert "Roof quote" in await room.listed()
    (found,) = await desk.mailbox.search('subject:"Roof quote"', 5)
    assert "Take it at 9,400?" in await room.read(f"/decide?mail={quote(found.id)}")

    await room.do("hand", "Roof quote", words="Again")
    assert "done=back" in await room.do("back", "Roof quote")
    assert "Roof quote" in await room.listed()


@requirement("decide:rule")
@needs_chromium
async def test_the_part_of_a_subject_that_a_rule_asks_for_is_read_whole(room: Room) -> None:
    await receive(
        room.desk, letter(subject="Oak planks for the shed (20), sawn and dried in spring")
    )
    await work(room.desk)
    (found,) = await room.desk.mailbox.search("subject:planks", 5)
    async with chromium() as browser, quiet_page(browser, room.address) as page:
        await sign_in(page, room.desk)
        await page.goto(f"/decide?mail={found.id}")
        await page.get_by_text("Always archive these…").click()
        field = page.get_by_label("Part of the subject")
        assert await field.evaluate("it => it.scrollWidth <= it.clientWidth")


@requirement("decide:rule")
async def test_a_rule_is_tried_on_the_last_mails_before_it_counts_and_then_decides(
    room: Room,
) -> None:
    desk = room.desk
    await work(desk)
    for by, value, touched in (
        ("sender", "robot@figures.example", 2),
        ("domain", "example.org", 3),
        ("list_id", "weekly.figures.example", 2),
        ("subject", "figures 46", 1),
    ):
        shown = await room.read(f"/decide/rule?by={by}&{by}={quote(value)}")
        assert (
            f"Of the last 5 mails it would have archived <strong>{touched}</strong>"
            in shown
        )
    assert not room.rules.exists()
    assert (
        await room.person.reads("/decide/rule?by=list_mail&list_mail=true")
    ).status_code == 422

    made = await room.person.sends(
        "/decide/rule", {"by": "list_id", "list_id": "weekly.figures.example", "now": "1"}
    )
    assert made.status_code == 303
    assert "2 mails that waited are being archived" in await room.read(
        made.headers["location"]
    )
    assert 'list_id = "weekly.figures.example"' in room.rules.read_text()
    assert "newsletter = true" in room.rules.read_text()
    await work(desk)
    assert await room.listed() == ["Oak boards", "The school trip", "Roof quote"]
    assert len(room.notes("Done")) == 2
    inbox = {mail.subject for mail in await desk.mailbox.search("in:inbox", 9)}
    assert inbox == {"Oak boards", "The school trip", "Roof quote"}

    room.rules.write_text(f"# mine\n{room.rules.read_text()}")
    await room.person.sends("/decide/rule", {"by": "sender", "sender": "x@example.org"})
    assert room.rules.read_text().startswith("# mine\n")
    assert room.rules.read_text().count("[[rule]]") == 3
    room.rules.write_text("rule = [")
    refused = await room.person.sends(
        "/decide/rule", {"by": "sender", "sender": "y@example.org"}
    )
    assert refused.status_code == 422
    assert room.rules.read_text() == "rule = ["


@requirement("decide:first")
async def test_a_first_run_writes_nothing_before_the_person_has_answered(
    room: Room,
) -> None:
    desk = room.desk
    await work(desk, asks=True)
    await work(desk, asks=True)
    assert room.notes() == []
    question = "5 unread mails of the last 3650 days in me@example.com: bring them in?"
    assert question in await room.read("/")
    assert question in await room.read()
    await receive(desk, letter(subject="Since then", message_id="<new@example.org>"))

    async def say(answer: str) -> int:
        given = {"mailbox": "local:me@example.com", "answer": answer}
        done = (await room.person.sends("/decide/first", given)).status_code
        await work(desk, asks=True)
        return done

    assert await say("perhaps") == 422
    assert await say("none") == 303
    assert room.notes() == []
    assert "No mail of <bdi>me@example.com</bdi> is brought in" in await room.read()
    assert await say("new") == 303
    assert ["since-then" in each.name for each in room.notes()] == [True]
    assert question not in await room.read()


@requirement("decide:first")
async def test_all_brings_in_all_and_a_setting_answers_beforehand(
    room: Room, tmp_path: Path
) -> None:
    await work(room.desk, asks=True)
    await room.person.sends(
        "/decide/first", {"mailbox": "local:me@example.com", "answer": "all"}
    )
    await work(room.desk, asks=True)
    assert len(room.notes()) == 5

    for word, expected in (("all", 5), ("new", 0), ("none", 0)):
        vault = tmp_path / word
        vault.mkdir()
        environment = {
            "DESKHAND_HOME": str(tmp_path / f"home-{word}"),
            "VAULT_PATH": str(vault),
        }
        environment |= {"DESKHAND_ADDRESS": "me@example.com", "DESKHAND_FIRST_DAYS": "3650"}
        desk = Desk(load(environment | {"DESKHAND_FIRST_MAIL": word}).settings)
        await receive(desk, *mails())
        await work(desk, asks=True)
        await receive(desk, letter(subject="Since then", message_id="<new@example.org>"))
        await work(desk, asks=True)
        assert len(list((vault / "Needs_Action").glob("*.md"))) == expected + (
            word != "none"
        )
        await desk.close_mailbox()
        desk.close()


@needs_chromium
@needs_axe
@requirement("decide:list")
@requirement("page:accessible")
async def test_by_keyboard_alone_mails_are_decided_and_axe_finds_nothing(
    room: Room,
) -> None:
    desk = room.desk
    await work(desk, asks=True)
    async with chromium() as browser, quiet_page(browser, room.address) as page:
        await sign_in(page, desk)
        await page.goto("/decide")
        assert await judged(page) == []  # the question, and nothing to decide
        await page.get_by_role("button", name="All of them").click()
        await page.get_by_text("5 mails are being brought in.").wait_for()
        await work(desk, asks=True)
        await page.get_by_role("heading", name="Oak boards").wait_for()  # by itself
        await page.wait_for_load_state()
        await page.keyboard.press("j")
        await page.get_by_role("heading", name="The school trip", level=1).wait_for()
        await page.wait_for_load_state()  # a key counts when the page's program runs
        for key, closed in (
            ("r", "Make the draft"),
            ("s", "One hour"),
            ("h", "Give it away"),
            ("l", "Try it"),
        ):
            await page.keyboard.press(key)
            await page.get_by_role("button", name=closed).first.wait_for()
            await page.evaluate("document.activeElement.blur()")
        assert await judged(page) == []
        await page.keyboard.press("k")
        await page.get_by_role("heading", name="Oak boards", level=1).wait_for()
        await page.wait_for_load_state()
        await page.keyboard.press("e")
        await page.get_by_role("heading", name="The school trip", level=1).wait_for()
        await page.get_by_text("Archived. Oak boards").wait_for()
        await page.wait_for_load_state()
        assert await page.locator("#count-decide").text_content() == "4 mails"
        await receive(desk, letter(subject="Just now", message_id="<now@example.org>"))
        await page.keyboard.press("r")
        await page.keyboard.type("Dear Ann")
        await work(desk, asks=True)
        await page.get_by_role("link", name="Just now").wait_for()
        assert await page.get_by_label("Your reply").input_value() == "Dear Ann"
        await page.evaluate("document.activeElement.blur()")
        await page.keyboard.press("s")
        await page.keyboard.type("3d")
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Weekly figures 46", level=1).wait_for()
        ((_, until),) = await desk.store.read(steps.list_put_off, desk.now(), 5)
        assert until > desk.now() + timedelta(days=2)
        await page.wait_for_load_state()
        await page.keyboard.press("l")
        await page.get_by_role("button", name="Try it on the last 100 mails").click()
        await page.get_by_role("button", name="Make this rule").wait_for()
        assert await judged(page) == []


@needs_chromium
@needs_axe
@requirement("decide:undo")
async def test_by_keyboard_alone_a_decision_is_taken_back_and_the_reply_stands_there_again(
    room: Room,
) -> None:
    await work(room.desk)
    async with chromium() as browser, quiet_page(browser, room.address) as page:
        await sign_in(page, room.desk)
        await page.goto("/decide")
        await page.keyboard.press("e")
        await page.get_by_text("Archived. Oak boards").wait_for()
        await page.wait_for_load_state()
        assert await judged(page) == []
        await page.keyboard.press("u")
        await page.get_by_role("heading", name="Oak boards", level=1).wait_for()
        await page.get_by_text("It waits for your decision again.").wait_for()
        assert await page.locator("#count-decide").text_content() == "5 mails"
        await page.wait_for_load_state()
        await page.keyboard.press("r")
        await page.keyboard.type("Friday.")
        await page.get_by_role("button", name="Make the draft").press("Enter")
        await page.get_by_text("Your reply is drafted.").wait_for()
        await page.wait_for_load_state()
        await page.keyboard.press("u")
        await page.get_by_label("Your reply").wait_for()
        assert await page.get_by_label("Your reply").input_value() == "Friday."


@needs_chromium
@requirement("decide:list")
async def test_without_javascript_and_on_a_phone_a_mail_is_read_and_decided(
    room: Room,
) -> None:
    await work(room.desk)
    endless = f"an.{'address.that.never.ends.' * 2}on@{'department.' * 5}example"
    await room.desk.gate.propose(
        SendEmail(to=endless, subject="A long address", body="x"), "email_mcp"
    )
    async with (
        chromium() as browser,
        quiet_page(browser, room.address, javascript=False, size=PHONE) as page,
    ):
        await sign_in(page, room.desk)
        await page.goto("/decide")
        await page.get_by_role("link", name="Roof quote").click()
        await (
            page.get_by_role("region", name="The mail")
            .get_by_text("About Roof quote.")
            .wait_for()
        )
        await page.get_by_text("Reply", exact=True).click()
        await page.get_by_label("Your reply").fill("Thank you.")
        await page.get_by_role("button", name="Make the draft").click()
        await page.get_by_role("heading", name="Re: Roof quote").wait_for()
        await page.get_by_role("button", name="Approve").wait_for()
        await page.goto("/")
        await page.get_by_role("link", name="A long address").click()
        await page.get_by_role("heading", name="Before you say yes").wait_for()
        assert await measure_excess(page) == 0
        await page.goto("/mail")
        await page.get_by_role("link", name="Sent", exact=True).click()
        await page.get_by_text("There is no mail here.").wait_for()


def add_copies(mail: bytes) -> bytes:
    return b"Cc: Bob <bob@example.net>, me@example.com, carol@example.org\r\n" + mail


@requirement("decide:answers")
async def test_a_reply_goes_to_the_author_or_to_all_and_page_and_card_say_who_gets_none(
    room: Room,
) -> None:
    await receive(room.desk, add_copies(letter(subject="Two boards")))
    await receive(room.desk, add_copies(letter(subject="Three boards")))
    await work(room.desk)
    alone = await room.read()
    assert "It goes to <bdi>ann@example.org</bdi>." in alone
    assert "Who gets it?" not in alone
    (found,) = await room.desk.mailbox.search('subject:"Two boards"', 5)
    both = await room.read(f"/decide?mail={quote(found.id)}")
    assert "only <bdi>ann@example.org</bdi>" in both
    assert "all: also <bdi>bob@example.net, carol@example.org</bdi>" in both

    card = await room.read(await room.do("reply", "Two boards", text="Yes.", to="author"))
    assert "bob@example.net, carol@example.org" in card
    assert "They do not get this answer." in card
    draft = await room.do("reply", "Three boards", text="Yes, all of you.", to="all")
    request = await room.desk.waiting.find(draft.removeprefix("/approvals/"))
    assert (request.action.to, request.action.cc) == (
        "ann@example.org",
        "bob@example.net, carol@example.org",
    )
    card = await room.read(draft)
    assert "They do not get this answer." not in card
    assert "in this thread; your first email to them" in card
    assert "The mail that it answers does not name" not in card


@requirement("decide:answers")
async def test_any_mail_can_be_replied_to_also_one_that_was_decided_or_that_triage_never_saw(
    room: Room,
) -> None:
    await work(room.desk)
    assert "done=archived" in await room.do("archive", "Roof quote")
    await receive(room.desk, add_copies(letter(subject="Never triaged")))
    for subject, to in (("Roof quote", ""), ("Never triaged", "all")):
        (found,) = await room.desk.mailbox.search(f'subject:"{subject}"', 5)
        place = f"/mail/{quote(found.id)}"
        text = await room.read(place)
        assert 'action="/mail/reply"' in text
        assert ("all: also" in text) == bool(to)

        empty = await room.person.sends("/mail/reply", {"mail": found.id, "text": " "})
        assert "Write the reply first" in empty.text
        fields = {"mail": found.id, "text": "I look at it.", "to": to}
        answer = await room.person.sends("/mail/reply", fields)
        assert answer.status_code == 303, answer.text
        card = await room.read(answer.headers["location"])
        assert "I look at it." in card
        assert "<bdi>you</bdi>" in card
        assert answer.headers["location"] in await room.read(place)

        request = await room.desk.waiting.find(answer.headers["location"][11:])
        assert (request.state, request.action.reply_to_message_id) == ("waiting", found.id)
        assert bool(request.action.cc) == bool(to)
        assert (room.desk.own_root / "Drafts" / request.file).is_file()
    assert await room.desk.mailbox.search("in:sent", 5) == []

    await room.desk.answers.approve_now(request.id, request.digest, "person")
    await work(room.desk)
    (sent,) = await room.desk.mailbox.search("in:sent", 5)
    assert (await room.desk.waiting.find(request.id)).state == "sent"
    assert (sent.subject, sent.thread_id) == ("Re: Never triaged", found.thread_id)


@requirement("decide:answers")
async def test_a_mail_that_waits_for_a_decision_is_decided_by_its_reply(room: Room) -> None:
    await work(room.desk)
    (found,) = await room.desk.mailbox.search('subject:"Oak boards"', 5)
    fields = {"mail": found.id, "text": "Forty, please."}
    answer = await room.person.sends("/mail/reply", fields)
    assert answer.status_code == 303, answer.text
    assert "Oak boards" not in await room.listed()


BEGUN = "<offer@example.org>"


def continue_offer(number: int, hour: int, sender: str = "Ann <ann@example.org>") -> bytes:
    """One more mail of the conversation about an offer."""
    mail = letter(
        sender=sender,
        to="me@example.com" if "ann" in sender else "ann@example.org",
        subject="Re: An offer" if number else "An offer",
        message_id=f"<offer-{number}@example.org>" if number else BEGUN,
        references=BEGUN if number else None,
        body=f"Offer, part {number}.",
    )
    return mail.replace(b"09:30:00", f"{hour:02}:30:00".encode())


@requirement("decide:conversation")
async def test_a_conversation_is_one_row_and_what_is_decided_counts_for_its_earlier_mails(
    room: Room,
) -> None:
    desk = room.desk
    await receive(desk, continue_offer(0, 9), continue_offer(1, 10))
    await work(desk)
    before, _ = await desk.mailbox.search('subject:"An offer"', 5)
    seen = await room.see(before.id)
    await room.person.sends("/decide/later", seen | {"until": "tomorrow"})
    assert await room.listed() == [*SUBJECTS]
    await receive(desk, continue_offer(2, 11))
    await work(desk)

    assert await room.listed() == [*SUBJECTS, "Re: An offer"]
    assert "<strong>6</strong> mails" in await room.read()
    offers = await desk.mailbox.search('subject:"An offer"', 5)
    newest, first = offers[0], offers[-1]
    for each in (newest, first):
        opened = await room.read(f"/decide?mail={quote(each.id)}")
        assert "Offer, part 2." in opened
        assert "3 mails in this conversation" in opened
        assert "2 earlier mails of this conversation wait with it" in opened
        assert f'href="/thread/{newest.thread_id}"' in opened
    waiting = [each.name for each in room.notes() if "offer" in each.name]
    done = [each for each in room.notes("Done") if "offer" in each.name]
    assert (len(waiting), len(done)) == (1, 2)
    by = [frontmatter.parse(each.read_text()).frontmatter["continued_by"] for each in done]
    assert waiting[0] in by
    stale = await room.person.sends("/decide/archive", {"mail": first.id})
    assert "A newer mail of this conversation has come" in stale.text

    async def are_in_inbox() -> set[bool]:
        mails = await desk.mailbox.list_mails([each.id for each in offers])
        return {"INBOX" in each.labels for each in mails}

    decisions: dict[str, dict[str, str]] = {
        "archive": {},
        "later": {"until": "tomorrow"},
        "hand": {"words": "Compare them."},
        "reply": {"text": "We take it."},
    }
    for what, fields in decisions.items():
        seen = await room.see(newest.id)
        answer = await room.person.sends(f"/decide/{what}", seen | fields)
        assert answer.status_code == 303, answer.text
        assert await room.listed() == [*SUBJECTS], what
        assert await are_in_inbox() == {what != "archive"}
        undone = await room.person.sends("/undo", {"at": find_undo(await room.read())})
        assert "3 mails in this conversation" in await room.read(undone.headers["location"])
        assert await room.listed() == [*SUBJECTS, "Re: An offer"], what
        assert await are_in_inbox() == {True}

    await room.person.sends("/decide/archive", await room.see(newest.id))
    _, told = (await desk.store.read(audit.entries, limit=1))[0]
    earlier = ", ".join(each.id for each in offers[1:])
    assert told.parameters == {"done": "archived", "earlier": earlier}
    at = find_undo(await room.read())
    await receive(desk, continue_offer(3, 12))
    await work(desk)
    assert "mails in this conversation" not in await room.read()
    await room.person.sends("/undo", {"at": at})
    assert await room.listed() == [*SUBJECTS, "Re: An offer"]
    assert "4 mails in this conversation" in await room.read()


@requirement("decide:conversation")
async def test_a_reply_that_the_person_sent_from_anywhere_ends_what_waits_of_its_conversation(
    room: Room,
) -> None:
    desk = room.desk
    me = "Me <me@example.com>"
    await receive(desk, continue_offer(1, 8, sender=me))
    await receive(desk, continue_offer(0, 9))
    await work(desk)
    await work(desk)
    assert (
        "An offer" in await room.listed()
    )  # an answer to an earlier mail is none to this one

    absent = b"Auto-Submitted: auto-replied\r\n" + continue_offer(2, 10, sender=me)
    passed_on = continue_offer(3, 10, sender=me).replace(b"Re: An", b"Fwd: An")
    await receive(desk, absent)
    await receive(desk, passed_on)
    await work(desk)
    assert "An offer" in await room.listed()

    await room.do("hand", "An offer", words="Compare it.")
    await receive(desk, continue_offer(4, 11))
    await work(desk)
    assert await room.listed() == [*SUBJECTS, "Re: An offer"]
    await receive(desk, continue_offer(5, 12, sender=me))
    await work(desk)
    assert await room.listed() == [*SUBJECTS]
    assert "with an assistant" not in await room.read()
    assert ["offer" in each.name for each in room.notes("Done")] == [True, True]
    told = await room.read("/timeline")
    assert "the desk, for your mail" in told


@requirement("decide:conversation")
async def test_mails_that_waited_before_conversations_were_known_are_put_together(
    room: Room,
) -> None:
    desk = room.desk
    await receive(desk, continue_offer(0, 9), continue_offer(1, 10))
    await work(desk)
    forget = "UPDATE steps SET thread = NULL, behind = NULL, state = 'needs_info'"
    await desk.store.write(lambda tx: tx.execute(forget))
    assert len(await room.listed()) == len(SUBJECTS) + 2
    await work(desk)
    assert await room.listed() == [*SUBJECTS, "Re: An offer"]


def intrude(number: int, hour: int) -> bytes:
    """A stranger's mail that says it answers the conversation about an offer."""
    mail = letter(
        sender="Sale <sale@shop.example>",
        subject="Re: An offer of ours",
        message_id=f"<sale-{number}@shop.example>",
        references=BEGUN,
        body="Buy now.",
    )
    return mail.replace(b"09:30:00", f"{hour:02}:30:00".encode())


@requirement("decide:conversation")
async def test_a_strangers_mail_stands_for_nobody_elses_whatever_it_says_that_it_answers(
    room: Room,
) -> None:
    desk = room.desk
    await receive(desk, continue_offer(0, 9))
    await work(desk)
    await receive(desk, intrude(1, 11))
    await work(desk)
    assert await room.listed() == [*SUBJECTS, "An offer", "Re: An offer of ours"]
    assert "mails in this conversation" not in await room.read()

    await receive(desk, continue_offer(1, 10), intrude(2, 12))
    await work(desk)
    assert await room.listed() == [*SUBJECTS, "Re: An offer", "Re: An offer of ours"]
    listed = await room.read()
    assert "the earlier from <bdi>ann@example.org</bdi>" in listed
    assert "the earlier from <bdi>sale@shop.example</bdi>" in listed

    bulk = b"List-Unsubscribe: <mailto:off@example.org>\r\n" + continue_offer(2, 13)
    await receive(desk, bulk.replace(b"Re: An offer", b"Our offers"))
    await work(desk)
    assert {"Re: An offer", "Our offers"} <= {*await room.listed()}


def pass_on(number: int, hour: int, sender: str, to: str) -> bytes:
    return continue_offer(number, hour, sender).replace(
        b"To: ann@example.org", f"To: me@example.com, {to}".encode()
    )


async def propose(desk: Desk, message_id: str, decision: str, **more: str) -> None:
    given = {"message_id": message_id, "decision": decision, "reasoning": "x"} | more
    async with Client(DeskServer("desk", triage_tools(desk))) as client:
        answer = await client.call_tool("propose_decision", given)
        assert not answer.is_error, answer.content
    await work(desk)


@requirement("decide:conversation")
@pytest.mark.parametrize("way", ["a rule", "an assistant", "a rejected draft", "deleted"])
async def test_what_somebody_else_decides_about_a_mail_lets_those_behind_it_wait_again(
    room: Room, way: str
) -> None:
    desk = room.desk
    boss, bob = "Boss <boss@work.example>", "Bob <bob@example.net>"
    await receive(
        desk, pass_on(0, 8, boss, "x@y.example"), pass_on(1, 9, boss, "bob@example.net")
    )
    await receive(desk, pass_on(2, 10, bob, "x@y.example"))
    await work(desk)
    assert await room.listed() == [*SUBJECTS, "Re: An offer"]
    (front,) = await desk.mailbox.search("from:bob", 5)
    assert "<bdi>boss@work.example</bdi>" in await room.read()
    before = {each.name for each in room.notes("Done") if "offer" in each.name}
    assert len(before) == 2

    match way:
        case "a rule":
            fields = {"by": "sender", "sender": "bob@example.net", "mail": front.id}
            asked = "&".join(f"{name}={value}" for name, value in fields.items())
            assert "boss@work.example" in await room.read(f"/decide/rule?{asked}")
            made = await room.person.sends("/decide/rule", fields | {"now": "1"})
            assert "many=1" in made.headers["location"]
            await work(desk)
        case "an assistant":
            await propose(desk, front.id, "archive")
        case "a rejected draft":
            await propose(desk, front.id, "draft_reply", reply_body="No.")
            assert await room.listed() == [*SUBJECTS]
            (card,), _ = await desk.waiting.cards()
            await desk.answers.reject(card.id, card.digest, "no", "person")
            await work(desk)
        case "deleted":
            assert isinstance(desk.mailbox, LocalMailbox)
            number = int(front.id[1:], 16)
            for table, column in (("labelled", "mail"), ("raw", "id"), ("mail", "id")):
                desk.mailbox._db.execute(
                    f"DELETE FROM {table} WHERE {column} = ?", (number,)
                )
            await propose(desk, front.id, "archive")

    assert await room.listed() == [*SUBJECTS, "Re: An offer"]
    opened = await room.read()
    assert "2 mails in this conversation" in opened
    assert "the earlier from <bdi>boss@work.example</bdi>" in opened
    waiting = [each for each in room.notes() if each.name in before]
    assert len(waiting) == 1
    said = frontmatter.parse(waiting[0].read_text()).frontmatter
    assert said["status"] == "needs_info"
    assert "continued_by" not in said


@requirement("decide:conversation")
async def test_an_open_page_decides_about_no_mail_that_it_did_not_show(room: Room) -> None:
    desk = room.desk
    await receive(desk, continue_offer(0, 8), continue_offer(2, 12))
    await work(desk)
    newest, _ = await desk.mailbox.search('subject:"An offer"', 5)
    shown = await room.see(newest.id)
    assert shown["seen"]
    await receive(desk, continue_offer(1, 11))
    await work(desk)
    decisions: dict[str, dict[str, str]] = {
        "archive": {},
        "later": {"until": "tomorrow"},
        "hand": {"words": "Compare them."},
        "reply": {"text": "We take it."},
    }
    for what, fields in decisions.items():
        for given in (shown, {"mail": newest.id}):
            refused = await room.person.sends(f"/decide/{what}", given | fields)
            assert refused.status_code == 422, what
            assert "came since you were shown it. Nothing was done." in refused.text
            assert "2 earlier mails" in refused.text
    assert ">\nWe take it.</textarea>" in refused.text
    assert len(await desk.mailbox.search("in:inbox subject:offer", 5)) == 3
    archived = await room.person.sends("/decide/archive", await room.see(newest.id))
    assert archived.status_code == 303
    assert await desk.mailbox.search("in:inbox subject:offer", 5) == []


@requirement("decide:conversation")
async def test_an_answer_to_a_stranger_ends_only_what_waits_of_the_stranger(
    room: Room,
) -> None:
    desk = room.desk
    await receive(desk, continue_offer(0, 9), intrude(1, 10))
    await work(desk)
    no = continue_offer(2, 11, "Me <me@example.com>")
    await receive(desk, no.replace(b"To: ann@example.org", b"To: sale@shop.example"))
    await work(desk)
    assert await room.listed() == [*SUBJECTS, "An offer"]
    yes = continue_offer(3, 12, "Me <me@example.com>")
    yes = yes.replace(b"To: ann@example.org", b"To: bob@example.net\r\nCc: Ann@Example.org")
    await receive(desk, yes)
    await work(desk)
    assert await room.listed() == [*SUBJECTS]


@requirement("decide:rule")
async def test_a_rule_also_archives_those_behind_a_mail_that_it_is_about(
    room: Room,
) -> None:
    desk = room.desk
    await receive(desk, continue_offer(0, 9), continue_offer(1, 10))
    await work(desk)
    fields = {"by": "sender", "sender": "ann@example.org", "now": "1"}
    made = await room.person.sends("/decide/rule", fields)
    assert f"many={2 + 3}" in made.headers["location"]
    await work(desk)
    assert await room.listed() == ["Weekly figures 46", "Weekly figures 47"]
