import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskhand import audit, clock
from deskhand.app import Desk
from deskhand.audit import journal, search
from deskhand.audit.behind import UNSEEN, Begun
from deskhand.config import load
from deskhand.errors import Denied
from deskhand.store import Store, Transaction, open_store
from tests.home import Home
from tests.old_database import database_at
from tests.requirements import requirement
from tests.warm import warm_python

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def entry(**changes: object) -> audit.Entry:
    fields = {
        "timestamp": "2026-11-15T09:00:00.000Z",
        "correlation_id": "c",
        "actor": "obsidian_mcp",
        "action_type": "write_note",
        "target": "Inbox/a.md",
        "result": "success",
    }
    return audit.Entry.model_validate(fields | changes)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url)
    for number in range(5):
        store.write_sync(partial(audit.append, entry=entry(correlation_id=str(number))))
    yield store
    store.close()


def verified_after(store: Store, *statements: str) -> audit.Verified | audit.Broken:
    def tamper(tx: Transaction) -> None:
        for statement in statements:
            tx.execute(statement)

    store.write_sync(tamper)
    return store.write_sync(audit.verify)


@requirement("audit:chained")
def test_an_untouched_record_is_whole(store: Store) -> None:
    assert store.write_sync(audit.verify) == audit.Verified(5)


@requirement("audit:chained")
@pytest.mark.parametrize(
    ("statements", "line"),
    [
        (["UPDATE audit SET entry = replace(entry, 'success', 'error') WHERE seq = 3"], 3),
        (["DELETE FROM audit WHERE seq = 2"], 2),
        (["DELETE FROM audit WHERE seq = 5"], 5),
        (["DELETE FROM audit WHERE seq = 1", "UPDATE audit SET seq = seq - 1"], 1),
        (
            [
                "INSERT INTO audit (seq, entry, hash) SELECT 6, entry, hash FROM audit WHERE seq = 5"
            ],
            6,
        ),
        (["UPDATE audit SET hash = 'x' WHERE seq = 4"], 4),
        (["UPDATE audit_head SET hash = 'x'"], 5),
        (["DELETE FROM audit_head"], 6),
    ],
    ids=[
        "changed",
        "removed",
        "cut off",
        "renumbered",
        "inserted",
        "rehashed",
        "other head",
        "no head",
    ],
)
def test_the_first_line_that_is_not_as_written_is_named(
    store: Store, statements: list[str], line: int
) -> None:
    result = verified_after(store, *statements)

    assert isinstance(result, audit.Broken)
    assert result.seq == line


def test_the_newest_entries_come_first_and_can_be_paged(store: Store) -> None:
    newest = store.write_sync(lambda tx: audit.entries(tx, limit=2))
    older = store.write_sync(lambda tx: audit.entries(tx, before=newest[-1][0], limit=10))

    assert [seq for seq, _ in newest + older] == [5, 4, 3, 2, 1]


WORDS = st.text("abcdefghij.xyz-", min_size=1, max_size=20).filter(
    lambda text: text.strip(".-")
)


@requirement("audit:redacted")
@given(
    local=st.text("abcdefghijklmnopqrstuvwxyz0123456789.+-_", min_size=2, max_size=30),
    domain=st.from_regex(r"[a-z]{1,10}\.(com|org)", fullmatch=True),
    before=st.sampled_from(["", "to ", "<", "mail:", '"A B" <', "(", "[", "a@b.org, "]),
    secret=st.text(min_size=8, max_size=40).filter(lambda text: len(set(text)) > 5),
)
def test_no_address_body_or_secret_survives_redaction(
    local: str, domain: str, before: str, secret: str
) -> None:
    address = f"{local}@{domain}"
    event = {
        "to": f"{before}{address}",
        "list": [address],
        "nested": {
            "text": f"x {address} y",
            "body": secret,
            "Token": secret,
            "password": secret,
        },
        "body": secret,
        "subject": "s" * 80,
    }

    kept = audit.redact(event)

    assert audit.masked(f"Ann <{address}>") == f"Ann <{local[0]}***@{domain}>"
    assert address not in repr(kept)
    assert f"{local[0]}***@{domain}" in repr(kept)
    assert secret not in [value for value in kept.values() if isinstance(value, str)]
    assert set(kept["nested"]) == {"text"}
    assert kept["subject"] == "s" * 50


