"""Reading and changing files so that a kill, a full disk or another program's save costs nothing.

A file is written beside its place, synced, and put there in one step; the folder is synced after it. Our own
processes take turns by a lock on the folder. Other programs take no lock, so a conditional replace swaps the two
files, looks at what it got out, and swaps them back if that is not what the caller had seen.
"""

import ctypes
import errno
import fcntl
import os
import secrets
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b, sha256
from threading import Lock
from typing import Any, Generic, TypeVar

from deskhand.durable import sync
from deskhand.errors import Changed, Denied, Exists, NotFound, TooLarge
from deskhand.files import private_mode
from deskhand.locks import wait_for_lock

SIZE_LIMIT = 16 * 1024 * 1024

_NO_REPLACE, _EXCHANGE = "no_replace", "exchange"
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
_TWINS = 2
_THREADS = 4
_PIECE = 1 << 20
MOMENT = 0.0015
"""Seconds, after which whoever waits for the disk mostly has the answer."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
T = TypeVar("T")


def etag(data: bytes) -> str:
    return sha256(data).hexdigest()[:32]


class Meanwhile(Generic[T]):
    """What another thread does while somebody waits for the disk: one piece of work behind the other."""

    def __init__(self, before: Callable[[], object], beside: Callable[[], T]) -> None:
        """`before` ends before the file gets its place; if it fails, the file gets none. `beside` may last longer."""
        self._works = (before, beside)
        self._before: Future[object] = Future()
        self._beside: Future[T] = Future()

    def begin(self) -> None:
        _let_do(_aside(os.getpid()), self._run)

    def _run(self) -> None:
        before, beside = self._works
        _answer(self._before, before)
        _answer(self._beside, beside)

    def settle(self) -> None:
        """Wait until `before` has ended; what it raised is raised here."""
        self._before.result()

    def result(self) -> T:
        """What `beside` gives, once the file has its place."""
        return self._beside.result()


def do_later(work: Callable[..., object], *given: object) -> None:
    """Do it a moment later, when whoever waits has the answer."""
    due = time.monotonic() + MOMENT

    def wait_and_do() -> None:
        time.sleep(max(0, due - time.monotonic()))
        work(*given)

    _let_do(_behind(os.getpid()), wait_and_do)


def _answer(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - it belongs to whoever asks for the result
        future.set_exception(error)


def _let_do(threads: ThreadPoolExecutor, work: Callable[[], object]) -> None:
    """Let one of the threads do it; it is done at once if this process ends or may have no more of them."""
    turn = Lock()

    def do_once() -> None:
        # A thread that could not be started now may find this work later on.
        if turn.acquire(blocking=False):
            work()

    try:
        threads.submit(do_once)
    except RuntimeError:
        do_once()


@cache
def _aside(_process: int) -> ThreadPoolExecutor:
    """Threads for what can be done while somebody waits for the disk; each process has its
    own, forked ones too."""
    return ThreadPoolExecutor(_THREADS, "notes")


@cache
def _behind(_process: int) -> ThreadPoolExecutor:
    """Threads for what nobody waits for: one may be busy with the disk, and one with a note."""
    return ThreadPoolExecutor(2, "notes-behind")


@contextmanager
def locked(*folders: int) -> Iterator[None]:
    """Turns between our own processes and threads; always taken in one order."""
    unique = {
        (info.st_dev, info.st_ino): folder
        for folder in folders
        for info in [os.fstat(folder)]
    }
    held = [
        os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=unique[key])
        for key in sorted(unique)
    ]
    try:
        for folder in held:
            wait_for_lock(folder, "a folder of the vault")
        yield
    finally:
        for folder in reversed(held):
            os.close(folder)


def read(folder: int, name: str, limit: int = SIZE_LIMIT) -> bytes:
    try:
        file = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Denied(
                f"{name} is a symbolic link",
                reason="symlink",
                hint="links are not followed",
            ) from error
        if error.errno == errno.ENXIO:  # a socket
            raise Denied(f"{name} is not an ordinary file", reason="special") from error
        raise
    try:
        info = _drop_leftover(folder, name, os.fstat(file))
        _demand_ordinary(info, name, limit)
        return _read_all(file, info.st_size)
    finally:
        os.close(file)


def _read_all(file: int, size: int) -> bytes:
    """What is in the file; somebody may be writing to it, so that it need not be as long as it was."""
    pieces = [os.read(file, size + 1)]
    while pieces[-1] and sum(map(len, pieces)) != size:
        pieces.append(os.read(file, _PIECE))
    return b"".join(pieces)


def create(
    folder: int, name: str, data: bytes, meanwhile: Meanwhile[Any] | None = None
) -> None:
    """Make the file, which must not be there yet."""
    temporary = _write_beside(folder, name, data, None, meanwhile)
    try:
        _rename(folder, temporary, folder, name, _NO_REPLACE)
    except FileExistsError:
        os.unlink(temporary, dir_fd=folder)
        raise Exists(f"{name} exists already") from None
    sync(folder)


def replace(
    folder: int,
    name: str,
    data: bytes,
    expected: bytes | None,
    meanwhile: Meanwhile[Any] | None = None,
) -> None:
    """Put `data` in the file's place; with `expected`, only if that is still what is there."""
    mode = stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    temporary = _write_beside(folder, name, data, mode, meanwhile)
    if expected is None:
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        _swap_if(folder, temporary, name, data, expected)
    sync(folder)


