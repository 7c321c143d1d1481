"""A desk in one file, and back: database, keys, config and the local mailbox, each with its digest.

The databases are copied by SQLite itself while others write. A backup is read back before it is given its name, and
what is restored is proved before anything is replaced; the home that was there is kept aside.
"""

import fcntl
import io
import json
import os
import sqlite3
import tarfile
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from hashlib import file_digest, sha256
from pathlib import Path
from typing import IO, Any

from deskhand import __version__, audit, clock
from deskhand.config import Settings
from deskhand.errors import BadConfig, Denied, Exists, NotFound, Unavailable, Unreadable
from deskhand.files import open_private, temporary_beside
from deskhand.store import open_store, schema

FORM = 1
_MANIFEST = "manifest.json"
_NOT_KEPT = frozenset({"cache", "backups", "running.json"})
"""What can be made again, is a copy itself, or holds for a moment only."""
_NOT_KEPT_ENDS = ("-wal", "-shm", "-journal", ".migrating", ".lock", ".pid", ".sock")
_DEAD_MAN = 128
"""The byte of a `-shm` file on which every connection to its database holds a lock for as long as it is open."""
_LARGEST = 64 * 1024**3
_LARGEST_MANIFEST = 16 * 1024**2


@dataclass(frozen=True, slots=True)
class Made:
    file: Path
    members: tuple[str, ...]
    entries: int | None
    """Lines of the record, proved whole; None where the database is not in it."""


@dataclass(frozen=True, slots=True)
class Restored:
    home: Path
    aside: Path | None
    """Where the home lies that was there."""
    made: str
    entries: int | None


def backup(settings: Settings, file: Path, now: datetime, *, database: bool = True) -> Made:
    """Write the desk into `file`, which must not be there yet."""
    source = _database(settings) if database else None
    if file.exists() or file.is_symlink():
        raise Exists(f"{file} is there already", hint="choose another name; a backup never replaces a file")
    if not settings.home.is_dir():
        raise NotFound(f"there is no desk in {settings.home}", hint="`deskhand init` sets one up")
    with temporary_beside(file) as made:
        made.touch(0o600)
        try:
            with made.open("wb") as opened, tempfile.TemporaryDirectory(dir=settings.home) as stage:
                members = _write(opened, Path(stage), settings.home, source, now)
                opened.flush()
                os.fsync(opened.fileno())
            entries = _proved(made, settings.home)
            os.link(made, file)
        except FileExistsError:
            raise Exists(f"{file} is there already", hint="choose another name") from None
        except OSError as error:
            raise Unavailable(f"cannot write {file}: {error.strerror}", hint="is the disk full?") from error
    return Made(file, tuple(members), entries)


def restore(file: Path, home: Path, now: datetime) -> Restored:
    """Put the desk of `file` at `home`. Until it is proved whole nothing is touched."""
    home = home.absolute()
    home.parent.mkdir(parents=True, exist_ok=True)
    stage = home.with_name(f".{home.name}.restoring-{uuid.uuid4().hex[:8]}")
    try:
        stage.mkdir(mode=0o700)
        manifest = _unpack(file, stage)
        entries = _settled(stage, now) if (stage / "desk.db").exists() else None
        with _nobody_there(home):
            aside = _swapped(stage, home, now)
    finally:
        _remove(stage)
    return Restored(home, aside, str(manifest["made"]), entries)


def _database(settings: Settings) -> Path:
    scheme, _, place = settings.database.partition(":///")
    if scheme != "sqlite":
        raise BadConfig(
            "the database is PostgreSQL, which has its own backup",
            hint='run `pg_dump --format=custom --file=desk.dump "$DESKHAND_DATABASE_URL"` and keep it with the file of'
            " `deskhand backup FILE --without-database` (keys, config, local mailbox)",
        )
    return Path(place)


