"""The files: their bytes, what damage does to them, and what a kill does not."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deskhand.agents import paths
from deskhand.agents.files import FilesRoom
from deskhand.agents.lines import decode, encode_message, message_of
from deskhand.agents.mail import NEVER, AgentMessage, instant, timestamp
from tests.requirements import requirement

IO = Path("/proc/thread-self/io")
TIME = "2026-11-15T06:15:07.375604828Z"


@pytest.fixture
def room(tmp_path: Path) -> FilesRoom:
    return FilesRoom(str(tmp_path))


def box(tmp_path: Path, name: str = "b") -> Path:
    path = tmp_path / ".agentmail" / "mailboxes" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def texts(room: FilesRoom) -> list[str]:
    got = []
    while (message := room.take("b")) is not None:
        got.append(message.text)
    return got


def go_reads(path: Path) -> list[dict[str, object]]:
    """As the existing program reads the file: split at line ends, skip empty lines, parse every other one."""
    return [
        json.loads(line.decode("utf-8", "replace"))
        for line in path.read_bytes().split(b"\n")
        if line
    ]


@requirement("agents:bytes")
def test_the_lines_are_the_existing_programs_and_reading_changes_five_bytes(
    room: FilesRoom, tmp_path: Path
) -> None:
    room.append(AgentMessage("IveXPkNQ", "a1", "b", "Hello <b> & é", TIME))
    room.append(AgentMessage("00000002", "a1", "b", "tab\t, \x01 and \u2028", TIME))
    before = box(tmp_path).read_bytes()

    room.take("b")

    first = r'{"id":"IveXPkNQ","from":"a1","to":"b","message":"Hello \u003cb\u003e \u0026 é","read_flag":'
    second = r'{"id":"00000002","from":"a1","to":"b","message":"tab\t, \u0001 and \u2028","read_flag":false'
    rest = f',"created_at":"{TIME}"}}\n'
    assert before.decode() == f"{first}false{rest}{second}{rest}"
    assert box(tmp_path).read_text() == f"{first}true {rest}{second}{rest}"
    assert box(tmp_path).stat().st_mode & 0o777 == 0o600
    assert box(tmp_path).parent.stat().st_mode & 0o777 == 0o750


@requirement("agents:bytes")
def test_a_state_is_written_as_the_existing_program_and_the_contract_do(
    room: FilesRoom, tmp_path: Path
) -> None:
    room.set_status("b", "work", TIME)
    states = tmp_path / ".agentmail" / "recipients.jsonl"
    written = states.read_text()
    room.set_last_read("b", 1794723308068, TIME)

    never = '"notified_at":"0001-01-01T00:00:00Z"'
    contract = '"name":"b","notified":false'
    assert (
        written
        == f'{{"recipient":"b","status":"work","updated_at":"{TIME}",{never},{contract}}}\n'
    )
    assert go_reads(states)[0]["last_read_at"] == 1794723308068


@requirement("agents:contract")
def test_no_line_of_the_states_is_empty_however_often_they_change(
    room: FilesRoom, tmp_path: Path
) -> None:
    states = tmp_path / ".agentmail" / "recipients.jsonl"
    for number in range(30):
        name = f"agent {number % 4}"
        room.set_status(name, "offline" if number % 3 else "ready", TIME)
        room.set_notified(name, TIME[: 20 + number % 9] + "Z")
        room.set_last_read(name, 10**number, TIME)
        if number % 7 == 6:
            room.remove_states([f"agent {number % 3}"])

        lines = [json.loads(line) for line in states.read_text().splitlines()]
        assert sorted(line["name"] for line in lines) == sorted(
            state.name for state in room.states()
        )
        assert all(line["name"] == line["recipient"] for line in lines)
        assert states.stat().st_size < 5000
    assert {state.last_read_at for state in room.states()} <= {
        10**number for number in range(30)
    }


@requirement("agents:bytes")
@settings(max_examples=50)
@given(st.text(), st.text(min_size=1), st.integers(0, 2**62))
def test_any_text_and_time_come_back_as_they_were(
    text: str, name: str, nanoseconds: int
) -> None:
    message = AgentMessage("id", name, name, text, timestamp(nanoseconds))

    assert message_of(decode(encode_message(message)) or {}) == message
    assert instant(message.created_at) == nanoseconds
    assert paths.agent_name(paths.file_name(name)) == name
    assert "/" not in paths.file_name(name)


@requirement("agents:damage")
@pytest.mark.parametrize(
    "damage",
    [
        b'{"id":"torn","from":"a","mess',
        b"\0" * 300,
        b"not json at all",
        b"[1, 2]",
        b'{"id": 7, "message": "x"}',
        b'{"no": "message"}',
        b"\xff\xfe\xfd",
        b"[" * 100_000,
    ],
    ids=lambda damage: repr(damage[:12]),
)
def test_a_damaged_line_stops_nobody_and_is_kept_aside(
    room: FilesRoom, tmp_path: Path, damage: bytes
) -> None:
    room.append(AgentMessage("id000001", "a", "b", "before"))
    with box(tmp_path).open("ab") as file:
        file.write(damage)  # and no line end, as a kill leaves it
    room.append(AgentMessage("id000002", "a", "b", "after"))

    assert texts(room) == ["before", "after"]
    assert [line["id"] for line in go_reads(box(tmp_path))] == ["id000001", "id000002"]
    kept = tmp_path / ".agentmail" / "damaged" / "b.jsonl"
    assert kept.read_bytes() == damage + b"\n"


@requirement("agents:damage")
def test_a_torn_end_is_healed_by_the_next_caller_for_every_other_program(
    room: FilesRoom, tmp_path: Path
) -> None:
    for name in ("b", "c"):
        room.append(AgentMessage("id000001", "a", name, "first"))
        room.append(AgentMessage("id000002", "a", name, "second"))
        with box(tmp_path, name).open("ab") as file:
            file.write(b'{"id":"torn')

    room.take("b")
    room.append(AgentMessage("id000003", "a", "c", "third"))

    assert [line["id"] for line in go_reads(box(tmp_path))] == ["id000001", "id000002"]
    assert [line["id"] for line in go_reads(box(tmp_path, "c"))] == [
        "id000001",
        "id000002",
        "id000003",
    ]


@requirement("agents:damage")
def test_messages_of_other_forms_are_delivered_once_and_keep_their_fields(
    room: FilesRoom, tmp_path: Path
) -> None:
    lines = [
        b'{"id": "spaced", "message": "1", "read_flag": false, "thread": 9}',
        b'{"id":"noflag","message":"2","extra":{"read_flag":true,"deep":[1]}}',
        b'\0\0{"id":"nuls","from":"a","to":"b","message":"3","read_flag":false}\0',
        b'{"id":"torn-flag","message":"4","read_flag":truse}',
        b'{"id":"latin","message":"caf\xe9","read_flag":false}',
        b'{"id":"half","message":"5 \\ud800","read_flag":false}',
        b'{"id":"read","message":"6","read_flag":true ,"more":{}}',
        b'{"id":"last","message":"7","read_flag":false}',
    ]
    box(tmp_path).write_bytes(b"\n\n" + b"\n".join(lines))

    assert texts(room) == ["1", "2", "3", "4", "caf\ufffd", "5 \ufffd", "7"]
    kept = {line["id"]: line for line in go_reads(box(tmp_path))}
    assert all(line["read_flag"] is True for line in kept.values())
    assert len(kept) == len(lines)
    assert (kept["spaced"]["thread"], kept["noflag"]["extra"]) == (
        9,
        {"read_flag": True, "deep": [1]},
    )


@requirement("agents:damage")
def test_a_line_of_many_megabytes_stops_nobody(room: FilesRoom, tmp_path: Path) -> None:
    box(tmp_path).write_bytes(b"y" * 4_000_000 + b"\n")
    room.append(AgentMessage("id000001", "a", "b", "x" * 4_000_000))
    room.append(AgentMessage("id000002", "a", "b", "after"))

    assert [len(text) for text in texts(room)] == [4_000_000, 5]
    assert (tmp_path / ".agentmail" / "damaged" / "b.jsonl").stat().st_size == 4_000_001


@requirement("agents:damage")
def test_an_empty_mailbox_and_a_missing_one_are_empty(
    room: FilesRoom, tmp_path: Path
) -> None:
    assert room.take("b") is None
    box(tmp_path).touch()
    assert room.take("b") is None
    assert paths.surely_empty(str(tmp_path), "b")


@requirement("agents:damage")
def test_states_are_read_in_both_spellings_and_kept_with_what_others_added(
    room: FilesRoom, tmp_path: Path
) -> None:
    box(tmp_path)
    states = tmp_path / ".agentmail" / "recipients.jsonl"
    states.write_text(
        '{"name":"a","status":"ready","notified":true,"last_read_at":5,"team":"x"}\n'
        f'{{"recipient":"b","status":"work","updated_at":"{TIME}","notified_at":"0001-01-01T00:00:00Z"}}\n'
        '{"recipient":"c","sta'
    )

    room.set_status("a", "offline", TIME)

    assert {entry.name: entry.status for entry in room.states()} == {
        "a": "offline",
        "b": "work",
    }
    (a,) = [line for line in go_reads(states) if line.get("recipient") == "a"]
    assert (a["last_read_at"], a["team"]) == (5, "x")
    assert (
        tmp_path / ".agentmail" / "damaged" / "recipients.jsonl"
    ).read_text() == '{"recipient":"c","sta\n'


@requirement("agents:contract")
@pytest.mark.parametrize("updated", ["", f'"updated_at":"{TIME}",'])
def test_a_line_in_the_contracts_own_form_keeps_its_flag_until_its_agent_works(
    room: FilesRoom, tmp_path: Path, updated: str
) -> None:
    box(tmp_path)
    states = tmp_path / ".agentmail" / "recipients.jsonl"
    states.write_text(
        f'{{"name":"a","status":"work",{updated}"notified":true,"last_read_at":5}}\n'
    )

    def flags() -> tuple[object, ...]:
        (line,) = [
            json.loads(line) for line in states.read_text().splitlines() if line.strip()
        ]
        return line["name"], line["status"], line["notified"], line["last_read_at"]

    room.set_status("a", "ready", TIME)
    assert flags() == ("a", "ready", True, 5)
    room.set_last_read("a", 7, TIME)
    room.set_status("a", "ready", TIME)
    assert flags() == ("a", "ready", True, 7)
    room.set_status("a", "offline", TIME)
    assert flags() == ("a", "offline", False, 7)
    room.set_notified("a", TIME)
    room.set_status("a", "ready", TIME)
    assert flags() == ("a", "ready", True, 7)
    # Another program takes the flag back in its own spelling alone.
    states.write_text(states.read_text().replace('"notified":true', '"notified":false'))
    assert room.states()[0].notified_at == NEVER


@requirement("agents:bytes")
def test_a_file_that_the_existing_program_rewrote_misleads_nobody(
    room: FilesRoom, tmp_path: Path
) -> None:
    for number in range(50):
        room.append(
            AgentMessage(f"id{number:06}", "a", "b", f"{number} {'x' * number}", TIME)
        )
    got = [room.take("b").id for _ in range(20)]

    # It parses and writes every line anew, which takes out the blank after `true`.
    lines = go_reads(box(tmp_path))
    box(tmp_path).write_text(
        "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    )
    got += [room.take("b").id for _ in range(10)]
    box(tmp_path).write_text(
        "".join(
            json.dumps(line, separators=(",", ":")) + "\n"
            for line in go_reads(box(tmp_path))[25:]
        )
    )
    got += [room.take("b").id for _ in range(20)]

    assert got == [f"id{number:06}" for number in range(50)]
    assert room.take("b") is None


@requirement("agents:durable")
def test_a_mailbox_that_was_unlinked_while_waiting_for_its_lock_is_made_anew(
    tmp_path: Path,
) -> None:
    import fcntl

    room = FilesRoom(str(tmp_path))
    room.append(AgentMessage("id000001", "a", "b", "old"))
    code = (
        "import sys; from deskhand.agents.files import FilesRoom; from deskhand.agents.mail import AgentMessage\n"
        "FilesRoom(sys.argv[1]).append(AgentMessage('id000002', 'a', 'b', 'new'))"
    )
    with box(tmp_path).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) as sender:
            while not _has_open(sender.pid, box(tmp_path)):
                assert sender.poll() is None
            box(tmp_path).unlink()
            fcntl.flock(held, fcntl.LOCK_UN)

    assert texts(room) == ["new"]


def _has_open(pid: int, file: Path) -> bool:
    """Whether the process has opened the file, and so waits for its lock."""
    with suppress(OSError):
        return any(
            Path(link).resolve() == file.resolve()
            for link in Path(f"/proc/{pid}/fd").iterdir()
        )
    return False


@requirement("agents:durable")
def test_cleanup_leaves_a_mailbox_that_another_program_has_open(
    room: FilesRoom, tmp_path: Path
) -> None:
    box(tmp_path).touch()
    with box(tmp_path).open("ab"):
        kept = room.remove_if_empty("b", dry_run=False)

    assert not kept
    assert room.remove_if_empty("b", dry_run=False)


@requirement("agents:durable")
def test_a_full_disk_is_said_and_leaves_the_mailbox_as_it_was(
    room: FilesRoom, tmp_path: Path
) -> None:
    room.append(AgentMessage("id000001", "a", "b", "fits"))
    before = box(tmp_path).read_bytes()
    code = (
        "import resource, signal, sys; from deskhand.agents.files import FilesRoom\n"
        "from deskhand.agents.mail import AgentMessage\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "FilesRoom(sys.argv[1]).append(AgentMessage('id000002', 'a', 'b', 'x' * 9000))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert "File too large" in done.stderr
    assert box(tmp_path).read_bytes() == before


PERSON = """
import sys
from deskhand.agents.files import FilesRoom
from deskhand.agents.mail import AgentMessage
root, role, number, count = sys.argv[1:]
room = FilesRoom(root)
with room.bell("b") as bell:
    for done in range(int(count)):
        if role == "sender":
            room.append(AgentMessage(f"{number}-{done:06}", "a", "b", "hello"))
            continue
        while (message := room.take("b")) is None:
            bell.wait(20)
        print(message.id)
