"""The tasks of MCP: a call that waits for the person is answered with a handle, whose result comes with their answer.

A client of 2026-07-28 declares the extension. One of 2025-11-25, where tasks were an experiment, says with the call
that it wants a task. A handle is for whoever got it, and what it once said in the end it says for good.
"""

import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    PaginatedRequestParams,
    RequestParams,
    Result,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from deskhand import clock
from deskhand.app import Desk
from deskhand.foreign.messages import LONGEST_RESULT, OWN_WORDS
from deskhand.gate.requests import LIFETIME, OPEN, Request
from deskhand.servers.callers import asker
from deskhand.store import Transaction

TASKS = "io.modelcontextprotocol/tasks"
FIRST_ERA = "2025-11-25"
"""The revision of MCP in which tasks are part of the protocol itself."""
PAGE = 100
KEPT = timedelta(days=1)
"""How long the result of a call that did not wait is kept."""
MOST_KEPT = 100
"""Of such results for one client; then the oldest goes."""
LONGEST_WAIT = 50
"""Seconds for which `tasks/result` waits: clients give up after about a minute."""
_POLL = 5000
_WAITS = "This waits for your answer on your desk's own page."
_CANCELLED = "The client waits no more. The request is still before the person, who alone decides about it."
_CAPABILITY: dict[str, Any] = {
    "list": {},
    "cancel": {},
    "requests": {"tools": {"call": {}}},
}

_Context = ServerRequestContext[Any, Any]


class Handle(NamedTuple):
    id: str
    asker: str
    request_id: str | None
    """None where the call was done at once."""
    created: datetime
    updated: datetime
    expires: datetime
    status: Literal["working", "completed", "cancelled"]
    message: str
    result: str | None = None
    """What the call would have answered, as JSON."""


class TaskParams(RequestParams):
    task_id: str


