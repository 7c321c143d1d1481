"""A message, an agent's state, and what a store of them must be able to do."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from deskhand.errors import DeskError
from deskhand.store import Bell

Status = Literal["ready", "work", "offline"]
STATUSES: tuple[Status, ...] = get_args(Status)
NEVER = "0001-01-01T00:00:00Z"
"""Go's zero time: how AgentMail writes "never"."""


@dataclass(frozen=True, slots=True)
class AgentMessage:
    id: str
    sender: str
    to: str
    text: str
    created_at: str = NEVER
    read: bool = False


@dataclass(frozen=True, slots=True)
class AgentState:
    """What an agent last said of itself."""

    name: str
    status: Status
    updated_at: str
    notified_at: str = NEVER
    last_read_at: int = 0


class NotMarked(OSError):
    """A message was found, but the machine refused to mark it read; it is still unread."""


class Mailroom(Protocol):
    """Mailboxes and states of the agents that work together. What a call returned is durable."""

    beyond_tmux: bool
    """Whether agents of other sessions and machines meet here, so that each must be listed."""

    def append(self, message: AgentMessage) -> None:
        """Append to the mailbox of `message.to`."""

    def merge(self, name: str, messages: list[AgentMessage]) -> int:
        """Append those whose ids are not in the mailbox yet; returns how many."""

    def take(self, name: str) -> AgentMessage | None:
        """The oldest unread message, marked read: given to this caller and to nobody else."""

    def give_back(self, message: AgentMessage) -> None:
        """Make a taken message unread again: whoever took it could not be shown it."""

    def has_unread(self, name: str) -> bool: ...

    async def count_unread(self, name: str) -> int: ...

    def messages(self, name: str) -> list[AgentMessage]:
        """The whole mailbox, oldest first."""

    def mailboxes(self) -> list[str]: ...

    def bell(self, name: str | None) -> AbstractContextManager[Bell]:
        """Rings when mail for `name` arrives (for anybody, where that is None); may ring for nothing."""

    def register(self, name: str, now: str) -> None:
        """Let an agent that is no window of this session be found by the others."""

    def registrations(self) -> dict[str, int]:
        """Who registered, and when each was last here, in nanoseconds."""

    def states(self) -> list[AgentState]: ...

    def set_status(self, name: str, status: Status, now: str) -> None: ...

    def set_notified(self, name: str, now: str) -> None: ...

    def set_last_read(self, name: str, milliseconds: int, now: str) -> None: ...

    def remove_states(self, names: list[str]) -> None: ...

    def remove_read(self, name: str, before: str, *, dry_run: bool) -> int:
        """Remove what was read and is older than that; returns how many messages."""

    def remove_if_empty(self, name: str, *, dry_run: bool) -> bool: ...

    def close(self) -> None: ...


class StateSetters:
    """What every mailroom does alike: it sets a few fields of an agent's state."""

    def set_status(self, name: str, status: Status, now: str) -> None:
        if status == "ready":
            self._change(name, now, status=status, updated_at=now)
        else:
            self._change(name, now, status=status, updated_at=now, notified_at=NEVER)

    def set_notified(self, name: str, now: str) -> None:
        self._change(name, now, notified_at=now)

    def set_last_read(self, name: str, milliseconds: int, now: str) -> None:
        self._change(name, now, last_read_at=milliseconds)

    def _change(self, name: str, now: str, **changes: Any) -> None:
        """Set these fields of the agent's state; make a ready one where there is none."""
        raise NotImplementedError


@contextmanager
def note_failure(what: str) -> Iterator[None]:
    """Go on where a hint cannot be written: whoever was given a message gets it, whatever the disk says."""
    try:
        yield
    except (DeskError, OSError) as error:
        import logging

        logging.getLogger("deskhand.agents").warning(
            "%s was not written down: %s", what, error
        )


def timestamp(nanoseconds: int) -> str:
    """The time as Go prints it: UTC, without the zeros at the end of the second's fraction."""
    import time

    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    digits = f".{fraction:09}".rstrip("0").rstrip(".")
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}{digits}Z"


def instant(text: str) -> int | None:
    """Nanoseconds of a time as Go prints it, in any zone; None for its zero and for what is no time."""
    import calendar

    form = r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?(?:Z|([+-])(\d\d):(\d\d))"
    found = re.fullmatch(form, text)
    if found is None or text.startswith(("0000-", "0001-")):
        return None
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    fraction, sign, zone_hours, zone_minutes = found.groups()[6:]
    shift = (
        (int(zone_hours) * 60 + int(zone_minutes)) * 60 * (-1 if sign == "+" else 1)
        if sign
        else 0
    )
    if not 1 <= month <= 12:
        return None
    seconds = calendar.timegm((year, month, day, hour, minute, second, 0, 0, 0)) + shift
    # The nanoseconds of far years fit into no 64 bits; the end of what fits is as far.
    return max(
        -(2**63),
        min(seconds * 1_000_000_000 + int((fraction or "0").ljust(9, "0")), 2**63 - 1),
    )
