"""What befalls a desk from outside: damaged files, full disks, stopped processes, clocks that were wrong."""

import json
import logging
import os
import re
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path

import pytest
from mcp import Client

from deskhand import audit, locks, log
from deskhand.agents import files as agent_files
from deskhand.agents.mail import AgentMessage
from deskhand.app import Desk
from deskhand.audit import vault_log
from deskhand.config import load
from deskhand.errors import BadConfig, Unavailable
from deskhand.gate.actions import SendEmail
from deskhand.gate.rate import Allow, Limits, Wait, judge
from deskhand.orchestrator import replies
from deskhand.servers.obsidian import obsidian_server
from deskhand.setup import doctor
from deskhand.store import open_store, sqlite
from tests.home import Home
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


def entry(number: int) -> audit.Entry:
    return audit.Entry.of(
        datetime(2026, 11, 1, 9, tzinfo=UTC), "obsidian_mcp", "write_note", f"{number}.md"
    )


def fill(home: Home, lines: int = 200) -> Path:
    """A desk with a record of some pages, closed."""
    store = open_store(f"sqlite:///{home.path / 'desk.db'}")
    for number in range(lines):
        store.write_sync(audit.append, entry(number))
    store.close()
    return home.path / "desk.db"


def overwrite(file: Path) -> None:
    file.write_bytes(b"this is no database" * 1000)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def scramble(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(100)
        opened.write(os.urandom(4000))


DAMAGE = [overwrite, cut, scramble]


@requirement("faults:database")
@pytest.mark.parametrize("damage", DAMAGE)
async def test_with_a_damaged_database_nothing_happens_that_could_not_be_recorded(
    home: Home, damage: Callable[[Path], None]
) -> None:
    damage(fill(home))
    desk = Desk(load(home.environment).settings)
    async with Client(obsidian_server(desk)) as client:
        answer = await client.call_tool(
            "write_note", {"path": "a.md", "frontmatter": {}, "body": "Hi."}
        )
    findings = {each.name: each.state for each in await doctor.checkup(desk)}

    written = (home.vault / "a.md").exists()
    assert (answer.is_error, written) in ((True, False), (False, True))
    assert "unexpected" not in str(answer.content)
    assert findings["database"] == "bad"


@requirement("faults:database")
def test_no_command_shows_a_traceback_whatever_the_database_is(home: Home) -> None:
    file = fill(home)
    newer = sqlite3.connect(file)
    with closing(newer):
        newer.execute("UPDATE alembic_version SET version_num = '9999'")
        newer.commit()
    said = [home.command("log")]
    overwrite(file)
    said += [
        home.command(*each)
        for each in (["log"], ["approvals", "--json"], ["token", "list"])
    ]

    assert [each.returncode for each in said] == [3, 7, 7, 7]
    assert "knows" in said[0].stderr
    assert "is damaged" in said[1].stderr
    assert not [each.stderr for each in said if "Traceback" in each.stderr]


@contextmanager
def no_larger_files(most: int) -> Iterator[None]:
    """A disk on which no file grows beyond this: the desk's home is full, the vault is not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@requirement("faults:record")
async def test_while_an_entry_is_owed_to_the_record_nothing_more_is_written(
    home: Home, desk: Desk
) -> None:
    for number in range(40):
        desk.store.write_sync(audit.append, entry(number))

    async with Client(obsidian_server(desk)) as client:

        async def write(name: str) -> bool:
            note = {"path": name, "frontmatter": {}, "body": "Hi."}
            return not (await client.call_tool("write_note", note)).is_error

        with no_larger_files(30_000):
            during = [await write(f"{number}.md") for number in range(3)]
        after = await write("after.md")
    recorded = {each.target for _, each in desk.store.write_sync(audit.entries)}

    assert (during, after) == ([True, False, False], True)
    assert sorted(path.name for path in home.vault.glob("*.md")) == ["0.md", "after.md"]
    assert {"0.md", "after.md"} <= recorded


@requirement("faults:record")
def test_a_record_that_lost_its_end_is_found(home: Home) -> None:
    database = home.path / "desk.db"
    code = (
        "import os; from deskhand import audit; from deskhand.store import open_store;"
        "from tests.test_faults import entry;"
        f"store = open_store('sqlite:///{database}');"
        "[store.write_sync(audit.append, entry(number)) for number in range(40)]; os._exit(0)"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env=home.environment,
        cwd=Path(__file__).parents[1],
    )
    with Path(f"{database}-wal").open("r+b") as wal:
        wal.seek(Path(f"{database}-wal").stat().st_size * 2 // 3)
        wal.write(b"\xff")

    found = home.command("log", "--verify")
    doctor_says = home.command("doctor").stdout

    assert found.returncode == 1
    assert "the record had 40 lines" in found.stdout
    assert "NOT intact: line" in doctor_says


@requirement("faults:record")
def test_what_is_noted_beside_the_database_is_noted_again_where_somebody_deletes_it(
    tmp_path: Path,
) -> None:
    store = open_store(f"sqlite:///{tmp_path}/desk.db")
    store.write_sync(audit.append, entry(1))
    (tmp_path / "desk.db.head").unlink()
    assert store.read_beside("head") is None
    store.write_sync(audit.append, entry(2))
    store.write_sync(audit.append, entry(3))

    noted = store.read_beside("head")
    store.close()
    assert noted is not None
    assert noted.split()[0] == "3"


@requirement("faults:record")
def test_what_the_vault_knows_of_the_record_counts_until_the_desk_is_restored(
    home: Home, tmp_path: Path
) -> None:
    fill(home, 3)
    (home.vault / "Logs").mkdir()
    kept = tmp_path / "kept.tar"
    assert home.command("backup", str(kept)).returncode == 0
    note = (
        '{"lines": 9, "hash": "of a line that is gone", "at": "2026-11-01T10:00:00.000Z"}'
    )
    (home.vault / "Logs" / "record.json").write_text(note)
    lost = home.command("log", "--verify")
    restored = home.command("restore", str(kept))
    whole = home.command("log", "--verify")

    assert (lost.returncode, restored.returncode, whole.returncode) == (1, 0, 0), (
        whole.stdout
    )
    assert "the record had 9 lines, as is noted in the vault" in lost.stdout


@requirement("faults:record")
def test_a_line_of_the_vaults_log_is_whole_or_not_there(home: Home) -> None:
    for number in range(10):
        vault_log.append(home.vault, ("Logs",), "a.jsonl", {"number": number})
    file = home.vault / "Logs" / "a.jsonl"
    before = file.read_bytes()

    with no_larger_files(len(before) + 5), pytest.raises(OSError, match="File too large"):
        vault_log.append(home.vault, ("Logs",), "a.jsonl", {"number": 10})
    refused = file.read_bytes()
    file.write_bytes(before + b'{"torn')
    vault_log.append(home.vault, ("Logs",), "a.jsonl", {"number": 11})

    assert refused == before
    assert file.read_bytes() == before + b'{"torn\n{"number": 11}\n'


@requirement("faults:log")
def test_the_desks_log_turns_over_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "LARGEST", 2000)
    code = (
        "import logging, pathlib; from deskhand import log; log.LARGEST = 2000;"
        f"log.configure('INFO', pathlib.Path({str(tmp_path / 'desk.log')!r}));"
        "[logging.getLogger('x').info('line %d', number) for number in range(100)]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["desk.log", "desk.log.1"]
    assert all(
        file.stat().st_size <= 2000 and file.stat().st_mode & 0o777 == 0o600
        for file in files
    )


OUT_OF_FILES = """
import logging, resource, socket, asyncio, sys
from pathlib import Path
from deskhand import log
log.configure("INFO", Path(sys.argv[1]))
async def main():
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, backlog=100)
    place = server.sockets[0].getsockname()
    callers = [socket.create_connection(place) for _ in range(3)]
    used = len(callers) + server.sockets[0].fileno() + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (used, used))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
