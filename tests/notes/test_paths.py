"""Attempts to leave the vault or to reach a folder in which only a person decides."""

import os
import threading
import unicodedata
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.errors import DeskError
from deskhand.notes import disk
from tests.home import Home
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

PROTECTED = ("Approved", "Rejected", "Pending_Approval", "Drafts", "Done", "Logs")

TRICKS = [
    "Approved/x.md",
    "approved/x.md",
    "APPROVED/x.md",
    "aPPROVED/deep/er/x.md",
    "Pending_Approval/x.md",
    "pending_approval/x.md",
    "Rejected/x.md",
    "Done/x.md",
    "DONE/x.md",
    "Logs/x.md",
    "logs/actions/x.md",
    "Drafts/x.md",
    "drafts/x.md",
    "DRAFTS/deep/er/x.md",
    "./Drafts/x.md",
    "Inbox/../Drafts/x.md",
    "Drafts./x.md",
    "Drafts /x.md",
    "Drafts\u00a0/x.md",
    "Dra\u200bfts/x.md",
    "Dr\u00adafts/x.md",
    "\ufeffDrafts/x.md",
    "Drafts\ufe0f/x.md",
    "Ｄｒａｆｔｓ/x.md",
    "ⒹⓇⒶⒻⓉⓈ/x.md",
    "𝐃rafts/x.md",
    "ᴰrafts/x.md",
    "Draftſ/x.md",
    "Drafts／x.md",
    "Drafts\\x.md",
    "~/Drafts/x.md",
    "drafts-link/x.md",
    "drafts-link.md",
    "./Approved/x.md",
    "Approved/./x.md",
    "Approved//x.md",
    "//Approved/x.md",
    "/Approved/x.md",
    "Inbox/../Approved/x.md",
    "Inbox/./../Approved/x.md",
    "../vault/Approved/x.md",
    "../x.md",
    "../../x.md",
    "..",
    "../",
    "Inbox/..",
    "Approved./x.md",
    "Approved../x.md",
    "Approved /x.md",
    " Approved/x.md",
    "Approved\t/x.md",
    "Approved\u00a0/x.md",
    "Approved\u3000/x.md",
    "Approved\u200b/x.md",
    "Appro\u200dved/x.md",
    "App\u00adroved/x.md",
    "\ufeffApproved/x.md",
    "Approved\ufe0f/x.md",
    "Ａｐｐｒｏｖｅｄ/x.md",
    "ⒶⓅⓅⓇⓄⓋⒺⒹ/x.md",
    "𝐀pproved/x.md",
    "Dºne/x.md",
    "ᴰone/x.md",
    "Logſ/x.md",
    "Approved\u034f/x.md",
    "App\u17b4roved/x.md",
    "Approved\u2800/x.md",
    "Аpproved/x.md",
    "Аррrоvеd/x.md",
    "Αpproved/x.md",
    "approvеԁ/x.md",
    "A\u0301pproved/x.md",
    "Approve\u0334d/x.md",
    "Appr0ved/x.md",
    "Approvecl/x.md",
    "Rejecteԁ/x.md",
    "D\u043ene/x.md",
    "ᴅᴏɴᴇ/x.md",
    "Ꭰone/x.md",
    "Loɡs/x.md",
    "1ogs/x.md",
    "|ogs/x.md",
    "Pending\u02cdApproval/x.md",
    "Pendlng_Approva1/x.md",
    "Needs_Actiоn/x.md",
    "Needs_Action\u200b/x.md",
    "Рlans/x.md",
    "Approved\\x.md",
    "Inbox\\..\\Approved\\x.md",
    "Inbox／..／Approved/x.md",
    "Approved／x.md",
    "Inbox/..⁄Approved/x.md",
    "C:\\vault\\Approved\\x.md",
    "C:/Approved/x.md",
    "Approved:stream/x.md",
    "Approved/x.md::$DATA",
    "Approved\0/x.md",
    "Inbox/x.md\0.txt",
    "Approved/x\n.md",
    "~/Approved/x.md",
    "~root/x.md",
    ".obsidian/x.md",
    ".OBSIDIAN/x.md",
    "．obsidian/x.md",
    "Inbox/.hidden/x.md",
    ".git/hooks/x.md",
    "Inbox/.x.md",
    "…/x.md",
    "link/x.md",
    "Inbox/link/x.md",
    "outside/x.md",
    "loop/x.md",
    "link.md",
    "outside.md",
    "dangling.md",
    "dangling/x.md",
    "hard.md",
    "fifo.md",
    "a/" * 70 + "x.md",
    "x" * 300 + ".md",
]


def everything(folder: Path) -> dict[str, Any]:
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.read_bytes() if path.is_file() else None,
        )
        for path in sorted(folder.rglob("*"))
        if not path.is_fifo()
    }


