"""The wire to a server at an address: what its refusals mean, and no answer longer than what memory should hold."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from http import HTTPStatus

import httpx2

from deskhand.errors import AuthRequired, printable
from deskhand.foreign.lines import LONGEST

SECRET = "AUTHORIZATION"  # noqa: S105 - its name
_TIMEOUT = httpx2.Timeout(30.0, read=300.0)
"""A server may be silent for a while in the middle of an answer."""
_SESSION = "mcp-session-id"
_not_taken: ContextVar[list[str]] = ContextVar("_not_taken")
"""Why the request that is just asked was not taken; the SDK carries the context to where the answer is read."""


def hear_refusals() -> list[str]:
    """Where it will stand why the next request of this task was not taken."""
    heard: list[str] = []
    _not_taken.set(heard)
    return heard


class WebLink:
    """A server at an address that is there, as far as this side knows."""

    def __init__(self, name: str, secrets: Mapping[str, str]) -> None:
        self._name = name
        self._has_secret = SECRET in secrets
        self._headers = {"Accept-Encoding": "identity"}
        if self._has_secret:
            self._headers["Authorization"] = _demand_sendable(name, secrets[SECRET])
        self.ended = asyncio.Event()
        self.why = "it ended"
        self.wants_secret = False

    def open(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers=self._headers,
            timeout=_TIMEOUT,
            event_hooks={"response": [self._look]},
        )

    async def _look(self, response: httpx2.Response) -> None:
        response.stream = _BoundedBody(response)
        if response.request.method != "POST":  # without the other ways a server is whole
            return
        why = await self._find_refusal(response)
        if why is None:
            return
        self.why = why
        self.ended.set()
        if (heard := _not_taken.get(None)) is not None:
            heard.append(why)

    async def _find_refusal(self, response: httpx2.Response) -> str | None:
        """Why nothing more comes of this connection."""
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            self.wants_secret = True
            return self._describe_challenge(response.headers.get("www-authenticate", ""))
        if _SESSION in response.request.headers and await _is_session_lost(response):
            return "it no longer knows this session, and is connected anew"
        return None

    def _describe_challenge(self, challenge: str) -> str:
        if self._has_secret:
            return f"it does not accept the secret {SECRET}"
        if "resource_metadata" in challenge:
            return "it wants a sign-in in a browser, which the desk does not do; a token of that service does as well"
        return f"it wants the secret {SECRET}"

    def secret_needed(self) -> AuthRequired:
        hint = f"deskhand guard secret {self._name} {SECRET}"
        return AuthRequired(f"the server {self._name} is closed: {self.why}", hint=hint)


async def _is_session_lost(response: httpx2.Response) -> bool:
    if response.status_code != HTTPStatus.BAD_REQUEST:
        return response.status_code == HTTPStatus.NOT_FOUND
    with suppress(
        httpx2.StreamError
    ):  # many servers are written after an example that says it so
        return b"no valid session" in (await response.aread()).lower()
    return False


def _demand_sendable(name: str, secret: str) -> str:
    """The secret, if a header can carry it; a token alone is one of the usual kind."""
    words = secret.strip()
    if not words.isascii() or not words.isprintable():
        hint = f"deskhand guard secret {name} {SECRET}"
        raise AuthRequired(f"the secret {SECRET} of {name} fits no header", hint=hint)
    return words if " " in words else f"Bearer {words}"


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101 - of an AsyncClient
        self._stream = response.stream
        self._packing = response.headers.get("content-encoding", "identity")
        kind = response.headers.get("content-type", "")
        self._is_endless = kind.startswith("text/event-stream")  # each event is bounded

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._packing != "identity":
            raise httpx2.StreamError(f"it is packed ({printable(self._packing, 30)})")
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > LONGEST and not self._is_endless:
                raise httpx2.StreamError(f"it has more than {LONGEST >> 20} MB")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