class Handles(Extension):
    identifier = TASKS

    def __init__(
        self,
        desk: Desk,
        demand: Callable[[], None],
        find: Callable[[str], Awaitable[Request]],
        describe: Callable[[Request], Awaitable[dict[str, Any]]],
        may_wait: Callable[[str], bool],
    ) -> None:
        """`demand` refuses a caller that may read nothing that waits, `find` one that may not read this request;
        `describe` is what its call answers."""
        self._desk = desk
        self._demand = demand
        self._find = find
        self._describe = describe
        self._may_wait = may_wait

    def methods(self) -> Sequence[MethodBinding]:
        modern = frozenset(MODERN_PROTOCOL_VERSIONS)
        first = frozenset({FIRST_ERA})
        return [
            MethodBinding("tasks/get", TaskParams, self._get, first | modern),
            MethodBinding("tasks/cancel", TaskParams, self._cancel, first | modern),
            MethodBinding("tasks/update", TaskParams, self._acknowledge, modern),
            MethodBinding("tasks/result", TaskParams, self._wait, first),
            MethodBinding("tasks/list", PaginatedRequestParams, self._list, first),
        ]

    async def pass_on(self, ctx: _Context, call_next: CallNext) -> HandlerResult:
        """Around every message: says what a client of the first era must know, and gives a handle for a call."""
        match ctx.method:
            case "initialize":
                return _promise(await call_next(ctx))
            case "tools/list" if ctx.protocol_version == FIRST_ERA:
                return self._mark(await call_next(ctx))
            case "tools/call" if wants_task(ctx):
                return await self._call(ctx, call_next)
            case _:
                return await call_next(ctx)

    def _mark(self, listed: Any) -> dict[str, Any]:
        """Which tools take a task. Another server's tools say it for that server, not for the desk."""
        for each in listed["tools"]:
            each.pop("execution", None)
            if self._may_wait(each["name"]):
                each["execution"] = {"taskSupport": "optional"}
        return dict(listed)

    async def _call(self, ctx: _Context, call_next: CallNext) -> HandlerResult:
        name = str((ctx.params or {}).get("name"))
        if not _is_modern(ctx) and not self._may_wait(name):
            raise MCPError(METHOD_NOT_FOUND, "this tool takes no task: call it without one")
        ended: Any = await call_next(ctx)
        waiting = _waiting_in(ended)
        if waiting is None and _is_modern(ctx):
            return dict(ended)
        if waiting is None:
            made = await self._desk.store.write(_give, self._end_at_once(ended))
            return {"task": _describe(made, ctx)}
        waits, message = waiting
        made = await self._desk.store.write(
            _give, self._begin(await self._find(waits), message)
        )
        if not _is_modern(ctx):
            return {"task": _describe(made, ctx)}
        stamp = {
            key: value
            for key, value in ended["_meta"].items()
            if not key.startswith(OWN_WORDS)
        }
        return _describe(made, ctx) | {"resultType": "task", "_meta": stamp}

    def _begin(self, request: Request, message: str) -> Handle:
        until = (request.expires or request.created) + LIFETIME
        now = self._desk.now()
        return Handle(
            request.id, asker(), request.id, request.created, now, until, "working", message
        )

    def _end_at_once(self, ended: Any) -> Handle:
        now = self._desk.now()
        said = "It was done at once."
        result = json.dumps(dict(ended))
        if len(result) > LONGEST_RESULT:
            result = json.dumps(_say_too_long(len(result)))
        return Handle(
            secrets.token_hex(8),
            asker(),
            None,
            now,
            now,
            now + KEPT,
            "completed",
            said,
            result,
        )

    async def _look(self, task_id: str) -> Handle:
        self._demand()
        found = await self._desk.store.read(_find, task_id, asker())
        if found is None:
            raise MCPError(INVALID_PARAMS, "this client was given no such task")
        return await self._refresh(found)

    async def _refresh(self, handle: Handle) -> Handle:
        """The handle as it is now; an end is written down, and is the end whatever the person does later."""
        if handle.status != "working" or handle.request_id is None:
            return await self._tell_again(handle)
        request = await self._find(handle.request_id)
        if not self._has_ended(request):
            return handle
        result = json.dumps(await self._describe(request))
        ended = handle._replace(
            status="completed",
            updated=self._desk.now(),
            message=f"It is {request.state}.",
            result=result,
        )
        return await self._desk.store.write(_end, ended)

    async def _tell_again(self, handle: Handle) -> Handle:
        """What the person said to a question is told from their answer, not from what was once told of it."""
        told = json.loads(handle.result or "{}").get("structuredContent") or {}
        if handle.request_id is None or told.get("state") != "answered":
            return handle
        request = await self._find(handle.request_id)
        return handle._replace(result=json.dumps(await self._describe(request)))

    def _has_ended(self, request: Request) -> bool:
        """Whether no more is to come; a no of the person counts when they can no longer take it back."""
        if (
            request.state == "rejected"
            and request.decided_by == "person"
            and request.decided is not None
        ):
            hold = timedelta(seconds=self._desk.settings.hold_seconds)
            return self._desk.now() >= request.decided + hold
        return request.state == "unknown" or request.state not in OPEN

    async def _get(self, ctx: _Context, params: TaskParams) -> HandlerResult:
        return _describe(await self._look(params.task_id), ctx)

    async def _list(self, ctx: _Context, params: PaginatedRequestParams) -> HandlerResult:
        self._demand()
        found = await self._desk.store.read(_page, asker(), params.cursor or "")
        tasks = []
        for each in found:
            with suppress(MCPError):  # of an account that this caller sees no longer
                tasks.append(_describe(await self._refresh(each), ctx))
        if len(found) < PAGE:
            return {"tasks": tasks}
        return {"tasks": tasks, "nextCursor": found[-1].id}

    async def _wait(self, ctx: _Context, params: TaskParams) -> HandlerResult:
        handle = await self._look(params.task_id)
        with anyio.move_on_after(LONGEST_WAIT):
            while handle.status == "working":
                await anyio.sleep(1)
                handle = await self._look(params.task_id)
        del ctx
        if handle.status == "cancelled":
            raise MCPError(INVALID_PARAMS, _CANCELLED)
        if handle.result is None:
            raise MCPError(INTERNAL_ERROR, f"{_WAITS} Look at the task later: tasks/get")
        result: dict[str, Any] = json.loads(handle.result)
        related = {"io.modelcontextprotocol/related-task": {"taskId": handle.id}}
        return result | {"_meta": result.get("_meta", {}) | related}

    async def _cancel(self, ctx: _Context, params: TaskParams) -> HandlerResult:
        """The client waits no more. What is before the person is theirs to answer."""
        handle = await self._look(params.task_id)
        if handle.status == "working":
            ended = handle._replace(
                status="cancelled", updated=self._desk.now(), message=_CANCELLED
            )
            handle = await self._desk.store.write(_end, ended)
        elif not _is_modern(ctx):
            raise MCPError(
                INVALID_PARAMS,
                f"the task has ended: it is {_describe(handle, ctx)['status']}",
            )
        if _is_modern(ctx):
            return Result()
        return _describe(handle, ctx)

    async def _acknowledge(self, ctx: _Context, params: TaskParams) -> HandlerResult:
        """Nothing that a client says is an answer."""
        del ctx
        await self._look(params.task_id)
        return Result()


def wants_task(ctx: _Context) -> bool:
    """Whether the client takes a handle for this call."""
    if ctx.protocol_version == FIRST_ERA:
        return (ctx.params or {}).get("task") is not None
    client = ctx.session.client_capabilities
    return _is_modern(ctx) and client is not None and TASKS in (client.extensions or {})


