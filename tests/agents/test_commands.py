"""The existing program's table of commands, row by row, in real tmux."""

import json
import math
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deskhand.agents import tmux
from tests.home import Home
from tests.requirements import requirement
from tests.terminal import AGENTMAIL, Terminal
from tests.warm import warm_python


class Row(NamedTuple):
    """What is called, in which window (None: outside tmux), and what comes out; texts are regular expressions."""

    call: list[str]
    code: int
    out: str = ""
    err: str = ""
    window: str | None = "a1"
    stdin: str | None = None


SENT = r"Message #[a-zA-Z0-9]{8} sent\n"
BY_NAME = "  or set DESKHAND_AGENT to the name of this agent\n"
NO_TMUX = f"error: agentmail must run inside a tmux session\n{BY_NAME}"
NO_WINDOW = "error: not running inside a tmux session\n"
NOBODY = "error: recipient not found\n"
NO_TEXT = "error: no message provided\nusage: agentmail send <recipient> <message>\n"
TABLE = [
    Row(["send", "a2", "hello"], 0, SENT),
    Row(["send", "-r", "a2", "-m", "hello"], 0, SENT),
    Row(["send", "--recipient", "a2", "--message=hello"], 0, SENT),
    Row(["send", "a2", "-m", "hello"], 0, SENT),
    Row(["send", "-m", "hello", "a2"], 0, SENT),
    Row(["send", "a2"], 0, SENT, stdin="hello\n"),
    Row(["send", "a2", "- an item"], 0, SENT),
    Row(["send", "a2", "--", "-x"], 0, SENT),
    Row(["send"], 1, err="error: missing required arguments: recipient message\n"),
    Row(["send", "a2"], 1, err=re.escape(NO_TEXT)),
    Row(["send", "a2"], 1, err=re.escape(NO_TEXT), stdin=""),
    Row(["send", "nobody", "hello"], 1, err=NOBODY),
    Row(["send", "a1", "hello"], 1, err=NOBODY),
    Row(["send", "hidden", "hello"], 1, err=NOBODY),
    Row(["send", "a2", "hello"], 2, err=NO_TMUX, window=None),
    Row(["send", "a2", "-x", "hello"], 1, err="error: flag provided but not defined: -x\n"),
    Row(["send", "a2", "-m"], 1, err="error: flag needs an argument: -m\n"),
    Row(
        ["send", "a2", "x" * 65_537], 1, err="error: message exceeds maximum size of 64KB\n"
    ),
    Row(
        ["send", "a2"],
        1,
        err="error: message exceeds maximum size of 64KB\n",
        stdin="é" * 32_769,
    ),
    Row(["receive"], 0, "No unread messages\n"),
    Row(["receive"], 2, err=NO_TMUX, window=None),
    Row(["receive", "--hook"], 0),
    Row(["receive", "--hook"], 0, window=None),
    Row(["recipients"], 0, r"a1 \[you\]\na2\n"),
    Row(["recipients"], 0, r"a1\na2\nhidden \[you\]\n", window="hidden"),
    Row(["recipients"], 2, err=NO_WINDOW + BY_NAME, window=None),
    Row(["status", "ready"], 0),
    Row(["status", "work"], 0),
    Row(["status", "offline"], 0),
    Row(["status", "nonsense"], 0, window=None),
    Row(["status", "Ready"], 1, err="Invalid status: Ready. Valid: ready, work, offline\n"),
    Row(
        ["status"],
        1,
        err=r"error: missing required argument: status\nusage: agentmail status <ready\|work\|offline>\n",
    ),
    Row(
        ["onboard"],
        0,
        r"## AgentMail\n(.*\n)*.*agentmail send(.*\n)*.*agentmail receive(.*\n)*",
        window=None,
    ),
    Row(["mcp"], 1, err=f"{NO_WINDOW}  .*DESKHAND_AGENT.*\n", window=None),
    Row(["--help"], 0, err="agentmail - messages between agents\n(.*\n)*"),
    Row(["--version"], 0, r"agentmail \d+\.\d+\.\d+\n", window=None),
    Row(["send", "--help"], 0, err="agentmail - messages between agents\n(.*\n)*"),
    Row([], 1, err="agentmail - messages between agents\n(.*\n)*"),
    Row(["fly"], 1, err="agentmail - messages between agents\n(.*\n)*"),
]


