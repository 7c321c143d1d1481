"""The window of sends: how many mails may leave within how long. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from deskhand.config import Settings


@dataclass(frozen=True, slots=True)
class Allow:
    """One more mail may leave now."""


@dataclass(frozen=True, slots=True)
class Wait:
    until: datetime


@dataclass(frozen=True, slots=True)
class Limits:
    most: int
    window: timedelta
    accounts: tuple[frozenset[str], ...] = ()
    """The addresses of each account: they share one window."""

    def sharing(self, address: str) -> frozenset[str]:
        """All addresses whose mails count in the window of this one."""
        own = address.casefold()
        return next((each for each in self.accounts if own in each), frozenset({own}))


def limits_of(settings: Settings) -> Limits:
    accounts = tuple(account.addresses for account in settings.mail_accounts)
    return Limits(settings.max_sends, timedelta(seconds=settings.window_seconds), accounts)


def judge(*, sent: Sequence[datetime], now: datetime, limits: Limits) -> Allow | Wait:
    """Whether the rate lets one more mail leave now. What a clock that was far ahead wrote down counts as just sent."""
    known = [now if at > now + limits.window else at for at in sent]
    recent = sorted(at for at in known if at > now - limits.window)
    if len(recent) < limits.most:
        return Allow()
    if not limits.most:
        return Wait(until=now + limits.window)
    return Wait(until=recent[-limits.most] + limits.window)
