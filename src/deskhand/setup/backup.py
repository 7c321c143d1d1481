"""A desk in one file, and back: database, keys, config and the local mailbox, each with its digest.

The databases are copied by SQLite itself while others write. A backup is read back before it is given its name, and
what is restored is proved before anything is replaced; the home that was there is kept aside.
"""

import fcntl
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from hashlib import file_digest
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from deskhand import __version__, audit, place
from deskhand.config import Settings
from deskhand.durable import sync
from deskhand.errors import BadConfig, Denied, Exists, NotFound, Unavailable, Unreadable
from deskhand.files import open_private, sync_folder, temporary_beside
from deskhand.gate import ledger
from deskhand.store import Transaction, open_store, schema

FORM = 1
_MANIFEST = "manifest.json"
_NOT_KEPT = frozenset({"cache", "backups", "running.json"})
"""Left out: what can be made again, is a copy itself, or holds for a moment only."""
_NOT_KEPT_ENDS = (
    "-wal",
    "-shm",
    "-journal",
    ".migrating",
    ".head",
    ".lock",
    ".pid",
    ".sock",
)
_DEAD_MAN = 128
"""The byte of a `-shm` file on which every connection to its database holds a lock for as long as it is open."""
_LARGEST = 64 * 1024**3
_LARGEST_MANIFEST = 16 * 1024**2


@dataclass(frozen=True, slots=True)
class Backup:
    file: Path
    members: tuple[str, ...]
    entries: int | None
    """Lines of the record, proved whole; None where the database is not in it."""


@dataclass(frozen=True, slots=True)
class Restored:
    home: Path
    aside: Path | None
    """Where the home is now that was there before."""
    made: datetime
    entries: int | None


def backup(
    settings: Settings, file: Path, now: datetime, *, database: bool = True
) -> Backup:
    """Write the desk into `file`, which must not be there yet."""
    source = _database(settings) if database else None
    if file.exists() or file.is_symlink():
        raise Exists(
            f"{file} is there already",
            hint="choose another name; a backup never replaces a file",
        )
    if not settings.home.is_dir():
        raise NotFound(
            f"there is no desk in {settings.home}", hint="`deskhand init` sets one up"
        )
    with temporary_beside(file) as made:
        made.touch(0o600)
        try:
            with (
                made.open("wb") as opened,
                tempfile.TemporaryDirectory(prefix=".stage-", dir=settings.home) as stage,
            ):
                members = _write(opened, Path(stage), settings.home, source, now)
                opened.flush()
                sync(opened.fileno())
            entries = _read_back(made, settings.home)
            os.link(made, file)
            sync_folder(file.absolute().parent)
        except FileExistsError:
            raise Exists(f"{file} is there already", hint="choose another name") from None
        except OSError as error:
            raise Unavailable(
                f"cannot write {file}: {error.strerror}", hint="is the disk full?"
            ) from error
    return Backup(file, tuple(members), entries)


def restore(
    file: Path,
    home: Path,
    now: datetime,
    forget: Callable[[Transaction], object],
    *,
    copy_of: Path | None = None,
) -> Restored:
    """Put the desk of `file` at `home`. Until it is proved whole nothing is touched.

    `forget` ends what must not come back: sessions and links to the page. Nothing leaves a copy: what waits in it waits
    at the desk itself too, and a file that is moved in their vault would be a yes to both.
    """
    home = home.absolute()
    home.parent.mkdir(parents=True, exist_ok=True)
    stage = home.with_name(f".{home.name}.restoring-{uuid.uuid4().hex[:8]}")
    try:
        stage.mkdir(mode=0o700)
        manifest = _unpack(file, stage)
        entries = None
        if (stage / "desk.db").exists():
            entries = _prepare(stage / "desk.db", now, forget)
        if copy_of is not None:
            place.mark_copy(stage, copy_of)
        with _nobody_there(home):
            aside = _exchange(stage, home, now)
    finally:
        if stage.exists():
            shutil.rmtree(stage)
    return Restored(home, aside, manifest["made"], entries)