@requirement("agents:commands")
def test_every_row_of_the_table_says_and_returns_what_the_existing_program_does(
    terminal: Terminal,
) -> None:
    terminal.open("hidden")
    (terminal.repository / ".agentmailignore").write_text("\n  hidden \n")

    for row in TABLE:
        done = terminal.agentmail(row.window, *row.call, stdin=row.stdin)
        what = f"agentmail {row.call} in {row.window}: {done}"[:500]
        assert done.returncode == row.code, what
        assert re.fullmatch(row.out, done.stdout), what
        assert re.fullmatch(row.err, done.stderr), what


@requirement("agents:commands")
def test_a_message_is_shown_without_a_final_line_end_and_to_a_hook_on_stderr(
    terminal: Terminal,
) -> None:
    sent = [
        terminal.agentmail("a1", "send", "a2", stdin=text).stdout[9:17]
        for text in ("one\ntwo\n\n", "<b> & é 東京")
    ]

    shown = terminal.agentmail("a2", "receive")
    hooked = terminal.agentmail("a2", "receive", "--hook")
    after = terminal.agentmail("a2", "receive", "--hook")

    assert (shown.returncode, shown.stdout, shown.stderr) == (
        0,
        f"From: a1\nID: {sent[0]}\n\none\ntwo\n",
        "",
    )
    letter = f"You got new mail\nFrom: a1\nID: {sent[1]}\n\n<b> & é 東京"
    assert (hooked.returncode, hooked.stdout, hooked.stderr) == (2, "", letter)
    assert (after.returncode, after.stdout, after.stderr) == (0, "", "")


def hooked(event: str, **more: object) -> str:
    """What Claude Code writes to a hook."""
    return json.dumps(
        {"session_id": "s", "cwd": "/", "hook_event_name": event, "prompt": "é" * 100_000}
        | more
    )


@requirement("agents:hooks")
def test_where_an_exit_code_would_cost_the_prompt_mail_is_added_to_the_context(
    terminal: Terminal,
) -> None:
    for event in ("SessionStart", "UserPromptSubmit"):
        sent = terminal.agentmail("a1", "send", "a2", 'say "hé"').stdout[9:17]

        got = terminal.agentmail("a2", "receive", "--hook", stdin=hooked(event))
        after = terminal.agentmail("a2", "receive", "--hook", stdin=hooked(event))

        context = f'You got new mail\nFrom: a1\nID: {sent}\n\nsay "hé"'
        answer = {
            "hookSpecificOutput": {"hookEventName": event, "additionalContext": context}
        }
        assert (got.returncode, json.loads(got.stdout), got.stderr) == (0, answer, "")
        assert (after.returncode, after.stdout, after.stderr) == (0, "", "")


@requirement("agents:hooks")
def test_where_the_model_reads_the_complaint_mail_is_one(terminal: Terminal) -> None:
    for event in ("PostToolUse", "Stop"):
        terminal.agentmail("a1", "send", "a2", "hello")

        got = terminal.agentmail(
            "a2", "receive", "--hook", stdin=hooked(event, stop_hook_active=True)
        )

        assert (got.returncode, got.stdout) == (2, "")
        assert got.stderr.endswith("\n\nhello")


@requirement("agents:hooks")
def test_where_the_model_sees_nothing_no_mail_is_read(terminal: Terminal) -> None:
    terminal.agentmail("a1", "send", "a2", "hello")
    unseen = (
        "PreToolUse",
        "Notification",
        "PreCompact",
        "SessionEnd",
        "SubagentStop",
        "BeforeAgent",
        "x",
    )

    for stdin in (*map(hooked, unseen), hooked("PostToolUse", agent_id="a7")):
        got = terminal.agentmail("a2", "receive", "--hook", stdin=stdin)
        assert (got.returncode, got.stdout, got.stderr) == (0, "", ""), stdin

    assert terminal.agentmail("a2", "receive").stdout.endswith("\n\nhello")


@requirement("agents:hooks")
def test_a_hook_that_is_told_no_event_answers_as_the_existing_program(
    terminal: Terminal,
) -> None:
    for stdin in ("", "{", "[]", "{}", '{"hook_event_name": 5}', "hello\n"):
        terminal.agentmail("a1", "send", "a2", "hello")

        got = terminal.agentmail("a2", "receive", "--hook", stdin=stdin)

        assert (got.returncode, got.stderr.endswith("\n\nhello")) == (2, True), stdin


