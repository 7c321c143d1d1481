"""The tasks backend: REST over the tables, problem+json for every refusal. The only home of FastAPI.

An answer leaves after its commit: each handler awaits the store, and nothing happens behind the answer.
"""

import asyncio
import logging
import secrets
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import count
from time import perf_counter
from typing import Annotated, Any, TypeVar
from zoneinfo import ZoneInfo

from fastapi import FastAPI, Header, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deskhand import __version__, tokens
from deskhand.errors import (
    AuthRequired,
    Changed,
    Contradiction,
    Denied,
    DeskError,
    Exists,
    FieldProblem,
    Internal,
    InvalidInput,
    NotFound,
    RateLimited,
    Unavailable,
    printable,
)
from deskhand.store import Row, Store, Transaction
from deskhand.tasks import deeds, due, models, store, vtodo
from deskhand.tasks.models import LARGEST_ID, NewTask, TaskChanges, TaskFilter

log = logging.getLogger("deskhand.tasks")

KEY_LIFE = timedelta(hours=24)
"""So long a create may be repeated under its key."""
PURGE_EVERY = 1000
STATUS: dict[type[DeskError], int] = {
    Contradiction: 409,
    InvalidInput: 422,
    NotFound: 404,
    Changed: 412,
    Exists: 409,
    Denied: 403,
    AuthRequired: 401,
    RateLimited: 429,
    Unavailable: 503,
}
Id = Annotated[int, Path(ge=1, le=LARGEST_ID)]
IfMatch = Annotated[str | None, Header(min_length=1, max_length=1000, description='the ETag you saw, or "*"')]
Asked = TypeVar("Asked", NewTask, TaskChanges)
T = TypeVar("T")
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=255, pattern=r"^[!-~]+$")]


class _Digits(StringConvertor):
    """Keeps ids apart from the names beside them (/tasks/undo); how large one may be is the handler's to say."""

    regex = "[0-9]+"


register_url_convertor("digits", _Digits())


