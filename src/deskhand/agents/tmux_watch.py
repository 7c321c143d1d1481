"""Hears from tmux at once when windows of a session change and when it ends, by a silent control client."""

import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from deskhand.agents import tmux

_ATTACH = ("-C", "attach-session", "-f", "ignore-size,read-only,no-output", "-t")
AGAIN_SECONDS = 0.5


class TmuxWatch:
    """Calls `changed` for every change of the session's windows, and `ended` once, when
    the session is no more."""

    def __init__(
        self,
        pane: str,
        server: str,
        changed: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._pane = pane
        self._server = server
        self._changed = changed
        self._ended = ended
        self._stopping = threading.Event()
        self._client: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="tmux-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._client:
            self._client.terminate()
        self._thread.join()

    def _run(self) -> None:
        while (session := self._session()) is not None:
            self._listen(session)
            self._changed()
            # If the session lives, somebody detached all clients, or this tmux is too old for silent ones.
            if self._stopping.is_set():
                return
            if self._session() is not None and self._stopping.wait(AGAIN_SECONDS):
                return
        self._ended()

    def _session(self) -> str | None:
        """The session's id: attaching to the pane would make its window the current one."""
        try:
            found = tmux.run(
                "list-panes",
                "-t",
                self._pane,
                "-F",
                "#{session_id}",
                server=self._server,
            )
            return found.split()[0]
        except tmux.TmuxFailed:
            return None

    def _listen(self, session: str) -> None:
        command = tmux.command(*_ATTACH, session, server=self._server)
        quiet = subprocess.DEVNULL
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet
        ) as client:
            self._client = client
            if self._stopping.is_set():
                client.terminate()
            assert client.stdout is not None  # noqa: S101 - it is a pipe
            for line in client.stdout:
                if line.startswith((b"%window", b"%unlinked-window", b"%session")):
                    self._changed()
                if line.startswith(b"%exit"):
                    break
            with suppress(BrokenPipeError):
                client.communicate()