def test_the_command_line_shows_and_proves_the_record(home: Home) -> None:
    store = open_store(f"sqlite:///{home.path / 'desk.db'}")
    store.write_sync(lambda tx: audit.append(tx, entry(target="john.doe@example.com")))
    shown = home.command("log")
    whole = home.command("log", "--verify")
    store.write_sync(
        lambda tx: tx.execute("UPDATE audit SET entry = replace(entry, 'j', 'k')")
    )
    broken = home.command("log", "--verify", "--json")
    store.close()

    assert "Write note  j***@example.com  done" in shown.stdout
    assert (whole.returncode, whole.stdout) == (0, "Record intact: 1 entry verified.\n")
    assert broken.returncode == 1
    assert '"first_bad_line": 1' in broken.stdout


def kept(store: Store, count: int) -> list[audit.Entry]:
    """Entries over some days, the clock once set back, of three actors, and what they are."""
    made = [
        entry(
            timestamp=f"2026-11-{10 + (number // 20 if number < 80 else 1)}T09:00:00.000Z",
            actor=("email_mcp", "obsidian_mcp", "person\0")[number % 3],
            action_type=("write_note", "send_email")[number % 7 == 0],
            result=("success", "rejected", "error")[number % 5 % 3],
            target=(f"Inbox/{number}.md", f"Stra\u00dfe/\x01c-{number}.md")[
                number % 4 == 3
            ],
            error="not_found: <b>" if number % 11 == 0 else None,
        )
        for number in range(count)
    ]
    for each in made:
        store.write_sync(partial(audit.append, entry=each))
    return made


@requirement("audit:found")
@pytest.mark.parametrize(
    "wanted",
    [
        search.EntryFilter(),
        search.EntryFilter(actor="email_mcp"),
        search.EntryFilter(actor="person\ufffd", result="rejected"),
        search.EntryFilter(action="send_email", day="2026-11-11"),
        search.EntryFilter(day="2026-11-12", text="INBOX/5"),
        search.EntryFilter(day="2026-11-11", zone="Pacific/Honolulu"),
        search.EntryFilter(day="2026-11-31", zone="Pacific/Honolulu"),
        search.EntryFilter(day="0001-01-01", zone="Asia/Tokyo"),
        search.EntryFilter(text="<B>"),
        search.EntryFilter(text="not_found"),
        search.EntryFilter(text="INBOX"),
        search.EntryFilter(text="strasse"),
        search.EntryFilter(text="c-3"),
        search.EntryFilter(text="nowhere"),
        search.EntryFilter(actor="nobody"),
        search.EntryFilter(request="0123456789abcdef"),
    ],
    ids=str,
)
def test_a_search_finds_what_a_look_at_every_line_finds(
    url: str, wanted: search.EntryFilter
) -> None:
    store = open_store(url)
    made = kept(store, 100)
    expected = [number + 1 for number, each in enumerate(made) if wanted.takes(each)][::-1]

    found, before, pages = [], None, 0
    while pages == 0 or before is not None:
        page = store.write_sync(
            partial(search.find, wanted=wanted, before=before, limit=4, budget=30)
        )
        found += [seq for seq, _ in page.entries]
        before, pages = page.older, pages + 1

    by_day = store.write_sync(lambda tx: search.by_day(tx, date(2026, 11, 11), 30, "UTC"))
    store.close()
    assert found == expected
    assert pages <= len(expected) // 4 + 5
    assert sum(entries for _, _, entries in by_day) == sum(
        each.timestamp[:10] >= "2026-11-11" for each in made
    )


@requirement("audit:found")
def test_a_day_is_one_of_the_person(store: Store) -> None:
    late = entry(timestamp="2026-11-11T23:30:00.000Z", target="late")
    for each in (entry(timestamp="2026-11-11T22:30:00.000Z"), late):
        store.write_sync(partial(audit.append, entry=each))

    wanted = search.EntryFilter(day="2026-11-12", zone="Europe/Berlin")
    found = store.write_sync(partial(search.find, wanted=wanted))

    assert [each.target for _, each in found.entries] == ["late"]


@requirement("audit:found")
@pytest.mark.parametrize(
    "zone",
    [
        "UTC",
        "Pacific/Auckland",
        "America/Los_Angeles",
        "Asia/Kathmandu",
        "Australia/Lord_Howe",
    ],
)
def test_the_days_that_are_drawn_are_those_by_which_the_list_is_filtered(
    url: str, zone: str
) -> None:
    store = open_store(url)
    begin = datetime(2026, 10, 30, tzinfo=UTC)
    # Over the night in which the clocks of Los Angeles go back.
    for number in range(100):
        at = clock.iso(begin + timedelta(minutes=61 * number))
        result: audit.Result = "rejected" if number % 3 else "success"
        store.write_sync(partial(audit.append, entry=entry(timestamp=at, result=result)))
    drawn = store.write_sync(lambda tx: search.by_day(tx, date(2026, 10, 1), 60, zone))
    assert len({day for day, _, _ in drawn}) >= 5
    for day, counted, entries in drawn:
        wanted = search.EntryFilter(day=str(day), result=counted, zone=zone)
        found = store.write_sync(partial(search.find, wanted=wanted, limit=200))
        assert len(found.entries) == entries, (day, counted)
    assert sum(entries for _, _, entries in drawn) == 100
    store.close()


