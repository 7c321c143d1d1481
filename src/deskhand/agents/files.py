"""The mailboxes as files, shared with the program AgentMail (written in Go) while both run.

Four rules make them safe:

- A message is appended and synced under the file's lock before anybody is told that it was sent.
- Marking it read sets five bytes in place (`false` to `true `): a kill leaves the old or the new file, and a long
  history costs nothing.
- No message ever moves, so nobody waits for the lock of a file that is gone. After each lock the path is compared
  all the same, because AgentMail deletes and replaces files.
- What a crash left of a line is kept in `damaged/`.
"""

import fcntl
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from deskhand.agents import paths
from deskhand.agents.lines import (
    FLAG,
    MailboxLine,
    decode,
    encode,
    encode_message,
    message_of,
    state_fields,
    state_of,
)
from deskhand.agents.mail import (
    AgentMessage,
    AgentState,
    NotMarked,
    StateSetters,
    instant,
    note_failure,
)
from deskhand.durable import sync, sync_data
from deskhand.errors import NotFound

if TYPE_CHECKING:
    from deskhand.folder_bell import FolderBell

_CHUNK = 1 << 20
LONGEST_WAIT = 30.0
_SET_FLAG = re.compile(rb'"read_flag"\s*:\s*(true )')
"""A flag that was set in place, with the blank that remained of `false`."""


