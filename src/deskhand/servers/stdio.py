"""A client on stdio gets an answer to each line that it sent: to one that is no message, and to the last one too."""

import json
import re
from contextlib import suppress
from typing import Any, Protocol, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from pydantic import ValidationError

LAST_ANSWERS = 10.0
"""Seconds in which what was asked may be answered when the client sends no more."""
LASTING = "subscriptions/listen"
"""The one request that is answered only at the end."""
_REQUESTS = (
    *("initialize", "ping", "server/", "tools/", "tasks/", "resources/", "prompts/"),
    *("completion/", "logging/", "subscriptions/"),
)
"""How the methods begin that are answered."""
_HALF = re.compile("[\ud800-\udfff]")
_NO_ID = "A request needs an id that is a text or a whole number"
_UNREADABLE = (
    "Not JSON that everybody reads: a lone surrogate (\\ud800 to \\udfff),"
    " a number of thousands of digits, or hundreds of levels"
)


class _Incoming(Protocol):
    last_context: Any

    async def receive(self) -> SessionMessage | Exception: ...
    async def aclose(self) -> None: ...


class _Outgoing(Protocol):
    async def send(self, item: SessionMessage, /) -> None: ...
    async def aclose(self) -> None: ...


class OpenRequests:
    """What was asked and is not answered yet."""

    def __init__(self) -> None:
        self._asked: set[RequestId] = set()
        self._answered = anyio.Event()

    def note(self, message: JSONRPCMessage) -> None:
        match message:
            case JSONRPCRequest(method=method, id=name) if method != LASTING:
                self._asked.add(name)
            case JSONRPCNotification(
                method="notifications/cancelled",
                params={"requestId": str() | int() as name},
            ):
                self._close(name)
            case JSONRPCResponse(id=name) | JSONRPCError(id=name) if name is not None:
                self._close(name)

    def _close(self, name: RequestId) -> None:
        self._asked.discard(name)
        self._answered.set()

    async def wait(self) -> None:
        """Until everything is answered, but not for ever."""
        with anyio.move_on_after(LAST_ANSWERS):
            while self._asked:
                self._answered = anyio.Event()
                await self._answered.wait()


class NotingStream:
    """The outgoing messages; whatever answers a request closes it."""

    def __init__(self, outgoing: _Outgoing, requests: OpenRequests) -> None:
        self._outgoing = outgoing
        self._requests = requests

    async def send(self, item: SessionMessage) -> None:
        await self._outgoing.send(item)
        self._requests.note(item.message)

    async def aclose(self) -> None:
        await self._outgoing.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class AnsweringStream:
    """The incoming messages, without what is none; whoever sent that gets a JSON-RPC error.

    The SDK drops what is under way when they end. So they end only when it is answered.
    """

    def __init__(
        self, incoming: _Incoming, outgoing: _Outgoing, requests: OpenRequests
    ) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._requests = requests

    @property
    def last_context(self) -> Any:
        return self._incoming.last_context

    async def receive(self) -> SessionMessage | Exception:
        try:
            item = await self._incoming.receive()
            while isinstance(item, Exception) or _is_without_id(item.message):
                if (answer := _answer_to(item)) is not None:
                    await self._outgoing.send(SessionMessage(answer))
                item = await self._incoming.receive()
        except anyio.EndOfStream:
            await self._requests.wait()
            raise
        self._requests.note(item.message)
        return item

    async def aclose(self) -> None:
        await self._incoming.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _is_without_id(message: JSONRPCMessage) -> bool:
    """Whether it asks with no id, or with one that is none: to the SDK that is a
    notification, which nobody answers."""
    match message:
        case JSONRPCNotification(method=method):
            return method.startswith(_REQUESTS)
        case _:
            return False


def _answer_to(problem: Exception | SessionMessage) -> JSONRPCError | None:
    """None for an empty line."""
    if isinstance(problem, SessionMessage):
        return _error(INVALID_REQUEST, _NO_ID, None)
    errors = problem.errors() if isinstance(problem, ValidationError) else []
    if not errors:
        return _error(PARSE_ERROR, "Parse error", None)
    if errors[0]["type"] != "json_invalid":
        # What lacks a member of another kind of message is named as a whole; everything else is named by its part.
        wholes = [each["input"] for each in errors if each["type"] == "missing"]
        return _error(
            INVALID_REQUEST, "Not a JSON-RPC 2.0 message", next(iter(wholes), None)
        )
    given = str(errors[0]["input"])
    if not given.strip():
        return None
    try:
        # More lenient than the SDK's parser: whoever sent what that refuses gets an answer to his own id.
        message = json.loads(given, parse_int=_read_number)
    except (ValueError, RecursionError):
        return _error(PARSE_ERROR, "Parse error", None)
    return _error(INVALID_PARAMS, _UNREADABLE, message)


def _read_number(digits: str) -> int | None:
    """None where it has more digits than Python reads."""
    with suppress(ValueError):
        return int(digits)
    return None


def _error(code: int, text: str, message: Any) -> JSONRPCError:
    sender = message.get("id") if isinstance(message, dict) else None
    if not _can_be_repeated(sender):
        sender = None
    return JSONRPCError(jsonrpc="2.0", id=sender, error=ErrorData(code=code, message=text))


def _can_be_repeated(sender: Any) -> bool:
    """Whether it is an id, and one without half a character, which nobody can write."""
    match sender:
        case str():
            return not _HALF.search(sender)
        case _:
            return isinstance(sender, int)