@requirement("audit:found")
def test_quarters_that_nobody_draws_any_more_are_dropped_and_the_record_stays(
    url: str,
) -> None:
    store = open_store(url)
    for at in ("2025-10-30T10:00:00.000Z", "2026-10-30T10:00:00.000Z"):
        store.write_sync(partial(audit.append, entry=entry(timestamp=at)))
    now = datetime(2026, 11, 18, tzinfo=UTC)
    dropped = [store.write_sync(search.forget_quarters, now) for _ in range(2)]
    drawn = store.write_sync(lambda tx: search.by_day(tx, date(2026, 10, 20), 30, "UTC"))
    wanted = search.EntryFilter(day="2025-10-30")
    found = store.write_sync(partial(search.find, wanted=wanted))
    verified = store.write_sync(audit.verify)
    store.close()
    assert dropped == [1, 0]
    assert [entries for _, _, entries in drawn] == [1]
    assert len(found.entries) == 1
    assert verified == audit.Verified(2)


@requirement("audit:found")
def test_who_acted_since_a_day_and_what_they_did_is_told_from_the_counters(
    url: str,
) -> None:
    store = open_store(url)
    assert store.write_sync(audit.head) == audit.START
    made = kept(store, 30)
    actors, actions = store.write_sync(lambda tx: search.names(tx, "2026-11-11"))
    last = store.write_sync(audit.head)
    store.close()

    since = [each for each in made if each.timestamp >= "2026-11-11"]
    assert actors == sorted({each.actor.replace("\0", "\ufffd") for each in since})
    assert actions == sorted({each.action_type for each in since})
    assert last.seq == len(made)


@requirement("audit:found")
def test_a_record_from_before_the_counters_is_counted_when_the_desk_is_brought_up_to_date(
    tmp_path: Path,
) -> None:
    counters = "SELECT * FROM audit_days ORDER BY day, actor, action, result"
    quarters = "SELECT * FROM audit_quarters ORDER BY quarter, result"
    old, new = (f"sqlite:///{tmp_path / name}" for name in ("old.db", "new.db"))
    store = open_store(new)
    made = kept(store, 100)
    expected = store.write_sync(lambda tx: tx.all(counters))
    expected_quarters = store.write_sync(lambda tx: tx.all(quarters))
    lines = store.write_sync(lambda tx: tx.all("SELECT seq, entry, hash FROM audit"))
    store.close()
    with database_at(old, "0005") as connection:
        connection.executemany(
            "INSERT INTO audit (seq, entry, hash) VALUES (?, ?, ?)", lines
        )

    store = open_store(old)
    counted = store.write_sync(lambda tx: tx.all(counters))
    assert store.write_sync(lambda tx: tx.all(quarters)) == expected_quarters
    store.close()
    assert counted == expected
    assert sum(row[4] for row in counted) == len(made)


@requirement("audit:chained")
def test_an_entry_of_work_that_failed_leaves_no_line_and_no_gap(store: Store) -> None:
    def fails(tx: Transaction) -> None:
        audit.append(tx, entry(action_type="never_done"))
        raise KeyError("on purpose")

    with pytest.raises(KeyError):
        store.write_sync(fails)
    store.write_sync(lambda tx: audit.append(tx, entry(correlation_id="next")))

    assert store.write_sync(audit.verify) == audit.Verified(6)
    assert [
        line.correlation_id
        for _, line in store.write_sync(lambda tx: audit.entries(tx, limit=2))
    ] == ["next", "4"]
    assert store.write_sync(
        lambda tx: tx.all("SELECT action, SUM(entries) FROM audit_days GROUP BY action")
    ) == [("write_note", 6)]


@requirement("audit:chained")
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_several_entries_of_one_transaction_are_chained_in_their_order_and_leave_nothing_behind(
    store: Store,
) -> None:
    def several(tx: Transaction) -> None:
        for name in ("жук", "b\0", "c"):
            audit.append(tx, entry(correlation_id=name, target="α\\n\n\U0001f41e"))

    store.write_sync(several)

    assert store.write_sync(audit.verify) == audit.Verified(8)
    assert [
        line.correlation_id
        for _, line in store.write_sync(lambda tx: audit.entries(tx, limit=3))
    ] == [
        "c",
        "b\0",
        "жук",
    ]
    assert store.write_sync(lambda tx: tx.all("SELECT * FROM audit_queue")) == []


