"""What a check-up found: good, a warning, or bad; and what to do."""

from dataclasses import dataclass
from typing import Literal

State = Literal["good", "warning", "bad"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    name: str = ""
    """The name of the check, which the check-up puts in."""
    state: State
    says: str
    fix: str | None = None
    """What to do, in one sentence or a command."""


def good(says: str) -> Finding:
    return Finding(state="good", says=says)


def warning(says: str, fix: str | None) -> Finding:
    return Finding(state="warning", says=says, fix=fix)


def bad(says: str, fix: str | None) -> Finding:
    return Finding(state="bad", says=says, fix=fix)
