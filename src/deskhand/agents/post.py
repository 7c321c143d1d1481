"""What an agent can do with mail: the one place behind the command line, the MCP server and the desk."""

import os
import secrets
import string
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

from deskhand.agents import paths, tmux
from deskhand.agents.mail import (
    STATUSES,
    AgentMessage,
    Mailroom,
    NotMarked,
    Status,
    note_failure,
    timestamp,
)
from deskhand.agents.roster import InTmux, Roster
from deskhand.errors import Denied, InvalidInput, NotFound, Unavailable

LIMIT = 65_536
_LETTERS = string.ascii_letters + string.digits


class Post:
    """One agent's way to its mail. Nothing is opened before it is needed."""

    def __init__(
        self,
        roster: Roster,
        folder: str,
        open_room: Callable[[str | None], Mailroom],
        clock: Callable[[], int],
    ) -> None:
        self.roster = roster
        self._root = paths.repository(folder)
        self._open_room = open_room
        self._clock = clock
        self._is_registered = False

    @cached_property
    def mailroom(self) -> Mailroom:
        """The mailboxes, for somebody who only looks."""
        return self._open_room(self._root)

    def enter(self) -> Mailroom:
        """The mailboxes, for somebody who takes part; the first call registers an agent
        that tmux does not show."""
        room = self.mailroom
        unseen = room.beyond_tmux or not isinstance(self.roster, InTmux)
        if unseen and not self._is_registered:
            with note_failure("that this agent is here"):
                room.register(self.me(), self._now())
            self._is_registered = True
        return room

    def me(self) -> str:
        """Who this is, with which everything begins that an agent does: so windows are looked at anew."""
        with _report_as("failed to get current window"):
            self.roster.look_again()
            return self.roster.me()

    def send(self, recipient: str, text: str, *, known: Collection[str] = ()) -> str:
        """Store the message for the recipient; returns its id once it is stored. Names in
        `known` are not looked up."""
        if not text:
            raise InvalidInput("no message provided")
        if len(text.encode()) > LIMIT:
            raise InvalidInput("message exceeds maximum size of 64KB")
        me = self.me()
        if recipient == me:
            raise Denied("cannot send message to self", reason="self")
        if recipient == tmux.PERSON and self.mailroom.beyond_tmux:
            known = {*known, tmux.PERSON}  # who reads it at the page, and answers there
        with _report_as("failed to check recipient"):
            if recipient in self._read_ignore_list() or (
                recipient not in known and recipient not in self._others()
            ):
                raise NotFound(
                    "recipient not found",
                    hint="the list of agents tells who is there (`agentmail recipients`)",
                )
        with _report_as("failed to generate message ID"):
            identifier = "".join(secrets.choice(_LETTERS) for _ in range(8))
        room = self._room_of(recipient)
        with _report_as("failed to write message"):
            room.append(AgentMessage(identifier, me, recipient, text, self._now()))
        return identifier

    def receive(self) -> AgentMessage | None:
        """The oldest unread message, given to nobody else; None if there is none."""
        me = self.me()
        room = self.enter()
        with _report_as("failed to read messages"):
            message = room.take(me)
        if message is not None:
            with note_failure("when a message was read"):
                room.set_last_read(me, self._clock() // 1_000_000, self._now())
        return message

    def give_back(self, message: AgentMessage) -> None:
        """Let the message be received again: it could not be shown."""
        with note_failure("that a message was not shown"):
            self.mailroom.give_back(replace(message, to=self.me()))

    def wait(self, seconds: float) -> AgentMessage | None:
        """Like `receive`, but wait up to this time for a message."""
        until = time.monotonic() + seconds
        with self.enter().bell(self.me()) as bell:
            while (message := self.receive()) is None and (
                left := until - time.monotonic()
            ) > 0:
                bell.wait(left)
        return message

    def set_status(self, status: str) -> None:
        known: list[Status] = [each for each in STATUSES if each == status]
        if not known:
            raise InvalidInput(f"Invalid status: {status}. Valid: {', '.join(STATUSES)}")
        me = self.me()
        room = self.enter()
        with _report_as("failed to update status"):
            room.set_status(me, known[0], self._now())

    def recipients(self) -> list[tuple[str, bool]]:
        """Everybody who can be written to, and this agent itself, which is marked."""
        me = self.me()
        with _report_as("failed to list windows"):
            ignored = self._read_ignore_list()
            names = dict.fromkeys(
                [*(window.address for window in self.roster.windows()), *self._others(), me]
            )
            return [
                (name, name == me) for name in names if name == me or name not in ignored
            ]

    def close(self) -> None:
        if "mailroom" in self.__dict__:
            self.mailroom.close()

    def _others(self) -> list[str]:
        windows = [window.address for window in self.roster.windows()]
        try:
            room = self.enter()
        except NotFound:  # no repository: said when something is to be written there
            if not windows:
                raise
            return windows
        names = [*windows, *room.registrations()]
        if not isinstance(self.roster, InTmux):
            # An agent outside tmux sees no windows, only who has ever set a status.
            names += [state.name for state in room.states()]
        return names

    def _room_of(self, recipient: str) -> Mailroom:
        """The mailboxes that the recipient reads: those of another repository, if all its panes are there."""
        room = self.enter()
        roots = [
            paths.repository(folder)
            for window in self.roster.windows()
            if window.address == recipient
            for _, folder in window.panes
            if folder
        ]
        elsewhere = [root for root in roots if root and root != self._root]
        if elsewhere and len(elsewhere) == len(roots):
            return self._open_room(elsewhere[0])
        return room

    def _read_ignore_list(self) -> set[str]:
        if self._root is None:
            return set()
        try:
            with open(
                os.path.join(self._root, ".agentmailignore"),
                encoding="utf-8",
                errors="replace",
            ) as file:
                return {line.strip() for line in file if line.strip()}
        except OSError:
            return set()

    def _now(self) -> str:
        return timestamp(self._clock())


@contextmanager
def _report_as(what: str) -> Iterator[None]:
    """Report a failure of the machine, of tmux or of the database in the words that clients know."""
    try:
        yield
    except tmux.NoWindow as error:
        raise Unavailable(str(error), hint="give the tmux window a name") from error
    except tmux.TmuxFailed as error:
        raise Unavailable(f"{what}: {error}") from error
    except NotMarked as error:
        raise Unavailable(
            f"failed to mark message as read: {error.strerror}", reason=error.errno
        ) from error
    except OSError as error:
        raise Unavailable(f"{what}: {error.strerror}", reason=error.errno) from error
    except Unavailable as error:
        raise Unavailable(f"{what}: {error.message}", hint=error.hint) from error
