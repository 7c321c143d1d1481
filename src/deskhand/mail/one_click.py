"""Leaves a mailing list by one POST to the address that the list names for it (RFC 8058): no cookie, no redirect, and
nowhere but to a public address."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from deskhand.abroad import Reach, WrongPlace, is_public
from deskhand.errors import OutcomeUnknown, SendFailed

SECONDS = 20
_FORM = b"List-Unsubscribe=One-Click"
_HEADERS = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True, slots=True)
class OneClick:
    may_reach: Callable[[str], bool] = is_public
    trust: Callable[[], ssl.SSLContext] = ssl.create_default_context
    seconds: float = SECONDS

    async def resolve(self, address: str) -> None:
        """Refuse an address that the desk does not go to."""
        with _refusing():
            await self._reach.find(address)

    async def leave(self, address: str) -> None:
        """Raises SendFailed where certainly nothing arrived, OutcomeUnknown where nobody said that it was done."""
        import httpx2

        try:
            with _refusing():
                async with (
                    asyncio.timeout(self.seconds),
                    self._reach.ask("POST", address, _HEADERS, _FORM) as answer,
                ):
                    pass
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise SendFailed("the list cannot be reached") from error
        except (httpx2.HTTPError, TimeoutError) as error:
            raise OutcomeUnknown("the answer of the list was lost") from error
        if not answer.is_success:
            raise OutcomeUnknown(f"the list answered {answer.status_code}, which is no yes")

    @property
    def _reach(self) -> Reach:
        return Reach(self.may_reach, self.trust, seconds=self.seconds)


@contextmanager
def _refusing() -> Iterator[None]:
    """Where the list's address leads nowhere, nothing can have arrived."""
    try:
        yield
    except WrongPlace as error:
        raise SendFailed(f"the list cannot be left at its address: {error}") from error
    except (socket.gaierror, UnicodeError) as error:
        raise SendFailed("there is no such host") from error
