"""Keeps the catalog of a vault as the files are.

The scan of the folder is the authority. While it is cheap it is made for every question, unless the system's queue
of changes is empty since the last one; above that a watch names what changed. A scan in the background now and then
finds what either lost.
"""

import fcntl
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection

from deskhand.errors import DeskError
from deskhand.locks import wait_for_lock
from deskhand.notes import catalog, walk
from deskhand.notes.catalog import Catalog
from deskhand.notes.watch import ChangeQueue, VaultWatch

RESCAN_SECONDS = 5.0
RESCAN_SHARE = 20
"""A scan in the background comes after this many seconds, but not before this many times its own length."""
FILED_AT_ONCE = 64
"""Up to this many changed notes are filed before the question is answered."""
MOST_NAMED = 1000
"""With more reports than this, a scan is cheaper than looking at each."""
BATCH_BYTES = 4_000_000
LONGEST_FILING = 600.0
"""Seconds for which whoever builds the index waits for another process that files."""
DEAD_ALLOWED = 1000
"""How many dead versions may lie in the text tables before they are all made again."""
PAUSE = 0.005
GRACE = 0.05
"""The work in the background waits in steps of PAUSE while somebody asks, and for GRACE after the answer."""
PATIENCE = 0.25
"""For so long, in seconds, each step of a merge waits for a moment in which nobody asks."""
MANY = 1000
"""From this many texts on, filing leaves segments behind that are worth merging."""
MERGED_PAGES = 100

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class View:
    """One question's view: the index, the vault, and the last scan's time if the question made none itself."""

    db: Connection
    root: walk.Root
    as_of: datetime | None


@dataclass(frozen=True, slots=True)
class _Scan:
    """A complete scan: when, by both clocks; its cost; into which index; whether watch and
    queue stood before it."""

    wall: float
    started: float
    cost: float
    generation: str
    watched: bool
    queued: bool


