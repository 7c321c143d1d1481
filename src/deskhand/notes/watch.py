"""What changes below a folder, as the system reports it: a hint, since reports can get lost."""

import logging
import os
import threading
from pathlib import Path

from deskhand.notes import walk

STEP_MS = 20
DEBOUNCE_MS = 40
# The first report, even an empty one, says that the watch stands.
REPORT_MS = 250

log = logging.getLogger(__name__)


class VaultWatch:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._watched: tuple[int, int] | None = None
        self._named: set[str] = set()
        self._failed = False

    def start(self) -> None:
        with self._lock:
            if self._failed or (self._thread and self._thread.is_alive()):
                return
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(self._stop,), name="notes-watch", daemon=True)
            self._thread.start()

    def covers(self, root: walk.Root) -> bool:
        """Whether changes below this very folder are reported; a folder put in its place is another one."""
        status = os.fstat(root.fd)
        with self._lock:
            if self._watched is None:
                return False
            if self._watched != (status.st_dev, status.st_ino):
                self._stop.set()
                return False
            return bool(self._thread and self._thread.is_alive())

    def drain(self) -> set[str]:
        """The paths reported since the last call."""
        with self._lock:
            named, self._named = self._named, set()
        return named

    def close(self) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()

    def _run(self, stop: threading.Event) -> None:
        from watchfiles import watch

        root = os.path.realpath(self._root)
        try:
            status = Path(root).stat()
            for changes in watch(
                root,
                watch_filter=None,
                debounce=DEBOUNCE_MS,
                step=STEP_MS,
                stop_event=stop,
                rust_timeout=REPORT_MS,
                yield_on_timeout=True,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                named = {os.path.relpath(path, root) for _, path in changes if _matters(path, root)}
                with self._lock:
                    self._watched = (status.st_dev, status.st_ino)
                    self._named |= named
        except (OSError, RuntimeError) as exc:
            self._failed = True
            log.warning("The vault cannot be watched (%s), so it is scanned for every question.", exc)
        finally:
            with self._lock:
                self._watched = None


def _matters(path: str, root: str) -> bool:
    """A note, or a folder that may hold some; what is gone may have been either."""
    inside = path.removeprefix(root + "/")
    if not all(map(walk.is_visible, inside.split("/"))) or inside == path:
        return False
    return walk.is_note(inside) or not Path(path).is_file()