def move(source: int, name: str, destination: int, new_name: str) -> None:
    """Rename a file without reading it and without ever replacing another one."""
    _demand_ordinary(
        _drop_leftover(source, name, os.stat(name, dir_fd=source, follow_symlinks=False)),
        name,
    )
    try:
        _rename(source, name, destination, new_name, _NO_REPLACE)
    except FileExistsError:
        raise Exists(
            f"{new_name} exists already", hint="choose another destination"
        ) from None
    sync(destination)
    sync(source)


def _drop_leftover(folder: int, name: str, info: os.stat_result) -> os.stat_result:
    """What the file is once the second name is gone that a power cut left of our own writing."""
    temporary = _temporary(name)
    with suppress(FileNotFoundError):
        if (
            info.st_nlink == _TWINS
            and os.stat(temporary, dir_fd=folder, follow_symlinks=False).st_ino
            == info.st_ino
        ):
            os.unlink(temporary, dir_fd=folder)
            return os.stat(name, dir_fd=folder, follow_symlinks=False)
    return info


def _temporary(name: str) -> str:
    return f".deskhand-{blake2b(os.fsencode(name), digest_size=8).hexdigest()}.tmp"


def _demand_ordinary(info: os.stat_result, name: str, limit: int = SIZE_LIMIT) -> None:
    if stat.S_ISLNK(info.st_mode):
        raise Denied(
            f"{name} is a symbolic link", reason="symlink", hint="links are not followed"
        )
    if stat.S_ISDIR(info.st_mode):
        raise NotFound(f"{name} is a folder, not a note")
    if not stat.S_ISREG(info.st_mode):
        raise Denied(f"{name} is not an ordinary file", reason="special")
    if info.st_nlink > 1:
        # Its other name may lie outside the vault or in a protected folder. (No name: it was replaced meanwhile.)
        raise Denied(
            f"{name} is a hard link to another file",
            reason="hard_link",
            hint="make a copy of its own",
        )
    if info.st_size > limit:
        raise TooLarge(f"{name} is too large for a note", size=info.st_size, limit=limit)