@requirement("audit:chained")
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_nobody_waits_for_an_entry_whose_transaction_is_still_under_way(
    store: Store,
) -> None:
    appended, go = threading.Event(), threading.Event()

    def slowly(tx: Transaction) -> None:
        audit.append(tx, entry(correlation_id="slow"))
        appended.set()
        go.wait()

    with ThreadPoolExecutor(1) as thread:
        slow = thread.submit(store.write_sync, slowly)
        appended.wait()
        store.write_sync(lambda tx: audit.append(tx, entry(correlation_id="quick")))
        go.set()
        slow.result()

    assert store.write_sync(audit.verify) == audit.Verified(7)
    assert [
        line.correlation_id
        for _, line in store.write_sync(lambda tx: audit.entries(tx, limit=2))
    ] == [
        "slow",
        "quick",
    ]


@requirement("audit:chained")
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_line_that_comes_while_the_record_is_verified_is_no_missing_one(
    store: Store, url: str, home: Home
) -> None:
    with psycopg.connect(url) as other:
        other.execute(
            "LOCK TABLE audit_head"
        )  # behind the last line, the verifying one waits for the head
        verifying = subprocess.Popen(
            [warm_python(), "-m", "deskhand", "log", "--verify"],
            env=home.environment | {"DESKHAND_DATABASE_URL": url},
            stdout=subprocess.PIPE,
            text=True,
        )
        waits = (
            "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'audit_head'::regclass"
        )
        while (
            verifying.poll() is None and store.write_sync(lambda tx: tx.one(waits)) is None
        ):
            pass
        other.execute(
            "INSERT INTO audit_queue (entry, day, actor, action, result) VALUES ('{}', '2026', 'a', 'b', 'success')"
        )
        other.commit()
    said, _ = verifying.communicate()

    assert (verifying.returncode, said) == (0, "Record intact: 5 entries verified.\n")
    assert store.write_sync(audit.verify) == audit.Verified(6)


@requirement("audit:redacted")
@pytest.mark.parametrize(
    "error", [None, Denied("ann@example.com said no", reason="denied")]
)
def test_what_the_journal_keeps_of_a_call_is_what_goes_on_the_record(
    error: Denied | None,
) -> None:
    facts = {"client": "ann@example.com", "password": "x", "arguments": 'a "b", \u2028'}
    whom = "to ann@example.com"
    whole = audit.Entry.of(
        NOON,
        "guard_mcp",
        "call",
        whom,
        parameters=facts | {"digest": "d1"},
        error=error,
        milliseconds=3,
    )
    for digest in ("d1", "d2"):
        begun = Begun(NOON, "guard_mcp", "call", whom, tuple(facts.items()), digest)
        line = begun.finish(NOON, error, 3)
        kept = audit.Entry.model_validate_json(line.text)
        assert kept.correlation_id == line.name == begun.name
        assert kept.parameters
        assert kept.parameters["digest"] == digest
    known = whole.model_copy(
        update={
            "correlation_id": kept.correlation_id,
            "parameters": facts | {"digest": "d2"},
        }
    )
    assert kept == audit.redact_entry(known)
    assert line._replace(text="") == audit.line_of(known)._replace(text="")
    assert kept.result == ("rejected" if error else "success")
    assert "ann@" not in line.text


@requirement("audit:redacted")
@pytest.mark.anyio
async def test_numbers_yes_no_and_nothing_are_no_text_on_the_record(home: Home) -> None:
    kept: dict[str, Any] = {"n": 50, "minus": -1, "part": 0.5, "yes": True, "nothing": None}
    texts: dict[str, Any] = {
        "long": 10**300,
        "endless": float("inf"),
        "no number": float("nan"),
        "list": [1],
        "who": "ann@example.org",
    }
    desk = Desk(load(home.environment).settings)
    await desk.record("a", "b", 7, kept | texts | {"body": 1}, None, 0)
    ((_, entry),) = await desk.store.read(lambda tx: audit.entries(tx, limit=1))
    desk.close()

    assert entry.target == "7"
    assert entry.parameters == kept | {
        "long": f"1{'0' * 199}… (301 characters)",
        "endless": "inf",
        "no number": "nan",
        "list": "[1]",
        "who": "a***@example.org",
    }
    assert isinstance(entry.parameters["yes"], bool)


