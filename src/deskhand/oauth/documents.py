"""Clients whose id is the address of a document about themselves: fetched over TLS, from a public address, in one step.

Whoever asks names the address; `abroad` says how far the desk goes for it. It neither waits nor reads for long.
"""

import asyncio
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from deskhand.abroad import Reach, WrongPlace, is_public
from deskhand.oauth import OAuthRefusal
from deskhand.oauth.clients import OAuthClient, make_client

if TYPE_CHECKING:
    import httpx2

SECONDS = 5
BYTES = 20_000


def is_document(client_id: str) -> bool:
    return client_id.startswith("https://")


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
        except WrongPlace as error:
            raise _refusal(str(error)) from error
        except (OSError, ValueError, RecursionError, httpx2.HTTPError) as error:
            raise _refusal("it cannot be read") from error
        if not isinstance(said, dict) or said.get("client_id") != client_id:
            raise _refusal("it is about another client")
        if "client_secret" in said:
            raise _refusal("it has a secret in it that everybody can read")
        return make_client(client_id, said.get("client_name"), said.get("redirect_uris"))

    async def _fetch(self, client_id: str) -> bytes:
        if urlsplit(client_id).path in ("", "/"):
            raise WrongPlace("it is an https address with a path")
        reach = Reach(self.may_reach, self.trust)
        async with reach.ask("GET", client_id, {"Accept": "application/json"}) as answer:
            return await _read(answer)


async def _read(answer: "httpx2.Response") -> bytes:
    """A document that is there, in plain JSON, and short; one that is elsewhere now is not there."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if (
        answer.status_code != HTTPStatus.OK
        or not kind.endswith("json")
        or "content-encoding" in answer.headers
    ):
        raise _refusal("it is not there as plain JSON")
    text = b""
    async for part in answer.aiter_raw():
        text += part
        if len(text) > BYTES:
            raise _refusal(f"it is longer than {BYTES:,} bytes")
    return text


def _refusal(why: str) -> OAuthRefusal:
    return OAuthRefusal(
        "invalid_client", f"the client's id is the address of a document about it: {why}"
    )
