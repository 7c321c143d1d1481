import pytest
from mcp import Client

from deskhand.notes.links import Move, relink
from tests.home import Home
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

RENAMED = Move(
    "Projects/Old name.md",
    "Archive/New name.md",
    old_name_is_unique=True,
    new_name_is_unique=True,
)


@requirement("notes:links-follow")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[[Old name]]", "[[New name]]"),
        ("[[old NAME]]", "[[New name]]"),
        ("![[Old name]]", "![[New name]]"),
        ("[[Old name|the old one]]", "[[New name|the old one]]"),
        ("[[Old name#Part two]]", "[[New name#Part two]]"),
        ("[[Old name#^block|x]]", "[[New name#^block|x]]"),
        ("[[Old name.md]]", "[[New name.md]]"),
        ("[[Projects/Old name]]", "[[Archive/New name]]"),
        ("[[/Projects/Old name]]", "[[Archive/New name]]"),
        ("[x](Projects/Old%20name.md)", "[x](Archive/New%20name.md)"),
        ("[x](<Projects/Old name.md>)", "[x](<Archive/New name.md>)"),
        ("[x](/Projects/Old%20name.md#part)", "[x](/Archive/New%20name.md#part)"),
        ('[x](Projects/Old%20name.md "title")', '[x](Archive/New%20name.md "title")'),
        (
            "[[Other]] [[Old name 2]] [[Elsewhere/Old name]]",
            "[[Other]] [[Old name 2]] [[Elsewhere/Old name]]",
        ),
        (
            "[x](https://example.org/Projects/Old%20name.md)",
            "[x](https://example.org/Projects/Old%20name.md)",
        ),
        ("```\n[[Old name]]\n```\n[[Old name]]", "```\n[[Old name]]\n```\n[[New name]]"),
        ("---\nup: '[[Old name]]'\n---\nx", "---\nup: '[[New name]]'\n---\nx"),
    ],
)
def test_a_link_follows_in_the_form_in_which_it_was_written(
    before: str, after: str
) -> None:
    assert relink(before, "Index.md", RENAMED) == after


def test_a_relative_link_follows_from_where_it_stands() -> None:
    assert (
        relink("[x](Old%20name.md)", "Projects/Index.md", RENAMED)
        == "[x](../Archive/New%20name.md)"
    )
    assert (
        relink("[x](../Projects/Old%20name.md)", "Deep/Index.md", RENAMED)
        == "[x](../Archive/New%20name.md)"
    )


def test_a_bare_name_that_two_notes_share_is_left_alone_or_made_exact() -> None:
    shared = Move("a/x.md", "b/x.md", old_name_is_unique=False, new_name_is_unique=False)
    taken = Move("a/x.md", "b/y.md", old_name_is_unique=True, new_name_is_unique=False)

    assert relink("[[x]] [[a/x]]", "i.md", shared) == "[[x]] [[b/x]]"
    assert relink("[[x]]", "i.md", taken) == "[[b/y]]"


@requirement("notes:links-follow")
async def test_links_follow_only_when_asked_and_never_into_protected_folders(
    notes: Client, home: Home
) -> None:
    for folder in ("Projects", "Approved"):
        (home.vault / folder).mkdir()
    (home.vault / "Projects" / "plan.md").write_text("the plan\n")
    (home.vault / "index.md").write_bytes(b"see [[plan]]\r\n")
    (home.vault / "Approved" / "said.md").write_text("yes to [[plan]]\n")
    (home.vault / "latin.md").write_bytes(b"[[plan]] caf\xe9\n")

    silent = await notes.call_tool(
        "move_note", {"source": "Projects/plan.md", "destination": "Projects/idea.md"}
    )
    asked = await notes.call_tool(
        "move_note",
        {"source": "Projects/idea.md", "destination": "plan.md", "update_links": True},
    )
    renamed = await notes.call_tool(
        "move_note", {"source": "plan.md", "destination": "goal.md", "update_links": True}
    )

    assert silent.structured_content == {"moved": True}
    assert asked.structured_content == {"moved": True, "links_updated": 0}
    assert renamed.structured_content == {
        "moved": True,
        "links_updated": 1,
        "links_left": ["latin.md", "Approved/said.md"],
    }
    assert (home.vault / "index.md").read_bytes() == b"see [[goal]]\r\n"
    assert (home.vault / "Approved" / "said.md").read_text() == "yes to [[plan]]\n"
    assert (home.vault / "latin.md").read_bytes() == b"[[plan]] caf\xe9\n"
