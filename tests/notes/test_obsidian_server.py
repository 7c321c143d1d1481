"""Seed 000's notes server, through an MCP client, over every transport and in both protocol eras."""

import json
from typing import Any

import pytest
from dirty_equals import IsStr
from mcp import Client

from tests.home import Home
from tests.requirements import requirement
from tests.transports import Connect

pytestmark = pytest.mark.anyio


async def ok(client: Client, name: str, /, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def refused(client: Client, name: str, /, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    assert result.is_error
    assert result.structured_content is None
    error: dict[str, Any] = json.loads(result.content[0].text)
    assert set(error) == {"error", "message", "details"}
    return error


@requirement("notes:contract")
async def test_a_note_goes_its_way_from_written_to_moved(connect: Connect) -> None:
    async with connect() as client:
        properties = {
            "status": "pending",
            "tags": ["a", "b"],
            "count": 3,
            "due": "2026-02-24",
            "done": False,
        }
        written = await ok(
            client,
            "write_note",
            path="Inbox/one.md",
            frontmatter=properties,
            body="# One\n\nText.\n",
        )
        assert written == {
            "path": "Inbox/one.md",
            "frontmatter": properties,
            "body": "# One\n\nText.\n",
            "etag": IsStr(),
        }
        assert await ok(client, "read_note", path="Inbox/one.md") == written

        listed = {"notes": [{"path": "Inbox/one.md", "snippet": None}]}
        assert await ok(client, "list_notes", directory="Inbox") == listed
        assert (
            await ok(client, "list_notes", directory="Inbox", filter="status:pending")
            == listed
        )
        assert await ok(client, "list_notes", directory="Inbox", filter="status:done") == {
            "notes": []
        }
        found = await ok(client, "search_notes", query="text")
        assert found == {
            "notes": [{"path": "Inbox/one.md", "snippet": IsStr(regex=".*Text.*")}]
        }
        words = await ok(client, "search_notes", query="text one")
        assert [note["path"] for note in words["notes"]] == ["Inbox/one.md"]

        assert await ok(
            client, "move_note", source="Inbox/one.md", destination="Archive/2026/one.md"
        ) == {"moved": True}
        assert (await refused(client, "read_note", path="Inbox/one.md"))[
            "error"
        ] == "not_found"
        assert (await ok(client, "read_note", path="Archive/2026/one.md"))[
            "frontmatter"
        ] == properties
        deeper = await ok(client, "list_notes", directory="Archive")
        assert [note["path"] for note in deeper["notes"]] == ["Archive/2026/one.md"]


@requirement("notes:contract")
async def test_the_errors_are_the_seeds(connect: Connect, home: Home) -> None:
    (home.vault / "broken.md").write_text("---\nstatus: [open\n---\nbody\n")
    (home.vault / "taken.md").write_text("taken\n")
    (home.vault / "free.md").write_text("free\n")
    async with connect() as client:
        assert (await refused(client, "read_note", path="none.md"))["error"] == "not_found"
        assert (await refused(client, "list_notes", directory="None"))[
            "error"
        ] == "not_found"
        assert (await refused(client, "read_note", path="../outside.md"))[
            "error"
        ] == "permission_denied"
        assert (await refused(client, "read_note", path="broken.md"))[
            "error"
        ] == "parse_error"
        assert (await refused(client, "list_notes", directory="", filter="status"))[
            "error"
        ] == "parse_error"
        for path in ("broken.md", "free.txt"):
            left = await refused(
                client, "write_note", path=path, frontmatter={}, body="new\n"
            )
            assert left["error"] == "parse_error"
        assert (home.vault / "broken.md").read_text().endswith("body\n")
        assert not (home.vault / "free.txt").exists()

        occupied = await refused(
            client, "move_note", source="free.md", destination="taken.md"
        )
        assert (occupied["error"], occupied["details"]["reason"]) == (
            "permission_denied",
            "exists",
        )
        stale = await refused(
            client,
            "write_note",
            path="free.md",
            frontmatter={},
            body="new",
            if_match="0" * 32,
        )
        assert (stale["error"], stale["details"]["reason"]) == (
            "permission_denied",
            "changed",
        )
        closed = await refused(
            client, "write_note", path="Approved/x.md", frontmatter={}, body=""
        )
        assert (closed["error"], closed["details"]["reason"]) == (
            "permission_denied",
            "protected",
        )

        invalid = await refused(
            client, "write_note", path="x.md", frontmatter="text", body=7, colour="red"
        )
        assert invalid["error"] == "parse_error"
        assert {field["field"] for field in invalid["details"]["fields"]} == {
            "frontmatter",
            "body",
            "colour",
        }
    assert (home.vault / "taken.md").read_text() == "taken\n"
    assert (home.vault / "free.md").read_text() == "free\n"


async def test_long_lists_and_searches_come_in_pages(notes: Client, home: Home) -> None:
    for number in range(25):
        (home.vault / f"note-{number:02}.md").write_text(f"word {number}\n")

    for tool, arguments in (
        ("list_notes", {"directory": ""}),
        ("search_notes", {"query": "word"}),
    ):
        first = await ok(notes, tool, limit=10, **arguments)
        second = await ok(notes, tool, limit=10, cursor=first["next_cursor"], **arguments)
        third = await ok(notes, tool, limit=10, cursor=second["next_cursor"], **arguments)

        assert first["total"] == 25
        assert "next_cursor" not in third
        paths = [note["path"] for page in (first, second, third) for note in page["notes"]]
        assert sorted(paths) == [f"note-{number:02}.md" for number in range(25)]
    for asked in ({"query": "word", "cursor": "nonsense"}, {"query": ""}):
        assert (await refused(notes, "search_notes", **asked))["error"] == "parse_error"


@requirement("notes:contract")
async def test_filters_compare_as_text_without_case_and_look_into_lists(
    notes: Client, home: Home
) -> None:
    (home.vault / "a.md").write_text(
        "---\nstatus: Pending\ntags: [A, b]\npriority: 2\nurgent: true\n"
        "wide: ' a  b '\nnone:\ntilde: ~\n---\n"
    )

    for text in (
        "status:pending",
        "STATUS:PENDING",
        "tags:a",
        "tags:B",
        "priority:2",
        "urgent:true",
        "status: pending",
        "wide: a  b ",
        "none:",
        "none:null",
        "tilde:null",
    ):
        assert (await ok(notes, "list_notes", directory="", filter=text))["notes"], text
    for text in ("status:pend", "tags:c", "priority:02", "other:x", "status:null"):
        assert (await ok(notes, "list_notes", directory="", filter=text))["notes"] == [], (
            text
        )


async def test_search_finds_words_phrases_prefixes_and_substrings_in_names_values_and_bodies(
    notes: Client, home: Home
) -> None:
    (home.vault / "Budget plan.md").write_text(
        "---\nowner: Jürgen Müller\n---\nThe quick brown fox jumps.\n東京都に行く\n"
    )
    (home.vault / "other.md").write_text("brown and quick\n")

    for query in (
        "budget",
        "müller",
        "JÜRGEN",
        "quick brown",
        "jum",
        "rown fo",
        "東京",
        "都に",
        "行",
    ):
        found = await ok(notes, "search_notes", query=query)
        assert found["notes"][0]["path"] == "Budget plan.md", query
    both = await ok(notes, "search_notes", query="quick brown")
    assert [note["path"] for note in both["notes"]] == ["Budget plan.md", "other.md"]
    assert (await ok(notes, "search_notes", query="owner"))["notes"] == []


async def test_the_frontmatter_may_come_as_the_text_of_an_object(notes: Client) -> None:
    written = await ok(notes, "write_note", path="x.md", frontmatter='{"a": 1}', body="")

    assert written["frontmatter"] == {"a": 1}


async def test_merging_keeps_the_keys_that_were_not_given(
    notes: Client, home: Home
) -> None:
    (home.vault / "x.md").write_text("---\nstatus: pending # for now\nfrom: a\n---\nbody\n")

    await ok(
        notes,
        "write_note",
        path="x.md",
        frontmatter={"status": "done"},
        body="body\n",
        merge=True,
    )

    assert (
        home.vault / "x.md"
    ).read_text() == "---\nstatus: done # for now\nfrom: a\n---\nbody\n"


async def test_writes_and_attempts_at_protected_folders_are_on_the_record(
    notes: Client, home: Home
) -> None:
    await ok(
        notes,
        "write_note",
        path="a.md",
        frontmatter={"to": "john.doe@example.com"},
        body="secret words",
    )
    await refused(
        notes, "write_note", path="approved/a.md", frontmatter={}, body="secret words"
    )
    await ok(notes, "read_note", path="a.md")

    lines = [json.loads(line) for line in home.command("log", "--json").stdout.splitlines()]

    assert [(line["action_type"], line["target"], line["result"]) for line in lines] == [
        ("write_note", "a.md", "success"),
        ("write_note", "approved/a.md", "rejected"),
    ]
    assert "secret" not in json.dumps(lines)
    assert "john.doe" not in json.dumps(lines)


async def test_the_tools_are_small_and_titled(notes: Client) -> None:
    listed = (await notes.list_tools()).tools

    contract, more = listed[:5], listed[5:]
    assert [tool.name for tool in contract] == [
        "read_note",
        "write_note",
        "list_notes",
        "move_note",
        "search_notes",
    ]
    assert {tool.name for tool in more} == {
        *(
            "append_note",
            "edit_note",
            "get_links",
            "list_tags",
            "get_outline",
            "daily_note",
            "create_from_template",
        )
    }
    assert all(
        tool.title and tool.description and len(tool.description.splitlines()) <= 3
        for tool in listed
    )
    assert sum(len(tool.model_dump_json(exclude_none=True)) for tool in contract) < 6000
    assert sum(len(tool.model_dump_json(exclude_none=True)) for tool in more) < 9000