@pytest.fixture
def trapped(home: Home, tmp_path: Path) -> Path:
    """A vault with links that lead to where no tool may write."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("secret")
    for name in PROTECTED:
        (home.vault / name).mkdir()
        (home.vault / name / "there.md").write_text("the person's")
    (home.vault / "Inbox").mkdir()
    (home.vault / "Inbox" / "mine.md").write_text("mine")
    (home.vault / "link").symlink_to("Approved")
    (home.vault / "Inbox" / "link").symlink_to("../Approved")
    (home.vault / "outside").symlink_to(outside)
    (home.vault / "loop").symlink_to("loop")
    (home.vault / "link.md").symlink_to("Approved/there.md")
    (home.vault / "drafts-link").symlink_to("Drafts")
    (home.vault / "drafts-link.md").symlink_to("Drafts/there.md")
    (home.vault / "outside.md").symlink_to(outside / "secret.md")
    (home.vault / "dangling.md").symlink_to("Approved/new.md")
    (home.vault / "dangling").symlink_to(outside / "new-folder")
    os.link(outside / "secret.md", home.vault / "hard.md")
    os.mkfifo(home.vault / "fifo.md")
    return outside


def guarded(home: Home, outside: Path) -> dict[str, Any]:
    return {name: everything(home.vault / name) for name in PROTECTED} | {
        "outside": everything(outside)
    }


@requirement("notes:paths")
@pytest.mark.parametrize("trick", TRICKS)
async def test_no_spelling_of_a_path_places_moves_or_takes_a_guarded_file(
    notes: Client, home: Home, trapped: Path, trick: str
) -> None:
    before = guarded(home, trapped)
    inside = trick.replace("x.md", "there.md")
    attempts: list[tuple[str, dict[str, Any]]] = [
        ("write_note", {"path": trick, "frontmatter": {}, "body": "forged"}),
        ("write_note", {"path": inside, "frontmatter": {}, "body": "forged"}),
        ("move_note", {"source": "Inbox/mine.md", "destination": trick}),
        ("move_note", {"source": inside, "destination": "Inbox/taken.md"}),
    ]

    answers = [await notes.call_tool(name, arguments) for name, arguments in attempts]

    assert [answer.is_error for answer in answers] == [True] * 4
    assert guarded(home, trapped) == before
    assert (home.vault / "Inbox" / "mine.md").read_text() == "mine"


@requirement("notes:paths")
@pytest.mark.parametrize(
    "trick",
    [
        t
        for t in TRICKS
        if "link" in t or "outside" in t or "hard" in t or "fifo" in t or t.startswith(".")
    ],
)
async def test_nothing_outside_or_hidden_is_read_listed_or_found(
    notes: Client, home: Home, trapped: Path, trick: str
) -> None:
    (home.vault / ".obsidian").mkdir()
    (home.vault / ".obsidian" / "x.md").write_text("secret")

    assert (await notes.call_tool("read_note", {"path": trick})).is_error
    found = await notes.call_tool("search_notes", {"query": "secret"})
    listed = await notes.call_tool("list_notes", {"directory": ""})

    assert found.structured_content == {"notes": []}
    paths = {note["path"] for note in listed.structured_content["notes"]}
    assert paths == {"Inbox/mine.md", *(f"{name}/there.md" for name in PROTECTED)}


@requirement("notes:paths")
@pytest.mark.parametrize("directory", ["/", "//", "/etc", "/Inbox", "../", "./Inbox"])
async def test_a_folder_outside_is_refused_as_it_was_written(
    notes: Client, trapped: Path, directory: str
) -> None:
    listed = await notes.call_tool("list_notes", {"directory": directory})

    error = listed.meta["deskhand/error"]
    assert (error["error"], error["details"]["reason"]) == ("permission_denied", "outside")
    assert error["details"]["path"] == (directory.removesuffix("/") or "/")


@requirement("notes:paths")
@pytest.mark.parametrize(
    "path",
    [
        "Projects/Done/x.md",
        "Projects/Drafts/x.md",
        "Draft/x.md",
        "obsidian/x.md",
        "Done.md",
        "Approved notes/x.md",
        "Not Approved/x.md",
    ],
)
async def test_an_ordinary_folder_with_a_similar_name_stays_open(
    notes: Client, path: str
) -> None:
    assert not (
        await notes.call_tool("write_note", {"path": path, "frontmatter": {}, "body": ""})
    ).is_error


@requirement("notes:paths")
@pytest.mark.parametrize(
    ("there", "new"),
    [("Ma\u00dfe", "Masse"), ("Masse", "Ma\u00dfe"), ("o\ufb03ce", "office")],
)
async def test_names_that_fold_into_each_other_are_two_notes(
    notes: Client, home: Home, there: str, new: str
) -> None:
    """Written under the one name, the person's note of the other was gone."""
    (home.vault / f"{there}.md").write_text("mine\n")
    made = await notes.call_tool(
        "write_note", {"path": f"{new}.md", "frontmatter": {}, "body": "another\n"}
    )

    assert not made.is_error
    assert (home.vault / f"{there}.md").read_text() == "mine\n"
    assert (home.vault / f"{new}.md").read_text() == "another\n"