"""


@requirement("agents:once")
def test_four_senders_and_four_receivers_deliver_each_message_once(tmp_path: Path) -> None:
    people = [
        subprocess.Popen(
            [sys.executable, "-c", PERSON, str(tmp_path), role, str(number), "50"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
        for role in ("sender", "receiver")
    ]
    got = " ".join(person.communicate(timeout=60)[0] for person in people).split()

    assert sorted(got) == [
        f"{sender}-{number:06}" for sender in range(4) for number in range(50)
    ]


LOOP = """
import sys
from deskhand.agents.files import FilesRoom
from deskhand.agents.mail import AgentMessage
root, role, run = sys.argv[1:]
room, number = FilesRoom(root), 0
while True:
    number += 1
    if role == "send":
        room.append(AgentMessage(f"{run}-{number}", "a", "b", "x" * (number * 997 % 9000)))
        print(f"{run}-{number}", flush=True)
    else:
        print(room.take("b").id, flush=True)
"""


@requirement("agents:durable")
def test_what_was_acknowledged_outlives_a_kill(room: FilesRoom, tmp_path: Path) -> None:
    sent: list[str] = []
    read: list[str] = []
    for run in range(4):
        for role, book in (("send", sent), ("receive", read)):
            with subprocess.Popen(
                [sys.executable, "-c", LOOP, str(tmp_path), role, str(run)],
                stdout=subprocess.PIPE,
                text=True,
            ) as worker:
                said = [
                    worker.stdout.readline() for _ in range(20 if role == "send" else 5)
                ]
                worker.kill()
                said += worker.stdout.readlines()
            book += [line.strip() for line in said if line.endswith("\n")]

    left = [message.id for message in iter(lambda: room.take("b"), None)]
    assert len(set(read + left)) == len(read + left)
    # One in each run may have been marked by the receiver that was killed before it could say so.
    assert len(set(sent) - set(read + left)) <= 4
    assert go_reads(box(tmp_path))


@requirement("agents:history")
@pytest.mark.skipif(
    not IO.exists(), reason="this system does not say how much a thread reads"
)
def test_a_hundred_thousand_read_messages_cost_a_receiver_nothing(tmp_path: Path) -> None:
    def reads(history: int) -> list[tuple[int, int]]:
        """The bytes and the calls that it takes to receive each of some new messages."""
        root = tmp_path / str(history)
        line = encode_message(
            AgentMessage("id000000", "a", "b", "x" * 100, TIME, read=True)
        )
        box(root).write_bytes(line * history)
        room = FilesRoom(str(root))
        room.take("b")
        found = []
        for number in range(5):
            room.append(AgentMessage(f"new{number:05}", "a", "b", "hello"))
            before = read_so_far()
            room.take("b")
            after = read_so_far()
            found.append((after[0] - before[0], after[1] - before[1]))
        return found

    alone, crowded = reads(0)[2:], reads(100_000)[2:]
    assert [calls for _, calls in crowded] == [calls for _, calls in alone]
    assert all(
        more <= less + 10_000 for (more, _), (less, _) in zip(crowded, alone, strict=True)
    )


def read_so_far() -> tuple[int, int]:
    """How many bytes this thread has read until now, by how many calls."""
    counts = dict(line.split(": ") for line in IO.read_text().splitlines())
    return int(counts["rchar"]), int(counts["syscr"])


@requirement("agents:history")
def test_the_cursor_is_only_a_hint(room: FilesRoom, tmp_path: Path) -> None:
    for number in range(4):
        room.append(AgentMessage(f"id{number:06}", "a", "b", str(number)))
    room.take("b")
    cursor = Path(paths.cursor(str(tmp_path), "b"))
    for mark in ("", "nonsense", "0 10 id000000", "999999 9999999 id000000"):
        cursor.write_text(mark)
        assert not paths.surely_empty(str(tmp_path), "b")
        assert room.has_unread("b")
    cursor.unlink()

    assert texts(room) == ["1", "2", "3"]
    assert paths.surely_empty(str(tmp_path), "b")
