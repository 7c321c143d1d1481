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
    """Whether the rate lets one more mail leave now."""
    until = find_turn(sent=sent, ahead=0, now=now, limits=limits)
    return Allow() if until <= now else Wait(until)


def find_turn(
    *, sent: Sequence[datetime], ahead: int, now: datetime, limits: Limits
) -> datetime:
    """When a mail may leave if the `ahead` ones before it leave as soon as they may.

    What a clock that was far ahead wrote down counts as just sent."""
    if not limits.most:
        return now + limits.window
    known = [now if at > now + limits.window else at for at in sent]
    recent = sorted(at for at in known if at > now - limits.window)[-limits.most :]
    free = [now - limits.window] * (limits.most - len(recent))
    rounds, place = divmod(ahead, limits.most)
    return [*free, *recent][place] + limits.window * (rounds + 1)