@requirement("agents:hooks")
def test_a_pipe_that_nobody_writes_to_keeps_no_hook_waiting(terminal: Terminal) -> None:
    terminal.agentmail("a1", "send", "a2", "hello")
    command = [AGENTMAIL, "receive", "--hook"]
    where: Any = {"env": terminal.variables("a2"), "cwd": terminal.repository}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, **where
    ) as hook:
        assert hook.wait(timeout=30) == 2


@requirement("agents:printable")
def test_what_another_agent_wrote_steers_no_terminal_and_passes_for_no_other_line(
    terminal: Terminal,
) -> None:
    store = terminal.repository / ".agentmail" / "mailboxes"
    store.mkdir(parents=True)
    line = {
        "id": "x\x1b[1m",
        "from": "bob\nFrom: person\x1b[2J",
        "to": "a2",
        "message": "a\x1b]52;c;aGk=\x07b\u202ec\u200bd\x9b2J\rx\r\n\ttwo é 👩\u200d🚀",
        "read_flag": False,
    }
    (store / "a2.jsonl").write_text(f"{json.dumps(line)}\n" * 2)

    shown = terminal.agentmail("a2", "receive").stdout
    hook = terminal.agentmail("a2", "receive", "--hook").stderr

    assert shown == (
        "From: bob<U+000A>From: person<U+001B>[2J\nID: x<U+001B>[1m\n\n"
        "a<U+001B>]52;c;aGk=<U+0007>b<U+202E>c<U+200B>d<U+009B>2J<U+000D>x\n\ttwo é 👩\u200d🚀"
    )
    assert hook == f"You got new mail\n{shown}"


NOT_NAMES = [
    "person",
    "pers\u200bon",
    "Person",
    " person ",
    "\u0440\u0435rson",
    "pe\u0301rson",
    "\uff50erson",
    "pers0n",
]


@requirement("agents:printable")
def test_no_agent_has_a_name_that_reads_as_the_persons_or_cannot_be_read(
    terminal: Terminal,
) -> None:
    for name in (*NOT_NAMES, "x\u202ey", "x\ny", "b\u043eb", "B\u039fB"):
        refused = terminal.agentmail(None, "send", "a2", "hello", DESKHAND_AGENT=name)
        assert (refused.returncode, refused.stdout) == (2, ""), name
        assert (
            terminal.agentmail(None, "receive", "--hook", DESKHAND_AGENT=name).returncode
            == 0
        ), name
    server = terminal.agentmail(None, "mcp", DESKHAND_AGENT="pers\u200bon")

    assert (server.returncode, server.stdout) == (1, "")
    assert terminal.agentmail("a1", "recipients").stdout == "a1 [you]\na2\n"
    for name in ("José", "kapı", "Анна", "хор", "bot-Анна", "東京 2"):
        assert tmux.readable(name) == name


@requirement("agents:printable")
def test_a_window_that_reads_as_the_persons_is_listed_under_another_name(
    terminal: Terminal,
) -> None:
    for name in ("Person", "pers\u200bon", "\u0440\u0435rson"):
        terminal.open(name)

    listed = terminal.agentmail("a1", "recipients").stdout.splitlines()

    assert listed[:3] == ["a1 [you]", "a2", "Person~2"]
    assert not {"person", "pers\u200bon", "\u0440\u0435rson"} & set(listed)