class Upkeep:
    def __init__(
        self,
        root: Path,
        file: Path,
        now: Callable[[], float],
        scan_budget: float,
        batch: int,
        *,
        background: bool,
    ) -> None:
        self._root = root
        self._now = now
        self._scan_budget = scan_budget
        self._batch = batch
        self._background = background
        self._catalog = Catalog(file)
        self._watch = VaultWatch(root)
        self._queue = ChangeQueue()
        self._looking = threading.Lock()
        self._writing = threading.Lock()
        self._guard = threading.Lock()
        self._touched: set[str] = set()
        self._threads: dict[str, threading.Thread] = {}
        self._asking = 0
        self._asked = 0.0
        self._quiet = threading.Event()
        self._closed = threading.Event()
        self._last: _Scan | None = None

    @contextmanager
    def view(self) -> Iterator[View]:
        with (
            self._holding_back(),
            walk.open_root(self._root) as root,
            self._catalog.connection() as db,
        ):
            as_of = self._freshen(db, root)
            # One state of the index for the whole answer, whatever is filed meanwhile.
            with catalog.transaction(db, "DEFERRED"):
                yield View(db, root, as_of)

    def touch(self, paths: set[str]) -> None:
        with self._guard:
            self._touched |= paths

    def discard(self) -> None:
        self._catalog.discard()

    def build(self, progress: Callable[[int, int], None] | None) -> None:
        with walk.open_root(self._root) as root, self._catalog.connection() as db:
            self._scan(db, root)
            total = catalog.count_stale(db)
        with self._turn_to_file(wait=True):
            for done in self._file_stale():
                if progress:
                    progress(done, total)

    def close(self) -> None:
        self._closed.set()
        self._watch.close()
        for thread in tuple(self._threads.values()):
            thread.join()
        self._queue.close()
        self._catalog.close()

    @contextmanager
    def _holding_back(self) -> Iterator[None]:
        """While somebody waits for an answer, the work in the background holds back."""
        with self._guard:
            self._asking += 1
            self._quiet.clear()
        try:
            yield
        finally:
            with self._guard:
                self._asking -= 1
                self._asked = time.monotonic()
                if not self._asking:
                    self._quiet.set()

    def _pause(self) -> None:
        if self._asking:
            self._quiet.wait(PAUSE)

    def _give_way(self) -> None:
        """Hold back a little longer: the answer is still on its way to the caller, and the
        next question may follow."""
        self._pause()
        if time.monotonic() < self._asked + GRACE:
            self._closed.wait(PAUSE)

    def _wait_for_quiet(self) -> None:
        """Hold back while one question follows another: what is written meanwhile, each of
        them has to read anew."""
        until = time.monotonic() + PATIENCE
        while not self._closed.is_set() and time.monotonic() < until:
            if not self._asking and time.monotonic() >= self._asked + GRACE:
                return
            self._closed.wait(PAUSE)

    def _freshen(self, db: Connection, root: walk.Root) -> datetime | None:
        """Bring the catalog up to date with the files; the time of the last scan, if none was made for this."""
        asked = time.monotonic()
        with self._looking:
            last = self._catch_up(db, root, asked)
        if self._background and catalog.stale_paths(db, 1):
            self._start("file", self._file_in_background)
        scanned = self._last
        if (
            self._background
            and scanned
            and scanned.started + max(RESCAN_SECONDS, RESCAN_SHARE * scanned.cost) < asked
        ):
            self._start("scan", self._scan_in_background)
        return datetime.fromtimestamp(last.wall, UTC) if last else None

    def _catch_up(self, db: Connection, root: walk.Root, asked: float) -> _Scan | None:
        """Look at what was reported since the last scan, and return that scan; where it
        cannot be relied on, scan."""
        last = self._reliable(db, root)
        if last is None and self._last and self._last.started >= asked:
            return None  # somebody else scanned while this question waited for its turn
        if last is None and self._is_unchanged(db, root):
            return None
        with self._guard:
            named = self._touched | self._watch.drain()
            self._touched = set()
        try:
            if last and len(named) <= MOST_NAMED:
                self._look_at(db, root, named)
                return last
            self._scan(db, root, named)
        except BaseException:
            # What was named is forgotten now, so only a scan can be relied on.
            self._last = None
            raise
        return None

    def _reliable(self, db: Connection, root: walk.Root) -> _Scan | None:
        """The last scan, if the watch has named everything that changed since."""
        last = self._last
        if (
            last is None
            or last.cost <= self._scan_budget
            or not last.watched
            or not self._watch.covers(root)
        ):
            return None
        return last if last.generation == catalog.generation(db) else None

    def _is_unchanged(self, db: Connection, root: walk.Root) -> bool:
        """Whether a scan now would find what the last one did."""
        last = self._last
        if (
            last is None
            or not last.queued
            or last.cost > self._scan_budget
            or self._touched
        ):
            return False
        if (
            last.generation != catalog.generation(db)
            or catalog.has_racy(db)
            or not self._queue.covers(root)
        ):
            return False
        return self._queue.is_empty()

    def _look_at(self, db: Connection, root: walk.Root, named: set[str]) -> None:
        changes: dict[str, walk.Key | None] = {}
        for path in named:
            found = walk.scan(root, path)
            if path in found:
                # A report of a change counts for more than an unchanged key.
                changes[path] = found[path]
            changes |= catalog.differences(db, found, path)
        self._apply(db, root, changes)

    def _scan(
        self,
        db: Connection,
        root: walk.Root,
        named: Iterable[str] = (),
        pause: Callable[[], None] | None = None,
    ) -> None:
        watched = self._watch.covers(root)
        wall = self._now()
        started = time.monotonic()
        queued = bool(self._last and self._last.queued)
        if pause:
            found = walk.scan(root, pause=pause)
        else:
            # In the background nobody may take away what the next question must find in the queue.
            self._queue.begin(root)
            found = walk.scan(root, enter=self._queue.watch)
            queued = self._queue.covers(root)
        cost = time.monotonic() - started
        versions = catalog.versions(db)
        dead = versions - len(found)
        if dead > DEAD_ALLOWED and dead * 4 > versions:
            self._apply(db, root, catalog.in_order(found), clear=True)
        else:
            changes: dict[str, walk.Key | None] = {
                path: found[path] for path in named if path in found
            }
            self._apply(db, root, changes | catalog.differences(db, found))
        self._last = _Scan(wall, started, cost, catalog.generation(db), watched, queued)
        if cost > self._scan_budget:
            self._watch.start()

    def _apply(
        self,
        db: Connection,
        root: walk.Root,
        changes: Mapping[str, walk.Key | None],
        *,
        clear: bool = False,
    ) -> None:
        """Record what changed. Few texts are filed at once, many are left for the background."""
        if not changes and not clear:
            return
        filings: list[catalog.Filing] = []
        if len(changes) <= FILED_AT_ONCE:
            filings = [self._read_filing(root, path) for path in changes]
            filings.sort(key=lambda filing: filing.key or (0, 0, 0, 0))
        with self._writing, catalog.transaction(db):
            if clear:
                catalog.clear(db)
            catalog.record_changes(db, root, changes)
            catalog.file_texts(db, filings)

    def _file_stale(self) -> Iterator[int]:
        """File every stale note, batch by batch, the newest first; after each batch, how many are done."""
        done = 0
        while not self._closed.is_set():
            with walk.open_root(self._root) as root, self._catalog.connection() as db:
                paths = catalog.stale_paths(db, self._batch)
                if not paths:
                    if done >= MANY:
                        self._merge(db)
                    return
                filings = self._read_filings(root, paths)
                # Within a batch ids must rise, or each text becomes a segment of its own.
                filings.reverse()
                with self._writing, catalog.transaction(db):
                    catalog.file_texts(db, filings)
            done += len(filings)
            yield done

    def _merge(self, db: Connection) -> None:
        """Merge the text tables in steps that nobody notices: a question may have
        something to write in between."""
        for table in catalog.TEXT_TABLES:
            pages = -MERGED_PAGES  # below zero it begins with all segments
            while not self._closed.is_set():
                self._wait_for_quiet()
                with self._writing, catalog.transaction(db):
                    if catalog.merge_segments(db, table, pages):
                        break
                pages = MERGED_PAGES
        with self._writing:
            catalog.checkpoint(db)

    def _read_filing(self, root: walk.Root, path: str) -> catalog.Filing:
        # The queue is there only for file systems of this machine.
        finely = self._queue.covers(root)
        return catalog.read_filing(root, path, self._now(), finely=finely)

    def _read_filings(self, root: walk.Root, paths: list[str]) -> list[catalog.Filing]:
        filings: list[catalog.Filing] = []
        size = 0
        for path in paths:
            self._pause()
            filings.append(self._read_filing(root, path))
            size += filings[-1].size
            if size > BATCH_BYTES or self._closed.is_set():
                break
        return filings

    @contextmanager
    def _turn_to_file(self, *, wait: bool) -> Iterator[bool]:
        """One process files at a time; True if it is this one. A killed one gives its turn back."""
        file = self._catalog.file
        opened = os.open(
            file.with_name(f"{file.name}.lock"),
            os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
            0o600,
        )
        with os.fdopen(opened, "r+b") as lock:
            ours = True
            try:
                if wait:
                    wait_for_lock(lock.fileno(), "the index of the notes", LONGEST_FILING)
                else:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                ours = False
            yield ours

    def _start(self, name: str, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except (DeskError, sqlite3.Error, OSError) as exc:
                # The next question meets the same trouble and tells its caller.
                log.warning(
                    "The index of the notes could not be brought up to date: %s", exc
                )

        with self._guard:
            running = self._threads.get(name)
            if self._closed.is_set() or (running and running.is_alive()):
                return
            self._threads[name] = threading.Thread(
                target=run, name=f"notes-{name}", daemon=True
            )
            self._threads[name].start()

    def _file_in_background(self) -> None:
        with self._turn_to_file(wait=False) as ours:
            if ours:
                for _ in self._file_stale():
                    pass

    def _scan_in_background(self) -> None:
        with walk.open_root(self._root) as root, self._catalog.connection() as db:
            self._scan(db, root, pause=self._give_way)
