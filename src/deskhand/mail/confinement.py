"""Shuts a process in before it reads what a stranger wrote: little time and memory, and no way out.

Limits on time, memory, output and open files hold on every system. On Linux (x86-64 and ARM64) the kernel also refuses
it, for good, to open a socket, to start a program, to signal another process and to change any file (seccomp), and from
5.13 on to read any file but those of Python and of the system's libraries (Landlock).
"""

import ctypes
import errno
import os
import platform
import resource
import stat
import struct
import sys
from contextlib import suppress
from pathlib import Path

SECONDS = 10
MEMORY = 512 * 1024 * 1024
OUTPUT = 8 * 1024 * 1024
_FILES = 64

_SET_NO_NEW_PRIVS = 38
_SET_SECCOMP = 22
_FILTER = 2
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | errno.EPERM
_WRITES = 0o1 | 0o2 | 0o100 | 0o1000  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC
_LATER = 0x40000000
"""Where x86-64 has a second table of calls, and no call that is meant."""

# socket, connect, socketpair, clone, clone3, execve, execveat, ptrace, kill, process_vm_readv and _writev, bpf,
# io_uring_setup, openat2, open_by_handle_at; signals by a queue or a pidfd; all that make, change or remove files; and
# what changes a file's mode, owner, times and extended attributes.
_X86 = (
    *(41, 42, 53, 56, 57, 58, 435, 59, 322, 101, 62, 200, 234, 310, 311, 321, 425, 437),
    *(2, 76, 82, 83, 84, 85, 86, 87, 88, 90, 92, 258, 263, 264, 265, 266, 268, 316),
    *(304, 129, 297, 424, 434, 438, 133, 259, 91, 452, 93, 94, 260),
    *(132, 235, 261, 280, 188, 189, 190, 197, 198, 199, 463, 466),
)
_ARM = (
    *(198, 203, 199, 220, 435, 221, 281, 117, 129, 130, 131, 270, 271, 280, 425, 437),
    *(34, 35, 36, 37, 38, 45, 53, 54, 276),
    *(265, 138, 240, 424, 434, 438, 33, 52, 452, 55),
    *(88, 5, 6, 7, 14, 15, 16, 463, 466),
)
_MACHINES = {"x86_64": (0xC000003E, 257, _X86), "aarch64": (0xC00000B7, 56, _ARM)}
"""Of each machine: its number, the number of openat, and the calls that are refused."""


_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_BENEATH = 1
_READ_FILES = 0b0100
_READ_FOLDERS = 0b1000
_OURS = str(Path(__file__).parents[2])
_SYSTEM = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
)


def limit() -> None:
    """Before anything is read. Whoever takes longer, or more, ends."""
    limits = {
        resource.RLIMIT_CPU: SECONDS,
        resource.RLIMIT_AS: MEMORY,
        resource.RLIMIT_FSIZE: OUTPUT,
        resource.RLIMIT_NOFILE: _FILES,
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in limits.items():
        _, hard = resource.getrlimit(kind)
        lowest = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (lowest, lowest))


def is_known() -> bool:
    """Whether this is a system whose kernel can be asked to hold a process."""
    return sys.platform == "linux" and platform.machine() in _MACHINES


def shut_in() -> bool:
    """Once everything is imported; whether the kernel holds it."""
    if not is_known():
        return False
    rules = _rules(*_MACHINES[platform.machine()])
    steps = ctypes.create_string_buffer(
        b"".join(struct.pack("HBBI", *rule) for rule in rules)
    )
    program = struct.pack("HP", len(rules), ctypes.addressof(steps))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    _close_files(libc)
    return bool(libc.prctl(_SET_SECCOMP, _FILTER, program, 0, 0) == 0)


def _close_files(libc: ctypes.CDLL) -> None:
    """Leave what Python may yet have to import; an older kernel knows nothing of this."""
    handled = struct.pack("Q", _READ_FILES | _READ_FOLDERS)
    rules = libc.syscall(_CREATE_RULESET, handled, len(handled), 0)
    if rules < 0:
        return
    packages = [folder for folder in sys.path if folder.endswith("-packages")]
    for place in (_OURS, sys.prefix, sys.base_prefix, *packages, *_SYSTEM):
        with suppress(FileNotFoundError):
            opened = os.open(place, os.O_RDONLY)
            rights = _READ_FILES
            if stat.S_ISDIR(os.fstat(opened).st_mode):
                rights |= _READ_FOLDERS
            libc.syscall(_ADD_RULE, rules, _BENEATH, struct.pack("=Qi", rights, opened), 0)
            os.close(opened)
    libc.syscall(_RESTRICT_SELF, rules, 0)
    os.close(rules)


def _rules(
    machine: int, openat: int, refused: tuple[int, ...]
) -> list[tuple[int, int, int, int]]:
    """A program for the kernel: (operation, jump where true, jump where false, value)."""
    load, equal, at_least, any_bit, end = 0x20, 0x15, 0x35, 0x45, 0x06
    nr, arch, flags = 0, 4, 32
    rules = [(load, 0, 0, arch), (equal, 1, 0, machine), (end, 0, 0, _REFUSE)]
    rules += [(load, 0, 0, nr), (at_least, 0, 1, _LATER), (end, 0, 0, _REFUSE)]
    for call in refused:
        rules += [(equal, 0, 1, call), (end, 0, 0, _REFUSE)]
    rules += [
        (equal, 0, 3, openat),
        (load, 0, 0, flags),
        (any_bit, 0, 1, _WRITES),
        (end, 0, 0, _REFUSE),
    ]
    return [*rules, (end, 0, 0, _ALLOW)]
