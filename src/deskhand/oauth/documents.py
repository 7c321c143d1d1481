"""Clients whose id is the address of a document about themselves: fetched over TLS, from a public address, in one step.

Whoever asks names the address, so the desk could be sent to look at what only it can reach. It goes nowhere but to the
very address that was checked, follows nobody further, and neither waits nor reads for long.
"""

import asyncio
import ipaddress
import json
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from deskhand.oauth import OAuthRefusal
from deskhand.oauth.clients import OAuthClient, make_client

if TYPE_CHECKING:
    import httpx2

SECONDS = 5
BYTES = 20_000
_PLACE = re.compile(r"https://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?(/[!-~]+)", re.IGNORECASE)
_INTERNET_6 = ipaddress.ip_network("2000::/3")
_TUNNELS_6 = (ipaddress.ip_network("2001::/23"), ipaddress.ip_network("2002::/16"))
"""Addresses of the internet in which another address hides, or which are nobody's."""


def is_document(client_id: str) -> bool:
    return client_id.startswith("https://")


def is_public(address: str) -> bool:
    """Whether an address is one of the internet, and of no network that this machine may be in."""
    found = ipaddress.ip_address(address)
    if found.version == 6:
        return found in _INTERNET_6 and not any(found in each for each in _TUNNELS_6) and found.is_global
    return found.is_global and not found.is_multicast and not found.is_reserved


@dataclass(frozen=True, slots=True)
class Documents:
    """Reads what clients say of themselves; `may_reach` says to which addresses the desk goes for that."""

    may_reach: Callable[[str], bool] = is_public
    trust: Callable[[], ssl.SSLContext] = ssl.create_default_context
    seconds: float = SECONDS

    async def find(self, client_id: str) -> OAuthClient:
        import httpx2

        try:
            async with asyncio.timeout(self.seconds):
                said = json.loads(await self._fetch(client_id))
        except (OSError, ValueError, RecursionError, httpx2.HTTPError) as error:
            raise _refusal("it cannot be read") from error
        if not isinstance(said, dict) or said.get("client_id") != client_id:
            raise _refusal("it is about another client")
        if "client_secret" in said:
            raise _refusal("it has a secret in it that everybody can read")
        return make_client(client_id, said.get("client_name"), said.get("redirect_uris"))

    async def _fetch(self, client_id: str) -> bytes:
        import httpx2

        found = _PLACE.fullmatch(client_id)
        path = urlsplit(client_id).path
        if found is None or "#" in client_id or {".", ".."} & set(path.split("/")):
            raise _refusal("it is an https address with a path")
        host = found[1].strip("[]")
        port = int(found[2] or 443)
        address = await self._resolve(host, port)
        if ":" in address:
            address = f"[{address}]"
        headers = {"Host": urlsplit(client_id).netloc, "Accept": "application/json", "Accept-Encoding": "identity"}
        # The certificate has to be the named host's, not the number's.
        named = {"sni_hostname": host}
        async with (
            httpx2.AsyncClient(verify=self.trust(), trust_env=False, follow_redirects=False) as http,
            http.stream("GET", f"https://{address}:{port}{found[3]}", headers=headers, extensions=named) as answer,
        ):
            return await _read(answer)

    async def _resolve(self, host: str, port: int) -> str:
        """The address to go to. One that is not public among several is reason enough to go to none."""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(each[4][0]) for each in found]
        if not addresses or not all(self.may_reach(each) for each in addresses):
            raise _refusal("it is not at a public address")
        return addresses[0]


async def _read(answer: "httpx2.Response") -> bytes:
    """A document that is there, in plain JSON, and short; one that is elsewhere now is not there."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if answer.status_code != HTTPStatus.OK or not kind.endswith("json") or "content-encoding" in answer.headers:
        raise _refusal("it is not there as plain JSON")
    text = b""
    async for part in answer.aiter_raw():
        text += part
        if len(text) > BYTES:
            raise _refusal(f"it is longer than {BYTES:,} bytes")
    return text


def _refusal(why: str) -> OAuthRefusal:
    return OAuthRefusal("invalid_client", f"the client's id is the address of a document about it: {why}")
