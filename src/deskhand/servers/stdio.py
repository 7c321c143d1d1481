"""Lines on stdin that are no message: they are answered here, where the SDK would leave their sender waiting."""

import json
from typing import Any, Protocol, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError


class _Incoming(Protocol):
    last_context: Any

    async def receive(self) -> SessionMessage | Exception: ...
    async def aclose(self) -> None: ...


class _Outgoing(Protocol):
    async def send(self, item: SessionMessage, /) -> None: ...


class AnsweringStream:
    """The incoming messages, without what is none; whoever sent that gets a JSON-RPC error."""

    def __init__(self, incoming: _Incoming, outgoing: _Outgoing) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    @property
    def last_context(self) -> Any:
        return self._incoming.last_context

    async def receive(self) -> SessionMessage | Exception:
        while isinstance(item := await self._incoming.receive(), Exception):
            if (answer := _answer_to(item)) is not None:
                await self._outgoing.send(SessionMessage(answer))
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


def _answer_to(problem: Exception) -> JSONRPCError | None:
    """None for an empty line."""
    given = problem.errors()[0]["input"] if isinstance(problem, ValidationError) else ""
    if not isinstance(given, str):
        return _error(INVALID_REQUEST, "Not a JSON-RPC 2.0 message", given)
    if not given.strip():
        return None
    try:
        # More lenient than the SDK's parser: whoever sent a lone surrogate gets an answer to his own id.
        message = json.loads(given)
    except (ValueError, RecursionError):
        return _error(PARSE_ERROR, "Parse error", None)
    return _error(INVALID_PARAMS, "Not valid Unicode: a lone surrogate (\\ud800 to \\udfff)", message)


def _error(code: int, text: str, message: Any) -> JSONRPCError:
    sender = message.get("id") if isinstance(message, dict) else None
    if not isinstance(sender, str | int):
        sender = None
    return JSONRPCError(jsonrpc="2.0", id=sender, error=ErrorData(code=code, message=text))
