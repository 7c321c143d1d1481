import io
import json
import sqlite3
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import pytest

from deskhand import audit
from deskhand.app import Desk
from deskhand.clock import dated
from deskhand.config import load
from deskhand.gate import ledger
from deskhand.store import schema
from tests.gate.waiting import proposed
from tests.requirements import requirement
from tests.setup.account import Account

WRITER = """
import sys
from deskhand import audit, clock
from deskhand.app import Desk
from deskhand.config import load

desk = Desk(load().settings)
number = 0
while True:
    entry = audit.Entry.of(desk.now(), "writer", "test", "x" * 500)
    desk.store.write_sync(lambda tx: audit.append(tx, entry))
    number = desk.store.write_sync(audit.head).seq
    print(number, flush=True)
"""


class Writer:
    """Another process that appends to the record without a pause."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER], stdout=subprocess.PIPE, text=True
        )
        self.until(20)
        return self

    def until(self, number: int) -> int:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if int(line) >= number:
                return int(line)
        raise AssertionError("the writer ended")

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def fill(account: Account) -> None:
    """A desk with a key, a token and a mail."""
    mail = account.folder / "one.eml"
    mail.write_bytes(
        b"From: a@example.org\r\nTo: me@example.com\r\nSubject: hello\r\nMessage-ID: <1@x>\r\n\r\nhi\r\n"
    )
    assert account.deskhand("mail", "import", mail).code == 0
    assert account.deskhand("token", "create", "ada", "--name", "codex").code == 0
    (account.home / "seal.key").write_text("the key of this desk")
    (account.home / "cache").mkdir(exist_ok=True)
    (account.home / "cache" / "notes.db").write_text("not worth keeping")


def lines(home: Path) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(home / "desk.db")) as db:
        return db.execute("SELECT seq, hash FROM audit ORDER BY seq").fetchall()


@requirement("backup:round-trip")
def test_a_desk_that_is_being_written_is_backed_up_whole_and_comes_back(
    account: Account, tmp_path: Path
) -> None:
    account.set_up()
    fill(account)
    file, elsewhere = tmp_path / "desk.backup", tmp_path / "elsewhere"

    with Writer() as writer:
        made = account.deskhand("backup", file, "--json")
        after = writer.until(made.json["entries"] + 10)
        refused = account.deskhand("restore", file)
        restored = account.deskhand("restore", file, "--to", elsewhere, "--json")

    assert made.code == 0, made.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(made.json["files"]) == [
        "config.toml",
        "desk.db",
        "desk.place",
        "mail.db",
        "seal.key",
    ]
    assert 20 <= made.json["entries"] < after
    assert (refused.code, "A desk is running" in refused.err) == (5, True)
    assert restored.code == 0, restored.err
    assert (
        lines(elsewhere)[: made.json["entries"]]
        == lines(account.home)[: made.json["entries"]]
    )
    assert (elsewhere / "seal.key").read_text() == "the key of this desk"
    own, copied = ((home / "config.toml").read_text() for home in (account.home, elsewhere))
    assert copied == own
    assert [
        stat.S_IMODE(path.stat().st_mode)
        for path in elsewhere.iterdir()
        if path.suffix in (".key", ".db")
    ] == [0o600] * 3

    # Nobody writes any more: now it takes the place of the desk, which is kept aside.
    kept = lines(account.home)
    done = account.deskhand("restore", file, "--json")
    assert done.code == 0, done.err
    assert lines(Path(done.json["aside"])) == kept
    assert (
        account.deskhand("log", "--verify").out
        == f"Record intact: {made.json['entries'] + 1} entries verified.\n"
    )
    assert "hello" in account.deskhand("mail", "search", "").out
    assert "codex" in account.deskhand("token", "list").out


@requirement("backup:proved")
def test_who_restores_reads_of_when_the_desk_is_in_their_own_words_and_zone(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.set_up()
    fill(account)
    monkeypatch.setenv("DESKHAND_TIMEZONE", "Asia/Kathmandu")
    file = tmp_path / "desk.backup"
    assert account.deskhand("backup", file).code == 0
    restored = account.deskhand("restore", file, "--to", tmp_path / "there")
    made = account.deskhand("restore", file, "--to", tmp_path / "json", "--json").json[
        "made"
    ]

    when = dated(datetime.fromisoformat(made), "Asia/Kathmandu")
    assert f"{tmp_path / 'there'} is the desk as it was on {when}\n" in restored.out
    assert "A yes that still rested in it waits for you again" in restored.out


@requirement("backup:proved")
def test_a_backup_that_was_tampered_with_replaces_nothing(
    account: Account, tmp_path: Path
) -> None:
    account.set_up()
    fill(account)
    with Writer():
        pass
    file = tmp_path / "desk.backup"
    assert account.deskhand("backup", file).code == 0
    untouched = sorted(path.name for path in account.folder.iterdir())

    broken: dict[str, Callable[[], bytes]] = {
        "cut off": lambda: file.read_bytes()[:5000],
        "no archive": lambda: b"hello",
        "a changed byte": lambda: file.read_bytes().replace(
            b"the key of this", b"the key of that"
        ),
        "a changed record": lambda: rewritten(file, changed_record),
        "a newer schema": lambda: rewritten(file, newer_schema),
        "a path that leads out": lambda: rewritten(file, way_out),
        "a file with a hole": lambda: with_hole(file),
        "a manifest that leads to itself": lambda: only(tarfile.SYMTYPE, b""),
        "a manifest of brackets": lambda: only(tarfile.REGTYPE, b"[" * 200_000),
    }
    for name, make in broken.items():
        bad = tmp_path / "bad.backup"
        bad.write_bytes(make())
        done = account.deskhand("restore", bad)
        assert (name, done.code in (2, 5)) == (name, True), done.err
        assert "Traceback" not in done.err
    assert account.deskhand("restore", tmp_path / "nowhere").code == 4
    assert sorted(path.name for path in account.folder.iterdir()) == untouched
    assert not (account.folder / "evil").exists()


def rewritten(
    file: Path, change: Callable[[dict[str, bytes], dict[str, Any]], None]
) -> bytes:
    """The archive with its content changed and the manifest's digests made to fit."""
    with tarfile.open(file) as archive:
        content = {
            member.name: archive.extractfile(member).read()
            for member in archive.getmembers()
        }
    manifest = json.loads(content.pop("manifest.json"))
    change(content, manifest)
    manifest["files"] = {
        name: {"sha256": sha256(data).hexdigest(), "size": len(data)}
        for name, data in content.items()
    }
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in {
            **content,
            "manifest.json": json.dumps(manifest).encode(),
        }.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


