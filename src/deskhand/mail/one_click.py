"""Leaves a mailing list by one POST to the address that the list names for it (RFC 8058): no cookie, no redirect, and
nowhere but to a public address."""

import asyncio
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from deskhand.abroad import is_public
from deskhand.errors import OutcomeUnknown, SendFailed

SECONDS = 20
_PLACE = re.compile(
    r"https://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?([/?][!-~]*)?", re.IGNORECASE
)
_FORM = "List-Unsubscribe=One-Click"


def is_one_click(address: str) -> bool:
    """Whether the desk could go there at all."""
    return _PLACE.fullmatch(address) is not None and "#" not in address


@dataclass(frozen=True, slots=True)
class OneClick:
    may_reach: Callable[[str], bool] = is_public
    trust: Callable[[], ssl.SSLContext] = ssl.create_default_context
    seconds: float = SECONDS

    async def resolve(self, address: str) -> str:
        """The number to go to; one that is not public among several is reason enough to go to none."""
        found = _PLACE.fullmatch(address)
        if found is None:
            raise SendFailed("the list names no https address")
        port = int(found[2] or 443)
        try:
            known = await asyncio.get_running_loop().getaddrinfo(
                found[1].strip("[]"), port, type=socket.SOCK_STREAM
            )
        except (OSError, OverflowError) as error:
            raise SendFailed(f"there is no host {found[1]}") from error
        numbers = [str(each[4][0]) for each in known]
        if not numbers or not all(map(self.may_reach, numbers)):
            raise SendFailed(f"{found[1]} is not at a public address")
        return numbers[0]

    async def leave(self, address: str) -> None:
        """Raises SendFailed where certainly nothing arrived, OutcomeUnknown where nobody said that it was done."""
        import httpx2

        number = await self.resolve(address)
        parts = urlsplit(address)
        place = f"[{number}]" if ":" in number else number
        goal = parts._replace(netloc=f"{place}:{parts.port or 443}").geturl()
        headers = {
            "Host": parts.netloc,
            "Content-Type": "application/x-www-form-urlencoded",
        }
        # The certificate has to be the named host's, not the number's.
        named = {"sni_hostname": parts.hostname}
        client = httpx2.AsyncClient(
            verify=self.trust(),
            trust_env=False,
            follow_redirects=False,
            timeout=self.seconds,
        )
        try:
            async with client, asyncio.timeout(self.seconds):
                request = client.build_request(
                    "POST", goal, content=_FORM, headers=headers, extensions=named
                )
                answer = await client.send(request, stream=True)
                await answer.aclose()
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise SendFailed(f"{parts.hostname} cannot be reached") from error
        except (httpx2.HTTPError, TimeoutError) as error:
            raise OutcomeUnknown(f"the answer of {parts.hostname} was lost") from error
        if not answer.is_success:
            raise OutcomeUnknown(
                f"{parts.hostname} answered {answer.status_code}, which is no yes"
            )