asyncio.run(main())
"""


@requirement("faults:log")
def test_out_of_descriptors_the_log_says_so_once_and_keeps_what_stood_in_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "desk.log"
    command = [sys.executable, "-c", OUT_OF_FILES, str(file)]
    subprocess.run(command, timeout=60, check=True)

    said = [json.loads(line)["event"] for line in file.read_text().splitlines()]
    assert [line.startswith("socket.accept() out of system") for line in said] == [True]


@requirement("faults:log")
def test_the_same_line_passes_once_a_minute_and_another_at_once() -> None:
    once = log.Once()

    def passes(text: str, at: float) -> bool:
        record = logging.makeLogRecord({"msg": text, "created": at})
        return bool(once.filter(record))

    said = [("a", 0.0), ("a", 59.0), ("b", 59.0), ("b", 60.0), ("a", 61.0), ("a", 121.0)]
    assert [passes(*each) for each in said] == [True, False, True, False, True, True]


@requirement("faults:log")
def test_a_line_of_the_log_that_the_disk_does_not_take_is_said_on_stderr() -> None:
    code = (
        "import logging, pathlib; from deskhand import log;"
        "log.configure('INFO', pathlib.Path('/dev/full'));"
        "logging.getLogger('x').error('not_on_record', extra={'tool': 'write_note'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    (line,) = done.stderr.splitlines()
    assert json.loads(line)["event"] == "not_on_record"
    assert json.loads(line)["tool"] == "write_note"


@requirement("faults:locks")
def test_who_waits_for_the_database_hears_which_process_writes(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = fill(home, 1)
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.2)
    store = open_store(f"sqlite:///{file}")
    begin = f"c = sqlite3.connect({str(file)!r}); c.execute('BEGIN IMMEDIATE')"
    code = f"import sqlite3; {begin}; print('x', flush=True); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"x\n"
        with pytest.raises(Unavailable) as caught:
            store.write_sync(audit.append, entry(1))
        holder.kill()
    store.write_sync(audit.append, entry(2))
    store.close()

    assert f"held by process {holder.pid} (" in caught.value.message


@requirement("faults:locks")
def test_who_waits_for_a_mailbox_of_agents_hears_which_process_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_files, "LONGEST_WAIT", 0.2)
    room = agent_files.FilesRoom(str(tmp_path))
    room.append(AgentMessage("00000001", "a", "b", "Hello", "2026-11-15T06:15:07Z"))
    box = tmp_path / ".agentmail" / "mailboxes" / "b.jsonl"
    code = f"import fcntl, os; fcntl.flock(os.open({str(box)!r}, 0), 2); print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(Unavailable) as caught:
            room.take("b")
        holder.kill()
    taken = room.take("b")

    assert f"held by process {holder.pid} (" in caught.value.message
    assert taken is not None


@requirement("faults:locks")
async def test_who_waits_for_a_lock_hears_in_time_which_process_has_it(
    home: Home, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "SECONDS", 0.2)
    code = f"import fcntl, os; fcntl.flock(os.open({str(home.vault)!r}, 0), 2); print('held', flush=True); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:  # noqa: ASYNC220
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.send_signal(signal.SIGSTOP)
        try:
            async with Client(obsidian_server(desk)) as client:
                answer = await client.call_tool(
                    "write_note", {"path": "a.md", "frontmatter": {}, "body": "Hi."}
                )
        finally:
            holder.kill()

    assert f"held by process {holder.pid} (" in str(answer.content)
    assert "stopped" in str(answer.content)


@requirement("faults:keys")
@pytest.mark.parametrize("content", ["", "\n", "short"])
async def test_an_empty_or_short_key_is_refused_and_found(
    home: Home, desk: Desk, content: str
) -> None:
    home.path.mkdir(exist_ok=True)
    for name in ("seal.key", "token"):
        (home.path / name).write_text(content)
        with pytest.raises(BadConfig, match="too short"):
            desk.secret(name)

    findings = {each.name: each.state for each in await doctor.checkup(desk)}
    assert findings["keys"] == "bad"


@requirement("faults:keys")
async def test_machines_with_one_database_and_two_keys_are_told_so(
    home: Home, tmp_path: Path
) -> None:
    shared = home.environment | {
        "DESKHAND_DATABASE_URL": f"sqlite:///{tmp_path / 'shared.db'}"
    }
    first = Desk(load(shared).settings)
    second = Desk(load(shared | {"DESKHAND_HOME": str(tmp_path / "second")}).settings)
    assert first.door is not None

    with pytest.raises(BadConfig, match=r"seal\.key"):
        _ = second.door
    assert {each.name: each.state for each in await doctor.checkup(second)}["keys"] == "bad"
    (tmp_path / "second" / "seal.key").write_bytes((home.path / "seal.key").read_bytes())
    assert second.door is not None
    # The key is lost everywhere: the person says so by removing it.
    (home.path / "seal.key").unlink()
    first.__dict__.pop("door")
    assert doctor.repair(first)
    assert first.door is not None
    first.close()
    second.close()


@requirement("faults:clock")
def test_sends_of_a_clock_that_was_ahead_hold_nobody_up_for_longer_than_the_window() -> (
    None
):
    now = datetime(2026, 11, 1, 9, tzinfo=UTC)
    limits = Limits(most=2, window=timedelta(hours=1))

    found = judge(sent=[now + timedelta(days=2)] * 2, now=now, limits=limits)

    assert found == Wait(until=now + limits.window)
    assert judge(sent=[now + timedelta(days=2)], now=now, limits=limits) == Allow()


@requirement("faults:clock")
async def test_a_yes_that_rests_under_a_wrong_clock_acts_when_the_clock_is_right(
    home: Home,
) -> None:
    own = home.environment | {
        "DESKHAND_ADDRESS": "me@example.com",
        "DESKHAND_HOLD_SECONDS": "5",
    }
    now = datetime(2026, 11, 1, 9, tzinfo=UTC)
    ahead = Desk(load(own).settings, lambda: now + timedelta(days=2))
    await ahead.gate.propose(
        SendEmail(to="ann@example.org", subject="Hello", body="Hi.\n"), "email_mcp"
    )
    (card,), _ = await ahead.waiting.cards()
    await ahead.answers.approve(card.id, card.digest, "person")
    ahead.close()
    right = Desk(load(own).settings, lambda: now)

    await replies.look_around(right)
    due = await right.gate.take_due()
    clock = {each.name: each.state for each in await doctor.checkup(right)}["clock"]

    assert due is not None
    assert due.id == card.id
    assert clock == "bad"
    await right.close_mailbox()
    right.close()


@requirement("faults:leftovers")
async def test_a_second_name_that_a_power_cut_left_of_a_note_keeps_nobody_from_it(
    home: Home, desk: Desk
) -> None:
    note = home.vault / "a.md"
    note.write_text("Hi.\n")
    twin = home.vault / f".deskhand-{blake2b(b'a.md', digest_size=8).hexdigest()}.tmp"
    os.link(note, twin)

    assert desk.vault.read("a.md").body == "Hi.\n"
    assert not twin.exists()
    os.link(note, home.vault / "b.md")
    async with Client(obsidian_server(desk)) as client:
        assert (await client.call_tool("read_note", {"path": "a.md"})).is_error


@requirement("faults:leftovers")
def test_what_killed_processes_left_is_swept_and_nothing_else(
    home: Home, desk: Desk
) -> None:
    home.path.mkdir(exist_ok=True)
    old = [
        home.path / ".token.0123456789abcdef",
        home.vault / ".deskhand-0123456789abcdef.tmp",
    ]
    kept = [
        home.path / "mine.0123456789abcdef",
        home.vault / ".mine.tmp",
        home.vault / "a.md",
    ]
    for path in (*old, *kept):
        path.write_text("x")
        os.utime(path, (1, 1))
    fresh = home.vault / ".deskhand-fedcba9876543210.tmp"
    fresh.write_text("being written")

    done = doctor.repair(desk)

    assert [path for path in old if path.exists()] == []
    assert all(path.exists() for path in (*kept, fresh))
    assert len([line for line in done if "a killed process left" in line]) == 2


@requirement("faults:durable")
def test_a_backup_and_a_restore_are_on_the_disk_before_they_are_called_done(
    home: Home, strace: str, tmp_path: Path
) -> None:
    fill(home, 3)
    kept = tmp_path / "kept.tar"
    calls = []
    for arguments in (
        ["backup", str(kept)],
        ["restore", str(kept), "--to", str(tmp_path / "back")],
    ):
        traced = [
            strace,
            "-f",
            "-y",
            "-o",
            str(tmp_path / "trace"),
            "-e",
            "trace=fsync,link,linkat,rename,write",
        ]
        command = [*traced, sys.executable, "-m", "deskhand", *arguments]
        assert (
            subprocess.run(
                command, env=home.environment, check=False, capture_output=True
            ).returncode
            == 0
        )
        calls.append((tmp_path / "trace").read_text())

    for text, named in zip(
        calls, (r"link(?:at)?\([^\n]*kept\.tar", r"rename\([^\n]*/back\""), strict=True
    ):
        assert re.search(
            rf"{named}.*fsync\(\d+<{re.escape(str(tmp_path))}>.*write\(1<", text, re.DOTALL
        )