@requirement("agents:commands")
def test_outside_a_repository_the_errors_say_so(terminal: Terminal, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    nowhere = "error: not in a git repository: run this inside the one that you work in\n"
    hint = "  DESKHAND_AGENTS_STORE=database DESKHAND_AGENTS_ROOM=desk leads to those who meet at the desk itself\n"

    for call in (["send", "a2", "hello"], ["receive"], ["status", "ready"]):
        done = terminal.agentmail("a1", *call, folder=elsewhere)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", nowhere + hint), call
    assert terminal.agentmail("a1", "receive", "--hook", folder=elsewhere).returncode == 0
    assert (
        terminal.agentmail("a1", "send", "nobody", "x", folder=elsewhere).stderr == NOBODY
    )
    assert (
        terminal.agentmail("a1", "recipients", folder=elsewhere).stdout == "a1 [you]\na2\n"
    )


@requirement("agents:commands")
@pytest.mark.parametrize(
    ("pane", "why"),
    [
        ("", "TMUX_PANE environment variable not set"),
        ("work:1", "TMUX_PANE contains invalid format"),
        ("%99", "can't find pane: %99"),
    ],
)
def test_a_pane_that_is_none_is_said_and_a_hook_stays_silent(
    terminal: Terminal, pane: str, why: str
) -> None:
    for call in (["send", "a2", "hello"], ["receive"], ["recipients"], ["status", "work"]):
        done = terminal.agentmail("a1", *call, TMUX_PANE=pane)
        assert (done.returncode, done.stderr) == (
            1,
            f"error: failed to get current window: {why}\n",
        ), call
    hook = terminal.agentmail("a1", "receive", "--hook", TMUX_PANE=pane)
    assert (hook.returncode, hook.stdout, hook.stderr) == (0, "", "")


@requirement("agents:commands")
def test_a_window_that_was_closed_or_has_no_name_is_said(terminal: Terminal) -> None:
    gone, blank = terminal.open("gone"), terminal.open("blank")
    terminal.tmux("kill-window", "-t", gone)
    terminal.tmux("rename-window", "-t", blank, " ")

    closed = terminal.agentmail("gone", "receive")
    nameless = terminal.agentmail("blank", "receive")

    assert (closed.returncode, closed.stderr) == (
        1,
        f"error: failed to get current window: can't find pane: {gone}\n",
    )
    assert (nameless.returncode, nameless.stdout) == (1, "")
    assert nameless.stderr == "error: current window '' not found in tmux session\n"
    assert terminal.agentmail("blank", "receive", "--hook").returncode == 0


@requirement("agents:commands")
def test_what_cannot_be_read_from_stdin_is_said_and_nothing_is_sent(
    terminal: Terminal,
) -> None:
    shell = ["/bin/sh", "-c"]
    # A file that is open for writing only.
    unreadable = terminal.agentmail(
        "a1", "send", "a2", "given", under=[*shell, '"$0" "$@" 0> out']
    )
    closed = terminal.agentmail("a1", "send", "a2", under=[*shell, '"$0" "$@" <&-'])
    assert terminal.agentmail("a2", "receive").stdout == "No unread messages\n"
    given = terminal.agentmail("a1", "send", "a2", "given", under=[*shell, '"$0" "$@" <&-'])

    for done in (unreadable, closed):
        why = "error: failed to read stdin: Bad file descriptor\n"
        assert (done.returncode, done.stdout, done.stderr) == (1, "", why)
    assert re.fullmatch(SENT, given.stdout)
    assert terminal.agentmail("a2", "receive").stdout.endswith("\n\ngiven")


@requirement("agents:commands")
@requirement("agents:durable")
def test_trouble_of_the_machine_is_said_in_the_existing_programs_words_and_loses_nothing(
    terminal: Terminal, strace: str
) -> None:
    box = terminal.repository / ".agentmail" / "mailboxes" / "a2.jsonl"

    def failing(call: str, trouble: str, *more: str) -> list[str]:
        return [
            strace,
            "-qq",
            "-o",
            "/dev/null",
            *more,
            "-e",
            f"trace={call}",
            "-e",
            f"inject={call}:error={trouble}",
        ]

    def said(under: list[str], window: str, *call: str) -> tuple[int, str, str]:
        # Python itself asks for chance at its start, unless the seed of its hashes is given.
        done = terminal.agentmail(window, *call, under=under, PYTHONHASHSEED="0")
        return done.returncode, done.stdout, done.stderr

    at_box = ("-P", str(box))
    send = ("a1", "send", "a2", "second")
    assert terminal.agentmail("a1", "send", "a2", "first").returncode == 0
    before = box.read_bytes()

    no_id = "error: failed to generate message ID: Input/output error\n"
    assert said(failing("getrandom", "EIO"), *send) == (1, "", no_id)
    full = "error: failed to write message: No space left on device\n"
    assert said(failing("write,pwrite64", "ENOSPC", *at_box), *send) == (1, "", full)
    unmarked = "error: failed to mark message as read: {}\n"
    assert said(failing("pwrite64", "EIO", *at_box), "a2", "receive") == (
        1,
        "",
        unmarked.format("Input/output error"),
    )
    unsynced = said(failing("fsync,fdatasync", "EDQUOT", *at_box), "a2", "receive")
    assert unsynced == (1, "", unmarked.format("Disk quota exceeded"))
    assert said(failing("pwrite64", "EIO", *at_box), "a2", "receive", "--hook") == (
        0,
        "",
        "",
    )

    assert box.read_bytes() == before
    assert terminal.agentmail("a2", "receive").stdout.endswith("\n\nfirst")
    assert terminal.agentmail("a2", "receive").stdout == "No unread messages\n"


@requirement("agents:commands")
def test_cleanup_forgets_who_is_gone_and_what_was_read_and_keeps_the_rest(
    terminal: Terminal,
) -> None:
    boxes = terminal.repository / ".agentmail" / "mailboxes"
    boxes.mkdir(parents=True)
    old, new = "2020-01-01T00:00:00Z", "2999-01-01T00:00:00+02:00"
    lines = [
        {"id": "old-read", "message": "1", "read_flag": True, "created_at": old},
        {"id": "old-unread", "message": "2", "read_flag": False, "created_at": old},
        {"id": "new-read", "message": "3", "read_flag": True, "created_at": new},
        {"id": "no-time", "message": "4", "read_flag": True},
    ]
    (boxes / "a2.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (boxes / "a3.jsonl").write_text(json.dumps(lines[0]) + "\n")
    (boxes / "a4.jsonl").write_text("")
    states = [("a1", new), ("a2", old), ("gone", new)]
    (terminal.repository / ".agentmail" / "recipients.jsonl").write_text(
        "".join(
            json.dumps({"recipient": name, "status": "ready", "updated_at": at}) + "\n"
            for name, at in states
        )
    )

    preview = terminal.agentmail("a1", "cleanup", "--dry-run")
    done = terminal.agentmail("a1", "cleanup")
    outside = terminal.agentmail(
        None, "cleanup", "--stale-hours=1", "--delivered-hours", "1"
    )

    assert preview.stdout == (
        "Cleanup preview (dry-run):\n  Recipients to remove: 2 (1 offline, 1 stale)\n"
        "  Messages to remove: 2\n  Mailboxes to remove: 1\n"
    )
    assert done.stdout == (
        "Cleanup complete:\n  Recipients removed: 2 (1 offline, 1 stale)\n"
        "  Messages removed: 2\n  Mailboxes removed: 2\n"
    )
    assert outside.returncode == 0
    assert (
        outside.stderr
        == "Warning: not running in tmux session, skipping offline recipient check\n"
    )
    kept = [
        json.loads(line)["id"]
        for line in (boxes / "a2.jsonl").read_text().split("\n")
        if line
    ]
    assert kept == ["old-unread", "new-read", "no-time"]
    assert [file.name for file in boxes.iterdir()] == ["a2.jsonl"]
    assert terminal.agentmail("a2", "receive").stdout.endswith("ID: old-unread\n\n2")
    assert terminal.agentmail("a1", "cleanup", "--stale-hours", "many").returncode == 1


@requirement("agents:identity")
def test_two_windows_of_one_name_have_two_addresses_and_are_warned(
    terminal: Terminal,
) -> None:
    terminal.open("a2")

    sent = [
        terminal.agentmail("a1", "send", name, f"for {name}").returncode
        for name in ("a2", "a2~2")
    ]
    first, second = (
        terminal.agentmail("a2", "receive"),
        terminal.agentmail("a2~2", "receive"),
    )

    assert sent == [0, 0]
    assert first.stdout.endswith("for a2")
    assert second.stdout.endswith("for a2~2")
    assert second.stderr == "Warning: 2 windows have this name (a2, a2~2); you are a2~2\n"
    assert terminal.agentmail("a2~2", "recipients").stdout == "a1\na2\na2~2 [you]\n"


@requirement("agents:identity")
def test_any_window_name_works(terminal: Terminal) -> None:
    names = [
        "x/y",
        "..evil",
        ".",
        "100%",
        "x%2Fy",
        "two words",
        "-dash",
        "ünï東",
        "a:b.1",
        "%",
    ]
    for name in names:
        terminal.open(name)
        sent = terminal.agentmail("a1", "send", "-r", name, "-m", f"for {name}")
        assert sent.returncode == 0, sent

    for name in names:
        assert terminal.agentmail(name, "receive").stdout.endswith(f"\n\nfor {name}")
    assert terminal.agentmail("a1", "recipients").stdout.splitlines() == [
        "a1 [you]",
        "a2",
        *names,
    ]
    cleaned = terminal.agentmail("a1", "cleanup", "--delivered-hours", "0")
    assert cleaned.stdout.endswith(f"Mailboxes removed: {len(names)}\n")


@requirement("agents:identity")
def test_an_agent_outside_tmux_says_its_name_and_is_found_once_it_ran_a_command(
    terminal: Terminal,
) -> None:
    unknown = terminal.agentmail("a1", "send", "bob", "hello")
    hook = terminal.agentmail(None, "receive", "--hook", DESKHAND_AGENT="bob")
    sent = terminal.agentmail("a1", "send", "bob", "hello")
    got = terminal.agentmail(None, "receive", DESKHAND_AGENT="bob")

    assert unknown.stderr == NOBODY
    assert hook.returncode == 0
    assert sent.returncode == 0
    assert got.stdout.startswith("From: a1\n")
    assert terminal.agentmail("a1", "recipients").stdout == "a1 [you]\na2\nbob\n"
    assert (
        terminal.agentmail(None, "recipients", DESKHAND_AGENT="ann").stdout
        == "ann [you]\nbob\n"
    )
    answered = terminal.agentmail(None, "send", "ann", "hi", DESKHAND_AGENT="bob")
    assert answered.returncode == 0
    assert (
        terminal.agentmail("a1", "receive", DESKHAND_AGENT="bob").stdout
        == "No unread messages\n"
    )


@requirement("agents:identity")
def test_git_worktrees_share_the_mailboxes_of_their_repository(
    terminal: Terminal, tmp_path: Path
) -> None:
    git = [
        "git",
        "-C",
        str(terminal.repository),
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.com",
    ]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tmp_path / "tree")], check=True)

    terminal.agentmail("a1", "send", "a2", "hello", folder=tmp_path / "tree")

    assert terminal.agentmail("a2", "receive").stdout.endswith("hello")
    assert not (tmp_path / "tree" / ".agentmail").exists()