class FilesRoom(StateSetters):
    beyond_tmux = False

    def __init__(self, root: str) -> None:
        self._root = root
        self._store = os.path.join(root, paths.STORE)
        self._boxes = os.path.join(self._store, "mailboxes")
        self._states = os.path.join(self._store, "recipients.jsonl")

    def append(self, message: AgentMessage) -> None:
        with self._lock(paths.mailbox(self._root, message.to), create=True) as fd:
            self._heal(fd, message.to)
            if _append(fd, encode_message(message)) == 0:
                _sync_folder(self._boxes)

    def merge(self, name: str, messages: list[AgentMessage]) -> int:
        with self._lock(paths.mailbox(self._root, name), create=True) as fd:
            there = {message.id for _, message in self._read(fd, name) if message}
            new = [message for message in messages if message.id not in there]
            if new and _append(fd, b"".join(map(encode_message, new))) == 0:
                _sync_folder(self._boxes)
            return len(new)

    def take(self, name: str) -> AgentMessage | None:
        with suppress(FileNotFoundError), self._lock(paths.mailbox(self._root, name)) as fd:
            found = self._oldest_unread(fd, name)
            if found is None:
                return None
            line, message = found
            try:
                marked = _mark_read(fd, line)
            except OSError as error:
                raise NotMarked(error.errno, error.strerror) from error
            if marked:
                self._leave_cursor(name, line)
            return replace(message, read=True)
        return None

    def give_back(self, message: AgentMessage) -> None:
        with self._lock(paths.mailbox(self._root, message.to)) as fd:
            taken = [
                line
                for line, each in self._read(fd, message.to)
                if each and each.read and each.id == message.id
            ]
            if not taken:
                return
            line = taken[-1]
            if flag := _SET_FLAG.search(line.raw):
                _write(fd, b"false", line.start + flag.start(1))
            else:
                _append(fd, encode((decode(line.raw) or {}) | {"read_flag": False}))
                _blank(fd, line)
            sync(fd)

    def has_unread(self, name: str) -> bool:
        with suppress(FileNotFoundError), self._lock(paths.mailbox(self._root, name)) as fd:
            return self._oldest_unread(fd, name) is not None
        return False

    async def count_unread(self, name: str) -> int:
        import asyncio

        if not self._has_box(name):
            return 0
        return await asyncio.to_thread(self._count_unread, name)

    def _has_box(self, name: str) -> bool:
        return os.path.exists(paths.mailbox(self._root, name))

    def _count_unread(self, name: str) -> int:
        with suppress(FileNotFoundError), self._lock(paths.mailbox(self._root, name)) as fd:
            if self._oldest_unread(fd, name) is None:
                return 0
            found = self._read(fd, name, history=False)
            return sum(1 for _, message in found if message and not message.read)
        return 0

    def messages(self, name: str) -> list[AgentMessage]:
        with suppress(FileNotFoundError), self._lock(paths.mailbox(self._root, name)) as fd:
            return [message for _, message in self._read(fd, name) if message]
        return []

    def mailboxes(self) -> list[str]:
        return sorted(
            paths.agent_name(file.removesuffix(".jsonl"))
            for file in _names(self._boxes, ".jsonl")
        )

    def bell(self, name: str | None) -> "FolderBell":
        from deskhand.folder_bell import FolderBell

        _make_folder(self._boxes)
        if name is None:
            return FolderBell(self._store, self._boxes)
        return FolderBell(
            self._boxes, names=[os.path.basename(paths.mailbox(self._root, name))]
        )

    def register(self, name: str, now: str) -> None:
        del now  # the file system keeps the time
        paths.register(self._root, name)

    def registrations(self) -> dict[str, int]:
        folder = os.path.join(self._store, "agents")
        return {
            paths.agent_name(name): os.stat(os.path.join(folder, name)).st_mtime_ns
            for name in sorted(_names(folder))
        }

    def states(self) -> list[AgentState]:
        with suppress(FileNotFoundError), self._lock(self._states) as fd:
            return [slot.entry for slot in self._slots(fd).values()]
        return []

    def remove_states(self, names: list[str]) -> None:
        with suppress(FileNotFoundError), self._lock(self._states) as fd:
            for name, slot in self._slots(fd).items():
                if name in names:
                    _erase_state(fd, slot.line)
            _trim(fd)
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(paths.registration(self._root, name))

    def remove_read(self, name: str, before: str, *, dry_run: bool) -> int:
        limit = instant(before) or 0
        removed = 0
        with suppress(FileNotFoundError), self._lock(paths.mailbox(self._root, name)) as fd:
            for line, message in list(self._read(fd, name)):
                # Without a time nobody can say that it is old.
                if (
                    message is None
                    or not message.read
                    or (instant(message.created_at) or limit) >= limit
                ):
                    continue
                removed += 1
                if not dry_run:
                    _blank(fd, line)
            if not dry_run:
                _trim(fd)
        return removed

    def remove_if_empty(self, name: str, *, dry_run: bool) -> bool:
        path = paths.mailbox(self._root, name)
        with suppress(FileNotFoundError), self._lock(path) as fd:
            if any(not line.is_blank for line in _lines(fd, 0)) or not (
                dry_run or _opened_by_nobody_else(fd)
            ):
                return False
            if not dry_run:
                os.unlink(path)
                with suppress(FileNotFoundError):
                    os.unlink(paths.cursor(self._root, name))
            return True
        return False

    def close(self) -> None:
        """Nothing is held open between calls."""

    @contextmanager
    def _lock(self, path: str, *, create: bool = False) -> Iterator[int]:
        while True:
            try:
                fd = os.open(
                    path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600
                )
            except FileNotFoundError:
                if not create or os.path.isdir(os.path.dirname(path)):
                    raise
                _make_folder(os.path.dirname(path))
                continue
            try:
                _wait_for_lock(fd)
                if _is_at(fd, path):
                    yield fd
                    return
            finally:
                os.close(fd)

    def _heal(self, fd: int, name: str) -> None:
        """Remove what a kill left at the end of the file: AgentMail reads all of a file or nothing."""
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            for _ in self._read(fd, name):
                pass

    def _oldest_unread(self, fd: int, name: str) -> tuple[MailboxLine, AgentMessage] | None:
        self._heal(fd, name)
        start, end, identifier = paths.read_cursor(self._root, name)
        if not paths.cursor_holds(fd, start, end, identifier):
            end = 0
        last = None
        for line, message in self._read(fd, name, end, history=False):
            if message and not message.read:
                return line, message
            last = line if line.id else last
        if last:
            self._leave_cursor(name, last)
        return None

    def _read(
        self, fd: int, name: str, offset: int = 0, *, history: bool = True
    ) -> Iterator[tuple[MailboxLine, AgentMessage | None]]:
        """Each line with its message, or None for one read long ago unless `history` is wanted."""
        for line in _lines(fd, offset):
            if line.is_blank:
                continue
            if not history and line.is_surely_read:
                yield line, None
                continue
            message = message_of(decode(line.raw) or {})
            if message is None:
                self._put_aside(fd, line, paths.file_name(name))
            else:
                yield _complete(fd, line), message

    def _put_aside(self, fd: int, line: MailboxLine, file: str) -> None:
        import logging

        keep = os.path.join(self._store, "damaged", f"{file}.jsonl")
        with self._lock(keep, create=True) as kept:
            _append(kept, line.raw.rstrip(b"\n") + b"\n")
        _blank(fd, line)
        logging.getLogger("deskhand.agents").warning(
            "a damaged line of %d bytes was moved to %s", len(line.raw), keep
        )

    def _leave_cursor(self, name: str, line: MailboxLine) -> None:
        """Leave a hint: torn or lost, it costs one look through the file, and nobody a message."""
        path = paths.cursor(self._root, name)
        mark = b"%d %d %s\n" % (line.start, line.end, line.id or b"")
        with note_failure("the place up to which a mailbox was read"):
            _make_folder(os.path.dirname(path))
            # Over the mark before it, whose end the reader skips: a truncated file is written out when it is closed.
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, mark)
            finally:
                os.close(fd)

    def _slots(self, fd: int) -> dict[str, "_Slot"]:
        slots: dict[str, _Slot] = {}
        for line in _lines(fd, 0):
            if line.is_blank:
                continue
            fields = decode(line.raw) or {}
            entry = state_of(fields)
            if entry is None:
                self._put_aside(fd, line, "recipients")
                continue
            # A kill came between writing the new line and blanking the old one.
            if entry.name in slots:
                _erase_state(fd, slots[entry.name].line)
            slots[entry.name] = _Slot(entry, fields, _complete(fd, line))
        return slots

    def _change(self, name: str, now: str, **changes: Any) -> None:
        with self._lock(self._states, create=True) as fd:
            slot = self._slots(fd).get(name)
            if slot is None:
                _append(
                    fd,
                    encode(
                        state_fields(replace(AgentState(name, "ready", now), **changes), {})
                    ),
                )
                return
            new = encode(state_fields(replace(slot.entry, **changes), slot.fields))
            if (room := len(slot.line.raw) - len(new)) >= 0:
                os.pwrite(fd, new[:-1] + b" " * room + b"\n", slot.line.start)
            else:
                _append(fd, new)
                _erase_state(fd, slot.line)


