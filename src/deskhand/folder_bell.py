"""Waits for changes of files in a folder, whichever program makes them."""

import threading
from collections.abc import Collection
from pathlib import Path
from typing import Self

from deskhand.errors import Unavailable

_STEP_MS = 20
"""How often the watcher is asked. It answers one step after the last of several changes."""
_LONGEST_MS = 100
"""After this time it answers although files go on changing."""


class FolderBell:
    """Rings for every change since it was made, also for one before `wait`: so make it,
    look, and only then wait."""

    def __init__(self, *folders: str, names: Collection[str] = ()) -> None:
        """Listen for the files called `names` in `folders`; for all of them where no name is given."""
        from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

        self._folders = folders
        self._names = names
        self._rang = threading.Event()
        self._stopping = threading.Event()
        self._is_gone = False
        try:
            self._watcher = RustNotify(list(folders), False, False, 0, False, False)
        except (OSError, WatchfilesRustInternalError) as error:
            raise Unavailable(
                f"the folder cannot be watched: {error}", reason="no_watch"
            ) from error
        # On a thread, because the watcher swallows what a signal's handler raises.
        self._thread = threading.Thread(
            target=self._listen, name="folder-bell", daemon=True
        )
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether something changed within this time; it may say so for nothing, but misses nothing."""
        rang = self._rang.wait(max(seconds, 0))
        if rang:
            self._rang.clear()
        if self._is_gone:
            raise Unavailable("the watched folder is gone", reason="no_watch")
        return rang

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._watcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self) -> None:
        try:
            while isinstance(
                changes := self._watcher.watch(_LONGEST_MS, _STEP_MS, 0, self._stopping),
                set,
            ):
                paths = [path for _, path in changes]
                if any(path in self._folders and not Path(path).is_dir() for path in paths):
                    return
                if not self._names or any(Path(path).name in self._names for path in paths):
                    self._rang.set()
        finally:
            # Nobody listens from now on; whoever waits is told.
            self._is_gone = True
            self._rang.set()
