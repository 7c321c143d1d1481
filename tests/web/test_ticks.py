"""Checkboxes of a note are ticked on the page: one byte, on the record, and never over what somebody else saved."""

import re
from html import unescape
from typing import Any

import pytest

from deskhand import audit
from deskhand.app import Desk
from deskhand.web.site import site
from tests.requirements import requirement
from tests.web.browser import (
    chromium,
    judged,
    needs_axe,
    needs_chromium,
    quiet_page,
    sign_in,
)
from tests.web.person import Person, served
from tests.web.test_approvals_page import clock as clock  # noqa: PLC0414 - a fixture
from tests.web.test_approvals_page import desk as desk  # noqa: PLC0414 - a fixture
from tests.web.test_approvals_page import person as person  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.anyio
NOTE = (
    "---\r\ntags: [garden]\r\n---\r\n# Saturday\r\n\r\n- [ ] water **the roses**\r\n"
    "  - [x] nested\n    1. [ ] deeper\n\n> [!todo] Before noon\n> - [ ] in a callout\n>   - [X] below it\n\n"
    "```\n- [ ] in a fence\n```\n\n    - [ ] indented\n\n- [/] half done\n- [ ]no box\n* [ ] last"
)
AT = "/notes/open?path=Saturday.md"


def put(desk: Desk, text: str = NOTE, name: str = "Saturday.md") -> Any:
    file = desk.settings.vault / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text.encode())
    return file


async def boxes(person: Person, at: str = AT) -> dict[str, tuple[str, str]]:
    page = (await person.reads(at)).text
    return {
        unescape(name): (line, ticked)
        for line, ticked, name in (
            _fields(each) for each in re.findall(r"<button[^>]*>", page)
        )
        if line
    }


def _fields(tag: str) -> tuple[str, str, str]:
    found = dict(re.findall(r'([a-z-]+)="([^"]*)"', tag))
    if found.get("form") != "tick":
        return "", "", ""
    return found["value"], found["aria-checked"], found["aria-label"]


async def hidden(person: Person, name: str, at: str = AT) -> str:
    page = (await person.reads(at)).text
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    return unescape(found[1]) if found else ""


async def tick(person: Person, line: str, **changes: str) -> Any:
    fields = {"path": "Saturday.md", "etag": await hidden(person, "etag"), "line": line}
    return await person.sends("/notes/tick", fields | changes, AT)


@requirement("page:ticks")
async def test_a_tick_changes_one_byte_wherever_the_box_stands_and_is_on_the_record(
    desk: Desk, person: Person
) -> None:
    file = put(desk)
    found = await boxes(person)
    assert {name: ticked for name, (_, ticked) in found.items()} == {
        "water the roses": "false",
        "nested": "true",
        "deeper": "false",
        "in a callout": "false",
        "below it": "true",
        "last": "false",
    }

    for name, (line, ticked) in found.items():
        before = file.read_bytes()
        done = await tick(person, line)
        after = file.read_bytes()
        assert done.status_code == 303, done.text
        assert done.headers["location"].endswith(f"#box-{line}")
        assert (await boxes(person))[name] == (
            line,
            {"true": "false", "false": "true"}[ticked],
        )
        changed = [at for at in range(len(before)) if before[at] != after[at]]
        assert (len(after), len(changed)) == (len(before), 1), name
        said = before.replace(b"**", b"")
        assert said.splitlines()[before[: changed[0]].count(b"\n")].endswith(name.encode())

    lines = await desk.store.read(lambda tx: audit.entries(tx, limit=6))
    assert {(entry.actor, entry.action_type) for _, entry in lines} == {
        ("person", "tick_checkbox"),
        ("person", "untick_checkbox"),
    }
    assert {entry.target for _, entry in lines} == {"Saturday.md"}


@requirement("page:ticks")
async def test_a_note_that_changed_meanwhile_is_shown_anew_and_nothing_is_written(
    desk: Desk, person: Person
) -> None:
    file = put(desk)
    etag = await hidden(person, "etag")
    put(desk, NOTE.replace("# Saturday", "# Sunday"))

    refused = await tick(person, "2", etag=etag)

    assert "The note was changed since you opened it" in refused.text
    assert "Sunday" in refused.text
    assert file.read_bytes() == NOTE.replace("# Saturday", "# Sunday").encode()
    assert (await tick(person, "2")).status_code == 303
    assert "- [x] water" in file.read_text()


@requirement("page:ticks")
@pytest.mark.parametrize("line", ["0", "11", "14", "16", "17", "999", "-1", "x", ""])
async def test_no_other_line_can_be_ticked(desk: Desk, person: Person, line: str) -> None:
    file = put(desk)
    assert (await tick(person, line)).status_code in (412, 422)
    assert file.read_bytes() == NOTE.encode()


@requirement("page:ticks")
async def test_what_the_desk_decides_by_and_the_boxes_of_another_note_cannot_be_ticked(
    desk: Desk, person: Person
) -> None:
    file = put(desk, "- [ ] send it\n", "Approved/x.md")
    put(desk)
    put(desk, "![[Saturday]]\n\n- [ ] mine\n", "Other.md")
    assert await boxes(person, "/notes/open?path=Approved/x.md") == {}
    assert [*await boxes(person, "/notes/open?path=Other.md")] == ["mine"]

    etag = desk.vaults.vault(desk.vaults.names[0]).read("Approved/x.md").etag
    assert (await tick(person, "0", path="Approved/x.md", etag=etag)).status_code == 403
    assert file.read_text() == "- [ ] send it\n"


@needs_chromium
@needs_axe
@requirement("page:ticks")
@pytest.mark.parametrize("javascript", [True, False])
async def test_a_box_is_ticked_by_a_click_and_by_enter(
    desk: Desk, javascript: bool
) -> None:
    file = put(desk)
    async with (
        served(site(desk)) as address,
        chromium() as browser,
        quiet_page(browser, address, javascript=javascript) as page,
    ):
        await sign_in(page, desk)
        await page.goto(AT)
        box = page.get_by_role("checkbox", name="in a callout")
        await box.click()
        await page.wait_for_url("**#box-*")
        assert await box.is_checked()
        assert "> - [x] in a callout" in file.read_text()
        await box.focus()
        await page.keyboard.press("Enter")
        await page.wait_for_url("**done=untick*")
        assert not await box.is_checked()
        assert file.read_bytes() == NOTE.encode()
        if javascript:
            assert await judged(page) == []