class Problem(BaseModel):
    """RFC 9457: what is wrong, which fields, and what would help."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem]
    suggestions: list[str]
    reference: str | None = None


def tasks_api(
    opened: Store,
    service_token: str,
    now: Callable[[], datetime],
    zone: str,
    record: deeds.Record,
    user: str | None = None,
) -> FastAPI:
    """`record` writes a deed down in the transaction that does it; a token that names no user stands for `user`."""
    backend = _Backend(opened, service_token, now, ZoneInfo(zone), record, user)
    app = FastAPI(
        title="Deskhand tasks",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        exception_handlers={
            DeskError: _refuse,
            RequestValidationError: _refuse_fields,
            HTTPException: _refuse_route,
        },
    )
    identified = _identified(backend.identify)
    for method, path, handler, status, answer in backend.routes():
        app.router.add_api_route(
            path,
            handler,
            methods=[method],
            status_code=status,
            response_model=None,
            response_class=Response,
            responses=_documented(method, path, status, answer),
            openapi_extra=_DOCUMENTED.get((method, path)),
            route_class_override=identified,
        )
    health: dict[int | str, dict[str, Any]] = {200: {"description": "it answers"}, 503: _PROBLEM}
    app.add_api_route("/health", backend.health, response_model=None, response_class=Response, responses=health)
    app.add_api_route("/metrics", backend.metrics, response_model=None, response_class=Response)
    app.add_middleware(_Seam, backend=backend)
    app.openapi = lambda: _openapi(app, generated)  # type: ignore[method-assign]
    generated = FastAPI.openapi.__get__(app)
    return app


class _Backend:
    """The handlers and what they share."""

    def __init__(
        self,
        opened: Store,
        service_token: str,
        now: Callable[[], datetime],
        zone: ZoneInfo,
        record: deeds.Record,
        user: str | None,
    ) -> None:
        self.store = opened
        self._record = record
        self.counts: Counter[tuple[str, str, int]] = Counter()
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._service_token = service_token.encode()
        self._now = now
        self._zone = zone
        self._user = user
        self._keyed = count()

    def routes(self) -> list[tuple[str, str, Callable[..., Any], int, type[BaseModel] | None]]:
        return [
            ("POST", "/tasks", self.create, 201, models.Task),
            ("GET", "/tasks", self.page, 200, models.TaskPage),
            ("POST", "/tasks/bulk-delete", self.bulk_delete, 200, models.Deleted),
            ("POST", "/tasks/bulk", self.bulk, 200, models.BulkResults),
            ("POST", "/tasks/undo", self.undo, 200, models.Undone),
            ("GET", "/tasks/export", self.export, 200, None),
            ("POST", "/tasks/import", self.take, 200, models.Imported),
            ("GET", "/tasks/{task_id:digits}", self.get, 200, models.Task),
            ("PUT", "/tasks/{task_id:digits}", self.update, 200, models.Task),
            ("PATCH", "/tasks/{task_id:digits}", self.complete, 200, models.Task),
            ("DELETE", "/tasks/{task_id:digits}", self.delete, 204, None),
            ("POST", "/tasks/{task_id:digits}/restore", self.restore, 200, models.Task),
        ]

    async def identify(self, request: Request) -> None:
        """The service's token names its user in X-User-ID; any other token names its owner; nobody else enters."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        users = request.headers.getlist("x-user-id")
        user, actor = None, request.headers.get(deeds.ACTOR)
        if scheme.lower() == "bearer" and token:
            if not users:
                user, actor = await self._owner(token, request.method), None
            elif secrets.compare_digest(token.encode("utf-8", "surrogateescape"), self._service_token):
                user = users[0] if len(users) == 1 and tokens.is_user_id(users[0]) else None
        if user is None:
            raise AuthRequired(
                "nobody is identified",
                hint="send the service token with X-User-ID, or your own bearer token (`deskhand token create`)",
            )
        request.state.user = user
        request.state.actor = actor if actor in deeds.DOORS else "tasks_api"

    async def _owner(self, token: str, method: str) -> str | None:
        shown = await tokens.authenticate(self.store, token, self._now())
        if shown is None:
            return None
        writes = method != "GET"
        if not tokens.opens(shown.scopes, "tasks", writes=writes):
            needed = "tasks:write" if writes else "tasks:read"
            raise Denied(f"the token has no scope {needed}", reason="scope", scope=needed)
        return shown.user_id or self._user

    async def create(self, request: Request, new: NewTask, idempotency_key: IdempotencyKey = None) -> Response:
        user, now = request.state.user, self._now()
        key = None
        if idempotency_key is not None:
            key = store.Key(idempotency_key, sha256(new.model_dump_json().encode()).hexdigest())
            if next(self._keyed) % PURGE_EVERY == 0:
                await self.store.write(lambda tx: store.forget_keys(tx, due.utc_text(now - KEY_LIFE)))
        wanted = self._resolved(new, now)

        def work(tx: Transaction) -> store.Task:
            done = store.create(tx, user, wanted, due.utc_text(now), key)
            # A repetition is the same deed: the first one is on the record.
            if done.fresh:
                self._record(tx, _deed(request, f"task {done.task['id']}", subject=new.title))
            return done.task

        made = await self.store.write(work)
        request.state.recorded = True
        answer = _task(made, 201)
        answer.headers["location"] = f"{request.scope.get('root_path', '')}/tasks/{made['id']}"
        return answer

    async def page(self, request: Request) -> Response:
        user, wanted = request.state.user, _filter(request)
        return _json(await self.store.read_one(lambda tx: store.page(tx, user, wanted)))

    async def get(self, request: Request, task_id: Id) -> Response:
        user = request.state.user
        return _task(await self.store.read_one(lambda tx: store.get(tx, user, task_id)))

    async def update(self, request: Request, task_id: Id, changes: TaskChanges, if_match: IfMatch = None) -> Response:
        user, now = request.state.user, self._now()
        if not changes.model_fields_set:
            raise InvalidInput("nothing was given to change", hint="send at least one field")
        wanted, text = self._resolved(changes, now), due.utc_text(now)
        said: dict[str, Any] = {"subject": changes.title} if "title" in changes.model_fields_set else {}
        return _task(
            await self._do(
                _deed(request, f"task {task_id}", fields=sorted(changes.model_fields_set), **said),
                lambda tx: store.update(tx, user, task_id, wanted, text, if_match),
                request,
            )
        )

    async def complete(
        self, request: Request, task_id: Id, change: models.Completion, if_match: IfMatch = None
    ) -> Response:
        user, now, done = request.state.user, due.utc_text(self._now()), change.completed
        action = "mark_task_completed" if done else "reopen_task"
        return _task(
            await self._do(
                _deed(request, f"task {task_id}", action=action),
                lambda tx: store.complete(tx, user, task_id, done, now, if_match),
                request,
            )
        )

    async def delete(self, request: Request, task_id: Id, if_match: IfMatch = None) -> Response:
        user, now = request.state.user, due.utc_text(self._now())
        deed = _deed(request, f"task {task_id}")
        await self._do(deed, lambda tx: store.delete(tx, user, task_id, now, if_match), request)
        return Response(status_code=204)

    async def restore(self, request: Request, task_id: Id) -> Response:
        user, now = request.state.user, due.utc_text(self._now())
        deed = _deed(request, f"task {task_id}")
        return _task(await self._do(deed, lambda tx: store.restore(tx, user, task_id, now), request))

    async def bulk_delete(self, request: Request, which: models.TaskIds) -> Response:
        user, now = request.state.user, due.utc_text(self._now())
        deed = _deed(request, "tasks", task_ids=which.task_ids, action="delete_tasks")
        done = await self._do(deed, lambda tx: store.bulk(tx, user, "delete", which.task_ids, now), request)
        found = [[task_id for task_id, here in done.items() if here is wanted] for wanted in (True, False)]
        return _json({"deleted": found[0], "not_found": found[1]})

    async def bulk(self, request: Request, asked: models.Bulk) -> Response:
        user, now = request.state.user, due.utc_text(self._now())
        deed = _deed(request, "tasks", task_ids=asked.task_ids, action=f"{asked.action}_tasks")
        done = await self._do(deed, lambda tx: store.bulk(tx, user, asked.action, asked.task_ids, now), request)
        results = [{"task_id": key, "result": "done" if here else "not_found"} for key, here in done.items()]
        return _json({"results": results})

    async def undo(self, request: Request) -> Response:
        user, now = request.state.user, due.utc_text(self._now())
        return _json(await self._do(_deed(request, "tasks"), lambda tx: store.undo(tx, user, now), request))

    async def export(self, request: Request) -> Response:
        user = request.state.user
        rows = await self.store.read(lambda tx: store.exported(tx, user))
        return Response(await asyncio.to_thread(_calendar, rows), media_type="text/calendar; charset=utf-8")

    async def take(self, request: Request) -> Response:
        user, now = request.state.user, due.utc_text(self._now())
        todos, left_out = await asyncio.to_thread(vtodo.todos, await _whole(request, vtodo.LARGEST), self._zone)
        deed = _deed(request, "tasks", in_file=len(todos))
        taken = await self._do(deed, lambda tx: store.take(tx, user, todos, now), request)
        return _json({"imported": taken, "already_there": len(todos) - taken, "left_out": left_out})

    async def _do(self, deed: deeds.Deed, work: Callable[[Transaction], T], request: Request) -> T:
        """Both or neither: what was done, and the record of it."""

        def both(tx: Transaction) -> T:
            done = work(tx)
            self._record(tx, replace(deed, milliseconds=_took(request)))
            return done

        done = await self.store.write(both)
        request.state.recorded = True
        return done

    async def refused(self, request: Request) -> None:
        """What an identified user was refused is on the record too."""
        if getattr(request.state, "recorded", False) or not hasattr(request.state, "user") or not _action(request):
            return
        error = getattr(request.state, "error", None) or Unavailable("the call failed")
        deed = _deed(request, _target(request), error=error)
        try:
            # A database that is gone takes no entry either: asking it again would only keep the caller waiting.
            if isinstance(error, Unavailable):
                raise error
            await self.store.write(lambda tx: self._record(tx, deed))
        except DeskError as failure:
            log.critical("not_on_record", extra={"action": deed.action, "failure": failure.message})
        else:
            request.state.recorded = True

    async def health(self) -> Response:
        await self.store.read_one(lambda tx: tx.one("SELECT 1"))
        return _json({"status": "ok"})

    async def metrics(self) -> Response:
        lines = ["# TYPE deskhand_tasks_requests_total counter"]
        lines += [
            f'deskhand_tasks_requests_total{{method="{method}",route="{route}",status="{status}"}} {number}'
            for (method, route, status), number in sorted(self.counts.items())
        ]
        lines.append("# TYPE deskhand_tasks_request_seconds_total counter")
        lines += [
            f'deskhand_tasks_request_seconds_total{{method="{method}",route="{route}"}} {seconds:.6f}'
            for (method, route), seconds in sorted(self.seconds.items())
        ]
        return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    def _resolved(self, asked: Asked, now: datetime) -> Asked:
        if not isinstance(asked.due_date, str):
            return asked
        return asked.model_copy(update={"due_date": due.resolve(asked.due_date, now, self._zone)})


