"""How notes are joined: links, backlinks, tags, daily notes and templates, as Obsidian has them."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.notes import links
from deskhand.notes.index import Index
from deskhand.notes.templates import format_date
from tests.home import Home
from tests.notes.test_obsidian_server import ok, refused
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

VAULT = {
    "Home.md": "---\nrelated: '[[Garden]]'\ntags: [Start, area/home]\n---\n"
    "[[Garden|my garden]], [[garden#Beds]], ![[Plan.png]], [far](Deep/My%20note.md), [web](https://a.b/Garden.md)\n"
    "[[Nowhere]] and `[[Code]]` #start #2026 #a/b, not a#tag\n```\n[[Fenced]] #fenced\n```\n%% [[Hidden]] #hidden %%\n",
    "Garden.md": "back to [[Home]] and [[My note]], [[../Home]] | a table [[Home\\|x]] |\n#Area/Home\n",
    "Deep/My note.md": "beside [[Other]], up [home](../Home.md), [[/Garden]], [[#Here]]\n",
    "Deep/Other.md": "---\ntags: one, two three\n---\n",
    "Other.md": "far away\n",
}


def furnish(vault: Path) -> None:
    for path, text in VAULT.items():
        (vault / path).parent.mkdir(exist_ok=True)
        (vault / path).write_text(text)


@requirement("notes:joined")
async def test_links_lead_where_obsidian_leads_them(notes: Client, home: Home) -> None:
    furnish(home.vault)

    found = await ok(notes, "get_links", path="Home.md")
    assert [(each["link"], each["path"]) for each in found["outgoing"]] == [
        ("Garden", "Garden.md"),
        ("garden", "Garden.md"),
        ("Deep/My note.md", "Deep/My note.md"),
    ]
    assert found["unresolved"] == ["Nowhere"]
    assert found["files"] == ["Plan.png"]
    assert found["backlinks"] == ["Deep/My note.md", "Garden.md"]
    beside = await ok(notes, "get_links", path="Deep/My note.md")
    assert [each["path"] for each in beside["outgoing"]] == [
        "Deep/Other.md",
        "Home.md",
        "Garden.md",
    ]
    assert beside["backlinks"] == ["Garden.md", "Home.md"]
    assert (await ok(notes, "get_links", path="Other.md"))["backlinks"] == []
    assert (await ok(notes, "get_links", path="Deep/Other.md"))["backlinks"] == [
        "Deep/My note.md"
    ]

    await ok(notes, "move_note", source="Deep/Other.md", destination="Deep/Gone.md")
    moved = await ok(notes, "get_links", path="Deep/My note.md")
    assert {"link": "Other", "path": "Other.md"} in moved["outgoing"]
    assert (await ok(notes, "get_links", path="Other.md"))["backlinks"] == [
        "Deep/My note.md"
    ]


@requirement("notes:joined")
async def test_tags_are_counted_by_note_without_regard_to_case(
    notes: Client, home: Home
) -> None:
    furnish(home.vault)

    found = await ok(notes, "list_tags")
    counted = {tag.casefold(): notes for tag, notes in found["tags"].items()}
    assert counted == {"start": 1, "area/home": 2, "a/b": 1, "one": 1, "two": 1, "three": 1}

    (home.vault / "Garden.md").write_text("#start\n")
    (home.vault / "Home.md").unlink()
    found = await ok(notes, "list_tags")
    assert found == {"tags": {"one": 1, "start": 1, "three": 1, "two": 1}}


@requirement("notes:joined")
def test_links_and_tags_are_right_before_anything_is_filed(tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    vault.mkdir()
    furnish(vault)
    for number in range(80):  # more than are filed at once
        (vault / f"n{number}.md").write_text(f"[[Garden]] #many #tag{number % 3}\n")
    cold = Index(vault, tmp_path / "cold.db", background=False)
    warm = Index(vault, tmp_path / "warm.db", background=False)
    warm.build()

    for index in (cold, warm):
        found, count = index.backlinks("Garden.md", 200)
        assert (len(found), count) == (82, 82)
        assert dict(index.tags())["many"] == 80
        assert [*index.paths_named("OTHER")] == ["Deep/Other.md", "Other.md"]
    assert {tag.casefold(): notes for tag, notes in cold.tags()} == {
        tag.casefold(): notes for tag, notes in warm.tags()
    }
    assert cold.backlinks("Garden.md", 200) == warm.backlinks("Garden.md", 200)
    cold.close()
    warm.close()


@requirement("notes:joined")
@pytest.mark.parametrize(
    ("target", "holder", "meant"),
    [
        ("x", "A/h.md", "A/x.md"),
        ("x", "h.md", "x.md"),
        ("x", "C/h.md", "x.md"),
        ("B/x", "A/h.md", "A/B/x.md"),
        ("/B/x", "A/h.md", "B/x.md"),
        ("../x", "A/h.md", "x.md"),
        ("./X.MD", "A/h.md", "A/x.md"),
        ("C/x", "A/h.md", None),
    ],
)
def test_a_link_means_the_note_beside_it_then_the_one_at_that_path(
    target: str, holder: str, meant: str | None
) -> None:
    assert links.resolve(target, holder, ["x.md", "A/x.md", "B/x.md", "A/B/x.md"]) == meant


@requirement("notes:daily")
@pytest.mark.parametrize(
    ("day", "week"),
    [
        ("0001-01-01", "0001 w01"),
        ("2026-12-27", "2027 w01"),
        ("2028-12-30", "2028 w53"),
        ("2028-12-31", "2029 w01"),
        ("9999-12-25", "9999 w52"),
        ("9999-12-31", "10000 w01"),
    ],
)
async def test_every_day_that_there_is_has_a_note_and_a_week(
    notes: Client, home: Home, day: str, week: str
) -> None:
    assert (await ok(notes, "daily_note", date=day))["date"] == day
    file = home.vault / ".obsidian" / "daily-notes.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"format": "gggg [w]ww GGGG W X x"}))
    assert (await ok(notes, "daily_note", date=day))["path"].startswith(week)


@requirement("notes:daily")
async def test_the_daily_note_is_obsidians_own(notes: Client, home: Home) -> None:
    def set_up(name: str, **options: Any) -> None:
        file = home.vault / ".obsidian" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(options))

    assert (await ok(notes, "daily_note", date="2026-02-03"))["path"] == "2026-02-03.md"
    set_up(
        "daily-notes.json",
        folder="/Daily/",
        format="YYYY/[week] WW/ddd Do MMMM",
        template="Templates/day",
    )
    (home.vault / "Templates").mkdir()
    template = "---\r\nday: {{date}}\r\n---\r\n# {{title}}, {{ date:dddd }}\r\n{{time:HH}}h {{unknown}}\r\n"
    (home.vault / "Templates" / "day.md").write_bytes(template.encode())

    missing = await ok(notes, "daily_note", date="2026-02-03")
    made = await ok(notes, "daily_note", date="2026-02-03", create=True)
    again = await ok(notes, "daily_note", date="2026-02-03", create=True)

    path = "Daily/2026/week 06/Tue 3rd February.md"
    assert missing == {
        "path": path,
        "date": "2026-02-03",
        "exists": False,
        "created": False,
    }
    assert (made["path"], made["created"], again["created"], again["etag"]) == (
        path,
        True,
        False,
        made["etag"],
    )
    written = (home.vault / path).read_bytes()
    assert written.startswith(
        b"---\r\nday: 2026-02-03\r\n---\r\n# Tue 3rd February, Tuesday\r\n"
    )
    assert written.endswith(b"h {{unknown}}\r\n")

    set_up(
        "plugins/periodic-notes/data.json",
        daily={"enabled": True, "folder": "P", "format": ""},
    )
    assert (await ok(notes, "daily_note", date="2026-02-03"))["path"] == "P/2026-02-03.md"
    set_up("plugins/periodic-notes/data.json", daily={"enabled": False})
    set_up("daily-notes.json", folder="Approved")
    assert (await refused(notes, "daily_note", create=True))["details"][
        "reason"
    ] == "protected"
    set_up("daily-notes.json", folder="../out")
    assert (await refused(notes, "daily_note", create=True))["details"][
        "reason"
    ] == "outside"
    (home.vault / ".obsidian" / "daily-notes.json").write_text("{")
    assert (await refused(notes, "daily_note"))["error"] == "parse_error"
    assert (await refused(notes, "daily_note", date="soon"))["error"] == "parse_error"


@requirement("notes:daily")
async def test_a_template_is_filled_once_and_cannot_break_the_properties(
    notes: Client, home: Home
) -> None:
    (home.vault / "T.md").write_text(
        '---\nname: {{who}}\nabout: "on {{topic}}"\n---\n{{who}} {{title}} {{none}}\n'
    )
    values = {"who": "Ann: {{title}} # 1", "topic": "roses"}

    made = await ok(
        notes, "create_from_template", template="T", path="People/Ann.md", values=values
    )
    broken = await refused(
        notes,
        "create_from_template",
        template="T",
        path="b.md",
        values={"who": 1, "topic": 'x"\ny: 1'},
    )

    note = await ok(notes, "read_note", path="People/Ann.md")
    assert made == {"path": "People/Ann.md", "etag": note["etag"], "left": ["none"]}
    assert note["frontmatter"] == {"name": "Ann: {{title}} # 1", "about": "on roses"}
    assert note["body"] == "Ann: {{title}} # 1 Ann {{none}}\n"
    assert broken["error"] == "parse_error"
    assert not (home.vault / "b.md").exists()


@requirement("notes:daily")
@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        ("YYYY-MM-DD", "2026-01-01"),
        ("YY M D", "26 1 1"),
        ("dddd, MMMM Do YYYY", "Thursday, January 1st 2026"),
        ("ddd dd d E", "Thu Th 4 4"),
        ("gggg-[W]ww GGGG-[W]WW", "2026-W01 2026-W01"),
        ("DDD DDDD Q", "1 001 1"),
        ("HH:mm:ss h:mm A a", "15:04:05 3:04 PM pm"),
        ("[the] Do [day]", "the 1st day"),
        ("LL", "January 1, 2026"),
        ("Z ZZ X", "+00:00 +0000 1767279845"),
        ("\\\\YYYY [a]b] [] \\\\ll".replace("\\\\", "\\"), "YYYY a]b  ll"),
        ("l, ll; llll", "1/1/2026, Jan 1, 2026; Thu, Jan 1, 2026 3:04 PM"),
        (
            "YYYY/MM-MMMM/[week] wo, y yo NNNN[.]z",
            "2026/01-January/week 1st, 2026 2026th Anno Domini.",
        ),
    ],
)
def test_dates_are_written_as_moment_writes_them(pattern: str, written: str) -> None:
    assert format_date(pattern, datetime(2026, 1, 1, 15, 4, 5, tzinfo=UTC)) == written


@requirement("notes:daily")
@pytest.mark.parametrize(
    "title", ["C #1", "[x]", "'quoted", "2026-02-03", "yes", "- a", "@home"]
)
async def test_a_title_in_the_properties_is_read_as_it_is_written(
    notes: Client, home: Home, title: str
) -> None:
    (home.vault / "T.md").write_text("---\nname: {{title}}\n---\n")

    await ok(notes, "create_from_template", template="T", path=f"{title}.md", values={})

    assert (await ok(notes, "read_note", path=f"{title}.md"))["frontmatter"] == {
        "name": title
    }


@requirement("notes:joined")
def test_links_are_read_in_every_form_that_markdown_has() -> None:
    written = """[x](a(1).md "t") [x](b.md 't') [x]( c.md ) [x](d\\\\(1\\\\).md) [x](<e (2).md> "t") [x](My%20f.md#H)
    [[g#^id|h]] ![[i#J]] [x](mailto:a@b) [x](#here) [x](//host/y) [x](k
    """.replace("\\\\", "\\")
    names = ["a(1).md", "b.md", "c.md", "d(1).md", "e (2).md", "My f.md", "g", "i"]
    assert links.targets({}, written) == names


@requirement("notes:daily")
@pytest.mark.parametrize(
    ("day", "week"),
    [
        ("2025-12-27", "2025-W52"),
        ("2025-12-28", "2026-W01"),
        ("2022-01-01", "2022-W01"),
        ("2022-01-02", "2022-W02"),
    ],
)
def test_a_week_begins_on_sunday_and_the_first_has_new_year_in_it(
    day: str, week: str
) -> None:
    assert (
        format_date("gggg-[W]ww", datetime.fromisoformat(f"{day}T12:00:00+00:00")) == week
    )


@requirement("notes:daily")
async def test_a_format_may_name_the_ending_and_begin_at_the_top(
    notes: Client, home: Home
) -> None:
    (home.vault / ".obsidian").mkdir()
    settings = {"folder": "Daily", "format": "/YYYY/MM-DD[.md]"}
    (home.vault / ".obsidian" / "daily-notes.json").write_text(json.dumps(settings))

    assert (await ok(notes, "daily_note", date="2026-02-03"))[
        "path"
    ] == "Daily/2026/02-03.md"


@requirement("notes:daily")
def test_today_is_the_persons_day(home: Home, desk: Desk) -> None:
    desk.settings = desk.settings.model_copy(update={"timezone": "Pacific/Kiritimati"})
    desk.now = lambda: datetime(2026, 1, 31, 12, tzinfo=UTC)

    assert desk.vault.daily(None).path == "2026-02-01.md"


@requirement("notes:daily")
@pytest.mark.parametrize("name", ["daily-notes.json", "templates.json"])
@pytest.mark.parametrize(
    "text",
    [
        '{"folder": 1, "format": ["x"], "template": {}, "dateFormat": 2, "timeFormat": []}',
        '{"folder": null, "format": true, "template": 0}',
        "[1, 2]",
        '"text"',
        '{"format": "\\ud800", "folder": "\\ud800"}',
        '{"folder": "../..", "template": "/etc/passwd"}',
        '{"format": "' + "Y" * 100_000 + '"}',
        "[" * 100_000,
        "\x00",
    ],
)
async def test_settings_of_obsidian_that_make_no_sense_cost_no_crash(
    notes: Client, home: Home, name: str, text: str
) -> None:
    (home.vault / "Templates").mkdir()
    (home.vault / "Templates" / "day.md").write_text("{{date}} {{time}}\n")
    file = home.vault / ".obsidian" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    calls = (
        ("daily_note", {"date": "2026-02-03", "create": True}),
        ("create_from_template", {"template": "Templates/day.md", "path": "a.md"}),
        ("create_from_template", {"template": "no such", "path": "b.md"}),
    )
    for tool, arguments in calls:
        said = await notes.call_tool(tool, arguments)
        assert "internal_error" not in said.content[0].text
        assert "unexpected error" not in said.content[0].text