def _write(opened: Any, stage: Path, home: Path, source: Path | None, now: datetime) -> list[str]:
    # The ledger before the mailbox: a mail that left in between is then found in Sent, and not sent again.
    copies: dict[str, Path] = {}
    if source is not None and source.exists():
        copies["desk.db"] = _copied(source, stage / "desk.db")
    for path in sorted(home.rglob("*")):
        name = path.relative_to(home).as_posix()
        if not _is_kept(path, name, home) or stage in path.parents or name == "desk.db":
            continue
        copies[name] = _copied(path, stage / f"{len(copies)}.db") if path.suffix == ".db" else path
    about: dict[str, dict[str, Any]] = {}
    with tarfile.open(fileobj=opened, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, path in copies.items():
            # Read once: what is told in the manifest is what was written, whoever changes the file meanwhile.
            data = path.read_bytes() if path.suffix != ".db" else None
            digest = _digest(path) if data is None else sha256(data).hexdigest()
            size = path.stat().st_size if data is None else len(data)
            about[name] = {"sha256": digest, "size": size}
            with path.open("rb") if data is None else io.BytesIO(data) as content:
                archive.addfile(_member(name, size, now), content)
        manifest = {"form": FORM, "deskhand": __version__, "made": now.isoformat(), "schema": schema.HEAD}
        manifest |= {"database": "sqlite" if "desk.db" in copies else None, "files": about}
        text = json.dumps(manifest, indent=2).encode()
        archive.addfile(_member(_MANIFEST, len(text), now), io.BytesIO(text))
    return list(copies)


def _is_kept(path: Path, name: str, home: Path) -> bool:
    top = path.relative_to(home).parts[0]
    hidden = any(part.startswith(".") for part in path.relative_to(home).parts)
    return (
        path.is_file()
        and not path.is_symlink()
        and not hidden
        and top not in _NOT_KEPT
        and not name.endswith(_NOT_KEPT_ENDS)
    )


def _member(name: str, size: int, now: datetime) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size, made.mode, made.mtime = size, 0o600, int(now.timestamp())
    return made


def _copied(database: Path, copy: Path) -> Path:
    """One moment of a database that others may be writing."""
    try:
        with (
            closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
            # A file of its own, whole without a -wal beside it.
            target.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as error:
        raise Unreadable(f"{database} cannot be copied: {error}", hint="`deskhand doctor` says more") from error
    return copy


def _proved(file: Path, home: Path) -> int | None:
    with tempfile.TemporaryDirectory(dir=home) as stage:
        _unpack(file, Path(stage))
        database = Path(stage) / "desk.db"
        return _record(database) if database.exists() else None


def _unpack(file: Path, stage: Path) -> dict[str, Any]:
    """Each file that the manifest names, and no other, with the digest that it tells."""
    try:
        with tarfile.open(file, "r:") as archive:
            manifest = _manifest(archive)
            about = manifest["files"]
            named = {member.name: member for member in archive.getmembers() if member.name != _MANIFEST}
            if set(named) != set(about) or len(archive.getmembers()) != len(about) + 1:
                raise Unreadable(f"{file} does not hold the files that its manifest names", hint="take another backup")
            for name, member in named.items():
                _extract(archive, member, stage, about[name])
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}") from None
    except (tarfile.TarError, EOFError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise Unreadable(f"{file} is no backup of a desk, or it is damaged", hint="take another backup") from error
    except OSError as error:
        raise Unavailable(f"cannot unpack {file}: {error.strerror}", hint="is the disk full?") from error
    return manifest


def _manifest(archive: tarfile.TarFile) -> dict[str, Any]:
    found = _content(archive, archive.getmember(_MANIFEST), _LARGEST_MANIFEST)
    manifest: dict[str, Any] = json.loads(found.read() if found else b"")
    if manifest["form"] != FORM:
        raise Denied("this backup was made by a newer deskhand", reason="newer", hint="upgrade, then restore")
    if str(manifest["schema"]) > schema.HEAD:
        raise Denied("the backup's database is newer than this deskhand", reason="newer", hint="upgrade, then restore")
    return manifest


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, stage: Path, about: dict[str, Any]) -> None:
    parts = member.name.split("/")
    content = _content(archive, member, _LARGEST)
    if content is None or any(part in ("", ".", "..") for part in parts) or "\\" in member.name:
        raise Unreadable(f"the backup holds {member.name!r}, which is no plain file", hint="take another backup")
    place = stage.joinpath(*parts)
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(place, "xb", opener=open_private) as made:
        while piece := content.read(1 << 20):
            made.write(piece)
        made.flush()
        os.fsync(made.fileno())
    if _digest(place) != about["sha256"]:
        raise Unreadable(f"{member.name} in the backup is not what was put into it", hint="take another backup")


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, most: int) -> IO[bytes] | None:
    """Of a plain file. One with holes would be larger on the disk than the archive that it comes from."""
    plain = member.isreg() and not member.issparse() and member.size <= most
    return archive.extractfile(member) if plain else None


def _record(database: Path) -> int:
    """The record's lines, proved; opening the copy brings its schema up to date."""
    store = open_store(f"sqlite:///{database}")
    try:
        match store.write_sync(audit.verify):
            case audit.Verified(entries):
                return entries
            case audit.Broken(seq, why):
                raise Unreadable(
                    f"the record in the backup is not whole: line {seq}: {why}", hint="take another backup"
                )
    finally:
        store.close()


def _settled(stage: Path, now: datetime) -> int:
    """Prove the record, then forget what must not come back: sessions, links, and every yes that was only held."""
    database = stage / "desk.db"
    entries = _record(database)
    entry = audit.Entry(
        timestamp=clock.iso(now),
        correlation_id=str(uuid.uuid4()),
        actor="person",
        action_type="restore",
        target="desk",
        result="success",
    )
    store = open_store(f"sqlite:///{database}")
    try:
        for table in ("sessions", "entry_links", "holds"):
            store.write_sync(lambda tx, table=table: tx.execute(f"DELETE FROM {table}"))  # type: ignore[misc]
        store.write_sync(lambda tx: audit.append(tx, entry))
    finally:
        store.close()
    return entries


@contextmanager
def _nobody_there(home: Path) -> Iterator[None]:
    """Refuse while a process has one of the home's databases open, and let none in during the exchange."""
    with ExitStack() as held:
        for file in sorted(home.glob("*.db-shm")):
            opened = held.enter_context(file.open("r+b"))
            try:
                fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _DEAD_MAN)
            except OSError as error:
                raise Denied(
                    f"a desk is running in {home}", reason="running", hint="stop `deskhand up` and its clients first"
                ) from error
        yield


def _swapped(stage: Path, home: Path, now: datetime) -> Path | None:
    aside = home.with_name(f"{home.name}.before-{now:%Y%m%dT%H%M%S}")
    if not home.exists():
        stage.rename(home)
        return None
    if aside.exists():
        raise Exists(f"{aside} is there already", hint="move it away, or try again in a second")
    try:
        home.rename(aside)
    except OSError as error:
        raise Unavailable(f"cannot move {home} aside: {error.strerror}", hint="use --to with another folder") from error
    try:
        stage.rename(home)
    except OSError:
        aside.rename(home)
        raise
    return aside


def _remove(stage: Path) -> None:
    from shutil import rmtree

    if stage.exists():
        rmtree(stage)


def _digest(path: Path) -> str:
    with path.open("rb") as opened:
        return file_digest(opened, "sha256").hexdigest()
