"""What a check-up found: good, a warning, or bad; and what to do."""

from dataclasses import dataclass
from typing import Literal

State = Literal["good", "warning", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    state: State
    says: str
    fix: str | None = None
    """What to do, in one sentence or a command."""


def good(name: str, says: str) -> Finding:
    return Finding(name, "good", says)


def warning(name: str, says: str, fix: str | None) -> Finding:
    return Finding(name, "warning", says, fix)


def bad(name: str, says: str, fix: str | None) -> Finding:
    return Finding(name, "bad", says, fix)