def _database(settings: Settings) -> Path:
    scheme, _, place = settings.database.partition(":///")
    if scheme != "sqlite":
        raise BadConfig(
            "the database is PostgreSQL, which has its own backup",
            hint="run `pg_dump --format=custom --file=desk.dump NAME` (the password in ~/.pgpass) and keep it with the"
            " file of `deskhand backup FILE --without-database` (keys, config, local mailbox)",
        )
    return Path(place)


def _write(
    opened: Any, stage: Path, home: Path, source: Path | None, now: datetime
) -> list[str]:
    """Write the archive with everything that is kept; returns the names in it."""
    copies = _collect(stage, home, source)
    about: dict[str, dict[str, Any]] = {}
    with tarfile.open(fileobj=opened, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, path in copies.items():
            size = path.stat().st_size
            about[name] = {"sha256": _digest(path), "size": size}
            with path.open("rb") as content:
                archive.addfile(_member(name, size, now), content)
        manifest = {
            "form": FORM,
            "deskhand": __version__,
            "made": now.isoformat(),
            "schema": schema.HEAD,
            "database": "sqlite" if "desk.db" in copies else None,
            "files": about,
        }
        text = json.dumps(manifest, indent=2).encode()
        archive.addfile(_member(_MANIFEST, len(text), now), BytesIO(text))
    return list(copies)


def _collect(stage: Path, home: Path, source: Path | None) -> dict[str, Path]:
    """The name of each file that is kept, and its copy in `stage`, which nobody changes any more."""
    copies: dict[str, Path] = {}
    # The ledger before the mailbox: a mail that left in between is then found in Sent, and not sent again.
    if source is not None and source.exists():
        copies["desk.db"] = _copy(source, stage / "desk.db")
    for path in sorted(home.rglob("*")):
        name = path.relative_to(home).as_posix()
        if name != "desk.db" and stage not in path.parents and _is_kept(path, name):
            copies[name] = _copy(path, stage / str(len(copies)))
    return copies


def _is_kept(path: Path, name: str) -> bool:
    parts = name.split("/")
    if path.is_symlink() or not path.is_file():
        return False
    if parts[0] in _NOT_KEPT or name.endswith(_NOT_KEPT_ENDS):
        return False
    return not any(part.startswith(".") for part in parts)


def _member(name: str, size: int, now: datetime) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o600
    member.mtime = int(now.timestamp())
    return member


def _copy(file: Path, copy: Path) -> Path:
    """Copy one moment of a file; a database may be written by others meanwhile."""
    if file.suffix != ".db":
        return Path(shutil.copyfile(file, copy))
    try:
        with (
            closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
            # A file of its own, whole without a -wal beside it.
            target.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as error:
        raise Unreadable(
            f"{file} cannot be copied: {error}", hint="`deskhand doctor` says more"
        ) from error
    return copy


def _read_back(file: Path, home: Path) -> int | None:
    """Prove that the archive can be restored; returns how many lines its record has."""
    with tempfile.TemporaryDirectory(prefix=".stage-", dir=home) as stage:
        _unpack(file, Path(stage))
        database = Path(stage) / "desk.db"
        if not database.exists():
            return None
        return _verify_record(database)


def _unpack(file: Path, stage: Path) -> dict[str, Any]:
    """Put each file that the manifest names, and no other, into `stage`, and check its digest."""
    try:
        with tarfile.open(file, "r:") as archive:
            manifest = _manifest(archive)
            about = manifest["files"]
            named = {
                member.name: member
                for member in archive.getmembers()
                if member.name != _MANIFEST
            }
            if set(named) != set(about) or len(archive.getmembers()) != len(about) + 1:
                raise Unreadable(
                    f"{file} does not hold the files that its manifest names",
                    hint="take another backup",
                )
            for name, member in named.items():
                _extract(archive, member, stage, about[name])
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}") from None
    except (
        tarfile.TarError,
        EOFError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        raise Unreadable(
            f"{file} is no backup of a desk, or it is damaged", hint="take another backup"
        ) from error
    except OSError as error:
        raise Unavailable(
            f"cannot unpack {file}: {error.strerror}", hint="is the disk full?"
        ) from error
    return manifest


def _manifest(archive: tarfile.TarFile) -> dict[str, Any]:
    found = _content(archive, archive.getmember(_MANIFEST), _LARGEST_MANIFEST)
    if found is None:
        raise ValueError
    manifest: dict[str, Any] = json.loads(found.read())
    manifest["made"] = datetime.fromisoformat(str(manifest["made"]))
    if manifest["form"] != FORM:
        raise Denied(
            "this backup was made by a newer deskhand",
            reason="newer",
            hint="upgrade, then restore",
        )
    if str(manifest["schema"]) > schema.HEAD:
        raise Denied(
            "the backup's database is newer than this deskhand",
            reason="newer",
            hint="upgrade, then restore",
        )
    return manifest


def _extract(
    archive: tarfile.TarFile, member: tarfile.TarInfo, stage: Path, about: dict[str, Any]
) -> None:
    parts = member.name.split("/")
    content = _content(archive, member, _LARGEST)
    if (
        content is None
        or any(part in ("", ".", "..") for part in parts)
        or "\\" in member.name
    ):
        raise Unreadable(
            f"the backup holds {member.name!r}, which is no plain file",
            hint="take another backup",
        )
    place = stage.joinpath(*parts)
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(place, "xb", opener=open_private) as made:
        while piece := content.read(1 << 20):
            made.write(piece)
        made.flush()
        sync(made.fileno())
    if _digest(place) != about["sha256"]:
        raise Unreadable(
            f"{member.name} in the backup is not what was put into it",
            hint="take another backup",
        )


def _content(
    archive: tarfile.TarFile, member: tarfile.TarInfo, most: int
) -> IO[bytes] | None:
    """What a plain file holds. One with holes would be larger on the disk than the archive that it comes from."""
    if not member.isreg() or member.issparse() or member.size > most:
        return None
    return archive.extractfile(member)


def _verify_record(database: Path) -> int:
    """How many lines the record has, all proved; opening the copy brings its schema up to date."""
    with closing(open_store(f"sqlite:///{database}")) as store:
        found = store.write_sync(audit.verify)
    match found:
        case audit.Verified(entries):
            return entries
        case audit.Broken(seq, why):
            broken = f"the record in the backup is not whole: line {seq}: {why}"
            raise Unreadable(broken, hint="take another backup")


def _prepare(database: Path, now: datetime, forget: Callable[[Transaction], object]) -> int:
    """Prove the record, then forget sessions, links, and every yes that was only held."""
    entries = _verify_record(database)
    entry = audit.Entry.of(now, "person", "restore", "desk")

    def prepare(tx: Transaction) -> None:
        forget(tx)
        ledger.take_back_all(
            tx, "This desk was restored from a backup; a yes from before counts no more."
        )
        audit.append(tx, entry)

    with closing(open_store(f"sqlite:///{database}")) as store:
        store.write_sync(prepare)
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
                hint = "stop `deskhand up` and its clients first"
                raise Denied(
                    f"a desk is running in {home}", reason="running", hint=hint
                ) from error
        yield


def _exchange(stage: Path, home: Path, now: datetime) -> Path | None:
    """Put `stage` in the place of the home, and the home aside; returns where the old home is then."""
    aside = home.with_name(f"{home.name}.before-{now:%Y%m%dT%H%M%S}")
    for folder in (*(path for path in stage.rglob("*") if path.is_dir()), stage):
        sync_folder(folder)
    if not home.exists():
        stage.rename(home)
        sync_folder(home.parent)
        return None
    if aside.exists():
        raise Exists(
            f"{aside} is there already", hint="move it away, or try again in a second"
        )
    try:
        home.rename(aside)
    except OSError as error:
        raise Unavailable(
            f"cannot move {home} aside: {error.strerror}",
            hint="use --to with another folder",
        ) from error
    try:
        stage.rename(home)
    except OSError:
        aside.rename(home)
        raise
    sync_folder(home.parent)
    return aside


def _digest(path: Path) -> str:
    with path.open("rb") as opened:
        return file_digest(opened, "sha256").hexdigest()