def open_files(root: str | None) -> FilesRoom:
    if root is None:
        raise NotFound(
            "not in a git repository: run this inside the one that you work in",
            hint="DESKHAND_AGENTS_STORE=database DESKHAND_AGENTS_ROOM=desk leads to those who meet at the desk itself",
            reason="repository",
        )
    return FilesRoom(root)


def _wait_for_lock(fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        # Seldom, and most commands are over before it is loaded.
        from deskhand.locks import (
            wait_for_lock,
        )

        wait_for_lock(fd, "this file of the agents' mail", LONGEST_WAIT)


class _Slot(NamedTuple):
    entry: AgentState
    fields: dict[str, Any]
    line: MailboxLine


def _lines(fd: int, offset: int) -> Iterator[MailboxLine]:
    with open(fd, "rb", closefd=False) as file:
        file.seek(offset)
        for raw in file:
            yield MailboxLine(offset, raw)
            offset += len(raw)


def _append(fd: int, data: bytes) -> int:
    """Write at the end and sync, all of it or nothing; returns how long the file was before."""
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        data = b"\n" + data  # what a kill left without an end must not swallow this line
    try:
        _write(fd, data, size)
        sync_data(fd)
    except OSError:
        os.ftruncate(fd, size)
        raise
    return size


def _mark_read(fd: int, line: MailboxLine) -> bool:
    """Mark the message read; returns whether its line stayed where it was."""
    if line.is_regular:
        flag = next(FLAG.finditer(line.raw))
        os.pwrite(fd, b"true ", line.start + flag.start(1))
        try:
            sync_data(fd)
        except OSError:
            # Marked and not given, nobody would ever get it: it is unread again, or given.
            try:
                os.pwrite(fd, b"false", line.start + flag.start(1))
            except OSError:
                return True
            raise
        return True
    # A line of another form: first a read copy of it, then the old one goes, so that a kill leaves at least one.
    _append(fd, encode((decode(line.raw) or {}) | {"read_flag": True}))
    _blank(fd, line)
    with note_failure("that a message was read"):
        sync_data(fd)
    return False


def _blank(fd: int, line: MailboxLine) -> None:
    """Overwrite the line with line ends, which every reader of these files skips."""
    for start in range(0, len(line.raw), _CHUNK):
        _write(fd, b"\n" * min(_CHUNK, len(line.raw) - start), line.start + start)


def _erase_state(fd: int, line: MailboxLine) -> None:
    """Take a short line out without an empty one: the next line begins with its room, for when that one grows."""
    if line.end < os.fstat(fd).st_size:
        _write(fd, b" " * len(line.raw), line.start)
    else:
        _blank(fd, line)


def _trim(fd: int) -> None:
    """Cut off the blank lines at the end."""
    end = os.fstat(fd).st_size
    while end:
        start = max(0, end - _CHUNK)
        block = os.pread(fd, end - start, start)
        if kept := block.rstrip(b"\n"):
            end = start + len(kept) + (len(kept) < len(block))
            break
        end = start
    os.ftruncate(fd, end)
    sync_data(fd)


def _complete(fd: int, line: MailboxLine) -> MailboxLine:
    """Write the line end that a kill may have cut off; returns the whole line."""
    if line.raw.endswith(b"\n"):
        return line
    _write(fd, b"\n", line.end)
    return MailboxLine(line.start, line.raw + b"\n")


def _write(fd: int, data: bytes, position: int) -> None:
    while data:
        written = os.pwrite(fd, data, position)
        data = data[written:]
        position += written


def _is_at(fd: int, path: str) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    here = os.fstat(fd)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _opened_by_nobody_else(fd: int) -> bool:
    """Whether no other process has the file open: AgentMail would append to it after it is gone."""
    if sys.platform != "linux":
        return True
    # The default signal for a lease that is broken kills.
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return False
    return True


def _names(folder: str, suffix: str = "") -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.endswith(suffix)]
    except FileNotFoundError:
        return []


def _make_folder(path: str) -> None:
    if os.path.isdir(path):
        return
    _make_folder(os.path.dirname(path))
    with suppress(FileExistsError):
        os.mkdir(path, 0o750)
    _sync_folder(os.path.dirname(path))


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)
