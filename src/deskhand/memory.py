"""How the C library keeps memory, for a process that runs for weeks."""

import ctypes
import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

# glibc's M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD.
_ARENA_MAX = -8
_MMAP_THRESHOLD = -3
_TRIM_THRESHOLD = -1
_LARGE = 4 * 1024 * 1024
_KEPT = 4 * _LARGE


@contextmanager
def loading() -> Iterator[None]:
    """While modules are loaded nothing is garbage, and what they made stays: looking for
    it is a tenth of a start."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def use_one_arena() -> None:
    """Let all threads share one arena: with one each, what a thread once needed is not given to another.

    A desk grew by a quarter in half an hour of many calls and not at all this way. Other C libraries have no arenas.
    """
    _set({_ARENA_MAX: 1})


def keep_large_blocks() -> None:
    """Let what was needed for a long text be used for the next one; some megabytes stay with the process.

    Otherwise the system gives and clears anew each page of each copy: a third of what an append to a long note costs.
    """
    _set({_MMAP_THRESHOLD: _LARGE, _TRIM_THRESHOLD: _KEPT})


def _set(options: Mapping[int, int]) -> None:
    with suppress(OSError, AttributeError):
        for option, value in options.items():
            ctypes.CDLL(None).mallopt(option, value)
