"""Pure: facts in, a value out."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from deskhand.gate.actions import Action


@dataclass(frozen=True, slots=True)
class Allow:
    pass


@dataclass(frozen=True, slots=True)
class Wait:
    until: datetime


@dataclass(frozen=True, slots=True)
class Limits:
    most: int
    window: timedelta


def judge(*, sent: Sequence[datetime], now: datetime, limits: Limits) -> Allow | Wait:
    """Whether the rate lets one more mail leave now."""
    recent = sorted(at for at in sent if at > now - limits.window)
    if len(recent) < limits.most:
        return Allow()
    return Wait(until=(recent[-limits.most] if limits.most else now) + limits.window)


_LINK = re.compile(r"https?://", re.IGNORECASE)


def risks(action: Action) -> list[str]:
    """What the person should know before saying yes; the first line names the level."""
    hidden = sum(unicodedata.category(char) in {"Cf", "Co", "Cn"} for char in action.subject + action.body)
    links = len(_LINK.findall(action.body))
    outside = _domain(action.to) != _domain(action.account)
    level = "high" if hidden else "medium" if outside or links else "low"
    found = [
        f"Level: {level}. A mail cannot be called back once it left.",
        f"The recipient is {'outside' if outside else 'in'} your own domain.",
    ]
    if links:
        found.append(f"The text holds {links} link{'s' if links > 1 else ''}.")
    if hidden:
        found.append(f"The text holds {hidden} invisible character{'s' if hidden > 1 else ''}.")
    return found


def _domain(address: str) -> str:
    return address.rpartition("@")[2].casefold()
