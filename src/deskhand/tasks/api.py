"""The tasks backend: REST over the tables, problem+json for every refusal. The only home of FastAPI.

An answer leaves after its commit: each handler awaits the store, and nothing happens behind the answer.
"""

import logging
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import count
from time import perf_counter
from typing import Annotated, Any, TypeVar
from zoneinfo import ZoneInfo

from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
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
)
from deskhand.store import Store
from deskhand.tasks import due, models, store
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
    opened: Store, service_token: str, now: Callable[[], datetime], zone: str = "UTC", user: str | None = None
) -> FastAPI:
    """`user` is whom a token that names no user stands for."""
    backend = _Backend(opened, service_token, now, ZoneInfo(zone), user)
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
    identified = [Depends(backend.identify)]
    for method, path, handler, status, answer in backend.routes():
        app.add_api_route(
            path,
            handler,
            methods=[method],
            status_code=status,
            response_model=None,
            response_class=Response,
            responses=_documented(method, path, status, answer),
            dependencies=identified,
        )
    health: dict[int | str, dict[str, Any]] = {200: {"description": "it answers"}, 503: _PROBLEM}
    app.add_api_route("/health", backend.health, response_model=None, response_class=Response, responses=health)
    app.add_api_route("/metrics", backend.metrics, response_model=None, response_class=Response)
    app.add_middleware(_Seam, counts=backend.counts, seconds=backend.seconds)
    app.openapi = lambda: _openapi(app, generated)  # type: ignore[method-assign]
    generated = FastAPI.openapi.__get__(app)
    return app


class _Backend:
    """The handlers and what they share."""

    def __init__(
        self, opened: Store, service_token: str, now: Callable[[], datetime], zone: ZoneInfo, user: str | None
    ) -> None:
        self.store = opened
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
        user: str | None = None
        if scheme.lower() == "bearer" and token:
            if not users:
                user = await self._owner(token, request.method)
            elif secrets.compare_digest(token.encode("utf-8", "surrogateescape"), self._service_token):
                user = users[0] if len(users) == 1 and tokens.is_user_id(users[0]) else None
        if user is None:
            raise AuthRequired(
                "nobody is identified",
                hint="send the service token with X-User-ID, or your own bearer token (`deskhand token create`)",
            )
        request.state.user = user

    async def _owner(self, token: str, method: str) -> str | None:
        shown = await tokens.shown(self.store, token, self._now())
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
        made = await self.store.write(lambda tx: store.create(tx, user, wanted, due.utc_text(now), key))
        answer = _task(made, 201)
        answer.headers["location"] = f"{request.scope.get('root_path', '')}/tasks/{made['id']}"
        return answer

    async def page(self, request: Request, wanted: Annotated[TaskFilter, Query()]) -> Response:
        user = request.state.user
        return _json(await self.store.read(lambda tx: store.page(tx, user, wanted)))

    async def get(self, request: Request, task_id: Id) -> Response:
        user = request.state.user
        return _task(await self.store.read(lambda tx: store.get(tx, user, task_id)))

    async def update(self, request: Request, task_id: Id, changes: TaskChanges, if_match: IfMatch = None) -> Response:
        user, now = request.state.user, self._now()
        if not changes.model_fields_set:
            raise InvalidInput("nothing was given to change", hint="send at least one field")
        wanted, text = self._resolved(changes, now), due.utc_text(now)
        return _task(await self.store.write(lambda tx: store.update(tx, user, task_id, wanted, text, if_match)))

    async def complete(
        self, request: Request, task_id: Id, change: models.Completion, if_match: IfMatch = None
    ) -> Response:
        user, now, done = request.state.user, due.utc_text(self._now()), change.completed
        return _task(await self.store.write(lambda tx: store.complete(tx, user, task_id, done, now, if_match)))

    async def delete(self, request: Request, task_id: Id, if_match: IfMatch = None) -> Response:
        user, now = request.state.user, due.utc_text(self._now())
        await self.store.write(lambda tx: store.delete(tx, user, task_id, now, if_match))
        return Response(status_code=204)

    async def restore(self, request: Request, task_id: Id) -> Response:
        user, now = request.state.user, due.utc_text(self._now())
        return _task(await self.store.write(lambda tx: store.restore(tx, user, task_id, now)))

    async def bulk_delete(self, request: Request, which: models.TaskIds) -> Response:
        user, now = request.state.user, due.utc_text(self._now())
        done = await self.store.write(lambda tx: store.bulk(tx, user, "delete", which.task_ids, now))
        found = [[task_id for task_id, here in done.items() if here is wanted] for wanted in (True, False)]
        return _json({"deleted": found[0], "not_found": found[1]})

    async def bulk(self, request: Request, asked: models.Bulk) -> Response:
        user, now = request.state.user, due.utc_text(self._now())
        done = await self.store.write(lambda tx: store.bulk(tx, user, asked.action, asked.task_ids, now))
        results = [{"task_id": key, "result": "done" if here else "not_found"} for key, here in done.items()]
        return _json({"results": results})

    async def undo(self, request: Request) -> Response:
        user, now = request.state.user, due.utc_text(self._now())
        return _json(await self.store.write(lambda tx: store.undo(tx, user, now)))

    async def health(self) -> Response:
        await self.store.read(lambda tx: tx.one("SELECT 1"))
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
    """Around every request: a crash becomes an answer that tells nothing, and what was answered is counted."""

    def __init__(
        self, app: ASGIApp, counts: Counter[tuple[str, str, int]], seconds: defaultdict[tuple[str, str], float]
    ) -> None:
        self.app = app
        self.counts = counts
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, started = 0, perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception as error:
            if status:
                raise
            answer = await _crash(Request(scope), error)
            await answer(scope, receive, watched)
        finally:
            # The route's own pattern: a path as it came would make a line for every id and every guess.
            route = getattr(scope.get("route"), "path_format", "none")
            method = scope["method"] if route != "none" else "any"
            self.counts[method, route, status] += 1
            self.seconds[method, route] += perf_counter() - started


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json(content), status, headers, media_type="application/json")


def _task(task: store.Task, status: int = 200) -> Response:
    return _json(task, status, {"etag": store.etag(task)})


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, DeskError)  # noqa: S101 - registered for it
    del request
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
    fields = [FieldProblem(**field) for field in error.details.get("fields", ())]
    return _problem(status, error.message, fields, error.hint, reference=error.details.get("reference"))


async def _refuse_fields(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for it
    del request
    return _problem(422, "the request is not valid", models.problems(error.errors()))


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
    return documented


def _openapi(app: FastAPI, generated: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    if app.openapi_schema is not None:
        return app.openapi_schema
    document = generated()
    parts = document["components"]
    reference = "#/components/schemas/{model}"
    parts["schemas"]["Problem"] = Problem.model_json_schema(ref_template=reference)
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