def with_hole(file: Path) -> bytes:
    """A few bytes that would be 64 MB on the disk, with the digest of those."""
    size = 64 << 20
    hole = tarfile.TarInfo("zeros")
    hole.pax_headers = {"GNU.sparse.map": "0,0", "GNU.sparse.size": str(size)}
    with tarfile.open(file) as archive:
        content = {
            member.name: archive.extractfile(member).read()
            for member in archive.getmembers()
        }
    manifest = json.loads(content.pop("manifest.json"))
    manifest["files"]["zeros"] = {"sha256": sha256(bytes(size)).hexdigest(), "size": size}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.addfile(hole)
        for name, data in {
            **content,
            "manifest.json": json.dumps(manifest).encode(),
        }.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


def only(kind: bytes, manifest: bytes) -> bytes:
    """An archive with nothing in it but this manifest."""
    member = tarfile.TarInfo("manifest.json")
    member.type, member.linkname, member.size = kind, "manifest.json", len(manifest)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.addfile(member, io.BytesIO(manifest))
    return made.getvalue()


def changed_record(content: dict[str, bytes], manifest: dict[str, object]) -> None:
    content["desk.db"] = content["desk.db"].replace(
        b'"actor":"writer"', b'"actor":"nobody"'
    )


def newer_schema(content: dict[str, bytes], manifest: dict[str, object]) -> None:
    manifest["schema"] = "9999"


def way_out(content: dict[str, bytes], manifest: dict[str, object]) -> None:
    content["../evil"] = b"x"


@requirement("backup:proved")
def test_a_backup_replaces_no_file_and_forgets_sessions_and_held_answers(
    account: Account, tmp_path: Path
) -> None:
    account.set_up()
    fill(account)
    desk = Desk(load().settings)
    held = proposed("a", "ann@example.org", desk.now(), state="held", due=desk.now())
    desk.store.write_sync(lambda tx: ledger.insert(tx, held))
    approved = proposed(
        "b", "bob@example.org", desk.now(), state="approved", due=desk.now()
    )
    desk.store.write_sync(lambda tx: ledger.insert(tx, approved))
    desk.store.write_sync(
        lambda tx: tx.execute("INSERT INTO sessions VALUES ('d', 1, 1, 1, 'x')")
    )
    desk.close()
    file = tmp_path / "desk.backup"
    file.write_text("precious")

    assert account.deskhand("backup", file).code == 5
    assert file.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["desk.backup", "person"]

    assert account.deskhand("backup", tmp_path / "new").code == 0
    assert account.deskhand("restore", tmp_path / "new").code == 0
    with closing(sqlite3.connect(account.home / "desk.db")) as db:
        assert (
            db.execute("SELECT state, due FROM requests ORDER BY id").fetchall()[-2:]
            == [("waiting", None)] * 2
        )
        assert db.execute("SELECT count(*) FROM sessions").fetchone() == (0,)
        ((last,),) = db.execute("SELECT entry FROM audit ORDER BY seq DESC LIMIT 1")
    assert audit.Entry.model_validate_json(last).action_type == "restore"


@requirement("backup:postgresql")
def test_a_postgresql_database_is_left_to_its_own_tool(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.set_up()
    fill(account)
    monkeypatch.setenv(
        "DESKHAND_DATABASE_URL", "postgresql://desk:hunter2@127.0.0.1:1/desk"
    )

    refused = account.deskhand("backup", tmp_path / "a")
    done = account.deskhand("backup", tmp_path / "a", "--without-database", "--json")

    assert refused.code == 3
    assert "pg_dump" in refused.err
    assert "hunter2" not in refused.err
    assert done.json["entries"] is None
    assert "desk.db" not in done.json["files"]
    assert account.deskhand("restore", tmp_path / "a", "--to", tmp_path / "b").code == 0
    assert (tmp_path / "b" / "seal.key").exists()


def test_the_manifest_tells_when_and_by_which_schema_it_was_made(
    account: Account, tmp_path: Path
) -> None:
    account.set_up()
    fill(account)
    assert account.deskhand("backup", tmp_path / "a").code == 0

    with tarfile.open(tmp_path / "a") as archive:
        manifest = json.loads(archive.extractfile("manifest.json").read())

    assert manifest["schema"] == schema.HEAD
    assert (
        abs((datetime.now(UTC) - datetime.fromisoformat(manifest["made"])).total_seconds())
        < 600
    )