@requirement("agents:identity")
def test_a_message_goes_to_the_repository_in_which_the_recipient_works(
    terminal: Terminal, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    terminal.open("far", folder=other)

    sent = terminal.agentmail("a1", "send", "far", "hello")

    assert sent.returncode == 0
    assert terminal.agentmail("far", "receive", folder=other).stdout.endswith("hello")


@requirement("agents:light")
def test_the_short_commands_import_the_standard_library_only(terminal: Terminal) -> None:
    code = (
        "import sys; from deskhand.agentmail import main; main(sys.argv[1:])\n"
        "mine = {m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(sorted(m for m in mine if not m.startswith('__')), file=sys.stderr)"
    )
    for call in (
        ["send", "a2", "x"],
        ["receive"],
        ["receive", "--hook"],
        ["recipients"],
        ["status", "work"],
        ["onboard"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *call],
            env=terminal.variables("a1"),
            cwd=terminal.repository,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        foreign = [
            name
            for name in eval(done.stderr)
            if name not in ("deskhand", "sitecustomize", "coverage")
        ]
        assert [
            name for name in foreign if "coverage" not in name and "editable" not in name
        ] == [], call


@requirement("agents:light")
def test_a_hook_without_mail_takes_at_most_three_times_as_long_as_python_itself(
    terminal: Terminal,
) -> None:
    terminal.agentmail("a1", "send", "a2", "hello")
    terminal.agentmail("a2", "receive")

    def seconds(command: list[str]) -> float:
        started = time.perf_counter()
        subprocess.run(
            command, env=terminal.variables("a2"), cwd=terminal.repository, check=True
        )
        return time.perf_counter() - started

    # The least of many tries: what else runs on the machine is not the hook's.
    hook = bare = math.inf
    for number in range(60):
        hook = min(hook, seconds([AGENTMAIL, "receive", "--hook"]))
        bare = min(bare, seconds([sys.executable, "-c", "pass"]))
        if number >= 10 and hook <= 3 * bare:
            return
    pytest.fail(f"a hook took {hook:.3f} s, python {bare:.3f} s")


@requirement("agents:hints")
@pytest.mark.parametrize(
    ("hint", "trouble"),
    [
        ("recipients.jsonl", "ENOSPC"),
        ("cursors/a2", "ENOSPC"),
        ("cursors", "EIO"),
        ("agents/bob", "ENOSPC"),
    ],
)
def test_a_message_is_given_where_a_hint_cannot_be_written(
    terminal: Terminal, strace: str, hint: str, trouble: str
) -> None:
    name = "bob" if hint == "agents/bob" else "a2"
    window = None if name == "bob" else "a2"
    more: Any = {"DESKHAND_AGENT": "bob"} if name == "bob" else {}
    terminal.agentmail(window, "receive", **more)
    texts = ["first", "second", "third"]
    for text in texts:
        assert terminal.agentmail("a1", "send", name, text).returncode == 0
    calls = "open,openat,mkdir,write,pwrite64,fsync,fdatasync,ftruncate"
    path = str(terminal.repository / ".agentmail" / hint)
    failing = [
        strace,
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-P",
        path,
        "-e",
        f"trace={calls}",
        "-e",
    ]
    under = [*failing, f"inject={calls}:error={trouble}"]

    shown = terminal.agentmail(window, "receive", under=under, **more)
    hook = terminal.agentmail(window, "receive", "--hook", under=under, **more)
    last = terminal.agentmail(window, "receive", **more)

    assert (shown.returncode, shown.stdout.endswith("\n\nfirst")) == (0, True), shown
    assert (hook.returncode, hook.stderr.endswith("\n\nsecond")) == (2, True), hook
    assert last.stdout.endswith("\n\nthird")
    assert terminal.agentmail(window, "receive", **more).stdout == "No unread messages\n"


@requirement("agents:durable")
@pytest.mark.parametrize(("way", "options"), [("stdout", []), ("stderr", ["--hook"])])
def test_a_message_that_could_not_be_shown_is_unread_again(
    terminal: Terminal, way: str, options: list[str]
) -> None:
    terminal.agentmail("a1", "send", "a2", "hello")
    streams: Any = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "stdin": subprocess.DEVNULL,
    }
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [AGENTMAIL, "receive", *options],
            **streams | {way: full},
            env=terminal.variables("a2"),
            cwd=terminal.repository,
            check=False,
        )

    assert done.returncode != 2
    assert terminal.agentmail("a2", "receive").stdout.endswith("\n\nhello")
    assert terminal.agentmail("a2", "receive").stdout == "No unread messages\n"