def _write_beside(
    folder: int,
    name: str,
    data: bytes,
    mode: int | None,
    meanwhile: Meanwhile[Any] | None,
) -> str:
    """A synced temporary file. Its name follows from `name`: what a killed process left is simply replaced."""
    temporary = _temporary(name)
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)
    file = os.open(
        temporary,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
        private_mode(folder, 0o600),
        dir_fd=folder,
    )
    try:
        with os.fdopen(file, "wb") as opened:
            if mode is not None:
                os.fchmod(file, private_mode(folder, mode))
            opened.write(data)
            opened.flush()
            _sync_while(meanwhile, file)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise
    return temporary


def _sync_while(meanwhile: Meanwhile[Any] | None, file: int) -> None:
    if meanwhile is None:
        sync(file)
        return
    # The other thread has the work and this one the disk: the work would not let the other one begin.
    meanwhile.begin()
    try:
        sync(file)
    finally:
        meanwhile.settle()


def _swap_if(folder: int, temporary: str, name: str, data: bytes, expected: bytes) -> None:
    try:
        _rename(folder, temporary, folder, name, _EXCHANGE)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        _replace_if(folder, temporary, name, expected)
        return
    if _settled_as(folder, temporary, expected):
        _drop(folder, temporary)
        return
    _rename(folder, temporary, folder, name, _EXCHANGE)
    if _settled_as(folder, temporary, data):
        os.unlink(temporary, dir_fd=folder)
    else:
        # Somebody saved into ours as well, in the moment it was in place: both of his versions stay.
        aside = f"{name.removesuffix('.md')} (conflict {secrets.token_hex(4)}).md"
        _rename(folder, temporary, folder, aside, _NO_REPLACE)
    raise _changed(name)


def _drop(folder: int, name: str) -> None:
    """Take the file away. Its room on the disk is freed when it is closed, which would hold up the next sync."""
    file = os.open(name, _READ, dir_fd=folder)
    os.unlink(name, dir_fd=folder)
    do_later(os.close, file)


def _replace_if(folder: int, temporary: str, name: str, expected: bytes) -> None:
    """The nearest to a swap on a file system that has none."""
    if not _settled_as(folder, name, expected):
        os.unlink(temporary, dir_fd=folder)
        raise _changed(name)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def _changed(name: str) -> Changed:
    return Changed(
        f"{name} was changed by another program", hint="read it again, then decide"
    )


def _settled_as(folder: int, name: str, expected: bytes) -> bool:
    """Whether the file has this content and nobody has it open for writing."""
    file = os.open(name, _READ, dir_fd=folder)
    try:
        return not _has_writer(file) and _read_all(file, len(expected)) == expected
    finally:
        os.close(file)


def _has_writer(file: int) -> bool:
    """Linux grants a read lease only on a file that nobody has open for writing."""
    if sys.platform != "linux":
        return False
    with suppress(OSError):
        # The default signal of a lease that breaks would end this process; this one is ignored.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return True
    except OSError:  # no leases on this file system, or not our file
        return False
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _rename(source: int, name: str, destination: int, new_name: str, how: str) -> None:
    """rename(2) that refuses to replace, or that exchanges the two."""
    code = _native_rename(source, name, destination, new_name, how)
    if code == 0:
        return
    if how == _EXCHANGE or code not in _UNSUPPORTED:
        raise OSError(code, os.strerror(code), new_name)
    os.link(name, new_name, src_dir_fd=source, dst_dir_fd=destination)
    os.unlink(name, dir_fd=source)


def _native_rename(
    source: int, name: str, destination: int, new_name: str, how: str
) -> int:
    libc = _c_library()
    if hasattr(libc, "renameat2"):
        call, flags = libc.renameat2, {_NO_REPLACE: 1, _EXCHANGE: 2}
    elif hasattr(libc, "renameatx_np"):
        call, flags = libc.renameatx_np, {_NO_REPLACE: 4, _EXCHANGE: 2}
    else:
        return errno.ENOSYS
    if call(source, os.fsencode(name), destination, os.fsencode(new_name), flags[how]) == 0:
        return 0
    return ctypes.get_errno()


@cache
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
