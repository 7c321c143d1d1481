import json
import subprocess
import sys

import pytest
from mcp import Client

from deskhand.app import Desk
from deskhand.servers.desk import desk_server
from tests.home import Home
from tests.requirements import requirement

HEAVY = ("mcp", "fastapi", "psycopg", "greenlet", "pydantic", "starlette", "yaml")


@requirement("start:light")
@pytest.mark.parametrize("arguments", [["--help"], ["mcp", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from deskhand.cli import main\n"
        f"try: main({arguments!r})\nexcept SystemExit: pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stderr == "[]\n"


@requirement("start:light")
@pytest.mark.parametrize("name", ["obsidian", "agentmail", "tasks"])
def test_a_server_through_which_nothing_leaves_loads_no_gate(name: str) -> None:
    code = (
        f"import sys, deskhand.servers.{name}\n"
        "print([m for m in sys.modules if m.startswith('deskhand.gate')])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"


@requirement("docs:commands")
def test_the_commands_of_agentmail_are_shown_to_whoever_has_only_deskhand(
    home: Home,
) -> None:
    done = home.command("agentmail", "--help")

    assert (done.returncode, "receive [--hook]" in done.stdout) == (0, True)


def test_notes_can_be_indexed_searched_and_listed_from_the_command_line(home: Home) -> None:
    (home.vault / "Projects").mkdir()
    (home.vault / "Projects" / "alpha.md").write_text(
        "---\nstatus: open\n---\nThe quick brown fox\n"
    )
    (home.vault / "beta.md").write_text("nothing here\n")

    indexed = home.command("notes", "index")
    found = home.command("notes", "search", "BROWN f", "--json")
    listed = home.command("notes", "list", "--filter", "status:open")

    assert indexed.returncode == 0
    assert '"path":"Projects/alpha.md"' in found.stdout
    assert listed.stdout == "Projects/alpha.md\n"


@requirement("cli:machine")
def test_what_the_machine_refuses_is_said_without_a_traceback(home: Home) -> None:
    assert home.command("approvals").returncode == 0
    kept, below_a_file = (
        str(home.path / "none" / "desk.backup"),
        str(home.path / "desk.db" / "home"),
    )

    refused = [
        home.command("backup", kept, "--json"),
        home.command("restore", kept, "--to", below_a_file),
        home.command("up", "--no-browser", DESKHAND_HOME="/proc/nowhere"),
    ]

    assert [each.returncode for each in refused] == [7, 7, 7]
    assert all("the machine refused: " in each.stderr.lower() for each in refused)
    assert not [each.stderr for each in refused if "Traceback" in each.stderr]


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        (["tasks"], "`deskhand tasks --help` shows what there is"),
        (["show"], "`deskhand show --help` shows what there is"),
        (
            ["aprove", "1"],
            "\nerror: There is no command aprove.\n  Did you mean approve? `deskhand --help` shows what there is.\n",
        ),
        (["connect", "claude-cod"], "Did you mean claude-code? `deskhand connect --help`"),
        (
            ["mail", "bring-in", "every"],
            "\nerror: “every” is no answer; it is one of all, new, none.\n",
        ),
        (["zzz"], "\n  `deskhand --help` shows what there is"),
        (["up", "--dmo"], "\nerror: Unrecognized arguments: --dmo.\n  `deskhand up"),
    ],
)
def test_a_slip_at_the_command_line_is_told_where_to_look(
    home: Home, typed: list[str], hint: str
) -> None:
    done = home.command(*typed)

    assert (done.returncode, done.stdout) == (2, "")
    assert hint in done.stderr


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["approvals"], "Nothing waits."),
        (["token", "list"], "There are no tokens."),
        (["follow-up", "list"], "You wait for no answer."),
        (["permit", "list"], "There are none: everything waits for you."),
        (["guard", "list"], "There is no other server behind the gate."),
        (["passkey", "list"], "There are no passkeys; you make one on the page."),
    ],
)
def test_where_there_is_nothing_a_sentence_says_so(
    home: Home, typed: list[str], says: str
) -> None:
    done = home.command(*typed)

    assert (done.returncode, done.stdout + done.stderr) == (0, f"{says}\n")
    assert says not in home.command(*typed, "--json").stdout


