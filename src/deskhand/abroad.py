"""Going to an address that somebody else named: by TLS, to a public address, in one step.

Whoever names it could send the desk to what only it can reach. It goes nowhere but to the very address that was
checked, and follows nobody further.
"""

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import httpx2

_PLACE = re.compile(
    r"https://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?([/?][!-~]*)?", re.IGNORECASE
)
_INTERNET_6 = ipaddress.ip_network("2000::/3")
_TUNNELS_6 = (ipaddress.ip_network("2001::/23"), ipaddress.ip_network("2002::/16"))
"""Addresses of the internet in which another address hides, or which are nobody's."""


class WrongPlace(ValueError):
    """The desk does not go there; the text says why."""


class Destination(NamedTuple):
    host: str
    port: int
    path: str
    address: str
    """Where the host was found."""


def is_public(address: str) -> bool:
    """Whether an address is one of the internet, and of no network that this machine may be in."""
    found = ipaddress.ip_address(address)
    if found.version == 6:
        return (
            found in _INTERNET_6
            and not any(found in each for each in _TUNNELS_6)
            and found.is_global
        )
    return found.is_global and not found.is_multicast and not found.is_reserved


def is_plain(url: str) -> bool:
    """Whether an address is one of TLS that every program reads alike."""
    if _PLACE.fullmatch(url) is None or "#" in url:
        return False
    try:
        return {".", ".."}.isdisjoint(urlsplit(url).path.split("/"))
    except ValueError:  # brackets around what is no number
        return False


async def look_up(host: str, port: int) -> list[str]:
    """The addresses of a host, as this system finds them."""
    listed = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    )
    return [str(each[4][0]) for each in listed]


@dataclass(frozen=True, slots=True)
class Reach:
    """How far the desk goes: `may_reach` says to which addresses, `find_addresses` which ones a host has, and `seconds`
    for how long it waits."""

    may_reach: Callable[[str], bool] = is_public
    trust: Callable[[], ssl.SSLContext] = ssl.create_default_context
    find_addresses: Callable[[str, int], Awaitable[list[str]]] = look_up
    seconds: float = 5

    async def find(self, url: str) -> Destination:
        """Where that is. One address that is not public among several is reason enough to go to none."""
        found = _PLACE.fullmatch(url)
        if found is None or not is_plain(url):
            raise WrongPlace("it is an https address with a path")
        host = found[1].strip("[]")
        port = int(found[2] or 443)
        if not 0 < port < 65536:
            raise WrongPlace("there is no such port")
        addresses = await self.find_addresses(host, port)
        if not addresses or not all(self.may_reach(each) for each in addresses):
            raise WrongPlace("it is not at a public address")
        path = found[3] or "/"
        return Destination(host, port, f"/{path.removeprefix('/')}", addresses[0])

    @asynccontextmanager
    async def ask(
        self, method: str, url: str, headers: dict[str, str], content: bytes | None = None
    ) -> "AsyncIterator[httpx2.Response]":
        """The answer, of which nothing is read yet."""
        import httpx2

        place = await self.find(url)
        address = place.address
        if ":" in address:
            address = f"[{address}]"
        named = {"Host": urlsplit(url).netloc, "Accept-Encoding": "identity"} | headers
        async with (
            httpx2.AsyncClient(
                verify=self.trust(),
                trust_env=False,
                follow_redirects=False,
                timeout=self.seconds,
            ) as http,
            http.stream(
                method,
                f"https://{address}:{place.port}{place.path}",
                headers=named,
                content=content,
                extensions={
                    "sni_hostname": place.host
                },  # the certificate is the named host's, not the number's
            ) as answer,
        ):
            yield answer