@requirement("agents:commands")
def test_a_hook_stays_silent_whatever_is_broken(terminal: Terminal, home: Home) -> None:
    box = terminal.repository / ".agentmail" / "mailboxes" / "a1.jsonl"
    box.parent.mkdir(parents=True)
    box.write_text('{"id":"torn')
    damaged = terminal.agentmail("a1", "receive", "--hook")
    assert (damaged.returncode, damaged.stdout, damaged.stderr) == (0, "", "")

    home.path.mkdir(exist_ok=True)
    (home.path / "config.toml").write_text("[agents\n")
    terminal.agentmail("a1", "send", "a2", "hello", DESKHAND_HOME=str(terminal.repository))

    hook = terminal.agentmail("a2", "receive", "--hook")
    spoken = terminal.agentmail("a2", "receive")

    assert (hook.returncode, hook.stdout, hook.stderr) == (0, "", "")
    assert spoken.returncode == 1
    assert spoken.stderr.startswith(f"error: cannot read {home.path / 'config.toml'}: ")


@requirement("agents:commands")
def test_deskhand_agentmail_is_the_same_command(terminal: Terminal) -> None:
    def deskhand(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [warm_python(), "-m", "deskhand", "agentmail", *arguments],
            env=terminal.variables("a1"),
            cwd=terminal.repository,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    assert re.fullmatch(SENT, deskhand("send", "a2", "-m", "hello").stdout)
    assert (deskhand("status", "x").returncode, deskhand("--help").returncode) == (1, 0)