def _is_modern(ctx: _Context) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def _promise(said: Any) -> dict[str, Any]:
    if said["protocolVersion"] == FIRST_ERA:
        said["capabilities"]["tasks"] = _CAPABILITY
    return dict(said)


def _describe(handle: Handle, ctx: _Context) -> dict[str, Any]:
    """A handle on the wire. The first era calls a result that is an error a failure, and gives it on its own."""
    described: dict[str, Any] = {
        "taskId": handle.id,
        "status": handle.status,
        "statusMessage": handle.message,
        "createdAt": clock.iso(handle.created),
        "lastUpdatedAt": clock.iso(handle.updated),
    }
    life = int((handle.expires - handle.created).total_seconds() * 1000)
    result = json.loads(handle.result or "{}")
    if _is_modern(ctx):
        described |= {"ttlMs": life, "pollIntervalMs": _POLL}
        if result:
            described["result"] = {"resultType": "complete"} | result
        return described
    if result.get("isError"):
        described |= {"status": "failed", "statusMessage": _say_why(result)}
    return described | {"ttl": life, "pollInterval": _POLL}


def _say_too_long(length: int) -> dict[str, Any]:
    text = f"it was done, but the answer has {length:,} characters, and {LONGEST_RESULT:,} are kept"
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _say_why(result: Mapping[str, Any]) -> str:
    """What an error says, for a client that reads no result of what failed."""
    match result:
        case {"_meta": {"deskhand/error": {"message": str(text)}}}:
            return text.partition("\n")[0]
        case _:
            return "It was done, and the answer is an error."


def _waiting_in(ended: Mapping[str, Any]) -> tuple[str, str] | None:
    """The id of the request that a call waits for, and what is said of it."""
    match ended:
        case {"_meta": {"deskhand/waits": str(request)}}:
            return request, _WAITS
        case {
            "isError": True,
            "_meta": {"deskhand/error": {"message": str(message), "details": details}},
        }:
            # A call of another server's tool names its request so.
            waits = details.get("id") or ("approval" in details and details.get("request"))
            if details.get("reason") == "no_approval" and waits:
                return waits, message
    return None


# Rows.

_COLUMNS = ", ".join(Handle._fields)


def _give(tx: Transaction, handle: Handle) -> Handle:
    """Write down that the asker has it; one that waits already for the same is the same."""
    tx.execute("DELETE FROM handles WHERE expires <= ?", clock.to_ms(handle.updated))
    known = _find(tx, handle.id, handle.asker)
    if known is not None and known.status == "working":
        return known
    if known is not None:
        handle = handle._replace(id=secrets.token_hex(8))
    if handle.request_id is None:
        _make_room(tx, handle.asker)
    moments = [
        clock.to_ms(each) for each in (handle.created, handle.updated, handle.expires)
    ]
    values = (*handle[:3], *moments, *handle[6:])
    tx.execute(
        f"INSERT INTO handles ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *values
    )
    return handle


def _make_room(tx: Transaction, asked_by: str) -> None:
    """For one more result of a call that did not wait."""
    rows = tx.all(
        "SELECT id FROM handles WHERE asker = ? AND request_id IS NULL ORDER BY created DESC, id",
        asked_by,
    )
    for (name,) in rows[MOST_KEPT - 1 :]:
        tx.execute("DELETE FROM handles WHERE id = ? AND asker = ?", name, asked_by)


def _find(tx: Transaction, task_id: str, asked_by: str) -> Handle | None:
    row = tx.one(
        f"SELECT {_COLUMNS} FROM handles WHERE id = ? AND asker = ?", task_id, asked_by
    )
    return _read(row) if row else None


def _page(tx: Transaction, asked_by: str, after: str) -> list[Handle]:
    sql = f"SELECT {_COLUMNS} FROM handles WHERE asker = ? AND id > ? ORDER BY id LIMIT ?"
    return [_read(row) for row in tx.all(sql, asked_by, after, PAGE)]


def _end(tx: Transaction, ended: Handle) -> Handle:
    """Its end, or that which somebody else wrote down before."""
    tx.execute(
        "UPDATE handles SET status = ?, updated = ?, message = ?, result = ?"
        " WHERE id = ? AND asker = ? AND status = 'working'",
        *(
            ended.status,
            clock.to_ms(ended.updated),
            ended.message,
            ended.result,
            ended.id,
            ended.asker,
        ),
    )
    return _find(tx, ended.id, ended.asker) or ended


def _read(row: Sequence[Any]) -> Handle:
    return Handle(*row[:3], *map(clock.from_ms, row[3:6]), *row[6:])
