"""Leaves a mailing list by one POST to the address that the list names for it (RFC 8058): no cookie, no redirect, and
nowhere but to a public address."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

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

    async def resolve(self, address: str) -> str:
        """The number to go to."""
        try:
            return (await self._reach().find(address)).address
        except WrongPlace as error:
            raise SendFailed(f"the list cannot be left there: {error}") from error
        except OSError as error:
            raise SendFailed(f"there is no host {urlsplit(address).hostname}") from error

    async def leave(self, address: str) -> None:
        """Raises SendFailed where certainly nothing arrived, OutcomeUnknown where nobody
        said that it was done."""
        import httpx2

        await self.resolve(address)
        host = urlsplit(address).hostname
        try:
            async with (
                asyncio.timeout(self.seconds),
                self._reach().ask("POST", address, _HEADERS, _FORM) as answer,
            ):
                is_done = answer.is_success
        except (httpx2.ConnectError, httpx2.ConnectTimeout, WrongPlace) as error:
            raise SendFailed(f"{host} cannot be reached") from error
        except (httpx2.HTTPError, OSError) as error:
            raise OutcomeUnknown(f"the answer of {host} was lost") from error
        if not is_done:
            raise OutcomeUnknown(f"{host} answered {answer.status_code}, which is no yes")

    def _reach(self) -> Reach:
        return Reach(self.may_reach, self.trust, seconds=self.seconds)