@requirement("notes:paths")
async def test_the_page_on_which_the_desk_says_how_it_stands_is_no_tools(
    notes: Client, home: Home
) -> None:
    page = home.vault / "Dashboard.md"
    page.write_text("Two drafts wait.\n")
    (home.vault / "mine.md").write_text("Nothing waits.\n")
    attempts: list[tuple[str, dict[str, Any]]] = [
        ("append_note", {"path": "Dashboard.md", "text": "Nothing waits."}),
        (
            "edit_note",
            {"path": "Dashboard.md", "edits": [{"do": "insert", "key": "a", "value": 1}]},
        ),
        ("move_note", {"source": "Dashboard.md", "destination": "old.md"}),
    ]
    spellings = [
        "Dashboard.md",
        "dashboard.MD",
        "D\u0430shboard.md",
        "Dash\u200bboard.md",
        "Dashboard.md/x.md",
    ]
    for path in spellings:
        attempts.append(
            ("write_note", {"path": path, "frontmatter": {}, "body": "Nothing waits."})
        )
        attempts.append(("move_note", {"source": "mine.md", "destination": path}))
        attempts.append(
            ("create_from_template", {"template": "mine.md", "path": path, "values": {}})
        )

    answers = [await notes.call_tool(name, arguments) for name, arguments in attempts]

    assert ["protected" in answer.content[0].text for answer in answers] == [True] * len(
        attempts
    )
    assert sorted(entry.name for entry in home.vault.iterdir()) == [
        "Dashboard.md",
        "mine.md",
    ]
    assert page.read_text() == "Two drafts wait.\n"
    assert (
        await notes.call_tool("read_note", {"path": "Dashboard.md"})
    ).structured_content["body"] == page.read_text()
    elsewhere = {"path": "Projects/Dashboard.md", "frontmatter": {}, "body": ""}
    assert not (await notes.call_tool("write_note", elsewhere)).is_error


async def test_protected_folders_can_be_read(notes: Client, trapped: Path) -> None:
    assert (
        await notes.call_tool("read_note", {"path": "Approved/there.md"})
    ).structured_content["body"] == "the person's"


@pytest.mark.parametrize("form", ["NFC", "NFD"])
async def test_a_name_is_found_in_any_case_and_unicode_form(
    notes: Client, home: Home, form: Literal["NFC", "NFD"]
) -> None:
    (home.vault / unicodedata.normalize(form, "Café Über.md")).write_text("here")

    for name in ("Café Über.md", "café über.md", "CAFÉ ÜBER.md"):
        for asked in ("NFC", "NFD"):
            result = await notes.call_tool(
                "read_note", {"path": unicodedata.normalize(asked, name)}
            )
            assert result.structured_content["body"] == "here"
    await notes.call_tool(
        "write_note", {"path": "café über.md", "frontmatter": {}, "body": "changed"}
    )

    assert [entry.read_text() for entry in home.vault.iterdir()] == ["changed"]


async def test_a_name_that_may_mean_two_files_is_refused(notes: Client, home: Home) -> None:
    (home.vault / "Note.md").write_text("one")
    (home.vault / "NOTE.md").write_text("two")

    assert (await notes.call_tool("read_note", {"path": "Note.md"})).structured_content[
        "body"
    ] == "one"
    assert (await notes.call_tool("read_note", {"path": "note.md"})).is_error


@requirement("notes:swapped-links")
def test_a_symlink_swapped_in_during_the_call_leads_nowhere(
    desk: Desk, home: Home, trapped: Path, scale: int
) -> None:
    """Another thread turns a folder into a link to a guarded one and back, as fast as it can."""
    before = guarded(home, trapped)
    folder = home.vault / "Swap"
    folder.mkdir()
    links = [home.vault / "to-approved", home.vault / "to-outside"]
    for link, target in zip(links, (home.vault / "Approved", trapped), strict=True):
        link.symlink_to(target)
    stop = threading.Event()

    def swap() -> None:
        here = os.open(home.vault, os.O_RDONLY)
        while not stop.is_set():
            for link in links:
                # Twice: there and back, so that the folder is a folder again.
                assert disk._native_rename(here, link.name, here, "Swap", "exchange") == 0
                assert disk._native_rename(here, link.name, here, "Swap", "exchange") == 0
        os.close(here)

    swapper = threading.Thread(target=swap)
    swapper.start()
    outcomes = {"done": 0, "refused": 0}
    try:
        for number in range(1500 * scale):
            try:
                desk.vault.write(f"Swap/n{number % 5}.md", {}, "forged")
                desk.vault.move(f"Swap/n{number % 5}.md", f"Swap/m{number}.md")
                outcomes["done"] += 1
            except DeskError:
                outcomes["refused"] += 1
    finally:
        stop.set()
        swapper.join()

    assert guarded(home, trapped) == before
    assert min(outcomes.values()) > 0, outcomes


@requirement("notes:paths")
@pytest.mark.parametrize(
    "folder",
    [
        "Дела",
        "Log",
        "Pläne",
        "Approvals",
        "日本語版",
        "Done2",
        "Plans/2026",
        "needs_action",
        "Gone",
    ],
)
def test_a_folder_that_only_resembles_none_of_the_desk_s_is_the_assistant_s_to_use(
    home: Home, desk: Desk, folder: str
) -> None:
    desk.vault.write(f"{folder}/x.md", {}, "Hi.")

    assert len(list(home.vault.rglob("x.md"))) == 1