class _Seam:
    """Around every request: a crash tells nothing, a refusal goes on the record, what was answered is counted."""

    def __init__(self, app: ASGIApp, backend: _Backend) -> None:
        self.app = app
        self.backend = backend
        self.counts = backend.counts
        self.seconds = backend.seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, started, request = 0, perf_counter(), Request(scope)
        request.state.started = started

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if status >= 400:
                    await self.backend.refused(request)
                if getattr(request.state, "recorded", False):
                    message["headers"] = [*message["headers"], (deeds.RECORDED.lower().encode(), b"1")]
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception as error:
            if status:
                raise
            answer = await _crash(request, error)
            await answer(scope, receive, watched)
        finally:
            # The route's own pattern: a path as it came would make a line for every id and every guess.
            route = getattr(scope.get("route"), "path_format", "none")
            method = scope["method"] if route != "none" else "any"
            self.counts[method, route, status] += 1
            self.seconds[method, route] += perf_counter() - started


def _identified(identify: Callable[[Request], Awaitable[None]]) -> type[APIRoute]:
    """A route that nobody enters unidentified; said as a dependency it would cost more than it does."""

    class Identified(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def entered(request: Request) -> Response:
                await identify(request)
                return await handle(request)

            return entered

    return Identified


def _filter(request: Request) -> TaskFilter:
    # Taken apart parameter by parameter, as FastAPI does it, a list takes a tenth longer.
    try:
        return TaskFilter.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


def _calendar(rows: Sequence[tuple[str, Row]]) -> str:
    tasks = store.unfolded(rows)
    return vtodo.text_of(tasks, {task["id"]: uid for uid, task in tasks})


async def _whole(request: Request, most: int) -> bytes:
    """The body, if it is not too large; no more of it is kept than that."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise InvalidInput(f"the file is larger than {most:,} bytes", hint="import it in parts")
    return bytes(body)


_ACTIONS = {
    ("POST", "/tasks"): "create_task",
    ("POST", "/tasks/bulk-delete"): "delete_tasks",
    ("POST", "/tasks/bulk"): "change_tasks",
    ("POST", "/tasks/undo"): "undo_task_change",
    ("POST", "/tasks/import"): "import_tasks",
    ("PUT", "/tasks/{task_id}"): "update_task",
    ("PATCH", "/tasks/{task_id}"): "mark_task_completed",
    ("DELETE", "/tasks/{task_id}"): "delete_task",
    ("POST", "/tasks/{task_id}/restore"): "restore_task",
}


def _action(request: Request) -> str | None:
    return _ACTIONS.get((request.method, getattr(request.scope.get("route"), "path_format", "")))


def _target(request: Request) -> str:
    task_id = request.path_params.get("task_id")
    return f"task {printable(task_id, 20)}" if task_id else "tasks"


def _deed(
    request: Request, target: str, *, action: str | None = None, error: DeskError | None = None, **parameters: Any
) -> deeds.Deed:
    name = action or _action(request) or ""
    return deeds.Deed(request.state.actor, request.state.user, name, target, parameters, error, _took(request))


def _took(request: Request) -> int:
    started: float = request.state.started
    return round((perf_counter() - started) * 1000)


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json(content), status, headers, media_type="application/json")


def _task(task: store.Task, status: int = 200) -> Response:
    return _json(task, status, {"etag": store.etag(task)})


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, DeskError)  # noqa: S101 - registered for it
    request.state.error = error
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
    fields = [FieldProblem(**field) for field in error.details.get("fields", ())]
    return _problem(status, error.message, fields, error.hint, reference=error.details.get("reference"))


async def _refuse_fields(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
    found = models.problems(error.errors())
    names = ", ".join(sorted({problem.field for problem in found}))
    request.state.error = InvalidInput(f"the request is not valid: {printable(names)}")
    return _problem(422, "the request is not valid", found)


async def _refuse_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    headers = dict(error.headers or {})
    if error.status_code == 405:
        # The router names the methods of one route; a path has several.
        found = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
        headers["allow"] = ", ".join(sorted({method for route in found for method in route.methods}))
    return _problem(error.status_code, str(error.detail), headers=headers)


async def _crash(request: Request, error: Exception) -> Response:
    reference = secrets.token_hex(4)
    log.error("crash", extra={"path": request.url.path, "reference": reference}, exc_info=error)
    return await _refuse(request, Internal("an unexpected error; nothing of it is shown here", reference=reference))


_TITLES = {
    400: "Bad Request",
    401: "Not identified",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    412: "Changed meanwhile",
    422: "Not valid",
    429: "Too many requests",
    500: "Internal error",
    503: "Not available",
}


def _problem(
    status: int,
    detail: str,
    fields: Sequence[FieldProblem] = (),
    hint: str | None = None,
    *,
    reference: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    problem = Problem(
        type="about:blank",
        title=_TITLES.get(status, "Refused"),
        status=status,
        detail=detail,
        errors=list(fields),
        suggestions=[*([hint] if hint else []), *(field.suggestion for field in fields if field.suggestion)],
        reference=reference,
    )
    more = dict(headers or {}) | ({"www-authenticate": "Bearer"} if status == 401 else {})
    return Response(problem.model_dump_json(), status, more, media_type="application/problem+json")


_REFERENCE = "#/components/schemas/{model}"
_DOCUMENTED: dict[tuple[str, str], dict[str, Any]] = {
    ("GET", "/tasks"): {
        "parameters": [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in TaskFilter.model_json_schema(ref_template=_REFERENCE)["properties"].items()
        ],
    },
    ("POST", "/tasks/import"): {
        "requestBody": {
            "required": True,
            "content": {"text/calendar": {"schema": {"type": "string", "pattern": vtodo.USUAL}}},
        }
    },
}
_PROBLEM: dict[str, Any] = {
    "description": "Refused",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def _documented(method: str, path: str, status: int, answer: type[BaseModel] | None) -> dict[int | str, dict[str, Any]]:
    refusals = {401, 403, 422, 503}
    if "{task_id" in path or path.endswith("/undo"):
        refusals.add(404)
    if "{task_id" in path and method in ("PUT", "PATCH", "DELETE"):
        refusals.add(412)
    if method in ("POST", "PUT", "PATCH"):
        refusals |= {400, 409}
    if path == "/tasks":
        refusals.add(409)
    documented: dict[int | str, dict[str, Any]] = dict.fromkeys(sorted(refusals), _PROBLEM)
    documented[status] = {"description": "Done"} | ({"model": answer} if answer else {})
    if path == "/tasks/export":
        documented[status]["content"] = {"text/calendar": {"schema": {"type": "string"}}}
    return documented


def _openapi(app: FastAPI, generated: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    if app.openapi_schema is not None:
        return app.openapi_schema
    document = generated()
    parts = document["components"]
    parts["schemas"]["Problem"] = Problem.model_json_schema(ref_template=_REFERENCE)
    parts["schemas"] |= parts["schemas"]["Problem"].pop("$defs")
    parts["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "the service's token, or a user's own"},
        "user": {"type": "apiKey", "in": "header", "name": "X-User-ID", "description": "with the service's token"},
    }
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path.startswith("/tasks"):
                operation["security"] = [{"token": [], "user": []}, {"token": []}]
    return document