def test_the_command_alone_shows_its_help_and_an_unknown_flag_that_of_its_command(
    home: Home,
) -> None:
    alone = home.command()
    assert alone.returncode == 2
    assert "exit codes:" in alone.stderr
    slip = home.command("up", "--dmo")
    assert slip.returncode == 2
    assert "usage: deskhand up" in slip.stderr
    assert "--dmo" in slip.stderr
    deeper = home.command("tasks", "list", "--nothing")
    assert "`deskhand tasks list --help`" in deeper.stderr


@requirement("cli:machine")
def test_what_is_not_there_is_said_in_words_for_a_person(home: Home) -> None:
    (home.vault / "Plan.md").write_text("# Plan\n\n## Spring\n\n## Summer\n")
    heading = home.command("notes", "append", "Plan.md", "x", "--heading", "Autumn")
    assert heading.returncode == 4
    assert 'its headings are "Plan", "Spring", "Summer"' in heading.stderr
    note = home.command("notes", "append", "None.md", "x")
    assert "--create makes it; `deskhand notes list`" in note.stderr
    own = {"DESKHAND_USER": "ann"}
    done = home.command("tasks", "done", "99", **own)
    undone = home.command("tasks", "undo", **own)
    for each in (heading, note, done, undone):
        assert each.returncode == 4, each.stderr
        assert "list_" not in each.stderr
        assert "get_outline" not in each.stderr
    assert "error: There is no task 99.\n" in done.stderr


@requirement("cli:machine")
def test_a_folder_that_is_not_there_ends_with_code_4(home: Home) -> None:
    done = home.command("notes", "list", "Nowhere")

    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("error: There is no folder Nowhere")


FORGED = "\n     9  2026-11-16T08:00:00.000Z  person  approve  everything  success"


@requirement("cli:one-line")
@pytest.mark.anyio
@pytest.mark.parametrize(
    "end", ["\n", "\r", "\r\n", "\v", "\f", "\x1b[2K\r", "\u2028", "\u0085", "\x1c"]
)
async def test_nobody_writes_a_second_line_into_what_the_terminal_shows(
    home: Home, desk: Desk, end: str
) -> None:
    forged = FORGED.replace("\n", end)
    async with Client(desk_server(desk)) as client:
        await client.call_tool("read_note", {"path": f"a{forged}"})
        await client.call_tool(
            "write_note", {"path": f"Done/a{forged}.md", "content": "Hi."}
        )
        await client.call_tool("get_action", {"id": f"a{forged}"})
        await client.call_tool(
            "send_email",
            {"to": f"a{forged}@example.org", "subject": f"a{forged}", "body": "Hi."},
        )

    log = home.command("log")
    errors = [
        home.command("show", f"a{forged}"),
        home.command("notes", "list", f"a{forged}"),
    ]

    told = [
        str(json.loads(line)["seq"])
        for line in home.command("log", "--json").stdout.splitlines()
    ]
    assert len(told) > 1
    assert [line.split()[0] for line in log.stdout.splitlines()] == told
    assert all(each.stderr.startswith("error: ") for each in errors)
    assert not [
        line
        for each in errors
        for line in each.stderr.splitlines()[1:]
        if not line.startswith("  ")
    ]
    assert "approve" not in "".join(
        line[2:] for each in errors for line in each.stderr.splitlines()[1:]
    )


@requirement("cli:one-line")
def test_a_note_of_two_lines_name_is_one_line_of_the_list(home: Home) -> None:
    (home.vault / "first\nsecond.md").write_text("fox\n\nand forged.md\n")

    listed = home.command("notes", "list").stdout
    found = home.command("notes", "search", "fox").stdout

    assert listed == "first<U+000A>second.md\n"
    assert len(found.splitlines()) == 2
