"""Who this agent is, and who else is there. What fails, fails with TmuxFailed. Imports next to nothing, for a hook."""

from deskhand.agents import tmux


class InTmux:
    """An agent in a tmux window: known by the window's name, or `name~2` if an older window has that name."""

    def __init__(self, pane: str | None, server: str = "") -> None:
        """`server` is where its tmux listens: this process may sit in another one, or in none."""
        self.pane = pane or ""
        self.server = server
        self.is_watched = False
        """Whether somebody forgets the windows when they change."""
        self._windows: list[tmux.Window] | None = None
        self._changes = 0

    def windows(self) -> list[tmux.Window]:
        """The session's windows, asked for once; `forget` when they may have changed."""
        if not self.pane:
            raise tmux.TmuxFailed("TMUX_PANE environment variable not set")
        if not tmux.is_pane(self.pane):
            raise tmux.TmuxFailed("TMUX_PANE contains invalid format")
        if self._windows is not None:
            return self._windows
        changes = self._changes
        found = tmux.windows(self.pane, self.server)
        if changes == self._changes:  # otherwise the list may be old already
            self._windows = found
        return found

    def forget(self) -> None:
        self._changes += 1
        self._windows = None

    def look_again(self) -> None:
        """Something new is asked: the windows may be others by now."""
        if not self.is_watched:
            self.forget()

    def me(self) -> str:
        own = tmux.own(self.windows(), self.pane)
        if own is None:
            # A name of blanks alone is no name; AgentMail shows what is left of it.
            raise tmux.NoWindow("current window '' not found in tmux session")
        return own.address

    def namesakes(self) -> list[str]:
        """The addresses of the windows that have this one's name, if there are several."""
        own = tmux.own(self.windows(), self.pane)
        same = [
            window.address for window in self.windows() if own and window.name == own.name
        ]
        return same if len(same) > 1 else []


class Named:
    """An agent outside tmux, which says its name itself."""

    def __init__(self, name: str) -> None:
        self._name = name

    def me(self) -> str:
        return self._name

    def windows(self) -> list[tmux.Window]:
        return []

    def look_again(self) -> None:
        """A name that was given does not change."""

    def namesakes(self) -> list[str]:
        return []


class Onlooker(Named):
    """Somebody without a window, such as the person at the page, who sees the windows of the session."""

    def __init__(self, name: str, pane: str | None, server: str = "") -> None:
        super().__init__(name)
        self._pane = pane or ""
        self._server = server

    def windows(self) -> list[tmux.Window]:
        if not tmux.is_pane(self._pane):
            return []
        return tmux.windows(self._pane, self._server)

    def beside_the_desk(self) -> list[tmux.Window]:
        """The windows without the one in which nothing but the desk itself runs."""
        found = self.windows()
        own = tmux.own(found, self._pane)
        return [each for each in found if each is not own or len(each.panes) > 1]


class Guest(Onlooker):
    """An agent that came in with a token and has its name; not where a window of the session has that."""

    def me(self) -> str:
        if any(window.address == self._name for window in self.windows()):
            raise tmux.TmuxFailed(f"a tmux window is called {self._name}, too")
        return self._name


Roster = InTmux | Named


def identify(
    tmux_variable: str | None, pane: str | None, name: str | None
) -> Roster | None:
    """Who runs this: inside tmux the window tells, else the name that was given. None
    where neither names an agent."""
    if tmux_variable:
        return InTmux(pane, tmux.socket_of(tmux_variable))
    if not name or not may_be_called(name):
        return None
    return Named(name)


def may_be_called(name: str) -> bool:
    """Whether an agent may have this name: it is not the person's, and it passes for no other."""
    return not tmux.is_persons(name) and tmux.readable(name) == name