@requirement("guard:recorded")
def test_of_a_call_whose_end_nobody_saw_it_is_on_the_record_that_it_began(
    store: Store, tmp_path: Path
) -> None:
    before = store.write_sync(audit.verify)
    assert isinstance(before, audit.Verified)
    killed = journal.Journal(tmp_path)
    ended, lost = (
        Begun(NOON, "guard_mcp", name, "evil", (), "d") for name in ("ended", "lost")
    )
    for begun in (ended, lost):
        killed.keep(begun.name, begun.write_begun())
    killed.keep(*ended.finish(NOON, None, 3)[:2])
    killed.close()
    journal.take_over(store, tmp_path)

    assert store.write_sync(audit.verify) == audit.Verified(before.entries + 2)
    found = store.write_sync(lambda tx: audit.entries(tx, limit=2))
    assert {entry.action_type: (entry.result, entry.error) for _, entry in found} == {
        "ended": ("success", None),
        "lost": ("error", UNSEEN),
    }


KILLED = """
import asyncio, os, signal, sys
from deskhand.app import Desk
from deskhand.audit.behind import Begun
from deskhand.config import load

async def pass_calls():
    desk = Desk(load(os.environ).settings)
    await desk.settle_record(behind=64)
    for number in range(60):
        begun = Begun(desk.now(), "guard_mcp", f"call_{number}", "evil", (), "")
        desk.keep_begun(begun)
        desk.record_behind(begun, None, 1)
    print("answered", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(pass_calls())
"""


@requirement("guard:recorded")
def test_what_passed_is_on_the_record_once_after_the_desk_was_killed(home: Home) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED],
        env=home.environment,
        capture_output=True,
        check=False,
    )
    (left,) = home.path.glob("behind-*")
    assert (killed.returncode, killed.stdout, left.stat().st_mode & 0o777) == (
        -9,
        b"answered\n",
        0o600,
    )
    lines = left.read_bytes()
    for _ in range(2):
        said = home.command("log", "--json", "--limit", "1000")
        assert [said.stdout.count(f'"call_{number}"') for number in range(60)] == [
            1
        ] * 60, said.stderr
        assert not left.exists()
    left.write_bytes(
        lines + b'{"half'
    )  # as if it had been killed after the record was written
    assert home.command("log", "--json", "--limit", "1000").stdout.count('"call_') == 60
    assert home.command("log", "--verify").returncode == 0


@requirement("guard:recorded")
@pytest.mark.anyio
async def test_what_passes_goes_on_the_record_together_and_waits_for_nobody_who_hurries(
    home: Home,
) -> None:
    desk = Desk(load(home.environment).settings)
    for number in range(150):
        await desk.settle_record(behind=100)
        begun = Begun(NOON, "guard_mcp", f"call_{number % 75}", "evil", (), "")
        desk.keep_begun(begun)
        desk.record_behind(begun, None, 1)
    await desk.settle_record()

    entries = await desk.store.read(lambda tx: audit.entries(tx, limit=200))
    named = [entry.action_type for _, entry in reversed(entries)]
    assert named == [f"call_{number % 75}" for number in range(150)]
    assert await desk.store.read(audit.verify) == audit.Verified(150)
    counted = "SELECT action, sum(entries), min(first_seq), max(last_seq) FROM audit_days GROUP BY action"
    found = await desk.store.read(lambda tx: tx.all(counted))
    assert sorted(found, key=lambda row: row[2]) == [
        (f"call_{number}", 2, number + 1, number + 76) for number in range(75)
    ]
    (journal_file,) = home.path.glob("behind-*")
    assert journal_file.read_bytes() == b""
    desk.close()


@requirement("guard:recorded")
def test_a_journal_is_taken_over_from_nobody_who_lives(
    store: Store, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    living = journal.Journal(home)
    living.drop([entry().correlation_id])
    living.close()
    first = entry(
        correlation_id="first",
        timestamp="2031-01-01T00:00:00.000Z",
        target="ann@example.com",
    )
    second = entry(correlation_id="second", timestamp="2031-01-01T00:00:00.000Z")
    living.keep(*audit.line_of(first)[:2])
    living.keep(*audit.line_of(second)[:2])
    (file,) = home.iterdir()
    assert "ann@" not in file.read_text()
    journal.take_over(store, home)
    assert store.write_sync(audit.verify) == audit.Verified(5)
    living.drop(["first", "another"])
    living.close()  # the second one is still to be written
    journal.take_over(store, home)
    assert store.write_sync(audit.verify) == audit.Verified(7)
    living.keep(*audit.line_of(second)[:2])
    living.drop(["second"])
    assert (file.read_bytes(), living.is_long) == (b"", False)
    living.close()
    file.touch()
    journal.take_over(store, home)
    assert not [*home.iterdir()]
